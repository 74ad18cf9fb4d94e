//! Counts of what a write-back leaves out, by reason, and their text for the user.

/// What could not be written back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Names in the root that are the runtime's, and devices that mean something to an overlay of the host.
    pub reserved: u64,
    /// Devices: without the right to make them, or without being asked to.
    pub devices: u64,
    /// Files that lost set-ID bits or capabilities, without being asked to keep them.
    pub rights: u64,
    /// Extended attributes that are the host's, or that its file system does not take.
    pub xattrs: u64,
    /// Owners that the user namespace does not have, or that take a privilege.
    pub owners: u64,
    /// Objects, or changes of some, that the host cannot hold or that cannot be made there.
    pub refused: u64,
    /// Objects and attributes beyond the bounds of a stream of changes.
    pub omitted: u64,
}

impl Skipped {
    /// Counts more.
    pub(crate) fn add(&mut self, more: Skipped) {
        self.reserved += more.reserved;
        self.devices += more.devices;
        self.rights += more.rights;
        self.xattrs += more.xattrs;
        self.owners += more.owners;
        self.refused += more.refused;
        self.omitted += more.omitted;
    }
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
            (
                self.reserved,
                "names or devices that mean something to the runtime or to an overlay of the host",
            ),
            (self.devices, "devices, which take root's privilege and commit=privileged"),
            (self.rights, "files' set-ID bits or capabilities, which take commit=privileged"),
            (self.xattrs, "extended attributes, which are the host's or which its file system does not take"),
            (self.owners, "owners, which the user namespace does not have or which take root's privilege"),
            (
                self.refused,
                "objects, too large for the host's file system or ones that it lets nobody change",
            ),
            (self.omitted, "objects or attributes, which lie too deep or are too many"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts.map(|(count, what)| format!("{count} {what}")).collect();
        f.write_str(&parts.join("; "))
    }
}

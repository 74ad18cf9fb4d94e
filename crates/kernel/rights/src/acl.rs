//! POSIX access control lists: their form, the users that they admit, the lists that new objects inherit. See acl(5).
//!
//! A list is immutable and shared. The group bits of the mode of an object with a list are the list's mask. The file system keeps
//! the lists; the rules are here. What is kept is what cannot be said by the mode alone.

use crate::cred::Credentials;
use crate::mode::Perm;
use abi::{Errno, Result};

/// The attribute of [`AclKind::Access`].
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of [`AclKind::Default`].
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// `POSIX_ACL_XATTR_VERSION`.
const VERSION: u32 = 2;
/// Bytes of an attribute before its entries.
const HEADER: usize = 4;
/// Bytes of an entry in an attribute.
const ENTRY: usize = 8;

/// Which of an object's lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclKind {
    /// The rights on the object.
    Access,
    /// Of a directory: what is made in it starts with this list.
    Default,
}

impl AclKind {
    /// The list that an extended attribute is.
    pub fn of_xattr(name: &[u8]) -> Option<AclKind> {
        match name {
            ACCESS => Some(AclKind::Access),
            DEFAULT => Some(AclKind::Default),
            _ => None,
        }
    }

    /// Name of the extended attribute.
    pub fn xattr(self) -> &'static [u8] {
        match self {
            AclKind::Access => ACCESS,
            AclKind::Default => DEFAULT,
        }
    }
}

/// The subject of an entry, in the order in which entries stand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Tag {
    UserObj,
    User,
    GroupObj,
    Group,
    Mask,
    Other,
}

const TAGS: [(u16, Tag); 6] = [
    (0x01, Tag::UserObj),
    (0x02, Tag::User),
    (0x04, Tag::GroupObj),
    (0x08, Tag::Group),
    (0x10, Tag::Mask),
    (0x20, Tag::Other),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    tag: Tag,
    /// Read, write and execute as in a mode's last three bits.
    bits: u32,
    /// User or group of an entry that names one.
    id: u32,
}

/// A list that is in order: owner, named users, group, named groups, mask, others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// The list in an attribute's value; `None` for one without entries. EINVAL, EOPNOTSUPP for another version.
    pub fn from_xattr(value: &[u8]) -> Result<Option<Acl>> {
        let (head, body) = value.split_at_checked(HEADER).ok_or(Errno::EINVAL)?;
        if head != VERSION.to_le_bytes() {
            return Err(Errno::EOPNOTSUPP);
        }
        let (entries, rest) = body.as_chunks::<ENTRY>();
        if !rest.is_empty() {
            return Err(Errno::EINVAL);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let entries = entries.iter().map(Entry::from_bytes).collect::<Result<Vec<Entry>>>()?;
        Ok(Some(Acl(entries)))
    }

    /// The list with other IDs of named users and groups; `None` where `user` or `group` gives none.
    pub fn map_ids(
        &self,
        user: impl Fn(u32) -> Option<u32>,
        group: impl Fn(u32) -> Option<u32>,
    ) -> Option<Acl> {
        let entry = |e: &Entry| match e.tag {
            Tag::User => Some(Entry { id: user(e.id)?, ..*e }),
            Tag::Group => Some(Entry { id: group(e.id)?, ..*e }),
            _ => Some(*e),
        };
        self.0.iter().map(entry).collect::<Option<_>>().map(Acl)
    }

    /// The value of the attribute.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        self.0.iter().for_each(|entry| value.extend(entry.to_bytes()));
        value
    }

    /// EINVAL unless the entries are those of acl(5), in order: one for the owner, the group and all others, and one mask where
    /// users or groups are named.
    pub fn validate(&self) -> Result<()> {
        let once = |tag| self.0.iter().filter(|e| e.tag == tag).count() == 1;
        let named = self.0.iter().any(|e| matches!(e.tag, Tag::User | Tag::Group));
        let masks = self.0.iter().filter(|e| e.tag == Tag::Mask).count();
        let sorted = self.0.is_sorted_by_key(|e| e.tag);
        let valid = sorted && once(Tag::UserObj) && once(Tag::GroupObj) && once(Tag::Other);
        if valid && masks <= 1 && (masks == 1 || !named) { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// The permission bits that the list stands for, and whether they say everything.
    pub fn mode(&self) -> (u32, bool) {
        let mut mode = 0;
        let mut exact = true;
        for e in &self.0 {
            match e.tag {
                Tag::UserObj => mode |= e.bits << 6,
                Tag::GroupObj => mode |= e.bits << 3,
                Tag::Other => mode |= e.bits,
                Tag::Mask => {
                    mode = mode & !0o070 | e.bits << 3;
                    exact = false;
                }
                Tag::User | Tag::Group => exact = false,
            }
        }
        (mode, exact)
    }

    /// The list after chmod(2) to `mode`.
    pub fn with_mode(&self, mode: u32) -> Acl {
        let mut acl = self.clone();
        acl.each_class(|bits, shift| *bits = mode >> shift & 7);
        acl
    }

    /// What an object made with `mode` gets where this is the directory's default: its mode and its list.
    pub fn inherited(&self, mode: u32) -> (u32, Acl) {
        let mut acl = self.clone();
        let mut result = mode & !0o777;
        acl.each_class(|bits, shift| {
            *bits &= mode >> shift;
            result |= *bits << shift;
        });
        (result, acl)
    }

    /// Calls `f` with the bits of the entries that are the three classes of the mode, and where they stand in a mode.
    fn each_class(&mut self, mut f: impl FnMut(&mut u32, u32)) {
        let group = if self.0.iter().any(|e| e.tag == Tag::Mask) { Tag::Mask } else { Tag::GroupObj };
        for e in &mut self.0 {
            match e.tag {
                Tag::UserObj => f(&mut e.bits, 6),
                Tag::Other => f(&mut e.bits, 0),
                tag if tag == group => f(&mut e.bits, 3),
                _ => {}
            }
        }
    }

    /// EACCES unless the list of an object with these attributes grants `creds` every bit of `want`.
    pub fn allows(&self, creds: &Credentials, p: &Perm, want: u32) -> Result<()> {
        let mask = self.0.iter().find(|e| e.tag == Tag::Mask).map_or(7, |e| e.bits);
        let enough = |bits: u32| if want & 7 & !bits == 0 { Ok(()) } else { Err(Errno::EACCES) };
        let mut member = false;
        for e in &self.0 {
            let group = match e.tag {
                Tag::UserObj if creds.fsuid == p.uid => return enough(e.bits),
                Tag::User if creds.fsuid == e.id => return enough(e.bits & mask),
                Tag::GroupObj => p.gid,
                Tag::Group => e.id,
                Tag::Other if member => return Err(Errno::EACCES),
                Tag::Other => return enough(e.bits),
                _ => continue,
            };
            if creds.in_group(group) {
                member = true;
                if enough(e.bits).is_ok() {
                    return enough(e.bits & mask);
                }
            }
        }
        Err(Errno::EACCES)
    }
}

impl Entry {
    fn from_bytes(b: &[u8; ENTRY]) -> Result<Entry> {
        let short = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
        let (_, tag) = *TAGS.iter().find(|(number, _)| *number == short(0)).ok_or(Errno::EINVAL)?;
        let bits = u32::from(short(2));
        let id = u32::from_le_bytes([b[4], b[5], b[6], b[7]]);
        let named = matches!(tag, Tag::User | Tag::Group);
        if bits & !7 != 0 || named && id == u32::MAX {
            return Err(Errno::EINVAL);
        }
        Ok(Entry { tag, bits, id: if named { id } else { u32::MAX } })
    }

    fn to_bytes(self) -> [u8; ENTRY] {
        let number = TAGS.iter().find(|(_, tag)| *tag == self.tag).map_or(0, |(number, _)| *number);
        let mut b = [0; ENTRY];
        b[..2].copy_from_slice(&number.to_le_bytes());
        b[2..4].copy_from_slice(&(self.bits as u16).to_le_bytes());
        b[4..].copy_from_slice(&self.id.to_le_bytes());
        b
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use user_ns::UserNamespace;

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut v = 2u32.to_le_bytes().to_vec();
        for (tag, bits, id) in entries {
            v.extend(tag.to_le_bytes());
            v.extend(bits.to_le_bytes());
            v.extend(id.to_le_bytes());
        }
        v
    }

    fn list(entries: &[(u16, u16, u32)]) -> Acl {
        let acl = Acl::from_xattr(&acl(entries)).unwrap().unwrap();
        acl.validate().unwrap();
        acl
    }

    fn user(fsuid: u32, fsgid: u32, groups: &[u32]) -> Credentials {
        let root = Credentials::root(&UserNamespace::initial(), 0);
        Credentials { fsuid, fsgid, groups: groups.into(), ..root }
    }

    const NONE: u32 = u32::MAX;

    #[test]
    fn values_come_back_as_they_were() {
        let value =
            acl(&[(1, 7, NONE), (2, 5, 10), (4, 4, NONE), (8, 6, 20), (0x10, 5, NONE), (0x20, 0, NONE)]);
        let acl = Acl::from_xattr(&value).unwrap().unwrap();
        assert_eq!(acl.to_xattr(), value);
        assert_eq!(acl.mode(), (0o750, false));
        assert_eq!(list(&[(1, 6, NONE), (4, 4, NONE), (0x20, 1, NONE)]).mode(), (0o641, true));
    }

    #[test]
    fn wrong_values_are_refused() {
        let errno =
            |v: &[u8]| Acl::from_xattr(v).and_then(|a| a.map_or(Ok(()), |a| a.validate())).unwrap_err();
        assert_eq!(errno(b"\x02\0"), Errno::EINVAL);
        assert_eq!(errno(b"\x01\0\0\0"), Errno::EOPNOTSUPP);
        assert_eq!(errno(b"\x02\0\0\0\x01"), Errno::EINVAL);
        for entries in [
            &[(3, 7, NONE)][..],
            &[(1, 8, NONE), (4, 4, NONE), (0x20, 0, NONE)],
            &[(1, 7, NONE), (4, 4, NONE)],
            &[(4, 4, NONE), (1, 7, NONE), (0x20, 0, NONE)],
            &[(1, 7, NONE), (2, 7, 5), (4, 4, NONE), (0x20, 0, NONE)],
            &[(1, 7, NONE), (2, 7, NONE), (4, 4, NONE), (0x10, 7, NONE), (0x20, 0, NONE)],
            &[(1, 7, NONE), (4, 4, NONE), (0x10, 7, NONE), (0x10, 7, NONE), (0x20, 0, NONE)],
        ] {
            assert_eq!(errno(&acl(entries)), Errno::EINVAL, "{entries:?}");
        }
        assert_eq!(Acl::from_xattr(&acl(&[])), Ok(None));
    }

    #[test]
    fn access_goes_by_the_first_class_that_fits() {
        let acl = list(&[
            (1, 7, NONE),
            (2, 7, 10),
            (2, 0, 11),
            (4, 4, NONE),
            (8, 2, 20),
            (0x10, 6, NONE),
            (0x20, 1, NONE),
        ]);
        let p = Perm { mode: 0o100761, uid: 1, gid: 2 };
        let may = |who: &Credentials, want| acl.allows(who, &p, want).is_ok();
        assert!(may(&user(1, 9, &[]), 7));
        // The mask takes the right to execute from the named user.
        assert!(may(&user(10, 9, &[]), 6) && !may(&user(10, 9, &[]), 1));
        assert!(!may(&user(11, 2, &[20]), 4));
        // Groups are asked one by one: no one of them grants both.
        let both = user(12, 2, &[20]);
        assert!(may(&both, 4) && may(&both, 2) && !may(&both, 6) && !may(&both, 1));
        assert!(may(&user(13, 9, &[]), 1) && !may(&user(13, 9, &[]), 4));
    }

    #[test]
    fn new_objects_inherit_within_their_mode() {
        let default = list(&[(1, 7, NONE), (2, 6, 10), (4, 5, NONE), (0x10, 7, NONE), (0x20, 5, NONE)]);
        let (mode, acl) = default.inherited(0o2640);
        assert_eq!((mode, acl.mode()), (0o2640, (0o640, false)));
        let plain = list(&[(1, 7, NONE), (4, 5, NONE), (0x20, 0, NONE)]);
        assert_eq!(plain.inherited(0o666).0, 0o640);
        assert_eq!(default.with_mode(0o501).mode().0, 0o501);
    }
}

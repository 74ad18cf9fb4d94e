//! The text of /proc/PID/mountinfo. See proc_pid_mountinfo(5).
//!
//! Pure: bytes in, mounts out. Paths are bytes, as the kernel's are; a line of another form is left out.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its number.
    pub id: u64,
    /// The number of the mount that it is on.
    pub parent: u64,
    /// Path in the file system that the mount shows.
    pub root: PathBuf,
    /// Where it is.
    pub point: PathBuf,
    /// Type of the file system.
    pub fstype: String,
    /// What the file system is on.
    pub source: OsString,
    /// Options of the file system itself.
    pub options: String,
}

impl Mount {
    /// Whether the file system has an option.
    pub fn has_option(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }
}

/// All mounts, in the order in which they stand there: one that covers another comes later.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(line).collect()
}

/// The numbers of the mounts on a mount, on those, and so on, and its own.
pub fn tree_of(mounts: &[Mount], id: u64) -> BTreeSet<u64> {
    let mut tree = BTreeSet::from([id]);
    loop {
        let before = tree.len();
        let on = mounts.iter().filter(|mount| tree.contains(&mount.parent)).map(|mount| mount.id);
        let on: Vec<_> = on.collect();
        tree.extend(on);
        if tree.len() == before {
            return tree;
        }
    }
}

/// `ID parent major:minor ROOT POINT options [optional...] - TYPE SOURCE OPTIONS`
fn line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let (root, point) = (fields.by_ref().nth(1)?, fields.next()?);
    fields.find(|field| *field == b"-")?;
    let (fstype, source, options) = (fields.next()?, fields.next()?, fields.next()?);
    Some(Mount {
        id,
        parent,
        root: unescape(root).into(),
        point: unescape(point).into(),
        fstype: unescape(fstype).into_string().ok()?,
        source: unescape(source),
        options: String::from_utf8_lossy(options).into_owned(),
    })
}

/// Undoes the kernel's octal escapes of space, tab, newline, backslash and number sign.
fn unescape(text: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let code = match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        out.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn fields() {
        let mounts = parse(
            b"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
              42 27 0:61 /part /srv/my\\040data rw shared:3 master:1 - xfs /dev/vdb rw,noquota\n",
        );
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].root.to_str(), mounts[0].point.to_str()), (Some("/"), Some("/")));
        let data = &mounts[1];
        assert_eq!((data.id, data.parent), (42, 27));
        assert_eq!((tree_of(&mounts, 27).len(), tree_of(&mounts, 42).len()), (2, 1));
        assert_eq!((data.root.to_str(), data.point.to_str()), (Some("/part"), Some("/srv/my data")));
        assert_eq!((data.fstype.as_str(), data.source.to_str()), ("xfs", Some("/dev/vdb")));
        assert!(data.has_option("noquota") && !data.has_option("quota"));
    }

    #[test]
    fn escapes() {
        for (text, plain) in [
            (&b"a\\040b\\011c\\012d\\134e"[..], &b"a b\tc\nd\\e"[..]),
            (b"\\134040", b"\\040"),
            (b"\\04", b"\\04"),
            (b"\\999", b"\\999"),
            (b"\\400", b"\\400"),
            (b"\xff\\", b"\xff\\"),
        ] {
            assert_eq!(unescape(text), OsStr::from_bytes(plain));
        }
    }

    #[test]
    fn other_lines_are_left_out() {
        for text in [&b""[..], b"\n", b"1 2 3 4", b"1 2 3 / / rw - ext4", b"1 2 3 / / rw ext4 a b"] {
            assert!(parse(text).is_empty());
        }
    }

    #[test]
    fn own_mounts() {
        let mounts = parse(&std::fs::read("/proc/self/mountinfo").unwrap());
        assert!(mounts.iter().any(|mount| mount.fstype == "proc"));
    }
}

//! Writing back to a real directory, stopped at every moment.

use crate::process::write_back;
use crate::proof::{Proof, STAGING};
use crate::recover::{Repair, begin, recover};
use crate::steps;
use overlay_diff::{Meta, Node, Reader, Record, State, Writer};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

struct Root(PathBuf);

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::remove_dir_all(self.state());
    }
}

impl Root {
    fn new(name: &str) -> Root {
        let dir = std::env::temp_dir().join(format!("write-back-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("old/sub/deep")).unwrap();
        fs::create_dir(dir.join("etc")).unwrap();
        for (path, text) in [
            ("old/a", "a"),
            ("old/sub/b", "b"),
            ("old/sub/deep/c", "c"),
            ("etc/kept", "kept"),
            ("etc/changed", "before"),
            ("etc/mode", "mode"),
            ("etc/one", "shared"),
            ("etc/was-file", "f"),
        ] {
            fs::write(dir.join(path), text).unwrap();
        }
        fs::hard_link(dir.join("etc/one"), dir.join("etc/two")).unwrap();
        symlink("/etc/passwd", dir.join("etc/link")).unwrap();
        Root(dir)
    }

    fn open(&self) -> OwnedFd {
        File::open(&self.0).unwrap().into()
    }

    /// Where the proofs are.
    fn state(&self) -> PathBuf {
        let mut state = self.0.clone().into_os_string();
        state.push("-state");
        state.into()
    }

    fn proof(&self) -> Proof {
        fs::create_dir_all(self.state()).unwrap();
        Proof::open(&self.state(), &self.0, true).unwrap().unwrap()
    }

    fn recover(&self) -> std::io::Result<Repair> {
        recover(&self.open(), &self.proof(), &|| Ok(()))
    }

    fn write_back(&self, records: &[Record<'_>]) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        records.iter().for_each(|record| writer.write(record).unwrap());
        write_back(&self.open(), &self.proof(), true, &mut Reader::new(&bytes[..])).map(drop)
    }

    /// Everything that there is: type, mode, links, times of files, content.
    fn picture(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        let mut todo = vec![self.0.clone()];
        while let Some(path) = todo.pop() {
            let meta = fs::symlink_metadata(&path).unwrap();
            let what = if meta.is_dir() {
                todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                "directory".into()
            } else if meta.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if !meta.is_file() {
                "special".into()
            } else {
                format!("{} x{}", String::from_utf8_lossy(&fs::read(&path).unwrap()), meta.nlink())
            };
            let name = path.strip_prefix(&self.0).unwrap().to_path_buf();
            all.insert(name, format!("{:o} {what}", meta.mode()));
        }
        all
    }
}

const DIR: u32 = 0o040755;
const FILE: u32 = 0o100644;

fn node(name: &[u8], state: State, mode: u32, size: u64) -> Node<'_> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let meta = Meta { mode, uid, gid, size, mtime: (1_000_000, 5), ..Meta::default() };
    Node { name, state, hides: false, id: 0, meta, target: b"" }
}

/// Every kind of change at once.
fn changes() -> Vec<Record<'static>> {
    let data = |bytes| Record::Data { offset: 0, bytes };
    let hiding = |node: Node<'static>| Node { hides: true, ..node };
    vec![
        Record::Node(node(b"", State::Changed, DIR, 0)),
        Record::Node(node(b"etc", State::Changed, 0o040750, 0)),
        Record::Node(Node { id: 7, ..node(b"mode", State::Changed, 0o100600, 4) }),
        Record::Node(node(b"changed", State::Rewritten { shared: false }, FILE, 5)),
        data(b"after"),
        Record::Node(node(b"one", State::Rewritten { shared: true }, FILE, 6)),
        data(b"SHARED"),
        Record::Removed { name: b"link" },
        Record::Removed { name: b"never" },
        Record::Node(hiding(node(b"was-file", State::New, DIR, 0))),
        Record::Node(Node { id: 8, ..node(b"x", State::New, FILE, 3) }),
        data(b"new"),
        Record::Node(Node { id: 7, ..node(b"mode2", State::Link, 0o100600, 4) }),
        Record::Node(Node { id: 8, ..node(b"y", State::Link, FILE, 3) }),
        Record::Up,
        Record::Node(Node { id: 8, ..node(b"z", State::Link, FILE, 3) }),
        Record::Up,
        Record::Node(Node { target: b"etc", ..hiding(node(b"old", State::New, 0o120777, 0)) }),
        Record::Node(node(b"fifo", State::New, 0o010600, 0)),
        Record::Node(node(b".ringfence.commit", State::New, DIR, 0)),
        Record::Node(node(b"journal", State::New, FILE, 2)),
        data(b"xx"),
        Record::Up,
        Record::End,
    ]
}

#[test]
fn changes_are_written_back() {
    let root = Root::new("all");
    let all = changes();
    root.write_back(&all).unwrap();
    let expected: BTreeMap<PathBuf, String> = [
        ("", "40755 directory"),
        ("etc", "40750 directory"),
        ("etc/changed", "100644 after x1"),
        ("etc/kept", "100644 kept x1"),
        ("etc/mode", "100600 mode x2"),
        ("etc/one", "100644 SHARED x2"),
        ("etc/two", "100644 SHARED x2"),
        ("etc/was-file", "40755 directory"),
        ("etc/was-file/mode2", "100600 mode x2"),
        ("etc/was-file/x", "100644 new x3"),
        ("etc/was-file/y", "100644 new x3"),
        ("etc/z", "100644 new x3"),
        ("fifo", "10600 special"),
        ("old", "120777 -> etc"),
    ]
    .into_iter()
    .map(|(path, what)| (path.into(), what.into()))
    .collect();
    assert_eq!(root.picture(), expected);
    for path in ["", "etc", "etc/changed", "etc/was-file", "etc/was-file/x"] {
        let meta = fs::symlink_metadata(root.0.join(path)).unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_000_000, 5), "{path}");
    }
    // The same once more changes nothing.
    root.write_back(&all).unwrap();
    assert_eq!(root.picture(), expected);
}

#[test]
fn a_stop_at_any_moment_is_repaired() {
    let all = changes();
    let whole = Root::new("whole");
    let before = whole.picture();
    whole.write_back(&all).unwrap();
    let after = whole.picture();
    let mut stops = 0;
    for steps in 0.. {
        let root = Root::new(&format!("stop-{steps}"));
        steps::allow(steps);
        let done = root.write_back(&all);
        // While it is repaired it is stopped as well.
        for again in 0..3 {
            steps::allow(again);
            let _ = root.recover();
        }
        steps::allow(usize::MAX);
        root.recover().unwrap();
        assert_eq!(root.picture(), after, "stopped after {steps} steps");
        if done.is_ok() {
            break;
        }
        stops += 1;
    }
    assert!(stops > 20, "{stops}");
    // A stream that is cut anywhere changes nothing.
    for cut in 0..all.len() {
        let root = Root::new("cut");
        root.write_back(&all[..cut]).unwrap_err();
        assert_eq!(root.picture(), before, "cut after {cut} records");
    }
}

#[test]
fn links_are_not_followed() {
    let root = Root::new("links");
    let outside = Root::new("links-outside");
    let before = outside.picture();
    symlink(&outside.0, root.0.join("way")).unwrap();
    let records = [
        Record::Node(node(b"", State::Kept, DIR, 0)),
        Record::Node(node(b"way", State::Kept, DIR, 0)),
        Record::Removed { name: b"old" },
        Record::Node(node(b"new", State::New, FILE, 0)),
        Record::Up,
        Record::End,
    ];
    assert!(root.write_back(&records).is_err());
    assert_eq!(outside.picture(), before);
    // What lies in the place of our directory is no way out.
    fs::remove_dir_all(root.0.join(STAGING)).unwrap();
    symlink(&outside.0, root.0.join(STAGING)).unwrap();
    assert_eq!(root.recover().unwrap(), Repair::Damaged(STAGING.into()));
    assert_eq!(root.recover().unwrap(), Repair::Nothing);
    assert_eq!(outside.picture(), before);
}

#[test]
fn only_our_own_journal_is_carried_out() {
    let stop = |root: &Root| {
        // After the journal is complete, in the middle of carrying it out.
        steps::allow(3);
        root.write_back(&changes()).unwrap_err();
        steps::allow(usize::MAX);
        assert!(root.0.join(STAGING).join("journal").exists());
    };
    // A root without a record: its directory stays and does no harm.
    let root = Root::new("foreign");
    stop(&root);
    fs::remove_dir_all(root.state()).unwrap();
    let before = root.picture();
    assert!(Proof::is_foreign(None, root.open()).unwrap());
    assert_eq!(root.recover().unwrap(), Repair::Nothing);
    assert_eq!(root.picture(), before);
    root.write_back(&[Record::Node(node(b"", State::Changed, DIR, 0)), Record::End]).unwrap();
    assert!(root.0.join(STAGING).join("journal").exists());
    // A journal that was changed, or that another root had, is not followed.
    let (root, other) = (Root::new("damaged"), Root::new("other"));
    stop(&root);
    stop(&other);
    fs::copy(other.0.join(STAGING).join("journal"), root.0.join(STAGING).join("journal")).unwrap();
    let before = root.picture();
    assert_eq!(root.recover().unwrap(), Repair::Damaged(STAGING.into()));
    assert_eq!(root.picture(), before);
    assert_eq!(other.recover().unwrap(), Repair::Finished(String::new()));
    // The command that waited for it is gone.
    let root = Root::new("unawaited");
    stop(&root);
    let stopped = recover(&root.open(), &root.proof(), &|| Err(abi::Errno::EINTR)).unwrap_err();
    assert!(stopped.to_string().contains("Interrupted"), "{stopped}");
    assert_eq!(root.recover().unwrap(), Repair::Finished(String::new()));
}

#[test]
fn one_at_a_time() {
    let root = Root::new("busy");
    let proof = root.proof();
    let staging = begin(&root.open(), &proof, &|| Ok(())).unwrap();
    let error = root.write_back(&changes()).unwrap_err();
    assert!(error.to_string().contains("under way"), "{error}");
    drop(staging);
    assert_eq!(root.recover().unwrap(), Repair::TakenBack);
    assert!(!root.0.join(STAGING).exists());
    fs::set_permissions(root.0.join("old/sub"), Permissions::from_mode(0o0)).unwrap();
    let records =
        [Record::Node(node(b"", State::Kept, DIR, 0)), Record::Removed { name: b"old" }, Record::End];
    root.write_back(&records).unwrap();
    assert!(!Path::new(&root.0.join("old")).exists());
}

//! The tree is complete and the drivers answer.

use vfs::devices::char_devices;

#[test]
fn nodes_and_drivers() {
    let fs = crate::new(&tmpfs::MemFiles::new(None));
    assert_eq!(fs.kind(), "devtmpfs");
    assert!(fs.root().attr().unwrap().is_dir());
    assert_eq!(char_devices(), [(1, "mem")]);
}

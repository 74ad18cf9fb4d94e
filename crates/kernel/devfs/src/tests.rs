//! The tree is complete and the drivers answer.

use caller::Quotas;
use user_ns::UserNamespace;
use vfs::{Internal, Vfs};

#[test]
fn nodes_and_drivers() {
    let vfs = Vfs::new(Quotas::unlimited(), UserNamespace::initial());
    crate::register(&vfs.devices);
    let fs = crate::new(&Internal::new(&vfs), &tmpfs::MemFiles::new(None));
    assert_eq!(fs.kind(), "devtmpfs");
    assert!(fs.root().attr().unwrap().is_dir());
    assert_eq!(vfs.devices.char_devices(), [(1, "mem")]);
    // Another kernel of the same process has none of it.
    assert_eq!(Vfs::new(Quotas::unlimited(), UserNamespace::initial()).devices.char_devices(), []);
}

//! Mapped files carry no more rights than the open file has, and leave nothing in the backing directory.

use caller::Failure;
use files::io;
use mounts::FsContext;
use namei::{OpenHow, Start, open};
use std::os::fd::AsFd;
use std::sync::Arc;
use vfs::*;

#[test]
fn rights_of_mappings() {
    let dir = std::env::temp_dir().join(format!("tmpfs-backing-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let memory =
        tmpfs::MemFiles::new(Some(hosttree::direct::Direct::at(std::fs::File::open(&dir).unwrap().into())));
    {
        let m =
            Mount::of(tmpfs::TmpFs::new(&memory, tmpfs::Options::default()), MountFlags::empty(), b"none");
        let fs = FsContext::new(mounts::testing::mount_ns(m));
        let open = |flags| {
            let how = OpenHow::legacy(flags, 0o644).expect("valid flags");
            open::open_at(&vfs::testing::TestCaller::root(), &fs.view(), &Start::Cwd, b"/f", &how)
                .map_err(Failure::errno)
                .unwrap()
        };
        let w = open(libc::O_CREAT | libc::O_RDWR);
        io::write_at(&vfs::testing::TestCaller::root(), &w, b"text", 0).unwrap();
        let fd = |f: &OpenFile, shared| {
            let req = MapRequest { prot: libc::PROT_READ, shared, offset: 0, len: 4096 };
            match f.ops.map(&vfs::testing::TestCaller::root(), f, &req).unwrap() {
                Mapping::Host { fd, .. } => fd,
                Mapping::Anonymous => panic!("not a file"),
            }
        };
        let writes = |fd: &Arc<std::os::fd::OwnedFd>| hostsys::fs::pwrite(fd.as_fd(), b"X", 0).is_ok();
        let r = open(libc::O_RDONLY);
        assert!(!writes(&fd(&r, true)), "a reader's shared mapping");
        assert!(!writes(&fd(&w, false)), "a private mapping");
        assert!(writes(&fd(&w, true)), "a writer's shared mapping");
        let mut b = [0; 4];
        io::read_at(&vfs::testing::TestCaller::root(), &r, &mut b, 0).unwrap();
        assert_eq!(&b, b"Xext");
    }
    std::fs::remove_dir(&dir).expect("the directory is empty again");
}

//! Mapped files carry no more rights than the open file has, and leave nothing in the backing directory.

use abi::Signal;
use std::os::fd::AsFd;
use std::sync::Arc;
use vfs::*;
use wait::Waiter;

struct Plain;

impl Caller for Plain {
    fn creds(&self) -> Creds {
        Credentials::root(Cap::ALL).in_use()
    }
    fn waiter(&self) -> Arc<Waiter> {
        Waiter::new()
    }
    fn pid(&self) -> i32 {
        1
    }
    fn tid(&self) -> i32 {
        1
    }
    fn pgid(&self) -> i32 {
        1
    }
    fn sid(&self) -> i32 {
        1
    }
    fn rlimit(&self, _r: i32) -> u64 {
        u64::MAX
    }
    fn raise(&self, _s: Signal) {}
    fn umask(&self) -> u32 {
        0
    }
    fn blocks_or_ignores(&self, _s: Signal) -> bool {
        false
    }
}

#[test]
fn rights_of_mappings() {
    let dir = std::env::temp_dir().join(format!("tmpfs-backing-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    tmpfs::set_backing(std::fs::File::open(&dir).unwrap().into());
    {
        let m = Mount::of(tmpfs::TmpFs::new(tmpfs::Options::default()), MountFlags::empty(), b"none");
        let fs = FsContext::new(MountNs::new(m));
        let open = |flags| {
            let how = OpenHow::legacy(flags, 0o644);
            open::open_at(&Plain, &fs.view(), &Start::Cwd, b"/f", &how).map_err(Failure::errno).unwrap()
        };
        let w = open(libc::O_CREAT | libc::O_RDWR);
        io::write_at(&Plain, &w, b"text", 0).unwrap();
        let fd = |f: &OpenFile, shared| {
            let req = MapRequest { prot: libc::PROT_READ, shared, offset: 0, len: 4096 };
            match f.ops.map(&Plain, f, &req).unwrap() {
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
        io::read_at(&Plain, &r, &mut b, 0).unwrap();
        assert_eq!(&b, b"Xext");
    }
    std::fs::remove_dir(&dir).expect("the directory is empty again");
}

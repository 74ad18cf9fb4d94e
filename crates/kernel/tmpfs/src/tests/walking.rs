//! The quick resolution of cached paths against the thorough one, and against names that change meanwhile.

use super::*;
use namei::walk::{self, Walker};
use namei::{Lookup, Start, attr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A small generator of numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }

    fn path(&mut self, parts: &[&str]) -> String {
        let mut p = String::new();
        for i in 0..1 + self.below(5) {
            if i > 0 || self.below(2) == 0 {
                p.push_str(["/", "/", "//"][self.below(3)]);
            }
            p.push_str(parts[self.below(parts.len())]);
        }
        p.push_str(["", "", "", "/", "//"][self.below(5)]);
        p
    }
}

fn shown(r: Result<Path>) -> Result<(u32, usize)> {
    r.map(|p| (p.mount.id(), Arc::as_ptr(&p.dentry) as usize))
}

#[test]
fn quick_and_thorough_agree() {
    let e = env();
    let names = ["a", "b", "c", "d", "f", "l", "m", "none", ".", ".."];
    for d in ["/a", "/a/b", "/a/b/c", "/b", "/b/a", "/m", "/a/m", "/d"] {
        e.mkdir(d).unwrap();
    }
    for f in ["/f", "/a/f", "/a/b/f", "/d/f"] {
        e.open(f, libc::O_CREAT | libc::O_WRONLY).unwrap();
    }
    for (target, link) in [
        ("a/b", "/l"),
        ("/b", "/a/l"),
        ("../l/", "/b/l"),
        ("l", "/a/b/l"),
        ("none", "/m/l"),
        ("f/", "/c"),
        ("/", "/a/b/d"),
    ] {
        e.symlink(target, link).unwrap();
    }
    for at in ["/m", "/a/m"] {
        let over = Mount::of(
            TmpFs::new(&crate::MemFiles::new(None), Options::default()),
            MountFlags::empty(),
            b"none",
        );
        let view = e.fs.view();
        let at = walk::lookup(&e.cx, &view, &Start::Cwd, at.as_bytes(), Lookup::FOLLOW).unwrap();
        view.ns.add(&at, &over).unwrap();
    }
    for d in ["/m/a", "/m/a/b", "/a/m/b"] {
        e.mkdir(d).unwrap();
    }
    attr::chmod(
        &e.cx,
        &walk::lookup(&e.cx, &e.fs.view(), &Start::Cwd, b"/d", Lookup::FOLLOW).unwrap(),
        0o600,
    )
    .unwrap();
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let callers = [root(), user(1000)];
    let mut found = 0;
    for i in 0..60_000 {
        if i % 1000 == 0 {
            let cwd = ["/", "/a", "/a/b", "/m/a"][i / 1000 % 4];
            let p = walk::lookup(&e.cx, &e.fs.view(), &Start::Cwd, cwd.as_bytes(), Lookup::FOLLOW).unwrap();
            e.fs.set_cwd(p);
        }
        let (path, cx, view) = (numbers.path(&names), &callers[numbers.below(2)], e.fs.view());
        let look = [Lookup::empty(), Lookup::FOLLOW, Lookup::FOLLOW | Lookup::DIRECTORY][numbers.below(3)];
        let text = path.as_bytes();
        let quick = shown(walk::lookup(cx, &view, &Start::Cwd, text, look));
        let thorough =
            Walker::new(cx, &view, &Start::Cwd, text, look).and_then(|(mut w, from)| w.walk(from, text));
        found += usize::from(quick.is_ok());
        assert_eq!(quick, shown(thorough), "{path:?} {look:?}");

        let show = |p: namei::lookup::Parent| (shown(Ok(p.dir)), p.name, p.last, p.slash);
        let quick = walk::lookup_parent(cx, &view, &Start::Cwd, text).map(show);
        let thorough = Walker::new(cx, &view, &Start::Cwd, text, Lookup::empty())
            .and_then(|(mut w, from)| w.parent(from, text))
            .map(show);
        assert!(quick == thorough, "parent of {path:?}");
    }
    assert!(found > 5_000, "{found}");
}

#[test]
fn names_that_change_while_others_walk() {
    let e = env();
    for d in ["/top", "/top/one", "/top/one/deep", "/top/stay"] {
        e.mkdir(d).unwrap();
    }
    e.open("/top/stay/file", libc::O_CREAT | libc::O_WRONLY).unwrap();
    e.open("/top/one/deep/file", libc::O_CREAT | libc::O_WRONLY).unwrap();
    e.symlink("stay/file", "/top/link").unwrap();
    let (stop, walks) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let cx = root();
                let stat = |p: &str| attr::stat(&cx, &e.fs.view(), &Start::Cwd, p.as_bytes(), Lookup::FOLLOW);
                while !stop.load(Ordering::Relaxed) {
                    assert!(stat("/top/stay/file").is_ok());
                    assert!(stat("/top/link").is_ok());
                    // It is always in one of the two places, so seen missing in both only across a rename.
                    for p in ["/top/one/deep/file", "/top/two/deep/file", "/top/new"] {
                        assert!(matches!(stat(p), Ok(_) | Err(Errno::ENOENT)));
                    }
                    walks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let cx = root();
        let mut rounds = 0;
        while rounds < 300 {
            rounds += 1;
            // Names come and go now and then, so that locks are biased in between.
            let seen = walks.load(Ordering::Relaxed);
            while walks.load(Ordering::Relaxed) < seen + 100 {
                std::thread::yield_now();
            }
            e.rename("/top/one", "/top/two", 0).unwrap();
            let made = e.open_as(&cx, "/top/new", libc::O_CREAT | libc::O_WRONLY).unwrap();
            e.unlink("/top/new").unwrap();
            drop(made);
            e.rename("/top/two", "/top/one", 0).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(e.stat("/top/one/deep/file").is_ok());
}

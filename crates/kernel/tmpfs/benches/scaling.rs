//! The slowdown that independent threads cause each other: every thread works on files of its own in a directory that
//! all share. One line per operation: nanoseconds with one thread, and with two, four, ... up to one per CPU. Without
//! contention the figures of a line are the same.
//!
//! `cargo bench -p tmpfs --bench scaling [-- OPERATION...]`

use caller::{Failure, Quotas};
use files::{FdTable, io};
use mounts::{FsContext, MountNs};
use namei::{Lookup, OpenHow, Start, attr, dir, link, open};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use tmpfs::{Options, TmpFs};
use vfs::*;

/// One thread's things: a view of its own, as a process has, and a table shared by all.
struct Mine {
    cx: Arc<Internal>,
    fs: Arc<FsContext>,
    table: Arc<FdTable>,
    path: String,
    link: String,
    fd: i32,
}

/// Things made between those of two threads, so that neighbours in memory are not what is measured.
const APART: usize = 8;

type Op = fn(&Mine);

fn stat(m: &Mine) {
    attr::stat(&*m.cx, &m.fs.view(), &Start::Cwd, m.path.as_bytes(), Lookup::FOLLOW).unwrap();
}

fn stat_link(m: &Mine) {
    attr::stat(&*m.cx, &m.fs.view(), &Start::Cwd, m.link.as_bytes(), Lookup::FOLLOW).unwrap();
}

fn stat_missing(m: &Mine) {
    let name = b"/usr/lib/x86_64-linux-gnu/none";
    attr::stat(&*m.cx, &m.fs.view(), &Start::Cwd, name, Lookup::FOLLOW).unwrap_err();
}

fn open_close(m: &Mine) {
    let how = OpenHow::legacy(libc::O_RDONLY, 0).expect("valid flags");
    open::open_at(&*m.cx, &m.fs.view(), &Start::Cwd, m.path.as_bytes(), &how)
        .map_err(Failure::errno)
        .unwrap();
}

fn create_unlink(m: &Mine) {
    let how = OpenHow::legacy(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600).expect("valid flags");
    let path = [m.path.as_bytes(), b".new"].concat();
    open::open_at(&*m.cx, &m.fs.view(), &Start::Cwd, &path, &how).map_err(Failure::errno).unwrap();
    link::unlink(&*m.cx, &m.fs.view(), &Start::Cwd, &path).unwrap();
}

fn pread(m: &Mine) {
    let f = m.table.get(m.fd).unwrap();
    let mut b = [0; 64];
    io::read_at(&*m.cx, &f, &mut b, 0).unwrap();
}

fn read(m: &Mine) {
    let f = m.table.get(m.fd).unwrap();
    let mut b = [0; 64];
    let pos = f.pos.lock();
    io::read_at(&*m.cx, &f, &mut b, *pos).unwrap();
}

fn fstat(m: &Mine) {
    m.table.get(m.fd).unwrap().attr().unwrap();
}

fn run(threads: usize, op: Op, all: &[Mine]) -> f64 {
    let (go, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let mut each = Vec::new();
    std::thread::scope(|s| {
        let mut running = Vec::new();
        for (i, mine) in all.iter().step_by(APART).take(threads).enumerate() {
            let (go, stop) = (&go, &stop);
            running.push(s.spawn(move || {
                pin(i);
                go.wait();
                let (start, mut n) = (Instant::now(), 0u64);
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..64 {
                        op(mine);
                    }
                    n += 64;
                }
                start.elapsed().as_nanos() as f64 / n as f64
            }));
        }
        go.wait();
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        each.extend(running.into_iter().map(|r| r.join().unwrap()));
    });
    each.iter().sum::<f64>() / each.len() as f64
}

fn pin(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    let _ = sched_setaffinity(None, &only);
}

fn main() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let m =
        Mount::of(TmpFs::new(&tmpfs::MemFiles::new(None), Options::default()), MountFlags::empty(), b"none");
    let cx = Arc::new(Internal::new(&Vfs::new(Quotas::unlimited(), user_ns::UserNamespace::initial())));
    let ns = MountNs::new(cx.vfs(), m);
    let fs = FsContext::new(ns);
    let view = fs.view();
    let dir = |p: &str| dir::mkdir(&*cx, &view, &Start::Cwd, p.as_bytes(), 0o755).unwrap();
    for p in ["/usr", "/usr/lib", "/usr/lib/x86_64-linux-gnu"] {
        dir(p);
    }
    let table = FdTable::new(Quotas::unlimited().files.clone());
    let all: Vec<Mine> = (0..cpus * APART)
        .map(|i| {
            let path = format!("/usr/lib/x86_64-linux-gnu/file{i}");
            let link = format!("/usr/lib/link{i}");
            let how = OpenHow::legacy(libc::O_RDWR | libc::O_CREAT, 0o644).expect("valid flags");
            let f = open::open_at(&*cx, &view, &Start::Cwd, path.as_bytes(), &how)
                .map_err(Failure::errno)
                .unwrap();
            io::write_at(&*cx, &f, &[1; 4096], 0).unwrap();
            dir::symlink(
                &*cx,
                &view,
                format!("x86_64-linux-gnu/file{i}").as_bytes(),
                &Start::Cwd,
                link.as_bytes(),
            )
            .unwrap();
            let fd = table.install(f, false, 1024).unwrap();
            Mine { cx: cx.clone(), fs: fs.fork_copy(), table: table.clone(), path, link, fd }
        })
        .collect();
    let ops: [(&str, Op); 8] = [
        ("stat", stat),
        ("stat_link", stat_link),
        ("stat_missing", stat_missing),
        ("open_close", open_close),
        ("create_unlink", create_unlink),
        ("fstat", fstat),
        ("pread", pread),
        ("read", read),
    ];
    let counts: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n <= cpus).collect();
    print!("{:16}", "ns per call");
    counts.iter().for_each(|n| print!("{:>10}", format!("{n} thr")));
    println!();
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    for (name, op) in ops {
        if !wanted.is_empty() && !wanted.iter().any(|w| w == name) {
            continue;
        }
        print!("{name:16}");
        for &n in &counts {
            let mut t: Vec<f64> = (0..5).map(|_| run(n, op, &all)).collect();
            t.sort_by(f64::total_cmp);
            print!("{:>10.0}", t[2]);
        }
        println!();
    }
}

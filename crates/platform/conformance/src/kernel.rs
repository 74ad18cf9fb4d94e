//! A small kernel that runs static test programs on a platform.

use abi::{Errno, PAGE_SIZE, page_down, page_up};
use parking_lot::{Condvar, Mutex};
use platform::{
    Action, AddressSpace, Context, Exit, Interrupt, Platform, REWRITE_AREA, Regs, Rewrite, Spawn,
};
use std::collections::HashMap;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a program left behind.
#[derive(Debug)]
pub struct Outcome {
    pub code: i32,
    pub output: String,
    pub interrupts: u64,
    /// Call sites that were rewritten.
    pub rewritten: u64,
    /// Guest threads with contexts that ended with `Exit::Dead`.
    pub dead: u64,
}

/// Called before a system call is handled; `Some` is the answer.
pub type Hook = Box<dyn Fn(&mut dyn Context) -> Option<u64> + Send + Sync>;

/// One run of a program, with all its processes and threads.
pub struct World {
    platform: Arc<dyn Platform>,
    output: Mutex<Vec<u8>>,
    file: Arc<OwnedFd>,
    /// Exit codes of processes.
    exits: Mutex<HashMap<u64, i32>>,
    exited: Condvar,
    next_id: AtomicU64,
    running: Mutex<usize>,
    idle: Condvar,
    storm: AtomicBool,
    interrupts: AtomicU64,
    dead: AtomicU64,
    interrupters: Mutex<HashMap<u64, Arc<dyn Interrupt>>>,
    pub hook: Option<Hook>,
    /// Calls handled.
    pub calls: AtomicU64,
    /// Call sites may be rewritten; held while one is.
    text_lock: Mutex<bool>,
    /// Call sites that were.
    pub rewritten: AtomicU64,
    /// Where trampolines are, in some process.
    areas: Mutex<Vec<u64>>,
}

struct Process {
    id: u64,
    handler: AtomicU64,
}

const STACK_TOP: u64 = 0x7000_0000_0000;
/// Where trampolines go.
const AREA: u64 = 0x3e_0000;
/// Or in one of these, where no test has anything.
const AREAS: [std::ops::Range<u64>; 2] = [0x1_0000..0x3d_0000, 0x1000_0000..0x7000_0000];
const LIMIT: Duration = Duration::from_secs(100);

/// A file with 'f' ... 'z' in its first pages.
fn test_file() -> Arc<OwnedFd> {
    let path = std::env::temp_dir().join(format!(
        "ringfence-file-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let mut f = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .expect("temp file");
    let mut bytes = vec![b'.'; 2 * PAGE_SIZE as usize];
    bytes[0] = b'f';
    bytes[0x1fff] = b'z';
    f.write_all(&bytes).expect("write");
    let _ = std::fs::remove_file(path);
    Arc::new(f.into())
}

impl World {
    pub fn new(platform: Arc<dyn Platform>) -> World {
        World {
            platform,
            output: Mutex::default(),
            file: test_file(),
            exits: Mutex::default(),
            exited: Condvar::new(),
            next_id: AtomicU64::new(1),
            running: Mutex::new(0),
            idle: Condvar::new(),
            storm: AtomicBool::new(false),
            interrupts: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            interrupters: Mutex::default(),
            hook: None,
            calls: AtomicU64::new(0),
            text_lock: Mutex::new(true),
            rewritten: AtomicU64::new(0),
            areas: Mutex::default(),
        }
    }

    /// Loads a program into a new address space.
    pub fn load(&self, image: &[u8]) -> Box<dyn Context> {
        let mut ctx = self.platform.new_space().expect("new_space");
        let program = elf::parse(&mut |offset, buf: &mut [u8]| {
            let from = image.get(offset as usize..).unwrap_or_default();
            let len = from.len().min(buf.len());
            buf[..len].copy_from_slice(&from[..len]);
            Ok(len)
        });
        let program = program.expect("a static program");
        for s in program.segments {
            let (start, end) = (page_down(s.vaddr), page_up(s.vaddr + s.memsz).expect("end"));
            let data = image[s.offset as usize..][..s.filesz as usize].to_vec();
            ctx.queue(Action::MapAnon { addr: start, len: end - start, prot: 3, flags: 0 });
            ctx.queue(Action::Write { addr: s.vaddr, data });
            ctx.queue(Action::Protect { addr: start, len: end - start, prot: s.prot });
        }
        ctx.queue(Action::MapAnon { addr: STACK_TOP - 0x10_0000, len: 0x10_0000, prot: 3, flags: 0 });
        *ctx.regs_mut() = Regs { rip: program.entry, rsp: STACK_TOP - 64, eflags: 0x202, ..Regs::default() };
        ctx
    }

    /// Runs a program to its end.
    pub fn run(self, image: &[u8]) -> Outcome {
        let world = Arc::new(self);
        world.clone().start(image);
        world.finish()
    }

    /// Starts a program; [`World::finish`] collects it.
    pub fn start(self: Arc<Self>, image: &[u8]) -> Arc<dyn AddressSpace> {
        let ctx = self.load(image);
        let space = ctx.space();
        let process = Arc::new(Process { id: 1, handler: AtomicU64::new(0) });
        self.next_id.store(2, Ordering::Relaxed);
        self.spawn(ctx, process, 0);
        space
    }

    pub fn finish(self: Arc<Self>) -> Outcome {
        let stop = Arc::new(AtomicBool::new(false));
        let storm = {
            let (w, stop) = (self.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(50));
                    if w.storm.load(Ordering::Relaxed) {
                        let all: Vec<_> = w.interrupters.lock().values().cloned().collect();
                        all.iter().for_each(|i| i.interrupt());
                    }
                }
            })
        };
        let deadline = Instant::now() + LIMIT;
        let mut running = self.running.lock();
        while *running > 0 {
            assert!(
                !self.idle.wait_until(&mut running, deadline).timed_out(),
                "hang; output: {}",
                self.text()
            );
        }
        drop(running);
        stop.store(true, Ordering::Relaxed);
        storm.join().expect("storm thread");
        Outcome {
            code: self.exits.lock().get(&1).copied().unwrap_or(-1),
            output: self.text(),
            interrupts: self.interrupts.load(Ordering::Relaxed),
            rewritten: self.rewritten.load(Ordering::Relaxed),
            dead: self.dead.load(Ordering::Relaxed),
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock()).into_owned()
    }

    fn spawn(self: &Arc<Self>, ctx: Box<dyn Context>, process: Arc<Process>, ctid: u64) {
        *self.running.lock() += 1;
        let w = self.clone();
        let body = move || {
            w.guest_thread(ctx, &process, ctid);
            let mut running = w.running.lock();
            *running -= 1;
            w.idle.notify_all();
        };
        std::thread::Builder::new().stack_size(128 << 10).spawn(body).expect("thread");
    }

    fn exit_process(&self, id: u64, code: i32) {
        self.exits.lock().entry(id).or_insert(code);
        self.exited.notify_all();
    }

    fn guest_thread(self: &Arc<Self>, mut ctx: Box<dyn Context>, process: &Arc<Process>, ctid: u64) {
        let key = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.interrupters.lock().insert(key, ctx.interrupter());
        loop {
            let exit = ctx.run();
            if let Some(site) = ctx.rewriter().and_then(|r| r.hot_site()) {
                self.rewrite(&mut *ctx, site);
            }
            match exit {
                Exit::Syscall => {
                    self.calls.fetch_add(1, Ordering::Relaxed);
                    let hooked = self.hook.as_ref().and_then(|h| h(&mut *ctx));
                    match ctx.regs().orig_rax {
                        60 if hooked.is_none() => {
                            if ctid != 0 {
                                ctx.queue(Action::StoreAndWake { addr: ctid, value: Some(0), wake: 1 });
                            }
                            self.interrupters.lock().remove(&key);
                            ctx.exit();
                            return;
                        }
                        231 if hooked.is_none() => {
                            self.exit_process(process.id, ctx.regs().rdi as i32);
                            ctx.space().kill();
                            self.interrupters.lock().remove(&key);
                            return;
                        }
                        _ => {
                            let r = hooked.unwrap_or_else(|| {
                                self.call(&mut *ctx, process).unwrap_or_else(Errno::to_ret)
                            });
                            ctx.regs_mut().rax = r;
                        }
                    }
                }
                Exit::Fault(f) => {
                    let handler = process.handler.load(Ordering::Relaxed);
                    let r = ctx.regs_mut();
                    if handler == 0 {
                        let text = format!("fault {f:?} at {:#x}\n", r.rip);
                        self.output.lock().extend(text.bytes());
                        self.exit_process(process.id, 128 + f.signo);
                        ctx.space().kill();
                        self.interrupters.lock().remove(&key);
                        return;
                    }
                    (r.rdi, r.rsi, r.rdx) = (f.signo as u64, f.addr, r.rip);
                    // The handler goes on at r15 with the stack pointer in r14.
                    r.r14 = r.rsp;
                    r.rsp = (r.rsp - 256) & !15;
                    r.rip = handler;
                }
                Exit::FutexDone => {}
                Exit::Interrupted => {
                    self.interrupts.fetch_add(1, Ordering::Relaxed);
                }
                Exit::FutexInterrupted => {
                    self.interrupts.fetch_add(1, Ordering::Relaxed);
                    ctx.regs_mut().rax = Errno::EINTR.to_ret();
                }
                Exit::FrameFailed => unreachable!("no frame is stored later"),
                Exit::ActionFailed { errno, .. } => ctx.regs_mut().rax = errno.to_ret(),
                Exit::Dead => {
                    self.dead.fetch_add(1, Ordering::Relaxed);
                    self.exit_process(process.id, -9);
                    self.interrupters.lock().remove(&key);
                    return;
                }
            }
        }
    }

    /// Program text only, which the test programs keep as it is unless they say so (`T_TEXT`).
    fn rewrite(&self, ctx: &mut dyn Context, site: u64) {
        if !(0x40_0000..0x50_0000).contains(&site) {
            return;
        }
        let text = self.text_lock.lock();
        if !*text {
            return;
        }
        let rewrite = |ctx: &mut dyn Context| ctx.rewriter().map_or(Rewrite::Refused, |r| r.rewrite(site));
        let mut outcome = rewrite(ctx);
        if let Rewrite::NeedsArea(places) = outcome {
            let mut taken = self.areas.lock();
            let apart = |at: u64| taken.iter().all(|area| area.abs_diff(at) >= REWRITE_AREA);
            let free = |at: &u64| AREAS.iter().any(|range| range.contains(at)) && apart(*at);
            let place = if places.is_empty() { Some(AREA) } else { places.into_iter().find(free) };
            let Some(area) = place else { return };
            taken.push(area);
            drop(taken);
            ctx.queue(Action::MapAnon { addr: area, len: REWRITE_AREA, prot: 5, flags: 0 });
            // A hostile program may have ended its process.
            let mapped = ctx.flush();
            assert!(matches!(mapped, Ok(()) | Err(Errno::ESRCH)), "{mapped:?}");
            if let Some(rewriter) = ctx.rewriter() {
                rewriter.add_area(area);
            }
            outcome = rewrite(ctx);
        }
        if let Rewrite::Done { .. } = outcome {
            self.rewritten.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn read(&self, ctx: &dyn Context, addr: u64, len: u64) -> abi::Result<Vec<u8>> {
        let mut buf = vec![0; usize::try_from(len).ok().filter(|n| *n < 1 << 24).ok_or(Errno::EINVAL)?];
        if ctx.captured(addr, &mut buf) || ctx.space().read(addr, &mut buf) == buf.len() {
            Ok(buf)
        } else {
            Err(Errno::EFAULT)
        }
    }

    fn call(self: &Arc<Self>, ctx: &mut dyn Context, process: &Arc<Process>) -> abi::Result<u64> {
        let r = *ctx.regs();
        let [a, b, c, d, ..] = r.args();
        match r.orig_rax {
            1 => {
                let bytes = self.read(ctx, b, c)?;
                self.output.lock().extend(bytes);
                Ok(c)
            }
            9 => {
                ctx.queue(Action::MapAnon { addr: a, len: b, prot: c as i32, flags: 0 });
                ctx.flush()?;
                Ok(a)
            }
            10 => {
                ctx.queue(Action::Protect { addr: a, len: b, prot: c as i32 });
                Ok(0)
            }
            11 => {
                ctx.queue(Action::Unmap { addr: a, len: b });
                Ok(0)
            }
            25 => {
                ctx.queue(Action::Remap { addr: a, len: b, new_addr: r.r8, new_len: c, flags: 0 });
                Ok(r.r8)
            }
            28 => {
                ctx.queue(Action::Advise { addr: a, len: b, advice: c as i32 });
                Ok(0)
            }
            39 => Ok(4242),
            56 => {
                let mut new = ctx.spawn(Spawn::Thread)?;
                new.regs_mut().rax = 0;
                new.regs_mut().rsp = b;
                self.spawn(new, process.clone(), d);
                Ok(1000 + self.next_id.load(Ordering::Relaxed))
            }
            57 => {
                let mut new = ctx.spawn(Spawn::Fork)?;
                new.regs_mut().rax = 0;
                let id = self.next_id.fetch_add(1, Ordering::Relaxed);
                let handler = AtomicU64::new(process.handler.load(Ordering::Relaxed));
                self.spawn(new, Arc::new(Process { id, handler }), 0);
                Ok(id)
            }
            61 => {
                let mut exits = self.exits.lock();
                while !exits.contains_key(&a) {
                    self.exited.wait(&mut exits);
                }
                Ok(exits.get(&a).copied().unwrap_or(-1) as u64)
            }
            158 if a == 0x1002 => {
                ctx.queue(Action::SetFsBase(b));
                Ok(0)
            }
            158 if a == 0x1001 => {
                ctx.regs_mut().gs_base = b;
                Ok(0)
            }
            201 => Ok(777),
            1000 => {
                process.handler.store(a, Ordering::Relaxed);
                Ok(0)
            }
            1001 => Ok(self.read(ctx, a, b)?.iter().map(|b| u64::from(*b)).sum()),
            1002 => {
                let data = vec![c as u8; b as usize];
                if data.len() <= ctx.write_limit() || data.len().is_multiple_of(2) {
                    ctx.queue(Action::Write { addr: a, data });
                    Ok(0)
                } else if ctx.space().write(a, &data) == data.len() {
                    Ok(0)
                } else {
                    Err(Errno::EFAULT)
                }
            }
            1003 => {
                let map = |addr, len, offset| Action::MapFile {
                    addr,
                    len,
                    prot: 3,
                    flags: b as i32,
                    fd: self.file.clone(),
                    offset,
                };
                ctx.queue(Action::MapAnon { addr: a, len: 2 * PAGE_SIZE, prot: 0, flags: 0 });
                ctx.queue(map(a, PAGE_SIZE, 0));
                ctx.queue(map(a + PAGE_SIZE, PAGE_SIZE, PAGE_SIZE));
                Ok(0)
            }
            1004 => {
                self.storm.store(a != 0, Ordering::Relaxed);
                Ok(self.interrupts.load(Ordering::Relaxed))
            }
            1005 => {
                if a == 1 {
                    ctx.reset_xstate();
                    return Ok(0);
                }
                // xmm3 holds a double: its place in the legacy area is 160 + 16 * 3.
                let mut x = ctx.xstate()?;
                let at = 160 + 16 * 3;
                let v = f64::from_le_bytes(x[at..at + 8].try_into().map_err(|_| Errno::EINVAL)?);
                x[at..at + 8].copy_from_slice(&(v * 2.0).to_le_bytes());
                ctx.set_xstate(&x)?;
                Ok(0)
            }
            1008 => {
                *self.text_lock.lock() = a != 0;
                Ok(0)
            }
            1009 => {
                ctx.interrupter().set_answers(&[(102, b as u32)]);
                ctx.set_report_all(a == 0);
                Ok(0)
            }
            102 => Ok(1),
            1007 => Ok(self.rewritten.load(Ordering::Relaxed)),
            1006 => {
                std::thread::sleep(Duration::from_millis(1));
                Ok(0)
            }
            _ => Err(Errno::ENOSYS),
        }
    }
}

/// A host SIGKILL ends every context of the process, running, sleeping or in the kernel.
pub fn dead_on_kill(platform: &Arc<dyn Platform>) {
    let world = Arc::new(World::new(platform.clone()));
    let ctx = world.load(&crate::compile("spin"));
    let space = ctx.space();
    let process = Arc::new(Process { id: 1, handler: AtomicU64::new(0) });
    world.next_id.store(2, Ordering::Relaxed);
    world.spawn(ctx, process, 0);
    while world.text() != "ready\n" {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(20));
    let status = std::process::Command::new("kill")
        .args(["-KILL", &space.host_pid().to_string()])
        .status()
        .expect("kill");
    assert!(status.success());
    let start = Instant::now();
    let outcome = world.finish();
    assert!(start.elapsed() < Duration::from_secs(2), "not prompt");
    assert_eq!((outcome.code, outcome.dead), (-9, 4));
    // The threads may all be gone a moment before the process is.
    while space.read(0x40_0000, &mut [0; 8]) != 0 {
        assert!(start.elapsed() < Duration::from_secs(2), "memory is still there");
    }
    space.kill();
}

//! A guest that attacks the stub: nothing but its own process may suffer.

use conformance::{World, compile, compile_with};
use platform::{AddressSpace, Context, Platform};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn make() -> Arc<dyn Platform> {
    systrap::Systrap::new().unwrap_or_else(|e| panic!("{e}"))
}

/// Every system call that comes out of the stub's text is answered with ENOSYS.
fn world(platform: &Arc<dyn Platform>) -> World {
    let mut w = World::new(platform.clone());
    w.hook =
        Some(Box::new(|ctx: &mut dyn Context| (ctx.regs().rip >= 0x7ffe_0000_0000).then_some(-38i64 as u64)));
    w
}

fn image(mode: u32, what: u64) -> Vec<u8> {
    compile_with("hostile", &[&format!("-DMODE={mode}"), &format!("-DWHAT={what:#x}ul")])
}

/// Stub processes of this test process.
fn stubs(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for e in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(pid) = e.file_name().to_string_lossy().parse::<u32>() else { continue };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let ppid = stat
            .rsplit(')')
            .next()
            .and_then(|s| s.split_whitespace().nth(1))
            .and_then(|s| s.parse::<u32>().ok());
        if ppid == Some(parent) && stat.contains("(ringfence-stub)") {
            found.push(pid);
        }
    }
    found
}

fn still_works(platform: &Arc<dyn Platform>) {
    let outcome = World::new(platform.clone()).run(&compile("hello"));
    assert_eq!((outcome.code, outcome.output.as_str()), (7, "hello\n"));
}

#[test]
fn calls_reach_the_sentry_only() {
    let p = make();
    let outcome = world(&p).run(&image(1, 0));
    assert_eq!((outcome.code, outcome.output.as_str()), (0, "ok\n"));
    still_works(&p);
}

/// Starts a program, kills its process after a while unless it has ended, and demands that all its threads end.
fn run_and_kill(p: &Arc<dyn Platform>, image: &[u8], after: Duration) -> conformance::Outcome {
    let w = Arc::new(world(p));
    let space = w.clone().start(image);
    std::thread::sleep(after);
    space.kill();
    let start = Instant::now();
    let outcome = w.finish();
    assert!(start.elapsed() < Duration::from_secs(5));
    outcome
}

#[test]
fn garbage_in_slots_and_stacks() {
    for _ in 0..3 {
        let p = make();
        run_and_kill(&p, &image(2, 0), Duration::from_millis(1500));
    }
}

#[test]
fn wild_frames() {
    let p = make();
    for _ in 0..10 {
        let outcome = world(&p).run(&image(3, 0));
        assert_ne!(outcome.code, 0);
    }
    still_works(&p);
}

#[test]
fn no_floor() {
    let p = make();
    for what in [0x7ffe_0000_0000u64, 0x7ffe_1000_0000, 0x7ffe_4000_0000] {
        let outcome = world(&p).run(&image(4, what));
        assert_eq!(outcome.code, -9, "{what:#x}");
    }
    still_works(&p);
}

#[test]
fn quiet_exits() {
    let p = make();
    let outcome = world(&p).run(&image(5, 0));
    assert_eq!((outcome.code, outcome.dead), (-9, 2));
    still_works(&p);
}

#[test]
fn clone_grants_are_personal() {
    let p = make();
    let outcome = world(&p).run(&image(6, 0));
    assert_eq!((outcome.code, outcome.output.as_str()), (0, "ok\n"));
    still_works(&p);
}

/// Serialised with nothing: runs in a process of its own, so that it can count.
#[test]
fn nothing_is_left() {
    if std::env::var_os("RINGFENCE_CHILD").is_some() {
        return child();
    }
    let exe = std::env::current_exe().expect("exe");
    let run = |mode: &str| {
        let mut c = std::process::Command::new(&exe)
            .args(["nothing_is_left", "--exact", "--nocapture"])
            .env("RINGFENCE_CHILD", mode)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("child");
        let mut out = c.stdout.take().expect("stdout");
        let mut text = String::new();
        let mut byte = [0];
        while !text.contains("ready") && std::io::Read::read(&mut out, &mut byte).expect("read") == 1 {
            text.push(byte[0] as char);
        }
        assert!(text.contains("ready"), "{text}");
        (c, out)
    };
    let (mut c, _out) = run("kill");
    let pids = stubs(c.id());
    assert!(pids.len() >= 4, "{pids:?}");
    c.kill().expect("kill");
    let _ = c.wait();
    let start = Instant::now();
    while pids.iter().any(|p| alive(*p)) {
        assert!(start.elapsed() < Duration::from_secs(2), "stubs outlive the sentry");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (mut c, _out) = run("drop");
    assert!(c.wait().expect("wait").success());
}

fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn child() {
    let p = make();
    if std::env::var("RINGFENCE_CHILD").as_deref() == Ok("kill") {
        let w = Arc::new(World::new(p.clone()));
        w.clone().start(&compile("spin"));
        while w.text() != "ready\n" {
            std::thread::sleep(Duration::from_millis(1));
        }
        println!("ready");
        std::thread::sleep(Duration::from_secs(100));
        return;
    }
    // Dropping the platform ends every process, and every context learns it.
    let mut ctx = p.new_space().expect("space");
    assert!(stubs(std::process::id()).len() >= 2);
    drop(p);
    assert_eq!(ctx.run(), platform::Exit::Dead);
    assert_eq!(stubs(std::process::id()), []);
    println!("ready");
}

/// Processes that a guest hid are found, also when their parent is long gone.
#[test]
fn census() {
    let exe = std::env::current_exe().expect("exe");
    if std::env::var_os("RINGFENCE_CHILD").is_none() {
        // In a process of its own, so that it can count.
        let status = std::process::Command::new(exe)
            .args(["census", "--exact", "--nocapture"])
            .env("RINGFENCE_CHILD", "census")
            .status()
            .expect("child");
        assert!(status.success());
        return;
    }
    let p = make();
    still_works(&p);
    let settled = || stubs(std::process::id()).len() == 4;
    let outcome = world(&p).run(&image(7, 0));
    assert_eq!((outcome.code, outcome.output.as_str()), (0, "ok\n"));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(stubs(std::process::id()).len(), 5, "the hidden process");
    let outcome = world(&p).run(&image(8, 0));
    assert_eq!((outcome.code, outcome.output.as_str(), outcome.dead), (-9, "ok\n", 1));
    let start = Instant::now();
    while !settled() {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", stubs(std::process::id()));
        std::thread::sleep(Duration::from_millis(100));
    }
    still_works(&p);
}

#[test]
fn address_space_outlives_its_process() {
    let p = make();
    let ctx = p.new_space().expect("space");
    let space: Arc<dyn AddressSpace> = ctx.space();
    ctx.exit();
    let start = Instant::now();
    while alive(space.host_pid() as u32) {
        assert!(start.elapsed() < Duration::from_secs(2));
    }
    assert_eq!(space.write(0x10000, &[1]), 0);
}

//! A guest that attacks the stub: nothing but its own process may suffer.

use conformance::left::{alive, stubs};
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

/// A guest can requeue the sentry's sleeping thread to a futex of its own; its process still ends when it is killed.
#[test]
fn a_requeued_sentry_thread_comes_back() {
    let p = make();
    let outcome = run_and_kill(&p, &image(10, 0), Duration::from_secs(1));
    assert_eq!(outcome.code, -9);
    still_works(&p);
}

#[test]
fn clone_grants_are_personal() {
    let p = make();
    let outcome = world(&p).run(&image(6, 0));
    assert_eq!((outcome.code, outcome.output.as_str()), (0, "ok\n"));
    still_works(&p);
}

#[test]
fn nothing_is_left() {
    conformance::left::nothing_is_left("nothing_is_left", make);
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
    // The ones that are ending need a moment on a busy machine.
    let start = Instant::now();
    while stubs(std::process::id()).len() > 5 && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(stubs(std::process::id()).len(), 5, "the hidden process");
    let outcome = world(&p).run(&image(8, 0));
    assert_eq!((outcome.code, outcome.output.as_str(), outcome.dead), (-9, "ok\n", 1));
    let start = Instant::now();
    while !settled() {
        assert!(start.elapsed() < Duration::from_secs(40), "{:?}", stubs(std::process::id()));
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

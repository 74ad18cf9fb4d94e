//! Nothing of a platform outlives it, however it ends.

use crate::{World, compile};
use platform::Platform;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Stub processes that are children of `parent`.
pub fn stubs(parent: u32) -> Vec<u32> {
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

/// For the test called `name`, which runs in a process of its own, so that it can count.
pub fn nothing_is_left(name: &str, make: fn() -> Arc<dyn Platform>) {
    if std::env::var_os("RINGFENCE_CHILD").is_some() {
        return child(make);
    }
    let exe = std::env::current_exe().expect("exe");
    let run = |mode: &str| {
        let mut c = std::process::Command::new(&exe)
            .args([name, "--exact", "--nocapture"])
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
    assert!(pids.len() >= 3, "{pids:?}");
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

/// Whether the process exists and is no zombie.
pub fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn child(make: fn() -> Arc<dyn Platform>) {
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

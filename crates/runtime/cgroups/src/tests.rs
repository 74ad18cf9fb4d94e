//! On the machine's own control groups where it has cgroup v1 and the caller is root (in groups that the tests make
//! and remove), and on a directory tree that looks like cgroup v2.

use crate::*;
use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

fn unique() -> String {
    format!("ringfence-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A manager of the machine's cgroup v1 for a test. Where that cannot be, `None`, and a line that has tests/all count the test
/// as skipped.
fn real(test: &str) -> Option<Manager> {
    let id = &unique();
    let v1 = matches!(Layout::detect(), Ok(Layout::V1(_)));
    if !v1 || !rustix::process::geteuid().is_root() {
        // Not by a macro: the output of macros is hidden for tests that pass. The test itself counts as passed.
        let line = format!("\nskip cgroups::{test}: not root, or no cgroup v1 (0 checks)\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
        return None;
    }
    let linux: Linux =
        serde_json::from_value(serde_json::json!({ "cgroupsPath": format!("/{id}/c") })).unwrap();
    Some(Manager::new(Some(&linux), id, false, false).unwrap())
}

/// Removes the test's parent groups, too.
struct Cleanup(Manager, Vec<Child>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        let _ = self.0.thaw();
        for child in &mut self.1 {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.0.destroy();
        for dir in self.0.paths().values() {
            let _ = fs::remove_dir(dir.parent().unwrap());
        }
    }
}

fn resources(json: serde_json::Value) -> LinuxResources {
    serde_json::from_value(json).unwrap()
}

fn sleeper() -> Child {
    Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap()
}

fn content(manager: &Manager, controller: &str, file: &str) -> String {
    files::read(controller, &manager.groups.dir(controller).unwrap().join(file)).unwrap()
}

#[test]
fn limits_on_cgroup_v1() {
    let Some(mut manager) = real("limits_on_cgroup_v1") else { return };
    let child = sleeper();
    let pid = child.id();
    manager.apply(pid).unwrap();
    let mut cleanup = Cleanup(manager.clone(), vec![child]);
    assert!(manager.in_use());
    assert_eq!(manager.pids().unwrap(), [pid]);
    let set = |json| manager.set(&resources(json));
    set(serde_json::json!({
        "memory": { "limit": 67108864, "swap": 134217728, "reservation": 33554432, "swappiness": 10 },
        "cpu": { "shares": 512, "quota": 20000, "period": 50000, "burst": 10000, "cpus": "0", "mems": "0" },
        "pids": { "limit": 20 },
        "devices": [{ "allow": false, "access": "rwm" }, { "allow": true, "type": "c", "major": 10, "minor": 229, "access": "rw" }],
    }))
    .unwrap();
    assert_eq!(content(&manager, "memory", "memory.limit_in_bytes"), "67108864");
    assert_eq!(content(&manager, "memory", "memory.memsw.limit_in_bytes"), "134217728");
    assert_eq!(content(&manager, "memory", "memory.soft_limit_in_bytes"), "33554432");
    assert_eq!(content(&manager, "cpu", "cpu.shares"), "512");
    assert_eq!(manager.cpu_weight(), Some(512));
    manager.set_cpu_weight(1_000_000).unwrap();
    assert_eq!(content(&manager, "cpu", "cpu.shares"), "262144");
    manager.set_cpu_weight(512).unwrap();
    assert_eq!(content(&manager, "cpu", "cpu.cfs_quota_us"), "20000");
    assert_eq!(content(&manager, "cpu", "cpu.cfs_burst_us"), "10000");
    assert_eq!(content(&manager, "cpuset", "cpuset.cpus"), "0");
    assert_eq!(content(&manager, "pids", "pids.max"), host_pids_max(20).unwrap().to_string());
    assert!(content(&manager, "devices", "devices.list").contains("c 10:229 rw"));
    assert!(!content(&manager, "devices", "devices.list").contains("a *:*"));
    // Down, up beyond the old swap limit, and off, as `docker update` does.
    set(serde_json::json!({ "memory": { "limit": 33554432, "swap": 33554432 } })).unwrap();
    set(serde_json::json!({ "memory": { "limit": 268435456, "swap": 536870912 } })).unwrap();
    set(serde_json::json!({ "memory": { "limit": -1 }, "pids": { "limit": -1 }, "cpu": { "quota": -1 } }))
        .unwrap();
    assert_eq!(content(&manager, "pids", "pids.max"), "max");
    let stats = manager.stats();
    assert!(stats.memory.usage.limit > 1 << 40 && stats.memory.raw.contains_key("rss"), "{stats:?}");
    assert_eq!((stats.pids.current, stats.pids.limit), (1, 0));
    assert_eq!(stats.cpuset.cpus, [0]);
    let error = set(serde_json::json!({ "cpu": { "shares": 300000 } })).unwrap_err();
    assert!(error.to_string().contains("maximum allowed cpu-shares is 262144"), "{error}");
    let error = set(serde_json::json!({ "cpu": { "cpus": "999" } })).unwrap_err().to_string();
    assert!(error.starts_with("cpuset: write \"999\" to /") && error.contains("cpuset.cpus"), "{error}");
    let error = set(serde_json::json!({ "unified": { "memory.high": "1" } })).unwrap_err();
    assert!(error.to_string().contains("linux.resources.unified"), "{error}");
    if !manager.paths().contains_key("hugetlb") {
        let limits = serde_json::json!({ "hugepageLimits": [{ "pageSize": "2MB", "limit": 0 }] });
        let error = set(limits).unwrap_err();
        assert!(error.to_string().starts_with("cannot set hugetlb limit: the host has no"), "{error}");
    }
    // A state file brings back the same.
    let saved = serde_json::to_string(&manager.save()).unwrap();
    let again = Manager::load(serde_json::from_str(&saved).unwrap());
    assert_eq!(again.pids().unwrap(), [pid]);
    again.freeze().unwrap();
    assert!(manager.is_frozen());
    again.thaw().unwrap();
    assert!(!manager.is_frozen());
    // With a process in it, the group stays, and the message says which.
    let error = again.destroy().unwrap_err();
    assert!(error.to_string().contains(&format!("[{pid}]")), "{error}");
    let mut child = cleanup.1.pop().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    again.destroy().unwrap();
    again.destroy().unwrap();
    assert!(again.paths().values().all(|dir| !dir.exists()));
    assert!(!again.in_use());
}

#[test]
fn running_out_of_memory_on_cgroup_v1() {
    let Some(mut manager) = real("running_out_of_memory_on_cgroup_v1") else { return };
    // It waits until it is in the group, and then takes all there is.
    let child =
        Command::new("sh").args(["-c", "read x; tail /dev/zero"]).stdin(Stdio::piped()).spawn().unwrap();
    manager.apply(child.id()).unwrap();
    let mut cleanup = Cleanup(manager.clone(), vec![child]);
    manager
        .set(&resources(serde_json::json!({ "memory": { "limit": 16777216, "swap": 16777216 } })))
        .unwrap();
    let events = manager.oom_events().unwrap();
    assert_eq!(manager.oom_kill_count(), 0);
    drop(cleanup.1[0].stdin.take());
    let mut poll = [rustix::event::PollFd::from_borrowed_fd(events.as_fd(), rustix::event::PollFlags::IN)];
    let timeout = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut poll, Some(&timeout)).unwrap(), 1);
    events.drain();
    assert!(!cleanup.1[0].wait().unwrap().success());
    assert!(manager.oom_kill_count() >= 1);
}

/// A directory that looks like cgroup v2 after the group was made.
fn fake(controllers: &str) -> (PathBuf, Manager) {
    let top = std::env::temp_dir().join(unique());
    let dir = top.join("pod/c");
    fs::create_dir_all(&dir).unwrap();
    let files = [
        "cgroup.procs",
        "cgroup.freeze",
        "pids.max",
        "memory.max",
        "memory.swap.max",
        "memory.low",
        "cpu.weight",
        "cpu.max",
        "cpu.max.burst",
        "cpuset.cpus",
        "cpuset.mems",
        "io.weight",
        "io.max",
        "hugetlb.2MB.max",
        "memory.high",
        "cpu.idle",
    ];
    for file in files {
        fs::write(dir.join(file), "").unwrap();
    }
    for at in [&top, &top.join("pod"), &dir] {
        fs::write(at.join("cgroup.controllers"), controllers).unwrap();
        fs::write(at.join("cgroup.subtree_control"), "").unwrap();
    }
    let mounts = format!("30 23 0:26 / {} rw - cgroup2 cgroup2 rw", top.display());
    let layout = Layout::parse(mounts.as_bytes(), "0::/").unwrap();
    let linux: Linux = serde_json::from_str(r#"{ "cgroupsPath": "/pod/c" }"#).unwrap();
    let manager = Manager::in_layout(&layout, Some(&linux), "c", false, false).unwrap();
    (top, manager)
}

#[test]
fn limits_on_a_fake_cgroup_v2() {
    let (top, mut manager) = fake("cpuset cpu io memory hugetlb pids");
    manager.apply(4711).unwrap();
    assert_eq!(content(&manager, "", "cgroup.procs"), "4711");
    let control = fs::read_to_string(top.join("pod/cgroup.subtree_control")).unwrap();
    assert_eq!(control, "+cpuset +cpu +io +memory +hugetlb +pids");
    let set = |json| manager.set(&resources(json));
    set(serde_json::json!({
        "memory": { "limit": 1000, "swap": 1500, "reservation": 500, "kernel": 7 },
        "cpu": { "shares": 1024, "quota": 20000, "period": 50000, "burst": 10000, "cpus": "0-1", "mems": "0", "idle": 0 },
        "pids": { "limit": 100 },
        "blockIO": { "weight": 500, "throttleReadBpsDevice": [{ "major": 8, "minor": 0, "rate": 1000 }] },
        "hugepageLimits": [{ "pageSize": "2MB", "limit": 2097152 }],
        "unified": { "memory.high": "900" },
        "devices": [{ "allow": false, "access": "rwm" }],
    }))
    .unwrap();
    let expected = [
        ("memory.max", "1000"),
        ("memory.swap.max", "500"),
        ("memory.low", "500"),
        ("memory.high", "900"),
        ("cpu.weight", "39"),
        ("cpu.max", "20000 50000"),
        ("cpu.max.burst", "10000"),
        ("cpuset.cpus", "0-1"),
        ("pids.max", "264"),
        ("io.weight", "default 4950"),
        ("io.max", "8:0 rbps=1000"),
        ("hugetlb.2MB.max", "2097152"),
    ];
    for (file, value) in expected {
        assert_eq!(content(&manager, "", file), value, "{file}");
    }
    set(serde_json::json!({ "memory": { "limit": -1 }, "cpu": { "quota": -1 } })).unwrap();
    for (file, value) in [("memory.max", "max"), ("memory.swap.max", "max"), ("cpu.max", "max 100000")] {
        assert!(content(&manager, "", file).starts_with(value), "{file}");
    }
    let error = set(serde_json::json!({ "unified": { "a/b": "1" } })).unwrap_err();
    assert!(error.to_string().contains("memory.high"), "{error}");
    let error = set(serde_json::json!({ "cpu": { "realtimePeriod": 5 } })).unwrap_err();
    assert!(error.to_string().contains("realtimePeriod"), "{error}");
    fs::remove_dir_all(top).unwrap();
}

#[test]
fn weights_on_a_fake_cgroup_v2() {
    let (top, manager) = fake("cpu");
    assert_eq!(manager.cpu_weight(), None);
    for (asked, taken) in [(39, 39), (40, 40), (0, 1), (123_456, 10_000)] {
        // The kernel's files have nothing left of old values.
        fs::write(top.join("pod/c/cpu.weight"), "").unwrap();
        manager.set_cpu_weight(asked).unwrap();
        assert_eq!(
            (content(&manager, "", "cpu.weight"), manager.cpu_weight()),
            (taken.to_string(), Some(taken))
        );
    }
    fs::remove_dir_all(top).unwrap();
}

#[test]
fn a_controller_that_is_not_handed_down() {
    let (top, manager) = fake("cpu");
    fs::remove_file(top.join("pod/c/memory.max")).unwrap();
    let error = manager.set(&resources(serde_json::json!({ "memory": { "limit": 1000 } }))).unwrap_err();
    assert!(error.to_string().starts_with("cannot set memory limit: the host has no"), "{error}");
    fs::remove_dir_all(top).unwrap();
}

#[test]
fn usage_on_a_fake_cgroup_v2() {
    let (top, manager) = fake("memory");
    let dir = top.join("pod/c");
    let files = [
        ("memory.current", "100"),
        ("memory.max", "max"),
        ("memory.peak", "200"),
        ("memory.stat", "file 10\nanon 20"),
        ("memory.events", "low 0\nmax 3\noom_kill 2"),
        ("cpu.stat", "usage_usec 5\nuser_usec 3\nsystem_usec 2"),
        ("pids.current", "4"),
        ("pids.max", "9"),
        ("cpuset.cpus.effective", "0-1"),
        ("cgroup.events", "frozen 1"),
    ];
    for (file, value) in files {
        fs::write(dir.join(file), value).unwrap();
    }
    let stats = manager.stats();
    assert_eq!((stats.memory.usage.usage, stats.memory.usage.limit), (100, u64::MAX));
    assert_eq!((stats.memory.usage.max, stats.memory.usage.failcnt, stats.memory.cache), (200, 3, 10));
    assert_eq!((stats.cpu.usage.total, stats.cpu.usage.kernel), (5000, 2000));
    assert_eq!((stats.pids.current, stats.pids.limit), (4, 9));
    assert_eq!(manager.oom_kill_count(), 2);
    assert!(manager.is_frozen());
    manager.freeze().unwrap();
    fs::remove_dir_all(top).unwrap();
}

#[test]
fn an_ordinary_user_without_a_group() {
    // A path that cannot be made stands for one that the user may not make.
    let mounts = "30 23 0:26 / /proc/1 rw - cgroup2 cgroup2 rw";
    let layout = Layout::parse(mounts.as_bytes(), "0::/").unwrap();
    let mut manager = Manager::in_layout(&layout, None, "id", false, true).unwrap();
    match manager.apply(1) {
        Ok(()) => {
            let limit = serde_json::json!({ "pids": { "limit": 5 } });
            let error = manager.set(&resources(limit)).unwrap_err();
            let text = "cannot set pids limit: container could not join or create cgroup";
            assert_eq!(error.to_string(), text);
            manager.set(&LinuxResources::default()).unwrap();
        }
        Err(error) => assert!(!error.is_permission(), "{error}"),
    }
    manager.destroy().unwrap();
}

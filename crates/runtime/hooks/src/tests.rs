use super::*;
use std::time::{Duration, Instant};

fn state() -> State {
    State {
        oci_version: "1.2.0".into(),
        id: "id".into(),
        status: "creating".into(),
        pid: Some(7),
        bundle: "/b".into(),
        annotations: BTreeMap::from([("a".into(), "b".into())]),
    }
}

fn hooks(kind: Kind, list: serde_json::Value) -> Hooks {
    serde_json::from_value(serde_json::json!({ kind.to_string(): list })).unwrap()
}

fn shell(script: &str) -> serde_json::Value {
    serde_json::json!({ "path": "/bin/sh", "args": ["sh", "-c", script] })
}

fn fails(hook: serde_json::Value) -> String {
    let hooks = hooks(Kind::CreateRuntime, serde_json::json!([hook]));
    run(&hooks, Kind::CreateRuntime, &state(), &[]).unwrap_err().to_string()
}

#[test]
fn a_hook_reads_the_state() {
    let out = std::env::temp_dir().join(format!("ringfence-hook-{}", std::process::id()));
    let script = format!("cat > {}", out.display());
    let hooks = hooks(Kind::Prestart, serde_json::json!([shell("exit 0"), shell(&script)]));
    run(&hooks, Kind::Prestart, &state(), &[]).unwrap();
    run(&hooks, Kind::Poststop, &state(), &[]).unwrap();
    let text = std::fs::read_to_string(&out).unwrap();
    std::fs::remove_file(&out).unwrap();
    let expected = r#"{"ociVersion":"1.2.0","id":"id","status":"creating","pid":7,"bundle":"/b","annotations":{"a":"b"}}"#;
    assert_eq!(text, expected);
}

#[test]
fn arguments_and_environment() {
    let hook = |env: &str| {
        let script = "echo $0 $A $HOME >&2; exit 1";
        format!(r#"{{ "path": "/bin/sh", "args": ["zero", "-c", "{script}"] {env} }}"#)
    };
    let with = |env: &str| fails(serde_json::from_str(&hook(env)).unwrap());
    let start = "error running createRuntime hook #0: exit status 1, stdout: , stderr: ";
    assert_eq!(with(r#", "env": ["A=b"]"#), format!("{start}zero b"));
    assert_eq!(with(r#", "env": []"#), format!("{start}zero"));
    let home = std::env::var("HOME").unwrap_or_default();
    assert_eq!(with(""), format!("{start}zero {home}").trim_end());
}

#[test]
fn failures_say_how() {
    assert_eq!(
        fails(shell("echo one; echo two; echo three >&2; exit 3")),
        "error running createRuntime hook #0: exit status 3, stdout: one\\ntwo, stderr: three"
    );
    assert!(fails(shell("kill -9 $$")).contains("signal: 9"));
    assert_eq!(
        fails(serde_json::json!({ "path": "/nonexistent" })),
        "error running createRuntime hook #0: exec /nonexistent: no such file or directory"
    );
    let both = hooks(Kind::Poststop, serde_json::json!([shell("exit 1"), shell("exit 2")]));
    assert_eq!(run_all(&both, Kind::Poststop, &state()).len(), 2);
    let error = run(&both, Kind::Poststop, &state(), &[]).unwrap_err();
    assert!(error.to_string().contains("poststop hook #0: exit status 1"), "{error}");
}

#[test]
fn slow_hooks_are_killed() {
    let start = Instant::now();
    let mut hook = shell("sleep 60");
    hook["timeout"] = 1.into();
    let expected = "error running createRuntime hook #0: hook ran past specified timeout of 1.0s";
    assert_eq!(fails(hook), expected);
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn nobody_waits_for_a_daemon() {
    let start = Instant::now();
    let hooks = hooks(Kind::Prestart, serde_json::json!([shell("sleep 20 & exit 0")]));
    run(&hooks, Kind::Prestart, &state(), &[]).unwrap();
    assert!(start.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_hook_joins_a_namespace() {
    use std::os::fd::AsFd;
    let file = std::fs::File::open("/proc/self/ns/uts").unwrap();
    let join =
        HookNamespace { kind: rustix::thread::LinkNameSpaceType::HostNameAndNISDomainName, fd: file.as_fd() };
    let hooks = hooks(Kind::CreateContainer, serde_json::json!([shell("exit 4")]));
    let error = run(&hooks, Kind::CreateContainer, &state(), &[join]).unwrap_err().to_string();
    // Only root may join.
    let joined = error.contains("exit status 4");
    assert!(joined || !rustix::process::geteuid().is_root(), "{error}");
}

#[test]
fn what_the_specification_forbids() {
    let bad = |hook: serde_json::Value| {
        check(&hooks(Kind::StartContainer, serde_json::json!([shell("true"), hook]))).unwrap_err().to_string()
    };
    let path = bad(serde_json::json!({ "path": "bin/true" }));
    assert_eq!(path, r#"hooks.startContainer[1].path "bin/true" must be an absolute path"#);
    let timeout = bad(serde_json::json!({ "path": "/bin/true", "timeout": 0 }));
    assert_eq!(timeout, "hooks.startContainer[1].timeout 0 must be greater than zero");
    assert!(bad(serde_json::json!({ "path": "/bin/true", "env": ["x"] })).contains("env entry"));
}

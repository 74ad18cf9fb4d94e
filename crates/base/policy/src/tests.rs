//! Policies as files: what they decide, and what they say of mistakes.

use crate::*;
use std::net::IpAddr;

fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn at(kind: Kind) -> Operation<'static> {
    Operation::new(Point::Operation(kind))
}

fn on<'a>(kind: Kind, path: &'a str) -> Operation<'a> {
    Operation { path: Some(path.as_bytes()), ..at(kind) }
}

fn call(name: &str) -> u16 {
    seccomp::number(name).unwrap() as u16
}

const DENY: Action = Action::Deny(abi::Errno::EACCES);

#[test]
fn the_first_match_holds_and_others_do_not_concern() {
    let policy = policy(
        "rules:
  - {point: file/open, path: /etc/shadow, executable: /usr/bin/passwd, action: allow}
  - {name: secrets, point: file/open, path: [/etc/shadow, /root/], action: deny, errno: EPERM}
  - {point: net/connect, address: '169.254.169.254:80', action: kill-process}
",
    );
    let open = on(Kind::FileOpen, "/etc/shadow");
    let decided = policy.decide(&open);
    assert_eq!((decided.action, decided.rule), (Action::Deny(abi::Errno::EPERM), Some(1)));
    let decided = policy.decide(&Operation { executable: Some(b"/usr/bin/passwd"), ..open });
    assert_eq!((decided.action, decided.rule), (Action::Allow, Some(0)));
    assert!(policy.decide(&on(Kind::FileOpen, "/root/.ssh/id")).action.refuses());
    assert_eq!(policy.decide(&on(Kind::FileOpen, "/etc/passwd")), Decision::ALLOW);
    assert!(policy.concerns(Point::Operation(Kind::FileOpen)));
    assert!(!policy.concerns(Point::Operation(Kind::FileRead)) && !policy.concerns(Point::Call(257)));
    assert!(!policy.concerns(Point::Call(u16::MAX)));
    let needs = policy.needs(Point::Operation(Kind::FileOpen));
    assert_eq!(needs, Facts::PATH | Facts::EXECUTABLE);
    let metadata = Address::Ip("::ffff:169.254.169.254".parse::<IpAddr>().unwrap(), 80);
    let connect = Operation { address: Some(metadata), ..at(Kind::NetConnect) };
    assert_eq!(policy.decide(&connect).action, Action::KillProcess);
    assert_eq!(policy.decide(&at(Kind::NetConnect)), Decision::ALLOW);
}

#[test]
fn a_unix_socket_is_a_place() {
    let text = "rules:\n  - {point: net/connect, address: [/run/a.sock, '10.0.0.1'], action: ACTION, executable: /x}\n";
    let policy = |action: &str| super::tests::policy(&text.replace("ACTION", action));
    let to = |kind, from, to: &'static str| Operation { second_path: Some(to.as_bytes()), ..on(kind, from) };
    let refuses = policy("deny");
    assert!(refuses.needs(Point::Operation(Kind::FileRename)).contains(Facts::PATH));
    assert_eq!(refuses.decide(&to(Kind::FileLink, "/run/a.sock", "/b")).action, DENY);
    assert_eq!(refuses.decide(&to(Kind::FileRename, "/run/a.sock", "/b")).action, DENY);
    let directory = Operation { directory: true, ..to(Kind::FileRename, "/run", "/b") };
    assert_eq!(refuses.decide(&directory).action, DENY);
    assert_eq!(refuses.decide(&to(Kind::FileRename, "/run/b.sock", "/run/a.sock")), Decision::ALLOW);
    assert!(!policy("log").concerns(Point::Operation(Kind::FileRename)));
}

#[test]
fn a_path_at_a_call_is_the_operation_of_that_call() {
    let policy = policy(
        "rules:
  - {point: syscall/openat/enter, path: /etc/, arg2: {mask: 0x40}, action: deny}
  - {point: syscall/ptrace/enter, arg0: [0, 16], action: deny}
  - {point: syscall/sendfile/enter, path: /x, action: deny}
",
    );
    assert!(!policy.concerns(Point::Call(call("openat"))) && policy.concerns(Point::Call(call("ptrace"))));
    let open = Operation {
        call: Some(call("openat")),
        args: [0, 0, 0x241, 0, 0, 0],
        ..on(Kind::FileOpen, "/etc/x")
    };
    assert_eq!(policy.decide(&open).action, DENY);
    assert_eq!(policy.decide(&Operation { args: [0; 6], ..open }), Decision::ALLOW);
    assert_eq!(policy.decide(&Operation { call: Some(call("open")), ..open }), Decision::ALLOW);
    for kind in [Kind::FileRead, Kind::FileWrite] {
        let sendfile = Operation { call: Some(call("sendfile")), ..on(kind, "/x") };
        assert_eq!(policy.decide(&sendfile).action, DENY);
    }
    let ptrace = Operation { args: [16, 0, 0, 0, 0, 0], ..Operation::new(Point::Call(call("ptrace"))) };
    assert_eq!(policy.decide(&ptrace).action, DENY);
    assert_eq!(policy.decide(&Operation { args: [2; 6], ..ptrace }), Decision::ALLOW);
}

#[test]
fn exceptions_and_objects_without_a_place() {
    let policy = policy(
        "rules:
  - {point: file/exec, path_not: [/usr/, /bin/], action: deny}
  - {point: file/exec, path: /usr/, path_not: /usr/local/, action: log}
  - {point: file/exec, file_sha256: '00000000000000000000000000000000000000000000000000000000000000ff', action: freeze}
",
    );
    assert_eq!(policy.decide(&on(Kind::FileExec, "/tmp/x")).action, DENY);
    assert_eq!(policy.decide(&at(Kind::FileExec)).action, DENY, "memfd_create");
    assert_eq!(policy.decide(&on(Kind::FileExec, "/usr/bin/id")).action, Action::Log);
    let mut digest = [0; 32];
    let local = Operation { file_sha256: Some(&digest), ..on(Kind::FileExec, "/usr/local/x") };
    assert_eq!(policy.decide(&local), Decision::ALLOW);
    digest[31] = 255;
    let local = Operation { file_sha256: Some(&digest), ..on(Kind::FileExec, "/usr/local/x") };
    assert_eq!(policy.decide(&local).action, Action::Freeze);
}

#[test]
fn the_other_conditions() {
    let policy = policy(
        "rules:
  - {point: process/setuid, to_root: true, uid_not: 0, action: kill-container}
  - {point: process/exec, path: /bin/sh, arguments: [-c, '*curl*'], action: deny}
  - {point: file/exec, new_in_layer: true, container: web-*, action: deny}
  - {point: file/open, access: [write, truncate], gid: 100-200, action: deny}
  - {point: net/socket, protocol: [raw, packet], action: deny}
",
    );
    let setuid = Operation { to_root: true, uid: 1000, ..at(Kind::ProcessSetuid) };
    assert_eq!(policy.decide(&setuid).action, Action::KillContainer);
    assert_eq!(policy.decide(&Operation { uid: 0, ..setuid }), Decision::ALLOW);
    let exec = Operation { arguments: b"sh\0-c\0curl x\0", ..on(Kind::ProcessExec, "/bin/sh") };
    assert_eq!(policy.decide(&exec).action, DENY);
    for arguments in [&b"sh\0curl x\0"[..], b"", b"\0"] {
        assert_eq!(policy.decide(&Operation { arguments, ..exec }), Decision::ALLOW);
    }
    let dropped = Operation { new_in_layer: true, container: "web-1", ..on(Kind::FileExec, "/x") };
    assert_eq!(policy.decide(&dropped).action, DENY);
    assert_eq!(policy.decide(&Operation { container: "db", ..dropped }), Decision::ALLOW);
    let open = Operation { access: Access::READ | Access::WRITE, gid: 150, ..on(Kind::FileOpen, "/x") };
    assert_eq!(policy.decide(&open).action, DENY);
    assert_eq!(policy.decide(&Operation { access: Access::READ, ..open }), Decision::ALLOW);
    assert_eq!(policy.decide(&Operation { protocol: Protocol::RAW, ..at(Kind::NetSocket) }).action, DENY);
    assert_eq!(policy.decide(&Operation { protocol: Protocol::TCP, ..at(Kind::NetSocket) }), Decision::ALLOW);
}

#[test]
fn a_default_is_for_operations_only() {
    let policy = policy("default: deny\nerrno: EPERM\nrules:\n  - {point: file/read, action: allow}\n");
    let denied = policy.decide(&at(Kind::NetSocket));
    assert_eq!((denied.action, denied.rule), (Action::Deny(abi::Errno::EPERM), None));
    assert_eq!(policy.decide(&at(Kind::FileRead)).action, Action::Allow);
    assert_eq!(policy.decide(&at(Kind::TaskExit)), Decision::ALLOW);
    assert_eq!(policy.decide(&Operation::new(Point::Call(1))), Decision::ALLOW);
}

#[test]
fn dry_runs_record_and_go_on() {
    let text = "rules:
  - {point: file/open, path: /a/, action: kill-process, dry_run: true}
  - {point: file/open, path: /a/b, action: deny}
";
    let rules = policy(text);
    let decided = rules.decide(&on(Kind::FileOpen, "/a/b"));
    assert_eq!((decided.action, decided.rule), (DENY, Some(1)));
    assert_eq!(decided.dry_run, Some(DryRun { action: Action::KillProcess, rule: Some(0) }));
    let decided = rules.decide(&on(Kind::FileOpen, "/a/c"));
    assert!(decided.action == Action::Allow && decided.dry_run.is_some() && decided.is_recorded());
    let all = policy(&format!("dry_run: true\ndefault: deny\n{}", text.replace(", dry_run: true", "")));
    let decided = all.decide(&on(Kind::FileOpen, "/a/b"));
    assert_eq!(decided.action, Action::Allow);
    assert_eq!(decided.dry_run, Some(DryRun { action: Action::KillProcess, rule: Some(0) }));
    assert_eq!(all.decide(&at(Kind::NetBind)).dry_run, Some(DryRun { action: DENY, rule: None }));
}

#[test]
fn a_place_keeps_its_rules_under_other_names() {
    let policy = policy(
        "rules:
  - {point: file/open, path: /etc/shadow, executable: /usr/bin/backup, action: allow}
  - {point: file/open, path: /srv/, access: read, action: allow}
  - {point: [file/open, file/write], path: [/etc/shadow, /srv/, '/home/*/.ssh/'], executable_not: /bin/x, action: deny}
  - {point: file/read, path: '/**/*.key', action: deny}
",
    );
    let to = |kind, from, to: &'static str| Operation { second_path: Some(to.as_bytes()), ..on(kind, from) };
    for kind in [Kind::FileLink, Kind::FileRename, Kind::FileMount] {
        assert_eq!(policy.decide(&to(kind, "/etc/shadow", "/tmp/x")).action, DENY, "{kind:?}");
        assert_eq!(policy.decide(&to(kind, "/srv/a", "/tmp/x")).action, DENY, "{kind:?}");
        assert_eq!(policy.decide(&to(kind, "/tmp/a", "/tmp/x")), Decision::ALLOW, "{kind:?}");
        let excepted = Operation { executable: Some(b"/bin/x"), ..to(kind, "/etc/shadow", "/tmp/x") };
        assert_eq!(policy.decide(&excepted).action, DENY, "another program may open the new name");
        let allowed = Operation { executable: Some(b"/usr/bin/backup"), ..to(kind, "/etc/shadow", "/tmp/x") };
        assert_eq!(policy.decide(&allowed), Decision::ALLOW);
        assert!(policy.needs(Point::Operation(kind)).contains(Facts::PATH));
    }
    assert_eq!(policy.decide(&to(Kind::FileRename, "/srv/a", "/srv/b")), Decision::ALLOW);
    assert_eq!(policy.decide(&to(Kind::FileLink, "/srv/a", "/srv/b")).action, DENY);
    let directory = |from, to: &'static str| Operation {
        directory: true,
        second_path: Some(to.as_bytes()),
        ..on(Kind::FileRename, from)
    };
    for (from, to, action) in [
        ("/etc", "/etc2", DENY),
        ("/srv/a", "/tmp/a", DENY),
        ("/srv/a", "/srv/b", Action::Allow),
        ("/home/a", "/home/b", Action::Allow),
        ("/home/a", "/tmp/a", DENY),
        ("/home", "/homes", DENY),
        ("/var/a", "/var/b", Action::Allow),
    ] {
        assert_eq!(policy.decide(&directory(from, to)).action, action, "{from} {to}");
    }
    let explicit = "rules:
  - {point: file/link, path: /a, action: allow}
  - {point: file/open, path: /a, action: deny}
";
    assert_eq!(self::policy(explicit).decide(&to(Kind::FileLink, "/a", "/b")).action, Action::Allow);
}

#[test]
fn ask_knows_how() {
    let policy = policy(
        "ask: {socket: /run/a.sock, timeout: 500ms, default: deny}
rules:
  - {point: net/connect, action: ask}
  - {point: net/bind, action: ask, errno: EPERM, ask: {socket: /run/b.sock, timeout: 2s, default: deny}}
",
    );
    let decided = policy.decide(&at(Kind::NetConnect));
    assert_eq!(decided.action, Action::Ask);
    let ask = policy.ask(decided.rule).unwrap();
    assert_eq!((ask.socket.to_str(), ask.timeout.as_millis(), ask.default), (Some("/run/a.sock"), 500, DENY));
    assert_eq!(policy.ask(Some(1)).unwrap().default, Action::Deny(abi::Errno::EPERM));
}

#[test]
fn mistakes_have_lines_and_say_what_to_write() {
    for (text, line, message) in [
        ("rules: 1", 1, "a list"),
        ("rule: []", 1, "did you mean rules?"),
        ("version: 2\nrules: []", 1, "version is 1"),
        ("{}", 1, "rules: []"),
        ("rules:\n  - {point: file/open}", 2, "no action"),
        ("rules:\n  - {action: deny}", 2, "no point"),
        ("rules:\n  - {point: file/opn, action: deny}", 2, "did you mean file/open?"),
        ("rules:\n  - {point: file/*, action: deny}", 2, "a list of them"),
        ("rules:\n  - {point: file/open,\n     action: dny}", 3, "did you mean deny?"),
        ("rules:\n  - {point: file/open, action: deny, errno: EPREM}", 2, "did you mean EPERM?"),
        (
            "rules:\n  - {point: file/open, action: deny, errno: EFOO}",
            2,
            "errno: \"EFOO\" is no name of errno(3)",
        ),
        ("rules:\n  - {point: file/open, action: log, errno: EPERM}", 2, "for action: deny"),
        ("rules:\n  - {point: file/open, path: etc, action: deny}", 2, "write /etc"),
        ("rules:\n  - {point: file/open, address: '*:1', action: deny}", 2, "net/connect"),
        ("rules:\n  - {point: net/connect, path: /x, action: deny}", 2, "as address"),
        ("rules:\n  - {point: net/socket, address: '*:1', action: deny}", 2, "net/connect"),
        ("rules:\n  - {point: net/connect, address: 'a.b:1', action: deny}", 2, "is a name"),
        ("rules:\n  - {point: file/open, arg1: 1, action: deny}", 2, "syscall/NAME/enter"),
        ("rules:\n  - {point: process/signal, path: /x, action: deny}", 2, "executable"),
        ("rules:\n  - {point: file/write, access: write, action: deny}", 2, "file/open, file/map"),
        ("rules:\n  - {point: syscall/getpid/enter, path: /x, action: deny}", 2, "getpid has no operation"),
        (
            "rules:\n  - {point: syscall/openat/enter, address: '*:1', action: deny}",
            2,
            "operation is file/open",
        ),
        ("rules:\n  - {point: syscall/openat/exit, action: deny}", 2, "syscall/openat/enter"),
        ("rules:\n  - {point: syscall/opnat/enter, action: deny}", 2, "no system call"),
        ("rules:\n  - {point: syscall/sysno/600/enter, action: deny}", 2, "no system call"),
        ("rules:\n  - {point: syscall/exit_group/enter, action: deny}", 2, "cannot fail"),
        ("rules:\n  - {point: sentry/task_exit, action: deny}", 2, "kill-container"),
        ("rules:\n  - {point: file/open, action: ask}", 2, "ask: {socket"),
        (
            "rules:\n  - {point: file/open, action: ask, ask: {socket: x, timeout: 1s, default: deny}}",
            2,
            "absolute",
        ),
        (
            "rules:\n  - {point: file/open, action: ask, ask: {socket: /x, timeout: 1h, default: deny}}",
            2,
            "500ms",
        ),
        (
            "rules:\n  - {point: file/open, action: ask, ask: {socket: /x, timeout: 1s, default: ask}}",
            2,
            "nothing more",
        ),
        ("rules:\n  - {point: file/open, action: log, dry_run: 'true'}", 2, "without quotes"),
        ("rules:\n  - {point: syscall/kill/enter, arg1: {equal: 1}, action: deny}", 2, "mask"),
        (
            "rules:\n  - {name: a, point: file/open, action: log}\n  - {name: a, point: file/read, action: log}",
            3,
            "line 2",
        ),
        ("errno: EPERM\nrules: []", 1, "default: deny"),
    ] {
        let errors = Policy::parse(text).expect_err(text);
        let all = errors.iter().map(|error| error.to_string()).collect::<Vec<_>>().join("\n");
        assert!(all.contains(message) && errors.iter().any(|error| error.line == line), "{text}\n{all}");
    }
    let errors = Policy::parse(
        "rules:\n  - {name: one, point: x, action: y, path: [a, /b, c]}\n  - {name: two, point: file/open, uid: z, action: log}",
    );
    let errors = errors.unwrap_err();
    assert_eq!(errors.len(), 5, "{errors:?}");
    assert_eq!(errors[4].rule.as_deref(), Some("rule 2 \"two\""));
}

#[test]
fn rules_that_never_match_are_found() {
    let policy = policy(
        "rules:
  - {point: [file/open, file/read], path: /etc/, action: allow}
  - {point: file/open, path: /etc/shadow, uid: 5, action: deny}
  - {point: [file/open, file/write], path: /etc/shadow, action: deny}
  - {point: net/connect, address: 10.0.0.0/8, address_not: 10.1.0.0/16, action: allow}
  - {point: net/connect, address: '10.2.0.0/16:80', action: deny}
  - {point: net/connect, address: 10.2.0.0/16, address_not: 10.1.0.0/16, action: deny}
  - {point: file/exec, action: log, dry_run: true}
  - {point: file/exec, path: /x, action: deny}
  - {point: syscall/openat/enter, path: /etc/passwd, action: deny}
",
    );
    assert_eq!(cover::covered(&policy), [(1, vec![0]), (5, vec![3]), (8, vec![0])]);
}

#[test]
fn rules_are_explained() {
    let policy = policy(
        "rules:
  - {point: file/exec, path: [/bin/sh, /opt/], executable: /usr/sbin/nginx, uid_not: 0, action: deny}
  - {point: syscall/kill/enter, arg1: {mask: 0xff, equal: 9}, action: log, dry_run: true}
",
    );
    let said: Vec<_> = policy.rules().iter().map(explain::rule).collect();
    assert_eq!(
        said[0],
        "when a process executes a file, or uses it as an interpreter (file/exec), and the path is /bin/sh or \
         /opt/ and all below, and its program is /usr/sbin/nginx, and its effective user ID is not 0: the call fails with EACCES"
    );
    assert_eq!(
        said[1],
        "when a process enters the system call kill, and arg1 & 0xff is 9: the call goes on and is recorded \
         (dry run: only recorded)"
    );
}

#[test]
fn cases_run_as_the_kernel_asks() {
    let policy = policy(
        "rules:
  - {name: shadow, point: file/open, path: /etc/shadow, action: deny}
  - {name: no-bpf, point: syscall/bpf/enter, action: kill-process}
",
    );
    let cases = cases::parse(
        "cases:
  - {point: file/open, path: /etc/shadow, expect: deny, errno: EACCES, rule: shadow}
  - {point: syscall/openat/enter, path: /etc/shadow, expect: deny, rule: 1}
  - {point: syscall/bpf/enter, expect: kill-process, rule: no-bpf}
  - {name: wrong, point: file/open, path: /etc/passwd, expect: deny}
  - {point: file/open, path: /etc/passwd, expect: allow, rule: default}
  - {point: file/open, path: /etc/shadow, expect: deny, errno: EPERM}
",
    )
    .unwrap();
    let wrong: Vec<_> = cases.iter().map(|case| case.run(&policy).differs.is_some()).collect();
    assert_eq!(wrong, [false, false, false, true, false, true]);
    let errors = cases::parse(
        "cases:\n  - {point: file/open, expect: maybe}\n  - {point: x, expect: deny}\n  - {pont: x}\n",
    );
    let lines: Vec<_> = errors.unwrap_err().iter().map(|error| error.line).collect();
    assert_eq!(lines, [2, 3, 4]);
}

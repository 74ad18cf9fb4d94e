//! `linux.seccomp`: the filter of the container's processes, enforced by the kernel inside.
//!
//! As runc does: names that this architecture does not have are left out; so is a rule with the default action; several
//! conditions on one argument are alternatives, on different arguments they must all hold; of several rules that match a call
//! the one decides that libseccomp takes; rules that contradict each other are an error; a call newer than all that
//! the profile mentions answers ENOSYS instead of the default action, so that programs fall back.

use crate::{Error, Result, fail};
use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction as A, LinuxSeccompArg, LinuxSeccompFilterFlag as Flag,
    LinuxSeccompOperator as Op, LinuxSyscall,
};
use seccomp::compile::{Condition, Operator, Rule, Rules};
use seccomp::precedence::Contradiction;
use seccomp::{RET_ALLOW, RET_ERRNO, RET_KILL_PROCESS, RET_KILL_THREAD, RET_LOG, RET_TRACE, RET_TRAP};
use spec::SeccompFilter;

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
/// Largest number that an action carries.
const MAX_DATA: u32 = 0xffff;

/// Compiles a profile; nothing is left of one that allows everything.
pub fn compile(profile: &LinuxSeccomp) -> Result<Option<SeccompFilter>> {
    if profile.listener_path().is_some() {
        fail!("linux.seccomp.listenerPath is not supported: no process outside can answer for the guest");
    }
    let default =
        value("linux.seccomp.defaultAction", profile.default_action(), profile.default_errno_ret())?;
    let mut rules = Rules { default, ..Rules::default() };
    for (index, call) in profile.syscalls().iter().flatten().enumerate() {
        let field = format!("linux.seccomp.syscalls[{index}]");
        if call.names().is_empty() {
            fail!("{field}.names is empty");
        }
        let value = value(&format!("{field}.action"), call.action(), call.errno_ret())?;
        let alternatives = alternatives(&field, call)?;
        for name in call.names() {
            let Some(nr) = seccomp::number(name) else { continue };
            rules.newest = rules.newest.max(nr);
            if value == default {
                continue;
            }
            for conditions in &alternatives {
                rules.rules.push(Rule { nr, conditions: conditions.clone(), value });
            }
        }
    }
    if rules.rules.is_empty() && default == RET_ALLOW {
        return Ok(None);
    }
    let lets_through = default == RET_ALLOW || default == RET_LOG;
    rules.rules = seccomp::precedence::sorted(&rules.rules).map_err(contradiction)?;
    rules.unknown = (!lets_through && rules.newest != 0).then_some(RET_ERRNO | ENOSYS);
    let Ok(instructions) = rules.compile() else {
        fail!("linux.seccomp: the profile is longer than a filter may be; use fewer conditions")
    };
    let flags = profile.flags().iter().flatten().fold(0, |flags, flag| {
        flags
            | match flag {
                Flag::SeccompFilterFlagTsync => 1,
                Flag::SeccompFilterFlagLog => 2,
                Flag::SeccompFilterFlagSpecAllow => 4,
            }
    });
    Ok(Some(SeccompFilter { instructions, flags }))
}

fn contradiction(Contradiction(nr): Contradiction) -> Error {
    let name = seccomp::name(nr).unwrap_or("a call");
    Error(format!(
        "linux.seccomp.syscalls: two entries for {name} have the same conditions, or the conditions of one are the beginning of \
         those of an earlier one, and their actions differ; leave one out"
    ))
}

/// The return value of an action.
fn value(field: &str, action: A, errno: Option<u32>) -> Result<u32> {
    let data = errno.unwrap_or(EPERM);
    match action {
        A::ScmpActErrno | A::ScmpActTrace if data > MAX_DATA => {
            fail!("{field}: errno {data} is out of range")
        }
        A::ScmpActErrno => Ok(RET_ERRNO | data),
        A::ScmpActTrace => Ok(RET_TRACE | data),
        A::ScmpActNotify => fail!("{field}: SCMP_ACT_NOTIFY is not supported; use another action"),
        A::ScmpActKill | A::ScmpActKillThread => Ok(RET_KILL_THREAD),
        A::ScmpActKillProcess => Ok(RET_KILL_PROCESS),
        A::ScmpActTrap => Ok(RET_TRAP),
        A::ScmpActLog => Ok(RET_LOG),
        A::ScmpActAllow => Ok(RET_ALLOW),
    }
}

/// The conditions of a rule, as lists of which one must hold entirely.
fn alternatives(field: &str, call: &LinuxSyscall) -> Result<Vec<Vec<Condition>>> {
    let args = call.args().as_deref().unwrap_or_default();
    if let Some(arg) = args.iter().find(|arg| arg.index() > 5) {
        fail!("{field}.args: a system call has no argument {}; use 0 to 5", arg.index());
    }
    let conditions: Vec<Condition> = args.iter().map(condition).collect();
    let doubled = |c: &Condition| conditions.iter().filter(|other| other.argument == c.argument).count() > 1;
    Ok(match conditions.iter().any(doubled) {
        true => conditions.into_iter().map(|condition| vec![condition]).collect(),
        false => vec![conditions],
    })
}

fn condition(arg: &LinuxSeccompArg) -> Condition {
    let (operator, value) = match arg.op() {
        Op::ScmpCmpNe => (Operator::Ne, arg.value()),
        Op::ScmpCmpLt => (Operator::Lt, arg.value()),
        Op::ScmpCmpLe => (Operator::Le, arg.value()),
        Op::ScmpCmpEq => (Operator::Eq, arg.value()),
        Op::ScmpCmpGe => (Operator::Ge, arg.value()),
        Op::ScmpCmpGt => (Operator::Gt, arg.value()),
        // The mask is the first value here, and what remains under it the second.
        Op::ScmpCmpMaskedEq => (Operator::MaskedEq(arg.value()), arg.value_two().unwrap_or(0)),
    };
    Condition { argument: arg.index(), operator, value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seccomp::{ARCH, Data, Program};
    use serde_json::json;

    fn parse(json: serde_json::Value) -> Result<Option<SeccompFilter>> {
        compile(&serde_json::from_value(json).unwrap())
    }

    fn run(filter: &SeccompFilter, name: &str, args: &[u64]) -> u32 {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        let nr = seccomp::number(name).unwrap_or_else(|| name.parse().unwrap());
        let data = Data { nr: nr as i32, arch: ARCH, ip: 0, args: all };
        Program::new(&filter.instructions).expect("Linux takes it").run(&data)
    }

    /// What the profiles of Docker, containerd and Podman consist of.
    fn profile() -> SeccompFilter {
        let allowed =
            ["read", "write", "open", "clock_nanosleep_time64", "execve", "exit_group", "futex", "mseal"];
        let json = json!({
            "defaultAction": "SCMP_ACT_ERRNO",
            "defaultErrnoRet": 1,
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
            "syscalls": [
                { "names": allowed, "action": "SCMP_ACT_ALLOW" },
                { "names": ["socket"], "action": "SCMP_ACT_ALLOW",
                  "args": [{ "index": 0, "value": 40, "op": "SCMP_CMP_NE" }] },
                { "names": ["personality"], "action": "SCMP_ACT_ALLOW",
                  "args": [{ "index": 0, "value": 0, "op": "SCMP_CMP_EQ" }] },
                { "names": ["personality"], "action": "SCMP_ACT_ALLOW",
                  "args": [{ "index": 0, "value": 8, "op": "SCMP_CMP_EQ" }] },
                { "names": ["clone"], "action": "SCMP_ACT_ALLOW",
                  "args": [{ "index": 0, "value": 2114060288u32, "op": "SCMP_CMP_MASKED_EQ" }] },
                { "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38 },
                { "names": ["mount"], "action": "SCMP_ACT_ERRNO" },
            ],
        });
        parse(json).unwrap().unwrap()
    }

    #[test]
    fn a_profile_in_use() {
        let filter = profile();
        let (eperm, enosys) = (RET_ERRNO | 1, RET_ERRNO | 38);
        assert_eq!(run(&filter, "read", &[]), RET_ALLOW);
        assert_eq!(run(&filter, "mount", &[]), eperm);
        assert_eq!(run(&filter, "ptrace", &[]), eperm);
        assert_eq!(run(&filter, "socket", &[2]), RET_ALLOW);
        assert_eq!(run(&filter, "socket", &[40]), eperm);
        assert_eq!([0, 8, 4].map(|p| run(&filter, "personality", &[p])), [RET_ALLOW, RET_ALLOW, eperm]);
        assert_eq!(run(&filter, "clone", &[0x1200011]), RET_ALLOW);
        assert_eq!(run(&filter, "clone", &[0x10000000]), eperm);
        assert_eq!(run(&filter, "clone3", &[]), enosys);
        // Older than the newest one mentioned, and newer.
        assert_eq!(run(&filter, "cachestat", &[]), eperm);
        assert_eq!(run(&filter, "listxattrat", &[]), enosys);
        assert_eq!(run(&filter, "9999", &[]), enosys);
    }

    #[test]
    fn conditions_on_one_argument_are_alternatives() {
        let arg = |index: u32, value: u64, op: &str| json!({ "index": index, "value": value, "op": op });
        let rule = |args: serde_json::Value| {
            let call = json!({ "names": ["kill"], "action": "SCMP_ACT_TRAP", "args": args });
            parse(json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [call] })).unwrap().unwrap()
        };
        let either = rule(json!([arg(0, 1, "SCMP_CMP_EQ"), arg(0, 2, "SCMP_CMP_EQ")]));
        assert_eq!([1, 2, 3].map(|a| run(&either, "kill", &[a])), [RET_TRAP, RET_TRAP, RET_ALLOW]);
        let both = rule(json!([arg(0, 1, "SCMP_CMP_GE"), arg(1, 9, "SCMP_CMP_LE")]));
        assert_eq!(run(&both, "kill", &[1, 9]), RET_TRAP);
        assert_eq!(run(&both, "kill", &[1, 10]), RET_ALLOW);
        // With a default that lets calls through, new calls are let through.
        assert_eq!(run(&both, "9999", &[]), RET_ALLOW);
    }

    #[test]
    fn actions_and_flags() {
        let filter = parse(json!({
            "defaultAction": "SCMP_ACT_LOG",
            "flags": ["SECCOMP_FILTER_FLAG_LOG", "SECCOMP_FILTER_FLAG_SPEC_ALLOW"],
            "syscalls": [
                { "names": ["read"], "action": "SCMP_ACT_KILL" },
                { "names": ["write"], "action": "SCMP_ACT_KILL_PROCESS" },
                { "names": ["open"], "action": "SCMP_ACT_TRACE", "errnoRet": 7 },
            ],
        }))
        .unwrap()
        .unwrap();
        let got = ["read", "write", "open", "close"].map(|name| run(&filter, name, &[]));
        assert_eq!(got, [RET_KILL_THREAD, RET_KILL_PROCESS, RET_TRACE | 7, RET_LOG]);
        assert_eq!(filter.flags, 6);
        assert_eq!(parse(json!({ "defaultAction": "SCMP_ACT_ALLOW" })).unwrap(), None);
    }

    #[test]
    fn what_is_refused_is_named() {
        let error = |json| parse(json).unwrap_err().to_string();
        let notify = json!({ "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{ "names": ["read"], "action": "SCMP_ACT_NOTIFY" }] });
        assert!(error(notify).starts_with("linux.seccomp.syscalls[0].action: SCMP_ACT_NOTIFY"));
        let listener = json!({ "defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/x" });
        assert!(error(listener).starts_with("linux.seccomp.listenerPath"));
        let index = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["read"],
            "action": "SCMP_ACT_TRAP", "args": [{ "index": 6, "value": 0, "op": "SCMP_CMP_EQ" }] }] });
        assert!(error(index).starts_with("linux.seccomp.syscalls[0].args"));
        let errno = json!({ "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 70000 });
        assert!(error(errno).starts_with("linux.seccomp.defaultAction"));
    }
}

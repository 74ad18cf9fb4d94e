//! From the name of a point to the operations and calls at which a rule holds.

use crate::diagnostic::meant;
use crate::point::{CALLS, Facts, Kind, Point, operations_of};
use crate::rule::{Action, Conditions, Target};

/// Calls that cannot fail: the program would go on where nothing is.
const NEVER_FAIL: [&str; 4] = ["exit", "exit_group", "rt_sigreturn", "restart_syscall"];

/// Where a rule with these conditions holds that names this point.
pub(crate) fn of(text: &str, when: &Conditions, action: Option<Action>) -> Result<Vec<Target>, String> {
    if let Some(kind) = Kind::find(text) {
        possible(kind, text, action)?;
        let misplaced = when.facts() - kind.facts();
        return match misplaced.iter().next() {
            Some(fact) => Err(misplaced_at(fact, kind, text)),
            None => Ok(vec![Target { point: Point::Operation(kind), call: None }]),
        };
    }
    if text.ends_with('*') {
        return Err(format!("{text:?} is no point: points have no patterns, so write a list of them"));
    }
    let Some(rest) = text.strip_prefix("syscall/") else {
        let meant = meant(text, Kind::ALL.iter().map(|kind| kind.name()));
        return Err(match meant.is_empty() {
            true => format!("{text:?} is no point; a system call is syscall/NAME/enter"),
            false => format!("{text:?} is no point{meant}"),
        });
    };
    let Some(name) = rest.strip_suffix("/enter") else {
        return Err(match rest.strip_suffix("/exit") {
            Some(name) => format!("a rule decides before a call acts: write syscall/{name}/enter"),
            None => format!("{text:?} is no point: write syscall/{rest}/enter"),
        });
    };
    let number = match name.strip_prefix("sysno/") {
        Some(number) => number.parse::<u16>().ok(),
        None => seccomp::number(name).and_then(|number| u16::try_from(number).ok()),
    };
    let Some(number) = number.filter(|number| usize::from(*number) < CALLS) else {
        return Err(format!("{name:?} is no system call of x86-64"));
    };
    if NEVER_FAIL.iter().any(|never| seccomp::number(never) == Some(number.into()))
        && matches!(action, Some(Action::Deny(_) | Action::Ask))
    {
        return Err(format!("{name} cannot fail: write action: log, kill-process, kill-container or freeze"));
    }
    let own = when.facts() - Facts::CALLER - Facts::REGISTERS;
    if own.is_empty() {
        return Ok(vec![Target { point: Point::Call(number), call: None }]);
    }
    through(name, number, own)
}

/// A condition on what a pointer names: the operation of the call, when this call leads to it.
fn through(name: &str, number: u16, own: Facts) -> Result<Vec<Target>, String> {
    let operations = operations_of(name);
    let fits: Vec<_> = operations.iter().filter(|kind| kind.facts().contains(own)).collect();
    let Some(first) = fits.first() else {
        let keys: Vec<_> = own.iter().map(key_of).collect();
        let keys = keys.join(" and ");
        return Err(match operations.first() {
            Some(kind) => format!("{name} has no {keys}: its operation is {}", kind.name()),
            None => format!(
                "{name} has no operation with {keys}: {}, or test the registers arg0 to arg5",
                known_at(own)
            ),
        });
    };
    let target = |kind: &Kind| Target { point: Point::Operation(*kind), call: Some(number) };
    // The operation on the program as a whole would be a second decision on the same file.
    let twice = matches!(first, Kind::FileExec);
    Ok(fits.iter().take(if twice { 1 } else { fits.len() }).map(|kind| target(kind)).collect())
}

fn possible(kind: Kind, text: &str, action: Option<Action>) -> Result<(), String> {
    match action {
        Some(Action::Deny(_) | Action::Ask | Action::KillProcess) if !kind.can_be_refused() => {
            Err(format!("{text} cannot be refused: write action: log, kill-container or freeze"))
        }
        _ => Ok(()),
    }
}

fn misplaced_at(fact: Facts, kind: Kind, text: &str) -> String {
    let key = key_of(fact);
    let is_net = kind.name().starts_with("net/");
    let instead = match fact {
        Facts::REGISTERS => {
            return format!(
                "{key} are registers of one system call, and {text} is reached by several: write the point \
                 syscall/NAME/enter"
            );
        }
        Facts::PATH if is_net && kind != Kind::NetSocket => {
            "write the path of a Unix socket as address".into()
        }
        Facts::PATH if kind.name().starts_with("process/") => {
            "write executable for the program of the process that calls".into()
        }
        Facts::ADDRESS if kind == Kind::NetSocket => {
            "a new socket has no address, so write the point net/connect or net/bind".into()
        }
        _ => known_at(fact),
    };
    format!("{text} has no {key}: {instead}")
}

fn known_at(facts: Facts) -> String {
    let kinds: Vec<_> =
        Kind::ALL.iter().filter(|kind| kind.facts().contains(facts)).map(|kind| kind.name()).collect();
    match kinds.is_empty() {
        true => "no point has all of these: write several rules".into(),
        false => format!("write one of the points {}", kinds.join(", ")),
    }
}

/// How rules call a fact.
fn key_of(fact: Facts) -> &'static str {
    match fact {
        Facts::PATH => "path",
        Facts::ACCESS => "access",
        Facts::ADDRESS => "address",
        Facts::PROTOCOL => "protocol",
        Facts::ARGUMENTS => "arguments",
        Facts::NEW_IN_LAYER => "new_in_layer",
        Facts::FILE_SHA256 => "file_sha256",
        Facts::TO_ROOT => "to_root",
        _ => "arg0 to arg5",
    }
}

//! Rules as sentences.

use crate::glob::Pattern;
use crate::parse::{ACCESS, PROTOCOLS};
use crate::point::{Kind, Point};
use crate::rule::{Action, Ask, Conditions, Rule, Target};
use std::fmt::Display;

/// What a rule does, as a sentence.
pub fn rule(rule: &Rule) -> String {
    let points: Vec<_> = rule.targets.iter().map(point).collect();
    let mut text = format!("when a process {}", any(&points));
    for condition in conditions(&rule.when) {
        text.push_str(", and ");
        text.push_str(&condition);
    }
    format!(
        "{text}: {}{}",
        action(rule.action, rule.ask.as_ref()),
        if rule.dry_run { " (dry run: only recorded)" } else { "" }
    )
}

/// What an action does, as a sentence.
pub fn action(action: Action, ask: Option<&Ask>) -> String {
    match action {
        Action::Allow => "the call goes on".into(),
        Action::Log => "the call goes on and is recorded".into(),
        Action::Deny(errno) => format!("the call fails with {}", errno.name()),
        Action::KillProcess => "the process is killed".into(),
        Action::KillContainer => "all processes of the container are killed".into(),
        Action::Freeze => "the container is frozen".into(),
        Action::Ask => match ask {
            None => "a program outside is asked".into(),
            Some(ask) => format!(
                "the program at {} is asked; without an answer within {:?}, {}",
                ask.socket.display(),
                ask.timeout,
                self::action(ask.default, None)
            ),
        },
    }
}

fn point(target: &Target) -> String {
    let name = |number: u16| match seccomp::name(number.into()) {
        Some(name) => name.to_owned(),
        None => format!("number {number}"),
    };
    match (target.point, target.call) {
        (Point::Call(number), _) => format!("enters the system call {}", name(number)),
        (Point::Operation(kind), None) => named(kind),
        (Point::Operation(kind), Some(number)) => {
            format!("{} with the system call {}", named(kind), name(number))
        }
    }
}

fn named(kind: Kind) -> String {
    format!("{} ({})", kind.what(), kind.name())
}

fn any<T: Display>(of: &[T]) -> String {
    let mut text = String::new();
    for (at, one) in of.iter().enumerate() {
        let last = at + 1 == of.len();
        text.push_str(if at == 0 {
            ""
        } else if last {
            " or "
        } else {
            ", "
        });
        text.push_str(&one.to_string());
    }
    text
}

/// Each condition as a clause.
fn conditions(when: &Conditions) -> Vec<String> {
    let mut out = Vec::new();
    fn only<T: Display>(out: &mut Vec<String>, what: &str, of: Option<&[T]>, not: &[T]) {
        match of {
            Some(of) if not.is_empty() => out.push(format!("{what} is {}", any(of))),
            Some(of) => out.push(format!("{what} is {} but not {}", any(of), any(not))),
            None if !not.is_empty() => out.push(format!("{what} is not {}", any(not))),
            None => {}
        }
    }
    only(&mut out, "the path", when.path.as_deref().map(places).as_deref(), &places(&when.path_not));
    let programs = when.executable.as_deref().map(places);
    only(&mut out, "its program", programs.as_deref(), &places(&when.executable_not));
    let digests = |digests: &Option<Vec<[u8; 32]>>| {
        digests
            .as_ref()
            .map(|digests| digests.iter().map(|digest| hex(&digest[..4]) + "...").collect::<Vec<_>>())
    };
    only(&mut out, "its program's SHA-256", digests(&when.executable_sha256).as_deref(), &[]);
    only(&mut out, "the file's SHA-256", digests(&when.file_sha256).as_deref(), &[]);
    for (what, ids, not) in [("user ID", &when.uid, &when.uid_not), ("group ID", &when.gid, &when.gid_not)] {
        let ids = ids.as_ref().map(std::slice::from_ref);
        only(&mut out, &format!("its effective {what}"), ids, not.as_ref().map_or(&[], std::slice::from_ref));
    }
    only(&mut out, "the address", when.address.as_deref(), &when.address_not);
    if let Some(protocol) = when.protocol {
        let names: Vec<_> =
            PROTOCOLS.iter().filter(|(_, flag)| protocol.contains(*flag)).map(|(name, _)| name).collect();
        out.push(format!("the protocol is {}", any(&names)));
    }
    for (text, _) in &when.arguments {
        out.push(format!("one of the arguments is {text}"));
    }
    if let Some(access) = when.access {
        let names: Vec<_> =
            ACCESS.iter().filter(|(_, flag)| access.contains(*flag)).map(|(name, _)| name).collect();
        out.push(format!("the access includes {}", any(&names)));
    }
    if let Some(names) = &when.container {
        let names: Vec<_> = names.iter().map(|(text, _)| text).collect();
        out.push(format!("the container is {}", any(&names)));
    }
    match when.new_in_layer {
        Some(true) => out.push("the file was made in the writable layer".into()),
        Some(false) => out.push("the file was not made in the writable layer".into()),
        None => {}
    }
    match when.to_root {
        Some(true) => out.push("one of the new IDs is 0".into()),
        Some(false) => out.push("none of the new IDs is 0".into()),
        None => {}
    }
    for register in &when.registers {
        let mask = if register.mask == u64::MAX { String::new() } else { format!(" & {:#x}", register.mask) };
        out.push(format!("arg{}{mask} is {}", register.index, register.values));
    }
    out
}

/// Patterns as clauses name them.
fn places(patterns: &[Pattern]) -> Vec<String> {
    let place = |pattern: &Pattern| match pattern.to_string() {
        text if text.ends_with('/') => format!("{text} and all below"),
        text => text,
    };
    patterns.iter().map(place).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

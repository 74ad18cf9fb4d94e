//! Files of policies, and operations that they decide; logs of decisions.

use super::{kind, outcome};
use decision_log::{Fault, Tail, Writer, verify};
use policy::{Action, Decision, Kind, Operation, Point, Policy, cases, cover, explain};

pub(super) const WORDS: &[&str] = &[
    "rules:\n  - {",
    "point: file/open, ",
    "point: [file/link, file/rename], ",
    "point: syscall/openat/enter, ",
    "action: deny",
    "action: ask, ask: {socket: /s, timeout: 1s, default: allow}",
    "path: '/**/a*'",
    "path_not: /a/",
    "address: '10.0.0.0/8:1-9'",
    "dry_run: true",
    "arg0: {mask: 1, equal: 1}",
    "\"number\":0,\"previous\":\"",
    "\"decision\":{}",
];

/// A file is all before the first byte 255, a path all behind it.
pub(super) fn run(input: &[u8]) -> u64 {
    if input.starts_with(b"{\"number\"") {
        return log(input);
    }
    let mut parts = input.splitn(2, |byte| *byte == 255);
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let path = parts.next().unwrap_or(b"/a/b");
    let policy = match Policy::parse(&text) {
        Ok(policy) => policy,
        Err(mistakes) => {
            let lines = text.lines().count() as u32 + 2;
            assert!(
                !mistakes.is_empty() && mistakes.iter().all(|mistake| (1..=lines).contains(&mistake.line))
            );
            let first: String = kind(&mistakes[0].message).chars().take(20).collect();
            return outcome((0, first, cases::parse(&text).is_ok()));
        }
    };
    let covered = cover::covered(&policy);
    let said: usize = policy.rules().iter().map(|rule| explain::rule(rule).len()).sum();
    assert!(policy.rules().is_empty() || said > 0);
    let mut decisions = [0u8; 8];
    let calls = (0..=u16::MAX).step_by(37).map(Point::Call);
    for point in Kind::ALL.iter().map(|kind| Point::Operation(*kind)).chain(calls) {
        for directory in [false, true] {
            let operation = Operation {
                path: Some(path),
                second_path: Some(b"/a/x"),
                executable: Some(path),
                call: Some(257),
                directory,
                ..Operation::new(point)
            };
            let decision = policy.decide(&operation);
            assert!(policy.concerns(point) || decision == Decision::ALLOW);
            assert!(!policy.is_dry_run() || decision.action == Action::Allow);
            // Moving a place asks its rules in another order.
            let moved =
                matches!(point, Point::Operation(Kind::FileRename | Kind::FileLink | Kind::FileMount));
            let never = |rule| covered.iter().any(|(covered, _)| Some(*covered) == rule);
            assert!(moved || !never(decision.rule), "a covered rule has matched");
            assert!(decision.action != Action::Ask || policy.ask(decision.rule).is_some());
            let slot = Action::NAMES.iter().position(|name| *name == decision.action.name()).unwrap_or(7);
            decisions[slot] = decisions[slot].saturating_add(1);
        }
    }
    outcome((1, policy.rules().len().min(4), decisions.map(|count| count.min(1)), covered.len().min(2)))
}

/// A log that is whole is not whole without its last line; one that has no end can be gone on with.
fn log(input: &[u8]) -> u64 {
    let checked = verify(input, None);
    if checked.is_ok() {
        let last = input[..input.len() - 1].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        assert!(verify(&input[..last], None).is_err());
    }
    let tail = Tail::read(input);
    if let Ok(tail) = &tail {
        let mut again = input.to_vec();
        let writer = Writer::resume(&mut again, tail, 1).and_then(|writer| writer.finish(2, None));
        assert!(writer.is_ok());
        assert!(verify(&again[..], None).is_ok_and(|report| report.resumed > 0));
    }
    let of = |fault: &Fault| kind(&fault.to_string()).chars().take(40).collect::<String>();
    outcome((2, checked.as_ref().err().map(of), tail.as_ref().err().map(of)))
}

//! Filters of guests: whatever the kernel accepts ends, and what it takes for always allowed is. The compiler: its
//! programs are accepted and do what the rules say.

use super::{Bytes, outcome};
use seccomp::compile::{Condition, Operator, Rule, Rules, Text};
use seccomp::{
    ACTION_FULL, ARCH, Data, Program, RET_ALLOW, RET_ERRNO, RET_KILL_PROCESS, RET_TRAP, SockFilter,
};

const CALLS: u32 = 512;
const X32: u32 = 0x4000_0000;
const RESULTS: [u32; 4] = [RET_ALLOW, RET_TRAP, RET_ERRNO | 1, RET_KILL_PROCESS];
const SETS: [&[u32]; 3] = [&[], &[5], &[0, 1, 3, 9, 255, 0xffff_ffff]];

pub(super) fn run(input: &[u8]) -> u64 {
    let mut bytes = Bytes(input);
    match bytes.byte() % 2 {
        0 => filter(bytes),
        _ => compiler(bytes),
    }
}

fn filter(mut bytes: Bytes<'_>) -> u64 {
    let probe =
        Data { nr: bytes.word() as i32, arch: bytes.word(), ip: bytes.long(), args: [bytes.long(); 6] };
    let code: Vec<SockFilter> = bytes
        .0
        .chunks_exact(8)
        .map(|i| {
            let mut i = Bytes(i);
            let code = u16::from_le_bytes([i.byte(), i.byte()]);
            SockFilter { code, jt: i.byte(), jf: i.byte(), k: i.word() }
        })
        .collect();
    let Ok(program) = Program::new(&code) else { return outcome(code.first().map(|i| i.code)) };
    let always: Vec<u32> = (0..CALLS).filter(|nr| program.always_allows(*nr as i32)).collect();
    for &nr in &always {
        for args in [[0; 6], [u64::MAX; 6], probe.args] {
            let data = Data { nr: nr as i32, arch: ARCH, ip: probe.ip, args };
            assert_eq!(program.run(&data) & ACTION_FULL, RET_ALLOW, "call {nr} is not always allowed");
        }
    }
    outcome((program.run(&probe), always.len(), code.len() / 8))
}

fn compiler(mut bytes: Bytes<'_>) -> u64 {
    let result = |n: u8| RESULTS[usize::from(n) % RESULTS.len()];
    let text = match bytes.byte() % 2 {
        0 => None,
        _ => Text::new(0x7000_0000_0000 | u64::from(bytes.word() / 2), 1 + bytes.word() / 2),
    };
    let (default, unknown) = (result(bytes.byte()), (bytes.byte() % 2 == 1).then(|| result(1)));
    let newest = u32::from(bytes.byte()) * 2;
    let probe = [bytes.long(), bytes.long(), bytes.long(), bytes.long(), bytes.long(), bytes.long()];
    let ip = 0x7000_0000_0000 | u64::from(bytes.word());
    let mut rules = Rules { default, unknown, newest, text, rules: Vec::new() };
    while !bytes.0.is_empty() && rules.rules.len() < 64 {
        let (nr, count) = (u32::from(bytes.byte()) + u32::from(bytes.byte() % 2) * 256, bytes.byte() % 4);
        let conditions = (0..count).map(|_| condition(&mut bytes)).collect();
        rules.rules.push(Rule { nr, conditions, value: result(bytes.byte()) });
    }
    let Ok(code) = rules.compile() else { return outcome("too long") };
    let program = Program::new(&code).expect("what the compiler makes is accepted");
    for nr in (0..CALLS).chain([X32, X32 + 1, u32::MAX]) {
        for arch in [ARCH, 0x4000_0003] {
            let data = Data { nr: nr as i32, arch, ip, args: probe };
            assert_eq!(program.run(&data), expected(&rules, &data), "call {nr} of {rules:?}");
        }
    }
    outcome((code.len() / 4, rules.rules.len()))
}

fn condition(bytes: &mut Bytes<'_>) -> Condition {
    let (argument, operator) = (usize::from(bytes.byte() % 7), bytes.byte());
    let (small, value) = (u64::from(bytes.byte()), bytes.long());
    let operator = match operator % 8 {
        0 => Operator::Ne,
        1 => Operator::Lt,
        2 => Operator::Le,
        3 => Operator::Eq,
        4 => Operator::Ge,
        5 => Operator::Gt,
        6 => Operator::MaskedEq(value),
        _ => Operator::LowIn(value as u32, SETS[small as usize % SETS.len()]),
    };
    // Values that arguments have, too.
    Condition { argument, operator, value: if small % 2 == 0 { small } else { value } }
}

/// What the rules say, read one by one.
fn expected(rules: &Rules, data: &Data) -> u32 {
    let nr = data.nr as u32;
    if data.arch != ARCH || nr >= X32 || !inside(rules, data.ip) {
        return match (&rules.text, data.arch == ARCH) {
            (Some(_), _) => rules.default,
            (None, false) => RET_KILL_PROCESS,
            (None, true) => RET_ERRNO | 38,
        };
    }
    let of_call = || rules.rules.iter().filter(|rule| rule.nr == nr);
    // One without conditions counts for the call as a whole.
    if let Some(whole) = of_call().find(|rule| rule.conditions.is_empty()) {
        return whole.value;
    }
    if let Some(rule) = of_call().find(|rule| rule.conditions.iter().all(|c| holds(c, data))) {
        return rule.value;
    }
    let highest = rules.rules.iter().map(|rule| rule.nr).max();
    match rules.unknown {
        Some(value) if nr > rules.newest && highest.is_none_or(|highest| nr > highest) => value,
        _ => rules.default,
    }
}

fn inside(rules: &Rules, ip: u64) -> bool {
    rules.text.as_ref().is_none_or(|text| text.contains(ip))
}

fn holds(condition: &Condition, data: &Data) -> bool {
    let Some(&arg) = data.args.get(condition.argument) else { return false };
    let value = condition.value;
    match condition.operator {
        Operator::Ne => arg != value,
        Operator::Lt => arg < value,
        Operator::Le => arg <= value,
        Operator::Eq => arg == value,
        Operator::Ge => arg >= value,
        Operator::Gt => arg > value,
        Operator::MaskedEq(mask) => arg & mask == value & mask,
        Operator::LowIn(mask, values) => values.contains(&(arg as u32 & mask)),
    }
}

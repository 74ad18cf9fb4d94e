//! The parts together.

use crate::files::Files;
use crate::records::{FileId, Mapping, Registers, Sample, context};
use crate::stacks::Stacks;
use crate::world::{Process, ProcessSample};
use crate::{Kind, Label, Profile};
use std::collections::HashMap;
use std::time::Duration;

fn process(sentry: bool, name: &str) -> Process {
    let threads = HashMap::from([(1, "task".into())]);
    let mut process = Process { sentry, name: name.into(), threads, ..Process::default() };
    for (start, inode, path) in [(0x1000, 5, "/0/bin/prog"), (0x8000, 0, ""), (0x9000, 0, "[vdso]")] {
        let file = FileId { major: 0, minor: 1, inode };
        process.map(Mapping { start, end: start + 0x1000, offset: 0, file, path: path.into() });
    }
    process
}

fn seen<'a>(process: &'a Process, chain: &[u64]) -> ProcessSample<'a> {
    let sample = Sample { chain: chain.into(), ..Sample::default() };
    ProcessSample { process, pid: i32::MAX, tid: 1, sample: Box::new(sample) }
}

fn profile() -> Profile {
    let mut files = Files::new(c"pid:[1]".into(), None);
    let mut stacks = Stacks::default();
    let (guest, sentry) = (process(false, "a;<b>\n"), process(true, "boot"));
    let stub = stub::layout::STUB_TEXT;
    for chain in [
        // A fault in the program.
        &[context::KERNEL, 0xffff_0010, 0xffff_0020, context::USER, 0x1010, 0x1021][..],
        // The last one leads nowhere.
        &[context::USER, 0x1010, 0x1021, 0x7777_0000, 0x1010],
        &[context::USER, 0x1010, 0x1021],
        &[context::USER, 0x8010, 0x9001],
        &[context::USER, 0x7777_0000],
        &[context::USER, stub + 4, stub + 8, 0x1030],
    ] {
        stacks.add(&seen(&guest, chain), &mut files);
    }
    stacks.add(&seen(&sentry, &[context::USER, 0x1010]), &mut files);
    assert_eq!(stacks.kernel_addresses(), [0xffff_0010, 0xffff_001f]);
    let names: HashMap<u64, String> = [(0x10, "inner".into()), (0x20, "outer".into())].into();
    let kernel: HashMap<u64, String> = [(0xffff_0010, "fault".into())].into();
    stacks.finish(&[(names, "prog".into())], &kernel, Duration::from_secs(2), 99, 1)
}

#[test]
fn folded_text() {
    let wanted = [
        "guest;a <b> ;[generated code] 1",
        "guest;a <b> ;[prog];[hand-off] 1",
        "guest;a <b> ;[vdso];[generated code] 1",
        "guest;a <b> ;outer;inner 2",
        "guest;a <b> ;outer;inner;[kernel]_[k];fault_[k] 1",
        "sentry;task;inner 1",
    ];
    let profile = profile();
    let text = profile.folded();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, wanted);
    assert_eq!((profile.guest, profile.sentry, profile.lost), (6, 1, 1));
}

#[test]
fn callers_without_frame_pointers() {
    let guest = process(false, "x");
    // A function without a frame in code of no file: the stack is followed by its frame pointer.
    let mut bytes = Vec::new();
    for word in [0x7fff_0010u64, 0x1021, 0, 0x8011] {
        bytes.extend(word.to_le_bytes());
    }
    let registers = Registers { bp: 0x7fff_0000, sp: 0x7fff_0000, ip: 0x8010 };
    let sample =
        Sample { chain: vec![context::USER, 0x8010], registers: Some(registers), stack: bytes.into() };
    let seen = ProcessSample { process: &guest, pid: i32::MAX, tid: 1, sample: Box::new(sample) };
    let mut files = Files::new(c"pid:[1]".into(), None);
    let mut stacks = Stacks::default();
    stacks.add(&seen, &mut files);
    let profile = stacks.finish(&files.names(), &HashMap::new(), Duration::ZERO, 99, 0);
    assert_eq!(profile.folded(), "guest;x;[generated code];[prog];[generated code] 1\n");
}

#[test]
fn the_graph_is_whole() {
    let svg = profile().flame_graph("of <x>");
    assert!(svg.starts_with("<?xml") && svg.ends_with("</svg>\n"));
    let parts = [
        "of &lt;x&gt;",
        "a &lt;b&gt;",
        "inner: 3 samples",
        "fault: 1 samples",
        "[hand-off]",
        "7 samples (guest 6",
    ];
    for part in parts {
        assert!(svg.contains(part), "{part}: {svg}");
    }
    assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
    assert!(!svg.contains("<b>"));
}

#[test]
fn an_idle_sandbox_has_an_empty_graph() {
    let svg = Profile::default().flame_graph("idle");
    assert!(svg.contains("all: 0 samples") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    assert_eq!(Profile::default().folded(), "");
}

#[test]
fn deep_and_wide_profiles_are_drawn() {
    let label = |n: usize| Label { kind: Kind::Guest, text: format!("f{n}") };
    let mut profile = Profile::default();
    profile.stacks.insert((0..5000).map(label).collect(), 100_000);
    for n in 0..10_000 {
        profile.stacks.insert(vec![label(n)], 1);
    }
    assert!(profile.flame_graph("x").len() < 1 << 20);
}

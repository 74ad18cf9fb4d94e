//! The notes and headers of core files. See elf(5), core(5).

use crate::processes::ptrace_regs::{to_words, xstate_for_tracer};
use abi::{PAGE_SIZE, SigInfo};
use caller::HasCredentials;
use std::sync::atomic::Ordering;
use task::{CoreThread, Current};
use zerocopy::IntoBytes;

const PRSTATUS: u32 = 1;
const PRFPREG: u32 = 2;
const PRPSINFO: u32 = 3;
const AUXV: u32 = 6;
const XSTATE: u32 = 0x202;
const FILE: u32 = 0x4649_4c45;
const SIGINFO: u32 = 0x5349_4749;
/// Most bytes of the list of mapped files.
const MAX_FILES: usize = 4 << 20;

fn note(out: &mut Vec<u8>, name: &[u8], kind: u32, bytes: &[u8]) {
    out.extend((name.len() as u32).to_le_bytes());
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(kind.to_le_bytes());
    for part in [name, bytes] {
        out.extend(part);
        out.resize(out.len().next_multiple_of(4), 0);
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(to) = bytes.get_mut(at..at + value.len()) {
        to.copy_from_slice(value);
    }
}

/// IDs of the process, its parent, process group and session.
fn ids(c: &Current) -> [i32; 4] {
    let t = c.kernel().tree.lock();
    let (parent, pgid, sid) = t.node(c.task.tgid()).map_or((0, 0, 0), |n| (n.parent(), n.pgid(), n.sid()));
    drop(t);
    let seen = |nr| c.task.group.pid_seen(nr);
    [c.task.group.pid.own_nr(), seen(parent), seen(pgid), seen(sid)]
}

/// struct elf_prstatus.
fn prstatus(c: &Current, info: &SigInfo, t: &CoreThread, first: bool) -> Vec<u8> {
    let mut b = vec![0; 336];
    put(&mut b, 0, &info.signo.to_le_bytes());
    if first {
        put(&mut b, 4, &info.code.to_le_bytes());
    }
    put(&mut b, 12, &(info.signo as i16).to_le_bytes());
    put(&mut b, 16, &t.pending.0.to_le_bytes());
    put(&mut b, 24, &t.blocked.0.to_le_bytes());
    let [_, parent, pgid, sid] = ids(c);
    for (i, id) in [t.tid, parent, pgid, sid].iter().enumerate() {
        put(&mut b, 32 + 4 * i, &id.to_le_bytes());
    }
    for (i, word) in to_words(&t.regs).iter().enumerate() {
        put(&mut b, 112 + 8 * i, &word.to_le_bytes());
    }
    put(&mut b, 328, &i32::from(!t.xstate.is_empty()).to_le_bytes());
    b
}

/// struct elf_prpsinfo.
fn prpsinfo(c: &Current) -> Vec<u8> {
    let mut b = vec![0; 136];
    b[1] = b'R';
    b[3] = c.task.scheduling.nice.load(Ordering::Relaxed) as u8;
    let creds = c.creds();
    put(&mut b, 16, &creds.uid.to_le_bytes());
    put(&mut b, 20, &creds.gid.to_le_bytes());
    for (i, id) in ids(c).iter().enumerate() {
        put(&mut b, 24 + 4 * i, &id.to_le_bytes());
    }
    put(&mut b, 40, &c.task.comm());
    let (from, to) = c.mm.image().args;
    let mut line = vec![0; to.saturating_sub(from).min(79) as usize];
    let n = c.mm.space.read(from, &mut line);
    line.truncate(n);
    line.iter_mut().filter(|b| **b == 0).for_each(|b| *b = b' ');
    put(&mut b, 56, &line);
    b
}

/// NT_FILE: the mapped files.
fn files(c: &Current) -> Vec<u8> {
    let root = c.fs().view().root.clone();
    let vmas: Vec<_> = c.mm.with_map(|m| {
        m.iter().filter_map(|v| v.file.as_ref().map(|f| (v.start, v.end, v.offset, f.clone()))).collect()
    });
    let (mut numbers, mut names, mut count) = (Vec::new(), Vec::new(), 0u64);
    for (start, end, offset, file) in vmas {
        let Some(name) = file.path.as_ref().map(|p| p.display_link(&root)) else { continue };
        if names.len() + name.len() > MAX_FILES {
            break;
        }
        for word in [start, end, offset / PAGE_SIZE] {
            numbers.extend(word.to_le_bytes());
        }
        names.extend(name);
        names.push(0);
        count += 1;
    }
    let mut out = Vec::new();
    out.extend(count.to_le_bytes());
    out.extend(PAGE_SIZE.to_le_bytes());
    out.extend(numbers);
    out.extend(names);
    out
}

/// All notes: those of the process stand between those of its first thread, the one that dies.
pub fn all(c: &Current, info: &SigInfo, threads: &[CoreThread]) -> Vec<u8> {
    let core = b"CORE\0";
    let mut out = Vec::new();
    for (i, t) in threads.iter().enumerate() {
        note(&mut out, core, PRSTATUS, &prstatus(c, info, t, i == 0));
        if i == 0 {
            note(&mut out, core, PRPSINFO, &prpsinfo(c));
            note(&mut out, core, SIGINFO, info.as_bytes());
            note(&mut out, core, AUXV, &c.mm.image().auxv);
            note(&mut out, core, FILE, &files(c));
        }
        let state = xstate_for_tracer(t.xstate.clone());
        if let Some(legacy) = state.get(..512) {
            note(&mut out, core, PRFPREG, legacy);
            note(&mut out, b"LINUX\0", XSTATE, &state);
        }
    }
    out
}

/// The header of a core file with this many segments.
pub fn elf_header(segments: u16) -> Vec<u8> {
    let mut b = vec![0; 64];
    put(&mut b, 0, b"\x7fELF\x02\x01\x01");
    // ET_CORE, EM_X86_64, version, program headers behind this one.
    put(&mut b, 16, &4u16.to_le_bytes());
    put(&mut b, 18, &62u16.to_le_bytes());
    put(&mut b, 20, &1u32.to_le_bytes());
    put(&mut b, 32, &64u64.to_le_bytes());
    put(&mut b, 52, &64u16.to_le_bytes());
    put(&mut b, 54, &56u16.to_le_bytes());
    put(&mut b, 56, &segments.to_le_bytes());
    b
}

/// A program header: type, flags, offset, address, bytes in the file, bytes in memory, alignment.
pub fn program_header(
    kind: u32,
    flags: u32,
    offset: u64,
    addr: u64,
    held: u64,
    len: u64,
    align: u64,
) -> Vec<u8> {
    let mut b = Vec::with_capacity(56);
    b.extend(kind.to_le_bytes());
    b.extend(flags.to_le_bytes());
    for word in [offset, addr, 0, held, len, align] {
        b.extend(word.to_le_bytes());
    }
    b
}

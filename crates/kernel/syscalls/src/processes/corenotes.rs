//! The notes of core files of processes inside. See core(5).

use crate::processes::ptrace_regs::{to_words, xstate_for_tracer};
use abi::SigInfo;
use elf::core_file::{self, MappedFile, Process, Thread};
use mm::Mm;
use std::sync::atomic::Ordering;
use task::{CoreThread, Task};
use zerocopy::IntoBytes;

/// Most bytes of the command line.
const MAX_LINE: u64 = 79;

/// IDs of the process, its parent, process group and session.
fn ids(task: &Task) -> [i32; 4] {
    let t = task.kernel().tree.lock();
    let (parent, pgid, sid) = t.node(task.tgid()).map_or((0, 0, 0), |n| (n.parent(), n.pgid(), n.sid()));
    drop(t);
    let seen = |nr| task.group.pid_seen(nr);
    [task.group.pid.own_nr(), seen(parent), seen(pgid), seen(sid)]
}

fn thread(t: &CoreThread, info: Option<&SigInfo>, code: i32, ids: [i32; 4]) -> Thread {
    let [_, parent, pgid, sid] = ids;
    let xstate = if t.xstate.is_empty() { Vec::new() } else { xstate_for_tracer(t.xstate.clone()) };
    Thread {
        signo: info.map_or(0, |info| info.signo),
        code,
        pending: t.pending.0,
        blocked: t.blocked.0,
        ids: [t.tid, parent, pgid, sid],
        regs: to_words(&t.regs),
        xstate,
    }
}

/// The mapped files, as the process's root shows them.
fn files(task: &Task, mm: &Mm) -> Vec<MappedFile> {
    let Some(fs) = task.fs() else { return Vec::new() };
    let root = fs.view().root.clone();
    let vmas: Vec<_> = mm.with_map(|m| {
        m.iter().filter_map(|v| v.file.as_ref().map(|f| (v.start, v.end, v.offset, f.clone()))).collect()
    });
    let named = vmas.into_iter().filter_map(|(start, end, offset, file)| {
        let name = file.path.as_ref()?.display_link(&root);
        Some(MappedFile { start, end, offset, name })
    });
    named.collect()
}

/// All notes. `info` is the signal that ends the process, by its first thread; `None` when it goes on.
pub fn all(task: &Task, mm: &Mm, info: Option<&SigInfo>, threads: &[CoreThread]) -> Vec<u8> {
    let ids = ids(task);
    let creds = task.creds();
    let comm = task.comm();
    let image = mm.image();
    let (from, to) = image.args;
    let mut line = vec![0; to.saturating_sub(from).min(MAX_LINE) as usize];
    let n = mm.space.read(from, &mut line);
    line.truncate(n);
    let files = files(task, mm);
    let code = |i: usize| if i == 0 { info.map_or(0, |info| info.code) } else { 0 };
    let threads: Vec<_> = threads.iter().enumerate().map(|(i, t)| thread(t, info, code(i), ids)).collect();
    let layout = core_file::enabled(&threads).map(hostsys::cpu::component_places).unwrap_or_default();
    let process = Process {
        layout: &layout,
        nice: task.scheduling.nice.load(Ordering::Relaxed) as i8,
        owner: [creds.uid, creds.gid],
        ids,
        comm: &comm,
        line: &line,
        siginfo: info.map(IntoBytes::as_bytes),
        auxv: &image.auxv,
        files: &files,
    };
    core_file::notes(&process, &threads)
}

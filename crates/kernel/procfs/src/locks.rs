//! /proc/locks, and the locks in /proc/PID/fdinfo. See proc_locks(5). Leases, and threads that wait, are not listed.

use abi::Result;
use abi::stat::{major, minor};
use files::FdTable;
use kernfs::At;
use locks::records::{Kind, Owner, Range, TO_END, state};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use vfs::OpenFile;

/// Most lines that /proc/locks has.
const MOST: usize = 100_000;

fn row(kind: &str, mode: Kind, pid: i32, file: &OpenFile, start: u64, end: u64) -> String {
    let (dev, ino) = file.attr().map_or((0, 0), |a| (a.dev, a.ino));
    let mode = if mode == Kind::Exclusive { "WRITE" } else { "READ" };
    let end = if end == TO_END { "EOF".to_string() } else { end.to_string() };
    format!("{kind:<6} ADVISORY  {mode} {pid} {:02x}:{:02x}:{ino} {start} {end}\n", major(dev), minor(dev))
}

/// The record's line for a reader that calls its process `pid`.
fn record(range: &Range, pid: i32, file: &OpenFile) -> String {
    match range.owner {
        Owner::File(_) => row("OFDLCK", range.kind, -1, file, range.start, range.end),
        _ => row("POSIX", range.kind, pid, file, range.start, range.end),
    }
}

/// Lines of fdinfo for an open file of a table.
pub(crate) fn of_file(at: &At, file: &OpenFile, table: &FdTable) -> String {
    let all = state(file);
    let mine =
        |r: &&Range| matches!(r.owner, Owner::Posix(id) if id == table.id) || r.owner == Owner::File(file.id);
    let records = all.records.iter().filter(mine).map(|r| record(r, at.pid_nr(r.pid), file));
    let holder = at.proc.map_or(0, |p| at.pid_nr(p.group.tgid));
    let own = all.flocks.iter().filter(|(id, _)| *id == file.id);
    let flocks = own.map(|(_, kind)| row("FLOCK", *kind, holder, file, 0, TO_END));
    records.chain(flocks).enumerate().map(|(i, line)| format!("lock:\t{}: {line}", i + 1)).collect()
}

/// The locks of all files that processes have open. Locks end with the last descriptor, so there are no others.
pub(crate) fn locks(at: &At) -> Result<Vec<u8>> {
    let mut tables = HashSet::new();
    // One open file of each inode, and the process that has an open file.
    let (mut files, mut holders) = (Vec::<Arc<OpenFile>>::new(), HashMap::new());
    let mut inodes = HashSet::new();
    for group in at.kernel().groups() {
        let Some(table) = group.any_thread().and_then(|t| t.fds()) else { continue };
        if !tables.insert(table.id) {
            continue;
        }
        for (_, file, _) in table.entries() {
            let Some(inode) = &file.inode else { continue };
            holders.entry(file.id).or_insert(group.tgid);
            if inodes.insert(Arc::as_ptr(inode).cast::<()>() as usize) {
                files.push(file.clone());
            }
        }
    }
    let mut lines = Vec::new();
    for file in files {
        let all = state(&file);
        for range in &all.records {
            let pid = at.pid_nr(range.pid);
            if pid != 0 || matches!(range.owner, Owner::File(_)) {
                lines.push(record(range, pid, &file));
            }
        }
        for (id, kind) in &all.flocks {
            let pid = holders.get(id).map_or(0, |tgid| at.pid_nr(*tgid));
            if pid != 0 {
                lines.push(row("FLOCK", *kind, pid, &file, 0, TO_END));
            }
        }
        if lines.len() > MOST {
            break;
        }
    }
    Ok(lines
        .iter()
        .take(MOST)
        .enumerate()
        .flat_map(|(i, line)| format!("{}: {line}", i + 1).into_bytes())
        .collect())
}

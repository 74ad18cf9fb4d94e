//! System V IPC: shmget(2), semop(2), msgsnd(2) and relatives. The objects are in the crate `sysv`.

use crate::arg::Ptr;
use abi::time::Timespec;
use abi::{Errno, PAGE_SIZE};
use caller::Failure;
use mm::MapArgs;
use std::sync::atomic::Ordering::Relaxed;
use sysv::msg::{MSG_COPY, MSG_EXCEPT, Message, MsqidDs};
use sysv::sem::{Ask, SemBuf, SemidDs};
use sysv::shm::{ShmidDs, segment_of};
use sysv::{IPC_INFO, IPC_RMID, IPC_SET, IPC_STAT};
use task::{Current, Restart, SysErr, SysResult};

const SHM_LOCK: i32 = 11;
const SHM_UNLOCK: i32 = 12;
const SHM_STAT: i32 = 13;
const SHM_INFO: i32 = 14;
const SHM_STAT_ANY: i32 = 15;
const MSG_STAT: i32 = 11;
const MSG_INFO: i32 = 12;
const MSG_STAT_ANY: i32 = 13;
const GETPID: i32 = 11;
const GETVAL: i32 = 12;
const GETALL: i32 = 13;
const GETNCNT: i32 = 14;
const GETZCNT: i32 = 15;
const SETVAL: i32 = 16;
const SETALL: i32 = 17;
const SEM_STAT: i32 = 18;
const SEM_INFO: i32 = 19;
const SEM_STAT_ANY: i32 = 20;

pub fn shmget(c: &mut Current, key: i32, size: u64, flags: i32) -> SysResult {
    let id = c.task.nsproxy().ipc.sysv.shmget(c, key, size, flags)?;
    Ok(id as u64)
}

pub fn shmat(c: &mut Current, id: i32, addr: u64, flags: i32) -> SysResult {
    let (round, replace) = (flags & libc::SHM_RND != 0, flags & libc::SHM_REMAP != 0);
    let mut addr = addr;
    if id < 0 || addr == 0 && replace {
        return Err(Errno::EINVAL.into());
    }
    if !addr.is_multiple_of(PAGE_SIZE) {
        if !round {
            return Err(Errno::EINVAL.into());
        }
        addr -= addr % PAGE_SIZE;
        if addr == 0 && replace {
            return Err(Errno::EINVAL.into());
        }
    }
    let ns = c.task.nsproxy().ipc.sysv.clone();
    let a = ns.shm_open(c, id, flags)?;
    let place = match (addr, replace) {
        (0, _) => 0,
        (_, true) => libc::MAP_FIXED,
        (_, false) => libc::MAP_FIXED_NOREPLACE,
    };
    let write = if flags & libc::SHM_RDONLY != 0 { 0 } else { libc::PROT_WRITE };
    let exec = if flags & libc::SHM_EXEC != 0 { libc::PROT_EXEC } else { 0 };
    let args = MapArgs {
        addr,
        len: a.len,
        prot: libc::PROT_READ | write | exec,
        flags: libc::MAP_SHARED | place,
        file: Some(std::sync::Arc::clone(&a.file)),
        offset: 0,
    };
    let mm = c.mm.clone();
    let at = c.with_context(|c, ctx| mm.mmap(c, ctx, &args)).map_err(|e| match e {
        Errno::EEXIST => Errno::EINVAL,
        e => e,
    })?;
    ns.shm_touch(&c.task.group.pid, id, true);
    Ok(at)
}

pub fn shmdt(c: &mut Current, addr: u64) -> SysResult {
    if !addr.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL.into());
    }
    // What is left of the segment: its mappings at the place that their offset says.
    let (id, parts) = c.mm.with_map(|m| {
        let mine = |v: &&mm::Vma| v.start.wrapping_sub(v.offset) == addr && v.start >= addr;
        let first = m.iter().filter(mine).find_map(|v| v.file.as_ref().filter(|f| segment_of(f).is_some()));
        let Some(f) = first.cloned() else { return (-1, Vec::new()) };
        let same = |v: &&mm::Vma| v.file.as_ref().is_some_and(|x| std::sync::Arc::ptr_eq(x, &f));
        let parts: Vec<_> = m.iter().filter(mine).filter(same).map(|v| (v.start, v.len())).collect();
        (segment_of(&f).unwrap_or(-1), parts)
    });
    if parts.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    let ns = c.task.nsproxy().ipc.sysv.clone();
    ns.shm_touch(&c.task.group.pid, id, false);
    for (start, len) in parts {
        c.mm.clone().munmap(c.ctx.as_mut(), start, len)?;
    }
    Ok(0)
}

pub fn shmctl(c: &mut Current, id: i32, cmd: i32, buf: Ptr) -> SysResult {
    if id < 0 || cmd < 0 {
        return Err(Errno::EINVAL.into());
    }
    let ns = c.task.nsproxy().ipc.sysv.clone();
    let v = match cmd {
        IPC_INFO => {
            let (info, highest) = ns.shm_limits();
            c.write_value(buf.0, &info)?;
            highest
        }
        SHM_INFO => {
            let (info, highest) = ns.shm_usage();
            c.write_value(buf.0, &info)?;
            highest
        }
        IPC_STAT => {
            let ds = ns.shm_stat(c, id)?;
            c.write_value(buf.0, &ds)?;
            0
        }
        SHM_STAT | SHM_STAT_ANY => {
            let (id, ds) = ns.shm_stat_at(c, id, cmd == SHM_STAT_ANY)?;
            c.write_value(buf.0, &ds)?;
            id
        }
        IPC_SET => {
            let ds: ShmidDs = c.read_value(buf.0)?;
            ns.shm_set(c, id, &ds.perm)?;
            0
        }
        IPC_RMID => {
            ns.shm_remove(c, id)?;
            0
        }
        SHM_LOCK | SHM_UNLOCK => {
            ns.shm_lock(c, id, cmd == SHM_LOCK)?;
            0
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    Ok(v as u64)
}

pub fn semget(c: &mut Current, key: i32, nsems: i32, flags: i32) -> SysResult {
    let id = c.task.nsproxy().ipc.sysv.semget(c, key, nsems, flags)?;
    Ok(id as u64)
}

pub fn semop(c: &mut Current, id: i32, ops: Ptr, count: u64) -> SysResult {
    semtimedop(c, id, ops, count, Ptr(0))
}

pub fn semtimedop(c: &mut Current, id: i32, ops: Ptr, count: u64, timeout: Ptr) -> SysResult {
    let deadline = match timeout.is_null() {
        true => None,
        false => crate::timeout::of_call(c, c.read_value::<Timespec>(timeout.0)?.to_duration()?),
    };
    if count < 1 || id < 0 {
        return Err(Errno::EINVAL.into());
    }
    let ns = c.task.nsproxy().ipc.sysv.clone();
    let most = ns.limits.sem[2].load(Relaxed).min(65536);
    if count > most {
        return Err(Errno::E2BIG.into());
    }
    let ops: Vec<SemBuf> = c.read_array(ops.0, count as usize, most as usize)?;
    let task = c.task.clone();
    match ns.semop(c, id, &ops, deadline, || task.sem_undo()) {
        Ok(()) => Ok(0),
        Err(Failure::Errno(e)) => Err(SysErr::Errno(e)),
        Err(f) => Err(f.into()),
    }
}

pub fn semctl(c: &mut Current, id: i32, num: i32, cmd: i32, arg: u64) -> SysResult {
    if id < 0 {
        return Err(Errno::EINVAL.into());
    }
    let ns = c.task.nsproxy().ipc.sysv.clone();
    let v = match cmd {
        IPC_INFO | SEM_INFO => {
            let (info, highest) = ns.sem_info(cmd == SEM_INFO);
            c.write_value(arg, &info)?;
            highest
        }
        IPC_STAT => {
            let ds = ns.sem_stat(c, id)?;
            c.write_value(arg, &ds)?;
            0
        }
        SEM_STAT | SEM_STAT_ANY => {
            let (id, ds) = ns.sem_stat_at(c, id, cmd == SEM_STAT_ANY)?;
            c.write_value(arg, &ds)?;
            id
        }
        GETALL => {
            let values = ns.sem_values(c, id)?;
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
            c.write_bytes(arg, &bytes)?;
            0
        }
        GETVAL => ns.sem_ask(c, id, num, Ask::Value)?,
        GETPID => ns.sem_ask(c, id, num, Ask::Pid)?,
        GETNCNT => ns.sem_ask(c, id, num, Ask::Increase)?,
        GETZCNT => ns.sem_ask(c, id, num, Ask::Zero)?,
        SETVAL => {
            ns.sem_set_value(c, id, num, arg as i32)?;
            0
        }
        SETALL => {
            let count = ns.sem_count(id)?;
            let values: Vec<u16> = c.read_array(arg, count, count)?;
            ns.sem_set_all(c, id, &values)?;
            0
        }
        IPC_SET => {
            let ds: SemidDs = c.read_value(arg)?;
            ns.sem_set(c, id, &ds.perm)?;
            0
        }
        IPC_RMID => {
            ns.sem_remove(c, id)?;
            0
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    Ok(v as u64)
}

pub fn msgget(c: &mut Current, key: i32, flags: i32) -> SysResult {
    let id = c.task.nsproxy().ipc.sysv.msgget(c, key, flags)?;
    Ok(id as u64)
}

/// Interrupted message calls start again only when no handler ran.
fn blocking<T>(r: caller::Outcome<T>) -> Result<T, SysErr> {
    r.map_err(|f| match f {
        Failure::Interrupted => SysErr::Restart(Restart::NoHand),
        Failure::Errno(e) => SysErr::Errno(e),
        f => f.into(),
    })
}

pub fn msgsnd(c: &mut Current, id: i32, msg: Ptr, size: u64, flags: i32) -> SysResult {
    let ns = c.task.nsproxy().ipc.sysv.clone();
    let kind: i64 = c.read_value(msg.0)?;
    if size > ns.limits.msgmax.load(Relaxed).min(1 << 24) || id < 0 || kind < 1 {
        return Err(Errno::EINVAL.into());
    }
    let mut text = vec![0; size as usize];
    c.read_bytes(msg.0.wrapping_add(8), &mut text)?;
    blocking(ns.msgsnd(c, id, Message { kind, text }, flags))?;
    Ok(0)
}

pub fn msgrcv(c: &mut Current, id: i32, msg: Ptr, size: u64, kind: i64, flags: i32) -> SysResult {
    if id < 0 || (size as i64) < 0 {
        return Err(Errno::EINVAL.into());
    }
    if flags & MSG_COPY != 0 && (flags & MSG_EXCEPT != 0 || flags & libc::IPC_NOWAIT == 0) {
        return Err(Errno::EINVAL.into());
    }
    let ns = c.task.nsproxy().ipc.sysv.clone();
    let m = blocking(ns.msgrcv(c, id, size, kind, flags))?;
    c.write_value(msg.0, &m.kind)?;
    c.write_bytes(msg.0.wrapping_add(8), &m.text)?;
    Ok(m.text.len() as u64)
}

pub fn msgctl(c: &mut Current, id: i32, cmd: i32, buf: Ptr) -> SysResult {
    if id < 0 || cmd < 0 {
        return Err(Errno::EINVAL.into());
    }
    let ns = c.task.nsproxy().ipc.sysv.clone();
    let v = match cmd {
        IPC_INFO | MSG_INFO => {
            let (info, highest) = ns.msg_info(cmd == MSG_INFO);
            c.write_value(buf.0, &info)?;
            highest
        }
        IPC_STAT => {
            let ds = ns.msg_stat(c, id)?;
            c.write_value(buf.0, &ds)?;
            0
        }
        MSG_STAT | MSG_STAT_ANY => {
            let (id, ds) = ns.msg_stat_at(c, id, cmd == MSG_STAT_ANY)?;
            c.write_value(buf.0, &ds)?;
            id
        }
        IPC_SET => {
            let ds: MsqidDs = c.read_value(buf.0)?;
            ns.msg_set(c, id, &ds.perm, ds.qbytes)?;
            0
        }
        IPC_RMID => {
            ns.msg_remove(c, id)?;
            0
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    Ok(v as u64)
}

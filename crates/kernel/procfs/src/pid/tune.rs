//! Files of a process that a write changes: its name, its score for the OOM killer, its timer slack.

use crate::pid::stat::{name, relations};
use abi::{Errno, PAGE_SIZE, Result};
use kernfs::{At, line, parse_int, resident};
use rights::Cap;
use std::sync::atomic::Ordering;

pub fn comm(at: &At) -> Result<Vec<u8>> {
    let p = at.proc()?;
    let mut n = name(p, &relations(at.kernel(), p));
    n.push(b'\n');
    Ok(n)
}

pub fn set_comm(at: &At, data: &[u8]) -> Result<()> {
    let p = at.proc()?;
    if at.cx()?.pid() != p.group.tgid {
        return Err(Errno::EINVAL);
    }
    let t = p.task().ok_or(Errno::ESRCH)?;
    let end = data.iter().position(|&b| b == 0).unwrap_or(data.len());
    t.set_comm(&data[..end]);
    Ok(())
}

pub fn oom_score_adj(at: &At) -> Result<Vec<u8>> {
    line(at.proc()?.group.oom_score_adj.load(Ordering::Relaxed))
}

pub fn set_oom_score_adj(at: &At, data: &[u8]) -> Result<()> {
    adjust(at, parse_int(data)?)
}

fn adjust(at: &At, v: i64) -> Result<()> {
    let v = i32::try_from(v).ok().filter(|v| (-1000..=1000).contains(v)).ok_or(Errno::EINVAL)?;
    let cell = &at.proc()?.group.oom_score_adj;
    if v < cell.load(Ordering::Relaxed) && !at.cx()?.creds().capable(Cap::SYS_RESOURCE) {
        return Err(Errno::EACCES);
    }
    cell.store(v, Ordering::Relaxed);
    Ok(())
}

/// The old scale: -17 to 15.
pub fn oom_adj(at: &At) -> Result<Vec<u8>> {
    let adj = at.proc()?.group.oom_score_adj.load(Ordering::Relaxed);
    line(if adj == 1000 { 15 } else { adj * 17 / 1000 })
}

pub fn set_oom_adj(at: &At, data: &[u8]) -> Result<()> {
    let v = parse_int(data)?;
    if !(-17..=15).contains(&v) {
        return Err(Errno::EINVAL);
    }
    adjust(at, if v == 15 { 1000 } else { v * 1000 / 17 })
}

pub fn oom_score(at: &At) -> Result<Vec<u8>> {
    let p = at.proc()?;
    let total = (at.limits().memory() / PAGE_SIZE).max(1) as i64;
    let adj = i64::from(p.group.oom_score_adj.load(Ordering::Relaxed));
    let Some(mm) = p.mm().filter(|_| adj != -1000) else { return line(0) };
    let badness = resident(at.kernel(), &mm).total as i64 + adj * total / 1000;
    line(((1000 + badness * 1000 / total) * 2 / 3).max(0))
}

fn slack_allowed(at: &At) -> Result<()> {
    let cx = at.cx()?;
    if cx.pid() == at.proc()?.group.tgid || cx.creds().capable(Cap::SYS_NICE) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

pub fn timerslack(at: &At) -> Result<Vec<u8>> {
    slack_allowed(at)?;
    let t = at.proc()?.task().ok_or(Errno::ESRCH)?;
    line(t.timer_slack.load(Ordering::Relaxed))
}

pub fn set_timerslack(at: &At, data: &[u8]) -> Result<()> {
    slack_allowed(at)?;
    let t = at.proc()?.task().ok_or(Errno::ESRCH)?;
    let v = u64::try_from(parse_int(data)?).map_err(|_| Errno::EINVAL)?;
    t.timer_slack.store(if v == 0 { 50_000 } else { v }, Ordering::Relaxed);
    Ok(())
}

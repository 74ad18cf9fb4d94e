//! The directories of processes and threads.

use crate::pid::{PID_DIR, TASK_DIR};
use abi::{Errno, Result};
use kernfs::{At, Child, Names, Proc};
use std::sync::Arc;

/// A process or thread id in the one way of writing it.
fn number(name: &[u8]) -> Result<i32> {
    let s = std::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
    if s.starts_with(['0', '+', '-']) {
        return Err(Errno::ENOENT);
    }
    s.parse().map_err(|_| Errno::ENOENT)
}

/// Processes in /proc.
pub struct Pids;
/// The one instance.
pub static PIDS: Pids = Pids;

fn process(group: Arc<task::ThreadGroup>) -> Child {
    let n = group.tgid.into();
    Child { entry: &PID_DIR, proc: Some(Arc::new(Proc { group, thread: None })), n }
}

fn thread(t: Arc<task::Task>, entry: &'static kernfs::Entry) -> Child {
    let n = t.tid().into();
    Child { entry, proc: Some(Arc::new(Proc { group: t.group.clone(), thread: Some(t) })), n }
}

impl Names for Pids {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        let id = number(name)?;
        let id = at.find_pid(id);
        if let Some(g) = at.kernel().group(id) {
            return Ok(process(g));
        }
        // Threads that lead no process can be named, but are not listed.
        let t = at.kernel().task(id).ok_or(Errno::ENOENT)?;
        Ok(thread(t, &PID_DIR))
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        let all: Vec<_> = at.kernel().groups();
        let seen = all.into_iter().map(|g| (at.pid_nr(g.tgid), g)).filter(|(n, _)| *n > 0);
        Ok(seen.map(|(n, g)| (n as u64, n.to_string(), process(g))).collect())
    }
    fn subdirs(&self, at: &At) -> u64 {
        at.kernel().tree.lock().nodes().filter(|n| at.pid_nr(n.group.tgid) > 0).count() as u64
    }
}

/// Threads in /proc/PID/task.
pub struct Threads;

impl Names for Threads {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        let id = number(name)?;
        let id = at.find_pid(id);
        let t = at.kernel().task(id).filter(|t| at.proc.is_some_and(|p| p.group.tgid == t.tgid()));
        if let Some(t) = t {
            return Ok(thread(t, &TASK_DIR));
        }
        // A zombie keeps the directory of its leader.
        let p = at.proc()?;
        if id != p.group.tgid {
            return Err(Errno::ENOENT);
        }
        let proc = Arc::new(Proc { group: p.group.clone(), thread: None });
        Ok(Child { entry: &TASK_DIR, proc: Some(proc), n: id.into() })
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        let p = at.proc()?;
        let mut v: Vec<_> = p.group.threads();
        v.sort_by_key(|t| t.tid());
        let mut out: Vec<_> = v
            .into_iter()
            .map(|t| (at.pid_nr(t.tid()), t))
            .map(|(n, t)| (n as u64, n.to_string(), thread(t, &TASK_DIR)))
            .collect();
        let leader = at.pid_nr(p.group.tgid);
        if !out.iter().any(|x| x.0 == leader as u64) {
            let name = leader.to_string();
            out.insert(0, (leader as u64, name.clone(), self.find(at, name.as_bytes())?));
        }
        out.sort_by_key(|x| x.0);
        Ok(out)
    }
    fn subdirs(&self, at: &At) -> u64 {
        at.proc.map_or(1, |p| p.group.threads().len().max(1) as u64)
    }
}

/// task/TID/children: processes that this thread made.
pub fn children(at: &At) -> Result<Vec<u8>> {
    let p = at.proc()?;
    let t = at.kernel().tree.lock();
    let mine = t.node(p.group.tgid).map_or(Vec::new(), |n| n.children().to_vec());
    let id = p.id();
    let leads = id == p.group.tgid;
    let mut out = String::new();
    for c in mine {
        let Some(n) = t.node(c) else { continue };
        // Children of threads that have left are the leader's.
        let by_me = n.parent_tid() == id || leads && t.task(n.parent_tid()).is_none();
        if by_me {
            out.push_str(&format!("{} ", at.pid_nr(c)));
        }
    }
    Ok(out.into_bytes())
}

/// /proc/self.
pub fn own(at: &At) -> Result<Vec<u8>> {
    match at.pid_nr(at.cx()?.pid()) {
        0 => Err(Errno::ENOENT),
        own => Ok(own.to_string().into_bytes()),
    }
}

/// /proc/thread-self.
pub fn own_thread(at: &At) -> Result<Vec<u8>> {
    let cx = at.cx()?;
    match at.pid_nr(cx.pid()) {
        0 => Err(Errno::ENOENT),
        own => Ok(format!("{own}/task/{}", at.pid_nr(cx.tid())).into_bytes()),
    }
}

//! The process tree as plain data, for a checkpoint. Threads, and terminals of sessions, are kept with what they consist of.

use super::{Leader, Node, Report, Tree};
use crate::life::Life;
use crate::thread_group::ThreadGroup;
use cgroup::Charge;
use rights::Credentials;
use sched::{Scheduling, SchedulingState};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A process's place in the tree. All IDs are those of the sandbox's own PID namespace.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NodeState {
    /// The process.
    pub tgid: i32,
    /// Its parent, 0 without one.
    pub parent: i32,
    /// The parent's thread that made it.
    pub parent_tid: i32,
    /// Its children, in order of creation.
    pub children: Vec<i32>,
    /// Process group.
    pub pgid: i32,
    /// Session.
    pub sid: i32,
    /// Signal sent to the parent at exit.
    pub exit_signal: i32,
    /// Where it is in its life.
    pub life: Life,
    /// What wait(2) has yet to report of a process that lives.
    pub report: Option<Report>,
    /// Scheduling attributes of a leader that has left.
    pub leader: Option<SchedulingState>,
    /// The control group that such a leader counts in.
    #[serde(default)]
    pub leader_group: Option<u64>,
}

impl Node {
    fn state(&self) -> NodeState {
        NodeState {
            tgid: self.group.tgid,
            parent: self.parent,
            parent_tid: self.parent_tid,
            children: self.children.clone(),
            pgid: self.pgid(),
            sid: self.sid(),
            exit_signal: self.exit_signal,
            life: self.group.signals.lock().life,
            report: self.report,
            leader: self.leader.as_ref().map(|l| l.scheduling.state()),
            leader_group: self.leader.as_ref().and_then(|l| Some(l.cgroup.as_ref()?.group().id())),
        }
    }
}

impl Tree {
    /// All processes as plain data, in order of their IDs.
    pub fn state(&self) -> Vec<NodeState> {
        self.nodes.values().map(Node::state).collect()
    }

    /// A tree without threads and terminals. `process` gives the process of a place, and the credentials of its leader. Process
    /// IDs must have been taken before; `None` when one of them is missing. `charge` has a leader that has left count in its control
    /// group.
    pub fn restore(
        saved: &[NodeState],
        mut process: impl FnMut(&NodeState) -> (Arc<ThreadGroup>, Arc<Credentials>),
        charge: impl Fn(&NodeState) -> Option<Charge>,
    ) -> Option<Tree> {
        let mut nodes = BTreeMap::new();
        for s in saved {
            let (group, creds) = process(s);
            let find = |nr| Some(group.kernel.pids.find(nr)?.attach());
            let leader = s.leader.map(|l| Leader {
                scheduling: Arc::new(Scheduling::from(l)),
                creds,
                cgroup: charge(s),
            });
            let node = Node {
                pid: find(s.tgid)?,
                pgrp: find(s.pgid)?,
                session: find(s.sid)?,
                parent: s.parent,
                parent_tid: s.parent_tid,
                children: s.children.clone(),
                exit_signal: s.exit_signal,
                report: s.report,
                leader,
                group,
            };
            node.group.signals.lock().life = s.life;
            nodes.insert(s.tgid, node);
        }
        let unreaped = saved.iter().filter(|s| s.leader.is_some()).count();
        Some(Tree {
            nodes,
            tasks: HashMap::new(),
            terminals: HashMap::new(),
            unreaped,
            tracees: Default::default(),
        })
    }
}

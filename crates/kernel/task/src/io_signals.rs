//! Signals of files go to the owners of the files: F_SETOWN in fcntl(2).

use crate::kernel::Kernel;
use crate::task::Task;
use abi::{SigInfo, Signal};
use files::IoSignals;
use std::sync::{Arc, Weak};
use vfs::file::{F_OWNER_PGRP, F_OWNER_TID};

/// Sends the signals of files to tasks.
struct Signals(Weak<Kernel>);

impl IoSignals for Signals {
    fn send(&self, owner: &vfs::SignalOwner, code: i32, band: i64, fd: i32) {
        let plain = SigInfo::new(Signal::SIGIO, libc::SI_KERNEL);
        let info = Signal::new(owner.signal).map_or(plain, |s| SigInfo::poll(s, code, band, fd));
        self.tell(owner, info, plain);
    }

    fn urgent(&self, owner: &vfs::SignalOwner) {
        let info = SigInfo::new(Signal::SIGURG, libc::SI_KERNEL);
        self.tell(owner, info, info);
    }
}

impl Signals {
    /// Sends `info` to the owner's tasks. A task without room for it gets the plain signal, as on Linux; a task that is
    /// gone needs none.
    fn tell(&self, owner: &vfs::SignalOwner, info: SigInfo, plain: SigInfo) {
        let Some(k) = self.0.upgrade() else { return };
        if owner.kind == F_OWNER_TID {
            let target = k.task(owner.id).filter(|t| owner.may_signal(&t.creds()));
            if let Some(t) = target {
                let _ = t.send(info).or_else(|_| t.send(plain));
            }
            return;
        }
        let groups: Vec<_> = {
            let t = k.tree.lock();
            match owner.kind {
                F_OWNER_PGRP => t.nodes().filter(|n| n.pgid() == owner.id).map(|n| n.group.clone()).collect(),
                _ => t.node(owner.id).map(|n| n.group.clone()).into_iter().collect(),
            }
        };
        let may = |t: &Arc<Task>| owner.may_signal(&t.creds());
        for g in groups.iter().filter(|g| g.any_thread().as_ref().is_some_and(may)) {
            let _ = g.send(info).or_else(|_| g.send(plain));
        }
    }
}

impl Kernel {
    /// What sends the signals of files.
    pub fn io_signals(self: &Arc<Kernel>) -> Arc<dyn IoSignals> {
        Arc::new(Signals(Arc::downgrade(self)))
    }
}

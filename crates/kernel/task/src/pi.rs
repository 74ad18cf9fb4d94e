//! Priority-inheritance futexes of tasks: what the crate `futex_pi` needs of a thread.

use crate::current::Current;
use crate::task::Task;
use abi::{Errno, Result};
use futex_pi::{Key, PiLocker, PiOwner, PiTable, PiTask};
use lock_order::Mutex;
use std::sync::Arc;
use std::time::Instant;
use wait::{Events, Stop, Wake};

impl PiOwner for Task {
    fn pi(&self) -> &Mutex<PiTask<Task>> {
        &self.pi
    }
    fn own_tid(&self) -> i32 {
        Task::own_tid(self)
    }
    fn priority(&self) -> i32 {
        self.scheduling.policy.lock().1
    }
    fn wake(&self) {
        self.waiter.wake(Events::IN);
    }
}

impl PiLocker for Current {
    type Owner = Task;
    fn this(&self) -> &Arc<Task> {
        &self.task
    }
    fn table(&self) -> &Arc<PiTable<Task>> {
        &self.kernel().pi
    }
    fn owner(&self, tid: i32) -> Option<Arc<Task>> {
        self.kernel().task(self.task.pids().find(tid)?.nr())
    }
    fn read_word(&self, addr: u64) -> Result<u32> {
        let mut b = [0; 4];
        if self.mm.space.read(addr, &mut b) == 4 { Ok(u32::from_ne_bytes(b)) } else { Err(Errno::EFAULT) }
    }
    fn compare_exchange(&mut self, addr: u64, old: u32, new: u32) -> Result<u32> {
        self.ctx.compare_exchange(addr, old, new)
    }
    fn sleep(&self, deadline: Option<Instant>) -> std::result::Result<(), Stop> {
        Current::sleep(self, deadline)
    }
    fn dying(&self) -> bool {
        Current::dying(self)
    }
}

impl Current {
    /// The key of a futex word.
    pub fn futex_key(&self, addr: u64, private: bool) -> Result<Key> {
        if !addr.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        self.check_range(addr, 4)?;
        futex_pi::futex_key(&self.mm, addr, private)
    }
}

//! A caller without a kernel, for the tests of this crate.

use crate::job::JobControl;
use abi::{Errno, Result, Signal};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;
use vfs::{Caller, Credentials, Creds, UserMemory};
use wait::Waiter;

pub struct Plain {
    pub pgid: i32,
    pub ignores: bool,
    waiter: Arc<Waiter>,
    raised: Mutex<Vec<Signal>>,
}

impl Plain {
    pub fn new() -> Plain {
        Plain { pgid: 1, ignores: false, waiter: Waiter::new(), raised: Mutex::default() }
    }
}

impl Caller for Plain {
    fn creds(&self) -> Creds {
        Credentials::root(0).in_use()
    }
    fn waiter(&self) -> Arc<Waiter> {
        self.waiter.clone()
    }
    fn pid(&self) -> i32 {
        1
    }
    fn tid(&self) -> i32 {
        1
    }
    fn pgid(&self) -> i32 {
        self.pgid
    }
    fn sid(&self) -> i32 {
        1
    }
    fn rlimit(&self, _resource: i32) -> u64 {
        u64::MAX
    }
    fn raise(&self, sig: Signal) {
        self.raised.lock().push(sig);
    }
    fn umask(&self) -> u32 {
        0o22
    }
    fn blocks_or_ignores(&self, _sig: Signal) -> bool {
        self.ignores
    }
}

/// Memory that starts at address 0.
pub struct Memory(pub [u8; 256]);

impl UserMemory for Memory {
    fn copy_in(&mut self, addr: u64, buf: &mut [u8]) -> Result<()> {
        let a = addr as usize;
        buf.copy_from_slice(self.0.get(a..a + buf.len()).ok_or(Errno::EFAULT)?);
        Ok(())
    }
    fn copy_out(&mut self, addr: u64, data: &[u8]) -> Result<()> {
        let a = addr as usize;
        self.0.get_mut(a..a + data.len()).ok_or(Errno::EFAULT)?.copy_from_slice(data);
        Ok(())
    }
}

/// Session 1 with groups 1 and 2; records signals.
#[derive(Default)]
pub struct Jobs {
    pub sent: Mutex<Vec<(i32, Signal)>>,
    tty: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

impl JobControl for Jobs {
    fn signal_pgrp(&self, pgid: i32, sig: Signal) {
        self.sent.lock().push((pgid, sig));
    }
    fn signal_process(&self, pid: i32, sig: Signal) {
        self.sent.lock().push((pid, sig));
    }
    fn pgrp_in_session(&self, pgid: i32, sid: i32) -> bool {
        sid == 1 && pgid <= 2
    }
    fn session_of(&self, pgid: i32) -> Option<i32> {
        (pgid <= 2).then_some(1)
    }
    fn is_orphaned(&self, _pgid: i32) -> bool {
        false
    }
    fn terminal(&self, _sid: i32) -> Option<Arc<dyn Any + Send + Sync>> {
        self.tty.lock().clone()
    }
    fn set_terminal(&self, _sid: i32, tty: Option<Arc<dyn Any + Send + Sync>>) {
        *self.tty.lock() = tty;
    }
}

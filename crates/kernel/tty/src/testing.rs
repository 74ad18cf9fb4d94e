//! A caller's memory and sessions, for the tests of this crate.

use crate::pty::{JobControl, Pty};
use abi::{Errno, Result, Signal};
use caller::UserMemory;
use lock_order::Mutex;
use std::sync::Arc;

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
    tty: Mutex<Option<Arc<Pty>>>,
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
        (1..=2).contains(&pgid).then_some(1)
    }
    fn is_orphaned(&self, _pgid: i32) -> bool {
        false
    }
    fn terminal(&self, _sid: i32) -> Option<Arc<Pty>> {
        self.tty.lock().clone()
    }
    fn set_terminal(&self, _sid: i32, tty: Option<Arc<Pty>>) {
        *self.tty.lock() = tty;
    }
}

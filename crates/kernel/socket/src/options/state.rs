//! [`Options`] as plain data, for a checkpoint.

use super::Options;
use crate::filter::Program;
use lock_order::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// [`Options`] as plain data.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[expect(missing_docs, reason = "the fields of Options")]
pub struct OptionsState {
    pub sndbuf: usize,
    pub rcvbuf: usize,
    pub rcvtimeo: u64,
    pub sndtimeo: u64,
    pub rcvlowat: usize,
    pub passcred: bool,
    pub passpidfd: bool,
    pub passrights: bool,
    pub peek_off: i32,
    pub linger: (i32, i32),
    pub kept: BTreeMap<i32, i32>,
    pub max_pacing: u64,
    pub filter: Vec<u8>,
}

impl Options {
    /// As plain data.
    pub fn state(&self) -> OptionsState {
        let linger = *self.linger.lock();
        let kept = self.kept.lock().clone();
        OptionsState {
            sndbuf: self.sndbuf.load(Relaxed),
            rcvbuf: self.rcvbuf.load(Relaxed),
            rcvtimeo: self.rcvtimeo.load(Relaxed),
            sndtimeo: self.sndtimeo.load(Relaxed),
            rcvlowat: self.rcvlowat.load(Relaxed),
            passcred: self.passcred.load(Relaxed),
            passpidfd: self.passpidfd(),
            passrights: self.passrights(),
            peek_off: self.peek_off.load(Relaxed),
            linger,
            kept,
            max_pacing: self.max_pacing(),
            filter: self.filter.lock().as_ref().map(|filter| filter.bytes().to_vec()).unwrap_or_default(),
        }
    }
}

impl From<&OptionsState> for Options {
    fn from(saved: &OptionsState) -> Options {
        let filter = Program::new(&saved.filter).ok().map(Arc::new);
        let filtered = filter.is_some().into();
        Options {
            sndbuf: saved.sndbuf.into(),
            rcvbuf: saved.rcvbuf.into(),
            rcvtimeo: saved.rcvtimeo.into(),
            sndtimeo: saved.sndtimeo.into(),
            rcvlowat: saved.rcvlowat.into(),
            passcred: saved.passcred.into(),
            passpidfd: saved.passpidfd.into(),
            passrights: saved.passrights.into(),
            peek_off: saved.peek_off.into(),
            linger: Mutex::new(saved.linger),
            kept: Mutex::new(saved.kept.clone()),
            max_pacing: saved.max_pacing.into(),
            filter: Mutex::new(filter),
            filtered,
        }
    }
}

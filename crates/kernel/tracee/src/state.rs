//! A traced thread as plain data, for a checkpoint. Jobs are not kept: a tracer that stands still waits for none.

use crate::after::After;
use crate::debug_regs::DebugRegs;
use crate::flags::{NOTIFY, O_MASK, SEIZED, STEP, SYSCALL, SYSEMU, TRACED, TRAP, WATCHED};
use crate::stopped::Stopped;
use crate::trace::{State, Trace, Tracer};
use abi::SigInfo;
use platform::Regs;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::SeqCst;

/// A stop in progress, as [`Stopped`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "those of Stopped")]
pub struct StopState {
    pub code: i32,
    pub info: Option<SigInfo>,
    pub message: u64,
    pub regs: Regs,
    pub dirty: bool,
    pub listening: bool,
    pub resumed: Option<i32>,
    pub after: After,
}

/// A traced thread, but for its tracer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceState {
    /// [`TRACED`] and others.
    pub flags: u32,
    /// PTRACE_O_*.
    pub options: u32,
    /// Debug registers.
    pub debug: DebugRegs,
    /// The stop.
    pub stop: Option<StopState>,
}

impl<P, C> Trace<P, C> {
    /// As plain data, with the tracer; `None` when the thread is not traced.
    pub fn state(&self) -> Option<(TraceState, Tracer<P>)> {
        let s = self.state.lock();
        // Field by field, so that a new field is either kept or does not compile.
        let State { tracer, options, stop, debug } = &*s;
        let tracer = tracer.clone()?;
        let stop = stop.as_ref().map(|stop| {
            let Stopped { code, info, message, regs, dirty, listening, resumed, jobs: _, after } = stop;
            StopState {
                code: *code,
                info: *info,
                message: *message,
                regs: *regs,
                dirty: *dirty,
                listening: *listening,
                resumed: *resumed,
                after: *after,
            }
        });
        let flags = self.flags.load(SeqCst);
        Some((TraceState { flags, options: *options, debug: debug.clone(), stop }, tracer))
    }

    /// Traced by `by` from now on, as it was. `max`: one past the last address of a program. An error is a sentence.
    pub fn restore(&self, saved: &TraceState, by: Tracer<P>, max: u64) -> Result<(), &'static str> {
        if saved.flags & TRACED == 0 || saved.options & !O_MASK != 0 {
            return Err("flags that no tracer sets");
        }
        let debug = saved.debug.checked(max).map_err(|_| "debug registers that no processor takes")?;
        if saved.stop.as_ref().is_some_and(|s| s.resumed.is_some_and(|signal| !(0..=64).contains(&signal))) {
            return Err("a signal that is none");
        }
        let watched = if debug.active() { WATCHED } else { 0 };
        let kept = saved.flags & (TRACED | SEIZED | SYSCALL | SYSEMU | STEP | TRAP | NOTIFY);
        let mut s = self.state.lock();
        *s = State {
            tracer: Some(by),
            options: saved.options,
            debug,
            stop: saved.stop.as_ref().map(|stop| Stopped {
                code: stop.code,
                info: stop.info,
                message: stop.message,
                regs: stop.regs,
                dirty: stop.dirty,
                listening: stop.listening,
                resumed: stop.resumed,
                jobs: Vec::new(),
                after: stop.after,
            }),
        };
        self.flags.store(kept | watched, SeqCst);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn tracer() -> Tracer<()> {
        let ns = user_ns::UserNamespace::initial();
        Tracer { tid: 7, group: Arc::new(()), creds: Arc::new(rights::Credentials::root(&ns, 0)) }
    }

    fn sound() -> TraceState {
        let mut debug = DebugRegs::default();
        debug.set(0, 0x1000, 1 << 47).unwrap();
        debug.set(7, 0xd_0001, 1 << 47).unwrap();
        let stop = StopState {
            code: 5,
            info: Some(SigInfo::new(abi::Signal::SIGTRAP, 0x85)),
            message: 3,
            regs: Regs::default(),
            dirty: true,
            listening: false,
            resumed: Some(64),
            after: After::Enters { code: 0x85, emulated: true },
        };
        TraceState { flags: TRACED | SEIZED | STEP | WATCHED, options: O_MASK, debug, stop: Some(stop) }
    }

    #[test]
    fn what_was_saved_is_restored() {
        let trace: Trace<(), ()> = Trace::default();
        trace.restore(&sound(), tracer(), 1 << 47).unwrap();
        let (state, by) = trace.state().unwrap();
        assert_eq!((state, by.tid), (sound(), 7));
        assert!(Trace::<(), ()>::default().state().is_none());
    }

    #[test]
    fn what_no_tracer_makes_is_refused() {
        let changes: [fn(&mut TraceState); 5] = [
            |s| s.flags = SEIZED,
            |s| s.options = 1 << 15,
            |s| s.stop.as_mut().unwrap().resumed = Some(65),
            |s| s.stop.as_mut().unwrap().resumed = Some(-1),
            |s| {
                s.debug =
                    serde_json::from_str(r#"{"addr":[0,0,0,0],"status":0,"control":196609,"seen":[0,0,0,0]}"#)
                        .unwrap()
            },
        ];
        for change in changes {
            let mut state = sound();
            change(&mut state);
            let trace: Trace<(), ()> = Trace::default();
            assert!(trace.restore(&state, tracer(), 1 << 47).is_err(), "{state:?}");
            assert!(!trace.is_traced());
        }
        let mut more = sound();
        more.flags |= 1 << 30;
        let trace: Trace<(), ()> = Trace::default();
        trace.restore(&more, tracer(), 1 << 47).unwrap();
        assert_eq!(trace.state().unwrap().0, sound());
    }
}

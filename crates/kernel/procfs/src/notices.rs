//! /proc/gvisor and /proc/ringfence: what programs learn of checkpoints, and ask for.

use abi::{Errno, Result};
use kernfs::{At, Changes, Entry, Node, What, text};
use lock_order::Mutex;
use std::any::Any;
use std::sync::Arc;
use task::Kernel;
use task::notices::{Outcome, Seen};
use vfs::{Caller, FileOps, OpenFile, StreamOps};
use wait::{Events, WaitQueue};

pub static GVISOR: [Entry; 2] = [
    Entry { name: "checkpoint", mode: 0o666, what: What::Special(open_checkpoint) },
    text("spec_environ", environ),
];
pub static RINGFENCE: [Entry; 1] = [text("generation", generation)];

/// The environment of the container's specification: after a restore that of the new one. For root and the specification's user.
fn environ(at: &At) -> Result<Vec<u8>> {
    let container = at.container();
    let (user, environ) = container.environ();
    let euid = at.opener()?.euid;
    if euid != 0 && euid != user { Err(Errno::EACCES) } else { Ok(environ.to_vec()) }
}

fn generation(at: &At) -> Result<Vec<u8>> {
    let id = at.kernel().notices.generation();
    let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{digits}\n").into_bytes())
}

/// An open /proc/ringfence/generation, which becomes ready for POLLPRI when another generation begins.
struct Generation {
    kernel: Arc<Kernel>,
    seen: Mutex<Seen>,
}

impl Changes for Generation {
    fn poll(&self) -> Events {
        let notices = &self.kernel.notices;
        let now = notices.seen();
        let seen = std::mem::replace(&mut *self.seen.lock(), now);
        let mut e = Events::READABLE;
        if notices.is_another_generation(seen) {
            e = Events(e.0 | Events::PRI.0 | Events::ERR.0);
        }
        e
    }
    fn queue(&self) -> WaitQueue {
        self.kernel.notices.queue()
    }
}

/// A watch for the file of the generation.
pub fn watch(node: &Node) -> Option<Box<dyn Changes>> {
    let kernel = node.at(None).kernel().clone();
    let seen = Mutex::new(kernel.notices.seen());
    Some(Box::new(Generation { kernel, seen }))
}

/// An open /proc/gvisor/checkpoint. It answers once; another checkpoint is for a file that is opened anew.
struct Checkpoint {
    kernel: Arc<Kernel>,
    state: Mutex<State>,
}

struct State {
    seen: Seen,
    answer: Option<Outcome>,
    /// Bytes of the answer that were read.
    read: usize,
}

impl State {
    fn new(kernel: &Kernel) -> State {
        State { seen: kernel.notices.seen(), answer: None, read: 0 }
    }
}

fn open_checkpoint(at: &At, _flags: i32) -> Result<Arc<dyn FileOps>> {
    let kernel = at.kernel().clone();
    let state = Mutex::new(State::new(&kernel));
    Ok(Arc::new(Checkpoint { kernel, state }))
}

impl Checkpoint {
    /// Gives what is known by now to a function.
    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let seen = self.state.lock().seen;
        let outcome = self.kernel.notices.outcome_after(seen);
        let mut state = self.state.lock();
        if state.seen == seen {
            state.answer = state.answer.or(outcome);
        }
        f(&mut state)
    }
}

impl FileOps for Checkpoint {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_stream(&self) -> Option<&dyn StreamOps> {
        Some(self)
    }
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        self.with(|state| {
            let text = format!("{}\n", state.answer.ok_or(Errno::EAGAIN)?.word());
            let rest = text.as_bytes().get(state.read..).unwrap_or_default();
            let n = rest.len().min(buf.len());
            buf.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            state.read += n;
            Ok(n)
        })
    }
    fn write(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        if buf.trim_ascii() != b"1" {
            return Err(Errno::EINVAL);
        }
        let notices = &self.kernel.notices;
        *self.state.lock() = State::new(&self.kernel);
        if notices.ask() { Ok(buf.len()) } else { Err(Errno::ENOTCONN) }
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        match self.with(|state| state.answer) {
            Some(_) => Events::READABLE | Events::WRITABLE,
            None => Events::WRITABLE,
        }
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        Some(self.kernel.notices.queue())
    }
}

impl StreamOps for Checkpoint {
    fn writes_all(&self) -> bool {
        false
    }
}

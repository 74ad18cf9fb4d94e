//! System calls as trace points: what goes into the message of a call at its entry and at its return.
//!
//! A row of the table names its [`Schema`]. What a program points to is read once, at the entry; the message of the return
//! has the same values and the results. So both tell the same of a program that changes its memory meanwhile, and that of
//! execve(2) tells what was there before the new program.

mod descriptors;
mod memory;
mod paths;
mod processes;
mod sockets;
mod timers;

pub use descriptors::*;
pub use memory::*;
pub use paths::*;
pub use processes::*;
pub use sockets::*;
pub use timers::*;

use task::{Current, Restart, SysErr, SysResult};
use trace::{Subscription, call};
use trace_wire::messages::common::ContextData;
use trace_wire::messages::syscall::{Exit, Syscall};
use trace_wire::points::{OptionalFields, Point};
use trace_wire::{Message, MessageType};

/// How the points of a call make their message.
pub struct Schema {
    /// Its type.
    pub message: MessageType,
    /// The optional fields that it has.
    pub optional: OptionalFields,
    /// Builds it, from the registers and the memory of the program.
    build: fn(&Entry<'_>) -> Box<dyn Told>,
}

/// A call at its entry.
struct Entry<'a> {
    c: &'a Current,
    args: [u64; 6],
    optional: OptionalFields,
}

impl Entry<'_> {
    /// An argument; `i` is below 6.
    fn arg(&self, i: usize) -> u64 {
        self.args.get(i).copied().unwrap_or(0)
    }

    /// An argument that is an int.
    fn int(&self, i: usize) -> i32 {
        self.arg(i) as i32
    }

    /// An argument that is a descriptor.
    fn fd(&self, i: usize) -> i64 {
        self.int(i).into()
    }

    /// The path of a descriptor, if it is asked for.
    fn fd_path(&self, i: usize) -> String {
        match self.optional.contains(OptionalFields::FD_PATH) {
            true => self.c.trace_fd(self.int(i)),
            false => String::new(),
        }
    }

    /// The path of a directory descriptor, if it is asked for: of AT_FDCWD the working directory.
    fn dir_path(&self, i: usize) -> String {
        if self.int(i) != libc::AT_FDCWD {
            return self.fd_path(i);
        }
        match self.optional.contains(OptionalFields::FD_PATH) {
            true => task::trace_points::text(&self.c.task.group.container_path(&self.c.fs().view().cwd)),
            false => String::new(),
        }
    }

    /// The path that an argument points to, as the program wrote it; empty when it cannot be read.
    fn path(&self, i: usize) -> String {
        self.c.read_path(self.arg(i)).map_or_else(|_| String::new(), |path| task::trace_points::text(&path))
    }
}

/// A message of a call: told at the entry as it is, and at the return with the result.
trait Told {
    /// Completes it for the entry.
    fn enter(&mut self, c: &Current, wish: &Subscription, kind: MessageType, nr: u64);
    /// Completes it for the return. `value`: of a call that succeeded.
    fn exit(&mut self, c: &mut Current, wish: &Subscription, kind: MessageType, nr: u64, exit: &Exit);
}

/// The fields that all messages of calls have.
trait CallMessage: Message {
    fn set(&mut self, context: ContextData, exit: Option<Exit>, nr: u64);
}

/// Takes a result from rax, or reads it from the program's memory after [`written`].
type Results<M> = fn(&mut Current, &[u64; 6], u64, &mut M);

/// Has what the call writes to the program's memory written now: it goes along with the return otherwise.
fn written(c: &mut Current) {
    // Where it cannot be written, what is read then says so.
    let _ = c.ctx.flush();
}

struct Typed<M> {
    message: M,
    args: [u64; 6],
    results: Option<Results<M>>,
}

impl<M: CallMessage> Told for Typed<M> {
    fn enter(&mut self, c: &Current, wish: &Subscription, kind: MessageType, nr: u64) {
        self.message.set(c.task.trace_context(wish.context), None, nr);
        wish.send(kind, &self.message);
    }

    fn exit(&mut self, c: &mut Current, wish: &Subscription, kind: MessageType, nr: u64, exit: &Exit) {
        if let Some(results) = self.results.filter(|_| exit.errorno == 0) {
            results(c, &self.args, exit.result as u64, &mut self.message);
        }
        self.message.set(c.task.trace_context(wish.context), Some(exit.clone()), nr);
        wish.send(kind, &self.message);
    }
}

/// Declares schemas: `NAME: Message, MESSAGE_TYPE, optional fields, entry => fields { .. } [results]`.
macro_rules! schemas { ($($(#[$doc:meta])* $name:ident: $message:ident $kind:ident [$($optional:ident)*]
    |$e:ident| { $($field:ident: $value:expr),* $(,)? } $(=> $results:expr)?;)*) => { $(
    $(#[$doc])*
    pub static $name: $crate::points::Schema = $crate::points::Schema {
        message: trace_wire::MessageType::$kind,
        optional: trace_wire::points::OptionalFields::empty()
            $(.union(trace_wire::points::OptionalFields::$optional))*,
        build: |$e| {
            let message = trace_wire::messages::syscall::$message { $($field: $value,)* ..Default::default() };
            let results: Option<$crate::points::Results<trace_wire::messages::syscall::$message>> =
                [$(Some($results as _),)? None].into_iter().next().flatten();
            Box::new($crate::points::Typed { message, args: $e.args, results })
        },
    };
)* } }
use schemas;

macro_rules! call_messages { ($($message:ident)*) => { $(
    impl CallMessage for trace_wire::messages::syscall::$message {
        fn set(&mut self, context: ContextData, exit: Option<Exit>, nr: u64) {
            self.context_data = Some(context).into();
            self.exit = exit.into();
            self.sysno = nr;
        }
    }
)* } }
call_messages! {
    Open Close Read Write Connect Execve Socket Chdir Setresid Setid Prlimit Pipe Fcntl Dup Signalfd Chroot Eventfd Clone
    Bind Accept Listen TimerfdCreate TimerfdSetTime TimerfdGetTime Fork InotifyInit InotifyAddWatch InotifyRmWatch
    SocketPair Mmap Ptrace
}

/// The watched part of a call that is under way: what is to be told at its return.
pub struct Watched {
    nr: u64,
    args: [u64; 6],
    bits: u8,
    kind: MessageType,
    pending: Vec<(usize, Box<dyn Told>)>,
    wishes: Option<std::sync::Arc<[Subscription]>>,
}

impl Watched {
    /// Tells the sessions that want it of the entry of a call, and prepares for its return.
    pub fn enter(c: &Current, nr: u64, schema: Option<&Schema>, args: [u64; 6], bits: u8) -> Watched {
        let kind = schema.map_or(MessageType::MESSAGE_UNKNOWN, |schema| schema.message);
        let mut watched = Watched { nr, args, bits, kind, pending: Vec::new(), wishes: None };
        if bits & call::RAW_ENTER != 0 {
            watched.raw(c, None);
        }
        let Some(schema) = schema else { return watched };
        let build = |wish: &Subscription| (schema.build)(&Entry { c, args, optional: wish.optional });
        if bits & call::ENTER != 0 {
            for wish in watched.wishes_of(c, false, false).iter().flat_map(|all| all.iter()) {
                if wish.is_about(c.task.group.container.name()) {
                    build(wish).enter(c, wish, kind, nr);
                }
            }
        }
        if bits & call::EXIT != 0 {
            watched.wishes = watched.wishes_of(c, false, true);
            let all = watched.wishes.iter().flat_map(|all| all.iter()).enumerate();
            let mine = all.filter(|(_, wish)| wish.is_about(c.task.group.container.name()));
            watched.pending = mine.map(|(i, wish)| (i, build(wish))).collect();
        }
        watched
    }

    /// Tells the sessions that want it of the return.
    pub fn exit(self, c: &mut Current, result: &SysResult) {
        let wants = self.bits & call::RAW_EXIT != 0 || !self.pending.is_empty();
        let Some(exit) = wants.then(|| outcome(c, result)).flatten() else { return };
        for (i, mut message) in self.pending {
            if let Some(wish) = self.wishes.as_ref().and_then(|all| all.get(i)) {
                message.exit(c, wish, self.kind, self.nr, &exit);
            }
        }
        if self.bits & call::RAW_EXIT != 0 {
            raw(c, self.nr, &self.args, Some(&exit));
        }
    }

    fn wishes_of(&self, c: &Current, raw: bool, exit: bool) -> Option<std::sync::Arc<[Subscription]>> {
        c.kernel().trace.subscriptions(Point::Call { nr: self.nr as u32, raw, exit })
    }

    fn raw(&self, c: &Current, exit: Option<&Exit>) {
        raw(c, self.nr, &self.args, exit);
    }
}

/// The message with the registers.
fn raw(c: &Current, nr: u64, args: &[u64; 6], exit: Option<&Exit>) {
    let point = Point::Call { nr: nr as u32, raw: true, exit: exit.is_some() };
    c.task.emit(point, MessageType::MESSAGE_SYSCALL_RAW, |wish| {
        let mut message = Syscall::new();
        message.context_data = Some(c.task.trace_context(wish.context)).into();
        message.exit = exit.cloned().into();
        message.sysno = nr;
        [message.arg1, message.arg2, message.arg3, message.arg4, message.arg5, message.arg6] = *args;
        message
    });
}

/// How a call has ended, as Linux's own trace points tell it: one that is interrupted and may be restarted with the
/// numbers from 512 that programs do not see. `None` when it does not return.
fn outcome(c: &mut Current, result: &SysResult) -> Option<Exit> {
    let mut exit = Exit::new();
    let failed = |number: i64| (-1, number);
    (exit.result, exit.errorno) = match result {
        Ok(value) => (*value as i64, 0),
        Err(SysErr::Errno(errno)) => failed(errno.raw().into()),
        Err(SysErr::Restart(Restart::Sys)) => failed(512),
        Err(SysErr::Restart(Restart::NoIntr)) => failed(513),
        Err(SysErr::Restart(Restart::NoHand)) => failed(514),
        Err(SysErr::Restart(Restart::Block)) => failed(516),
        Err(SysErr::NoReturn) if c.exit_code.is_some() => return None,
        Err(SysErr::NoReturn) => (c.ctx.regs().rax as i64, 0),
    };
    Some(exit)
}

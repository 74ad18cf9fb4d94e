//! The sessions of a kernel, and the bits that say which points they want.

use crate::digests::Digests;
use crate::sink::Sink;
use arc_swap::ArcSwapOption;
use lock_order::Mutex;
use protobuf::{MessageDyn, MessageFull};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use trace_wire::MessageType;
use trace_wire::packet;
use trace_wire::points::{ContextFields, MAX_CALL, OptionalFields, Point};
use trace_wire::session::{Request, Status};

/// Bits of [`Tracer::of_call`].
pub mod call {
    /// A session wants the message of the call's entry.
    pub const ENTER: u8 = 1;
    /// The same at its return.
    pub const EXIT: u8 = 2;
    /// A session wants the registers at the call's entry.
    pub const RAW_ENTER: u8 = 4;
    /// The same at its return.
    pub const RAW_EXIT: u8 = 8;
    /// Any of these.
    pub const TRACED: u8 = ENTER | EXIT | RAW_ENTER | RAW_EXIT;
    /// The call is logged (strace).
    pub const LOGGED: u8 = 16;
    /// There is a policy.
    pub const POLICED: u8 = 32;
}

/// A session.
pub struct Session {
    /// Its name.
    pub name: String,
    /// The only container that it is about.
    pub container: Option<String>,
    /// Its points.
    pub points: Vec<Request>,
    /// Where its messages go.
    pub sinks: Vec<Sink>,
}

impl Session {
    fn status(&self) -> Status {
        Status {
            name: self.name.clone(),
            container: self.container.clone(),
            sinks: self.sinks.iter().map(Sink::status).collect(),
        }
    }

    /// Ends its sinks, once their packets are sent.
    fn end(&self) {
        self.sinks.iter().for_each(Sink::close);
        self.sinks.iter().for_each(Sink::wait_until_sent);
    }
}

/// What a session wants of a point.
pub struct Subscription {
    session: Arc<Session>,
    /// Optional fields of the message.
    pub optional: OptionalFields,
    /// Fields of its context.
    pub context: ContextFields,
}

impl Subscription {
    /// Whether it is about this container.
    pub fn is_about(&self, container: &str) -> bool {
        self.session.container.as_deref().is_none_or(|only| only == container)
    }

    /// Sends a message to the session's sinks.
    pub fn send(&self, kind: MessageType, message: &dyn MessageDyn) {
        let mut bytes = Vec::with_capacity(256);
        packet::append(&mut bytes, kind, message);
        for sink in &self.session.sinks {
            sink.send(&bytes);
        }
    }
}

/// What all sessions want, by [`Point::index`].
type Wishes = Vec<Option<Arc<[Subscription]>>>;

/// The trace points of a kernel.
pub struct Tracer {
    /// By number of the system call, bits of [`call`].
    calls: Box<[AtomicU8]>,
    /// Bits by [`Point::index`] of points that are no system call.
    events: AtomicU32,
    /// Calls that the platform may answer by itself are wanted.
    native: AtomicBool,
    /// A policy has rules about such calls.
    policed_native: AtomicBool,
    wishes: ArcSwapOption<Wishes>,
    /// Digests of executables.
    pub digests: Digests,
    sessions: Mutex<Vec<Arc<Session>>>,
    /// The only calls that strace shows, if it does not show all.
    logged: OnceLock<Box<[bool]>>,
    /// Calls that the platform may answer by itself.
    native_calls: Vec<u32>,
}

impl Tracer {
    /// No session. `native_calls`: those that the platform may answer without reporting them.
    pub fn new(native_calls: &[u32]) -> Tracer {
        Tracer {
            calls: (0..MAX_CALL).map(|_| AtomicU8::new(0)).collect(),
            events: AtomicU32::new(0),
            native: AtomicBool::new(false),
            policed_native: AtomicBool::new(false),
            wishes: ArcSwapOption::empty(),
            digests: Digests::default(),
            sessions: Mutex::default(),
            logged: OnceLock::new(),
            native_calls: native_calls.into(),
        }
    }

    /// Bits of [`call`] for a system call. A number beyond the table has none.
    pub fn of_call(&self, nr: u64) -> u8 {
        self.calls.get(nr as usize).map_or(0, |bits| bits.load(Ordering::Relaxed))
    }

    /// Whether a session wants a point that is no system call.
    pub fn wants(&self, event: Point) -> bool {
        let index = event.index();
        index < 32 && self.events.load(Ordering::Relaxed) & 1 << index != 0
    }

    /// Whether a session or a policy wants calls that the platform may answer by itself.
    pub fn wants_native_calls(&self) -> bool {
        self.native.load(Ordering::Relaxed) || self.policed_native.load(Ordering::Relaxed)
    }

    /// What the sessions want of a point. It stays the same while it is held, whatever becomes of the sessions.
    pub fn subscriptions(&self, point: Point) -> Option<Arc<[Subscription]>> {
        self.wishes.load().as_ref()?.get(point.index() as usize)?.clone()
    }

    /// Builds the message of a point for each session that wants it from this container, and sends it.
    pub fn emit<M: MessageFull>(
        &self,
        point: Point,
        kind: MessageType,
        container: &str,
        mut build: impl FnMut(&Subscription) -> M,
    ) {
        let wishes = self.subscriptions(point);
        for wish in wishes.iter().flat_map(|all| all.iter()).filter(|wish| wish.is_about(container)) {
            wish.send(kind, &build(wish));
        }
    }

    /// Adds a session. An error when there is one of this name, unless that is to end.
    pub fn add(&self, session: Session, force: bool) -> Result<(), String> {
        let session = Arc::new(session);
        let old = {
            let mut sessions = self.sessions.lock();
            let there = sessions.iter().position(|other| other.name == session.name);
            if there.is_some() && !force {
                return Err(format!("there is a trace session {:?} already", session.name));
            }
            let old = there.map(|i| sessions.remove(i));
            sessions.push(session);
            self.publish(&sessions);
            old
        };
        if let Some(old) = old {
            old.end();
        }
        Ok(())
    }

    /// Ends a session; an error when there is none of this name.
    pub fn remove(&self, name: &str) -> Result<(), String> {
        let old = {
            let mut sessions = self.sessions.lock();
            let there = sessions.iter().position(|other| other.name == name);
            let old = sessions.remove(there.ok_or_else(|| format!("there is no trace session {name:?}"))?);
            self.publish(&sessions);
            old
        };
        old.end();
        Ok(())
    }

    /// The sessions that there are.
    pub fn list(&self) -> Vec<Status> {
        self.sessions.lock().iter().map(|session| session.status()).collect()
    }

    /// Ends all sessions. To be called when the guest's threads have ended.
    pub fn end(&self) {
        let all = std::mem::take(&mut *self.sessions.lock());
        self.publish(&[]);
        all.iter().flat_map(|session| &session.sinks).for_each(Sink::close);
        all.iter().for_each(|session| session.end());
    }

    /// Has strace show only these calls. To be called once.
    pub fn log_only(&self, calls: &[u32]) {
        let shown = (0..MAX_CALL).map(|nr| calls.contains(&nr)).collect();
        self.logged.get_or_init(|| shown);
    }

    /// Whether strace is on.
    pub fn set_logged(&self, on: bool) {
        for (nr, bits) in self.calls.iter().enumerate() {
            let shown = on && self.logged.get().is_none_or(|shown| shown.get(nr) == Some(&true));
            match shown {
                true => bits.fetch_or(call::LOGGED, Ordering::Relaxed),
                false => bits.fetch_and(!call::LOGGED, Ordering::Relaxed),
            };
        }
    }

    /// Whether there is a policy, which all calls are then under. `ruled`: whether it has rules about a call.
    pub fn set_policed(&self, on: bool, ruled: impl Fn(u32) -> bool) {
        let native = on && self.native_calls.iter().any(|nr| ruled(*nr));
        self.policed_native.store(native, Ordering::Relaxed);
        for bits in &self.calls {
            match on {
                true => bits.fetch_or(call::POLICED, Ordering::Relaxed),
                false => bits.fetch_and(!call::POLICED, Ordering::Relaxed),
            };
        }
    }

    /// Puts the wishes of these sessions in force.
    fn publish(&self, sessions: &[Arc<Session>]) {
        let mut by_point: BTreeMap<u32, Vec<Subscription>> = BTreeMap::new();
        for session in sessions {
            for request in &session.points {
                let optional = OptionalFields::from_bits_truncate(request.optional);
                let context = ContextFields::from_bits_truncate(request.context);
                let wish = Subscription { session: session.clone(), optional, context };
                by_point.entry(request.point).or_default().push(wish);
            }
        }
        let mut events = 0;
        let mut calls = [0; MAX_CALL as usize];
        for point in by_point.keys().filter_map(|index| Point::from_index(*index)) {
            match point {
                Point::Call { nr, raw, exit } => {
                    let bit = match (raw, exit) {
                        (false, false) => call::ENTER,
                        (false, true) => call::EXIT,
                        (true, false) => call::RAW_ENTER,
                        (true, true) => call::RAW_EXIT,
                    };
                    if let Some(bits) = calls.get_mut(nr as usize) {
                        *bits |= bit;
                    }
                }
                event => events |= 1 << event.index(),
            }
        }
        let native =
            self.native_calls.iter().any(|nr| calls.get(*nr as usize).is_some_and(|bits| *bits != 0));
        let wishes = (!by_point.is_empty()).then(|| {
            let mut wishes: Wishes = vec![None; Point::COUNT as usize];
            for (index, subscriptions) in by_point {
                if let Some(place) = wishes.get_mut(index as usize) {
                    *place = Some(subscriptions.into());
                }
            }
            Arc::new(wishes)
        });
        self.wishes.store(wishes);
        self.events.store(events, Ordering::Relaxed);
        self.native.store(native, Ordering::Relaxed);
        for (bits, new) in self.calls.iter().zip(calls) {
            bits.fetch_and(!call::TRACED | new, Ordering::Relaxed);
            bits.fetch_or(new, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace_wire::messages::sentry::TaskExit;

    fn session(name: &str, container: Option<&str>, points: &[Point]) -> Session {
        let request = |point: &Point| Request { point: point.index(), optional: 0, context: 0 };
        Session {
            name: name.into(),
            container: container.map(String::from),
            points: points.iter().map(request).collect(),
            sinks: vec![Sink::null()],
        }
    }

    const GETPID: u32 = 39;

    fn sent(tracer: &Tracer) -> Vec<u64> {
        tracer.list().iter().map(|session| session.sinks[0].sent).collect()
    }

    #[test]
    fn a_point_is_wanted_while_a_session_wants_it() {
        let tracer = Tracer::new(&[GETPID]);
        let raw = Point::Call { nr: GETPID, raw: true, exit: false };
        assert_eq!(tracer.of_call(39), 0);
        tracer.add(session("a", None, &[Point::TaskExit, raw]), false).unwrap();
        tracer.add(session("b", None, &[raw]), false).unwrap();
        assert!(tracer.wants(Point::TaskExit) && !tracer.wants(Point::Clone));
        assert!(tracer.wants_native_calls() && tracer.of_call(39) == call::RAW_ENTER);
        assert!(tracer.add(session("a", None, &[raw]), false).is_err());
        tracer.remove("a").unwrap();
        assert!(!tracer.wants(Point::TaskExit) && tracer.wants_native_calls());
        tracer.remove("b").unwrap();
        assert!(!tracer.wants_native_calls() && tracer.of_call(39) == 0 && tracer.remove("b").is_err());
        tracer.set_policed(true, |nr| nr == 83);
        assert!(!tracer.wants_native_calls() && tracer.of_call(39) == call::POLICED);
        tracer.set_policed(true, |nr| nr == 39);
        assert!(tracer.wants_native_calls());
        tracer.set_policed(false, |_| true);
        assert!(!tracer.wants_native_calls() && tracer.of_call(39) == 0);
    }

    #[test]
    fn a_session_may_be_about_one_container() {
        let tracer = Tracer::new(&[]);
        tracer.add(session("all", None, &[Point::TaskExit]), false).unwrap();
        tracer.add(session("one", Some("web"), &[Point::TaskExit]), false).unwrap();
        let emit = |container| {
            let kind = MessageType::MESSAGE_SENTRY_TASK_EXIT;
            tracer.emit(Point::TaskExit, kind, container, |_| TaskExit::new());
        };
        emit("web");
        emit("db");
        assert_eq!(sent(&tracer), [2, 1]);
        tracer.add(session("one", None, &[Point::TaskExit]), true).unwrap();
        emit("db");
        assert_eq!(sent(&tracer), [3, 1]);
        tracer.end();
        assert!(tracer.list().is_empty() && !tracer.wants(Point::TaskExit));
    }

    #[test]
    fn strace_and_sessions_do_not_disturb_each_other() {
        let tracer = Tracer::new(&[]);
        tracer.log_only(&[0]);
        tracer.set_logged(true);
        tracer.add(session("a", None, &[Point::Call { nr: 0, raw: false, exit: true }]), false).unwrap();
        assert_eq!((tracer.of_call(0), tracer.of_call(1)), (call::LOGGED | call::EXIT, 0));
        tracer.set_logged(false);
        assert_eq!(tracer.of_call(0), call::EXIT);
    }
}

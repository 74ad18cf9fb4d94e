//! The points that a session can ask for, and their fields.
//!
//! The list of system calls comes from the kernel's own table: [`Points::new`] gets it from there.

use crate::messages::common::MessageType;
use bitflags::bitflags;
use protobuf::MessageDyn;
use protobuf::reflect::ReflectValueRef;
use std::collections::HashMap;

bitflags! {
    /// Fields that cost more than the others, and are sent when a session asks for them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OptionalFields: u32 {
        /// The path of a descriptor.
        const FD_PATH = 1;
        /// The environment that execve(2) was given.
        const ENVV = 1 << 1;
        /// The environment of a container's first process, and of a new program.
        const ENV = 1 << 2;
        /// Mode, owner, size and layer of an executable.
        const BINARY_INFO = 1 << 3;
        /// SHA-256 of an executable.
        const BINARY_SHA256 = 1 << 4;
        /// SHA-1 of an executable.
        const BINARY_SHA1 = 1 << 5;
        /// The standard streams.
        const FD_INFO = 1 << 6;
        /// The processes at the other ends of the pipes that are the standard streams.
        const PIPE_PROC_INFO = 1 << 7;
    }
}

bitflags! {
    /// Fields of [`ContextData`](crate::messages::common::ContextData), which all messages have.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ContextFields: u32 {
        /// When it happened: nanoseconds since 1970.
        const TIME = 1;
        /// The thread's ID in the sandbox.
        const THREAD_ID = 1 << 1;
        /// When the thread was made: nanoseconds since 1970.
        const TASK_START_TIME = 1 << 2;
        /// The process's ID in the sandbox.
        const GROUP_ID = 1 << 3;
        /// When the process was made.
        const THREAD_GROUP_START_TIME = 1 << 4;
        /// The container's ID.
        const CONTAINER_ID = 1 << 5;
        /// User and group IDs.
        const CREDENTIALS = 1 << 6;
        /// The working directory.
        const CWD = 1 << 7;
        /// The thread's name (comm).
        const PROCESS_NAME = 1 << 8;
        /// The ID of the parent process.
        const PARENT_THREAD_GROUP_ID = 1 << 9;
        /// The process, or one that it descends from, was started by `exec`.
        const IS_EXEC_SESSION = 1 << 10;
    }
}

/// A field's name in a session's JSON.
fn field_names<F: bitflags::Flags>(fields: F) -> Vec<String> {
    fields.iter_names().map(|(name, _)| name.to_lowercase()).collect()
}

/// The field of this name.
fn field<F: bitflags::Flags>(name: &str) -> Option<F> {
    F::from_name(&name.to_uppercase()).filter(|_| name == name.to_lowercase())
}

impl OptionalFields {
    /// Names as a session's JSON has them.
    pub fn names(self) -> Vec<String> {
        field_names(self)
    }

    /// The field of this name.
    pub fn named(name: &str) -> Option<Self> {
        field(name)
    }
}

impl ContextFields {
    /// Names as a session's JSON has them.
    pub fn names(self) -> Vec<String> {
        field_names(self)
    }

    /// The field of this name.
    pub fn named(name: &str) -> Option<Self> {
        field(name)
    }
}

/// Points that are no system call.
const EVENTS: [(Point, &str, MessageType, OptionalFields); 6] = [
    (Point::ContainerStart, "container/start", MessageType::MESSAGE_CONTAINER_START, OptionalFields::ENV),
    (Point::Clone, "sentry/clone", MessageType::MESSAGE_SENTRY_CLONE, OptionalFields::empty()),
    (
        Point::Execve,
        "sentry/execve",
        MessageType::MESSAGE_SENTRY_EXEC,
        OptionalFields::ENV
            .union(OptionalFields::BINARY_INFO)
            .union(OptionalFields::BINARY_SHA256)
            .union(OptionalFields::BINARY_SHA1)
            .union(OptionalFields::FD_INFO)
            .union(OptionalFields::PIPE_PROC_INFO),
    ),
    (
        Point::ExitNotifyParent,
        "sentry/exit_notify_parent",
        MessageType::MESSAGE_SENTRY_EXIT_NOTIFY_PARENT,
        OptionalFields::empty(),
    ),
    (Point::Mmap, "sentry/mmap", MessageType::MESSAGE_SENTRY_MMAP, OptionalFields::empty()),
    (Point::TaskExit, "sentry/task_exit", MessageType::MESSAGE_SENTRY_TASK_EXIT, OptionalFields::empty()),
];

/// Numbers of system calls are below this.
pub const MAX_CALL: u32 = 512;

/// Points of one system call: with a message of its own or by number, at its entry or at its return.
const PER_CALL: u32 = 4;

/// A point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// A container's first process starts.
    ContainerStart,
    /// A thread or process was made.
    Clone,
    /// A process runs another program.
    Execve,
    /// A process has ended and its parent is told.
    ExitNotifyParent,
    /// A file was mapped.
    Mmap,
    /// A thread ends.
    TaskExit,
    /// A system call.
    Call {
        /// Its number, below [`MAX_CALL`].
        nr: u32,
        /// Registers only, in the message that all calls share.
        raw: bool,
        /// At its return.
        exit: bool,
    },
}

impl Point {
    /// Indexes are below this.
    pub const COUNT: u32 = EVENTS.len() as u32 + MAX_CALL * PER_CALL;

    /// A number for each point. Command line and kernel are one executable, so they agree on it.
    pub const fn index(self) -> u32 {
        match self {
            Point::ContainerStart => 0,
            Point::Clone => 1,
            Point::Execve => 2,
            Point::ExitNotifyParent => 3,
            Point::Mmap => 4,
            Point::TaskExit => 5,
            Point::Call { nr, raw, exit } => {
                EVENTS.len() as u32 + nr * PER_CALL + (raw as u32) * 2 + exit as u32
            }
        }
    }

    /// The point with this index.
    pub fn from_index(index: u32) -> Option<Point> {
        if let Some((point, ..)) = EVENTS.get(index as usize) {
            return Some(*point);
        }
        let of_call = index - EVENTS.len() as u32;
        let point = Point::Call { nr: of_call / PER_CALL, raw: of_call & 2 != 0, exit: of_call & 1 != 0 };
        (index < Self::COUNT).then_some(point)
    }
}

/// A system call as the kernel's table describes it.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Number.
    pub nr: u32,
    /// Name.
    pub name: &'static str,
    /// Message and optional fields of its points, if it has a message of its own.
    pub schema: Option<(MessageType, OptionalFields)>,
}

/// What there is to know of a point.
#[derive(Clone, Debug)]
pub struct Description {
    /// The point.
    pub point: Point,
    /// Its name in a session's JSON.
    pub name: String,
    /// Its message.
    pub message: MessageType,
    /// The optional fields that it has.
    pub optional: OptionalFields,
}

/// All points.
#[derive(Debug)]
pub struct Points {
    all: Vec<Description>,
    by_name: HashMap<String, usize>,
    by_index: HashMap<u32, usize>,
}

impl Points {
    /// The points of a kernel with these system calls, and of all calls by number.
    pub fn new(calls: impl Iterator<Item = Call>) -> Points {
        let mut all: Vec<Description> = EVENTS
            .iter()
            .map(|(point, name, message, optional)| Description {
                point: *point,
                name: (*name).into(),
                message: *message,
                optional: *optional,
            })
            .collect();
        let at = [(false, "enter"), (true, "exit")];
        for call in calls {
            let Some((message, optional)) = call.schema else { continue };
            all.extend(at.map(|(exit, when)| Description {
                point: Point::Call { nr: call.nr, raw: false, exit },
                name: format!("syscall/{}/{when}", call.name),
                message,
                optional,
            }));
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        for nr in 0..MAX_CALL {
            all.extend(at.map(|(exit, when)| Description {
                point: Point::Call { nr, raw: true, exit },
                name: format!("syscall/sysno/{nr}/{when}"),
                message: MessageType::MESSAGE_SYSCALL_RAW,
                optional: OptionalFields::empty(),
            }));
        }
        let by_name = all.iter().enumerate().map(|(i, point)| (point.name.clone(), i)).collect();
        let by_index = all.iter().enumerate().map(|(i, point)| (point.point.index(), i)).collect();
        Points { all, by_name, by_index }
    }

    /// The point of this name.
    pub fn find(&self, name: &str) -> Option<&Description> {
        self.all.get(*self.by_name.get(name)?)
    }

    /// The point that a message comes from.
    pub fn of(&self, kind: MessageType, message: &dyn MessageDyn) -> Option<&Description> {
        let event = EVENTS.iter().find(|(_, _, message, _)| *message == kind).map(|(point, ..)| *point);
        let point = match event {
            Some(point) => point,
            None => of_call(kind, message)?,
        };
        self.all.get(*self.by_index.get(&point.index())?)
    }

    /// All of them: events and calls with messages of their own by name, then calls by number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Description> {
        self.all.iter()
    }
}

/// The point of a system call that a message comes from.
fn of_call(kind: MessageType, message: &dyn MessageDyn) -> Option<Point> {
    let descriptor = message.descriptor_dyn();
    let number = descriptor.field_by_name("sysno")?;
    let ReflectValueRef::U64(number) = number.get_singular_field_or_default(message) else { return None };
    let nr = u32::try_from(number).ok().filter(|nr| *nr < MAX_CALL)?;
    let exit = descriptor.field_by_name("exit").is_some_and(|field| field.has_field(message));
    Some(Point::Call { nr, raw: kind == MessageType::MESSAGE_SYSCALL_RAW, exit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_unique() {
        let close = Call {
            nr: 3,
            name: "close",
            schema: Some((MessageType::MESSAGE_SYSCALL_CLOSE, OptionalFields::FD_PATH)),
        };
        let points = Points::new([close].into_iter());
        assert_eq!(points.iter().len(), 6 + 2 + 2 * MAX_CALL as usize);
        let mut seen = std::collections::HashSet::new();
        for point in points.iter() {
            assert_eq!(Point::from_index(point.point.index()), Some(point.point));
            assert!(seen.insert(point.point.index()), "{}", point.name);
        }
        assert_eq!(Point::from_index(Point::COUNT), None);
        let found = points.find("syscall/close/exit").unwrap();
        assert_eq!(found.point, Point::Call { nr: 3, raw: false, exit: true });
        assert!(points.find("syscall/close").is_none());
        let mut message = crate::messages::syscall::Close::new();
        message.sysno = 3;
        let of = |message: &crate::messages::syscall::Close| {
            points.of(MessageType::MESSAGE_SYSCALL_CLOSE, message).map(|point| point.name.clone())
        };
        assert_eq!(of(&message).as_deref(), Some("syscall/close/enter"));
        message.exit = Some(crate::messages::syscall::Exit::new()).into();
        assert_eq!(of(&message).as_deref(), Some("syscall/close/exit"));
        message.sysno = u64::MAX;
        assert_eq!(of(&message), None);
    }

    #[test]
    fn fields_have_names() {
        assert_eq!(OptionalFields::named("fd_path"), Some(OptionalFields::FD_PATH));
        assert_eq!(OptionalFields::named("FD_PATH"), None);
        assert_eq!(
            ContextFields::named("thread_group_start_time").unwrap().names(),
            ["thread_group_start_time"]
        );
        assert_eq!(ContextFields::all().names().len(), 11);
    }
}

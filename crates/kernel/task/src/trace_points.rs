//! Trace points of tasks: clone, exec, the end of threads and processes, and the context that the messages of all points have.

use crate::clone::CloneArgs;
use crate::current::Current;
use crate::kernel::Kernel;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use crate::tree::Node;
use abi::Errno;
use abi::stat::Attr;
use files::FdTable;
use ktime::Ktime;
use std::sync::Arc;
use trace::Subscription;
use trace::digests::{Identity, Kind as DigestKind};
use trace_wire::MessageType;
use trace_wire::messages::common::{ContextData, Credentials};
use trace_wire::messages::sentry::{CloneInfo, ExitNotifyParentInfo, TaskExit};
use trace_wire::points::{ContextFields, Point};
use vfs::{Caller, OpenFile, Path};

/// Text of the guest's, which messages carry as UTF-8.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Most bytes of a command line or environment that are told. A message that a consumer's socket cannot take would be
/// dropped, and a program could hide what it does behind a long environment.
const MAX_STRINGS: usize = 16 << 10;

/// Stands for what is left out.
const LEFT_OUT: &str = "...";

/// The strings of a command line or environment, as far as they are told.
pub fn texts<S: AsRef<[u8]>>(all: impl IntoIterator<Item = S>) -> Vec<String> {
    let mut told = Vec::new();
    let mut room = MAX_STRINGS;
    for string in all {
        let string = string.as_ref();
        match room.checked_sub(string.len() + 1) {
            Some(rest) => {
                told.push(text(string));
                room = rest;
            }
            None => {
                told.push(text(string.get(..room).unwrap_or_default()) + LEFT_OUT);
                break;
            }
        }
    }
    told
}

/// Most bytes of a path that are told. Directories can be as deep as a program likes, and reports that are too long for
/// their consumer would be dropped.
const MAX_PATH: usize = 4096;

/// A path as it is told: of a long one the end, behind [`LEFT_OUT`].
pub(crate) fn told(mut path: Vec<u8>) -> Vec<u8> {
    if let Some(more) = path.len().checked_sub(MAX_PATH).filter(|more| *more > 0) {
        path.splice(..more, LEFT_OUT.bytes());
    }
    path
}

/// The digest of a file's content; empty when it cannot be read.
pub fn digest(cx: &dyn Caller, kernel: &Kernel, file: &OpenFile, kind: DigestKind) -> Vec<u8> {
    let attr = file.attr().unwrap_or_default();
    let time = |time: abi::time::Timespec| (time.sec, time.nsec);
    let times = [time(attr.mtime), time(attr.ctime)];
    let identity = Identity { dev: attr.dev, ino: attr.ino, size: attr.size, times };
    let known = keeps_its_content(file, &attr).then_some(identity);
    let read = |buffer: &mut [u8], at: u64| match cx.is_killed() {
        true => Err(Errno::EINTR),
        false => file.ops.read(cx, file, buffer, at),
    };
    kernel.trace.digests.of(known, kind, read).unwrap_or_else(|error| {
        log::debug!("no digest of an executable: {error}");
        Vec::new()
    })
}

/// How long a change of a file can have the time of an earlier one: clocks of file systems tick.
const TICK_NS: i64 = 100_000_000;

/// Whether a change of the file, by now or later, gives it another time of change.
fn keeps_its_content(file: &OpenFile, attr: &Attr) -> bool {
    let changed = attr.ctime.sec.saturating_mul(1_000_000_000).saturating_add(attr.ctime.nsec);
    let old = crate::kernel::realtime_ns().checked_sub(changed).is_some_and(|age| age > TICK_NS);
    let Some(inode) = &file.inode else { return false };
    // Writing to a mapping changes the time at first only.
    let written = inode.attachments().is_some_and(|users| users.users().count().0 > 0);
    old && !written && !inode.fs().content_is_elsewhere()
}

impl Kernel {
    /// CLOCK_REALTIME of a moment since the start, in nanoseconds. The same for the same moment, whether the clock was set
    /// meanwhile or not.
    fn realtime_of(&self, at: Ktime) -> i64 {
        self.boot_realtime.saturating_add(at.since(self.boot).as_nanos() as i64)
    }
}

impl ThreadGroup {
    /// A path as reports tell it: from the root that the container began with, whatever the own root of the process is.
    pub fn container_path(&self, path: &Path) -> Vec<u8> {
        match self.container.root.get() {
            Some(root) => told(path.display_link(root)),
            None => told(path.display_absolute()),
        }
    }

    /// What /proc/PID/fd shows of an open file, with paths as the container sees them.
    pub fn file_name(&self, file: &OpenFile) -> Vec<u8> {
        match &file.path {
            Some(path) => self.container_path(path),
            None => file.ops.link_name().unwrap_or_else(|| "anon_inode:[file]".into()).into_bytes(),
        }
    }
}

impl Task {
    /// When the thread was made, in nanoseconds since 1970.
    pub fn started_ns(&self) -> i64 {
        self.kernel().realtime_of(self.started)
    }

    /// The context of a point that this thread reaches.
    pub fn trace_context(&self, fields: ContextFields) -> ContextData {
        let mut context = ContextData::new();
        let (kernel, group) = (self.kernel(), &self.group);
        if fields.contains(ContextFields::TIME) {
            context.time_ns = crate::kernel::realtime_ns();
        }
        if fields.contains(ContextFields::THREAD_ID) {
            context.thread_id = self.tid();
        }
        if fields.contains(ContextFields::TASK_START_TIME) {
            context.thread_start_time_ns = kernel.realtime_of(self.started);
        }
        if fields.contains(ContextFields::GROUP_ID) {
            context.thread_group_id = group.tgid;
        }
        if fields.contains(ContextFields::THREAD_GROUP_START_TIME) {
            context.thread_group_start_time_ns = kernel.realtime_of(group.started);
        }
        if fields.contains(ContextFields::CONTAINER_ID) {
            context.container_id = group.container.name().into();
        }
        if fields.contains(ContextFields::CREDENTIALS) {
            let creds = self.creds();
            let mut told = Credentials::new();
            (told.real_uid, told.effective_uid, told.saved_uid) = (creds.uid, creds.euid, creds.suid);
            (told.real_gid, told.effective_gid, told.saved_gid) = (creds.gid, creds.egid, creds.sgid);
            context.credentials = Some(told).into();
        }
        if fields.contains(ContextFields::CWD)
            && let Some(fs) = self.fs()
        {
            context.cwd = text(&group.container_path(&fs.view().cwd));
        }
        if fields.contains(ContextFields::PROCESS_NAME) {
            context.process_name = text(self.comm().split(|byte| *byte == 0).next().unwrap_or_default());
        }
        if fields.contains(ContextFields::PARENT_THREAD_GROUP_ID) {
            context.parent_thread_group_id = kernel.tree.lock().node(group.tgid).map_or(0, Node::parent);
        }
        context.is_exec_session = fields.contains(ContextFields::IS_EXEC_SESSION) && group.exec_session;
        context
    }

    /// Sends the messages of a point that this thread reaches.
    pub fn emit<M: trace_wire::Message>(
        &self,
        point: Point,
        kind: MessageType,
        build: impl FnMut(&Subscription) -> M,
    ) {
        self.kernel().trace.emit(point, kind, self.group.container.name(), build);
    }

    /// The process is about to tell its parent that it has ended.
    pub(crate) fn trace_exit_notify_parent(&self, status: i32) {
        if !self.kernel().trace.wants(Point::ExitNotifyParent) {
            return;
        }
        self.emit(Point::ExitNotifyParent, MessageType::MESSAGE_SENTRY_EXIT_NOTIFY_PARENT, |wish| {
            let mut info = ExitNotifyParentInfo::new();
            info.context_data = Some(self.trace_context(wish.context)).into();
            info.exit_status = status;
            info
        });
    }

    /// The thread ends.
    pub(crate) fn trace_exit(&self, status: i32) {
        if !self.kernel().trace.wants(Point::TaskExit) {
            return;
        }
        self.emit(Point::TaskExit, MessageType::MESSAGE_SENTRY_TASK_EXIT, |wish| {
            let mut info = TaskExit::new();
            info.context_data = Some(self.trace_context(wish.context)).into();
            info.exit_status = status;
            info
        });
    }

    /// The thread has made another one.
    pub(crate) fn trace_clone(&self, made: &Task, a: &CloneArgs) {
        if !self.kernel().trace.wants(Point::Clone) {
            return;
        }
        self.emit(Point::Clone, MessageType::MESSAGE_SENTRY_CLONE, |wish| {
            let mut info = CloneInfo::new();
            info.context_data = Some(self.trace_context(wish.context)).into();
            info.created_thread_id = made.tid();
            info.created_thread_group_id = made.group.tgid;
            info.created_thread_start_time_ns = self.kernel().realtime_of(made.started);
            info.flags = a.flags;
            info
        });
    }
}

impl Current {
    /// The path of a descriptor, or what else /proc/PID/fd shows of it; empty when there is no such descriptor.
    pub fn trace_fd(&self, fd: i32) -> String {
        let file = FdTable::get(self.fd_table(), fd);
        file.map_or_else(|_| String::new(), |file: Arc<OpenFile>| text(&self.task.group.file_name(&file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_command_lines_are_cut() {
        assert_eq!(texts([b"a".as_slice(), b"\xff"]), ["a", "\u{fffd}"]);
        let long = vec![b'x'; MAX_STRINGS - 10];
        let told = texts([long.as_slice(), b"0123456789abc", b"more"]);
        assert_eq!((told.len(), told[1].as_str()), (2, "012345678..."));
        let many = vec![Vec::new(); 2 * MAX_STRINGS];
        assert_eq!(texts(&many).len(), MAX_STRINGS + 1);
    }

    #[test]
    fn long_paths_are_cut_in_front() {
        let path = [b"/a".repeat(MAX_PATH / 2), b"/end".to_vec()].concat();
        assert_eq!(told(path[4..].to_vec()), path[4..]);
        let cut = told(path);
        assert!(cut.starts_with(b".../a") && cut.ends_with(b"/a/end") && cut.len() == MAX_PATH + 3);
    }
}

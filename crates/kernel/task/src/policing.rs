//! Policies and tasks: what is known of an operation and its caller, and what a decision does to the caller.
//!
//! A decision is made where the operation has found its object, at times under a lock of a directory. So nothing here
//! takes the task tree. An action that needs it, the end or the freeze of tasks, is noted as the caller's *sentence*,
//! and carried out when the system call has failed ([`Task::serve_sentence`]).

use crate::caller::TaskCaller;
use crate::current::Current;
use crate::kernel::SI_HOST;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use crate::trace_points::{digest, told};
use abi::{Errno, Result, SigInfo, Signal};
use decision_log::{Entry, text_of};
use enforce::Verdict;
use policy::{Access, Action, Address, Facts, Kind, Operation, Point, Protocol};
use rights::Credentials;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use trace::digests::Kind as DigestKind;
use vfs::policing::{FileOperation, Place};
use vfs::{Layer, OpenFile, Path};

/// Values of [`Task`]'s sentence.
const KILL_PROCESS: u8 = 1;
const KILL_CONTAINER: u8 = 2;
const FREEZE: u8 = 3;

/// What is known of an operation beside its caller.
#[derive(Default)]
pub struct Subject<'a> {
    /// Path of the object.
    pub path: Option<Vec<u8>>,
    /// Path of its new place.
    pub second_path: Option<Vec<u8>>,
    /// It is a directory.
    pub directory: bool,
    /// It was made in the writable layer.
    pub new_in_layer: bool,
    /// How it is opened or mapped.
    pub access: Access,
    /// The file that is executed, for its digest.
    pub program: Option<&'a Arc<OpenFile>>,
    /// Arguments of the new program, each with a zero byte behind it.
    pub arguments: Vec<u8>,
    /// The address of a socket.
    pub address: Option<Address<'a>>,
    /// Protocol of a socket.
    pub protocol: Protocol,
    /// One of the new IDs is 0.
    pub to_root: bool,
}

impl ThreadGroup {
    /// The path of an object as rules name it: from the container's root. A file whose name is gone, while descriptors of
    /// it are there, is where it was, and so is a file of a mount that is gone. `None` for what never had a place below that
    /// root, such as a file of memfd_create(2).
    pub fn policy_path(&self, path: &Path) -> Option<Vec<u8>> {
        path.display_below(&self.container.root.get()?.dentry)
    }

    fn policy_place(&self, place: Place<'_>) -> Option<Vec<u8>> {
        match place {
            Place::Object(path) => self.policy_path(path),
            Place::File(file) => self.policy_path(file.path.as_ref()?),
            Place::Name(dir, name) => {
                let mut path = self.policy_path(dir)?;
                if !path.ends_with(b"/") {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
                Some(path)
            }
        }
    }
}

/// Whether a file's content is in the writable layer of an overlay.
fn is_new(file: &OpenFile) -> bool {
    file.ops.layer() == Some(Layer::Upper)
}

/// The error of a policy that refuses an operation on files.
pub(crate) fn decide_file(cx: &TaskCaller, task: &Arc<Task>, operation: &FileOperation<'_>) -> Result<()> {
    let group = &task.group;
    let point = Point::Operation(operation.kind);
    let needs = task.kernel().policies.needs(point, group.container.name());
    let mut subject = Subject {
        path: operation.place.and_then(|place| group.policy_place(place)),
        second_path: operation.second.and_then(|place| group.policy_place(place)),
        directory: operation.directory,
        access: operation.access,
        ..Subject::default()
    };
    if needs.contains(Facts::NEW_IN_LAYER) {
        subject.new_in_layer = match (operation.file, operation.place) {
            (Some(file), _) => is_new(file),
            (None, Some(Place::File(file))) => is_new(file),
            (None, Some(Place::Object(path))) => vfs::policing::is_new(cx, path),
            (None, Some(Place::Name(..)) | None) => false,
        };
    }
    if matches!(operation.kind, Kind::NetBind | Kind::NetConnect) {
        let path = subject.path.take().unwrap_or_default();
        let (address, protocol) = (Some(Address::Path(&path)), Protocol::UNIX);
        return decide(cx, task, point, &Subject { address, protocol, ..Subject::default() });
    }
    if matches!(operation.kind, Kind::FileExec | Kind::ProcessExec) {
        subject.program = operation.file;
    }
    decide(cx, task, point, &subject)
}

/// The error of a policy that refuses an operation.
fn decide(cx: &TaskCaller, task: &Arc<Task>, point: Point, subject: &Subject<'_>) -> Result<()> {
    let (kernel, group) = (task.kernel(), &task.group);
    let container = group.container.name();
    let needs = kernel.policies.needs(point, container);
    let image = task.mm().image();
    // Not where the program's file is by now: a process may be able to rename it.
    let (exe, executable) = (image.exe, image.exe_place);
    let sha256 = |file: &Arc<OpenFile>| {
        // What is read now need not be what is executed then.
        let inode = file.inode.as_ref()?;
        let written = inode.attachments().is_some_and(|users| users.users().count().0 > 0);
        if written || inode.fs().content_is_elsewhere() {
            return None;
        }
        let digest = digest(cx, kernel, file, DigestKind::Sha256);
        <[u8; 32]>::try_from(digest).ok()
    };
    let file_sha256 = subject.program.filter(|_| needs.contains(Facts::FILE_SHA256)).and_then(sha256);
    let executable_sha256 =
        exe.as_ref().filter(|_| needs.contains(Facts::EXECUTABLE_SHA256)).and_then(sha256);
    let creds = task.creds();
    let call = task.in_syscall.load(Ordering::Relaxed).checked_sub(1).and_then(|nr| u16::try_from(nr).ok());
    let operation = Operation {
        point,
        call,
        args: task.call_args.each_ref().map(|arg| arg.load(Ordering::Relaxed)),
        path: subject.path.as_deref(),
        second_path: subject.second_path.as_deref(),
        directory: subject.directory,
        new_in_layer: subject.new_in_layer,
        access: subject.access,
        file_sha256: file_sha256.as_ref(),
        arguments: &subject.arguments,
        executable: executable.as_deref(),
        executable_sha256: executable_sha256.as_ref(),
        uid: creds.euid,
        gid: creds.egid,
        container,
        address: subject.address,
        protocol: subject.protocol,
        to_root: subject.to_root,
    };
    let entry = || entry(task, &operation);
    match kernel.policies.decide(&operation, &entry, &|| task.is_killed()) {
        Verdict::Pass => Ok(()),
        Verdict::Refused(Action::Deny(errno)) => Err(errno),
        Verdict::Refused(action) => {
            let sentence = match action {
                Action::KillContainer => KILL_CONTAINER,
                Action::Freeze => FREEZE,
                _ => KILL_PROCESS,
            };
            task.sentence.fetch_max(sentence, Ordering::Relaxed);
            Err(Errno::EPERM)
        }
    }
}

/// Whether an ID that was another one becomes 0.
fn to_root(old: &[u32], new: &[u32]) -> bool {
    old.iter().zip(new).any(|(old, new)| *new == 0 && *old != 0)
}

/// What a record says of an operation.
fn entry(task: &Task, operation: &Operation<'_>) -> Entry {
    let pids = task.group.container.pids();
    let point = match operation.point {
        Point::Operation(kind) => kind.name().to_string(),
        Point::Call(number) => match seccomp::name(number.into()) {
            Some(name) => format!("syscall/{name}/enter"),
            None => format!("syscall/sysno/{number}/enter"),
        },
    };
    Entry {
        time_ns: crate::kernel::realtime_ns() as u64,
        container: operation.container.into(),
        pid: task.group.pid.nr_in(pids),
        tid: task.nr_in(pids),
        uid: operation.uid,
        gid: operation.gid,
        point,
        call: operation.call.and_then(|number| seccomp::name(number.into())).map(String::from),
        executable: operation.executable.map(path_text),
        path: operation.path.map(path_text),
        second_path: operation.second_path.map(path_text),
        address: operation.address.map(address_text),
        ..Entry::default()
    }
}

fn path_text(path: &[u8]) -> String {
    text_of(&told(path.to_vec()))
}

/// An address as rules write it.
fn address_text(address: Address<'_>) -> String {
    let mut out = String::new();
    let _ = match address {
        Address::Ip(std::net::IpAddr::V6(ip), port) => write!(out, "[{ip}]:{port}"),
        Address::Ip(ip, port) => write!(out, "{ip}:{port}"),
        Address::Path(path) => write!(out, "{}", path_text(path)),
        Address::Abstract(name) => write!(out, "@{}", text_of(name)),
        Address::Other => write!(out, "other"),
    };
    out
}

impl Task {
    /// The error of a policy that refuses what this thread is about to do. `subject` is asked for when a policy is about it.
    pub fn police<'a>(self: &Arc<Self>, kind: Kind, subject: impl FnOnce() -> Subject<'a>) -> Result<()> {
        if !self.kernel().policies.concerns(kind) {
            return Ok(());
        }
        decide(&TaskCaller::of(self), self, Point::Operation(kind), &subject())
    }
}

impl Task {
    /// A policy has refused an operation and wants something done to the caller: [`serve_sentence`](Task::serve_sentence) does it.
    pub fn is_sentenced(&self) -> bool {
        self.sentence.load(Ordering::Relaxed) != 0
    }

    /// Does what a policy wants done to the caller of an operation that it has refused. Called without a lock.
    pub fn serve_sentence(&self) {
        let kill = SigInfo::new(Signal::SIGKILL, SI_HOST);
        match self.sentence.swap(0, Ordering::Relaxed) {
            KILL_PROCESS => {
                let _ = self.group.send(kill);
            }
            KILL_CONTAINER => self.kernel().signal_container(&self.group.container, kill, |_| true),
            FREEZE => self.kernel().freeze(&self.group.container, true),
            _ => {}
        }
    }

    /// Tells policies of something that has happened and cannot be refused; they may end or freeze tasks for it.
    pub(crate) fn police_event(self: &Arc<Self>, kind: Kind) {
        if self.police(kind, Subject::default).is_err() {
            self.serve_sentence();
        }
    }
}

impl Current {
    /// The error of a policy that refuses what the thread is about to do.
    pub fn police<'a>(&self, kind: Kind, subject: impl FnOnce() -> Subject<'a>) -> Result<()> {
        self.task.police(kind, subject)
    }

    /// A program's file as the subject of an operation.
    pub fn policy_subject<'a>(&self, file: &'a Arc<OpenFile>) -> Subject<'a> {
        let path = file.path.as_ref().and_then(|path| self.task.group.policy_path(path));
        Subject { path, new_in_layer: is_new(file), program: Some(file), ..Subject::default() }
    }

    /// The error of a policy that refuses these new user IDs.
    pub fn police_users(&self, old: &Credentials, new: &Credentials) -> Result<()> {
        let ids = |c: &Credentials| [c.uid, c.euid, c.suid, c.fsuid];
        self.police(Kind::ProcessSetuid, || Subject {
            to_root: to_root(&ids(old), &ids(new)),
            ..Subject::default()
        })
    }

    /// The error of a policy that refuses these new group IDs.
    pub fn police_groups(&self, old: &Credentials, new: &Credentials) -> Result<()> {
        let ids = |c: &Credentials| [c.gid, c.egid, c.sgid, c.fsgid];
        let joins = || new.groups.contains(&0) && !old.groups.contains(&0);
        self.police(Kind::ProcessSetgid, || Subject {
            to_root: joins() || to_root(&ids(old), &ids(new)),
            ..Subject::default()
        })
    }

    /// A system call begins while there is a policy: the error of a policy that refuses it.
    pub fn police_call(&self, nr: u64, args: &[u64; 6]) -> Result<()> {
        for (place, arg) in self.task.call_args.iter().zip(args) {
            place.store(*arg, Ordering::Relaxed);
        }
        match u16::try_from(nr) {
            Ok(nr) if self.kernel().policies.concerns_call(nr) => {
                decide(&self.caller(), &self.task, Point::Call(nr), &Subject::default())
            }
            _ => Ok(()),
        }
    }
}

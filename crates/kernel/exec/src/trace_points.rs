//! The trace points of programs: `sentry/execve` for a new one, `sentry/mmap` for the files that are mapped.

use abi::libc;
use socket::SocketFile;
use std::sync::Arc;
use task::trace_points::{digest, text, texts};
use task::{Current, Task, ThreadGroup};
use trace::Subscription;
use trace::digests::Kind;
use trace_wire::MessageType;
use trace_wire::messages::common::{FdInfo, SocketInfo, SocketIp, Timespec};
use trace_wire::messages::sentry::{ExecveInfo, MmapInfo, PipeProcInfo};
use trace_wire::points::{OptionalFields, Point};
use vfs::{Layer, OpenFile};

/// A program that a process runs from now on.
pub struct NewProgram<'a> {
    /// Its file; of a script, the interpreter.
    pub file: &'a Arc<OpenFile>,
    /// The name that execve(2) was given.
    pub filename: &'a [u8],
    /// Arguments.
    pub argv: &'a [Vec<u8>],
    /// Environment.
    pub envp: &'a [Vec<u8>],
}

fn timespec(time: abi::time::Timespec) -> Timespec {
    let mut told = Timespec::new();
    (told.sec, told.nsec) = (time.sec, time.nsec);
    told
}

/// Tells the sessions that want it that the process runs another program, and of the files that it is made of.
pub fn program_runs<'a>(
    c: &Current,
    program: &NewProgram<'_>,
    files: impl IntoIterator<Item = &'a Arc<OpenFile>>,
) {
    files.into_iter().for_each(|file| file_mapped(c, file, true));
    if !c.kernel().trace.wants(Point::Execve) {
        return;
    }
    c.task.emit(Point::Execve, MessageType::MESSAGE_SENTRY_EXEC, |wish| execve_info(c, program, wish));
}

fn execve_info(c: &Current, program: &NewProgram<'_>, wish: &Subscription) -> ExecveInfo {
    let (group, file) = (&c.task.group, program.file);
    let has = |field| wish.optional.contains(field);
    let mut info = ExecveInfo::new();
    info.context_data = Some(c.task.trace_context(wish.context)).into();
    info.binary_path = text(&group.file_name(file));
    info.execfn = text(program.filename);
    info.argv = texts(program.argv);
    if has(OptionalFields::ENV) {
        info.env = texts(program.envp);
    }
    let attr = file.attr().unwrap_or_default();
    if has(OptionalFields::BINARY_INFO) {
        (info.binary_mode, info.binary_uid, info.binary_gid) = (attr.mode, attr.uid, attr.gid);
        (info.binary_ino, info.binary_size, info.binary_nlink) =
            (attr.ino, attr.size as i64, attr.nlink as u32);
        info.binary_ctime = Some(timespec(attr.ctime)).into();
        info.binary_overlayfs_upper = file.ops.layer() == Some(Layer::Upper);
        info.binary_overlayfs_lower = file.ops.layer() == Some(Layer::Lower);
        info.binary_in_memfd = info.binary_path.starts_with("/memfd:");
    }
    if has(OptionalFields::BINARY_SHA256) {
        info.binary_sha256 = digest(c, c.kernel(), file, Kind::Sha256);
    }
    if has(OptionalFields::BINARY_SHA1) {
        info.binary_sha1 = digest(c, c.kernel(), file, Kind::Sha1);
    }
    if has(OptionalFields::FD_INFO) {
        let [stdin, stdout, stderr] = [0, 1, 2].map(|fd| fd_info(c, fd));
        (info.stdin, info.stdout, info.stderr) = (stdin.into(), stdout.into(), stderr.into());
    }
    if has(OptionalFields::PIPE_PROC_INFO) {
        info.pipe_input_proc = other_end(c, 0, OpenFile::writable, wish).into();
        info.pipe_output_proc = other_end(c, 1, OpenFile::readable, wish).into();
    }
    info
}

fn fd_info(c: &Current, fd: i32) -> Option<FdInfo> {
    let file = c.file(fd).ok()?;
    let attr = file.attr().unwrap_or_default();
    let mut info = FdInfo::new();
    (info.mode, info.ino) = (attr.mode, attr.ino);
    info.path = text(&c.task.group.file_name(&file));
    info.socket = SocketFile::of(&file).ok().map(socket_info).into();
    Some(info)
}

fn socket_info(socket: &SocketFile) -> SocketInfo {
    let mut info = SocketInfo::new();
    info.family = socket.ops.domain() as u32;
    info.local = end_point(&socket.ops.local_addr()).into();
    info.remote = socket.ops.peer_addr().ok().and_then(|addr| end_point(&addr)).into();
    info
}

/// Family, address and port of an internet socket's address.
fn end_point(addr: &[u8]) -> Option<SocketIp> {
    let family = u16::from_ne_bytes(*addr.first_chunk()?);
    let port = u16::from_be_bytes([*addr.get(2)?, *addr.get(3)?]);
    let ip = match i32::from(family) {
        libc::AF_INET => addr.get(4..8)?,
        libc::AF_INET6 => addr.get(8..24)?,
        _ => return None,
    };
    let mut end = SocketIp::new();
    (end.family, end.ip, end.port) = (family.into(), ip.to_vec(), port.into());
    Some(end)
}

/// Another process with the other end of the pipe that is this descriptor.
fn other_end(c: &Current, fd: i32, end: fn(&OpenFile) -> bool, wish: &Subscription) -> Option<PipeProcInfo> {
    let file = c.file(fd).ok()?;
    let pipe = file.attr().ok().filter(|attr| attr.mode & libc::S_IFMT == libc::S_IFIFO)?;
    let has = |task: &Task| {
        task.fds().is_some_and(|table| {
            let files = table.numbers().into_iter().filter_map(|fd| table.get(fd).ok());
            files
                .filter(|file| end(file))
                .any(|file| file.attr().is_ok_and(|attr| (attr.dev, attr.ino) == (pipe.dev, pipe.ino)))
        })
    };
    let others = c.kernel().groups().into_iter().filter(|group| group.tgid != c.task.tgid());
    let task = others.filter_map(|group: Arc<ThreadGroup>| group.any_thread()).find(|task| has(task))?;
    let mut info = PipeProcInfo::new();
    info.context_data = Some(task.trace_context(wish.context)).into();
    Some(info)
}

/// Tells the sessions that want it that a file was mapped. `initial`: by execve(2).
pub fn file_mapped(c: &Current, file: &OpenFile, initial: bool) {
    if !c.kernel().trace.wants(Point::Mmap) {
        return;
    }
    c.task.emit(Point::Mmap, MessageType::MESSAGE_SENTRY_MMAP, |wish| {
        let attr = file.attr().unwrap_or_default();
        let mut info = MmapInfo::new();
        info.context_data = Some(c.task.trace_context(wish.context)).into();
        info.mapped_path = text(&c.task.group.file_name(file));
        (info.mapped_ino, info.mapped_mode) = (attr.ino, attr.mode);
        (info.mapped_uid, info.mapped_gid) = (attr.uid, attr.gid);
        info.mapped_ctime = Some(timespec(attr.ctime)).into();
        info.overlayfs_upper = file.ops.layer() == Some(Layer::Upper);
        info.overlayfs_lower = file.ops.layer() == Some(Layer::Lower);
        info.is_initial_mmap = initial;
        info
    });
}

//! Reading, writing, and the calls about descriptors.

use super::{Entry, schemas, written};
use task::Current;
use trace_wire::messages::syscall::{Dup, Pipe};

/// The offset of preadv2(2) and pwritev2(2) that means the file's own position.
const OWN_POSITION: i64 = -1;

fn offset(e: &Entry<'_>) -> i64 {
    e.arg(3) as i64
}

fn pipe_ends(c: &mut Current, args: &[u64; 6], _result: u64, m: &mut Pipe) {
    written(c);
    if let Ok([reader, writer]) = c.read_value::<[i32; 2]>(args[0]) {
        (m.reader, m.writer) = (reader, writer);
    }
}

fn new_fd(_c: &mut Current, _args: &[u64; 6], result: u64, m: &mut Dup) {
    m.new_fd = result as i32;
}

schemas! {
    /// read(2). `count` of the calls with vectors is the number of buffers.
    READ: Read MESSAGE_SYSCALL_READ [FD_PATH] |e| { fd: e.fd(0), fd_path: e.fd_path(0), count: e.arg(2) };
    /// pread64(2), preadv(2).
    PREAD: Read MESSAGE_SYSCALL_READ [FD_PATH]
        |e| { fd: e.fd(0), fd_path: e.fd_path(0), count: e.arg(2), has_offset: true, offset: offset(e) };
    /// preadv2(2).
    PREADV2: Read MESSAGE_SYSCALL_READ [FD_PATH] |e| {
        fd: e.fd(0), fd_path: e.fd_path(0), count: e.arg(2), has_offset: offset(e) != OWN_POSITION, offset: offset(e),
        flags: e.arg(5) as u32
    };
    /// write(2), writev(2).
    WRITE: Write MESSAGE_SYSCALL_WRITE [FD_PATH] |e| { fd: e.fd(0), fd_path: e.fd_path(0), count: e.arg(2) };
    /// pwrite64(2), pwritev(2).
    PWRITE: Write MESSAGE_SYSCALL_WRITE [FD_PATH]
        |e| { fd: e.fd(0), fd_path: e.fd_path(0), count: e.arg(2), has_offset: true, offset: offset(e) };
    /// pwritev2(2).
    PWRITEV2: Write MESSAGE_SYSCALL_WRITE [FD_PATH] |e| {
        fd: e.fd(0), fd_path: e.fd_path(0), count: e.arg(2), has_offset: offset(e) != OWN_POSITION, offset: offset(e),
        flags: e.arg(5) as u32
    };
    /// close(2).
    CLOSE: Close MESSAGE_SYSCALL_CLOSE [FD_PATH] |e| { fd: e.fd(0), fd_path: e.fd_path(0) };
    /// fcntl(2).
    FCNTL: Fcntl MESSAGE_SYSCALL_FCNTL [FD_PATH]
        |e| { fd: e.int(0), fd_path: e.fd_path(0), cmd: e.int(1), args: e.arg(2) as i64 };
    /// dup(2). The new descriptor is known at the return.
    DUP: Dup MESSAGE_SYSCALL_DUP [FD_PATH] |e| { old_fd: e.int(0), fd_path: e.fd_path(0) } => new_fd;
    /// dup2(2), dup3(2).
    DUP2: Dup MESSAGE_SYSCALL_DUP [FD_PATH] |e| { old_fd: e.int(0), fd_path: e.fd_path(0), new_fd: e.int(1) };
    /// dup3(2).
    DUP3: Dup MESSAGE_SYSCALL_DUP [FD_PATH]
        |e| { old_fd: e.int(0), fd_path: e.fd_path(0), new_fd: e.int(1), flags: e.arg(2) as u32 };
    /// pipe(2). The descriptors are known at the return.
    PIPE: Pipe MESSAGE_SYSCALL_PIPE [] |_e| {} => pipe_ends;
    /// pipe2(2).
    PIPE2: Pipe MESSAGE_SYSCALL_PIPE [] |e| { flags: e.arg(1) as u32 } => pipe_ends;
    /// eventfd(2).
    EVENTFD: Eventfd MESSAGE_SYSCALL_EVENTFD [] |e| { val: e.int(0) };
    /// eventfd2(2).
    EVENTFD2: Eventfd MESSAGE_SYSCALL_EVENTFD [] |e| { val: e.int(0), flags: e.arg(1) as u32 };
    /// signalfd(2).
    SIGNALFD: Signalfd MESSAGE_SYSCALL_SIGNALFD [FD_PATH]
        |e| { fd: e.int(0), fd_path: e.fd_path(0), sigset: e.c.read_value(e.arg(1)).unwrap_or(0) };
    /// signalfd4(2).
    SIGNALFD4: Signalfd MESSAGE_SYSCALL_SIGNALFD [FD_PATH] |e| {
        fd: e.int(0), fd_path: e.fd_path(0), sigset: e.c.read_value(e.arg(1)).unwrap_or(0), flags: e.int(3)
    };
    /// inotify_init(2).
    INOTIFY_INIT: InotifyInit MESSAGE_SYSCALL_INOTIFY_INIT [] |_e| {};
    /// inotify_init1(2).
    INOTIFY_INIT1: InotifyInit MESSAGE_SYSCALL_INOTIFY_INIT [] |e| { flags: e.int(0) };
    /// inotify_add_watch(2).
    INOTIFY_ADD_WATCH: InotifyAddWatch MESSAGE_SYSCALL_INOTIFY_ADD_WATCH [FD_PATH]
        |e| { fd: e.int(0), fd_path: e.fd_path(0), pathname: e.path(1), mask: e.arg(2) as u32 };
    /// inotify_rm_watch(2).
    INOTIFY_RM_WATCH: InotifyRmWatch MESSAGE_SYSCALL_INOTIFY_RM_WATCH [FD_PATH]
        |e| { fd: e.int(0), fd_path: e.fd_path(0), wd: e.int(1) };
}

//! Starting our own processes: a clone into new namespaces, then exec.
//!
//! Between clone and exec the child makes only async-signal-safe host calls, so locks that other threads of the parent
//! held do not matter. The parent may write the child's ID maps before the exec. An exec with an unmapped user would
//! cost the child its capabilities. In a new user namespace it becomes root, if there is one.

use abi::clone::CLONE_INTO_CGROUP;
use rustix::process::{Resource, Rlimit};
use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{io, ptr};

/// Namespaces that the child gets anew, as CLONE_NEW* bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces(u64);

impl Namespaces {
    /// None: the child stays in its parent's.
    pub const NONE: Self = Self(0);
    /// User, pid, mount, network, ipc, uts and cgroup.
    pub const ALL: Self = Self(
        (libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP) as u64,
    );
    /// The same without network: the child stays in its parent's.
    pub const ALL_BUT_NETWORK: Self = Self(Self::ALL.0 & !(libc::CLONE_NEWNET as u64));

    /// The same without user: the child keeps its parent's privileges.
    pub const ALL_BUT_USER: Self = Self(Self::ALL.0 & !(libc::CLONE_NEWUSER as u64));

    /// A user namespace only.
    pub const USER: Self = Self(libc::CLONE_NEWUSER as u64);

    /// A mount namespace only.
    pub const MOUNT: Self = Self(libc::CLONE_NEWNS as u64);

    /// Whether there is a user namespace among them.
    pub fn has_user(self) -> bool {
        self.0 & libc::CLONE_NEWUSER as u64 != 0
    }
}

/// Control groups of the host that the child enters before it runs anything. By doing so itself it spares the host's kernel a wait
/// of 8 to 24 ms, which moving another process takes.
#[derive(Debug, Default)]
pub struct Groups {
    /// cgroup v1: `tasks` files, open for writing.
    pub tasks: Vec<OwnedFd>,
    /// cgroup v2: the group's directory.
    pub directory: Option<OwnedFd>,
}

impl Groups {
    /// There is no group to enter.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.directory.is_none()
    }
}

/// What to run.
pub struct Program<'a> {
    /// The executable, open.
    pub exe: BorrowedFd<'a>,
    /// Arguments, the first being the name.
    pub args: &'a [CString],
    /// Environment.
    pub env: &'a [CString],
    /// `fds[i]` becomes descriptor `i`; every other descriptor is closed.
    pub fds: &'a [BorrowedFd<'a>],
    /// New namespaces.
    pub namespaces: Namespaces,
    /// Control groups.
    pub groups: &'a Groups,
}

/// A started process.
#[derive(Debug)]
pub struct Child {
    /// Process id as the caller sees it.
    pub pid: i32,
    /// Readable once the process has ended.
    pub pidfd: OwnedFd,
}

/// Exit status of a child with a failed exec.
pub const EXEC_FAILED: i32 = 125;

/// Starts a process. `before_exec` runs in the parent while the child waits, with the child's process ID and whether the child is in
/// all of `program.groups`; when it fails the child ends without an exec.
pub fn spawn(
    program: &Program<'_>,
    before_exec: impl FnOnce(i32, bool) -> io::Result<()>,
) -> io::Result<Child> {
    let tasks: Vec<libc::c_int> = program.groups.tasks.iter().map(|fd| fd.as_raw_fd()).collect();
    let argv = pointers(program.args);
    let envp = pointers(program.env);
    let mut fds: Vec<libc::c_int> = program.fds.iter().map(|fd| fd.as_raw_fd()).collect();
    let exe = program.exe.as_raw_fd();
    let (gate_read, gate_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (report_read, report_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;

    let mut pidfd: libc::c_int = -1;
    // SAFETY: clone_args is plain data for which all zeroes is valid.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = program.namespaces.0 | libc::CLONE_PIDFD as u64;
    args.pidfd = ptr::from_mut(&mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: no CLONE_VM: the child has its own copy of memory and goes on here, as after fork. It only makes
    // host calls on memory prepared above, then execs or exits; `args` outlives the call.
    let clone3 = |args: &mut libc::clone_args| unsafe {
        libc::syscall(libc::SYS_clone3, ptr::from_mut(args), size_of::<libc::clone_args>())
    };
    let mut pid = -1;
    if let Some(directory) = &program.groups.directory {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = directory.as_raw_fd() as u64;
        pid = clone3(&mut args);
    }
    let mut placed = pid >= 0;
    if pid < 0 {
        args.flags &= !(CLONE_INTO_CGROUP);
        pid = clone3(&mut args);
    }
    if pid < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
        // In a container with a filter that cannot judge clone3(2), that call does not exist. The older call takes the
        // same flags.
        let flags = args.flags | args.exit_signal;
        // SAFETY: as above; a null stack continues on the copy of ours, and `pidfd` is valid for a write.
        pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, &raw mut pidfd, 0usize, 0usize) };
    }
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid == 0 {
        let gate = (gate_read.as_raw_fd(), gate_write.as_raw_fd());
        let report = (report_read.as_raw_fd(), report_write.as_raw_fd());
        in_child(exe, &mut fds, (gate, report), &tasks, program.namespaces.has_user(), &argv, &envp);
    }
    // SAFETY: the kernel has just made this descriptor for us; it has no other owner.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let child = Child { pid: pid as i32, pidfd };
    drop((gate_read, report_write));
    forbid_cores(child.pid);
    if !tasks.is_empty() {
        let mut entered = [0];
        placed = matches!(rustix::io::read(&report_read, &mut entered), Ok(1)) && entered == [1];
    }
    match before_exec(child.pid, placed || program.groups.is_empty()) {
        Ok(()) => {
            rustix::io::write(&gate_write, &[1])?;
            Ok(child)
        }
        Err(error) => {
            drop(gate_write);
            let wait = rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&child.pidfd));
            let _ = rustix::process::waitid(wait, rustix::process::WaitIdOptions::EXITED);
            Err(error)
        }
    }
}

/// Has the program that `command` starts killed when the calling thread ends, however it does.
pub fn die_with_caller(command: &mut Command) {
    let parent = rustix::process::getpid();
    // SAFETY: runs between fork and exec: two host calls without memory, which are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // A parent that ended before that call goes unnoticed.
            match rustix::process::getppid() {
                Some(now) if now == parent => Ok(()),
                _ => Err(io::ErrorKind::Interrupted.into()),
            }
        });
    }
}

/// Has the host write no core of a process and of its later children, and start no handler for one (a core_pattern that
/// begins with `|`): a handler runs as the host's root on memory that is the guest's. A limit of 0 does not keep it
/// from starting, a limit of 1 does: core(5). Done from outside, where a privileged process can still raise a hard
/// limit of 0.
fn forbid_cores(pid: i32) {
    let limit = Rlimit { current: Some(1), maximum: Some(1) };
    // If the process may not raise it, the command line warns.
    let _ = rustix::process::prlimit(rustix::process::Pid::from_raw(pid), Resource::Core, limit);
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
}

fn in_child(
    exe: i32,
    placed: &mut [i32],
    ((gate_read, gate_write), (report_read, report_write)): ((i32, i32), (i32, i32)),
    tasks: &[i32],
    new_user: bool,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
) -> ! {
    let count = placed.len() as i32;
    // SAFETY: only async-signal-safe calls on this process's own descriptors and on memory that the caller keeps
    // alive: the pointer arrays end with null and point at CStrings.
    unsafe {
        libc::close(gate_write);
        libc::close(report_read);
        if !tasks.is_empty() {
            // 0 stands for the caller.
            let entered = tasks.iter().all(|fd| libc::write(*fd, c"0".as_ptr().cast(), 1) == 1);
            let report = u8::from(entered);
            libc::write(report_write, (&raw const report).cast(), 1);
        }
        libc::close(report_write);
        let mut byte = 0u8;
        loop {
            match libc::read(gate_read, (&raw mut byte).cast(), 1) {
                1 => break,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                // End of file: the parent gave up, or is gone.
                _ => libc::_exit(EXEC_FAILED),
            }
        }
        // The caller's own id may be one that the new maps lack. Where they have no root either, the exec's
        // program finds out.
        if new_user {
            libc::syscall(libc::SYS_setresgid, 0, 0, 0);
            libc::syscall(libc::SYS_setresuid, 0, 0, 0);
        }
        // Everything is first moved out of the range that is about to be filled.
        let exe = libc::fcntl(exe, libc::F_DUPFD_CLOEXEC, count);
        for fd in placed.iter_mut() {
            *fd = libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, count);
            if *fd < 0 {
                libc::_exit(EXEC_FAILED);
            }
        }
        for (target, fd) in placed.iter().enumerate() {
            if libc::dup2(*fd, target as i32) < 0 {
                libc::_exit(EXEC_FAILED);
            }
        }
        libc::syscall(libc::SYS_close_range, count, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        // Dispositions and the mask survive exec: start from Linux's defaults.
        for signo in 1..=64 {
            libc::signal(signo, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        libc::syscall(
            libc::SYS_execveat,
            exe,
            c"".as_ptr(),
            argv.as_ptr(),
            envp.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
        libc::_exit(EXEC_FAILED)
    }
}

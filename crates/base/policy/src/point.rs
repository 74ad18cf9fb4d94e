//! Where a policy decides: on operations of the kernel, and on system calls by their numbers.

use bitflags::bitflags;

bitflags! {
    /// What conditions look at. A policy tells which of these it needs at a point ([`crate::Policy::needs`]), so that
    /// the kernel gathers no others.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Facts: u32 {
        /// `path`, and `second_path` where there are two.
        const PATH = 1;
        /// `access`.
        const ACCESS = 1 << 1;
        /// `address`.
        const ADDRESS = 1 << 2;
        /// `protocol`.
        const PROTOCOL = 1 << 3;
        /// `arguments` of a program.
        const ARGUMENTS = 1 << 4;
        /// `new_in_layer`.
        const NEW_IN_LAYER = 1 << 5;
        /// `file_sha256`.
        const FILE_SHA256 = 1 << 6;
        /// `to_root`.
        const TO_ROOT = 1 << 7;
        /// `arg0` to `arg5`.
        const REGISTERS = 1 << 8;
        /// `executable`.
        const EXECUTABLE = 1 << 9;
        /// `executable_sha256`.
        const EXECUTABLE_SHA256 = 1 << 10;
        /// `uid` and `gid`.
        const IDS = 1 << 11;
        /// `container`.
        const CONTAINER = 1 << 12;
        /// What every operation has: the caller.
        const CALLER = 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;
    }
}

bitflags! {
    /// How a file is opened or mapped.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Access: u8 {
        /// Open for reading (O_RDONLY, O_RDWR), mapped readable.
        const READ = 1;
        /// Open for writing (O_WRONLY, O_RDWR), mapped shared and writable.
        const WRITE = 1 << 1;
        /// O_APPEND.
        const APPEND = 1 << 2;
        /// O_CREAT.
        const CREATE = 1 << 3;
        /// O_TRUNC.
        const TRUNCATE = 1 << 4;
        /// Mapped with PROT_EXEC.
        const EXECUTE = 1 << 5;
    }
}

macro_rules! kinds {
    ($($kind:ident $name:literal [$($fact:ident)*] $what:literal;)*) => {
        /// An operation of the kernel. It is decided on the object that was found, whichever call leads to it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $(#[doc = $what] $kind,)*
        }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind,)*];

            /// The name in rules.
            pub const fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }

            /// What happens.
            pub const fn what(self) -> &'static str {
                match self { $(Kind::$kind => $what,)* }
            }

            /// What can be known of it, besides its caller.
            pub(crate) const fn own_facts(self) -> Facts {
                match self { $(Kind::$kind => Facts::empty()$(.union(Facts::$fact))*,)* }
            }
        }
    };
}

kinds! {
    FileOpen "file/open" [PATH ACCESS NEW_IN_LAYER] "opens a file";
    FileCreate "file/create" [PATH] "makes a file, directory, link or device";
    FileRemove "file/remove" [PATH NEW_IN_LAYER] "removes a file or directory";
    FileRename "file/rename" [PATH NEW_IN_LAYER] "renames a file or directory";
    FileLink "file/link" [PATH NEW_IN_LAYER] "gives a file another name";
    FileSetattr "file/setattr" [PATH NEW_IN_LAYER] "changes a file's mode, owner, times or extended attributes";
    FileTruncate "file/truncate" [PATH NEW_IN_LAYER] "changes a file's length";
    FileExec "file/exec" [PATH NEW_IN_LAYER FILE_SHA256] "executes a file, or uses it as an interpreter";
    FileMap "file/map" [PATH ACCESS NEW_IN_LAYER] "maps a file executable, or shared and writable";
    FileRead "file/read" [PATH NEW_IN_LAYER] "reads from an open file";
    FileWrite "file/write" [PATH NEW_IN_LAYER] "writes to an open file";
    FileChdir "file/chdir" [PATH] "changes the working directory";
    FileChroot "file/chroot" [PATH] "changes the root directory";
    FileMount "file/mount" [PATH] "mounts or unmounts a file system";
    NetSocket "net/socket" [PROTOCOL] "makes a socket";
    NetBind "net/bind" [ADDRESS PROTOCOL] "binds a socket to an address";
    NetConnect "net/connect" [ADDRESS PROTOCOL] "connects to an address, or sends to it";
    NetListen "net/listen" [ADDRESS PROTOCOL] "listens at an address";
    NetAccept "net/accept" [ADDRESS PROTOCOL] "accepts a connection from an address";
    ProcessClone "process/clone" [] "starts a process or thread";
    ProcessExec "process/exec" [PATH ARGUMENTS NEW_IN_LAYER FILE_SHA256] "becomes another program";
    ProcessSetuid "process/setuid" [TO_ROOT] "changes its user IDs";
    ProcessSetgid "process/setgid" [TO_ROOT] "changes its group IDs";
    ProcessSignal "process/signal" [] "sends a signal";
    ProcessPtrace "process/ptrace" [] "traces another process, or reads or writes its memory";
    ContainerStart "container/start" [PATH ARGUMENTS] "is the start of a container";
    ExitNotifyParent "sentry/exit_notify_parent" [] "tells its parent that it has ended";
    TaskExit "sentry/task_exit" [] "is a thread that ends";
}

impl Kind {
    /// All that can be known of it.
    pub const fn facts(self) -> Facts {
        self.own_facts().union(Facts::CALLER)
    }

    /// The operation of that name. Some trace points of the kernel are operations with a second name.
    pub fn find(name: &str) -> Option<Kind> {
        let name = match name {
            "sentry/clone" => "process/clone",
            "sentry/execve" => "process/exec",
            "sentry/mmap" => "file/map",
            other => other,
        };
        Kind::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// False for what has happened already when the kernel tells it.
    pub const fn can_be_refused(self) -> bool {
        !matches!(self, Kind::ContainerStart | Kind::ExitNotifyParent | Kind::TaskExit)
    }

    pub(crate) const fn bit(self) -> u64 {
        1 << self as u8
    }

    /// Operations that give a place a second name, or move it. A rule about the place holds for them, too.
    pub(crate) const fn moves(self) -> bool {
        matches!(self, Kind::FileRename | Kind::FileLink | Kind::FileMount)
    }

    /// Operations that reach what a place holds.
    pub(crate) const fn reaches_content(self) -> bool {
        matches!(
            self,
            Kind::FileOpen
                | Kind::FileSetattr
                | Kind::FileTruncate
                | Kind::FileExec
                | Kind::FileMap
                | Kind::FileRead
                | Kind::FileWrite
                | Kind::ProcessExec
        )
    }
}

/// A point at which the kernel asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// An operation, before it acts.
    Operation(Kind),
    /// The entry of a system call, by its number.
    Call(u16),
}

/// Numbers of system calls are below this.
pub const CALLS: usize = 512;

/// The operations of a system call. A condition on a path or address at the call's point is one on these.
pub(crate) fn operations_of(call: &str) -> &'static [Kind] {
    use Kind::*;
    match call {
        "open" | "openat" | "openat2" | "creat" | "open_by_handle_at" => &[FileOpen],
        "mkdir" | "mkdirat" | "mknod" | "mknodat" | "symlink" | "symlinkat" => &[FileCreate],
        "unlink" | "unlinkat" | "rmdir" => &[FileRemove],
        "rename" | "renameat" | "renameat2" => &[FileRename],
        "link" | "linkat" => &[FileLink],
        "chmod" | "fchmod" | "fchmodat" | "fchmodat2" | "chown" | "fchown" | "lchown" | "fchownat"
        | "utime" | "utimes" | "futimesat" | "utimensat" | "setxattr" | "lsetxattr" | "fsetxattr"
        | "setxattrat" | "removexattr" | "lremovexattr" | "fremovexattr" | "removexattrat"
        | "file_setattr" => &[FileSetattr],
        "truncate" | "ftruncate" => &[FileTruncate],
        "execve" | "execveat" => &[FileExec, ProcessExec],
        "mmap" | "mprotect" | "pkey_mprotect" | "remap_file_pages" => &[FileMap],
        "read" | "pread64" | "readv" | "preadv" | "preadv2" => &[FileRead],
        "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "fallocate" => &[FileWrite],
        "sendfile" | "copy_file_range" | "splice" => &[FileRead, FileWrite],
        "chdir" | "fchdir" => &[FileChdir],
        "chroot" | "pivot_root" => &[FileChroot],
        "mount" | "umount2" | "move_mount" => &[FileMount],
        "socket" | "socketpair" => &[NetSocket],
        "bind" => &[NetBind],
        "connect" | "sendto" | "sendmsg" | "sendmmsg" => &[NetConnect],
        "listen" => &[NetListen],
        "accept" | "accept4" => &[NetAccept],
        "clone" | "clone3" | "fork" | "vfork" => &[ProcessClone],
        "setuid" | "setreuid" | "setresuid" | "setfsuid" => &[ProcessSetuid],
        "setgid" | "setregid" | "setresgid" | "setfsgid" | "setgroups" => &[ProcessSetgid],
        "kill" | "tkill" | "tgkill" | "rt_sigqueueinfo" | "rt_tgsigqueueinfo" | "pidfd_send_signal" => {
            &[ProcessSignal]
        }
        "ptrace" | "process_vm_readv" | "process_vm_writev" => &[ProcessPtrace],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_calls_exist() {
        assert!(Kind::ALL.len() <= 64);
        for (at, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!((Kind::find(kind.name()), *kind as usize), (Some(*kind), at));
        }
        assert_eq!(Kind::find("sentry/execve"), Some(Kind::ProcessExec));
        for call in ["openat", "execve", "sendmmsg", "file_setattr", "setxattrat", "pidfd_send_signal"] {
            assert!(seccomp::number(call).is_some_and(|nr| (nr as usize) < CALLS), "{call}");
            assert!(!operations_of(call).is_empty());
        }
    }
}

//! How a file is to be opened: the flags of open(2) and openat2(2).

use crate::lookup::Lookup;
use abi::{Errno, Result};

const RESOLVE_KNOWN: u64 = 0x3f;

/// `struct open_how`, and the arguments of open(2) in its form. Its fields fit together: what openat2(2) refuses is never
/// made into one.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenHow {
    pub(crate) flags: i32,
    pub(crate) mode: u32,
    pub(crate) resolve: u64,
}

impl OpenHow {
    /// The arguments of openat2(2): O_* flags, the mode of a created file, RESOLVE_* flags. EINVAL for combinations that it
    /// refuses.
    pub fn new(flags: i32, mode: u32, resolve: u64) -> Result<OpenHow> {
        let how = OpenHow { flags, mode, resolve };
        how.validate().map(|()| how)
    }

    /// The arguments of open(2) and openat(2), which ignore unknown flags. EINVAL for combinations that they refuse.
    pub fn legacy(flags: i32, mode: u32) -> Result<OpenHow> {
        let known = libc::O_ACCMODE
            | libc::O_CREAT
            | libc::O_EXCL
            | libc::O_NOCTTY
            | libc::O_TRUNC
            | libc::O_APPEND
            | libc::O_NONBLOCK
            | libc::O_SYNC
            | libc::O_ASYNC
            | libc::O_DIRECT
            | libc::O_TMPFILE
            | libc::O_NOFOLLOW
            | libc::O_NOATIME
            | libc::O_CLOEXEC
            | libc::O_PATH;
        let mut f = flags & known;
        if f & libc::O_PATH != 0 {
            f &= libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        }
        OpenHow::new(f, if creates(f) { mode & 0o7777 } else { 0 }, 0)
    }

    /// O_* flags.
    pub fn flags(&self) -> i32 {
        self.flags
    }

    /// RESOLVE_* flags.
    pub fn resolve(&self) -> u64 {
        self.resolve
    }

    fn validate(&self) -> Result<()> {
        let f = self.flags;
        if self.resolve & !RESOLVE_KNOWN != 0 || self.resolve & 0x18 == 0x18 {
            return Err(Errno::EINVAL);
        }
        if self.mode & !0o7777 != 0 || self.mode != 0 && !creates(f) {
            return Err(Errno::EINVAL);
        }
        if f & TMPFILE_ONLY != 0 {
            let accepted = f & libc::O_TMPFILE == libc::O_TMPFILE
                && matches!(f & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR)
                && f & libc::O_CREAT == 0;
            if !accepted {
                return Err(Errno::EINVAL);
            }
        }
        if f & libc::O_CREAT != 0 && f & libc::O_DIRECTORY != 0 {
            return Err(Errno::EINVAL);
        }
        if f & libc::O_PATH != 0
            && f & !(libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC) != 0
        {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    pub(crate) fn lookup(&self) -> Lookup {
        let mut l = Lookup::empty();
        for (bit, flag) in [
            (0x01, Lookup::NO_XDEV),
            (0x02, Lookup::NO_MAGICLINKS),
            (0x04, Lookup::NO_SYMLINKS),
            (0x08, Lookup::BENEATH),
            (0x10, Lookup::IN_ROOT),
            (0x20, Lookup::CACHED),
        ] {
            l.set(flag, self.resolve & bit != 0);
        }
        l
    }
}

/// O_TMPFILE without the O_DIRECTORY in it.
const TMPFILE_ONLY: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

pub(crate) fn creates(flags: i32) -> bool {
    flags & (libc::O_CREAT | TMPFILE_ONLY) != 0
}

//! Arguments become types before a handler runs, and know how to print
//! themselves for strace.

use abi::{Errno, Result};
use task::Current;

/// A guest pointer. A claim, not an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ptr(pub u64);

impl Ptr {
    /// True for NULL.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }
}

/// A pointer to a NUL-terminated path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathPtr(pub u64);

/// A descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fd(pub i32);

/// A directory descriptor or AT_FDCWD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirFd(pub i32);

/// A type that a system call argument is converted to.
pub trait Arg: Sized {
    /// From the raw register.
    fn from_reg(v: u64) -> Self;
    /// For strace.
    fn show(v: u64, c: &Current) -> String;
}

macro_rules! ints { ($($t:ty),*) => { $(impl Arg for $t {
    fn from_reg(v: u64) -> Self { v as $t }
    fn show(v: u64, _c: &Current) -> String {
        let x = v as $t;
        if (x as i128).unsigned_abs() >= 4096 { format!("{x:#x}") } else { x.to_string() }
    }
})* } }
ints!(i32, u32, i64, u64, usize);

impl Arg for Ptr {
    fn from_reg(v: u64) -> Self {
        Ptr(v)
    }
    fn show(v: u64, _c: &Current) -> String {
        if v == 0 { "NULL".into() } else { format!("{v:#x}") }
    }
}

impl Arg for PathPtr {
    fn from_reg(v: u64) -> Self {
        PathPtr(v)
    }
    fn show(v: u64, c: &Current) -> String {
        match c.read_path(v) {
            Ok(p) => format!("{:?}", String::from_utf8_lossy(&p)),
            Err(_) => format!("{v:#x}"),
        }
    }
}

impl Arg for Fd {
    fn from_reg(v: u64) -> Self {
        Fd(v as i32)
    }
    fn show(v: u64, _c: &Current) -> String {
        (v as i32).to_string()
    }
}

impl Arg for DirFd {
    fn from_reg(v: u64) -> Self {
        DirFd(v as i32)
    }
    fn show(v: u64, _c: &Current) -> String {
        if v as i32 == libc::AT_FDCWD { "AT_FDCWD".into() } else { (v as i32).to_string() }
    }
}

/// Refuses bits outside `allowed` with EINVAL.
pub fn check_flags(flags: i32, allowed: i32) -> Result<()> {
    if flags & !allowed != 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

//! Files and file systems: the rows of the table; see `families` for how to add one.

#[allow(unused_imports)]
use crate::arg::{DirFd, Fd, PathPtr, Ptr};
#[allow(unused_imports)]
use crate::table::Support::{Absent, Full, Partial};
use crate::table::{Row, rows};

use crate::{open, read_write, stat};

rows! {
    // Reading and writing
    0 read(Fd, Ptr, u64) = read_write::read, Full;
    1 write(Fd, Ptr, u64) = read_write::write, Full;
    8 lseek(Fd, i64, i32) = read_write::lseek, Full;
    17 pread64(Fd, Ptr, u64, i64) = read_write::pread64, Full;
    18 pwrite64(Fd, Ptr, u64, i64) = read_write::pwrite64, Full;
    19 readv(Fd, Ptr, u64) = read_write::readv, Full;
    20 writev(Fd, Ptr, u64) = read_write::writev, Full;
    295 preadv(Fd, Ptr, u64, i64, u64) = read_write::preadv, Full;
    296 pwritev(Fd, Ptr, u64, i64, u64) = read_write::pwritev, Full;
    327 preadv2(Fd, Ptr, u64, i64, u64, i32) = read_write::preadv2, Full;
    328 pwritev2(Fd, Ptr, u64, i64, u64, i32) = read_write::pwritev2, Full;

    // Descriptors
    2 open(PathPtr, i32, u32) = open::open, Full;
    3 close(Fd) = open::close, Full;
    32 dup(Fd) = open::dup, Full;
    33 dup2(Fd, Fd) = open::dup2, Full;
    85 creat(PathPtr, u32) = open::creat, Full;
    257 openat(DirFd, PathPtr, i32, u32) = open::openat, Full;
    292 dup3(Fd, Fd, i32) = open::dup3, Full;
    436 close_range(u32, u32, u32) = open::close_range, Full;
    437 openat2(DirFd, PathPtr, Ptr, u64) = open::openat2, Full;

    // Attributes
    4 stat(PathPtr, Ptr) = stat::stat, Full;
    5 fstat(Fd, Ptr) = stat::fstat, Full;
    6 lstat(PathPtr, Ptr) = stat::lstat, Full;
    21 access(PathPtr, i32) = stat::access, Full;
    89 readlink(PathPtr, Ptr, i32) = stat::readlink, Full;
    137 statfs(PathPtr, Ptr) = stat::statfs, Full;
    138 fstatfs(Fd, Ptr) = stat::fstatfs, Full;
    262 newfstatat(DirFd, PathPtr, Ptr, i32) = stat::newfstatat, Full;
    267 readlinkat(DirFd, PathPtr, Ptr, i32) = stat::readlinkat, Full;
    269 faccessat(DirFd, PathPtr, i32) = stat::faccessat, Full;
    332 statx(DirFd, PathPtr, i32, u32, Ptr) = stat::statx, Full;
    439 faccessat2(DirFd, PathPtr, i32, i32) = stat::faccessat2, Full;
}

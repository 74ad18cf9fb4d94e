//! Files and file systems: the rows of the table; see `families` for how to add one.

use crate::arg::{DirFd, Fd, PathPtr, Ptr};
use crate::table::Support::{Absent, Full, Partial};
use crate::table::{Row, rows};

use crate::events::{fanotify, inotify};
use crate::files::{
    attrs, dirs, fcntl, file_attr, handles, ioctl, open, quota, read_write, splice, stat, storage, xattr,
};
use crate::mounts::{fs_config, mount, mount_fd, mount_query};
use crate::{names, refused};

rows! {
    // Reading and writing
    0 read(Fd, Ptr, u64) = read_write::read, Full, READ;
    1 write(Fd, Ptr, u64) = read_write::write, Full, WRITE;
    8 lseek(Fd, i64, i32) = read_write::lseek, Full;
    17 pread64(Fd, Ptr, u64, i64) = read_write::pread64, Full, PREAD;
    18 pwrite64(Fd, Ptr, u64, i64) = read_write::pwrite64, Full, PWRITE;
    19 readv(Fd, Ptr, u64) = read_write::readv, Full, READ;
    20 writev(Fd, Ptr, u64) = read_write::writev, Full, WRITE;
    295 preadv(Fd, Ptr, u64, i64, u64) = read_write::preadv, Full, PREAD;
    296 pwritev(Fd, Ptr, u64, i64, u64) = read_write::pwritev, Full, PWRITE;
    327 preadv2(Fd, Ptr, u64, i64, u64, i32) = read_write::preadv2, Full, PREADV2;
    328 pwritev2(Fd, Ptr, u64, i64, u64, i32) = read_write::pwritev2, Full, PWRITEV2;
    40 sendfile(Fd, Fd, Ptr, u64) = splice::sendfile, Full;
    275 splice(Fd, Ptr, Fd, Ptr, u64, u32) = splice::splice, Full;
    276 tee(Fd, Fd, u64, u32) = splice::tee, Full;
    278 vmsplice(Fd, Ptr, u64, u32) = splice::vmsplice, Full;
    326 copy_file_range(Fd, Ptr, Fd, Ptr, u64, u32) = splice::copy_file_range, Full;

    // Descriptors
    2 open(PathPtr, i32, u32) = open::open, Full, OPEN;
    3 close(Fd) = open::close, Full, CLOSE;
    16 ioctl(Fd, u32, u64) = ioctl::ioctl, Full;
    32 dup(Fd) = open::dup, Full, DUP;
    33 dup2(Fd, Fd) = open::dup2, Full, DUP2;
    72 fcntl(Fd, i32, u64) = fcntl::fcntl, Full, FCNTL;
    73 flock(Fd, i32) = fcntl::flock, Full;
    85 creat(PathPtr, u32) = open::creat, Full, CREAT;
    257 openat(DirFd, PathPtr, i32, u32) = open::openat, Full, OPENAT;
    292 dup3(Fd, Fd, i32) = open::dup3, Full, DUP3;
    319 memfd_create(Ptr, u32) = storage::memfd_create, Partial("MFD_HUGETLB answers ENOSYS");
    436 close_range(u32, u32, u32) = open::close_range, Full;
    437 openat2(DirFd, PathPtr, Ptr, u64) = open::openat2, Full;

    // Attributes
    4 stat(PathPtr, Ptr) = stat::stat, Full;
    5 fstat(Fd, Ptr) = stat::fstat, Full;
    6 lstat(PathPtr, Ptr) = stat::lstat, Full;
    21 access(PathPtr, i32) = stat::access, Full;
    76 truncate(PathPtr, i64) = storage::truncate, Full;
    77 ftruncate(Fd, i64) = storage::ftruncate, Full;
    90 chmod(PathPtr, u32) = attrs::chmod, Full;
    91 fchmod(Fd, u32) = attrs::fchmod, Full;
    92 chown(PathPtr, u32, u32) = attrs::chown, Full;
    93 fchown(Fd, u32, u32) = attrs::fchown, Full;
    94 lchown(PathPtr, u32, u32) = attrs::lchown, Full;
    95 umask(u32) = dirs::umask, Full;
    132 utime(PathPtr, Ptr) = attrs::utime, Full;
    136 ustat(u32, Ptr) = stat::ustat, Full;
    137 statfs(PathPtr, Ptr) = stat::statfs, Full;
    139 sysfs(i32, u64, Ptr) = stat::sysfs, Full;
    138 fstatfs(Fd, Ptr) = stat::fstatfs, Full;
    235 utimes(PathPtr, Ptr) = attrs::utimes, Full;
    260 fchownat(DirFd, PathPtr, u32, u32, i32) = attrs::fchownat, Full;
    261 futimesat(DirFd, PathPtr, Ptr) = attrs::futimesat, Full;
    262 newfstatat(DirFd, PathPtr, Ptr, i32) = stat::newfstatat, Full;
    268 fchmodat(DirFd, PathPtr, u32) = attrs::fchmodat, Full;
    269 faccessat(DirFd, PathPtr, i32) = stat::faccessat, Full;
    280 utimensat(DirFd, PathPtr, Ptr, i32) = attrs::utimensat, Full;
    285 fallocate(Fd, i32, i64, i64) = storage::fallocate, Partial("in memory: mode 0, KEEP_SIZE and PUNCH_HOLE, as tmpfs");
    332 statx(DirFd, PathPtr, i32, u32, Ptr) = stat::statx, Full;
    439 faccessat2(DirFd, PathPtr, i32, i32) = stat::faccessat2, Full;
    452 fchmodat2(DirFd, PathPtr, u32, i32) = attrs::fchmodat2, Full;

    // Names
    78 getdents(Fd, Ptr, u32) = dirs::getdents, Full;
    79 getcwd(Ptr, u64) = dirs::getcwd, Full;
    80 chdir(PathPtr) = dirs::chdir, Full, CHDIR;
    81 fchdir(Fd) = dirs::fchdir, Full, FCHDIR;
    82 rename(PathPtr, PathPtr) = names::rename, Full;
    83 mkdir(PathPtr, u32) = names::mkdir, Full;
    84 rmdir(PathPtr) = names::rmdir, Full;
    86 link(PathPtr, PathPtr) = names::link_, Full;
    87 unlink(PathPtr) = names::unlink, Full;
    88 symlink(PathPtr, PathPtr) = names::symlink, Full;
    89 readlink(PathPtr, Ptr, i32) = stat::readlink, Full;
    133 mknod(PathPtr, u32, u64) = names::mknod, Full;
    161 chroot(PathPtr) = dirs::chroot, Full, CHROOT;
    217 getdents64(Fd, Ptr, u32) = dirs::getdents64, Full;
    258 mkdirat(DirFd, PathPtr, u32) = names::mkdirat, Full;
    259 mknodat(DirFd, PathPtr, u32, u64) = names::mknodat, Full;
    263 unlinkat(DirFd, PathPtr, i32) = names::unlinkat, Full;
    264 renameat(DirFd, PathPtr, DirFd, PathPtr) = names::renameat, Full;
    265 linkat(DirFd, PathPtr, DirFd, PathPtr, i32) = names::linkat, Full;
    266 symlinkat(PathPtr, DirFd, PathPtr) = names::symlinkat, Full;
    267 readlinkat(DirFd, PathPtr, Ptr, i32) = stat::readlinkat, Full;
    316 renameat2(DirFd, PathPtr, DirFd, PathPtr, u32) = names::renameat2, Partial("RENAME_WHITEOUT on tmpfs and directories of the host, EINVAL elsewhere");
    303 name_to_handle_at(DirFd, PathPtr, Ptr, Ptr, i32) = handles::name_to_handle_at, Partial("EOPNOTSUPP for cgroup2 and sysfs without AT_HANDLE_FID, and with AT_HANDLE_CONNECTABLE");
    304 open_by_handle_at(DirFd, Ptr, i32) = handles::open_by_handle_at, Partial("CAP_DAC_READ_SEARCH of the initial user namespace; the last 16384 handles of a file system");

    // Extended attributes
    188 setxattr(PathPtr, Ptr, Ptr, u64, i32) = xattr::setxattr, Full;
    189 lsetxattr(PathPtr, Ptr, Ptr, u64, i32) = xattr::lsetxattr, Full;
    190 fsetxattr(Fd, Ptr, Ptr, u64, i32) = xattr::fsetxattr, Full;
    191 getxattr(PathPtr, Ptr, Ptr, u64) = xattr::getxattr, Full;
    192 lgetxattr(PathPtr, Ptr, Ptr, u64) = xattr::lgetxattr, Full;
    193 fgetxattr(Fd, Ptr, Ptr, u64) = xattr::fgetxattr, Full;
    194 listxattr(PathPtr, Ptr, u64) = xattr::listxattr, Full;
    195 llistxattr(PathPtr, Ptr, u64) = xattr::llistxattr, Full;
    196 flistxattr(Fd, Ptr, u64) = xattr::flistxattr, Full;
    197 removexattr(PathPtr, Ptr) = xattr::removexattr, Full;
    198 lremovexattr(PathPtr, Ptr) = xattr::lremovexattr, Full;
    199 fremovexattr(Fd, Ptr) = xattr::fremovexattr, Full;
    463 setxattrat(DirFd, PathPtr, i32, Ptr, Ptr, u64) = xattr::setxattrat, Full;
    464 getxattrat(DirFd, PathPtr, i32, Ptr, Ptr, u64) = xattr::getxattrat, Full;
    465 listxattrat(DirFd, PathPtr, i32, Ptr, u64) = xattr::listxattrat, Full;
    466 removexattrat(DirFd, PathPtr, i32, Ptr) = xattr::removexattrat, Full;
    468 file_getattr(DirFd, PathPtr, Ptr, u64, i32) = file_attr::file_getattr, Partial("no file system has such attributes: EOPNOTSUPP");
    469 file_setattr(DirFd, PathPtr, Ptr, u64, i32) = file_attr::file_setattr, Partial("no file system has such attributes: EOPNOTSUPP");

    // Notification
    253 inotify_init() = inotify::inotify_init, Full, INOTIFY_INIT;
    254 inotify_add_watch(Fd, PathPtr, u32) = inotify::inotify_add_watch, Partial("no IN_UNMOUNT"), INOTIFY_ADD_WATCH;
    255 inotify_rm_watch(Fd, i32) = inotify::inotify_rm_watch, Full, INOTIFY_RM_WATCH;
    294 inotify_init1(i32) = inotify::inotify_init1, Full, INOTIFY_INIT1;
    300 fanotify_init(u32, u32) = fanotify::fanotify_init, Partial("no reports by file handle, pidfd or mount (EINVAL); EPERM without CAP_SYS_ADMIN");
    301 fanotify_mark(Fd, u32, u64, DirFd, PathPtr) = fanotify::fanotify_mark, Partial("events with a descriptor, and questions for permission; no events of names (EINVAL)");

    // Storage and mounts
    74 fsync(Fd) = storage::fsync, Full;
    75 fdatasync(Fd) = storage::fdatasync, Full;
    155 pivot_root(PathPtr, PathPtr) = mount::pivot_root, Full;
    162 sync() = storage::sync, Full;
    179 quotactl(u32, PathPtr, u32, u64) = quota::quotactl, Absent("no file system has quotas");
    443 quotactl_fd(Fd, u32, u32, u64) = quota::quotactl_fd, Absent("no file system has quotas: ENOSYS");
    165 mount(Ptr, PathPtr, Ptr, u64, Ptr) = mount::mount, Full;
    166 umount2(PathPtr, i32) = mount::umount2, Full;
    428 open_tree(DirFd, PathPtr, u32) = mount_fd::open_tree, Full;
    429 move_mount(DirFd, PathPtr, DirFd, PathPtr, u32) = mount_fd::move_mount, Full;
    430 fsopen(Ptr, u32) = fs_config::fsopen, Full;
    431 fsconfig(Fd, u32, Ptr, Ptr, i32) = fs_config::fsconfig, Full;
    432 fsmount(Fd, u32, u32) = fs_config::fsmount, Full;
    433 fspick(DirFd, PathPtr, u32) = fs_config::fspick, Partial("the root and bind mounts of a container: EOPNOTSUPP");
    442 mount_setattr(DirFd, PathPtr, u32, Ptr, u64) = mount_fd::mount_setattr, Partial("no MOUNT_ATTR_IDMAP: EINVAL");
    457 statmount(Ptr, Ptr, u64, u32) = mount_query::statmount, Partial("only of the caller's namespace");
    458 listmount(Ptr, Ptr, u64, u32) = mount_query::listmount, Partial("only of the caller's namespace");
    467 open_tree_attr(DirFd, PathPtr, u32, Ptr, u64) = mount_fd::open_tree_attr, Partial("no MOUNT_ATTR_IDMAP: EINVAL");
    187 readahead(Fd, i64, u64) = storage::readahead, Full;
    221 fadvise64(Fd, i64, i64, i32) = storage::fadvise64, Partial("accepted, no effect");
    277 sync_file_range(Fd, i64, i64, u32) = storage::sync_file_range, Full;
    306 syncfs(Fd) = storage::syncfs, Full;
    451 cachestat(Fd, Ptr, Ptr, u32) = storage::cachestat, Full;
    167 swapon(Ptr, i32) = refused::swapon, Absent("EPERM");
    168 swapoff(Ptr) = refused::swapoff, Absent("EPERM");
}

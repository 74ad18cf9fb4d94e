//! The arguments of a system call that the stub copies into the slot along with the call.
//!
//! This is a hint. An argument that faults or does not fit is not captured, and the sentry then reads guest memory
//! itself.

/// One captured argument.
#[derive(Clone, Copy)]
pub enum Capture {
    /// Buffer at argument `.0`, its length in argument `.1`.
    Buffer(u8, u8),
    /// C string at argument `.0`.
    String(u8),
    /// Structure at argument `.0` of `.1` bytes.
    Fixed(u8, u16),
    /// Array at argument `.0`, its count in argument `.1`, elements of `.2` bytes.
    Array(u8, u8, u16),
}
use Capture::{Array, Buffer, Fixed, String};

/// System call numbers with what to capture; at most two entries each, and
/// a first entry of two is at most 4096 bytes long.
pub const TABLE: &[(u16, &[Capture])] = &[
    (1, &[Buffer(1, 2)]),                   // write
    (2, &[String(0)]),                      // open
    (4, &[String(0)]),                      // stat
    (6, &[String(0)]),                      // lstat
    (7, &[Array(0, 1, 8)]),                 // poll
    (13, &[Fixed(1, 32)]),                  // rt_sigaction
    (14, &[Fixed(1, 8)]),                   // rt_sigprocmask
    (18, &[Buffer(1, 2)]),                  // pwrite64
    (19, &[Array(1, 2, 16)]),               // readv
    (20, &[Array(1, 2, 16)]),               // writev
    (21, &[String(0)]),                     // access
    (23, &[Fixed(1, 128), Fixed(4, 16)]),   // select
    (35, &[Fixed(0, 16)]),                  // nanosleep
    (38, &[Fixed(1, 32)]),                  // setitimer
    (40, &[Fixed(2, 8)]),                   // sendfile
    (42, &[Buffer(1, 2)]),                  // connect
    (43, &[Fixed(2, 4)]),                   // accept
    (44, &[Buffer(1, 2)]),                  // sendto
    (46, &[Fixed(1, 56)]),                  // sendmsg
    (47, &[Fixed(1, 56)]),                  // recvmsg
    (49, &[Buffer(1, 2)]),                  // bind
    (51, &[Fixed(2, 4)]),                   // getsockname
    (52, &[Fixed(2, 4)]),                   // getpeername
    (54, &[Buffer(3, 4)]),                  // setsockopt
    (55, &[Fixed(4, 4)]),                   // getsockopt
    (59, &[String(0)]),                     // execve
    (65, &[Array(1, 2, 6)]),                // semop
    (72, &[Fixed(2, 32)]),                  // fcntl
    (76, &[String(0)]),                     // truncate
    (80, &[String(0)]),                     // chdir
    (82, &[String(0), String(1)]),          // rename
    (83, &[String(0)]),                     // mkdir
    (84, &[String(0)]),                     // rmdir
    (85, &[String(0)]),                     // creat
    (86, &[String(0), String(1)]),          // link
    (87, &[String(0)]),                     // unlink
    (88, &[String(0), String(1)]),          // symlink
    (89, &[String(0)]),                     // readlink
    (90, &[String(0)]),                     // chmod
    (92, &[String(0)]),                     // chown
    (94, &[String(0)]),                     // lchown
    (125, &[Fixed(0, 8)]),                  // capget
    (126, &[Fixed(0, 8), Fixed(1, 24)]),    // capset
    (128, &[Fixed(0, 8), Fixed(2, 16)]),    // rt_sigtimedwait
    (130, &[Fixed(0, 8)]),                  // rt_sigsuspend
    (131, &[Fixed(0, 24)]),                 // sigaltstack
    (137, &[String(0)]),                    // statfs
    (157, &[Fixed(1, 16)]),                 // prctl
    (161, &[String(0)]),                    // chroot
    (188, &[String(0), String(1)]),         // setxattr
    (189, &[String(0), String(1)]),         // lsetxattr
    (191, &[String(0), String(1)]),         // getxattr
    (192, &[String(0), String(1)]),         // lgetxattr
    (193, &[String(1)]),                    // fgetxattr
    (203, &[Buffer(2, 1)]),                 // sched_setaffinity
    (220, &[Array(1, 2, 6), Fixed(3, 16)]), // semtimedop
    (222, &[Fixed(1, 64)]),                 // timer_create
    (223, &[Fixed(2, 32)]),                 // timer_settime
    (230, &[Fixed(2, 16)]),                 // clock_nanosleep
    (233, &[Fixed(3, 12)]),                 // epoll_ctl
    (235, &[String(0), Fixed(1, 32)]),      // utimes
    (242, &[Buffer(1, 2)]),                 // mq_timedsend
    (254, &[String(1)]),                    // inotify_add_watch
    (257, &[String(1)]),                    // openat
    (258, &[String(1)]),                    // mkdirat
    (259, &[String(1)]),                    // mknodat
    (260, &[String(1)]),                    // fchownat
    (262, &[String(1)]),                    // newfstatat
    (263, &[String(1)]),                    // unlinkat
    (264, &[String(1), String(3)]),         // renameat
    (265, &[String(1), String(3)]),         // linkat
    (266, &[String(0), String(2)]),         // symlinkat
    (267, &[String(1)]),                    // readlinkat
    (268, &[String(1)]),                    // fchmodat
    (269, &[String(1)]),                    // faccessat
    (270, &[Fixed(4, 16), Fixed(5, 16)]),   // pselect6
    (271, &[Fixed(2, 16), Array(0, 1, 8)]), // ppoll
    (275, &[Fixed(1, 8), Fixed(3, 8)]),     // splice
    (280, &[String(1), Fixed(2, 32)]),      // utimensat
    (281, &[Fixed(4, 8)]),                  // epoll_pwait
    (286, &[Fixed(2, 32)]),                 // timerfd_settime
    (288, &[Fixed(2, 4)]),                  // accept4
    (289, &[Fixed(1, 8)]),                  // signalfd4
    (295, &[Array(1, 2, 16)]),              // preadv
    (296, &[Array(1, 2, 16)]),              // pwritev
    (302, &[Fixed(2, 16)]),                 // prlimit64
    (316, &[String(1), String(3)]),         // renameat2
    (319, &[String(0)]),                    // memfd_create
    (322, &[String(1)]),                    // execveat
    (326, &[Fixed(1, 8), Fixed(3, 8)]),     // copy_file_range
    (327, &[Array(1, 2, 16)]),              // preadv2
    (328, &[Array(1, 2, 16)]),              // pwritev2
    (332, &[String(1)]),                    // statx
    (435, &[Buffer(0, 1)]),                 // clone3
    (437, &[String(1), Fixed(2, 24)]),      // openat2
    (439, &[String(1)]),                    // faccessat2
];

/// Size of the table the stub indexes by system call number.
pub const TABLE_LEN: usize = 512;

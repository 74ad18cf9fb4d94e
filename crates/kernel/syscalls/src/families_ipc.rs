//! Pipes, readiness, event descriptors and sockets: the rows of the table; see `families` for how to add one.

use crate::arg::{Fd, PathPtr, Ptr};
use crate::events::{aio, epoll, eventfd, poll, select};
use crate::files::pipe;
use crate::ipc::{mqueue, sysv};
use crate::sockets::{sendrecv, socket};
use crate::table::Support::{Full, Partial};
use crate::table::{Row, rows};

rows! {
    // Pipes
    22 pipe(Ptr) = pipe::pipe, Full, PIPE;
    293 pipe2(Ptr, i32) = pipe::pipe2, Partial("O_NOTIFICATION_PIPE answers EINVAL"), PIPE2;

    // Readiness
    7 poll(Ptr, u32, i32) = poll::poll, Full;
    271 ppoll(Ptr, u32, Ptr, Ptr, u64) = poll::ppoll, Full;
    23 select(i32, Ptr, Ptr, Ptr, Ptr) = select::select, Full;
    270 pselect6(i32, Ptr, Ptr, Ptr, Ptr, Ptr) = select::pselect6, Full;
    213 epoll_create(i32) = epoll::epoll_create, Full;
    291 epoll_create1(i32) = epoll::epoll_create1, Full;
    233 epoll_ctl(Fd, i32, Fd, Ptr) = epoll::epoll_ctl, Partial("no limit on watches; EPOLLWAKEUP has no effect");
    232 epoll_wait(Fd, Ptr, i32, i32) = epoll::epoll_wait, Full;
    281 epoll_pwait(Fd, Ptr, i32, i32, Ptr, u64) = epoll::epoll_pwait, Full;
    441 epoll_pwait2(Fd, Ptr, i32, Ptr, Ptr, u64) = epoll::epoll_pwait2, Full;

    // Event descriptors
    284 eventfd(u32) = eventfd::eventfd, Full, EVENTFD;
    290 eventfd2(u32, i32) = eventfd::eventfd2, Full, EVENTFD2;
    282 signalfd(Fd, Ptr, u64) = eventfd::signalfd, Full, SIGNALFD;
    289 signalfd4(Fd, Ptr, u64, i32) = eventfd::signalfd4, Full, SIGNALFD4;
    283 timerfd_create(i32, i32) = eventfd::timerfd_create, Full, TIMERFD_CREATE;
    286 timerfd_settime(Fd, i32, Ptr, Ptr) = eventfd::timerfd_settime, Partial("the clock cannot be set, so TFD_TIMER_CANCEL_ON_SET never cancels"), TIMERFD_SETTIME;
    287 timerfd_gettime(Fd, Ptr) = eventfd::timerfd_gettime, Full, TIMERFD_GETTIME;

    // Sockets
    41 socket(i32, i32, i32) = socket::socket, Partial("AF_UNIX, AF_INET, AF_INET6, AF_PACKET, AF_NETLINK"), SOCKET;
    53 socketpair(i32, i32, i32, Ptr) = socket::socketpair, Partial("AF_UNIX only"), SOCKETPAIR;
    49 bind(Fd, Ptr, u32) = socket::bind, Full, BIND;
    42 connect(Fd, Ptr, u32) = socket::connect, Full, CONNECT;
    50 listen(Fd, i32) = socket::listen, Full, LISTEN;
    43 accept(Fd, Ptr, Ptr) = socket::accept, Full, ACCEPT;
    288 accept4(Fd, Ptr, Ptr, i32) = socket::accept4, Full, ACCEPT4;
    51 getsockname(Fd, Ptr, Ptr) = socket::getsockname, Full;
    52 getpeername(Fd, Ptr, Ptr) = socket::getpeername, Full;
    48 shutdown(Fd, i32) = socket::shutdown, Full;
    54 setsockopt(Fd, i32, i32, Ptr, i32) = socket::setsockopt, Partial("no extended packet filters");
    55 getsockopt(Fd, i32, i32, Ptr, Ptr) = socket::getsockopt, Partial("no extended packet filters");
    44 sendto(Fd, Ptr, u64, i32, Ptr, u32) = sendrecv::sendto, Full;
    46 sendmsg(Fd, Ptr, i32) = sendrecv::sendmsg, Full;
    307 sendmmsg(Fd, Ptr, u32, i32) = sendrecv::sendmmsg, Full;
    45 recvfrom(Fd, Ptr, u64, i32, Ptr, Ptr) = sendrecv::recvfrom, Full;
    47 recvmsg(Fd, Ptr, i32) = sendrecv::recvmsg, Full;
    299 recvmmsg(Fd, Ptr, u32, i32, Ptr) = sendrecv::recvmmsg, Full;

    // System V IPC
    29 shmget(i32, u64, i32) = sysv::shmget, Partial("SHM_HUGETLB answers ENOMEM");
    30 shmat(i32, u64, i32) = sysv::shmat, Full;
    31 shmctl(i32, i32, Ptr) = sysv::shmctl, Partial("SHM_LOCK is recorded, nothing is pinned");
    67 shmdt(u64) = sysv::shmdt, Full;
    64 semget(i32, i32, i32) = sysv::semget, Full;
    65 semop(i32, Ptr, u64) = sysv::semop, Full;
    66 semctl(i32, i32, i32, u64) = sysv::semctl, Full;
    220 semtimedop(i32, Ptr, u64, Ptr) = sysv::semtimedop, Full;
    68 msgget(i32, i32) = sysv::msgget, Full;
    69 msgsnd(i32, Ptr, u64, i32) = sysv::msgsnd, Full;
    70 msgrcv(i32, Ptr, u64, i64, i32) = sysv::msgrcv, Full;
    71 msgctl(i32, i32, Ptr) = sysv::msgctl, Full;

    // POSIX message queues
    240 mq_open(PathPtr, i32, u32, Ptr) = mqueue::mq_open, Full;
    241 mq_unlink(PathPtr) = mqueue::mq_unlink, Full;
    242 mq_timedsend(Fd, Ptr, u64, u32, Ptr) = mqueue::mq_timedsend, Full;
    243 mq_timedreceive(Fd, Ptr, u64, Ptr, Ptr) = mqueue::mq_timedreceive, Full;
    244 mq_notify(Fd, Ptr) = mqueue::mq_notify, Full;
    245 mq_getsetattr(Fd, Ptr, Ptr) = mqueue::mq_getsetattr, Full;

    // Asynchronous input and output
    206 io_setup(u32, Ptr) = aio::io_setup, Full;
    207 io_destroy(u64) = aio::io_destroy, Full;
    208 io_getevents(u64, i64, i64, Ptr, Ptr) = aio::io_getevents, Full;
    209 io_submit(u64, i64, Ptr) = aio::io_submit, Partial("operations are carried out at once; no IOCB_CMD_POLL; of RWF_* only RWF_NOWAIT");
    210 io_cancel(u64, Ptr, Ptr) = aio::io_cancel, Full;
    333 io_pgetevents(u64, i64, i64, Ptr, Ptr, Ptr) = aio::io_pgetevents, Full;
}

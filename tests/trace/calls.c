/* Makes every system call that has a trace point with a message of its own, with arguments that can be told apart. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define call(nr, ...) syscall(SYS_##nr, ##__VA_ARGS__)

static void reap(long pid) {
  if (pid == 0) _exit(7);
  if (pid < 0 || waitpid(pid, 0, 0) != pid) abort();
}

int main(void) {
  mkdir("/tmp/traced", 0755);
  call(chdir, "/tmp/traced");
  char name[400];
  call(uname, name);
  call(getpid);
  int dir = call(openat, AT_FDCWD, "/tmp/traced", O_RDONLY | O_DIRECTORY, 0);
  call(fchdir, dir);
  int file = call(open, "file", O_RDWR | O_CREAT, 0640);
  int created = call(creat, "created", 0600);
  call(close, created);
  call(write, file, "hello", 5);
  struct iovec v = {"world", 5};
  call(writev, file, &v, 1);
  call(pwrite64, file, "x", 1, 100);
  call(pwritev, file, &v, 1, 200, 0);
  call(pwritev2, file, &v, 1, 300, 0, 0);
  char b[64];
  struct iovec r = {b, 8};
  call(pread64, file, b, 4, 100);
  call(read, file, b, 6);
  call(readv, file, &r, 1);
  call(preadv, file, &r, 1, 200, 0);
  call(preadv2, file, &r, 1, 300, 0, 0);
  call(mmap, 0, 4096, PROT_READ, MAP_PRIVATE, file, 0);
  int copy = call(dup, file);
  call(dup2, file, 50);
  call(dup3, file, 51, O_CLOEXEC);
  call(fcntl, copy, F_SETFD, FD_CLOEXEC);
  call(close, copy);
  int ends[2];
  call(pipe, ends);
  call(pipe2, ends, O_CLOEXEC);
  call(eventfd, 3);
  call(eventfd2, 4, EFD_NONBLOCK);
  unsigned long set = 1 << (SIGUSR1 - 1);
  call(signalfd, -1, &set, 8);
  call(signalfd4, -1, &set, 8, SFD_NONBLOCK);
  int timer = call(timerfd_create, CLOCK_MONOTONIC, TFD_NONBLOCK);
  struct itimerspec when = {{1, 2}, {3000, 4}}, old;
  call(timerfd_settime, timer, 0, &when, &old);
  call(timerfd_settime, timer, 0, &when, &old);
  call(timerfd_gettime, timer, &old);
  call(inotify_init);
  int watch = call(inotify_init1, IN_NONBLOCK);
  int wd = call(inotify_add_watch, watch, "/tmp/traced", IN_CREATE);
  call(inotify_rm_watch, watch, wd);
  call(socketpair, AF_UNIX, SOCK_STREAM, 0, ends);
  int server = call(socket, AF_INET, SOCK_STREAM, 0), client = call(socket, AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in a = {AF_INET, htons(7777), {htonl(INADDR_LOOPBACK)}}, peer;
  unsigned len = sizeof peer;
  call(bind, server, &a, sizeof a);
  call(listen, server, 5);
  call(connect, client, &a, sizeof a);
  call(accept, server, &peer, &len);
  int second = call(socket, AF_INET, SOCK_STREAM, 0);
  call(connect, second, &a, sizeof a);
  call(accept4, server, 0, 0, SOCK_CLOEXEC);
  struct rlimit64 {
    unsigned long cur, max;
  } limit = {100, 200}, before;
  call(prlimit64, 0, RLIMIT_CORE, &limit, &before);
  long child;
  reap(call(fork));
  reap(vfork());  // Not by syscall(): its frame must outlive the child.
  reap(call(clone, SIGCHLD, 0, 0, 0, 0));
  if ((child = call(fork)) == 0) {
    call(setsid);
    call(ptrace, PTRACE_TRACEME, 0, 0, 0);
    _exit(0);
  }
  reap(child);
  if ((child = call(fork)) == 0) {
    char *argv[] = {"true", "one", 0}, *envp[] = {"COLOUR=blue", 0};
    call(execveat, AT_FDCWD, "/nonexistent", argv, envp, 0);
    call(execve, "/bin/true", argv, envp);
    _exit(1);
  }
  reap(child);
  if ((child = call(fork)) == 0) {
    call(chroot, "/tmp/traced");
    call(setresgid, 11, 12, 13);
    call(setgid, 12);
    call(setresuid, 21, 22, 23);
    call(setuid, 22);
    _exit(0);
  }
  reap(child);
  unlink("/tmp/traced/file");
  unlink("/tmp/traced/created");
  rmdir("/tmp/traced");
  return 0;
}

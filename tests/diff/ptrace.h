// What the tests of ptrace(2) share.
#pragma once
#include "t.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <sys/ptrace.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/user.h>

// The C library's wrapper returns what PTRACE_PEEK* reads; the system call itself stores it.
static long pt(long request, pid_t pid, unsigned long addr, unsigned long data) {
    return syscall(SYS_ptrace, request, pid, addr, data);
}
#define ADDR(p) ((unsigned long)(p))

static int stop_of(pid_t pid) {
    int status = 0;
    pid_t got;
    do got = waitpid(pid, &status, __WALL);
    while (got < 0 && errno == EINTR);
    return got == pid ? status : -1;
}
#define CHECK_STOP(pid, code) CHECK_EQ(stop_of(pid), (code) << 8 | 0x7f)
#define EVENT(e) (SIGTRAP | (e) << 8)

__attribute__((unused)) static pid_t traced(void (*body)(void)) {
    pid_t p = fork();
    if (p == 0) {
        OK(pt(PTRACE_TRACEME, 0, 0, 0));
        raise(SIGSTOP);
        body();
        _exit(0);
    }
    CHECK_STOP(p, SIGSTOP);
    return p;
}

static volatile long words[8] = {11, 22, 33};
__attribute__((unused)) static const long constant = 0x1234;

__attribute__((unused)) static void nothing(void) {}
__attribute__((unused)) static void call_getppid(void) { syscall(SYS_getppid); }
__attribute__((unused)) static void exit_by_word(void) { _exit(words[1]); }

__attribute__((unused)) static void finish(pid_t p, const char *want) {
    OK(pt(PTRACE_CONT, p, 0, 0));
    CHECK_STATUS(t_status(p), want);
}

__attribute__((unused)) static void getppid_then_5(void) { _exit(syscall(SYS_getppid) == 4242 ? 5 : 6); }

// Calls of a few lines: quotactl, process_mrelease, protection keys without a processor for them, personality, pidfd ioctls.
#include "t.h"
#include <sys/prctl.h>
#include <linux/quota.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/utsname.h>
#include <sys/timex.h>

TEST(quotactl_errors) {
    char b[200];
    t_make("f", "");
    CHECK_ERR(syscall(SYS_quotactl, QCMD(Q_GETQUOTA, 0), 0, 0, b), ENODEV);
    CHECK_ERR(syscall(SYS_quotactl, QCMD(Q_GETQUOTA, 9), 0, 0, b), EINVAL);
    CHECK_ERR(syscall(SYS_quotactl, QCMD(Q_GETQUOTA, 0), "f", 0, b), ENOTBLK);
    CHECK_ERR(syscall(SYS_quotactl, QCMD(Q_GETQUOTA, 0), "missing", 0, b), ENOENT);
    CHECK_ERR(syscall(SYS_quotactl, QCMD(Q_GETQUOTA, 0), BAD_PTR, 0, b), EFAULT);
    OK(syscall(SYS_quotactl, QCMD(Q_SYNC, 0), 0, 0, 0));
    CHECK_ERR(syscall(443, -1, QCMD(Q_GETQUOTA, 0), 0, b), EBADF);
}
TEST(mrelease) {
    pid_t p = FORK();
    if (p == 0) {
        pause();
        _exit(0);
    }
    int fd = SYS(syscall(SYS_pidfd_open, p, 0));
    CHECK_ERR(syscall(448, fd, 1), EINVAL);
    CHECK_ERR(syscall(448, fd, 0), EINVAL);
    CHECK_ERR(syscall(448, -1, 0), EBADF);
    kill(p, SIGKILL);
    long r = syscall(448, fd, 0);
    CHECK(r == 0 || errno == ESRCH);
    CHECK_STATUS(t_status(p), "signal 9");
    CHECK_ERR(syscall(448, fd, 0), ESRCH);
}
TEST(no_protection_keys) {
    char b[5000];
    char *p = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    t_slurp("/proc/cpuinfo", b, sizeof b);
    if (strstr(b, " ospke")) SKIP("the processor has them");
    CHECK_ERR(syscall(SYS_pkey_alloc, 0, 0), EINVAL);
    CHECK_ERR(syscall(SYS_pkey_free, 1), EINVAL);
    CHECK_ERR(syscall(SYS_pkey_mprotect, p, 4096, PROT_READ, 1), EINVAL);
    OK(syscall(SYS_pkey_mprotect, p, 4096, PROT_READ | PROT_WRITE, -1));
    p[0] = 1;
}
TEST(personality_bits) {
    struct utsname u;
    CHECK_CHILD({
        SYS(personality(UNAME26));
        uname(&u);
        CHECK(!strncmp(u.release, "2.6.", 4));
    });
    uname(&u);
    CHECK(strncmp(u.release, "2.6.", 4));
    CHECK_CHILD({
        SYS(personality(READ_IMPLIES_EXEC));
        char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        p[0] = '\xc3';
        ((void (*)(void))p)();
    });
}
struct info {
    unsigned long long mask, cgroup;
    unsigned pid, tgid, ppid, ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
    int exit_code;
    unsigned more[10];
};
TEST(pidfd_info) {
    struct info i = {.mask = 8};
    pid_t p = FORK();
    if (p == 0) {
        pause();
        _exit(0);
    }
    int fd = SYS(syscall(SYS_pidfd_open, p, 0));
    OK(ioctl(fd, _IOC(3, 0xff, 11, 64), &i));
    CHECK_EQ(i.mask & 0xb, 3);
    CHECK_EQ(i.pid, p);
    CHECK_EQ(i.tgid, p);
    CHECK_EQ(i.ppid, getpid());
    CHECK_EQ(i.ruid, getuid());
    CHECK_EQ(i.fsgid, getegid());
    CHECK_ERR(ioctl(fd, _IOC(3, 0xff, 11, 64), 0), EINVAL);
    CHECK_ERR(ioctl(fd, _IOC(3, 0xff, 11, 32), &i), ENOTTY);
    CHECK_ERR(ioctl(fd, _IOC(3, 0xff, 11, 64), BAD_PTR), EFAULT);
    CHECK_ERR(ioctl(0, _IOC(3, 0xff, 11, 64), &i), ENOTTY);
    memset(&i, 9, sizeof i);
    OK(ioctl(fd, _IOC(3, 0xff, 11, 100), &i));
    CHECK_EQ(i.more[7], 0);
    kill(p, SIGTERM);
    t_status(p);
    i.mask = 0;
    CHECK_ERR(ioctl(fd, _IOC(3, 0xff, 11, 64), &i), ESRCH);
    i.mask = 8;
    OK(ioctl(fd, _IOC(3, 0xff, 11, 64), &i));
    CHECK(i.mask & 8);
    CHECK_EQ(i.exit_code, SIGTERM);
}
TEST(adjtimex_reads) {
    struct timex t = {0};
    CHECK(adjtimex(&t) >= 0);
    CHECK(t.tick > 9000 && t.tick < 11000);
    t.modes = ADJ_OFFSET_SS_READ;
    CHECK(adjtimex(&t) >= 0);
}
TEST(prctl_of_huge_pages_and_memory_failures) {
    OK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    OK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
    CHECK_EQ(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 1);
    CHECK_ERR(prctl(PR_SET_THP_DISABLE, 1, 0, 1, 0), EINVAL);
    CHECK_ERR(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 1), EINVAL);
    CHECK_ERR(prctl(PR_SET_THP_DISABLE, 1, 4, 0, 0), EINVAL);
    CHECK_ERR(prctl(PR_GET_THP_DISABLE, 1, 0, 0, 0), EINVAL);
    CHECK_CHILD(CHECK_EQ(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 1));
    OK(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0));
    OK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    CHECK_EQ(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), PR_MCE_KILL_DEFAULT);
    OK(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0));
    CHECK_CHILD(CHECK_EQ(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), PR_MCE_KILL_EARLY));
    OK(prctl(PR_MCE_KILL, PR_MCE_KILL_CLEAR, 0, 0, 0));
    CHECK_EQ(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), PR_MCE_KILL_DEFAULT);
    CHECK_ERR(prctl(PR_MCE_KILL, PR_MCE_KILL_CLEAR, 1, 0, 0), EINVAL);
    CHECK_ERR(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, 3, 0, 0), EINVAL);
    CHECK_ERR(prctl(PR_MCE_KILL, 2, 0, 0, 0), EINVAL);
    CHECK_ERR(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, 0, 1, 0), EINVAL);
    OK(prctl(PR_TASK_PERF_EVENTS_DISABLE, 0, 0, 0, 0));
    OK(prctl(PR_TASK_PERF_EVENTS_ENABLE, 0, 0, 0, 0));
}

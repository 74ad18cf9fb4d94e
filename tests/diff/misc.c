// Small calls and device nodes: /dev, getrandom, uname, sysinfo, personality, arch_prctl, membarrier, rseq, System V.
#include "t.h"
#include <linux/membarrier.h>
#include <linux/rseq.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/personality.h>
#include <sys/random.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

TEST(dev_nodes) {
    struct {
        const char *name;
        int maj, min;
    } d[] = {{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};
    for (size_t i = 0; i < sizeof d / sizeof *d; i++) {
        char n[32];
        struct stat st;
        sprintf(n, "/dev/%s", d[i].name);
        OK(stat(n, &st));
        CHECK(S_ISCHR(st.st_mode));
        CHECK_EQ(major(st.st_rdev), d[i].maj);
        CHECK_EQ(minor(st.st_rdev), d[i].min);
        CHECK_EQ(st.st_mode & 0666, 0666);
    }
    struct stat st;
    OK(stat("/dev/ptmx", &st));
    CHECK(S_ISCHR(st.st_mode));
    OK(stat("/dev/shm", &st));
    CHECK_EQ(st.st_mode, S_IFDIR | 01777);
    OK(stat("/dev/pts", &st));
    CHECK(S_ISDIR(st.st_mode));
    char l[64] = "";
    CHECK(readlink("/dev/stdin", l, 63) > 0);
    CHECK_STR(l, "/proc/self/fd/0");
    memset(l, 0, sizeof l);
    CHECK(readlink("/dev/stdout", l, 63) > 0);
    CHECK_STR(l, "/proc/self/fd/1");
}
TEST(dev_null_zero_full) {
    char b[100];
    memset(b, 1, sizeof b);
    int n = SYS(open("/dev/null", O_RDWR)), z = SYS(open("/dev/zero", O_RDWR)), f = SYS(open("/dev/full", O_RDWR));
    OK(read(n, b, 100));
    CHECK_EQ(write(n, b, 100), 100);
    CHECK_EQ(read(z, b, 100), 100);
    CHECK_EQ(b[99], 0);
    CHECK_EQ(write(z, b, 100), 100);
    CHECK_EQ(read(f, b, 100), 100);
    CHECK_ERR(write(f, b, 1), ENOSPC);
    OK(lseek(n, 50, SEEK_SET));
    CHECK_ERR(read(z, BAD_PTR, 10), EFAULT);
    int t = SYS(open("/dev/null", O_WRONLY | O_TRUNC | O_CREAT, 0644));
    CHECK_EQ(write(t, "x", 1), 1);
    CHECK_ERR(ftruncate(t, 0), EINVAL);
}
TEST(dev_random) {
    unsigned char a[64], b[64];
    int r = SYS(open("/dev/urandom", O_RDWR));
    CHECK_EQ(read(r, a, 64), 64);
    CHECK_EQ(read(r, b, 64), 64);
    CHECK(memcmp(a, b, 64));
    CHECK_EQ(write(r, a, 10), 10);
    r = SYS(open("/dev/random", O_RDONLY));
    CHECK_EQ(read(r, a, 64), 64);
    int n = 0;
    OK(ioctl(r, 0x80045200 /* RNDGETENTCNT */, &n));
    CHECK(n > 0);
}
TEST(dev_shm_is_writable) {
    int fd = SYS(open("/dev/shm/t-misc", O_CREAT | O_RDWR | O_EXCL, 0600));
    CHECK_EQ(write(fd, "x", 1), 1);
    OK(unlink("/dev/shm/t-misc"));
}
TEST(getrandom_forms) {
    unsigned char a[300] = {0}, b[300] = {0};
    CHECK_EQ(getrandom(a, 300, 0), 300);
    CHECK_EQ(getrandom(b, 300, GRND_NONBLOCK | GRND_RANDOM), 300);
    CHECK(memcmp(a, b, 300));
    CHECK_EQ(getrandom(a, 0, 0), 0);
    CHECK_ERR(getrandom(a, 10, 0x100), EINVAL);
    CHECK_ERR(syscall(SYS_getrandom, BAD_PTR, 10, 0), EFAULT);
    CHECK_CHILD(unsigned char c[16]; CHECK_EQ(getrandom(c, 16, 0), 16));
    // As far as the memory goes.
    char *m = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SYS(mprotect(m + 4096, 4096, PROT_NONE));
    int sizes[] = {4, 100, 300, 5000};
    for (int i = 0; i < 4; i++) CHECK_EQ(getrandom(m + 4093, sizes[i], 0), 3);
    CHECK_EQ(getrandom(m, 8192, 0), 4096);
    CHECK_ERR(getrandom(m + 4096, 8, 0), EFAULT);
}
TEST(uname_and_hostname) {
    struct utsname u;
    OK(uname(&u));
    CHECK_STR(u.sysname, "Linux");
    CHECK_STR(u.machine, "x86_64");
    CHECK(atoi(u.release) >= 4);
    CHECK(*u.version);
    char h[65];
    OK(gethostname(h, sizeof h));
    CHECK_STR(h, u.nodename);
    CHECK_ERR(syscall(SYS_uname, BAD_PTR), EFAULT);
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(sethostname("x", 1), EPERM); CHECK_ERR(setdomainname("x", 1), EPERM));
}
TEST(sysinfo_values) {
    struct sysinfo s;
    OK(sysinfo(&s));
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    CHECK(s.uptime >= t.tv_sec - 3 && s.uptime <= t.tv_sec + 3);
    CHECK(s.totalram > 0 && s.freeram <= s.totalram);
    CHECK(s.procs >= 1);
    CHECK(s.mem_unit >= 1);
    CHECK_ERR(syscall(SYS_sysinfo, BAD_PTR), EFAULT);
    CHECK(get_nprocs() >= 1);
}
TEST(personality_forms) {
    OK(personality(0xffffffff));
    CHECK_CHILD(OK(personality(ADDR_NO_RANDOMIZE)); CHECK_EQ(personality(0xffffffff), ADDR_NO_RANDOMIZE);
                CHECK_CHILD(CHECK_EQ(personality(0xffffffff), ADDR_NO_RANDOMIZE)));
}
TEST(arch_prctl_forms) {
    unsigned long fs = 0;
    OK(syscall(SYS_arch_prctl, 0x1003 /* ARCH_GET_FS */, &fs));
    CHECK(fs != 0);
    unsigned long self;
    __asm__("mov %%fs:0, %0" : "=r"(self));
    CHECK_EQ(fs, self);
    CHECK_ERR(syscall(SYS_arch_prctl, 0x9999, 0), EINVAL);
    CHECK_ERR(syscall(SYS_arch_prctl, 0x1002, 0x8000000000000000), EPERM);
    CHECK_ERR(syscall(SYS_arch_prctl, 0x1003, BAD_PTR), EFAULT);
}
TEST(membarrier_forms) {
    long q = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    if (q < 0) {
        CHECK_EQ(errno, ENOSYS);
        return;
    }
    CHECK(q & MEMBARRIER_CMD_GLOBAL);
    OK(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0));
    CHECK_ERR(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0), EPERM);
    OK(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0));
    OK(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
    CHECK_ERR(syscall(SYS_membarrier, 1 << 30, 0, 0), EINVAL);
}
TEST(rseq_or_not) {
    // glibc registered one already; a second fails either way
    long r = syscall(SYS_rseq, 64, 32, 0, 0x12345678);
    CHECK(r < 0 && (errno == ENOSYS || errno == EINVAL || errno == EBUSY || errno == EPERM));
}
TEST(set_tid_address) {
    static int x;
    CHECK_EQ(syscall(SYS_set_tid_address, &x), gettid());
}
TEST(unimplemented_numbers) {
    for (int n = 700; n < 720; n++) CHECK_ERR(syscall(n), ENOSYS);
    CHECK_ERR(syscall(SYS_create_module), ENOSYS);
    CHECK_ERR(syscall(SYS_uselib, "x"), ENOSYS);
    CHECK_ERR(syscall(SYS_getpmsg), ENOSYS);
    CHECK_ERR(syscall(SYS_tuxcall), ENOSYS);
    CHECK_ERR(syscall(SYS_epoll_ctl_old), ENOSYS);
}
TEST(privileged_calls_are_refused) {
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(syscall(SYS_reboot, 0, 0, 0, 0), EPERM);
                CHECK_ERR(syscall(SYS_swapon, "/x", 0), EPERM));
}
TEST(sysv_shm) {
    int id = shmget(IPC_PRIVATE, 10000, IPC_CREAT | 0600);
    if (id < 0 && errno == ENOSYS) return; // comes later
    MUST(id >= 0);
    char *a = SYS((char *)shmat(id, 0, 0));
    CHECK_CHILD(strcpy(a, "shared"));
    CHECK_STR(a, "shared");
    struct shmid_ds d;
    OK(shmctl(id, IPC_STAT, &d));
    CHECK_EQ(d.shm_segsz, 10000);
    CHECK_EQ(d.shm_nattch, 1);
    OK(shmctl(id, IPC_RMID, 0));
    CHECK_STR(a, "shared");
    OK(shmdt(a));
    CHECK_ERR((long)shmat(id, 0, 0), EINVAL);
}
TEST(sysv_sem) {
    int id = semget(IPC_PRIVATE, 2, IPC_CREAT | 0600);
    if (id < 0 && errno == ENOSYS) return;
    MUST(id >= 0);
    struct sembuf up = {0, 2, 0}, down = {0, -1, 0}, nowait = {0, -5, IPC_NOWAIT};
    OK(semop(id, &up, 1));
    OK(semop(id, &down, 1));
    CHECK_EQ(semctl(id, 0, GETVAL), 1);
    CHECK_ERR(semop(id, &nowait, 1), EAGAIN);
    OK(semctl(id, 0, IPC_RMID));
    CHECK_ERR(semop(id, &up, 1), EINVAL);
}
TEST(sysv_msg) {
    int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    if (id < 0 && errno == ENOSYS) return;
    MUST(id >= 0);
    struct {
        long type;
        char text[16];
    } m = {5, "hello"}, r = {0};
    OK(msgsnd(id, &m, 6, 0));
    CHECK_EQ(msgrcv(id, &r, 16, 5, 0), 6);
    CHECK_STR(r.text, "hello");
    CHECK_ERR(msgrcv(id, &r, 16, 0, IPC_NOWAIT), ENOMSG);
    OK(msgctl(id, IPC_RMID, 0));
}
TEST(isatty_of_others) {
    t_make("f", "");
    int p[2], f = SYS(open("f", O_RDONLY));
    SYS(pipe(p));
    CHECK_ERR(isatty(f) - 1, ENOTTY);
    CHECK_ERR(isatty(p[0]) - 1, ENOTTY);
    CHECK_ERR(isatty(999) - 1, EBADF);
    CHECK_ERR(isatty(SYS(open("/dev/null", O_RDWR))) - 1, ENOTTY);
}
static int kcmp(pid_t a, pid_t b, int kind, long x, long y) { return syscall(SYS_kcmp, a, b, kind, x, y); }
TEST(kcmp_forms) {
    pid_t me = getpid();
    int fd = SYS(open("/dev/null", O_RDONLY)), same = SYS(dup(fd)), other = SYS(open("/dev/null", O_RDONLY));
    CHECK_EQ(kcmp(me, me, 0, fd, same), 0);
    int less = SYS(kcmp(me, me, 0, fd, other));
    CHECK(less == 1 || less == 2);
    CHECK_EQ(kcmp(me, me, 0, other, fd), 3 - less);
    CHECK_EQ(kcmp(me, me, 0, fd, other), less);
    CHECK_ERR(kcmp(me, me, 0, fd, 999), EBADF);
    CHECK_ERR(kcmp(me, me, 0, -1, fd), EBADF);
    CHECK_ERR(kcmp(me, me, 77, 0, 0), EINVAL);
    CHECK_ERR(kcmp(me, 0x3ffffff, 1, 0, 0), ESRCH);
    for (int kind = 1; kind < 7; kind++) CHECK_EQ(kcmp(me, me, kind, 0, 0), 0);
    pid_t child = FORK();
    if (!child) {
        pause();
        _exit(0);
    }
    CHECK_EQ(kcmp(me, child, 0, fd, fd), 0);
    for (int kind = 1; kind < 5; kind++) CHECK(kcmp(me, child, kind, 0, 0) > 0);
    SYS(kill(child, SIGKILL));
    SYS(waitpid(child, 0, 0));
    CHECK_ERR(kcmp(me, child, 1, 0, 0), ESRCH);
}
TEST(sysfs_forms) {
    int n = SYS(syscall(SYS_sysfs, 3));
    CHECK(n > 3);
    char name[64];
    int proc = SYS(syscall(SYS_sysfs, 1, "proc"));
    OK(syscall(SYS_sysfs, 2, proc, name));
    CHECK_STR(name, "proc");
    CHECK_ERR(syscall(SYS_sysfs, 1, "no such type"), EINVAL);
    CHECK_ERR(syscall(SYS_sysfs, 1, BAD_PTR), EFAULT);
    CHECK_ERR(syscall(SYS_sysfs, 2, n + 1000, name), EINVAL);
    CHECK_ERR(syscall(SYS_sysfs, 2, proc, BAD_PTR), EFAULT);
    CHECK_ERR(syscall(SYS_sysfs, 4), EINVAL);
}

// Long requests are served in pieces: they can be killed, interrupted, and end where memory ends.
TEST(getrandom_of_gigabytes) {
    size_t size = 0x7fffffff;
    char *m = SYS(mmap(0, size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    pid_t p = FORK();
    if (p == 0) {
        for (;;) getrandom(m, size, 0);
    }
    t_ms(150);
    long long start = t_now_ms();
    kill(p, SIGKILL);
    CHECK_STATUS(t_status(p), "signal 9");
    CHECK(t_now_ms() - start < 2500);
    SYS(munmap(m, size + 1));
    m = SYS(mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    SYS(munmap(m + (1 << 19), 1 << 19));
    CHECK_EQ(getrandom(m, 1 << 20, 0), 1 << 19);
    CHECK_ERR(getrandom(m + (1 << 19), 1 << 19, 0), EFAULT);
    CHECK_ERR(getrandom(m + (1 << 19), 1, 0), EFAULT);
    CHECK_EQ(getrandom(m, 0, 0), 0);
}
TEST(getrandom_is_interrupted) {
    size_t size = 512 << 20;
    char *m = SYS(mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    t_pester(SA_RESTART);
    ssize_t n = getrandom(m, size, 0);
    t_pester_stop();
    CHECK(n > 0 && n < (ssize_t)size);
}

// Time namespaces: time_namespaces(7).
#include "ns.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sys/sysinfo.h>
#include <sys/timerfd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#define S 1000000000LL
#define OFFSETS "/proc/self/timens_offsets"

static long long ns(struct timespec t) { return t.tv_sec * S + t.tv_nsec; }
static struct timespec spec(long long t) { return (struct timespec){t / S, t % S}; }
static long long now(clockid_t c) {
    struct timespec t;
    SYS(clock_gettime(c, &t));
    return ns(t);
}
// Past the vDSO.
static long long call(clockid_t c) {
    struct timespec t;
    SYS(syscall(SYS_clock_gettime, c, &t));
    return ns(t);
}
static ino_t inode(const char *path) {
    struct stat st;
    SYS(stat(path, &st));
    return st.st_ino;
}
static bool near(long long a, long long b) { return a - b < 5 * S && b - a < 5 * S; }
// A new namespace for children, with these offsets.
static void offsets(const char *text) {
    SYS(unshare(CLONE_NEWTIME));
    SYS(put(OFFSETS, text));
}
static long long before, before_boot;
static void enter(const char *text) {
    before = now(CLOCK_MONOTONIC), before_boot = now(CLOCK_BOOTTIME);
    offsets(text);
}

TEST(unshare_is_for_children) {
    ino_t own = inode("/proc/self/ns/time");
    CHECK_EQ(inode("/proc/self/ns/time_for_children"), own);
    OK(unshare(CLONE_NEWTIME));
    CHECK_EQ(inode("/proc/self/ns/time"), own);
    ino_t next = inode("/proc/self/ns/time_for_children");
    CHECK(next != own);
    CHECK_CHILD(CHECK_EQ(inode("/proc/self/ns/time"), next); CHECK_EQ(inode("/proc/self/ns/time_for_children"), next));
    char link[64] = {0};
    SYS(readlink("/proc/self/ns/time_for_children", link, 63));
    CHECK(!strncmp(link, "time:[", 6));
    int fd = SYS(open("/proc/self/ns/time_for_children", O_RDONLY));
    CHECK_EQ(ioctl(fd, 0xb703), CLONE_NEWTIME); // NS_GET_NSTYPE
    CHECK_ERR(ioctl(fd, 0xb702), EINVAL);       // NS_GET_PARENT
}

TEST(permission) {
    CHECK_CHILD(become(1000); CHECK_ERR(unshare(CLONE_NEWTIME), EPERM));
    CHECK_CHILD(become(1000); own_namespaces(CLONE_NEWTIME); OK(put(OFFSETS, "monotonic 5 0"));
                CHECK(strstr(get(OFFSETS), "monotonic           5         0")));
}

TEST(offsets_text) {
    CHECK(!strcmp(get(OFFSETS), "monotonic           0         0\nboottime            0         0\n"));
    OK(unshare(CLONE_NEWTIME));
    OK(put(OFFSETS, "monotonic 86400 7\nboottime 172800 0\n"));
    CHECK(!strcmp(get(OFFSETS), "monotonic       86400         7\nboottime       172800         0\n"));
    OK(put(OFFSETS, "1 -1 500000000"));
    OK(put(OFFSETS, "7 3 0\n"));
    CHECK(!strcmp(get(OFFSETS), "monotonic          -1 500000000\nboottime            3         0\n"));
    CHECK_ERR(put(OFFSETS, "realtime 1 0"), EINVAL);
    CHECK_ERR(put(OFFSETS, "monotonic 1"), EINVAL);
    CHECK_ERR(put(OFFSETS, "monotonic x 0"), EINVAL);
    CHECK_ERR(put(OFFSETS, "monotonic 1 1000000000"), EINVAL);
    CHECK_ERR(put(OFFSETS, "0 1 0"), EINVAL);
    CHECK_ERR(put(OFFSETS, "monotonic 9223372037 0"), ERANGE);
    CHECK_ERR(put(OFFSETS, "monotonic 4611686018 0"), ERANGE);
    CHECK_ERR(put(OFFSETS, "monotonic -9223372037 0"), ERANGE);
    CHECK_ERR(put(OFFSETS, "boottime -999999999 0"), ERANGE);
    // Nothing of a refused text is taken.
    CHECK_ERR(put(OFFSETS, "monotonic 77 0\nboottime -999999999 0"), ERANGE);
    CHECK(!strcmp(get(OFFSETS), "monotonic          -1 500000000\nboottime            3         0\n"));
    char long_text[5000];
    memset(long_text, ' ', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    CHECK_ERR(put(OFFSETS, long_text), EINVAL);
    int fd = SYS(open(OFFSETS, O_WRONLY));
    // Two lines at most are taken by one call.
    CHECK_EQ(write(fd, "1 1 0\n7 1 0\n1 2 0\n", 18), 12);
    CHECK(!strcmp(get(OFFSETS), "monotonic           1         0\nboottime            1         0\n"));
    CHECK_EQ(write(fd, "7 5 0", 5), 5);
    CHECK(strstr(get(OFFSETS), "boottime            5         0"));
}

TEST(offsets_freeze) {
    CHECK_ERR(put(OFFSETS, "monotonic 1 0"), EACCES);
    offsets("monotonic 1 0");
    CHECK_CHILD(CHECK_ERR(put(OFFSETS, "monotonic 2 0"), EACCES));
    CHECK_ERR(put(OFFSETS, "monotonic 2 0"), EACCES);
    // A new one begins with the offsets of the last, and may be changed.
    OK(unshare(CLONE_NEWTIME));
    CHECK(strstr(get(OFFSETS), "monotonic           1         0"));
    OK(put(OFFSETS, "monotonic 2 0"));
    int fd = SYS(open(OFFSETS, O_RDWR));
    CHECK_CHILD(become(1000); CHECK_ERR(put(OFFSETS, "monotonic 3 0"), EPERM));
    close(fd);
}

TEST(clocks) {
    enter("monotonic 100000 500000000\nboottime 2000000 0");
    long long off = 100000 * S + S / 2, boot = 2000000 * S, real = now(CLOCK_REALTIME);
    CHECK(near(now(CLOCK_MONOTONIC), before));
    CHECK_CHILD({
        clockid_t with[] = {CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_COARSE};
        for (int i = 0; i < 3; i++) {
            if (with[i] != CLOCK_MONOTONIC_RAW) CHECK(near(now(with[i]), before + off));
            CHECK(near(call(with[i]), now(with[i])));
        }
        CHECK(now(CLOCK_MONOTONIC_RAW) > off);
        CHECK(near(now(CLOCK_BOOTTIME), before_boot + boot));
        CHECK(near(call(CLOCK_BOOTTIME), before_boot + boot));
        CHECK(near(now(CLOCK_REALTIME), real));
        CHECK(near(time(0) * S, real));
        struct timeval tv;
        SYS(gettimeofday(&tv, 0));
        CHECK(near(tv.tv_sec * S, real));
        struct timespec t;
        OK(clock_getres(CLOCK_MONOTONIC, &t));
        CHECK_EQ(t.tv_nsec, 1);
        // And again in a child of the child, and after exec.
        CHECK_CHILD(CHECK(near(now(CLOCK_BOOTTIME), before_boot + boot)));
    });
    CHECK(near(now(CLOCK_MONOTONIC), before));
    CHECK(near(now(CLOCK_BOOTTIME), before_boot));
}

TEST(negative) {
    enter("monotonic -5 0\nboottime -7 0");
    CHECK_CHILD({
        CHECK(now(CLOCK_MONOTONIC) < before + 1 * S);
        CHECK(now(CLOCK_MONOTONIC) >= before - 5 * S);
        CHECK(now(CLOCK_BOOTTIME) < before_boot + 1 * S);
    });
}

TEST(after_exec) {
    enter("monotonic 300000 0\nboottime 300000 0");
    ino_t next = inode("/proc/self/ns/time_for_children");
    pid_t p = FORK();
    if (p == 0) {
        SYS(dup2(SYS(open("out", O_CREAT | O_WRONLY, 0600)), 1));
        execlp("cat", "cat", "/proc/uptime", NULL);
        _exit(1);
    }
    wait_for(p);
    CHECK(near(atof(get("out")) * S, before_boot + 300000 * S));
    // exec enters the namespace for children; a vfork child stays outside before.
    p = vfork();
    if (p == 0) {
        if (inode("/proc/self/ns/time") == next) _exit(3);
        char self[32];
        execlp("sh", "sh", "-c", "exec stat -Lc %i /proc/self/ns/time > ino", NULL);
        (void)self;
        _exit(1);
    }
    wait_for(p);
    CHECK_EQ((ino_t)strtoull(get("ino"), 0, 10), next);
}

TEST(join) {
    int own = SYS(open("/proc/self/ns/time", O_RDONLY));
    enter("monotonic 100000 0\nboottime 200000 0");
    int fd = SYS(open("/proc/self/ns/time_for_children", O_RDONLY));
    CHECK_ERR(setns(fd, CLONE_NEWNET), EINVAL);
    OK(setns(fd, CLONE_NEWTIME));
    CHECK(near(now(CLOCK_MONOTONIC), before + 100000 * S));
    CHECK(near(now(CLOCK_BOOTTIME), before_boot + 200000 * S));
    CHECK_ERR(put(OFFSETS, "monotonic 2 0"), EACCES);
    OK(setns(own, 0));
    CHECK(near(now(CLOCK_MONOTONIC), before));
    CHECK(near(now(CLOCK_BOOTTIME), before_boot));
    CHECK_EQ(inode("/proc/self/ns/time"), inode("/proc/self/ns/time_for_children"));
    CHECK_CHILD(become(1000); CHECK_ERR(setns(fd, 0), EPERM));
}

static void *sleeper(void *arg) {
    pause();
    return 0;
}

TEST(join_with_threads) {
    SYS(unshare(CLONE_NEWTIME));
    int fd = SYS(open("/proc/self/ns/time_for_children", O_RDONLY));
    pthread_t t;
    pthread_create(&t, 0, sleeper, 0);
    CHECK_ERR(setns(fd, 0), EUSERS);
    // unshare(2) is for any of them, as it is for children only.
    OK(unshare(CLONE_NEWTIME));
}

TEST(join_process) {
    enter("monotonic 100000 0");
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        t_pass(g);
        _exit(0);
    }
    int fd = SYS(syscall(SYS_pidfd_open, p, 0));
    OK(setns(fd, CLONE_NEWTIME));
    CHECK(near(now(CLOCK_MONOTONIC), before + 100000 * S));
    t_open(g);
    wait_for(p);
}

TEST(clone3_new) {
    ino_t own = inode("/proc/self/ns/time");
    struct { unsigned long long flags, pidfd, child, parent, signal, stack, size, tls; } a = {.flags = CLONE_NEWTIME, .signal = SIGCHLD};
    pid_t p = SYS(syscall(SYS_clone3, &a, sizeof a));
    if (p == 0) {
        CHECK(inode("/proc/self/ns/time") != own);
        CHECK_EQ(inode("/proc/self/ns/time"), inode("/proc/self/ns/time_for_children"));
        CHECK_ERR(put(OFFSETS, "monotonic 1 0"), EACCES);
        _exit(0);
    }
    wait_for(p);
    CHECK_EQ(inode("/proc/self/ns/time_for_children"), own);
    a.signal = 0x81;
    CHECK_ERR(syscall(SYS_clone3, &a, sizeof a), EINVAL);
}

TEST(sleep_and_timers) {
    enter("monotonic 100000 0\nboottime 200000 0");
    CHECK_CHILD({
        clockid_t c[] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME};
        for (int i = 0; i < 2; i++) {
            long long start = now(c[i]);
            struct timespec at = spec(start + S / 10);
            CHECK_EQ(clock_nanosleep(c[i], TIMER_ABSTIME, &at, 0), 0);
            long long took = now(c[i]) - start;
            CHECK(took >= S / 10 && took < 5 * S);
            // A moment of the host is long ago.
            at = spec(i ? before_boot + 50 * S : before + 50 * S);
            start = now(c[i]);
            CHECK_EQ(clock_nanosleep(c[i], TIMER_ABSTIME, &at, 0), 0);
            CHECK(now(c[i]) - start < 5 * S);

            int fd = SYS(timerfd_create(c[i], 0));
            start = now(c[i]);
            struct itimerspec set = {.it_value = spec(start + S / 10)}, got;
            OK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &set, 0));
            OK(timerfd_gettime(fd, &got));
            CHECK(ns(got.it_value) > 0 && ns(got.it_value) <= S / 10);
            unsigned long long n = 0;
            CHECK_EQ(read(fd, &n, 8), 8);
            CHECK_EQ(n, 1);
            took = now(c[i]) - start;
            CHECK(took >= S / 10 && took < 5 * S);

            sigset_t m;
            sigemptyset(&m);
            sigaddset(&m, SIGALRM);
            SYS(sigprocmask(SIG_BLOCK, &m, 0));
            timer_t id;
            SYS(timer_create(c[i], 0, &id));
            start = now(c[i]);
            set.it_value = spec(start + S / 10);
            OK(timer_settime(id, TIMER_ABSTIME, &set, 0));
            OK(timer_gettime(id, &got));
            CHECK(ns(got.it_value) > 0 && ns(got.it_value) <= S / 10);
            struct timespec most = {5, 0};
            CHECK_EQ(sigtimedwait(&m, 0, &most), SIGALRM);
            took = now(c[i]) - start;
            CHECK(took >= S / 10 && took < 5 * S);
            timer_delete(id);
        }
    });
}

TEST(futexes) {
    enter("monotonic 100000 0");
    CHECK_CHILD({
        int word = 0, op[] = {FUTEX_WAIT_BITSET, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG};
        for (int i = 0; i < 2; i++) {
            long long start = now(CLOCK_MONOTONIC);
            struct timespec at = spec(start + S / 10);
            CHECK_ERR(syscall(SYS_futex, &word, op[i], 0, &at, 0, ~0), ETIMEDOUT);
            CHECK(now(CLOCK_MONOTONIC) - start >= S / 10);
            CHECK(now(CLOCK_MONOTONIC) - start < 5 * S);
            at = spec(before + 50 * S);
            start = now(CLOCK_MONOTONIC);
            CHECK_ERR(syscall(SYS_futex, &word, op[i], 0, &at, 0, ~0), ETIMEDOUT);
            CHECK(now(CLOCK_MONOTONIC) - start < 5 * S);
            at = spec(0);
            CHECK_ERR(syscall(SYS_futex, &word, op[i], 0, &at, 0, ~0), ETIMEDOUT);
            CHECK_ERR(syscall(SYS_futex, &word, op[i], 1, &at, 0, ~0), EAGAIN);
            CHECK_ERR(syscall(SYS_futex, &word, op[i], 0, BAD_PTR, 0, ~0), EFAULT);
            at = (struct timespec){-1, 0};
            CHECK_ERR(syscall(SYS_futex, &word, op[i], 0, &at, 0, ~0), EINVAL);
            at = (struct timespec){1, S};
            CHECK_ERR(syscall(SYS_futex, &word, op[i], 0, &at, 0, ~0), EINVAL);
        }
        long long start = now(CLOCK_REALTIME);
        struct timespec at = spec(start + S / 10);
        CHECK_ERR(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &at, 0, ~0), ETIMEDOUT);
        CHECK(now(CLOCK_REALTIME) - start >= S / 10);
        at = spec(S / 10);
        CHECK_ERR(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &at, 0, 0), ETIMEDOUT);
        struct { unsigned long long val, addr; unsigned flags, pad; } w = {0, (unsigned long)&word, 2, 0};
        start = now(CLOCK_MONOTONIC), at = spec(start + S / 10);
        CHECK_ERR(syscall(449, &w, 1, 0, &at, CLOCK_MONOTONIC), ETIMEDOUT);
        CHECK(now(CLOCK_MONOTONIC) - start >= S / 10);
        CHECK(now(CLOCK_MONOTONIC) - start < 5 * S);
        start = now(CLOCK_MONOTONIC), at = spec(start + S / 10);
        CHECK_ERR(syscall(455, &word, 0UL, ~0U, 2, &at, CLOCK_MONOTONIC), ETIMEDOUT);
        CHECK(now(CLOCK_MONOTONIC) - start >= S / 10);
        CHECK(now(CLOCK_MONOTONIC) - start < 5 * S);

        pthread_condattr_t attr;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_t cond;
        pthread_cond_init(&cond, &attr);
        pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        pthread_mutex_lock(&mutex);
        start = now(CLOCK_MONOTONIC), at = spec(start + S / 10);
        CHECK_EQ(pthread_cond_timedwait(&cond, &mutex, &at), ETIMEDOUT);
        CHECK(now(CLOCK_MONOTONIC) - start >= S / 10);
        CHECK(now(CLOCK_MONOTONIC) - start < 5 * S);
    });
}

static volatile int hits;
static void on(int s) { hits++; }

TEST(futex_and_signals) {
    enter("monotonic 100000 0");
    CHECK_CHILD({
        struct sigaction sa = {.sa_handler = on, .sa_flags = SA_RESTART};
        SYS(sigaction(SIGALRM, &sa, 0));
        struct itimerval every = {{0, 20000}, {0, 20000}};
        SYS(setitimer(ITIMER_REAL, &every, 0));
        int word = 0;
        long long start = now(CLOCK_MONOTONIC);
        struct timespec at = spec(start + S / 5);
        int r = 0;
        while ((r = syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 0, &at, 0, ~0)) < 0 && errno == EINTR) {}
        CHECK_EQ(errno, ETIMEDOUT);
        CHECK(now(CLOCK_MONOTONIC) - start >= S / 5);
        CHECK(now(CLOCK_MONOTONIC) - start < 5 * S);
        CHECK(hits > 1);
    });
}

static long long stat_field(const char *path, int n) {
    char *at = strrchr(get(path), ')');
    for (n -= 2; at && n > 0; n--) at = strchr(at + 1, ' ');
    return at ? atoll(at + 1) : -1;
}

TEST(uptime) {
    struct sysinfo i;
    SYS(sysinfo(&i));
    char *at = strstr(get("/proc/stat"), "btime ");
    long long btime = at ? atoll(at + 6) : 0, host = i.uptime;
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        t_pass(g);
        _exit(0);
    }
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/stat", p);
    long long started = stat_field(path, 22) / 100;
    enter("boottime 1000000 0");
    CHECK_CHILD({
        struct sysinfo k;
        SYS(sysinfo(&k));
        CHECK(k.uptime >= host + 1000000 && k.uptime <= host + 1000010);
        long long up = atoll(get("/proc/uptime"));
        CHECK(up >= host + 999999 && up <= host + 1000010);
        char *b = strstr(get("/proc/stat"), "btime ");
        long long moved = b ? atoll(b + 6) - btime : 0;
        CHECK(moved >= -1000001 && moved <= -999999);
        long long s = stat_field(path, 22) / 100 - started;
        CHECK(s >= 999999 && s <= 1000001);
    });
    t_open(g);
    wait_for(p);
}

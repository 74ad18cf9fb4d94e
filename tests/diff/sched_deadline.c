// SCHED_DEADLINE: what sched_setattr takes, and what follows from it. See sched(7).
#include "t.h"
#include <sched.h>
#include <sys/resource.h>

enum { DEADLINE = 6 };
struct attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
    uint32_t util[2];
};
static long set(uint64_t runtime, uint64_t deadline, uint64_t period, uint64_t flags) {
    struct attr a = {.size = sizeof a, .policy = DEADLINE, .flags = flags, .runtime = runtime, .deadline = deadline, .period = period};
    return syscall(SYS_sched_setattr, 0, &a, 0);
}
#define MS 1000000ull
// In a child: a thread of this kind makes no other one.
#define ROOT_CHILD(...)                                                                                                \
    if (geteuid() != 0) SKIP("not root");                                                                              \
    CHECK_CHILD(__VA_ARGS__)

TEST(parameters) {
    ROOT_CHILD({
        OK(set(10 * MS, 30 * MS, 30 * MS, 0));
        struct attr a = {0};
        OK(syscall(SYS_sched_getattr, 0, &a, sizeof a, 0));
        CHECK_EQ(a.policy, DEADLINE);
        CHECK_EQ(a.runtime, 10 * MS);
        CHECK_EQ(a.deadline, 30 * MS);
        CHECK_EQ(a.period, 30 * MS);
        CHECK_EQ(a.nice, 0);
        CHECK_EQ(a.flags, 0);
        CHECK_EQ(syscall(SYS_sched_getscheduler, 0), DEADLINE);
        // The period is the deadline, unless given.
        OK(set(10 * MS, 20 * MS, 0, 2));
        OK(syscall(SYS_sched_getattr, 0, &a, sizeof a, 0));
        CHECK_EQ(a.period, 20 * MS);
        CHECK_EQ(a.flags, 2);
        CHECK_ERR(set(1023, 20 * MS, 0, 0), EINVAL);
        CHECK_ERR(set(30 * MS, 20 * MS, 0, 0), EINVAL);
        CHECK_ERR(set(10 * MS, 30 * MS, 20 * MS, 0), EINVAL);
        CHECK_ERR(set(5000, 99999, 0, 0), EINVAL);
        CHECK_ERR(set(10 * MS, 5000 * MS, 0, 0), EINVAL);
        CHECK_ERR(set(10 * MS, 0, 0, 0), EINVAL);
        CHECK_ERR(set(1ull << 63, 1ull << 63, 0, 0), EINVAL);
        a = (struct attr){.size = sizeof a, .policy = DEADLINE, .priority = 1, .runtime = 10 * MS, .deadline = 30 * MS};
        CHECK_ERR(syscall(SYS_sched_setattr, 0, &a, 0), EINVAL);
        struct sched_param zero = {0};
        CHECK_ERR(syscall(SYS_sched_setscheduler, 0, DEADLINE, &zero), EINVAL);
        CHECK_ERR(syscall(SYS_sched_setparam, 0, &zero), EINVAL);
        OK(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &zero));
        OK(syscall(SYS_sched_getattr, 0, &a, sizeof a, 0));
        CHECK_EQ(a.policy, SCHED_OTHER);
        CHECK_EQ(a.deadline, 0);
    });
}
TEST(rights) {
    ROOT_CHILD({
        cpu_set_t all, one;
        OK(sched_getaffinity(0, sizeof all, &all));
        if (CPU_COUNT(&all) > 1) {
            CPU_ZERO(&one);
            for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
                if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
            OK(sched_setaffinity(0, sizeof one, &one));
            CHECK_ERR(set(10 * MS, 30 * MS, 0, 0), EPERM);
            OK(sched_setaffinity(0, sizeof all, &all));
            OK(set(10 * MS, 30 * MS, 0, 0));
            CHECK_ERR(sched_setaffinity(0, sizeof one, &one), EBUSY);
        }
        struct sched_param zero = {0};
        OK(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &zero));
        SYS(setuid(1234));
        CHECK_ERR(set(10 * MS, 30 * MS, 0, 0), EPERM);
        CHECK_ERR(set(10 * MS, 5 * MS, 0, 0), EINVAL);
    });
}
TEST(children) {
    ROOT_CHILD({
        OK(set(10 * MS, 30 * MS, 0, 0));
        CHECK_ERR(fork(), EAGAIN);
        OK(set(10 * MS, 30 * MS, 0, 1));
        CHECK_CHILD(CHECK_EQ(syscall(SYS_sched_getscheduler, 0), SCHED_OTHER));
        CHECK_EQ(syscall(SYS_sched_getscheduler, 0), DEADLINE | 0x40000000);
    });
}
TEST(bandwidth) {
    ROOT_CHILD({
        // All processors together give 95% of themselves.
        int n = sysconf(_SC_NPROCESSORS_ONLN), given = 0;
        int ends[2];
        SYS(pipe(ends));
        for (int i = 0; i <= n; i++) {
            int got[2];
            SYS(pipe(got));
            pid_t p = SYS(fork());
            if (p == 0) {
                char r = set(900 * MS / 10, 100 * MS, 0, 0) ? errno : 0;
                if (write(got[1], &r, 1) != 1 || read(ends[0], &r, 1) != 1) _exit(1);
                _exit(0);
            }
            char r = 0;
            CHECK_EQ(read(got[0], &r, 1), 1);
            if (r == 0) given++;
            else CHECK_EQ(r, EBUSY);
        }
        // Another test may have a reservation of a third of one.
        CHECK(given == n || given == n - 1);
        CHECK_EQ(write(ends[1], "12345678901234567890123456789012", n + 1), n + 1);
        while (wait(0) > 0);
    });
}
TEST(seen_in_proc) {
    ROOT_CHILD({
        OK(setpriority(PRIO_PROCESS, 0, 3));
        OK(set(10 * MS, 30 * MS, 0, 0));
        char text[1024];
        t_slurp("/proc/self/stat", text, sizeof text);
        long f[40];
        char *at = strrchr(text, ')') + 3;
        for (int i = 0; i < 39; i++) f[i] = strtol(at, &at, 10);
        // Priority, nice value, real-time priority, policy.
        CHECK_EQ(f[14], -101);
        CHECK_EQ(f[15], 3);
        CHECK_EQ(f[36], 0);
        CHECK_EQ(f[37], DEADLINE);
    });
}

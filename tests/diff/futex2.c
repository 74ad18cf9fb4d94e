// futex_waitv, futex_wake, futex_wait, futex_requeue; membarrier.
#include "t.h"
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>

#ifndef FUTEX2_SIZE_U32
#define FUTEX2_SIZE_U32 2
#define FUTEX2_PRIVATE FUTEX_PRIVATE_FLAG
#endif
#define U32P (FUTEX2_SIZE_U32 | FUTEX2_PRIVATE)
struct waitv { unsigned long long val, uaddr; unsigned flags, reserved; };

static long waitv(struct waitv *w, unsigned n, unsigned flags, const void *end, int clock) { return syscall(449, w, n, flags, end, clock); }
static long fwake(volatile void *a, unsigned long mask, int n, unsigned flags) { return syscall(454, a, mask, n, flags); }
static long fwait(volatile void *a, unsigned long v, unsigned long mask, unsigned flags, const void *end, int clock) { return syscall(455, a, v, mask, flags, end, clock); }
static long frequeue(struct waitv *w, unsigned flags, int wake, int requeue) { return syscall(456, w, flags, wake, requeue); }
static struct timespec after(int clock, int ms) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms * 1000000L;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

TEST(wait_errors) {
    volatile int f = 1;
    struct timespec bad = {0, 1000000000}, soon = after(CLOCK_MONOTONIC, 5), real = after(CLOCK_REALTIME, 5);
    CHECK_ERR(fwait(&f, 2, -1u, U32P, 0, 0), EAGAIN);
    CHECK_ERR(fwait(&f, 1, -1u, U32P, &soon, CLOCK_MONOTONIC), ETIMEDOUT);
    CHECK_ERR(fwait(&f, 1, -1u, FUTEX2_SIZE_U32, &real, CLOCK_REALTIME), ETIMEDOUT);
    CHECK_ERR(fwait(&f, 1, -1u, U32P, &bad, CLOCK_MONOTONIC), EINVAL);
    CHECK_ERR(fwait(&f, 1, -1u, U32P, &soon, CLOCK_BOOTTIME), EINVAL);
    CHECK_ERR(fwait(&f, 1, -1u, U32P, BAD_PTR, CLOCK_MONOTONIC), EFAULT);
    CHECK_ERR(fwait(&f, 1, 0, U32P, 0, 0), EINVAL);
    CHECK_ERR(fwait(&f, 1, -1u, 0, 0, 0), EINVAL);
    CHECK_ERR(fwait(&f, 1, -1u, 3 | FUTEX2_PRIVATE, 0, 0), EINVAL);
    CHECK_ERR(fwait(&f, 1, -1u, 0x100 | U32P, 0, 0), EINVAL);
    CHECK_ERR(fwait(&f, 1ul << 32, -1u, U32P, 0, 0), EINVAL);
    CHECK_ERR(fwait((char *)&f + 1, 1, -1u, U32P, 0, 0), EINVAL);
    CHECK_ERR(fwait(BAD_PTR, 1, -1u, U32P, 0, 0), EFAULT);
}
TEST(wake_errors) {
    volatile int f = 1;
    OK(fwake(&f, -1u, 1, U32P));
    OK(fwake(&f, -1u, 1, FUTEX2_SIZE_U32));
    CHECK_ERR(fwake(&f, -1u, 1, 1 | FUTEX2_PRIVATE), EINVAL);
    CHECK_ERR(fwake(&f, -1u, 1, 0x40 | U32P), EINVAL);
    CHECK_ERR(fwake(&f, 0, 1, U32P), EINVAL);
    CHECK_ERR(fwake((char *)&f + 2, -1u, 1, U32P), EINVAL);
    CHECK_ERR(fwake(BAD_PTR, -1u, 1, FUTEX2_SIZE_U32), EFAULT);
}
TEST(waitv_errors) {
    volatile int f = 1;
    struct waitv w[2] = {{1, (unsigned long)&f, U32P, 0}, {1, (unsigned long)&f, U32P, 0}};
    struct timespec soon = after(CLOCK_MONOTONIC, 5);
    CHECK_ERR(waitv(w, 2, 0, &soon, CLOCK_MONOTONIC), ETIMEDOUT);
    CHECK_ERR(waitv(w, 2, 1, 0, 0), EINVAL);
    CHECK_ERR(waitv(w, 0, 0, 0, 0), EINVAL);
    CHECK_ERR(waitv(w, 129, 0, 0, 0), EINVAL);
    CHECK_ERR(waitv(0, 1, 0, 0, 0), EINVAL);
    CHECK_ERR(waitv(BAD_PTR, 1, 0, 0, 0), EFAULT);
    CHECK_ERR(waitv(w, 2, 0, &soon, CLOCK_PROCESS_CPUTIME_ID), EINVAL);
    w[1].reserved = 1;
    CHECK_ERR(waitv(w, 2, 0, 0, 0), EINVAL);
    w[1].reserved = 0, w[1].flags = 0;
    CHECK_ERR(waitv(w, 2, 0, 0, 0), EINVAL);
    w[1].flags = U32P, w[1].val = 2;
    CHECK_ERR(waitv(w, 2, 0, 0, 0), EAGAIN);
    w[1].uaddr = (unsigned long)BAD_PTR;
    CHECK_ERR(waitv(w, 2, 0, 0, 0), EFAULT);
}
static volatile int words[3], ready;
static unsigned kind;
static void *wait_many(void *a) {
    struct waitv w[3];
    for (int i = 0; i < 3; i++) w[i] = (struct waitv){0, (unsigned long)&words[i], kind, 0};
    ready = 1;
    return (void *)waitv(w, 3, 0, 0, 0);
}
static void wake_second(unsigned flags) {
    kind = flags, ready = 0;
    pthread_t t;
    OK(pthread_create(&t, 0, wait_many, 0));
    long n;
    while ((n = fwake(&words[1], -1u, 1, flags)) == 0) t_ms(1);
    CHECK_EQ(n, 1);
    void *r;
    OK(pthread_join(t, &r));
    CHECK_EQ((long)r, 1);
}
TEST(waitv_wakes) {
    wake_second(U32P);
    wake_second(FUTEX2_SIZE_U32);
}
static void *wait_one(void *a) {
    long r;
    do
        r = fwait(&words[0], 0, (unsigned long)a, U32P, 0, 0);
    while (r < 0 && errno == EINTR);
    return (void *)r;
}
TEST(wake_and_futex_agree) {
    pthread_t t;
    OK(pthread_create(&t, 0, wait_one, (void *)2));
    t_ms(20);
    OK(fwake(&words[0], 1, 1, U32P));
    while (syscall(SYS_futex, &words[0], FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0, 0, 0) == 0) t_ms(1);
    void *r;
    OK(pthread_join(t, &r));
    CHECK_EQ((long)r, 0);
}
TEST(requeue) {
    pthread_t t;
    struct waitv w[2] = {{0, (unsigned long)&words[0], U32P, 0}, {0, (unsigned long)&words[1], U32P, 0}};
    CHECK_ERR(frequeue(w, 1, 0, 1), EINVAL);
    CHECK_ERR(frequeue(0, 0, 0, 1), EINVAL);
    CHECK_ERR(frequeue(BAD_PTR, 0, 0, 1), EFAULT);
    OK(pthread_create(&t, 0, wait_one, (void *)1));
    long n;
    while ((n = frequeue(w, 0, 0, 1)) == 0) t_ms(1);
    CHECK_EQ(n, 1);
    OK(fwake(&words[0], -1u, 1, U32P));
    CHECK_EQ(fwake(&words[1], -1u, 1, U32P), 1);
    OK(pthread_join(t, 0));
    words[0] = 5;
    CHECK_ERR(frequeue(w, 0, 0, 1), EAGAIN);
}
TEST(signals) {
    struct waitv w = {0, (unsigned long)&words[0], U32P, 0};
    t_pester(0);
    CHECK_ERR(waitv(&w, 1, 0, 0, 0), EINTR);
    CHECK_ERR(fwait(&words[0], 0, -1u, U32P, 0, 0), EINTR);
    t_pester(SA_RESTART);
    struct timespec end = after(CLOCK_MONOTONIC, 60);
    CHECK_ERR(waitv(&w, 1, 0, &end, CLOCK_MONOTONIC), ETIMEDOUT);
    end = after(CLOCK_MONOTONIC, 60);
    CHECK_ERR(fwait(&words[0], 0, -1u, U32P, &end, CLOCK_MONOTONIC), ETIMEDOUT);
}
TEST(between_processes) {
    volatile int *f = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t p = FORK();
    if (p == 0) {
        struct waitv w = {0, (unsigned long)f, FUTEX2_SIZE_U32, 0};
        _exit(waitv(&w, 1, 0, 0, 0) == 0 ? 0 : 1);
    }
    while (fwake(f, -1u, 1, FUTEX2_SIZE_U32) == 0) t_ms(1);
    CHECK_STATUS(t_status(p), "exit 0");
}

static long membarrier(int cmd, unsigned flags, int cpu) { return syscall(SYS_membarrier, cmd, flags, cpu); }
TEST(membarrier_commands) {
    long all = membarrier(MEMBARRIER_CMD_QUERY, 0, 0);
    CHECK(all & MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    CHECK(all & MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    CHECK_ERR(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0), EPERM);
    OK(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0));
    OK(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
    CHECK_CHILD(OK(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0)));
    CHECK_ERR(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0), EPERM);
    OK(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0));
    OK(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0));
    CHECK_ERR(membarrier(MEMBARRIER_CMD_QUERY, 1, 0), EINVAL);
    CHECK_ERR(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED, 1, 0), EINVAL);
    CHECK_ERR(membarrier(3, 0, 0), EINVAL);
    CHECK_ERR(membarrier(-1, 0, 0), EINVAL);
    CHECK_ERR(membarrier(1 << 20, 0, 0), EINVAL);
    OK(membarrier(MEMBARRIER_CMD_GLOBAL, 0, 0));
    OK(membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0));
    OK(membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0));
}

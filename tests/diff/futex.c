// Futexes: wait, wake, bitset, requeue, wake_op, priority inheritance, robust lists; and threads that lean on them.
#include "t.h"
#include <linux/futex.h>
#include <sys/prctl.h>
#include <pthread.h>
#include <semaphore.h>

static long futex(volatile int *u, int op, int v, const void *t, volatile int *u2, int v3) { return syscall(SYS_futex, u, op, v, t, u2, v3); }
static struct timespec in_ms(int ms) { return (struct timespec){ms / 1000, ms % 1000 * 1000000L}; }

TEST(wait_value_differs) {
    volatile int f = 1;
    CHECK_ERR(futex(&f, FUTEX_WAIT, 2, 0, 0, 0), EAGAIN);
    CHECK_ERR(futex(&f, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 2, 0, 0, 0), EAGAIN);
    OK(futex(&f, FUTEX_WAKE, 1, 0, 0, 0));
}
TEST(wait_timeout) {
    volatile int f = 1;
    struct timespec t = in_ms(10), a;
    CHECK_ERR(futex(&f, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 1, &t, 0, 0), ETIMEDOUT);
    CHECK_ERR(futex(&f, FUTEX_WAIT, 1, &t, 0, 0), ETIMEDOUT);
    t = in_ms(0);
    CHECK_ERR(futex(&f, FUTEX_WAIT, 1, &t, 0, 0), ETIMEDOUT);
    clock_gettime(CLOCK_MONOTONIC, &a);
    CHECK_ERR(futex(&f, FUTEX_WAIT_BITSET, 1, &a, 0, -1), ETIMEDOUT);
    clock_gettime(CLOCK_REALTIME, &a);
    CHECK_ERR(futex(&f, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME | FUTEX_PRIVATE_FLAG, 1, &a, 0, -1), ETIMEDOUT);
}
TEST(errors) {
    volatile int f[2] = {0};
    struct timespec bad = {0, 1000000000};
    CHECK_ERR(futex(BAD_PTR, FUTEX_WAIT, 0, 0, 0, 0), EFAULT);
    CHECK_ERR(futex((int *)((char *)f + 1), FUTEX_WAIT, 0, 0, 0, 0), EINVAL);
    CHECK_ERR(futex((int *)((char *)f + 1), FUTEX_WAKE, 1, 0, 0, 0), EINVAL);
    CHECK_ERR(futex(f, 99, 0, 0, 0, 0), ENOSYS);
    CHECK_ERR(futex(f, FUTEX_WAIT, 0, &bad, 0, 0), EINVAL);
    CHECK_ERR(futex(f, FUTEX_WAIT, 0, BAD_PTR, 0, 0), EFAULT);
    CHECK_ERR(futex(f, FUTEX_WAIT_BITSET, 0, 0, 0, 0), EINVAL);
    CHECK_ERR(futex(f, FUTEX_WAKE_BITSET, 1, 0, 0, 0), EINVAL);
    CHECK_ERR(futex(f, FUTEX_CMP_REQUEUE, 1, (void *)1, f + 1, 77), EAGAIN);
    CHECK_ERR(futex(f, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 0, 0, 0, 0), ENOSYS);
    OK(futex(BAD_PTR, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0, 0, 0)); // a private wake does not look
}
TEST(wait_eintr) {
    volatile int f = 0;
    t_pester(0);
    CHECK_ERR(futex(&f, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, 0, 0, 0), EINTR);
    CHECK_ERR(futex(&f, FUTEX_WAIT, 0, 0, 0, 0), EINTR);
    struct timespec t = in_ms(100000);
    CHECK_ERR(futex(&f, FUTEX_WAIT, 0, &t, 0, 0), EINTR);
}
static volatile int word, word2, go, woken;
static int wait_bits = -1;
static void *waiter(void *a) {
    __sync_fetch_and_add(&go, 1);
    int r;
    do
        r = futex(&word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0, 0, 0, (int)(long)a);
    while (r < 0 && errno == EINTR);
    CHECK_EQ(r, 0);
    __sync_fetch_and_add(&woken, 1);
    return 0;
}
// Wake until n have gone (they may not have slept yet); gives how many this call says it woke.
static int wake_all(volatile int *w, int n, int bits) {
    int got = 0;
    while (got < n) {
        int r = futex(w, FUTEX_WAKE_BITSET | FUTEX_PRIVATE_FLAG, n - got, 0, 0, bits);
        if (r < 0) return -1;
        got += r;
        if (got < n) t_ms(1);
    }
    return got;
}
TEST(wake_counts) {
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, waiter, (void *)(long)wait_bits);
    CHECK_EQ(wake_all(&word, 1, -1), 1);
    CHECK_EQ(wake_all(&word, 3, -1), 3);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    CHECK_EQ(woken, 4);
    OK(futex(&word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 100, 0, 0, 0));
}
TEST(bitset_selects) {
    pthread_t a, b;
    pthread_create(&a, 0, waiter, (void *)1L);
    pthread_create(&b, 0, waiter, (void *)2L);
    CHECK_EQ(wake_all(&word, 1, 2), 1);
    pthread_join(b, 0);
    CHECK_EQ(woken, 1);
    OK(futex(&word, FUTEX_WAKE_BITSET | FUTEX_PRIVATE_FLAG, 10, 0, 0, 4));
    CHECK_EQ(wake_all(&word, 1, 1), 1);
    pthread_join(a, 0);
}
TEST(requeue_moves) {
    pthread_t t[3];
    for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, waiter, (void *)-1L);
    int moved = 0;
    while (moved < 3) {
        int r = futex(&word, FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, 0, (void *)100, &word2, 0);
        MUST(r >= 0);
        moved += r;
        t_ms(1);
    }
    OK(futex(&word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 10, 0, 0, 0));
    CHECK_EQ(futex(&word2, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 10, 0, 0, 0), 3);
    for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
}
TEST(wake_op) {
    volatile int a = 0, b = 5;
    OK(futex(&a, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 1, (void *)1, &b, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 5)));
    CHECK_EQ(b, 8);
    OK(futex(&a, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 1, (void *)1, &b, FUTEX_OP(FUTEX_OP_SET, 1, FUTEX_OP_CMP_GT, 100)));
    CHECK_EQ(b, 1);
    OK(futex(&a, FUTEX_WAKE_OP, 1, (void *)1, &b, FUTEX_OP(FUTEX_OP_OR, 6, FUTEX_OP_CMP_NE, 0)));
    CHECK_EQ(b, 7);
    OK(futex(&a, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 1, (void *)1, &b, FUTEX_OP(FUTEX_OP_ANDN, 3, FUTEX_OP_CMP_EQ, 0)));
    CHECK_EQ(b, 4);
    OK(futex(&a, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 1, (void *)1, &b, FUTEX_OP(FUTEX_OP_XOR, 1, FUTEX_OP_CMP_EQ, 0)));
    CHECK_EQ(b, 5);
}
TEST(shared_between_processes) {
    volatile int *m = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_t p = FORK();
    if (p == 0) {
        while (*m == 0) {
            int r = futex(m, FUTEX_WAIT, 0, 0, 0, 0);
            CHECK(r == 0 || errno == EAGAIN);
        }
        _exit(5);
    }
    t_ms(5);
    *m = 1;
    futex(m, FUTEX_WAKE, 1, 0, 0, 0);
    CHECK_STATUS(t_status(p), "exit 5");
}
TEST(shared_through_file_at_different_addresses) {
    int fd = t_file("f", "");
    SYS(ftruncate(fd, 8192));
    volatile int *a = SYS(mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    pid_t p = FORK();
    if (p == 0) {
        volatile int *b = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096));
        a[0] = 1;
        while (*b == 0) futex(b, FUTEX_WAIT, 0, 0, 0, 0);
        _exit(6);
    }
    while (!a[0]) t_ms(1);
    t_ms(5);
    a[1024] = 1;
    futex(a + 1024, FUTEX_WAKE, 1, 0, 0, 0);
    CHECK_STATUS(t_status(p), "exit 6");
}
TEST(pi_lock_and_unlock) {
    volatile int f = 0;
    OK(futex(&f, FUTEX_LOCK_PI | FUTEX_PRIVATE_FLAG, 0, 0, 0, 0));
    CHECK_EQ(f & FUTEX_TID_MASK, gettid());
    CHECK_ERR(futex(&f, FUTEX_LOCK_PI | FUTEX_PRIVATE_FLAG, 0, 0, 0, 0), EDEADLK);
    CHECK_ERR(futex(&f, FUTEX_TRYLOCK_PI | FUTEX_PRIVATE_FLAG, 0, 0, 0, 0), EDEADLK);
    OK(futex(&f, FUTEX_UNLOCK_PI | FUTEX_PRIVATE_FLAG, 0, 0, 0, 0));
    OK(f);
    CHECK_ERR(futex(&f, FUTEX_UNLOCK_PI | FUTEX_PRIVATE_FLAG, 0, 0, 0, 0), EPERM);
    f = 1 << 22; // a thread that is not there
    CHECK_ERR(futex(&f, FUTEX_LOCK_PI | FUTEX_PRIVATE_FLAG, 0, 0, 0, 0), ESRCH);
}
static void *pi_adder(void *a) {
    pthread_mutex_t *m = a;
    for (int i = 0; i < 300; i++) {
        pthread_mutex_lock(m);
        int v = word;
        if (i % 50 == 0) sched_yield();
        word = v + 1;
        pthread_mutex_unlock(m);
    }
    return 0;
}
TEST(pi_mutex_contended) {
    pthread_mutexattr_t at;
    pthread_mutex_t m;
    pthread_mutexattr_init(&at);
    pthread_mutexattr_setprotocol(&at, PTHREAD_PRIO_INHERIT);
    OK(pthread_mutex_init(&m, &at));
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, pi_adder, &m);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    CHECK_EQ(word, 1200);
}
static pthread_mutex_t *shared_mutex(int robust, int pi) {
    pthread_mutexattr_t at;
    pthread_mutex_t *m = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pthread_mutexattr_init(&at);
    pthread_mutexattr_setpshared(&at, PTHREAD_PROCESS_SHARED);
    if (robust) pthread_mutexattr_setrobust(&at, PTHREAD_MUTEX_ROBUST);
    if (pi) pthread_mutexattr_setprotocol(&at, PTHREAD_PRIO_INHERIT);
    OK(pthread_mutex_init(m, &at));
    return m;
}
static struct timespec until(int clock, int ms) {
    struct timespec ts;
    clock_gettime(clock, &ts);
    ts.tv_nsec += ms * 1000000L;
    ts.tv_sec += ts.tv_nsec / 1000000000;
    ts.tv_nsec %= 1000000000;
    return ts;
}
#define PRIV FUTEX_PRIVATE_FLAG
#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif
static volatile int pi_word, pi_other, pi_step, pi_tid;
static void *pi_holder(void *a) { // holds pi_word until pi_step is 2
    OK(futex(&pi_word, FUTEX_LOCK_PI | PRIV, 0, 0, 0, 0));
    pi_tid = gettid();
    pi_step = 1;
    while (pi_step != 2) t_ms(1);
    OK(futex(&pi_word, FUTEX_UNLOCK_PI | PRIV, 0, 0, 0, 0));
    return a;
}
static pthread_t pi_start(void *(*f)(void *)) {
    pthread_t t;
    OK(pthread_create(&t, 0, f, 0));
    while (pi_step != 1) t_ms(1);
    return t;
}
TEST(pi_timeouts) {
    pthread_t t = pi_start(pi_holder);
    struct timespec ts = until(CLOCK_REALTIME, 30);
    CHECK_ERR(futex(&pi_word, FUTEX_LOCK_PI | PRIV, 0, &ts, 0, 0), ETIMEDOUT);
    CHECK_EQ((unsigned)pi_word, (unsigned)pi_tid | FUTEX_WAITERS);
    ts = until(CLOCK_MONOTONIC, 30);
    CHECK_ERR(futex(&pi_word, FUTEX_LOCK_PI2 | PRIV, 0, &ts, 0, 0), ETIMEDOUT);
    ts = until(CLOCK_REALTIME, 30);
    CHECK_ERR(futex(&pi_word, FUTEX_LOCK_PI2 | FUTEX_CLOCK_REALTIME | PRIV, 0, &ts, 0, 0), ETIMEDOUT);
    ts.tv_sec = 0;
    CHECK_ERR(futex(&pi_word, FUTEX_LOCK_PI | PRIV, 0, &ts, 0, 0), ETIMEDOUT);
    ts.tv_nsec = 1000000000;
    CHECK_ERR(futex(&pi_word, FUTEX_LOCK_PI | PRIV, 0, &ts, 0, 0), EINVAL);
    CHECK_ERR(futex(&pi_word, FUTEX_LOCK_PI | PRIV, 0, BAD_PTR, 0, 0), EFAULT);
    CHECK_ERR(futex(&pi_word, FUTEX_TRYLOCK_PI | PRIV, 0, 0, 0, 0), EAGAIN);
    CHECK_ERR(futex(&pi_word, FUTEX_UNLOCK_PI | PRIV, 0, 0, 0, 0), EPERM);
    pi_step = 2;
    pthread_join(t, 0);
    OK(pi_word);
}
TEST(pi_bad_addresses) {
    CHECK_ERR(futex(BAD_PTR, FUTEX_LOCK_PI | PRIV, 0, 0, 0, 0), EFAULT);
    CHECK_ERR(futex(BAD_PTR, FUTEX_UNLOCK_PI, 0, 0, 0, 0), EFAULT);
    CHECK_ERR(futex((int *)((char *)&pi_word + 1), FUTEX_LOCK_PI | PRIV, 0, 0, 0, 0), EINVAL);
    CHECK_ERR(futex(&pi_word, FUTEX_LOCK_PI | FUTEX_CLOCK_REALTIME, 0, 0, 0, 0), ENOSYS);
    int *ro = SYS(mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK_ERR(futex(ro, FUTEX_LOCK_PI | PRIV, 0, 0, 0, 0), EFAULT);
}
TEST(pi_handed_over) {
    pthread_t t = pi_start(pi_holder);
    pi_step = 2;
    OK(futex(&pi_word, FUTEX_LOCK_PI | PRIV, 0, 0, 0, 0));
    CHECK_EQ(pi_word & FUTEX_TID_MASK, gettid());
    OK(futex(&pi_word, FUTEX_UNLOCK_PI | PRIV, 0, 0, 0, 0));
    pthread_join(t, 0);
    OK(pi_word);
}
TEST(pi_signals_restart_the_wait) {
    pthread_t t = pi_start(pi_holder);
    t_pester(0); // no SA_RESTART
    struct timespec ts = until(CLOCK_REALTIME, 100);
    CHECK_ERR(futex(&pi_word, FUTEX_LOCK_PI | PRIV, 0, &ts, 0, 0), ETIMEDOUT);
    CHECK(t_alarms > 1);
    t_pester_stop();
    pi_step = 2;
    pthread_join(t, 0);
}
static void *pi_dies(void *a) {
    OK(futex(&pi_word, FUTEX_LOCK_PI | PRIV, 0, 0, 0, 0));
    pi_step = 1;
    while (!(pi_word & FUTEX_WAITERS)) t_ms(1);
    t_ms(20);
    return a;
}
TEST(pi_owner_dies_with_waiter) {
    pthread_t t = pi_start(pi_dies);
    OK(futex(&pi_word, FUTEX_LOCK_PI | PRIV, 0, 0, 0, 0));
    CHECK_EQ(pi_word & FUTEX_TID_MASK, gettid());
    CHECK(pi_word & FUTEX_OWNER_DIED);
    OK(futex(&pi_word, FUTEX_UNLOCK_PI | PRIV, 0, 0, 0, 0));
    pthread_join(t, 0);
}
static void *pi_circle(void *a) {
    OK(futex(&pi_word, FUTEX_LOCK_PI | PRIV, 0, 0, 0, 0));
    pi_step = 1;
    while (pi_step != 2) t_ms(1);
    OK(futex(&pi_other, FUTEX_LOCK_PI | PRIV, 0, 0, 0, 0)); // the main thread has it
    OK(futex(&pi_other, FUTEX_UNLOCK_PI | PRIV, 0, 0, 0, 0));
    OK(futex(&pi_word, FUTEX_UNLOCK_PI | PRIV, 0, 0, 0, 0));
    return a;
}
TEST(pi_circles_are_refused) {
    OK(futex(&pi_other, FUTEX_LOCK_PI | PRIV, 0, 0, 0, 0));
    pthread_t t = pi_start(pi_circle);
    pi_step = 2;
    while (!(pi_other & FUTEX_WAITERS)) t_ms(1);
    t_ms(20);
    CHECK_ERR(futex(&pi_word, FUTEX_LOCK_PI | PRIV, 0, 0, 0, 0), EDEADLK);
    OK(futex(&pi_other, FUTEX_UNLOCK_PI | PRIV, 0, 0, 0, 0));
    pthread_join(t, 0);
}
TEST(pi_shared_between_processes) {
    volatile int *m = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (int p = 0; p < 3; p++)
        if (FORK() == 0) {
            for (int i = 0; i < 200; i++) {
                if (!__sync_bool_compare_and_swap(&m[0], 0, gettid())) OK(futex(&m[0], FUTEX_LOCK_PI, 0, 0, 0, 0));
                int v = m[1];
                if (i % 20 == 0) sched_yield();
                m[1] = v + 1;
                if (!__sync_bool_compare_and_swap(&m[0], gettid(), 0)) OK(futex(&m[0], FUTEX_UNLOCK_PI, 0, 0, 0, 0));
            }
            _exit(0);
        }
    for (int p = 0; p < 3; p++) {
        int st;
        CHECK(wait(&st) > 0);
        OK(st);
    }
    CHECK_EQ(m[1], 600);
}
TEST(pi_shared_by_a_file) {
    int fd = t_file("f", "");
    OK(ftruncate(fd, 8192));
    volatile int *a = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096));
    pid_t p = FORK();
    if (p == 0) {
        volatile int *b = SYS(mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        OK(futex(&b[1025], FUTEX_LOCK_PI, 0, 0, 0, 0));
        b[0] = 1;
        while (!(b[1025] & FUTEX_WAITERS)) t_ms(1);
        t_ms(20);
        OK(futex(&b[1025], FUTEX_UNLOCK_PI, 0, 0, 0, 0));
        _exit(0);
    }
    while (!(a[1] & FUTEX_TID_MASK)) t_ms(1);
    OK(futex(&a[1], FUTEX_LOCK_PI, 0, 0, 0, 0));
    CHECK_EQ(a[1] & FUTEX_TID_MASK, gettid());
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(pi_robust_mutex_of_killed_process) {
    pthread_mutex_t *m = shared_mutex(1, 1);
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        OK(pthread_mutex_lock(m));
        t_open(g);
        t_ms(50);
        raise(SIGKILL);
    }
    t_pass(g);
    CHECK_EQ(pthread_mutex_lock(m), EOWNERDEAD);
    t_status(p);
    OK(pthread_mutex_consistent(m));
    OK(pthread_mutex_unlock(m));
    OK(pthread_mutex_lock(m));
    OK(pthread_mutex_unlock(m));
}
static void *pi_requeued(void *a) {
    __sync_fetch_and_add(&pi_step, 1);
    long r = futex(&pi_other, FUTEX_WAIT_REQUEUE_PI | PRIV, 0, 0, (void *)&pi_word, 0);
    if (r == 0) {
        CHECK_EQ(pi_word & FUTEX_TID_MASK, gettid());
        __sync_fetch_and_add(&pi_tid, 1);
        OK(futex(&pi_word, FUTEX_UNLOCK_PI | PRIV, 0, 0, 0, 0));
    }
    return (void *)(r ? (long)errno : 0);
}
TEST(pi_requeue) {
    pthread_t t[3];
    void *r;
    for (int i = 0; i < 3; i++) OK(pthread_create(&t[i], 0, pi_requeued, 0));
    while (pi_step != 3) t_ms(1);
    t_ms(50);
    OK(futex(&pi_word, FUTEX_LOCK_PI | PRIV, 0, 0, 0, 0));
    CHECK_ERR(futex(&pi_other, FUTEX_CMP_REQUEUE_PI | PRIV, 1, (void *)10, (void *)&pi_word, 1), EAGAIN);
    CHECK_ERR(futex(&pi_other, FUTEX_CMP_REQUEUE_PI | PRIV, 2, (void *)10, (void *)&pi_word, 0), EINVAL);
    CHECK_EQ(futex(&pi_other, FUTEX_CMP_REQUEUE_PI | PRIV, 1, (void *)10, (void *)&pi_word, 0), 3);
    OK(pi_tid);
    OK(futex(&pi_word, FUTEX_UNLOCK_PI | PRIV, 0, 0, 0, 0));
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], &r);
        OK((long)r);
    }
    CHECK_EQ(pi_tid, 3);
    // Nobody holds the lock: the first waiter gets it at once.
    pi_word = pi_step = 0;
    OK(pthread_create(&t[0], 0, pi_requeued, 0));
    while (pi_step != 1) t_ms(1);
    t_ms(50);
    CHECK_EQ(futex(&pi_other, FUTEX_CMP_REQUEUE_PI | PRIV, 1, (void *)0, (void *)&pi_word, 0), 1);
    pthread_join(t[0], &r);
    OK((long)r);
}
TEST(pi_requeue_errors) {
    struct timespec ts = until(CLOCK_MONOTONIC, 20);
    CHECK_ERR(futex(&pi_other, FUTEX_WAIT_REQUEUE_PI | PRIV, 1, 0, (void *)&pi_word, 0), EAGAIN);
    CHECK_ERR(futex(&pi_other, FUTEX_WAIT_REQUEUE_PI | PRIV, 0, &ts, (void *)&pi_word, 0), ETIMEDOUT);
    CHECK_ERR(futex(&pi_other, FUTEX_WAIT_REQUEUE_PI | PRIV, 0, &ts, (void *)&pi_other, 0), EINVAL);
    CHECK_ERR(futex(&pi_other, FUTEX_CMP_REQUEUE_PI | PRIV, 1, (void *)1, (void *)&pi_other, 0), EINVAL);
    OK(futex(&pi_other, FUTEX_CMP_REQUEUE_PI | PRIV, 1, (void *)1, (void *)&pi_word, 0));
}
TEST(robust_mutex_of_dead_process) {
    pthread_mutex_t *m = shared_mutex(1, 0);
    CHECK_CHILD(OK(pthread_mutex_lock(m)));
    CHECK_EQ(pthread_mutex_lock(m), EOWNERDEAD);
    OK(pthread_mutex_consistent(m));
    OK(pthread_mutex_unlock(m));
    pid_t p = FORK();
    if (p == 0) {
        OK(pthread_mutex_lock(m));
        raise(SIGKILL);
    }
    t_status(p);
    CHECK_EQ(pthread_mutex_trylock(m), EOWNERDEAD);
}
TEST(robust_mutex_wakes_waiter) {
    pthread_mutex_t *m = shared_mutex(1, 0);
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        OK(pthread_mutex_lock(m));
        t_open(g);
        t_ms(20);
        _exit(0);
    }
    t_pass(g);
    CHECK_EQ(pthread_mutex_lock(m), EOWNERDEAD);
    t_status(p);
}
static void *dies_holding(void *m) {
    OK(pthread_mutex_lock(m));
    return 0;
}
TEST(robust_mutex_of_dead_thread) {
    pthread_mutex_t *m = shared_mutex(1, 0);
    pthread_t t;
    pthread_create(&t, 0, dies_holding, m);
    pthread_join(t, 0);
    CHECK_EQ(pthread_mutex_lock(m), EOWNERDEAD);
}
TEST(robust_list_calls) {
    void *h = 0;
    size_t n = 0;
    OK(syscall(SYS_get_robust_list, 0, &h, &n));
    CHECK(h != 0);
    CHECK_EQ(n, sizeof(struct robust_list_head));
    CHECK_ERR(syscall(SYS_set_robust_list, h, 5), EINVAL);
    OK(syscall(SYS_set_robust_list, h, n));
    CHECK_ERR(syscall(SYS_get_robust_list, 1 << 22, &h, &n), ESRCH);
    CHECK_ERR(syscall(SYS_get_robust_list, 0, BAD_PTR, &n), EFAULT);
}
static void *tid_waits(void *a) {
    t_ms(5);
    return 0;
}
TEST(clear_child_tid_wakes_join) {
    for (int i = 0; i < 50; i++) {
        pthread_t t;
        OK(pthread_create(&t, 0, i % 10 ? tid_waits : tid_waits, 0));
        OK(pthread_join(t, 0));
    }
}
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cv = PTHREAD_COND_INITIALIZER;
static int turn;
static void *ping(void *a) {
    int me = (int)(long)a;
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&mu);
        while (turn != me) pthread_cond_wait(&cv, &mu);
        turn = (me + 1) % 3;
        pthread_cond_broadcast(&cv);
        pthread_mutex_unlock(&mu);
    }
    return 0;
}
TEST(condition_variables_round_robin) {
    pthread_t t[3];
    for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, ping, (void *)(long)i);
    for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
    OK(turn);
}
TEST(condition_timedwait) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 10000000;
    if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
    pthread_mutex_lock(&mu);
    CHECK_EQ(pthread_cond_timedwait(&cv, &mu, &t), ETIMEDOUT);
    pthread_mutex_unlock(&mu);
}
TEST(barriers_and_rwlocks) {
    static pthread_barrier_t b;
    static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
    static int n;
    pthread_barrier_init(&b, 0, 6);
    void *run(void *a) {
        for (int i = 0; i < 20; i++) {
            pthread_rwlock_wrlock(&l);
            n++;
            pthread_rwlock_unlock(&l);
            pthread_barrier_wait(&b);
            pthread_rwlock_rdlock(&l);
            if (n != 6 * (i + 1)) CHECK_EQ(n, 6 * (i + 1));
            pthread_rwlock_unlock(&l);
            pthread_barrier_wait(&b);
        }
        return 0;
    }
    pthread_t t[6];
    for (int i = 0; i < 6; i++) pthread_create(&t[i], 0, run, 0);
    for (int i = 0; i < 6; i++) pthread_join(t[i], 0);
}
TEST(semaphore_between_processes) {
    sem_t *s = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    OK(sem_init(s, 1, 0));
    OK(sem_init(s + 1, 1, 0));
    pid_t p = FORK();
    if (p == 0) {
        for (int i = 0; i < 200; i++) {
            OK(sem_wait(s));
            OK(sem_post(s + 1));
        }
        _exit(0);
    }
    for (int i = 0; i < 200; i++) {
        OK(sem_post(s));
        OK(sem_wait(s + 1));
    }
    CHECK_STATUS(t_status(p), "exit 0");
}
static void *add_mutex(void *a) {
    for (int i = 0; i < 5000; i++) {
        pthread_mutex_lock(&mu);
        word2++;
        pthread_mutex_unlock(&mu);
    }
    return 0;
}
TEST(mutex_stress) {
    pthread_t t[8];
    for (int i = 0; i < 8; i++) OK(pthread_create(&t[i], 0, add_mutex, 0));
    for (int i = 0; i < 8; i++) OK(pthread_join(t[i], 0));
    CHECK_EQ(word2, 40000);
}
static void *nothing(void *a) { return a; }
TEST(two_hundred_threads_at_once) {
    static pthread_t t[200];
    static pthread_barrier_t b;
    pthread_barrier_init(&b, 0, 201);
    void *wait(void *a) {
        pthread_barrier_wait(&b);
        return a;
    }
    for (long i = 0; i < 200; i++) OK(pthread_create(&t[i], 0, wait, (void *)i));
    pthread_barrier_wait(&b);
    for (long i = 0; i < 200; i++) {
        void *r;
        OK(pthread_join(t[i], &r));
        CHECK(r == (void *)i);
    }
}
TEST(thousand_threads_one_after_another) {
    for (long i = 0; i < 1000; i++) {
        pthread_t t;
        void *r;
        MUST(pthread_create(&t, 0, nothing, (void *)i) == 0);
        MUST(pthread_join(t, &r) == 0 && r == (void *)i);
    }
}
static __thread int tls = 5;
static void *tls_main(void *a) {
    CHECK_EQ(tls, 5);
    tls = (int)(long)a;
    for (int i = 0; i < 50; i++) {
        sched_yield();
        if (tls != (int)(long)a) CHECK_EQ(tls, (long)a);
    }
    return 0;
}
TEST(thread_local_storage) {
    pthread_t t[8];
    for (long i = 0; i < 8; i++) pthread_create(&t[i], 0, tls_main, (void *)(i + 100));
    for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
    CHECK_EQ(tls, 5);
}
TEST(cancel_blocked_thread) {
    int p[2];
    SYS(pipe(p));
    void *reader(void *a) {
        char c;
        (void)!read(*(int *)a, &c, 1);
        return 0;
    }
    pthread_t t;
    void *r;
    pthread_create(&t, 0, reader, p);
    OK(pthread_cancel(t));
    OK(pthread_join(t, &r));
    CHECK(r == PTHREAD_CANCELED);
}
TEST(fork_from_a_thread) {
    void *f(void *a) {
        CHECK_STATUS(CHILD(CHECK_EQ(getpid(), gettid()); _exit(9)), "exit 9");
        return 0;
    }
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, f, 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
}
TEST(exit_while_others_wait) {
    CHECK_STATUS(CHILD(pthread_t t; for (int i = 0; i < 5; i++) pthread_create(&t, 0, waiter, (void *)-1L); while (go < 5) t_ms(1); _exit(4)), "exit 4");
}
static char state_of(pid_t tid) {
    char n[64], b[512];
    sprintf(n, "/proc/self/task/%d/stat", tid);
    t_slurp(n, b, sizeof b);
    char *p = strrchr(b, ')');
    return p ? p[2] : '?';
}
static void *sleeps(void *a) {
    pi_tid = gettid();
    futex(&pi_word, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
    pi_step = 1;
    while (pi_step == 1) {}
    return a;
}
TEST(a_waiter_is_asleep) {
    pthread_t t;
    OK(pthread_create(&t, 0, sleeps, 0));
    while (!pi_tid) t_ms(1);
    for (int i = 0; i < 500 && state_of(pi_tid) != 'S'; i++) t_ms(1);
    CHECK_EQ(state_of(pi_tid), 'S');
    pi_word = 1;
    futex(&pi_word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
    while (pi_step != 1) t_ms(1);
    CHECK_EQ(state_of(pi_tid), 'R');
    pi_step = 2;
    pthread_join(t, 0);
}
TEST(thread_words_set_often) {
    struct robust_list_head heads[2] = {{{&heads[0].list}, 0, 0}, {{&heads[1].list}, 0, 0}}, *h;
    size_t n;
    for (int i = 0; i < 50; i++) {
        CHECK_EQ(syscall(SYS_set_tid_address, &n), gettid());
        OK(syscall(SYS_set_robust_list, &heads[i & 1], sizeof heads[0]));
        OK(syscall(SYS_get_robust_list, 0, &h, &n));
        CHECK(h == &heads[i & 1]);
        CHECK_ERR(syscall(SYS_set_robust_list, &heads[0], 23), EINVAL);
        int *tid;
        OK(prctl(PR_GET_TID_ADDRESS, &tid));
        CHECK((void *)tid == (void *)&n);
    }
    // A new process has no list.
    CHECK_STATUS(CHILD(OK(syscall(SYS_get_robust_list, 0, &h, &n)); _exit(h && h != &heads[1] ? 0 : h ? 1 : 0)), "exit 0");
}

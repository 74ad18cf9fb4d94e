// Futexes: wait, wake, bitset, requeue, wake_op, priority inheritance, robust lists; and threads that lean on them.
#include "t.h"
#include <linux/futex.h>
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

// Signal masks and pending signals, by calls made often enough that they take every short way there is.
#include "t.h"
#include <pthread.h>

static volatile int hits;
static void on(int s) {
    (void)s;
    hits++;
}
static void act(int s, void (*h)(int), int flags) {
    struct sigaction sa = {.sa_handler = h, .sa_flags = flags};
    SYS(sigaction(s, &sa, 0));
}
static sigset_t set(int a, int b) {
    sigset_t s;
    sigemptyset(&s);
    if (a) sigaddset(&s, a);
    if (b) sigaddset(&s, b);
    return s;
}
static void mask_to(const sigset_t *s, sigset_t *old) { SYS(syscall(SYS_rt_sigprocmask, SIG_SETMASK, s, old, 8)); }
TEST(mask_changed_often) {
    act(SIGUSR1, on, 0);
    sigset_t one = set(SIGUSR1, 0), none = set(0, 0), all, was;
    sigfillset(&all);
    for (int i = 0; i < 50; i++) {
        memset(&was, 0, sizeof was);
        mask_to(&all, &was);
        CHECK_EQ(*(long *)&was, 0);
        mask_to(&none, &was);
        CHECK(!sigismember(&was, SIGKILL) && !sigismember(&was, SIGSTOP) && sigismember(&was, SIGUSR1));
        // Pending when it is unblocked: before the call returns.
        mask_to(&one, 0);
        SYS(kill(getpid(), SIGUSR1));
        CHECK_EQ(hits, i);
        SYS(syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &one, &was, 8));
        CHECK_EQ(hits, i + 1);
        CHECK(sigismember(&was, SIGUSR1));
        CHECK_ERR(syscall(SYS_rt_sigprocmask, SIG_SETMASK, BAD_PTR, 0, 8), EFAULT);
        CHECK_ERR(syscall(SYS_rt_sigprocmask, 3, &one, 0, 8), EINVAL);
        CHECK_ERR(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &one, 0, 4), EINVAL);
        OK(syscall(SYS_rt_sigprocmask, 77, 0, &was, 8));
        CHECK_EQ(*(long *)&was, 0);
        // The mask has changed although the old one could not be told.
        CHECK_ERR(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &one, BAD_PTR, 8), EFAULT);
        mask_to(&none, &was);
        CHECK(sigismember(&was, SIGUSR1));
    }
}
static void *sender(void *tid) {
    for (int i = 0; i < 300; i++) {
        syscall(SYS_tgkill, getpid(), (int)(long)tid, SIGRTMIN);
        if (i % 3 == 0) usleep(10);
    }
    return 0;
}
TEST(no_signal_is_lost_between_masks) {
    act(SIGRTMIN, on, 0);
    sigset_t all, none = set(0, 0);
    sigfillset(&all);
    pthread_t t;
    CHECK_EQ(pthread_create(&t, 0, sender, (void *)(long)gettid()), 0);
    while (hits < 300) {
        mask_to(&all, 0);
        int seen = hits;
        for (volatile int k = 0; k < 20; k++) CHECK_EQ(hits, seen);
        mask_to(&none, 0);
    }
    pthread_join(t, 0);
    CHECK_EQ(hits, 300);
}
static void *mask_of_thread(void *want) {
    sigset_t was;
    mask_to(want, &was);
    return (void *)(long)(sigismember(&was, SIGUSR2) && !sigismember(&was, SIGUSR1));
}
TEST(mask_goes_to_children) {
    sigset_t two = set(SIGUSR2, 0), none = set(0, 0);
    for (int i = 0; i < 10; i++) {
        mask_to(&two, 0);
        pthread_t t;
        void *same;
        CHECK_EQ(pthread_create(&t, 0, mask_of_thread, &none), 0);
        CHECK_EQ(pthread_join(t, &same), 0);
        CHECK(same);
        CHECK_STATUS(CHILD(sigset_t was; mask_to(&none, &was); _exit(sigismember(&was, SIGUSR2) ? 3 : 4)), "exit 3");
        pid_t p = vfork();
        if (!p) {
            execl("/bin/grep", "grep", "-q", "^SigBlk:.*0000000000000800$", "/proc/self/status", NULL);
            _exit(9);
        }
        CHECK_STATUS(t_status(p), "exit 0");
        sigset_t was;
        mask_to(&none, &was);
        CHECK(sigismember(&was, SIGUSR2));
    }
}
TEST(blocked_process_signal_goes_to_who_unblocks_first) {
    act(SIGUSR1, on, 0);
    sigset_t one = set(SIGUSR1, 0), none = set(0, 0);
    for (int i = 0; i < 20; i++) {
        mask_to(&one, 0);
        SYS(kill(getpid(), SIGUSR1));
        pthread_t t;
        CHECK_EQ(pthread_create(&t, 0, mask_of_thread, &none), 0);
        pthread_join(t, 0);
        CHECK_EQ(hits, i + 1);
        mask_to(&none, 0);
        CHECK_EQ(hits, i + 1);
    }
}
TEST(status_in_sigtimedwait) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1), sigaddset(&set, SIGUSR2), sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, 0);
    pid_t p = FORK();
    if (p == 0) {
        sigdelset(&set, SIGHUP);
        CHECK_EQ(sigwaitinfo(&set, 0), SIGUSR1);
        char text[4096], *at;
        t_slurp("/proc/self/status", text, sizeof text);
        CHECK((at = strstr(text, "SigBlk:\t0000000000000a01")) != 0);
        _exit(0);
    }
    char path[64], text[4096];
    sprintf(path, "/proc/%d/status", p);
    long long end = t_now_ms() + 5000;
    do t_slurp(path, text, sizeof text);
    while (!strstr(text, "SigBlk:\t0000000000000001") && t_now_ms() < end);
    CHECK(strstr(text, "SigBlk:\t0000000000000001") != 0);
    SYS(kill(p, SIGUSR1));
    CHECK_STATUS(t_status(p), "exit 0");
}

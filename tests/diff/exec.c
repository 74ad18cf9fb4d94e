// execve, execveat: arguments, scripts, broken binaries, what survives and what does not.
static void helper(int argc, char **argv);
#define T_REEXEC helper
#include "t.h"
#include <elf.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>

// prog --helper WHAT ...: the program exec'd by the tests
static void helper(int argc, char **argv) {
    if (argc < 3 || strcmp(argv[1], "--helper")) return;
    const char *what = argv[2];
    if (!strcmp(what, "exit")) _exit(atoi(argv[3]));
    if (!strcmp(what, "euid")) _exit(geteuid() == 4242 ? 42 : geteuid() == 1234 ? 12 : 1);
    if (!strcmp(what, "./execfn")) {
        char comm[16] = {0};
        prctl(PR_GET_NAME, comm);
        CHECK_STR((char *)getauxval(AT_EXECFN), "./execfn");
        CHECK_STR(comm, "execfn");
        _exit(t_local_fails);
    }
    if (!strcmp(what, "args")) {
        for (int i = 3; i < argc; i++) printf("[%s]", argv[i]);
        for (char **e = environ; *e; e++) printf("{%s}", *e);
        fflush(0);
        _exit(argc);
    }
    if (!strcmp(what, "fd")) _exit(fcntl(atoi(argv[3]), F_GETFD) < 0 ? errno : 0);
    if (!strcmp(what, "sig")) {
        struct sigaction sa;
        sigaction(atoi(argv[3]), 0, &sa);
        sigset_t m, p;
        sigprocmask(SIG_BLOCK, 0, &m);
        sigpending(&p);
        _exit((sa.sa_handler == SIG_IGN) | (sa.sa_handler != SIG_IGN && sa.sa_handler != SIG_DFL) << 1 |
              sigismember(&m, atoi(argv[3])) << 2 | sigismember(&p, atoi(argv[3])) << 3);
    }
    if (!strcmp(what, "threads")) {
        char b[4096];
        t_slurp("/proc/self/status", b, sizeof b);
        char *t = strstr(b, "Threads:");
        CHECK(t && atoi(t + 8) == 1);
        CHECK_EQ(getpid(), atoi(argv[3]));
        CHECK_EQ(gettid(), atoi(argv[3]));
        _exit(t_local_fails);
    }
    if (!strcmp(what, "altstack")) {
        stack_t s;
        sigaltstack(0, &s);
        _exit(s.ss_flags == SS_DISABLE ? 0 : 1);
    }
    if (!strcmp(what, "state")) {
        // umask, cwd, nice, itimer, pid, sid, rlimit as text
        struct rlimit r;
        getrlimit(RLIMIT_NOFILE, &r);
        char cwd[256];
        printf("%o %s %d %d %lu", umask(0), getcwd(cwd, sizeof cwd), alarm(0) > 0, getpid() == atoi(argv[3]), (long)r.rlim_cur);
        fflush(0);
        _exit(0);
    }
    if (!strcmp(what, "comm")) {
        char b[32] = "";
        prctl(PR_GET_NAME, b);
        printf("%s", b);
        fflush(0);
        _exit(0);
    }
    if (!strcmp(what, "count")) {
        // number of arguments and environment strings, total length
        size_t n = 0;
        for (int i = 3; i < argc; i++) n += strlen(argv[i]) + 1;
        int e = 0;
        for (char **p = environ; *p; p++) n += strlen(*p) + 1, e++;
        printf("%d %d %zu", argc - 3, e, n);
        fflush(0);
        _exit(0);
    }
    if (!strcmp(what, "auxv")) {
        CHECK_EQ(getauxval(AT_PAGESZ), 4096);
        CHECK_EQ(getauxval(AT_UID), getuid());
        CHECK_EQ(getauxval(AT_EUID), geteuid());
        CHECK_EQ(getauxval(AT_GID), getgid());
        CHECK_EQ(getauxval(AT_SECURE), 0);
        CHECK_EQ(getauxval(AT_CLKTCK), 100);
        CHECK(getauxval(AT_RANDOM) != 0);
        CHECK_EQ(getauxval(AT_PHENT), sizeof(Elf64_Phdr));
        CHECK(getauxval(AT_PHNUM) > 2);
        CHECK(getauxval(AT_ENTRY) != 0);
        CHECK(getauxval(AT_HWCAP) != 0);
        CHECK_STR((char *)getauxval(AT_PLATFORM), "x86_64");
        CHECK_STR((char *)getauxval(AT_EXECFN), argv[3]);
        CHECK(getauxval(AT_SYSINFO_EHDR) != 0);
        CHECK(getauxval(AT_MINSIGSTKSZ) >= 512);
        CHECK((getauxval(AT_PHDR) & 7) == 0);
        _exit(t_local_fails);
    }
    if (!strcmp(what, "stackalign")) {
        // argc sits at a multiple of 16, the strings above the vectors
        uintptr_t sp = (uintptr_t)argv - 8;
        CHECK_EQ(sp & 15, 0);
        CHECK((char *)argv < argv[0]);
        CHECK(argv[0] < argv[1]);
        CHECK(argv[argc - 1] < environ[0]);
        CHECK_EQ(*(long *)sp, argc);
        _exit(t_local_fails);
    }
    if (!strcmp(what, "aslr")) {
        void *m = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        printf("%p %p", m, (void *)&argc);
        fflush(0);
        _exit(0);
    }
    if (!strcmp(what, "pdeath")) {
        int s = 0;
        prctl(PR_GET_PDEATHSIG, &s);
        _exit(s);
    }
    if (!strcmp(what, "brk")) {
        char *b = sbrk(0);
        CHECK(sbrk(100000) == b);
        memset(b, 1, 100000);
        _exit(t_local_fails);
    }
    _exit(99);
}
// Runs self with the helper arguments; output to buf; gives the status.
static int run(char *buf, size_t size, const char *path, char *const argv[], char *const envp[]) {
    int p[2];
    SYS(pipe(p));
    pid_t c = FORK();
    if (c == 0) {
        dup2(p[1], 1);
        close(p[0]);
        close(p[1]);
        execve(path, argv, envp);
        CHECK_EQ(errno, 0);
        _exit(126);
    }
    close(p[1]);
    size_t n = 0;
    ssize_t r;
    while (n < size - 1 && (r = read(p[0], buf + n, size - 1 - n)) > 0) n += r;
    buf[n] = 0;
    close(p[0]);
    return t_status(c);
}
static int helper_status(const char *a, const char *b) {
    char buf[4096];
    return run(buf, sizeof buf, t_self, (char *[]){t_self, "--helper", (char *)a, (char *)b, 0}, (char *[]){"E=1", 0});
}
static void copy_self(const char *to, mode_t mode) {
    int in = SYS(open(t_self, O_RDONLY)), out = SYS(open(to, O_CREAT | O_WRONLY | O_TRUNC, 0700));
    char b[65536];
    ssize_t n;
    while ((n = read(in, b, sizeof b)) > 0) MUST(write(out, b, n) == n);
    close(in);
    SYS(fchmod(out, mode));
    close(out);
}
static void script(const char *path, const char *text) {
    t_make(path, text);
    SYS(chmod(path, 0755));
}

TEST(exec_passes_args_and_env) {
    char b[1024];
    int st = run(b, sizeof b, t_self, (char *[]){"zero", "--helper", "args", "a b", "", "c", 0}, (char *[]){"X=1", "Y", "", 0});
    CHECK_STATUS(st, "exit 6");
    CHECK_STR(b, "[a b][][c]{X=1}{Y}{}");
}
TEST(exec_empty_env) {
    char b[1024];
    CHECK_STATUS(run(b, sizeof b, t_self, (char *[]){"x", "--helper", "args", "q", 0}, (char *[]){0}), "exit 4");
    CHECK_STR(b, "[q]");
}
TEST(exec_null_argv_and_env) {
    // a null argv becomes one empty argument; our helper then runs as a plain program: use a script to see it
    script("s", "#!/bin/sh\necho \"$#\"\n");
    char b[64];
    CHECK_STATUS(run(b, sizeof b, "s", (char *[]){"s", 0}, 0), "exit 0");
    CHECK_STR(b, "0\n");
}
TEST(exec_keeps_pid) {
    pid_t p = FORK();
    if (p == 0) {
        char b[16];
        sprintf(b, "%d", getpid());
        execl(t_self, "x", "--helper", "threads", b, (char *)0);
        _exit(126);
    }
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(exec_errors) {
    char *a[] = {"x", 0};
    SYS(mkdir("d", 0755));
    t_make("noexec", "x");
    t_make("empty", "");
    SYS(chmod("empty", 0755));
    t_make("garbage", "\x01\x02\x03 not a program");
    SYS(chmod("garbage", 0755));
    SYS(symlink("loop", "loop"));
    CHECK_ERR(execve("missing", a, a), ENOENT);
    CHECK_ERR(execve("", a, a), ENOENT);
    CHECK_ERR(execve("noexec/x", a, a), ENOTDIR);
    CHECK_ERR(execve("d", a, a), EACCES);
    CHECK_ERR(execve("noexec", a, a), EACCES);
    CHECK_ERR(execve("empty", a, a), ENOEXEC);
    CHECK_ERR(execve("garbage", a, a), ENOEXEC);
    CHECK_ERR(execve("loop", a, a), ELOOP);
    CHECK_ERR(execve(BAD_PTR, a, a), EFAULT);
    CHECK_ERR(execve(t_self, BAD_PTR, a), EFAULT);
    CHECK_ERR(execve(t_self, a, BAD_PTR), EFAULT);
    CHECK_ERR(execve(t_self, (char *[]){BAD_PTR, 0}, a), EFAULT);
    char longname[5000];
    memset(longname, 'a', sizeof longname);
    longname[4999] = 0;
    CHECK_ERR(execve(longname, a, a), ENAMETOOLONG);
    longname[300] = 0;
    CHECK_ERR(execve(longname, a, a), ENAMETOOLONG);
}
TEST(exec_text_busy) {
    copy_self("prog", 0755);
    int fd = SYS(open("prog", O_WRONLY));
    char *a[] = {"prog", 0};
    CHECK_ERR(execve("prog", a, a), ETXTBSY);
    close(fd);
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        dup2(g.w, 100);
        execl("prog", "prog", "wait_forever_please", (char *)0); // not a sub-test: exits 2
        _exit(126);
    }
    CHECK_STATUS(t_status(p), "exit 2");
}
TEST(exec_script) {
    script("s", "#!/bin/sh\necho \"0=$0 1=$1 2=$2\"\nexit 5\n");
    char b[512];
    CHECK_STATUS(run(b, sizeof b, "s", (char *[]){"ignored", "a b", "c", 0}, (char *[]){0}), "exit 5");
    CHECK_STR(b, "0=s 1=a b 2=c\n");
    CHECK_STATUS(run(b, sizeof b, "./s", (char *[]){"ignored", 0}, (char *[]){0}), "exit 5");
    CHECK_STR(b, "0=./s 1= 2=\n");
}
TEST(exec_script_with_argument) {
    char b[512], t[PATH_MAX + 64];
    sprintf(t, "#! %s --helper  args  \n", t_self);
    // everything after the interpreter is one argument, outer blanks removed
    script("s", t);
    int st = run(b, sizeof b, "s", (char *[]){"x", "y", 0}, (char *[]){0});
    (void)st; // the helper does not know "--helper  args": it says so as a program with no such sub-test
    CHECK_STATUS(st, "exit 2");
    script("e", "#!/bin/sh -e\nfalse\necho not reached\n");
    CHECK_STATUS(run(b, sizeof b, "e", (char *[]){"e", 0}, (char *[]){0}), "exit 1");
    CHECK_STR(b, "");
    script("f", "#!  /bin/sh   -e  \t\nfalse\necho not reached\n");
    CHECK_STATUS(run(b, sizeof b, "f", (char *[]){"f", 0}, (char *[]){0}), "exit 1");
}
TEST(exec_script_nested) {
    char cwd[256], t[512], b[512];
    SYS((long)getcwd(cwd, sizeof cwd));
    script("s0", "#!/bin/sh\necho \"$*\"\n");
    for (int i = 1; i <= 6; i++) {
        char n[16];
        sprintf(n, "s%d", i);
        sprintf(t, "#!%s/s%d arg%d\n", cwd, i - 1, i);
        script(n, t);
    }
    CHECK_STATUS(run(b, sizeof b, "s2", (char *[]){"x", "tail", 0}, (char *[]){0}), "exit 0");
    char want[1024];
    sprintf(want, "arg1 %s/s1 arg2 s2 tail\n", cwd);
    // $0 is s0; the arguments are arg1, s1's name, arg2, the name of s2, tail
    sprintf(want, "arg1 %s/s1 arg2 s2 tail\n", cwd);
    CHECK_STR(b, want);
    CHECK_STATUS(run(b, sizeof b, "s4", (char *[]){"x", 0}, (char *[]){0}), "exit 0");
    char *a[] = {"x", 0};
    CHECK_ERR(execve("s6", a, a), ELOOP);
}
TEST(exec_script_bad_interpreter) {
    char *a[] = {"x", 0};
    script("missing", "#!/nonexistent/interp\n");
    CHECK_ERR(execve("missing", a, a), ENOENT);
    script("none", "#!\n");
    CHECK_ERR(execve("none", a, a), ENOEXEC);
    script("blank", "#!   \n");
    CHECK_ERR(execve("blank", a, a), ENOEXEC);
    script("dir", "#!/tmp\n");
    CHECK_ERR(execve("dir", a, a), EACCES);
    t_make("plain", "");
    char cwd[256], t[512];
    sprintf(t, "#!%s/plain\n", getcwd(cwd, sizeof cwd));
    script("noexec", t);
    CHECK_ERR(execve("noexec", a, a), EACCES);
}
TEST(exec_script_long_line) {
    char t[600], b[600];
    memset(t, 0, sizeof t);
    strcpy(t, "#!/bin/sh ");
    memset(t + 10, 'a', 400);
    strcpy(t + 410, "\necho no\n");
    script("s", t);
    // the line is cut: the argument is what fits, and sh cannot open it
    int st = run(b, sizeof b, "s", (char *[]){"s", 0}, (char *[]){0});
    CHECK(WIFEXITED(st) && WEXITSTATUS(st) != 0);
    memset(t, 'a', 500);
    memcpy(t, "#!/", 3);
    t[500] = 0;
    script("u", t);
    char *a[] = {"x", 0};
    CHECK_ERR(execve("u", a, a), ENOEXEC);
}
TEST(exec_close_on_exec) {
    int a = t_file("a", ""), b = SYS(open("a", O_RDONLY | O_CLOEXEC)), c = SYS(dup(b));
    int d = SYS(fcntl(a, F_DUPFD_CLOEXEC, 50));
    char n[16];
    CHECK_STATUS(helper_status("fd", (sprintf(n, "%d", a), n)), "exit 0");
    CHECK_STATUS(helper_status("fd", (sprintf(n, "%d", b), n)), "exit 9");
    CHECK_STATUS(helper_status("fd", (sprintf(n, "%d", c), n)), "exit 0");
    CHECK_STATUS(helper_status("fd", (sprintf(n, "%d", d), n)), "exit 9");
    SYS(fcntl(d, F_SETFD, 0));
    CHECK_STATUS(helper_status("fd", (sprintf(n, "%d", d), n)), "exit 0");
    SYS(syscall(SYS_close_range, a, a, 4));
    CHECK_STATUS(helper_status("fd", (sprintf(n, "%d", a), n)), "exit 9");
}
TEST(exec_failed_keeps_everything) {
    int fd = SYS(open("/dev/null", O_RDONLY | O_CLOEXEC));
    signal(SIGUSR1, t_on_alarm);
    char *a[] = {"x", 0};
    CHECK_ERR(execve("missing", a, a), ENOENT);
    OK(fcntl(fd, F_GETFD) - FD_CLOEXEC);
    raise(SIGUSR1);
    CHECK_EQ(t_alarms, 1);
}
TEST(exec_signal_dispositions) {
    signal(SIGUSR1, SIG_IGN);
    CHECK_STATUS(helper_status("sig", "10"), "exit 1");
    signal(SIGUSR1, t_on_alarm);
    CHECK_STATUS(helper_status("sig", "10"), "exit 0");
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR1);
    sigprocmask(SIG_BLOCK, &s, 0);
    CHECK_STATUS(helper_status("sig", "10"), "exit 4");
    pid_t p = FORK();
    if (p == 0) {
        raise(SIGUSR1);
        execl(t_self, "x", "--helper", "sig", "10", (char *)0);
        _exit(126);
    }
    CHECK_STATUS(t_status(p), "exit 12");
}
TEST(exec_resets_altstack) {
    static char st[16384];
    stack_t s = {.ss_sp = st, .ss_size = sizeof st};
    SYS(sigaltstack(&s, 0));
    CHECK_STATUS(helper_status("altstack", "x"), "exit 0");
}
TEST(exec_keeps_process_state) {
    char b[600], cwd[256], me[16], want[600];
    SYS((long)getcwd(cwd, sizeof cwd));
    int p[2];
    SYS(pipe(p));
    pid_t c = FORK();
    if (c == 0) {
        struct rlimit r = {123, 456};
        setrlimit(RLIMIT_NOFILE, &r);
        umask(027);
        alarm(100);
        dup2(p[1], 1);
        sprintf(me, "%d", getpid());
        execl(t_self, "x", "--helper", "state", me, (char *)0);
        _exit(126);
    }
    CHECK_STATUS(t_status(c), "exit 0");
    ssize_t n = read(p[0], b, sizeof b - 1);
    b[n < 0 ? 0 : n] = 0;
    sprintf(want, "27 %s 1 1 123", cwd);
    CHECK_STR(b, want);
}
TEST(exec_sets_comm) {
    char b[64];
    copy_self("a-rather-long-program-name", 0755);
    CHECK_STATUS(run(b, sizeof b, "./a-rather-long-program-name", (char *[]){"zero", "--helper", "comm", 0}, (char *[]){0}), "exit 0");
    CHECK_STR(b, "a-rather-long-p");
}
TEST(exec_auxv) {
    CHECK_STATUS(helper_status("auxv", t_self), "exit 0");
}
TEST(exec_stack_layout) {
    CHECK_STATUS(helper_status("stackalign", "x"), "exit 0");
    for (int i = 0; i < 17; i++) {
        char pad[32] = "";
        memset(pad, 'p', i);
        CHECK_STATUS(helper_status("stackalign", pad), "exit 0");
    }
}
TEST(exec_aslr) {
    char a[64], b[64];
    for (int i = 0; i < 4; i++) {
        run(a, sizeof a, t_self, (char *[]){"x", "--helper", "aslr", 0}, (char *[]){0});
        run(b, sizeof b, t_self, (char *[]){"x", "--helper", "aslr", 0}, (char *[]){0});
        char *sa = strchr(a, ' '), *sb = strchr(b, ' ');
        MUST(sa && sb);
        CHECK(strcmp(sa, sb));
        *sa = *sb = 0;
        if (strcmp(a, b)) return;
    }
    CHECK(!"mmap never moves");
}
TEST(exec_brk_works) {
    CHECK_STATUS(helper_status("brk", "x"), "exit 0");
}
TEST(exec_many_args) {
    static char *argv[20004], b[64];
    argv[0] = "x";
    argv[1] = "--helper";
    argv[2] = "count";
    for (int i = 3; i < 20003; i++) argv[i] = "0123456789";
    argv[20003] = 0;
    CHECK_STATUS(run(b, sizeof b, t_self, argv, (char *[]){"A=b", 0}), "exit 0");
    CHECK_STR(b, "20000 1 220004");
}
TEST(exec_argument_limits) {
    static char big[140000];
    char b[64], *a[] = {"x", "--helper", "count", big, 0}, *none[] = {0};
    memset(big, 'b', sizeof big);
    big[131071] = 0; // the longest string: 128 KiB with its end
    CHECK_STATUS(run(b, sizeof b, t_self, a, none), "exit 0");
    CHECK_STR(b, "1 0 131072");
    big[131071] = 'b';
    big[131072] = 0;
    CHECK_ERR(execve(t_self, a, none), E2BIG);
    // all together: a quarter of the stack limit
    big[131071] = 0;
    static char *many[100];
    for (int i = 0; i < 99; i++) many[i] = big;
    many[99] = 0;
    CHECK_ERR(execve(t_self, many, none), E2BIG);
    CHECK_ERR(execve(t_self, none, many), E2BIG);
}
TEST(exec_scattered_strings) {
    // on the stack, on the heap, across two pages, at the end of a page before a hole, in a page of its own
    char b[64], near[] = "N=near", *heap = strdup("H=heap"), *e[60];
    char *m = mmap(0, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(m != MAP_FAILED);
    MUST(munmap(m + 3 * 4096, 4096) == 0);
    memset(m + 4090, 'a', 20);
    strcpy(m + 3 * 4096 - 7, "E=last");
    int n = 0;
    size_t bytes = 0;
    for (int i = 0; i < 8; i++) {
        char *at = m + (i < 4 ? 4 : i) * 4096 + 100 * i;
        sprintf(at, "P%d=page", i);
        char *some[] = {near, heap, m + 4090, m + 3 * 4096 - 7, at};
        for (int k = 0; k < 5; k++) bytes += strlen(e[n++] = some[k]) + 1;
    }
    e[n] = 0;
    char want[64];
    sprintf(want, "0 %d %zu", n, bytes);
    CHECK_STATUS(run(b, sizeof b, t_self, (char *[]){"x", "--helper", "count", 0}, e), "exit 0");
    CHECK_STR(b, want);
    e[3] = m + 3 * 4096; // in the hole
    CHECK_ERR(execve(t_self, (char *[]){"x", "--helper", "count", 0}, e), EFAULT);
    e[3] = m + 3 * 4096 - 7;
    m[3 * 4096 - 1] = 'x'; // runs into the hole
    CHECK_ERR(execve(t_self, (char *[]){"x", "--helper", "count", 0}, e), EFAULT);
    free(heap);
}
static void *idle(void *a) {
    (void)a;
    for (;;) pause();
}
TEST(exec_kills_other_threads) {
    pid_t p = FORK();
    if (p == 0) {
        pthread_t t;
        for (int i = 0; i < 5; i++) pthread_create(&t, 0, idle, 0);
        char b[16];
        sprintf(b, "%d", getpid());
        execl(t_self, "x", "--helper", "threads", b, (char *)0);
        _exit(126);
    }
    CHECK_STATUS(t_status(p), "exit 0");
}
static void *exec_thread(void *a) {
    execl(t_self, "x", "--helper", "threads", (char *)a, (char *)0);
    _exit(126);
}
TEST(exec_from_a_thread_takes_over_the_leader) {
    pid_t p = FORK();
    if (p == 0) {
        pthread_t t;
        for (int i = 0; i < 3; i++) pthread_create(&t, 0, idle, 0);
        static char b[16];
        sprintf(b, "%d", getpid());
        pthread_create(&t, 0, exec_thread, b);
        for (;;) pause();
    }
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(exec_from_a_thread_after_leader_exit) {
    pid_t p = FORK();
    if (p == 0) {
        pthread_t t;
        static char b[16];
        sprintf(b, "%d", getpid());
        pthread_create(&t, 0, exec_thread, b);
        syscall(SYS_exit, 0);
    }
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(execveat_forms) {
    copy_self("prog", 0755);
    char cwd[256];
    SYS((long)getcwd(cwd, sizeof cwd));
    int d = SYS(open(".", O_RDONLY | O_DIRECTORY)), f = SYS(open("prog", O_PATH)), r = SYS(open("prog", O_RDONLY | O_CLOEXEC));
    char *a[] = {"x", "--helper", "exit", "21", 0}, *e[] = {0};
    SYS(chdir("/"));
    CHECK_STATUS(CHILD(syscall(SYS_execveat, d, "prog", a, e, 0)), "exit 21");
    CHECK_STATUS(CHILD(syscall(SYS_execveat, f, "", a, e, AT_EMPTY_PATH)), "exit 21");
    CHECK_STATUS(CHILD(syscall(SYS_execveat, r, "", a, e, AT_EMPTY_PATH)), "exit 21");
    CHECK_STATUS(CHILD(fexecve(r, a, e)), "exit 21");
    CHECK_ERR(syscall(SYS_execveat, r, "", a, e, 0), ENOENT);
    CHECK_ERR(syscall(SYS_execveat, 999, "prog", a, e, 0), EBADF);
    CHECK_ERR(syscall(SYS_execveat, r, "x", a, e, 0), ENOTDIR);
    CHECK_ERR(syscall(SYS_execveat, d, "prog", a, e, 0x8000), EINVAL);
    SYS(symlinkat("prog", d, "link"));
    CHECK_ERR(syscall(SYS_execveat, d, "link", a, e, AT_SYMLINK_NOFOLLOW), ELOOP);
    CHECK_STATUS(CHILD(syscall(SYS_execveat, d, "link", a, e, 0)), "exit 21");
}
TEST(execveat_script) {
    script("s", "#!/bin/sh\nexit 23\n");
    int f = SYS(open("s", O_RDONLY)), c = SYS(open("s", O_RDONLY | O_CLOEXEC));
    char *a[] = {"x", 0}, *e[] = {0};
    CHECK_STATUS(CHILD(syscall(SYS_execveat, f, "", a, e, AT_EMPTY_PATH)), "exit 23");
    CHECK_ERR(syscall(SYS_execveat, c, "", a, e, AT_EMPTY_PATH), ENOENT);
}
TEST(exec_memfd) {
    int m = SYS(memfd_create("prog", 0)), in = SYS(open(t_self, O_RDONLY));
    char b[65536];
    ssize_t n;
    while ((n = read(in, b, sizeof b)) > 0) MUST(write(m, b, n) == n);
    char *a[] = {"x", "--helper", "exit", "24", 0}, *e[] = {0};
    // unlike a file's, a memfd's own writable descriptor does not stand in the way
    CHECK_STATUS(CHILD(syscall(SYS_execveat, m, "", a, e, AT_EMPTY_PATH)), "exit 24");
    char path[64];
    sprintf(path, "/proc/self/fd/%d", m);
    int r = SYS(open(path, O_RDONLY));
    close(m);
    CHECK_STATUS(CHILD(syscall(SYS_execveat, r, "", a, e, AT_EMPTY_PATH)), "exit 24");
    sprintf(path, "/proc/self/fd/%d", r);
    CHECK_STATUS(CHILD(execve(path, a, e)), "exit 24");
}
TEST(exec_permission) {
    copy_self("prog", 0700);
    SYS(chmod(".", 0755));
    char *a[] = {"x", "--helper", "exit", "3", 0}, *e[] = {0};
    CHECK_CHILD(SYS(setuid(1234)); CHECK_ERR(execve("./prog", a, e), EACCES));
    SYS(chmod("prog", 0711));
    CHECK_STATUS(CHILD(SYS(setuid(1234)); execve("./prog", a, e)), "exit 3");
    SYS(chmod("prog", 0644));
    CHECK_ERR(execve("./prog", a, e), EACCES); // root too needs one x bit
}
TEST(exec_unreadable_program) {
    copy_self("prog", 0111);
    SYS(chmod(".", 0755));
    char *a[] = {"x", "--helper", "exit", "3", 0}, *e[] = {0};
    CHECK_STATUS(CHILD(SYS(setuid(1234)); execve("./prog", a, e)), "exit 3");
}
static void poke(const char *path, off_t at, const void *v, size_t n) {
    int fd = SYS(open(path, O_WRONLY));
    MUST(pwrite(fd, v, n, at) == n);
    close(fd);
}
TEST(exec_broken_elf) {
    char *a[] = {"x", "--helper", "exit", "3", 0}, *e[] = {0};
    uint16_t v;
    copy_self("p", 0755);
    poke("p", EI_CLASS, "\x01", 1); // says 32-bit, machine x86-64
    v = EM_ARM;
    poke("p", offsetof(Elf64_Ehdr, e_machine), &v, 2);
    CHECK_ERR(execve("./p", a, e), ENOEXEC);
    copy_self("p", 0755);
    v = EM_AARCH64;
    poke("p", offsetof(Elf64_Ehdr, e_machine), &v, 2);
    CHECK_ERR(execve("./p", a, e), ENOEXEC);
    copy_self("p", 0755);
    v = ET_REL;
    poke("p", offsetof(Elf64_Ehdr, e_type), &v, 2);
    CHECK_ERR(execve("./p", a, e), ENOEXEC);
    copy_self("p", 0755);
    v = 3;
    poke("p", offsetof(Elf64_Ehdr, e_phentsize), &v, 2);
    CHECK_ERR(execve("./p", a, e), ENOEXEC);
    copy_self("p", 0755);
    v = 0;
    poke("p", offsetof(Elf64_Ehdr, e_phnum), &v, 2);
    CHECK_ERR(execve("./p", a, e), ENOEXEC);
    copy_self("p", 0755);
    poke("p", 0, "\x7f" "ELG", 4);
    CHECK_ERR(execve("./p", a, e), ENOEXEC);
}
TEST(exec_truncated_elf) {
    char *a[] = {"x", "--helper", "exit", "3", 0}, *e[] = {0};
    copy_self("p", 0755);
    SYS(truncate("p", 3));
    CHECK_ERR(execve("./p", a, e), ENOEXEC);
    copy_self("p", 0755);
    SYS(truncate("p", 40));
    CHECK_ERR(execve("./p", a, e), ENOEXEC);
    copy_self("p", 0755);
    SYS(truncate("p", 64)); // the header is whole, the program headers are not there
    int r = CHILD(execve("./p", a, e); _exit(errno == EIO || errno == ENOEXEC ? 50 : 51));
    CHECK_STATUS(r, "exit 50");
    copy_self("p", 0755);
    SYS(truncate("p", 4096)); // the headers are there, what they speak of is not: it starts and dies
    r = CHILD(execve("./p", a, e); _exit(60));
    CHECK(WIFSIGNALED(r) && (WTERMSIG(r) == SIGBUS || WTERMSIG(r) == SIGSEGV));
}
TEST(exec_elf_wild_segments) {
    char *a[] = {"x", "--helper", "exit", "3", 0}, *e[] = {0};
    copy_self("p", 0755);
    Elf64_Ehdr h;
    int fd = SYS(open("p", O_RDWR));
    MUST(pread(fd, &h, sizeof h, 0) == sizeof h);
    for (int i = 0; i < h.e_phnum; i++) {
        Elf64_Phdr p;
        off_t at = h.e_phoff + i * sizeof p;
        MUST(pread(fd, &p, sizeof p, at) == sizeof p);
        if (p.p_type == PT_LOAD) {
            p.p_memsz = 0x7fffffffffff0000; // larger than any address space
            MUST(pwrite(fd, &p, sizeof p, at) == sizeof p);
            break;
        }
    }
    close(fd);
    int st = CHILD(execve("./p", a, e); _exit(60));
    CHECK(WIFSIGNALED(st) || (WIFEXITED(st) && WEXITSTATUS(st) == 60));
}
TEST(exec_missing_elf_interpreter) {
    // a minimal dynamic executable whose interpreter does not exist
    struct {
        Elf64_Ehdr h;
        Elf64_Phdr p[2];
        char interp[32];
    } f = {.h = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                 .e_type = ET_EXEC, .e_machine = EM_X86_64, .e_version = 1, .e_entry = 0x400000, .e_phoff = sizeof(Elf64_Ehdr),
                 .e_ehsize = sizeof(Elf64_Ehdr), .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 2}};
    f.p[0] = (Elf64_Phdr){.p_type = PT_INTERP, .p_offset = offsetof(__typeof__(f), interp), .p_filesz = 15};
    strcpy(f.interp, "/nonexistent/l");
    f.p[1] = (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = 0x400000, .p_filesz = sizeof f, .p_memsz = sizeof f, .p_align = 4096};
    int fd = SYS(open("p", O_CREAT | O_WRONLY, 0755));
    MUST(write(fd, &f, sizeof f) == sizeof f);
    close(fd);
    char *a[] = {"x", 0}, *e[] = {0};
    CHECK_ERR(execve("./p", a, e), ENOENT);
    f.p[0].p_filesz = 14; // not terminated
    fd = SYS(open("q", O_CREAT | O_WRONLY, 0755));
    MUST(write(fd, &f, sizeof f) == sizeof f);
    close(fd);
    CHECK_ERR(execve("./q", a, e), ENOEXEC);
    strcpy(f.interp, "/tmp");
    f.p[0].p_filesz = 5;
    fd = SYS(open("r", O_CREAT | O_WRONLY, 0755));
    MUST(write(fd, &f, sizeof f) == sizeof f);
    close(fd);
    CHECK_ERR(execve("./r", a, e), EACCES);
}
TEST(exec_tiny_static_program) {
    // 120 bytes of header and a few of code: exit(42)
    static const unsigned char code[] = {0xbf, 42, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05};
    struct {
        Elf64_Ehdr h;
        Elf64_Phdr p;
        unsigned char code[sizeof code];
    } f = {.h = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                 .e_type = ET_EXEC, .e_machine = EM_X86_64, .e_version = 1, .e_entry = 0x400000 + 120, .e_phoff = sizeof(Elf64_Ehdr),
                 .e_ehsize = sizeof(Elf64_Ehdr), .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 1},
           .p = {.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = 0x400000, .p_filesz = 120 + sizeof code, .p_memsz = 120 + sizeof code, .p_align = 4096}};
    memcpy(f.code, code, sizeof code);
    int fd = SYS(open("p", O_CREAT | O_WRONLY, 0755));
    MUST(write(fd, &f, sizeof f) == sizeof f);
    close(fd);
    char *a[] = {"x", 0}, *e[] = {0};
    CHECK_STATUS(CHILD(execve("./p", a, e)), "exit 42");
    // the file ends in the middle of a page and memory goes on: the rest is zero
    f.p.p_memsz = 0x5000;
    f.p.p_flags |= PF_W;
    fd = SYS(open("q", O_CREAT | O_WRONLY, 0755));
    MUST(write(fd, &f, sizeof f) == sizeof f);
    close(fd);
    CHECK_STATUS(CHILD(execve("./q", a, e)), "exit 42");
}
TEST(exec_clears_pdeathsig_only_when_privileged) {
    OK(prctl(PR_SET_PDEATHSIG, SIGUSR1));
    pid_t p = FORK();
    if (p == 0) {
        prctl(PR_SET_PDEATHSIG, 12);
        execl(t_self, "x", "--helper", "pdeath", (char *)0);
        _exit(126);
    }
    CHECK_STATUS(t_status(p), "exit 12");
}
TEST(exec_unshares_files) {
    // exec undoes CLONE_FILES: the child's closing of its close-on-exec descriptors does not reach us
    int fd = SYS(open("/dev/null", O_RDONLY | O_CLOEXEC));
    pid_t p = (pid_t)SYS(syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0));
    if (p == 0) {
        execl(t_self, "x", "--helper", "exit", "0", (char *)0);
        _exit(126);
    }
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK(fcntl(fd, F_GETFD) >= 0);
}
TEST(exec_chain_of_hundred) {
    pid_t p = FORK();
    if (p == 0) {
        execl("/bin/sh", "sh", "-c", "n=$1; [ $n -gt 0 ] || exit 77; exec /bin/sh -c \"$2\" sh $((n-1)) \"$2\"", "sh", "100",
              "n=$1; [ $n -gt 0 ] || exit 55; exec /bin/sh -c \"$2\" sh $((n-1)) \"$2\"", (char *)0);
        _exit(126);
    }
    CHECK_STATUS(t_status(p), "exit 55");
}
TEST(program_can_be_written_when_its_process_has_ended) {
    static char image[1 << 20];
    int in = SYS(open("/bin/true", O_RDONLY)), n = SYS(read(in, image, sizeof image));
    int out = SYS(open("/tmp/written", O_WRONLY | O_CREAT | O_TRUNC, 0755));
    CHECK_EQ(write(out, image, n), n);
    close(out);
    for (int i = 0; i < 100; i++) {
        pid_t p = vfork();
        if (!p) {
            execl("/tmp/written", "written", NULL);
            _exit(9);
        }
        CHECK_STATUS(t_status(p), "exit 0");
        close(SYS(open("/tmp/written", O_WRONLY)));
    }
    SYS(unlink("/tmp/written"));
}

TEST(script_name_is_the_one_that_was_given) {
    char line[PATH_MAX + 64], *a[] = {"any", 0}, *e[] = {0};
    sprintf(line, "#!%s --helper\n", t_self);
    t_make("execfn", line);
    SYS(chmod("execfn", 0755));
    CHECK_STATUS(CHILD(execve("./execfn", a, e)), "exit 0");
}
static int sleeps(void *a) {
    pause();
    return 0;
}
static void *thread_sleeps(void *a) {
    pause();
    return 0;
}
// Who shares root and working directory with another process gets no rights from a set-user-ID program.
TEST(set_user_id_with_a_shared_fs_context) {
    copy_self("prog", 0755);
    SYS(chown("prog", 4242, 4242));
    SYS(chmod("prog", 04755));
    SYS(chmod(".", 0755));
    char *a[] = {"x", "--helper", "euid", 0}, *e[] = {0};
    int st = CHILD(SYS(setresuid(1234, 1234, 1234)); execve("./prog", a, e));
    char b[64];
    if (strcmp(t_describe(st, b), "exit 42")) SKIP("set-user-ID has no effect here");
    static char stack[16384] __attribute__((aligned(16)));
    CHECK_STATUS(CHILD({
        pid_t p = SYS(clone(sleeps, stack + sizeof stack, CLONE_FS | SIGCHLD, 0));
        (void)p;
        SYS(setresuid(1234, 1234, 1234));
        execve("./prog", a, e);
    }), "exit 12");
    // Threads of the same process do not count.
    CHECK_STATUS(CHILD({
        pthread_t t;
        SYS(setresuid(1234, 1234, 1234));
        pthread_create(&t, 0, thread_sleeps, 0);
        execve("./prog", a, e);
    }), "exit 42");
}

// Programs with more rights than their caller: who traces them, and who looks into them.
#define T_REEXEC reexec
#include "ptrace.h"
#include <grp.h>
#include <sys/auxv.h>
#include <sys/fsuid.h>
#include <linux/capability.h>
#include <sys/xattr.h>

#define USER 1000
#define OWNER 1234 // of set-user-ID programs
#define GROUP 4321

// As "euid" the program exits with 1 for USER, 2 for OWNER, 3 for user 0; as "egid" with 1 for GROUP, else 2; as "caps"
// with 1 when it holds CAP_CHOWN, else 2; as "dumpable" with 10 and what PR_GET_DUMPABLE says; as "deathsig" with its
// PR_SET_PDEATHSIG.
static void reexec(int argc, char **argv) {
    if (argc < 2) return;
    if (!strcmp(argv[1], "euid")) _exit(geteuid() == USER ? 1 : geteuid() == OWNER ? 2 : geteuid() == 0 ? 3 : 4);
    if (!strcmp(argv[1], "egid")) _exit(getegid() == GROUP ? 1 : 2);
    if (!strcmp(argv[1], "dumpable")) _exit(prctl(PR_GET_DUMPABLE) + 10);
    if (!strcmp(argv[1], "deathsig")) {
        int sig = -1;
        prctl(PR_GET_PDEATHSIG, &sig);
        _exit(sig);
    }
    // Says whether it is dumpable, and waits for input.
    if (!strcmp(argv[1], "hide")) prctl(PR_SET_DUMPABLE, 0);
    if (!strcmp(argv[1], "wait") || !strcmp(argv[1], "hide")) {
        char c = prctl(PR_GET_DUMPABLE);
        (void)!write(1, &c, 1);
        _exit((int)read(0, &c, 1));
    }
    if (!strcmp(argv[1], "caps")) {
        struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct d[2] = {0};
        syscall(SYS_capget, &h, d);
        _exit(d[0].permitted & 1 << CAP_CHOWN ? 1 : 2);
    }
}

// A copy of this program in the sub-test's directory, which everybody may enter.
static void program(const char *name, uid_t uid, gid_t gid, mode_t mode) {
    char b[65536];
    int in = SYS(open(t_self, O_RDONLY)), out = SYS(open(name, O_CREAT | O_WRONLY, 0755));
    ssize_t n;
    while ((n = read(in, b, sizeof b)) > 0) MUST(write(out, b, n) == n);
    close(in);
    close(out);
    SYS(chown(name, uid, gid));
    SYS(chmod(name, mode));
    SYS(chmod(".", 0755));
}
static void become(uid_t uid) {
    SYS(setgroups(0, 0));
    SYS(setresgid(uid, uid, uid));
    SYS(setresuid(uid, uid, uid));
}
static void run(const char *name, const char *what) {
    execl(name, name, what, (char *)0);
    _exit(99);
}
// Lets a tracee go until it ends, and gives its exit code. It must stop once for the program, if it is seen to.
static int let_run(pid_t p) {
    int status;
    for (;;) {
        status = stop_of(p);
        if (status == -1 || !WIFSTOPPED(status)) break;
        OK(pt(PTRACE_CONT, p, 0, 0));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -status;
}

TEST(set_id_without_a_tracer) {
    program("p", OWNER, GROUP, 06755);
    CHECK_STATUS(CHILD(become(USER); run("./p", "euid")), "exit 2");
    CHECK_STATUS(CHILD(become(USER); run("./p", "egid")), "exit 1");
}
// A tracer that could not attach to the program must not see it run with more rights.
TEST(set_id_under_a_tracer) {
    program("p", OWNER, GROUP, 06755);
    const char *what[] = {"euid", "egid"};
    int want[] = {1, 2};
    for (int i = 0; i < 2; i++) {
        CHECK_CHILD(become(USER); OK(prctl(PR_SET_DUMPABLE, 1)); pid_t p = FORK(); if (p == 0) {
            OK(pt(PTRACE_TRACEME, 0, 0, 0));
            run("./p", what[i]);
        } CHECK_EQ(let_run(p), want[i]));
    }
}
TEST(set_id_under_a_tracer_that_seized_it) {
    program("p", 0, 0, 04755);
    CHECK_CHILD(become(USER); OK(prctl(PR_SET_DUMPABLE, 1)); struct t_gate g = t_gate(); pid_t p = FORK(); if (p == 0) {
        t_pass(g);
        run("./p", "euid");
    } OK(pt(PTRACE_SEIZE, p, 0, 0)); t_open(g); CHECK_EQ(let_run(p), 1));
}
TEST(set_id_after_a_detach) {
    program("p", OWNER, GROUP, 06755);
    CHECK_CHILD(become(USER); OK(prctl(PR_SET_DUMPABLE, 1)); pid_t p = FORK(); if (p == 0) {
        OK(pt(PTRACE_TRACEME, 0, 0, 0));
        raise(SIGSTOP);
        run("./p", "euid");
    } CHECK_STOP(p, SIGSTOP); OK(pt(PTRACE_DETACH, p, 0, 0)); CHECK_EQ(let_run(p), 2));
}
// What counts are the credentials that the tracer attached with. PTRACE_TRACEME attaches with those of the child.
TEST(set_id_under_a_tracer_that_was_root) {
    program("p", OWNER, GROUP, 06755);
    struct t_gate g = t_gate();
    CHECK_CHILD(pid_t p = FORK(); if (p == 0) {
        become(USER);
        t_pass(g);
        run("./p", "euid");
    } OK(pt(PTRACE_SEIZE, p, 0, 0)); become(USER); t_open(g); CHECK_EQ(let_run(p), 2));
    CHECK_CHILD(pid_t p = FORK(); if (p == 0) {
        OK(pt(PTRACE_TRACEME, 0, 0, 0));
        become(USER);
        run("./p", "euid");
    } CHECK_EQ(let_run(p), 2));
    CHECK_CHILD(pid_t p = FORK(); if (p == 0) {
        become(USER);
        OK(pt(PTRACE_TRACEME, 0, 0, 0));
        run("./p", "euid");
    } CHECK_EQ(let_run(p), 1));
}
// The child of a tracee is traced with the same credentials as its parent.
TEST(set_id_in_the_child_of_a_tracee) {
    program("p", OWNER, GROUP, 06755);
    for (int i = 0; i < 2; i++) {
        struct t_gate g = t_gate();
        CHECK_CHILD(if (i) become(USER), OK(prctl(PR_SET_DUMPABLE, 1)); pid_t p = FORK(); if (p == 0) {
            if (!i) become(USER);
            t_pass(g);
            pid_t q = FORK();
            if (q == 0) run("./p", "euid");
            _exit(WEXITSTATUS(t_status(q)));
        } OK(pt(PTRACE_SEIZE, p, 0, PTRACE_O_TRACEFORK)); if (!i) become(USER); t_open(g); for (;;) {
            int status;
            pid_t who = waitpid(-1, &status, __WALL);
            if (who < 0) break;
            if (WIFSTOPPED(status)) pt(PTRACE_CONT, who, 0, WSTOPSIG(status) == SIGCHLD ? SIGCHLD : 0);
            else if (who == p) CHECK_EQ(WEXITSTATUS(status), i ? 1 : 2);
        });
    }
}
TEST(file_capabilities_under_a_tracer) {
    program("p", 0, 0, 0755);
    struct vfs_cap_data caps = {VFS_CAP_REVISION_2, {{1 << CAP_CHOWN, 0}, {0, 0}}};
    SYS(setxattr("p", "security.capability", &caps, sizeof caps, 0));
    CHECK_STATUS(CHILD(become(USER); run("./p", "caps")), "exit 1");
    CHECK_CHILD(become(USER); OK(prctl(PR_SET_DUMPABLE, 1)); pid_t p = FORK(); if (p == 0) {
        OK(pt(PTRACE_TRACEME, 0, 0, 0));
        run("./p", "caps");
    } CHECK_EQ(let_run(p), 2));
}

// A child with capabilities that its parent has not cannot ask that one to trace it.
TEST(traceme_of_a_more_capable_child) {
    for (int i = 0; i < 2; i++) {
        struct t_gate g = t_gate();
        CHECK_CHILD(pid_t p = FORK(); if (p == 0) {
            if (i) become(USER);
            t_pass(g);
            if (i) OK(pt(PTRACE_TRACEME, 0, 0, 0));
            else CHECK_ERR(pt(PTRACE_TRACEME, 0, 0, 0), EPERM);
            _exit(7);
        } become(i ? OWNER : USER); t_open(g); CHECK_STATUS(t_status(p), "exit 7"));
    }
}

// A file of no mount that its caller has gives no rights, whatever its mode and attributes say.
TEST(set_id_of_a_memfd) {
    program("p", OWNER, GROUP, 06755);
    int m = SYS(memfd_create("prog", 0)), in = SYS(open("p", O_RDONLY));
    char b[65536], path[64], *const none[] = {0};
    ssize_t n;
    while ((n = read(in, b, sizeof b)) > 0) MUST(write(m, b, n) == n);
    SYS(fchown(m, OWNER, GROUP));
    SYS(fchmod(m, 06755));
    sprintf(path, "/proc/self/fd/%d", m);
    for (int i = 0; i < 2; i++) {
        char *const args[] = {"p", i ? "egid" : "euid", 0};
        int want = i ? 2 : 1;
        CHECK_EQ(WEXITSTATUS(CHILD(become(USER); syscall(SYS_execveat, m, "", args, none, AT_EMPTY_PATH))), want);
        CHECK_EQ(WEXITSTATUS(CHILD(become(USER); execve(path, args, none))), want);
        CHECK_EQ(WEXITSTATUS(CHILD(become(USER); syscall(SYS_execveat, in, "", args, none, AT_EMPTY_PATH))), i ? 1 : 2);
    }
    struct vfs_cap_data caps = {VFS_CAP_REVISION_2, {{1 << CAP_CHOWN, 0}, {0, 0}}};
    SYS(fsetxattr(m, "security.capability", &caps, sizeof caps, 0));
    char *const args[] = {"p", "caps", 0};
    CHECK_EQ(WEXITSTATUS(CHILD(become(USER); syscall(SYS_execveat, m, "", args, none, AT_EMPTY_PATH))), 2);
}

static pid_t attacher, executing;
static struct t_gate ready;
static void *end_slowly(void *_) {
    t_open(ready);
    for (;;) pause();
    return 0;
}
// 'S' or another letter of /proc/PID/stat.
static char state_of(pid_t p) {
    char path[64], b[512];
    sprintf(path, "/proc/%d/stat", p);
    if (t_slurp(path, b, sizeof b) <= 0 || !strrchr(b, ')')) return '?';
    return strrchr(b, ')')[2];
}
// While a program with more rights begins, nobody attaches with the rights of before. The other thread of the process
// stops on its way out, so that execve(2) is held up half-way.
TEST(attaching_during_an_execve) {
    program("p", OWNER, GROUP, 06755);
    become(USER);
    OK(prctl(PR_SET_DUMPABLE, 1));
    ready = t_gate();
    struct t_gate go = t_gate(), asking = t_gate(), done = t_gate();
    executing = FORK();
    if (executing == 0) {
        pthread_t t;
        MUST(pthread_create(&t, 0, end_slowly, 0) == 0);
        t_pass(go);
        run("./p", "euid");
    }
    t_pass(ready);
    // The other thread is the one whose ID is not the process's.
    char path[64];
    sprintf(path, "/proc/%d/task", executing);
    pid_t other = 0;
    for (pid_t tid = executing + 1; !other && tid < executing + 1000; tid++) {
        char one[128];
        sprintf(one, "%s/%d", path, tid);
        if (access(one, F_OK) == 0) other = tid;
    }
    MUST(other);
    OK(pt(PTRACE_SEIZE, other, 0, PTRACE_O_TRACEEXIT));
    t_open(go);
    CHECK_STOP(other, EVENT(PTRACE_EVENT_EXIT));
    attacher = FORK();
    if (attacher == 0) {
        t_open(asking);
        long r = pt(PTRACE_SEIZE, executing, 0, 0);
        int e = errno;
        CHECK_EQ(r, -1);
        CHECK(e == EPERM || e == ESRCH); // the program may have ended
        t_pass(done);
        _exit(0);
    }
    t_pass(asking);
    // It has asked and sleeps: for the program, or, which is wrong, because it has its answer.
    while (state_of(attacher) != 'S') usleep(1000);
    OK(pt(PTRACE_CONT, other, 0, 0));
    CHECK_STATUS(stop_of(other), "exit 0"); // for which execve(2) waits, too
    int st;
    CHECK_EQ(waitpid(executing, &st, 0), executing);
    CHECK_STATUS(st, "exit 2");
    t_open(done);
    CHECK_STATUS(t_status(attacher), "exit 0");
}

// A program that its caller may not read is not to be read in memory, either.
TEST(programs_that_cannot_be_read) {
    program("open", 0, 0, 0755);
    program("closed", 0, 0, 0711);
    CHECK_STATUS(CHILD(become(USER); run("./open", "dumpable")), "exit 11");
    CHECK_STATUS(CHILD(become(USER); run("./closed", "dumpable")), "exit 10");
    CHECK_STATUS(CHILD(run("./closed", "dumpable")), "exit 11");
    // The next program is another one.
    CHECK_STATUS(CHILD(become(USER); prctl(PR_SET_DUMPABLE, 0); run("./open", "dumpable")), "exit 11");
    // An interpreter counts, a script does not.
    char here[PATH_MAX], line[PATH_MAX + 32];
    MUST(getcwd(here, sizeof here));
    snprintf(line, sizeof line, "#!%s/closed dumpable\n", here);
    t_make("by-closed", line);
    snprintf(line, sizeof line, "#!%s/open dumpable\n", here);
    t_make("by-open", line);
    SYS(chmod("by-closed", 0755));
    SYS(chmod("by-open", 0755));
    CHECK_STATUS(CHILD(become(USER); execl("./by-closed", "s", (char *)0)), "exit 10");
    CHECK_STATUS(CHILD(become(USER); execl("./by-open", "s", (char *)0)), "exit 11");
}
// What the caller was before counts as well, and a program with more rights gets no signal from the end of its parent.
TEST(dumpable_and_pdeathsig_after_execve) {
    program("p", OWNER, GROUP, 0755);
    CHECK_STATUS(CHILD(become(USER); prctl(PR_SET_PDEATHSIG, SIGUSR1); run("./p", "deathsig")), "exit 10");
    CHECK_STATUS(CHILD(SYS(setresuid(USER, OWNER, USER)); run("./p", "dumpable")), "exit 10");
    CHECK_STATUS(CHILD(SYS(setresuid(USER, OWNER, USER)); prctl(PR_SET_PDEATHSIG, SIGUSR1); run("./p", "deathsig")),
                 "exit 0");
    SYS(chmod("p", 06755));
    CHECK_STATUS(CHILD(become(USER); run("./p", "dumpable")), "exit 10");
    CHECK_STATUS(CHILD(become(USER); prctl(PR_SET_PDEATHSIG, SIGUSR1); run("./p", "deathsig")), "exit 0");
}
static int death_signal(void) {
    int sig = -1;
    OK(prctl(PR_GET_PDEATHSIG, &sig));
    return sig;
}
static void rearm(void) {
    OK(prctl(PR_SET_DUMPABLE, 1));
    OK(prctl(PR_SET_PDEATHSIG, SIGUSR1));
}
static void check_kept(bool kept) {
    CHECK_EQ(prctl(PR_GET_DUMPABLE), kept);
    CHECK_EQ(death_signal(), kept ? SIGUSR1 : 0);
}
// Every change of who the process acts as clears both.
TEST(dumpable_and_pdeathsig_after_changes) {
    CHECK_CHILD(rearm(); SYS(setfsuid(USER)); check_kept(false));
    CHECK_CHILD(rearm(); SYS(setegid(USER)); check_kept(false));
    CHECK_CHILD(rearm(); SYS(setreuid(USER, -1)); check_kept(true));
    CHECK_CHILD(rearm(); setfsgid(USER); check_kept(false));
    CHECK_CHILD(rearm(); SYS(unshare(CLONE_NEWUSER)); check_kept(true));
}

// A child in a user namespace of USER's, whose user 0 USER is; it goes on when `go` is opened.
static pid_t in_user_namespace(void (*body)(void)) {
    struct t_gate made = t_gate(), mapped = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        become(USER);
        SYS(prctl(PR_SET_DUMPABLE, 1));
        SYS(unshare(CLONE_NEWUSER));
        t_open(made);
        t_pass(mapped);
        body();
        _exit(0);
    }
    t_pass(made);
    const char *files[] = {"uid_map", "gid_map"};
    for (int i = 0; i < 2; i++) {
        char path[64];
        sprintf(path, "/proc/%d/%s", p, files[i]);
        int fd = SYS(open(path, O_WRONLY));
        CHECK(write(fd, "0 1000 1", 8) == 8);
        close(fd);
    }
    t_open(mapped);
    return p;
}
static struct t_gate inside, outside;
static void wait_inside(void) {
    t_open(inside);
    t_pass(outside);
}
TEST(dumpable_and_pdeathsig_after_setns) {
    inside = t_gate(), outside = t_gate();
    pid_t p = in_user_namespace(wait_inside);
    t_pass(inside);
    char path[64];
    sprintf(path, "/proc/%d/ns/user", p);
    int ns = SYS(open(path, O_RDONLY));
    // The owner of the namespace has all rights in it already.
    CHECK_CHILD(become(USER); rearm(); SYS(setns(ns, CLONE_NEWUSER)); check_kept(true));
    CHECK_CHILD(rearm(); SYS(setns(ns, CLONE_NEWUSER)); check_kept(false));
    t_open(outside);
    CHECK_STATUS(t_status(p), "exit 0");
}

static int may_look(pid_t p) {
    char path[64];
    sprintf(path, "/proc/%d/environ", p);
    int fd = open(path, O_RDONLY), seized = pt(PTRACE_SEIZE, p, 0, 0);
    close(fd);
    CHECK_EQ(fd >= 0, seized == 0);
    if (seized == 0) {
        OK(pt(PTRACE_INTERRUPT, p, 0, 0));
        CHECK_STOP(p, EVENT(PTRACE_EVENT_STOP));
        OK(pt(PTRACE_DETACH, p, 0, 0));
    }
    return seized == 0;
}
// Runs a program that waits and says whether it is dumpable.
static pid_t waiting(const char *name, const char *what, int expect, struct t_gate *end) {
    int in[2], out[2];
    SYS(pipe(in));
    SYS(pipe(out));
    pid_t p = FORK();
    if (p == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[0]), close(in[1]), close(out[0]), close(out[1]);
        run(name, what);
    }
    char c = 9;
    CHECK_EQ(read(out[0], &c, 1), 1);
    CHECK_EQ(c, expect);
    close(in[0]), close(out[0]), close(out[1]);
    *end = (struct t_gate){-1, in[1]};
    return p;
}
// A process that is not dumpable takes CAP_SYS_PTRACE where its memory is from: that of a program, in the namespace in
// which it was executed, or further out when that does not have the owner of a file that cannot be read.
static void look_inside(void) {
    struct t_gate go = t_gate(), hidden = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        OK(prctl(PR_SET_DUMPABLE, 0)); // in memory from outside
        t_open(hidden);
        t_pass(go);
        _exit(5);
    }
    t_pass(hidden);
    CHECK_EQ(may_look(p), 0);
    t_open(go);
    CHECK_STATUS(t_status(p), "exit 5");
    struct t_gate end;
    p = waiting("./open", "wait", 1, &end);
    CHECK_EQ(may_look(p), 1);
    t_open(end);
    CHECK_STATUS(t_status(p), "exit 1");
    p = waiting("./closed", "wait", 0, &end);
    CHECK_EQ(may_look(p), 0);
    t_open(end);
    CHECK_STATUS(t_status(p), "exit 1");
    p = waiting("./open", "hide", 0, &end);
    CHECK_EQ(may_look(p), 1);
    t_open(end);
    CHECK_STATUS(t_status(p), "exit 1");
}
TEST(rights_over_memory_that_is_not_dumpable) {
    program("open", 0, 0, 0755);
    program("closed", 0, 0, 0711); // of a user that the namespace does not have
    CHECK_STATUS(t_status(in_user_namespace(look_inside)), "exit 0");
}

// Files of /proc tell of the memory that they were opened for, or ask again at every read. What was opened before a
// program with more rights began tells nothing of it.
TEST(proc_files_opened_before_an_execve) {
    program("p", OWNER, GROUP, 06755);
    become(USER);
    OK(prctl(PR_SET_DUMPABLE, 1));
    const struct {
        const char *name;
        int error; // of read(2) afterwards, 0 for the end of the file
    } files[] = {{"maps", 0},      {"smaps", 0},     {"environ", 0},     {"mem", 0},  {"smaps_rollup", ESRCH},
                 {"io", EACCES},   {"auxv", 0},      {"personality", EPERM}, {"syscall", EPERM}, {"numa_maps", 0}};
    enum { N = sizeof files / sizeof *files };
    struct t_gate go = t_gate(), end;
    int in[2], out[2], fds[N];
    SYS(pipe(in));
    SYS(pipe(out));
    pid_t p = FORK();
    if (p == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        t_pass(go);
        run("./p", "wait");
    }
    static char b[65536];
    for (int i = 0; i < N; i++) {
        char path[64];
        sprintf(path, "/proc/%d/%s", p, files[i].name);
        fds[i] = open(path, O_RDONLY);
        if (fds[i] < 0) {
            CHECK(!strcmp(files[i].name, "numa_maps") && errno == ENOENT); // of a kernel without NUMA
            continue;
        }
        // A process may read it now.
        int n = pread(fds[i], b, sizeof b, strcmp(files[i].name, "mem") ? 0 : ADDR(&words) & -4096);
        CHECK(n > 0);
    }
    t_open(go);
    char c = 9;
    CHECK_EQ(read(out[0], &c, 1), 1);
    CHECK_EQ(c, 0);
    for (int i = 0; i < N; i++) {
        if (fds[i] < 0) continue;
        errno = 0;
        int n = pread(fds[i], b, sizeof b, strcmp(files[i].name, "mem") ? 0 : ADDR(&words) & -4096), e = errno;
        if (!strcmp(files[i].name, "auxv")) {
            // Nothing, or what it was.
            for (unsigned long *v = (void *)b; (char *)v < b + n && *v; v += 2) CHECK(*v != AT_EUID || v[1] != OWNER);
            continue;
        }
        if (n != (files[i].error ? -1 : 0) || e != files[i].error)
            t_fail(__FILE__, __LINE__, "%s: read %d, %s", files[i].name, n, t_errno(e));
    }
    end = (struct t_gate){-1, in[1]};
    t_open(end);
    CHECK_STATUS(t_status(p), "exit 1");
}
// The same where the program has no more rights: a file goes on telling of the memory that it was opened for.
TEST(proc_files_opened_before_a_plain_execve) {
    program("p", 0, 0, 0755);
    struct t_gate go = t_gate();
    int in[2], out[2];
    SYS(pipe(in));
    SYS(pipe(out));
    pid_t p = FORK();
    if (p == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        t_pass(go);
        run("./p", "wait");
    }
    char path[64], b[100];
    int fds[3];
    const char *names[] = {"maps", "environ", "cmdline"};
    for (int i = 0; i < 3; i++) {
        sprintf(path, "/proc/%d/%s", p, names[i]);
        fds[i] = SYS(open(path, O_RDONLY));
    }
    t_open(go);
    CHECK_EQ(read(out[0], b, 1), 1);
    CHECK_EQ(read(fds[0], b, sizeof b), 0);
    CHECK_EQ(read(fds[1], b, sizeof b), 0);
    CHECK(read(fds[2], b, sizeof b) > 0); // the present program's
    CHECK_STR(b, "./p");
    struct t_gate end = {-1, in[1]};
    t_open(end);
    CHECK_STATUS(t_status(p), "exit 1");
}

// AT_EXECVE_CHECK: whether a program could be executed.
TEST(execveat_check) {
    char *a[] = {"x", 0}, *e[] = {0};
    const int check = 0x10000;
    int w = SYS(open("script", O_CREAT | O_RDWR, 0755));
    CHECK_EQ(write(w, "no program", 10), 10);
    CHECK_ERR(syscall(SYS_execveat, AT_FDCWD, "script", a, e, check), ETXTBSY);
    close(w);
    OK(syscall(SYS_execveat, AT_FDCWD, "script", a, e, check));
    OK(syscall(SYS_execveat, AT_FDCWD, "/bin/sh", a, e, check));
    OK(syscall(SYS_execveat, AT_FDCWD, "/bin/sh", 0, 0, check));
    CHECK_ERR(syscall(SYS_execveat, AT_FDCWD, "/bin/sh", 8, e, check), EFAULT);
    OK(syscall(SYS_execveat, SYS(open("script", O_RDONLY | O_CLOEXEC)), "", a, e, check | AT_EMPTY_PATH));
    OK(chmod("script", 0644));
    CHECK_ERR(syscall(SYS_execveat, AT_FDCWD, "script", a, e, check), EACCES);
    CHECK_ERR(syscall(SYS_execveat, AT_FDCWD, "/", a, e, check), EACCES);
    CHECK_ERR(syscall(SYS_execveat, AT_FDCWD, "/nosuch", a, e, check), ENOENT);
    CHECK_ERR(syscall(SYS_execveat, AT_FDCWD, "/bin/sh", a, e, 0x20000), EINVAL);
}

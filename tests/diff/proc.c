// /proc: what ps, top, libc, Java and Go read there. Shapes and relations, not the host's own numbers.
#include "t.h"
#include <poll.h>
#include <dirent.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static char buf[1 << 20];
static const char *slurp(const char *p) {
    if (t_slurp(p, buf, sizeof buf) < 0) t_fail(__FILE__, __LINE__, "%s: %s", p, t_errno(errno));
    return buf;
}
static const char *of(pid_t p, const char *what) {
    char n[64];
    sprintf(n, "/proc/%d/%s", p, what);
    return slurp(n);
}
// The rest of the line after "Key:" without blanks in front.
static char *field(const char *text, const char *key) {
    static char v[256];
    size_t k = strlen(key);
    for (const char *l = text; l && *l; l = strchr(l, '\n') ? strchr(l, '\n') + 1 : 0)
        if (!strncmp(l, key, k) && l[k] == ':') {
            l += k + 1;
            while (*l == ' ' || *l == '\t') l++;
            snprintf(v, sizeof v, "%.*s", (int)strcspn(l, "\n"), l);
            return v;
        }
    return 0;
}
static pid_t sleeper(void) {
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        t_open(g);
        for (;;) pause();
    }
    t_pass(g);
    return p;
}
static void done(pid_t p) {
    kill(p, SIGKILL);
    t_status(p);
}
static char state_of(pid_t p) {
    const char *s = strrchr(of(p, "stat"), ')');
    return s ? s[2] : '?';
}

TEST(self_and_thread_self) {
    char l[64] = "", want[64];
    CHECK(readlink("/proc/self", l, 63) > 0);
    CHECK_EQ(atoi(l), getpid());
    memset(l, 0, sizeof l);
    CHECK(readlink("/proc/thread-self", l, 63) > 0);
    sprintf(want, "%d/task/%d", getpid(), gettid());
    CHECK_STR(l, want);
}
TEST(list_of_processes) {
    pid_t p = sleeper();
    DIR *d = opendir("/proc");
    MUST(d);
    struct dirent *e;
    int me = 0, it = 0, one = 0;
    while ((e = readdir(d))) {
        int n = atoi(e->d_name);
        me += n == getpid();
        it += n == p;
        one += n == 1;
    }
    closedir(d);
    CHECK_EQ(me, 1);
    CHECK_EQ(it, 1);
    CHECK_EQ(one, 1);
    done(p);
    char n[64];
    sprintf(n, "/proc/%d", p);
    CHECK_ERR(access(n, F_OK), ENOENT);
    CHECK_ERR(access("/proc/999999", F_OK), ENOENT);
    CHECK_ERR(access("/proc/0", F_OK), ENOENT);
}
TEST(stat_fields) {
    prctl(PR_SET_NAME, "a ) name");
    pid_t p = sleeper();
    for (int i = 0; i < 500 && state_of(p) != 'S'; i++) t_ms(1);
    const char *t = of(p, "stat");
    int pid, ppid, pgrp, sid, tty, tpgid;
    char comm[32], st;
    MUST(sscanf(t, "%d (%[a ) name]) %c %d %d %d %d %d", &pid, comm, &st, &ppid, &pgrp, &sid, &tty, &tpgid) == 8 || sscanf(t, "%d", &pid) == 1);
    CHECK_EQ(pid, p);
    CHECK(strstr(t, "(a ) name) S "));
    t = strrchr(t, ')') + 2;
    unsigned long v[60];
    int n = 0;
    char *end;
    for (const char *s = t + 2; n < 60; n++) {
        v[n] = strtoull(s, &end, 10);
        if (end == s) break;
        s = end;
    }
    CHECK_EQ(n, 49); // 52 fields in all
    CHECK_EQ(v[0], getpid());
    CHECK_EQ(v[1], getpgrp());
    CHECK_EQ(v[2], getsid(0));
    CHECK_EQ(v[16], 1); // threads
    CHECK(v[19] > 100000); // vsize
    CHECK(v[20] > 0); // rss
    CHECK_EQ(v[34], SIGCHLD); // exit signal
    done(p);
}
TEST(stat_states) {
    pid_t p = sleeper();
    int tries = 0;
    while (state_of(p) != 'S' && tries++ < 500) t_ms(1);
    CHECK_EQ(state_of(p), 'S');
    kill(p, SIGSTOP);
    int st;
    CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
    CHECK_EQ(state_of(p), 'T');
    kill(p, SIGKILL);
    siginfo_t si;
    OK(waitid(P_PID, p, &si, WEXITED | WNOWAIT));
    CHECK_EQ(state_of(p), 'Z');
    CHECK_STR(of(p, "cmdline"), "");
    t_status(p);
    CHECK_EQ(state_of(getpid()), 'R');
}
TEST(status_fields) {
    pid_t p = sleeper();
    char t[8192];
    strcpy(t, of(p, "status"));
    char n[64];
    CHECK_STR(field(t, "Name"), "proc");
    CHECK_STR(field(t, "Umask"), "0022");
    CHECK(field(t, "State"));
    CHECK_EQ(atoi(field(t, "Tgid")), p);
    CHECK_EQ(atoi(field(t, "Pid")), p);
    CHECK_EQ(atoi(field(t, "PPid")), getpid());
    CHECK_STR(field(t, "TracerPid"), "0");
    CHECK_STR(field(t, "Uid"), "0\t0\t0\t0");
    CHECK_STR(field(t, "Gid"), "0\t0\t0\t0");
    CHECK(field(t, "FDSize"));
    CHECK(field(t, "Groups"));
    const char *mem[] = {"VmPeak", "VmSize", "VmHWM", "VmRSS", "VmData", "VmStk", "VmExe", "VmLib", "VmPTE", "VmSwap"};
    for (int i = 0; i < 10; i++) {
        char *v = field(t, mem[i]);
        if (!v) t_fail(__FILE__, __LINE__, "no %s", mem[i]);
        else CHECK(strstr(v, " kB"));
    }
    CHECK(atoi(field(t, "VmSize")) > 0);
    CHECK_STR(field(t, "Threads"), "1");
    CHECK_STR(field(t, "SigPnd"), "0000000000000000");
    CHECK_STR(field(t, "SigBlk"), "0000000000000000");
    CHECK(field(t, "SigIgn") && field(t, "SigCgt"));
    CHECK(field(t, "CapEff") && strlen(field(t, "CapEff")) == 16);
    CHECK(field(t, "CapBnd") && field(t, "CapAmb") && field(t, "CapInh") && field(t, "CapPrm"));
    CHECK_STR(field(t, "NoNewPrivs"), "0");
    CHECK(field(t, "Seccomp"));
    CHECK(field(t, "Cpus_allowed_list"));
    CHECK(field(t, "Mems_allowed_list"));
    CHECK(field(t, "voluntary_ctxt_switches"));
    CHECK(field(t, "nonvoluntary_ctxt_switches"));
    (void)n;
    done(p);
}
static long memory_of(const char *name) {
    char t[8192];
    strcpy(t, slurp("/proc/self/status"));
    return atol(field(t, name));
}
// The peak stays when memory goes, and a child begins with what it has.
TEST(peak_of_the_address_space) {
    long big = 64 << 20, before = memory_of("VmSize");
    void *p = mmap(0, big, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    CHECK(memory_of("VmPeak") >= before + big / 1024);
    OK(munmap(p, big));
    CHECK(memory_of("VmSize") < before + big / 2048);
    CHECK(memory_of("VmPeak") >= before + big / 1024);
    CHECK_CHILD(CHECK(memory_of("VmPeak") < before + big / 2048));
}
TEST(status_follows_signals_and_ids) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    sigprocmask(SIG_BLOCK, &m, 0);
    signal(SIGUSR2, SIG_IGN);
    signal(SIGHUP, t_on_alarm);
    raise(SIGUSR1);
    char t[8192];
    strcpy(t, slurp("/proc/self/status"));
    CHECK_STR(field(t, "SigPnd"), "0000000000000200");
    CHECK_STR(field(t, "SigBlk"), "0000000000000200");
    CHECK_STR(field(t, "SigIgn"), "0000000000000800");
    CHECK_STR(field(t, "SigCgt"), "0000000000000001");
    CHECK_CHILD(SYS(setresgid(5, 6, 7)); SYS(setresuid(1, 2, 3)); prctl(PR_SET_DUMPABLE, 1); strcpy(t, slurp("/proc/self/status")); CHECK_STR(field(t, "Uid"), "1\t2\t3\t2");
                CHECK_STR(field(t, "Gid"), "5\t6\t7\t6"); CHECK_STR(field(t, "CapEff"), "0000000000000000"));
}
static void *idle(void *a) {
    t_open(*(struct t_gate *)a);
    for (;;) pause();
}
TEST(task_directory) {
    struct t_gate g = t_gate();
    pthread_t t;
    for (int i = 0; i < 3; i++) {
        pthread_create(&t, 0, idle, &g);
        t_pass(g);
    }
    DIR *d = opendir("/proc/self/task");
    MUST(d);
    struct dirent *e;
    int n = 0;
    while ((e = readdir(d)))
        if (isdigit(e->d_name[0])) {
            n++;
            char p[300];
            sprintf(p, "/proc/self/task/%s/status", e->d_name);
            slurp(p);
            CHECK_EQ(atoi(field(buf, "Pid")), atoi(e->d_name));
            CHECK_EQ(atoi(field(buf, "Tgid")), getpid());
            sprintf(p, "/proc/self/task/%s/comm", e->d_name);
            CHECK_STR(slurp(p), "proc\n");
        }
    CHECK_EQ(n, 4);
    slurp("/proc/self/status");
    CHECK_STR(field(buf, "Threads"), "4");
    struct stat st;
    OK(stat("/proc/self/task", &st));
    CHECK_EQ(st.st_nlink, 6);
}
TEST(cmdline_environ_comm_exe_cwd_root) {
    struct t_gate g = t_gate();
    int q[2]; // the shell waits on it
    SYS(pipe(q));
    pid_t p = FORK();
    if (p == 0) {
        dup2(g.w, 1);
        dup2(q[0], 0);
        execle("/bin/sh", "my sh", "-c", "echo; read x", "arg with blanks", "", (char *)0, (char *[]){"A=1", "B=two words", 0});
        _exit(127);
    }
    t_pass(g);
    of(p, "cmdline");
    static const char want[] = "my sh\0-c\0echo; read x\0arg with blanks\0";
    char n[64];
    sprintf(n, "/proc/%d/cmdline", p);
    CHECK_EQ(t_slurp(n, buf, sizeof buf), sizeof want);
    CHECK_MEM(buf, want, sizeof want);
    sprintf(n, "/proc/%d/environ", p);
    CHECK(t_slurp(n, buf, sizeof buf) >= 16);
    CHECK_MEM(buf, "A=1\0B=two words", 16);
    CHECK_STR(of(p, "comm"), "sh\n");
    char l[PATH_MAX] = "", r[PATH_MAX];
    sprintf(n, "/proc/%d/exe", p);
    CHECK(readlink(n, l, sizeof l - 1) > 0);
    CHECK_STR(l, realpath("/bin/sh", r));
    memset(l, 0, sizeof l);
    sprintf(n, "/proc/%d/cwd", p);
    CHECK(readlink(n, l, sizeof l - 1) > 0);
    CHECK_STR(l, t_dir);
    memset(l, 0, sizeof l);
    sprintf(n, "/proc/%d/root", p);
    CHECK(readlink(n, l, sizeof l - 1) > 0);
    CHECK_STR(l, "/");
    done(p);
}
TEST(comm_is_writable) {
    int fd = SYS(open("/proc/self/comm", O_WRONLY));
    CHECK_EQ(write(fd, "renamed", 7), 7);
    char b[32] = "";
    prctl(PR_GET_NAME, b);
    CHECK_STR(b, "renamed");
}
TEST(fd_directory) {
    int f = t_file("some file", "x"), p[2];
    SYS(pipe(p));
    char n[64], l[512] = "", want[512];
    sprintf(n, "/proc/self/fd/%d", f);
    CHECK(readlink(n, l, 511) > 0);
    sprintf(want, "%s/some file", t_dir);
    CHECK_STR(l, want);
    struct stat st;
    OK(lstat(n, &st));
    CHECK_EQ(st.st_mode, S_IFLNK | 0700);
    sprintf(n, "/proc/self/fd/%d", p[0]);
    OK(lstat(n, &st));
    CHECK_EQ(st.st_mode, S_IFLNK | 0500);
    SYS(unlink("some file"));
    memset(l, 0, sizeof l);
    sprintf(n, "/proc/self/fd/%d", f);
    CHECK(readlink(n, l, 511) > 0);
    strcat(want, " (deleted)");
    CHECK_STR(l, want);
    CHECK_ERR(readlink("/proc/self/fd/999", l, 511), ENOENT);
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;
    int seen = 0;
    while ((e = readdir(d)))
        if (isdigit(e->d_name[0]) && (atoi(e->d_name) == f || atoi(e->d_name) == p[0] || atoi(e->d_name) == p[1])) seen++;
    CHECK_EQ(seen, 3);
    memset(l, 0, sizeof l);
    CHECK(readlink("/dev/fd", l, 511) > 0);
    CHECK_STR(l, "/proc/self/fd");
    SYS(lseek(f, 1, SEEK_SET));
    sprintf(n, "/proc/self/fdinfo/%d", f);
    slurp(n);
    CHECK_STR(field(buf, "pos"), "1");
    CHECK_STR(field(buf, "flags"), "0100002");
    CHECK(field(buf, "mnt_id"));
}
TEST(fd_of_another_process) {
    t_make("f", "theirs");
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        dup2(SYS(open("f", O_RDONLY)), 50);
        t_open(g);
        for (;;) pause();
    }
    t_pass(g);
    char n[64];
    sprintf(n, "/proc/%d/fd/50", p);
    CHECK_STR(slurp(n), "theirs");
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(open(n, O_RDONLY), EACCES));
    done(p);
}
TEST(maps) {
    int fd = t_file("mapped file", "");
    SYS(ftruncate(fd, 8192));
    char *m = SYS(mmap(0, 8192, PROT_READ, MAP_SHARED, fd, 0)), *a = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    slurp("/proc/self/maps");
    int found = 0, stack = 0, heap = 0, vdso = 0, exe = 0, line = 0;
    unsigned long last = 0;
    sbrk(4096);
    slurp("/proc/self/maps");
    for (char *l = strtok(buf, "\n"); l; l = strtok(0, "\n"), line++) {
        unsigned long s, e, off, ino;
        unsigned maj, min;
        char perm[5], path[600] = "";
        int k = sscanf(l, "%lx-%lx %4s %lx %x:%x %lu %599[^\n]", &s, &e, perm, &off, &maj, &min, &ino, path);
        if (k < 7) t_fail(__FILE__, __LINE__, "odd line %s", l);
        CHECK(s < e && s >= last);
        last = e;
        if (s == (unsigned long)m) {
            found |= 1;
            CHECK_STR(perm, "r--s");
            CHECK_EQ(e - s, 8192);
            CHECK(strstr(path, "/mapped file"));
            struct stat st;
            fstat(fd, &st);
            CHECK_EQ(ino, st.st_ino);
        }
        if ((unsigned long)a >= s && (unsigned long)a < e) {
            found |= 2;
            CHECK_STR(perm, "rwxp");
            CHECK_EQ(ino, 0);
            CHECK_STR(path, "");
        }
        stack += !strcmp(path, "[stack]");
        heap += !strcmp(path, "[heap]");
        vdso += !strcmp(path, "[vdso]");
        exe += !strcmp(path, t_self);
        if (!strcmp(path, "[stack]")) CHECK((unsigned long)&found >= s && (unsigned long)&found < e);
    }
    CHECK_EQ(found, 3);
    CHECK_EQ(stack, 1);
    CHECK(heap >= 1);
    CHECK_EQ(vdso, 1);
    CHECK(exe >= 3);
}
TEST(smaps_and_statm) {
    slurp("/proc/self/smaps");
    CHECK(strstr(buf, "\nRss:"));
    CHECK(strstr(buf, "\nVmFlags:"));
    unsigned long size, rss;
    CHECK_EQ(sscanf(slurp("/proc/self/statm"), "%lu %lu", &size, &rss), 2);
    CHECK(size >= rss && rss > 0);
}
TEST(mem_reads_and_writes) {
    int fd = SYS(open("/proc/self/mem", O_RDWR));
    char here[] = "in memory", b[16] = "";
    CHECK_EQ(pread(fd, b, sizeof here, (off_t)here), sizeof here);
    CHECK_STR(b, "in memory");
    CHECK_EQ(pwrite(fd, "IN", 2, (off_t)here), 2);
    CHECK_STR(here, "IN memory");
    CHECK_ERR(pread(fd, b, 4, 8), EIO);
}
TEST(limits) {
    slurp("/proc/self/limits");
    CHECK(!strncmp(buf, "Limit                     Soft Limit           Hard Limit           Units     \n", 79));
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    char want[128];
    sprintf(want, "Max open files            %-20lu %-20lu files", r.rlim_cur, r.rlim_max);
    CHECK(strstr(buf, want));
    CHECK(strstr(buf, "Max cpu time              unlimited            unlimited            seconds"));
}
TEST(mounts_and_mountinfo) {
    slurp("/proc/self/mounts");
    CHECK(strstr(buf, " /proc proc "));
    CHECK(strstr(buf, " / "));
    slurp("/proc/mounts");
    CHECK(strstr(buf, " /proc proc "));
    int root = 0;
    slurp("/proc/self/mountinfo");
    for (char *l = strtok(buf, "\n"); l; l = strtok(0, "\n")) {
        int id, parent, maj, min;
        char r[200], mp[200], opt[300];
        MUST(sscanf(l, "%d %d %d:%d %199s %199s %299s", &id, &parent, &maj, &min, r, mp, opt) == 7);
        CHECK(strstr(l, " - "));
        root += !strcmp(mp, "/");
    }
    CHECK(root >= 1);
}
TEST(meminfo) {
    slurp("/proc/meminfo");
    const char *k[] = {"MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "SwapCached", "Active", "Inactive", "SwapTotal", "SwapFree", "Dirty",
                       "AnonPages", "Mapped", "Shmem", "Slab", "SReclaimable"};
    for (size_t i = 0; i < sizeof k / sizeof *k; i++)
        if (!field(buf, k[i])) t_fail(__FILE__, __LINE__, "no %s", k[i]);
    CHECK(atol(field(buf, "MemTotal")) > 10000);
    CHECK(atol(field(buf, "MemFree")) <= atol(strdup(field(buf, "MemTotal"))));
    CHECK_EQ(sysconf(_SC_PHYS_PAGES) > 0, 1);
}
TEST(cpuinfo_and_stat) {
    slurp("/proc/cpuinfo");
    int n = 0;
    for (char *s = buf; (s = strstr(s, "processor\t: ")); s++) n++;
    CHECK_EQ(n, sysconf(_SC_NPROCESSORS_ONLN));
    CHECK(strstr(buf, "model name\t: "));
    CHECK(strstr(buf, "flags\t\t: "));
    CHECK(strstr(buf, "cpu MHz\t\t: "));
    CHECK(strstr(buf, "cache size\t: "));
    slurp("/proc/stat");
    CHECK(!strncmp(buf, "cpu  ", 5));
    CHECK(strstr(buf, "\ncpu0 "));
    CHECK(strstr(buf, "\nctxt "));
    CHECK(strstr(buf, "\nprocesses "));
    CHECK(strstr(buf, "\nprocs_running "));
    char *b = strstr(buf, "\nbtime ");
    MUST(b);
    struct timespec up;
    clock_gettime(CLOCK_BOOTTIME, &up);
    long diff = time(0) - up.tv_sec - atol(b + 7);
    CHECK(diff > -5 && diff < 5);
}
TEST(uptime_loadavg_version) {
    double up, idle;
    CHECK_EQ(sscanf(slurp("/proc/uptime"), "%lf %lf", &up, &idle), 2);
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    CHECK(t.tv_sec + 2 >= (long)up && (long)up >= t.tv_sec - 5);
    float a, b, c;
    int r, n, last;
    CHECK_EQ(sscanf(slurp("/proc/loadavg"), "%f %f %f %d/%d %d", &a, &b, &c, &r, &n, &last), 6);
    CHECK(!strncmp(slurp("/proc/version"), "Linux version ", 14));
    CHECK(strstr(slurp("/proc/filesystems"), "nodev\tproc\n"));
    CHECK(strstr(slurp("/proc/filesystems"), "nodev\ttmpfs\n"));
    slurp("/proc/cmdline");
    slurp("/proc/devices");
}
TEST(sys_kernel) {
    CHECK_STR(slurp("/proc/sys/kernel/ostype"), "Linux\n");
    CHECK(isdigit(slurp("/proc/sys/kernel/osrelease")[0]));
    CHECK(atoi(slurp("/proc/sys/kernel/pid_max")) >= 32768);
    slurp("/proc/sys/kernel/hostname");
    slurp("/proc/sys/kernel/random/boot_id");
    CHECK_EQ(strlen(buf), 37);
    char a[64];
    strcpy(a, slurp("/proc/sys/kernel/random/uuid"));
    CHECK_EQ(strlen(a), 37);
    CHECK(strcmp(a, slurp("/proc/sys/kernel/random/uuid")));
    CHECK(atoi(slurp("/proc/sys/kernel/ngroups_max")) == 65536);
    CHECK(atoi(slurp("/proc/sys/kernel/cap_last_cap")) >= 36);
    CHECK(atol(slurp("/proc/sys/fs/file-max")) > 0);
    CHECK(atol(slurp("/proc/sys/fs/pipe-max-size")) == 1048576);
    CHECK(atol(slurp("/proc/sys/fs/nr_open")) >= 1024);
    CHECK(atol(slurp("/proc/sys/vm/max_map_count")) >= 65530);
    slurp("/proc/sys/vm/overcommit_memory");
    slurp("/proc/sys/kernel/threads-max");
}
TEST(uid_map_and_oom) {
    unsigned a, b, c;
    CHECK_EQ(sscanf(slurp("/proc/self/uid_map"), "%u %u %u", &a, &b, &c), 3);
    CHECK_EQ(a, 0);
    slurp("/proc/self/oom_score");
    CHECK_STR(slurp("/proc/self/oom_score_adj"), "0\n");
    slurp("/proc/self/cgroup");
    slurp("/proc/self/loginuid");
    CHECK(!strncmp(slurp("/proc/self/personality"), "00000000", 8));
    slurp("/proc/self/auxv");
    slurp("/proc/self/io");
    CHECK(strstr(buf, "rchar: "));
}
TEST(ns_links) {
    const char *n[] = {"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"};
    for (int i = 0; i < 7; i++) {
        char p[64], l[64] = "", want[64];
        sprintf(p, "/proc/self/ns/%s", n[i]);
        CHECK(readlink(p, l, 63) > 0);
        sprintf(want, "%s:[", n[i]);
        CHECK(!strncmp(l, want, strlen(want)));
    }
}
TEST(write_protected) {
    CHECK_ERR(mkdir("/proc/x", 0755), ENOENT);
    CHECK(open("/proc/x", O_CREAT | O_WRONLY, 0644) < 0);
    CHECK_ERR(unlink("/proc/version"), EPERM);
    CHECK(rename("/proc/version", "/proc/v") < 0);
}
TEST(small_reads_and_seeks) {
    char a[4096], b[4096];
    int fd = SYS(open("/proc/self/limits", O_RDONLY));
    ssize_t n = read(fd, a, sizeof a);
    SYS(lseek(fd, 0, SEEK_SET));
    ssize_t at = 0, r;
    while ((r = read(fd, b + at, 7)) > 0) at += r;
    CHECK_EQ(at, n);
    CHECK_MEM(a, b, n);
    CHECK_EQ(pread(fd, b, 5, 6), 5);
    CHECK_MEM(b, a + 6, 5);
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_size, 0);
    CHECK(S_ISREG(st.st_mode));
}
TEST(children_and_wchan) {
    pid_t p = sleeper();
    char n[64];
    sprintf(n, "/proc/self/task/%d/children", gettid());
    if (access(n, F_OK) == 0) CHECK_EQ(atoi(slurp(n)), p);
    of(p, "wchan");
    done(p);
}
TEST(ps_and_friends_work) {
    if (access("/usr/bin/ps", X_OK) && access("/bin/ps", X_OK)) SKIP("no ps");
    int p[2];
    SYS(pipe(p));
    char me[16];
    sprintf(me, "%d", getpid());
    CHECK_CHILD(dup2(p[1], 1); execlp("ps", "ps", "-o", "pid=,ppid=,comm=", "-p", me, (char *)0));
    close(p[1]);
    char b[256] = "";
    CHECK(read(p[0], b, 255) > 0);
    int a = 0, c = 0;
    char comm[64] = "";
    CHECK_EQ(sscanf(b, "%d %d %63s", &a, &c, comm), 3);
    CHECK_EQ(a, getpid());
    CHECK_EQ(c, getppid());
    CHECK_STR(comm, "proc");
}
static void put(const char *path, const char *text) {
    int fd = SYS(open(path, O_WRONLY));
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}
TEST(tags_of_interfaces) {
    if (geteuid() != 0) SKIP("not root");
    OK(unshare(CLONE_NEWNET));
    CHECK_STR(slurp("/proc/sys/net/ipv4/conf/lo/tag"), "0\n");
    put("/proc/sys/net/ipv4/conf/lo/tag", "1000000");
    put("/proc/sys/net/ipv4/conf/default/tag", "-5");
    CHECK_STR(slurp("/proc/sys/net/ipv4/conf/lo/tag"), "1000000\n");
    CHECK_STR(slurp("/proc/sys/net/ipv4/conf/default/tag"), "-5\n");
    OK(unshare(CLONE_NEWNET));
    CHECK_STR(slurp("/proc/sys/net/ipv4/conf/lo/tag"), "0\n");
}
// Values of the whole machine: only what they are is written.
TEST(some_of_the_numbers_of_a_sysctl) {
    if (geteuid() != 0) SKIP("not root");
    int a, b, c, d;
    char before[64], one[16];
    strcpy(before, slurp("/proc/sys/kernel/printk"));
    CHECK(sscanf(before, "%d\t%d\t%d\t%d\n", &a, &b, &c, &d) == 4);
    sprintf(one, "%d", a);
    put("/proc/sys/kernel/printk", one);
    CHECK_STR(slurp("/proc/sys/kernel/printk"), before);
    int fd = SYS(open("/proc/sys/kernel/printk", O_WRONLY));
    CHECK_ERR(write(fd, "x", 1), EINVAL);
    close(fd);
    put("/proc/sys/fs/pipe-max-size", slurp("/proc/sys/fs/pipe-max-size"));
    fd = SYS(open("/proc/sys/fs/pipe-max-size", O_WRONLY));
    CHECK_ERR(write(fd, "2147483649", 10), EINVAL);
    close(fd);
}

TEST(sysctls_take_their_own_value) {
    const char *names[] = {"fs/file-max", "fs/nr_open", "fs/inotify/max_user_watches", "kernel/pid_max", "kernel/randomize_va_space", "vm/overcommit_memory", "vm/max_map_count", "kernel/threads-max"};
    for (int i = 0; i < 8; i++) {
        char path[100], b[100];
        sprintf(path, "/proc/sys/%s", names[i]);
        CHECK(t_slurp(path, b, sizeof b) >= 0);
        int fd = SYS(open(path, O_WRONLY));
        CHECK_EQ(write(fd, b, strlen(b)), strlen(b));
        close(fd);
    }
}
static long long io_of(const char *path, const char *what) {
    char b[1000];
    t_slurp(path, b, sizeof b);
    char *p = strstr(b, what);
    MUST(p);
    return atoll(p + strlen(what));
}
TEST(io_counts_reads_and_writes) {
    static char buf[10000];
    long long r = io_of("/proc/self/io", "rchar: "), w = io_of("/proc/self/io", "wchar: "), sr = io_of("/proc/self/io", "syscr: "), sw = io_of("/proc/self/io", "syscw: ");
    int fd = t_file("f", "");
    for (int i = 0; i < 10; i++) CHECK_EQ(pwrite(fd, buf, 10000, 0), 10000);
    for (int i = 0; i < 5; i++) CHECK_EQ(pread(fd, buf, 5000, 0), 5000);
    long long dw = io_of("/proc/self/io", "wchar: ") - w, dsw = io_of("/proc/self/io", "syscw: ") - sw;
    CHECK_EQ(dw, 100000);
    CHECK_EQ(dsw, 11);
    long long dr = io_of("/proc/self/io", "rchar: ") - r, dsr = io_of("/proc/self/io", "syscr: ") - sr;
    CHECK(dr >= 25000 && dr < 25000 + 4000);
    CHECK(dsr >= 5 && dsr < 30);
    w = io_of("/proc/self/io", "wchar: ");
    CHECK_CHILD(CHECK_EQ(write(fd, buf, 7777), 7777));
    CHECK_EQ(io_of("/proc/self/io", "wchar: ") - w, 7777);
}
TEST(poll_of_the_host_name) {
    OK(unshare(CLONE_NEWUTS) < 0 && errno != EINVAL ? -1 : 0);
    int fd = SYS(open("/proc/sys/kernel/hostname", O_RDONLY)), d = SYS(open("/proc/sys/kernel/domainname", O_RDONLY));
    struct pollfd p = {fd, POLLIN | POLLPRI, 0};
    CHECK_EQ(poll(&p, 1, 0), 1);
    CHECK_EQ(p.revents, POLLIN);
    p.events = POLLPRI;
    OK(poll(&p, 1, 0));
    char name[65];
    OK(gethostname(name, sizeof name));
    int c = FORK();
    if (c == 0) {
        t_ms(50);
        OK(sethostname("other", 5));
        _exit(0);
    }
    CHECK_EQ(poll(&p, 1, 5000), 1);
    CHECK_EQ(p.revents, POLLPRI | POLLERR);
    OK(poll(&p, 1, 0));
    CHECK_STATUS(t_status(c), "exit 0");
    OK(setdomainname("dom", 3));
    p.fd = d;
    CHECK_EQ(poll(&p, 1, 0), 1);
    CHECK_EQ(p.revents, POLLPRI | POLLERR);
    OK(sethostname(name, strlen(name)));
}
// The kilobytes of a line of the mapping at `at` in smaps.
static long smaps_of(void *at, const char *what) {
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[500], *end;
    long v = -1;
    int here = 0;
    while (v < 0 && fgets(line, sizeof line, f)) {
        unsigned long from = strtoul(line, &end, 16);
        if (*end == '-') here = from == (unsigned long)at;
        else if (here && !strncmp(line, what, strlen(what))) v = atol(line + strlen(what));
    }
    fclose(f);
    return v;
}
TEST(smaps_of_locked_memory) {
    size_t n = 1 << 20;
    char *m = SYS(mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    SYS(mlock(m, n));
    CHECK_EQ(smaps_of(m, "Rss:"), 1024);
    CHECK_EQ(smaps_of(m, "Locked:"), 1024);
    SYS(munlock(m, n));
    CHECK_EQ(smaps_of(m, "Locked:"), 0);
}
TEST(smaps_tells_shared_from_private) {
    size_t n = 1 << 20;
    char *m = SYS(mmap(0, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    memset(m, 1, n);
    CHECK_EQ(smaps_of(m, "Shared_Dirty:") + smaps_of(m, "Shared_Clean:"), 0);
    CHECK(smaps_of(m, "Private_Dirty:") > 0);
    struct t_gate ready = t_gate(), go = t_gate();
    int p = FORK();
    if (p == 0) {
        memset(m, 2, n);
        t_open(ready);
        t_pass(go);
        _exit(0);
    }
    t_pass(ready);
    CHECK(smaps_of(m, "Shared_Dirty:") > 0);
    CHECK_EQ(smaps_of(m, "Private_Dirty:"), 0);
    t_open(go);
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_EQ(smaps_of(m, "Shared_Dirty:"), 0);
}
TEST(what_lies_outside_the_root) {
    SYS(mkdir("jail", 0755));
    SYS(mkdir("jail/in", 0755));
    int in = SYS(open("jail/in", O_RDONLY)), out = SYS(open(".", O_RDONLY)), fds = SYS(open("/proc/self/fd", O_RDONLY)), self = SYS(open("/proc/self", O_RDONLY));
    char n[16], b[400], here[400];
    snprintf(here, sizeof here, "%s", t_dir);
    SYS(chroot("jail"));
    sprintf(n, "%d", in);
    CHECK_EQ(readlinkat(fds, n, b, sizeof b), 3);
    CHECK(!memcmp(b, "/in", 3));
    sprintf(n, "%d", out);
    ssize_t r = readlinkat(fds, n, b, sizeof b - 1);
    b[r > 0 ? r : 0] = 0;
    CHECK_STR(b, here);
    r = readlinkat(self, "exe", b, sizeof b - 1);
    b[r > 0 ? r : 0] = 0;
    CHECK_STR(b, t_self);
    CHECK(syscall(SYS_getcwd, b, sizeof b) > 0);
    CHECK(!strncmp(b, "(unreachable)/", 14));
    int fd = SYS(openat(self, "mountinfo", O_RDONLY));
    OK(read(fd, b, sizeof b));
}
// MADV_DONTDUMP and MADV_DONTFORK show in smaps.
TEST(advice_in_smaps) {
    char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), at[32], line[512];
    OK(madvise(p, 4096, MADV_DONTDUMP));
    OK(madvise(p, 4096, MADV_DONTFORK));
    sprintf(at, "%lx-", (unsigned long)p);
    FILE *f = fopen("/proc/self/smaps", "r");
    bool mine = false, seen = false;
    while (fgets(line, sizeof line, f)) {
        if (isxdigit(line[0]) && strchr(line, '-')) mine = !strncmp(line, at, strlen(at));
        if (mine && !strncmp(line, "VmFlags:", 8)) {
            seen = true;
            CHECK(strstr(line, " dc ") && strstr(line, " dd "));
        }
    }
    fclose(f);
    CHECK(seen);
}

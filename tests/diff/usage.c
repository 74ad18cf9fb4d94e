// Figures of processes: resident memory, faults, switches, processor time, loads. Of one's own and of others.
#include "t.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#define MIB (1l << 20)

static const char *slurp(const char *path) {
    static char text[1 << 16];
    t_slurp(path, text, sizeof text);
    return text;
}
// The number behind a word at the start of a line.
static long line_of(const char *path, const char *word) {
    for (const char *p = slurp(path); p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : 0)
        if (!strncmp(p, word, strlen(word))) {
            const char *v = p + strlen(word);
            return atol(v + strspn(v, " \t:"));
        }
    return -1;
}
static long status_of(pid_t pid, const char *word) {
    char path[64];
    sprintf(path, "/proc/%d/status", pid);
    return line_of(path, word);
}
// Field of stat, counted from 1 as proc_pid_stat(5) does.
static long stat_of(const char *path, int field) {
    const char *p = strrchr(slurp(path), ')');
    MUST(p);
    for (int i = 2; i < field; i++) p = strchr(p + 1, ' ');
    return atol(p + 1);
}
static char *map(long size) {
    char *p = SYS(mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    madvise(p, size, MADV_NOHUGEPAGE);
    return p;
}
static void touch(char *p, long size) {
    for (long i = 0; i < size; i += 4096) ((volatile char *)p)[i] = 1;
}
static void spin(int ms) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    do clock_gettime(CLOCK_MONOTONIC, &b);
    while ((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < ms);
}

TEST(resident_memory_is_what_was_touched) {
    pid_t me = getpid();
    long before = status_of(me, "VmRSS");
    char *p = map(256 * MIB);
    CHECK(status_of(me, "VmRSS") < before + 8 * 1024);
    touch(p, 64 * MIB);
    long with = status_of(me, "VmRSS");
    CHECK(with >= before + 63 * 1024 && with < before + 72 * 1024);
    CHECK(status_of(me, "RssAnon") >= 63 * 1024);
    CHECK(stat_of("/proc/self/stat", 24) * 4 >= with - 4096);
    long total, resident, shared;
    CHECK_EQ(sscanf(slurp("/proc/self/statm"), "%ld %ld %ld", &total, &resident, &shared), 3);
    CHECK(resident * 4 >= with - 4096 && resident * 4 < with + 4096 && shared < resident);
    long rollup = line_of("/proc/self/smaps_rollup", "Rss");
    CHECK(rollup >= with - 4096 && rollup < with + 4096);
    OK(madvise(p, 64 * MIB, MADV_DONTNEED));
    CHECK(status_of(me, "VmRSS") < before + 8 * 1024);
    CHECK(status_of(me, "VmHWM") >= with - 1024);
    struct rusage r;
    OK(getrusage(RUSAGE_SELF, &r));
    CHECK(r.ru_maxrss >= before + 63 * 1024);
}
TEST(pages_of_files_and_shared_memory_are_told_apart) {
    char *p = SYS(mmap(0, 16 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    long anon = status_of(getpid(), "RssAnon");
    touch(p, 16 * MIB);
    CHECK(status_of(getpid(), "RssShmem") >= 15 * 1024);
    CHECK(status_of(getpid(), "RssAnon") < anon + 1024);
}
// A child that does something and waits for its end.
static pid_t child(void (*act)(void)) {
    int fd[2];
    OK(pipe(fd));
    pid_t p = FORK();
    if (p == 0) {
        act();
        close(fd[1]);
        for (;;) pause();
    }
    close(fd[1]);
    char c;
    CHECK_EQ(read(fd[0], &c, 1), 0);
    close(fd[0]);
    return p;
}
static void end(pid_t p) {
    OK(kill(p, SIGKILL));
    CHECK_EQ(waitpid(p, 0, 0), p);
}
static void touch_500(void) { touch(map(500 * 4096), 500 * 4096); }
TEST(faults_of_another_process) {
    pid_t p = child(touch_500);
    char path[64];
    sprintf(path, "/proc/%d/stat", p);
    long faults = stat_of(path, 10);
    CHECK(faults >= 500 && faults < 5000);
    sprintf(path, "/proc/%d/task/%d/stat", p, p);
    CHECK(stat_of(path, 10) >= 500);
    end(p);
}
static void sleep_20(void) {
    for (int i = 0; i < 20; i++) t_ms(1);
}
TEST(switches_of_another_process) {
    pid_t p = child(sleep_20);
    CHECK(status_of(p, "voluntary_ctxt_switches") >= 20);
    char path[64];
    sprintf(path, "/proc/%d/sched", p);
    long all = line_of(path, "nr_switches  "), voluntary = line_of(path, "nr_voluntary_switches  ");
    CHECK(voluntary >= 20 && all >= voluntary);
    sprintf(path, "/proc/%d/schedstat", p);
    unsigned long ran, waited, slices;
    CHECK_EQ(sscanf(slurp(path), "%lu %lu %lu", &ran, &waited, &slices), 3);
    CHECK(ran > 0 && slices >= 20);
    end(p);
}
static void spin_700(void) { spin(700); }
TEST(programs_lose_their_processor_to_others) {
    int n = 2 * get_nprocs() + 2;
    pid_t p[n];
    for (int i = 0; i < n; i++)
        if ((p[i] = FORK()) == 0) {
            spin_700();
            for (;;) pause();
        }
    t_ms(1500);
    long involuntary = 0, waited = 0;
    for (int i = 0; i < n; i++) {
        char path[64];
        involuntary += status_of(p[i], "nonvoluntary_ctxt_switches");
        sprintf(path, "/proc/%d/schedstat", p[i]);
        unsigned long ran, wait;
        CHECK_EQ(sscanf(slurp(path), "%lu %lu", &ran, &wait), 2);
        waited += wait;
    }
    CHECK(involuntary >= n / 2);
    CHECK(waited > 100000000);
    for (int i = 0; i < n; i++) end(p[i]);
}
static void *ping(void *a) {
    int *fd = a;
    char c;
    while (read(fd[0], &c, 1) == 1) CHECK_EQ(write(fd[1], &c, 1), 1);
    return 0;
}
TEST(waits_in_a_pipe_are_voluntary_switches) {
    int a[2], b[2];
    OK(pipe(a));
    OK(pipe(b));
    int ends[2] = {a[0], b[1]};
    pthread_t t;
    OK(pthread_create(&t, 0, ping, ends));
    struct rusage before, after;
    OK(getrusage(RUSAGE_THREAD, &before));
    // On a busy machine many of the 200 switches of a round are involuntary.
    for (int i = 0, rounds = 0; i < 200 * rounds || rounds < 100; i++) {
        if (i == 200 * rounds) {
            OK(getrusage(RUSAGE_THREAD, &after));
            if (after.ru_nvcsw - before.ru_nvcsw >= 50) break;
            rounds++;
        }
        char c = 1;
        CHECK_EQ(write(a[1], &c, 1), 1);
        CHECK_EQ(read(b[0], &c, 1), 1);
    }
    CHECK(after.ru_nvcsw - before.ru_nvcsw >= 50);
    close(a[1]);
    OK(pthread_join(t, 0));
    OK(getrusage(RUSAGE_SELF, &after));
    CHECK(after.ru_nvcsw - before.ru_nvcsw >= 50);
}
static volatile int spinner, parked;
static void *spins(void *a) {
    spinner = gettid();
    spin(400);
    parked = 1;
    for (;;) pause();
    return 0;
}
TEST(time_of_another_thread) {
    pthread_t t;
    OK(pthread_create(&t, 0, spins, 0));
    while (!parked) t_ms(10);
    char path[64];
    sprintf(path, "/proc/self/task/%d/stat", spinner);
    CHECK(stat_of(path, 14) + stat_of(path, 15) >= 5);
    sprintf(path, "/proc/self/task/%d/schedstat", spinner);
    CHECK(atol(slurp(path)) >= 50000000);
    sprintf(path, "/proc/self/task/%d/schedstat", getpid());
    CHECK(atol(slurp(path)) < 350000000);
}
TEST(faults_of_the_machine) {
    long before = line_of("/proc/vmstat", "pgfault ");
    touch(map(4 * MIB), 4 * MIB);
    CHECK(line_of("/proc/vmstat", "pgfault ") >= before + 1000);
    CHECK(line_of("/proc/vmstat", "pgmajfault ") >= 0);
}
TEST(locked_pages_of_the_machine) {
    char *p = map(4 * MIB);
    long before = line_of("/proc/meminfo", "Mlocked"), all = line_of("/proc/meminfo", "Unevictable");
    OK(mlock(p, 4 * MIB));
    CHECK(line_of("/proc/self/status", "VmLck") >= 4 * 1024);
    CHECK(line_of("/proc/meminfo", "Mlocked") >= before + 3 * 1024);
    CHECK(line_of("/proc/meminfo", "Unevictable") >= all);
    OK(munlock(p, 4 * MIB));
    CHECK(line_of("/proc/meminfo", "Mlocked") < before + 3 * 1024);
}
TEST(interrupts_are_counted_for_each_processor) {
    const char *p = strstr(slurp("/proc/interrupts"), "RES:");
    MUST(p);
    CHECK(strstr(p, "Rescheduling interrupts"));
    char *end;
    strtol(p + 4, &end, 10);
    CHECK(end > p + 4);
}
TEST(loads_follow_what_runs) {
    // On a busy host the program gets a part of a processor only.
    for (int i = 0; i < 18 && (i < 6 || clock() < 4 * CLOCKS_PER_SEC); i++) spin(1000);
    double one;
    CHECK_EQ(sscanf(slurp("/proc/loadavg"), "%lf", &one), 1);
    CHECK(one >= 0.03 && one < 1000);
    struct sysinfo s;
    OK(sysinfo(&s));
    double same = s.loads[0] / 65536.0;
    CHECK(same > one - 0.5 && same < one + 0.5);
}
TEST(files_in_memory_are_counted) {
    long before = line_of("/proc/meminfo", "Shmem");
    struct sysinfo s, t;
    OK(sysinfo(&s));
    int fd = SYS(open("/dev/shm/usage-test", O_RDWR | O_CREAT | O_TRUNC, 0600));
    OK(unlink("/dev/shm/usage-test"));
    static char block[1 << 20];
    memset(block, 1, sizeof block);
    for (int i = 0; i < 32; i++) CHECK_EQ(write(fd, block, sizeof block), sizeof block);
    CHECK(line_of("/proc/meminfo", "Shmem") >= before + 30 * 1024);
    CHECK(line_of("/proc/meminfo", "Cached") >= 30 * 1024);
    OK(sysinfo(&t));
    CHECK((long)(t.sharedram - s.sharedram) * t.mem_unit >= 30 * MIB);
    close(fd);
    CHECK(line_of("/proc/meminfo", "Shmem") < before + 16 * 1024);
}

// One call at a time: prints "row nanoseconds", the median of several rounds. micro [DIR [ROW...]]; DIR holds the files.
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *dir = "/tmp";
static char path[512], buf[1 << 20];
static int fd, p[2], q[2], sv[2], ep;
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
static void die(const char *what) {
    fprintf(stderr, "micro: %s: %s\n", what, strerror(errno));
    exit(1);
}
static void must(long r, const char *what) {
    if (r < 0) die(what);
}
static void open_file(size_t n) {
    snprintf(path, sizeof path, "%s/micro.%d", dir, getpid());
    fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0644);
    must(fd, path);
    must(write(fd, buf, n), "write");
}
static void close_file(void) {
    close(fd);
    unlink(path);
}
static void file_setup(void) { open_file(1 << 20); }
static void rootfs_setup(void) { must(fd = open("/bin/sh", O_RDONLY), "/bin/sh"); }
static void rootfs_end(void) { close(fd); }
static void pipes(void) {
    must(pipe(p), "pipe");
    must(pipe(q), "pipe");
}
static void pipes_end(void) { close(p[0]), close(p[1]), close(q[0]), close(q[1]); }

static void getpid_(int n) { while (n--) syscall(SYS_getpid); }
static void getppid_(int n) { while (n--) syscall(SYS_getppid); }
static void clock_(int n) {
    struct timespec t;
    while (n--) clock_gettime(CLOCK_MONOTONIC, &t);
}
static void fstat_(int n) {
    struct stat s;
    while (n--) fstat(fd, &s);
}
static void stat_tmp(int n) {
    struct stat s;
    while (n--) must(stat(path, &s), "stat");
}
static void stat_root(int n) {
    struct stat s;
    while (n--) must(stat("/usr/bin/env", &s), "stat");
}
static void pread1(int n) { while (n--) pread(fd, buf, 1, 0); }
static void pread4k(int n) { while (n--) pread(fd, buf, 4096, 0); }
static void pread64k(int n) { while (n--) pread(fd, buf, 65536, 0); }
static void pread1m(int n) { while (n--) must(pread(fd, buf, 1 << 20, 0), "pread"); }
static void pwrite4k(int n) { while (n--) pwrite(fd, buf, 4096, 0); }
static void open_close(int n) { while (n--) close(open(path, O_RDONLY)); }
static void create_unlink(int n) {
    char b[600];
    snprintf(b, sizeof b, "%s.x", path);
    while (n--) {
        int f = open(b, O_CREAT | O_RDWR, 0644);
        must(f, b);
        close(f);
        unlink(b);
    }
}
static void create_write(int n) {
    char b[600];
    snprintf(b, sizeof b, "%s.x", path);
    while (n--) {
        int f = open(b, O_CREAT | O_EXCL | O_WRONLY, 0644);
        must(f, b);
        must(write(f, buf, 4096), "write");
        close(f);
        unlink(b);
    }
}
static void chmod_(int n) { while (n--) must(chmod(path, 0600 | (n & 077)), "chmod"); }
static void utimens_(int n) {
    struct timespec t[2] = {{1000, 0}, {1000, 0}};
    while (n--) must(utimensat(AT_FDCWD, path, t, 0), "utimensat");
}
static void rename_(int n) {
    char b[600];
    snprintf(b, sizeof b, "%s.x", path);
    for (int i = 0; i < 2 * (n / 2 + 1); i++) must(i & 1 ? rename(b, path) : rename(path, b), "rename");
}
static void mkdir_rmdir(int n) {
    char b[600];
    snprintf(b, sizeof b, "%s.d", path);
    while (n--) {
        must(mkdir(b, 0755), b);
        must(rmdir(b), b);
    }
}
static void empty_setup(void) {
    snprintf(path, sizeof path, "%s/micro.%d", dir, getpid());
    must(mkdir(path, 0755), path);
}
static void empty_end(void) { rmdir(path); }
static void list_empty(int n) {
    while (n--) {
        int f = open(path, O_RDONLY | O_DIRECTORY);
        while (syscall(SYS_getdents64, f, buf, 32768) > 0);
        close(f);
    }
}
static void pipe_same(int n) {
    while (n--) {
        must(write(p[1], buf, 1), "write");
        must(read(p[0], buf, 1), "read");
    }
}
static void pingpong(int n) {
    pid_t c = fork();
    must(c, "fork");
    if (c == 0) {
        for (int i = 0; i < n; i++) must(read(p[0], buf, 1), "read"), must(write(q[1], buf, 1), "write");
        _exit(0);
    }
    for (int i = 0; i < n; i++) must(write(p[1], buf, 1), "write"), must(read(q[0], buf, 1), "read");
    waitpid(c, 0, 0);
}
static void mmap16(int n) {
    while (n--) {
        char *m = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int i = 0; i < 16; i++) m[i * 4096] = 1;
        munmap(m, 65536);
    }
}
static char *page;
static void mprotect_setup(void) { page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *page = 1; }
static void mprotect_(int n) {
    while (n--) mprotect(page, 4096, n & 1 ? PROT_READ : PROT_READ | PROT_WRITE);
}
static void brk_(int n) {
    while (n--) {
        char *b = sbrk(65536);
        for (int i = 0; i < 16; i++) b[i * 4096] = 1;
        sbrk(-65536);
    }
}
static void nop(int s) { (void)s; }
static void sig_setup(void) { signal(SIGUSR1, nop); }
static void signal_self(int n) {
    pid_t me = getpid();
    while (n--) kill(me, SIGUSR1);
}
static void *thread(void *a) { return a; }
static void thread_(int n) {
    while (n--) {
        pthread_t t;
        if (pthread_create(&t, 0, thread, 0)) die("pthread_create");
        pthread_join(t, 0);
    }
}
static void fork_(int n) {
    while (n--) {
        pid_t c = fork();
        must(c, "fork");
        if (c == 0) _exit(0);
        waitpid(c, 0, 0);
    }
}
static void exec_(int n) {
    while (n--) {
        pid_t c = vfork();
        must(c, "vfork");
        if (c == 0) {
            execl("/bin/true", "true", (char *)0);
            _exit(127);
        }
        waitpid(c, 0, 0);
    }
}
static void sock_setup(void) { must(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), "socketpair"); }
static void sock_end(void) { close(sv[0]), close(sv[1]); }
static void unix_(int n) {
    while (n--) {
        must(write(sv[0], buf, 64), "write");
        must(read(sv[1], buf, 64), "read");
    }
}
static struct sockaddr_in at;
static int listener;
static int tcp_connected(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    must(s, "socket");
    must(connect(s, (struct sockaddr *)&at, sizeof at), "connect");
    return s;
}
static void listen_setup(void) {
    socklen_t len = sizeof at;
    must(listener = socket(AF_INET, SOCK_STREAM, 0), "socket");
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    must(bind(listener, (struct sockaddr *)&at, sizeof at), "bind");
    must(listen(listener, 16), "listen");
    must(getsockname(listener, (struct sockaddr *)&at, &len), "getsockname");
}
static void listen_end(void) { close(listener); }
static void tcp_setup(void) {
    listen_setup();
    sv[0] = tcp_connected();
    must(sv[1] = accept(listener, 0, 0), "accept");
}
static void tcp_end(void) { sock_end(), listen_end(); }
static void connect_(int n) {
    struct linger reset = {1, 0};
    while (n--) {
        int a = tcp_connected(), b = accept(listener, 0, 0);
        must(b, "accept");
        // A reset leaves nothing behind that waits.
        setsockopt(a, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(a), close(b);
    }
}
static void epoll_setup(void) {
    sock_setup();
    ep = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN};
    epoll_ctl(ep, EPOLL_CTL_ADD, sv[0], &e);
}
static void epoll_end(void) { close(ep), sock_end(); }
static void epoll_(int n) {
    struct epoll_event e;
    while (n--) epoll_wait(ep, &e, 1, 0);
}
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cv = PTHREAD_COND_INITIALIZER;
static int turn, rounds;
static void *futex_other(void *a) {
    (void)a;
    pthread_mutex_lock(&mu);
    for (int i = 0; i < rounds; i++) {
        while (turn != 1) pthread_cond_wait(&cv, &mu);
        turn = 0;
        pthread_cond_signal(&cv);
    }
    pthread_mutex_unlock(&mu);
    return 0;
}
static void futex_(int n) {
    pthread_t t;
    rounds = n, turn = 0;
    pthread_create(&t, 0, futex_other, 0);
    pthread_mutex_lock(&mu);
    for (int i = 0; i < n; i++) {
        turn = 1;
        pthread_cond_signal(&cv);
        while (turn != 0) pthread_cond_wait(&cv, &mu);
    }
    pthread_mutex_unlock(&mu);
    pthread_join(t, 0);
}

static struct {
    const char *name;
    void (*setup)(void), (*run)(int), (*end)(void);
    int n;
} rows[] = {
    {"getpid", 0, getpid_, 0, 50000},
    {"getppid", 0, getppid_, 0, 50000},
    {"clock_gettime", 0, clock_, 0, 200000},
    {"fstat", file_setup, fstat_, close_file, 20000},
    {"stat_tmp", file_setup, stat_tmp, close_file, 20000},
    {"stat_rootfs", 0, stat_root, 0, 20000},
    {"pread_1", file_setup, pread1, close_file, 20000},
    {"pread_4k", file_setup, pread4k, close_file, 20000},
    {"pread_4k_rootfs", rootfs_setup, pread4k, rootfs_end, 20000},
    {"pread_64k", file_setup, pread64k, close_file, 5000},
    {"pread_1m", file_setup, pread1m, close_file, 500},
    {"pwrite_4k", file_setup, pwrite4k, close_file, 10000},
    {"open_close", file_setup, open_close, close_file, 10000},
    {"create_unlink", file_setup, create_unlink, close_file, 2000},
    {"create_write", file_setup, create_write, close_file, 2000},
    {"chmod", file_setup, chmod_, close_file, 5000},
    {"utimens", file_setup, utimens_, close_file, 5000},
    {"rename", file_setup, rename_, close_file, 5000},
    {"mkdir_rmdir", file_setup, mkdir_rmdir, close_file, 2000},
    {"list_empty", empty_setup, list_empty, empty_end, 5000},
    {"pipe_same_thread", pipes, pipe_same, pipes_end, 10000},
    {"pipe_ping_pong", pipes, pingpong, pipes_end, 2000},
    {"mmap_16_pages", 0, mmap16, 0, 1000},
    {"mprotect", mprotect_setup, mprotect_, 0, 10000},
    {"brk_64k", 0, brk_, 0, 2000},
    {"signal_self", sig_setup, signal_self, 0, 5000},
    {"futex_ping_pong", 0, futex_, 0, 2000},
    {"thread", 0, thread_, 0, 500},
    {"fork_wait", 0, fork_, 0, 100},
    {"vfork_exec_wait", 0, exec_, 0, 50},
    {"unix_64", sock_setup, unix_, sock_end, 10000},
    {"tcp_64", tcp_setup, unix_, tcp_end, 10000},
    {"tcp_connect", listen_setup, connect_, listen_end, 1000},
    {"epoll_idle", epoll_setup, epoll_, epoll_end, 20000},
};
static int cmp(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }
// Makes the call one by one for so many seconds: mean and 99th percentile. Times are counted in 16 steps for each power of 2.
static void each(const char *name, void (*run)(int), double seconds) {
    static long counts[64 * 16];
    memset(counts, 0, sizeof counts);
    double begin = now(), end = begin;
    long n = 0, seen = 0;
    while (end - begin < seconds * 1e9) {
        double from = now();
        run(1);
        end = now();
        unsigned long t = end - from, top = 63 - __builtin_clzl(t | 16);
        counts[top * 16 + (t >> (top - 4) & 15)]++;
        n++;
    }
    int at = 0;
    while ((seen += counts[at]) * 100 < n * 99) at++;
    double width = 1ul << (at / 16 - 4);
    printf("%s %.1f\n%s_p99 %.1f\n", name, (end - begin) / n, name, (16 + at % 16 + 0.5) * width);
    fflush(stdout);
}
int main(int argc, char **argv) {
    if (argc > 1) dir = argv[1];
    int part = getenv("PART") ? atoi(getenv("PART")) : 1;
    if (part < 1) part = 1;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int wanted = argc < 3;
        for (int k = 2; k < argc; k++) wanted |= !strcmp(argv[k], rows[i].name);
        if (!wanted) continue;
        double t[5];
        int n = rows[i].n / part + 1;
        if (rows[i].setup) rows[i].setup();
        rows[i].run(n / 10 + 1);
        if (getenv("EACH")) {
            each(rows[i].name, rows[i].run, atof(getenv("EACH")));
            if (rows[i].end) rows[i].end();
            continue;
        }
        for (int k = 0; k < 5; k++) {
            double a = now();
            rows[i].run(n);
            t[k] = (now() - a) / n;
        }
        if (rows[i].end) rows[i].end();
        qsort(t, 5, sizeof *t, cmp);
        printf("%s %.1f\n", rows[i].name, t[2]);
        fflush(stdout);
    }
}

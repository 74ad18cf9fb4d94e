// Takes locks on a file as it is told on standard input, one command a line, and says what came of it.
//
//   flock sh|ex|un [nb]               -> ok | the error's name
//   posix|ofd rd|wr|un START LEN [wait]
//   get posix|ofd rd|wr START LEN     -> free | rd|wr START LEN PID
//   ranges N                          N locks of one byte, every second byte -> how many could be had
//   crowd N                           N threads that wait for all of it, each with an open file of its own -> ok
//   settle                            ends the crowd's waits with a signal -> how many were interrupted
//   reopen ro|wo|rw                   the file again; the old one is closed -> ok
//   also ro|wo|rw                     the file again; the old one stays open -> ok
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char *path;
static int fd;
static volatile int interrupted;
static pthread_t *threads;
static int crowd;

static void say(int r) { printf("%s\n", r < 0 ? strerrorname_np(errno) : "ok"); }

static int mode(const char *s) { return !strcmp(s, "ro") ? O_RDONLY : !strcmp(s, "wo") ? O_WRONLY : O_RDWR; }

static int kind(const char *s) { return !strcmp(s, "rd") ? F_RDLCK : !strcmp(s, "wr") ? F_WRLCK : F_UNLCK; }

static void nothing(int s) { (void)s; }

static void *waiter(void *unused) {
    int own = open(path, O_RDWR);
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(own, F_OFD_SETLKW, &l) < 0 && errno == EINTR) __sync_fetch_and_add(&interrupted, 1);
    close(own);
    return unused;
}

static void gather(int n) {
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 65536);
    threads = calloc(n, sizeof *threads);
    while (crowd < n && !pthread_create(&threads[crowd], &a, waiter, 0)) crowd++;
    printf("%d\n", crowd);
}

static void settle(void) {
    // A thread may not have come to its wait yet: its signal then interrupts nothing.
    for (int i = 0; i < crowd; i++) pthread_kill(threads[i], SIGUSR1);
    for (int i = 0; i < crowd; i++)
        for (; pthread_tryjoin_np(threads[i], 0); usleep(10000)) pthread_kill(threads[i], SIGUSR1);
    printf("%d\n", interrupted);
}

static int ranges(int n) {
    int i = 0;
    for (; i < n; i++) {
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2 * i, .l_len = 1};
        if (fcntl(fd, F_SETLK, &l) < 0) break;
    }
    return i;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    path = argv[1];
    setvbuf(stdout, 0, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = nothing}, 0);
    if ((fd = open(path, mode(argv[2]))) < 0) return perror(path), 1;
    puts("ready");
    char line[256], w[5][32];
    while (fgets(line, sizeof line, stdin)) {
        int n = sscanf(line, "%31s %31s %31s %31s %31s", w[0], w[1], w[2], w[3], w[4]);
        if (n >= 2 && !strcmp(w[0], "flock")) {
            int op = !strcmp(w[1], "sh") ? LOCK_SH : !strcmp(w[1], "ex") ? LOCK_EX : LOCK_UN;
            say(flock(fd, op | (n > 2 ? LOCK_NB : 0)));
        } else if (n >= 4 && (!strcmp(w[0], "posix") || !strcmp(w[0], "ofd"))) {
            struct flock l = {.l_type = kind(w[1]), .l_whence = SEEK_SET, .l_start = atoll(w[2]), .l_len = atoll(w[3])};
            int ofd = *w[0] == 'o';
            say(fcntl(fd, n > 4 ? (ofd ? F_OFD_SETLKW : F_SETLKW) : (ofd ? F_OFD_SETLK : F_SETLK), &l));
        } else if (n == 5 && !strcmp(w[0], "get")) {
            struct flock l = {.l_type = kind(w[2]), .l_whence = SEEK_SET, .l_start = atoll(w[3]), .l_len = atoll(w[4])};
            if (fcntl(fd, *w[1] == 'o' ? F_OFD_GETLK : F_GETLK, &l) < 0) say(-1);
            else if (l.l_type == F_UNLCK) puts("free");
            else printf("%s %lld %lld %d\n", l.l_type == F_RDLCK ? "rd" : "wr", (long long)l.l_start, (long long)l.l_len, l.l_pid);
        } else if (!strcmp(w[0], "ranges")) printf("%d\n", ranges(atoi(w[1])));
        else if (!strcmp(w[0], "crowd")) gather(atoi(w[1]));
        else if (!strcmp(w[0], "settle")) settle();
        else if (!strcmp(w[0], "reopen")) { close(fd); say(fd = open(path, mode(w[1]))); }
        else if (!strcmp(w[0], "also")) say(fd = open(path, mode(w[1])));
        else puts("?");
    }
    return 0;
}

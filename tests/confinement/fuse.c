// Daemons of FUSE file systems that do not answer, or use their own mount. Inside only: Linux waits for such daemons.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int device;
static volatile int *opcode; // of the last request, shared
static char buf[1 << 18];

static void reply(uint64_t unique, int error, void *data, size_t len) {
    struct fuse_out_header *h = (void *)malloc(sizeof *h + len);
    *h = (struct fuse_out_header){sizeof *h + len, -error, unique};
    memcpy(h + 1, data, len);
    (void)!write(device, h, sizeof *h + len);
    free(h);
}
static struct fuse_attr attr(uint64_t id) {
    return (struct fuse_attr){.ino = id, .mode = id == 1 ? S_IFDIR | 0777 : S_IFREG | 0777, .nlink = 1, .size = 1000};
}
// Answers until there is something to do with what is asked for and `stuck`: that gets no answer.
static void serve(int stuck) {
    for (;;) {
        ssize_t n = read(device, buf, sizeof buf);
        if (n < 0) {
            if (errno == EINTR || errno == ENOENT) continue;
            _exit(0);
        }
        struct fuse_in_header *h = (void *)buf;
        if (h->opcode != FUSE_FORGET && h->opcode != FUSE_INTERRUPT) *opcode = h->opcode;
        if (h->opcode == stuck) continue;
        switch (h->opcode) {
        case FUSE_INIT: {
            struct fuse_init_out o = {.major = 7, .minor = 31, .max_write = 4096};
            reply(h->unique, 0, &o, sizeof o);
            break;
        }
        case FUSE_LOOKUP: {
            struct fuse_entry_out o = {.nodeid = 2, .attr = attr(2)};
            if (strncmp((char *)(h + 1), "file", 4)) reply(h->unique, ENOENT, 0, 0);
            else reply(h->unique, 0, &o, sizeof o);
            break;
        }
        case FUSE_GETATTR: {
            struct fuse_attr_out o = {.attr = attr(h->nodeid)};
            reply(h->unique, 0, &o, sizeof o);
            break;
        }
        case FUSE_OPEN:
        case FUSE_OPENDIR: {
            struct fuse_open_out o = {.fh = 1};
            reply(h->unique, 0, &o, sizeof o);
            break;
        }
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
        case FUSE_INTERRUPT: break;
        case FUSE_FLUSH:
        case FUSE_RELEASE:
        case FUSE_UNLINK: reply(h->unique, 0, 0, 0); break;
        default: reply(h->unique, ENOSYS, 0, 0);
        }
    }
}
static void start(int stuck) {
    char options[100];
    device = open("/dev/fuse", O_RDWR);
    if (device < 0) perror("/dev/fuse"), exit(3);
    mkdir("m", 0755);
    sprintf(options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (mount("hostile", "m", "fuse", 0, options)) perror("mount"), exit(3);
    *opcode = 0;
    if (!fork()) serve(stuck);
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void until(int what) {
    for (double end = now() + 10; *opcode != what && now() < end;) usleep(1000);
    usleep(20000);
}
// Ends within some seconds once it is killed.
static int ends(pid_t child) {
    kill(child, SIGKILL);
    for (double end = now() + 10; now() < end; usleep(1000))
        if (waitpid(child, 0, WNOHANG) == child) return 1;
    return 0;
}

static int shared_fd = -1; // an open file that all share, and its position

static void use(int stuck) {
    char b[100];
    struct stat s;
    int fd;
    if (shared_fd >= 0) (void)!read(shared_fd, b, 100);
    else switch (stuck) {
    case FUSE_LOOKUP:
    case FUSE_GETATTR: stat("m/file", &s); break;
    case FUSE_OPEN: open("m/file", O_RDONLY); break;
    case FUSE_READ: (void)!read(open("m/file", O_RDONLY), b, 100); break;
    case FUSE_WRITE: (void)!write(open("m/file", O_RDWR), b, 100); break;
    case FUSE_FLUSH: close(open("m/file", O_RDONLY)); break;
    case FUSE_MKDIR: mkdir("m/new", 0777); break;
    case FUSE_UNLINK: unlink("m/file"); break;
    case FUSE_RENAME2: syscall(SYS_renameat2, AT_FDCWD, "m/file", AT_FDCWD, "m/new", 1); break;
    case FUSE_READDIR: fd = open("m", O_RDONLY | O_DIRECTORY), (void)!syscall(SYS_getdents64, fd, b, sizeof b); break;
    case FUSE_STATFS: statfs("m", (void *)buf); break;
    case FUSE_SETATTR: chmod("m/file", 0600); break;
    case FUSE_FSYNC: fsync(open("m/file", O_RDWR)); break;
    case FUSE_MKNOD: mknod("m/new", S_IFREG | 0600, 0); break;
    case FUSE_INIT: stat("m/file", &s); break;
    }
}
static int silent(void) {
    int all[] = {FUSE_READ, FUSE_LOOKUP, FUSE_GETATTR, FUSE_OPEN, FUSE_READ, FUSE_WRITE, FUSE_FLUSH, FUSE_MKDIR, FUSE_UNLINK, FUSE_RENAME2, FUSE_READDIR, FUSE_STATFS, FUSE_SETATTR, FUSE_FSYNC, FUSE_MKNOD, FUSE_INIT};
    for (int i = 0; i < sizeof all / sizeof *all; i++) {
        start(all[i]);
        shared_fd = i ? -1 : open("m/file", O_RDONLY);
        pid_t user[3];
        // Several, so that some wait for locks that others hold.
        for (int j = 0; j < 3; j++)
            if (!(user[j] = fork())) {
                close(device);
                use(all[i]);
                _exit(0);
            }
        until(all[i]);
        // The rest of the sandbox goes on: all that everybody uses.
        mkdir("a", 0700), mkdir("b", 0700), mkdir("a/x", 0700);
        if (rename("a/x", "b/x") || rmdir("b/x")) return 0;
        sync();
        int fd = open("/proc/self/mountinfo", O_RDONLY);
        while (read(fd, buf, sizeof buf) > 0);
        close(fd);
        if (mount("none", "a", "tmpfs", 0, 0) || umount("a")) return 0;
        // The one in the middle first.
        if (!ends(user[1]) || !ends(user[0]) || !ends(user[2])) return printf("operation %d\n", all[i]), 0;
        if (shared_fd >= 0) close(shared_fd);
        close(device);
        if (umount2("m", MNT_DETACH)) return 0;
    }
    return 1;
}
// The daemon uses its own mount, and is killed.
static void *inward(void *path) {
    mkdir(path, 0777);
    return 0;
}
static int own_mount(void) {
    char options[100];
    device = open("/dev/fuse", O_RDWR);
    mkdir("m", 0755);
    sprintf(options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (mount("hostile", "m", "fuse", 0, options)) return 0;
    pid_t daemon = fork();
    if (!daemon) {
        // Threads that wait for the daemon's answers, for locks that these hold, and a file of its own that stays open.
        pthread_t t;
        for (int i = 0; i < 5; i++) pthread_create(&t, 0, inward, i & 1 ? "m/x" : "m/y");
        serve(FUSE_MKDIR);
    }
    close(device);
    until(FUSE_MKDIR);
    if (!ends(daemon)) return 0;
    struct stat s;
    return stat("m/file", &s) == -1 && errno == ENOTCONN && !umount2("m", 0);
}
// A process that ends with its own file open waits for nobody for long.
static int ends_open(void) {
    start(FUSE_FLUSH);
    double begin = now();
    for (int i = 0; i < 20; i++) {
        pid_t user = fork();
        if (!user) {
            for (int j = 0; j < 20; j++) open("m/file", O_RDONLY);
            exit(0);
        }
        waitpid(user, 0, 0);
    }
    return now() - begin < 10;
}
// One that has files of many such daemons open waits for them together.
static int ends_everywhere(void) {
    for (int i = 0; i < 25; i++) {
        start(FUSE_FLUSH);
        if (open("m/file", O_RDONLY) < 0) return 0;
    }
    pid_t user = fork();
    if (!user) for (;;) pause();
    return ends(user);
}

// A daemon whose last thread ends by exit(2) while it has a file of its own mount open: nobody can answer it.
static void *opens(void *arg) {
    open("m/file", O_RDONLY);
    syscall(SYS_exit, 0);
    return 0;
}
static int own_file(void) {
    char options[100];
    device = open("/dev/fuse", O_RDWR);
    mkdir("m", 0755);
    sprintf(options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (mount("hostile", "m", "fuse", 0, options)) return 0;
    pid_t daemon = fork();
    if (!daemon) {
        // The device has the higher number, so it is closed last.
        dup2(device, 100);
        close(device);
        device = 100;
        pthread_t t;
        pthread_create(&t, 0, opens, 0);
        if (!fork()) {
            // A copy that serves until the file is open, and leaves without a word.
            alarm(5);
            serve(FUSE_FLUSH);
        }
        until(FUSE_OPEN);
        syscall(SYS_exit, 0);
    }
    close(device);
    for (double end = now() + 10; now() < end; usleep(1000))
        if (waitpid(daemon, 0, WNOHANG) == daemon) return 1;
    return 0;
}

int main(int argc, char **argv) {
    opcode = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    alarm(300);
    if (chdir(argc > 2 ? argv[2] : "/tmp")) return 3;
    if (argc > 2) argc = 2;
    int ok = 0;
    if (argc == 2 && !strcmp(argv[1], "silent")) ok = silent();
    if (argc == 2 && !strcmp(argv[1], "own_mount")) ok = own_mount();
    if (argc == 2 && !strcmp(argv[1], "own_file")) ok = own_file();
    if (argc == 2 && !strcmp(argv[1], "ends_open")) ok = ends_open();
    if (argc == 2 && !strcmp(argv[1], "ends_everywhere")) ok = ends_everywhere();
    if (argc == 2 && !strcmp(argv[1], "mounted")) {
        // Whoever looks for a name below /tmp/m waits.
        mknod("/dev/fuse", S_IFCHR | 0600, makedev(10, 229));
        start(FUSE_LOOKUP);
        puts("mounted");
        fflush(stdout);
        for (;;) pause();
    }
    if (argc == 2 && !strcmp(argv[1], "container")) {
        // Nobody cleans up: the sandbox ends with its first process.
        for (int i = 0; i < 4; i++) {
            start(FUSE_READ);
            if (!fork()) use(FUSE_READ);
            until(FUSE_READ);
        }
        ok = 1;
    }
    puts(ok ? "held" : "broken");
    return !ok;
}

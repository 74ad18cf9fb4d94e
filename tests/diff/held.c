// Names that are replaced, removed or exchanged while their objects are looked up, open, or held by O_PATH, a working
// directory or a mount. The table `may` says which errors each call may give; ESTALE is in none.
#include "t.h"
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/xattr.h>

// HELD_SECONDS in the environment: for how long each race goes on.
static double seconds(void) {
    const char *given = getenv("HELD_SECONDS");
    return given ? atof(given) : 0.5;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void put(const char *name, const char *text) {
    int fd = SYS(open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644));
    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}
static const char *read_fd(int fd) {
    static char text[64];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n < 0 ? 0 : n] = 0;
    return text;
}
static const char *own(int fd) {
    static char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}
// Runs `other` in a child until the body is done.
#define BESIDE(other)                                                                                                  \
    for (pid_t child_ = fork(); child_ >= 0; kill(child_, SIGKILL), waitpid(child_, 0, 0), child_ = -1)                \
        if (child_ == 0)                                                                                               \
            for (;;) other;                                                                                            \
        else

static void replace(void) {
    put("new", "content");
    CHECK_EQ(rename("new", "file"), 0);
}
TEST(held_reader_beside_a_replacer) {
    put("file", "content");
    int failed = 0, rounds = 0;
    struct stat st;
    BESIDE(replace()) for (double end = now() + seconds(); now() < end; rounds++) {
        int fd = open("file", O_RDONLY);
        if (fd < 0 || strcmp(read_fd(fd), "content") || fstat(fd, &st)) failed++;
        close(fd);
        if (stat("file", &st) || access("file", R_OK) || chmod("file", 0600) || truncate("file", 7)) failed++;
        if (utimensat(AT_FDCWD, "file", 0, 0) || chown("file", 0, 0)) failed++;
    }
    CHECK(rounds > 20);
    CHECK_EQ(failed, 0);
}
static void make_and_remove(void) {
    close(open("file", O_CREAT | O_RDWR, 0644));
    unlink("file");
}
TEST(held_creator_beside_a_remover) {
    int failed = 0;
    BESIDE(make_and_remove()) for (double end = now() + seconds(); now() < end;) {
        int fd = open("file", O_CREAT | O_RDWR, 0644);
        failed += fd < 0;
        close(fd);
    }
    CHECK_EQ(failed, 0);
}
static void retarget(void) {
    static int n;
    unlink("l2");
    CHECK_EQ(symlink(n++ & 1 ? "one" : "two", "l2"), 0);
    CHECK_EQ(rename("l2", "link"), 0);
}
TEST(held_link_beside_a_replacer) {
    put("one", "1"), put("two", "2"), SYS(symlink("one", "link"));
    int failed = 0;
    char text[8];
    struct stat st;
    BESIDE(retarget()) for (double end = now() + seconds(); now() < end;) {
        if (readlink("link", text, sizeof text) != 3 || stat("link", &st) || lstat("link", &st)) failed++;
        int fd = open("link", O_RDONLY);
        failed += fd < 0;
        close(fd);
    }
    CHECK_EQ(failed, 0);
}
static void exchange(void) { syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", 2 /* RENAME_EXCHANGE */); }
TEST(held_paths_beside_an_exchange_of_directories) {
    SYS(mkdir("a", 0755)), SYS(mkdir("b", 0755)), put("a/f", "f"), put("b/f", "f");
    SYS(mkdir("a/d", 0755)), SYS(mkdir("b/d", 0755)), put("a/d/g", "g"), put("b/d/g", "g");
    int failed = 0, rounds = 0;
    struct stat st;
    char name[32];
    BESIDE(exchange()) for (double end = now() + seconds(); now() < end;) {
        int fd = open("a/d/g", O_RDWR);
        if (fd < 0 || strcmp(read_fd(fd), "g")) failed++;
        close(fd);
        if (stat("b/f", &st) || chmod("a/f", 0640) || stat("a/d", &st)) failed++;
        sprintf(name, "b/d/n%d", rounds++);
        if ((fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0644)) < 0) failed++;
        else close(fd);
        // It may be in the other directory by now.
        if (unlink(name) && errno != ENOENT) failed++;
        fd = open("a/d", O_RDONLY | O_DIRECTORY);
        failed += fd < 0;
        close(fd);
    }
    CHECK_EQ(failed, 0);
}
TEST(held_program_beside_a_replacer) {
    put("p", "#!/bin/true\n");
    CHECK_EQ(chmod("p", 0755), 0);
    int failed = 0, rounds = 0;
    BESIDE(({
        put("q", "#!/bin/true\n");
        chmod("q", 0755);
        rename("q", "p");
    }))
    for (double end = now() + seconds(); now() < end; rounds++) {
        pid_t pid = fork();
        if (!pid) execl("./p", "p", (char *)0), _exit(errno == ETXTBSY ? 0 : errno);
        int status;
        waitpid(pid, &status, 0);
        failed += status != 0;
    }
    CHECK(rounds > 5);
    CHECK_EQ(failed, 0);
}

// The four usual protocols of a lock file. Each process adds to a counter that no other may read meanwhile.
#define WORKERS 6
#define EACH 60
static bool lock_by_flock(int *fd) {
    struct stat a, b;
    for (;;) {
        if ((*fd = open("lock", O_CREAT | O_RDWR, 0644)) < 0) return false;
        if (flock(*fd, LOCK_EX) || fstat(*fd, &a)) return false;
        if (stat("lock", &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino) return true;
        if (a.st_nlink > 1) return false;
        close(*fd);
    }
}
static void unlock_by_flock(int fd) {
    unlink("lock");
    close(fd);
}
static bool lock_by_fcntl(int *fd) {
    struct stat a, b;
    struct flock l = {.l_type = F_WRLCK};
    for (;;) {
        if ((*fd = open("lock", O_CREAT | O_RDWR, 0644)) < 0) return false;
        if (fcntl(*fd, F_SETLKW, &l) || fstat(*fd, &a)) return false;
        if (stat("lock", &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino) return true;
        close(*fd);
    }
}
static bool lock_by_excl(int *fd) {
    while ((*fd = open("lock", O_CREAT | O_EXCL | O_RDWR, 0644)) < 0) {
        if (errno != EEXIST) return false;
        usleep(100);
    }
    return true;
}
static bool lock_by_link(int *fd) {
    char name[32];
    struct stat st;
    sprintf(name, "own.%d", getpid());
    if ((*fd = open(name, O_CREAT | O_RDWR, 0644)) < 0) return false;
    for (;;) {
        int done = link(name, "lock");
        if (done && errno != EEXIST) return false;
        if (stat(name, &st)) return false;
        if ((st.st_nlink == 2) != (done == 0)) return false;
        if (!done) break;
        usleep(100);
    }
    return unlink(name) == 0;
}
static void add_with(bool (*lock)(int *), void (*unlock)(int)) {
    put("count", "0");
    int *done = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    double end = getenv("HELD_SECONDS") ? now() + seconds() : 0;
    pid_t all[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        if ((all[i] = SYS(fork()))) continue;
        for (int j = 0; end ? now() < end : j < EACH; j++) {
            int fd;
            if (!lock(&fd)) _exit(100 + (errno == ESTALE));
            int c = open("count", O_RDWR);
            if (c < 0) _exit(102);
            char text[16];
            int n = snprintf(text, sizeof text, "%d", atoi(read_fd(c)) + 1);
            if (pwrite(c, text, n, 0) != n) _exit(103);
            close(c);
            __atomic_add_fetch(done, 1, __ATOMIC_RELAXED);
            unlock(fd);
        }
        _exit(0);
    }
    for (int i = 0; i < WORKERS; i++) {
        int status;
        waitpid(all[i], &status, 0);
        CHECK_EQ(status, 0);
    }
    int c = SYS(open("count", O_RDONLY));
    CHECK(end || *done == WORKERS * EACH);
    CHECK_EQ(atoi(read_fd(c)), *done);
}
TEST(held_lock_file_by_flock) { add_with(lock_by_flock, unlock_by_flock); }
TEST(held_lock_file_by_fcntl) { add_with(lock_by_fcntl, unlock_by_flock); }
TEST(held_lock_file_by_excl) { add_with(lock_by_excl, unlock_by_flock); }
TEST(held_lock_file_by_link) { add_with(lock_by_link, unlock_by_flock); }

// Many processes use the same names in every way.
#define NAMES 30
static const struct {
    const char *call;
    int errors[8]; // beside ENOENT, ENOTDIR and ELOOP, which any path may give
} may[] = {
    {"open", {EISDIR, ENXIO, EACCES}},
    {"creat", {EISDIR, ENXIO}},
    {"excl", {EEXIST}},
    {"stat", {}},
    {"lstat", {}},
    {"chmod", {}},
    {"chown", {}},
    {"utimes", {}},
    {"truncate", {EISDIR, EINVAL}},
    {"rename", {EISDIR, ENOTEMPTY, EEXIST, EINVAL, EBUSY}},
    {"exchange", {EINVAL, EBUSY}},
    {"link", {EEXIST, EPERM}},
    {"symlink", {EEXIST}},
    {"unlink", {EISDIR}},
    {"mkdir", {EEXIST}},
    {"rmdir", {ENOTEMPTY, EBUSY}},
    {"mkfifo", {EEXIST}},
    {"readlink", {EINVAL}},
    {"list", {}},
    {"access", {}},
    {"getxattr", {ENODATA, EOPNOTSUPP}},
    {"setxattr", {EPERM, EOPNOTSUPP}},
    {"place", {}},
    {"again", {ENXIO, EISDIR}},
    {"place-chmod", {EOPNOTSUPP}},
};
static void judge(const char *call, long done) {
    if (done >= 0) return;
    bool of_path = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
    if (of_path && strcmp(call, "again") && strcmp(call, "place-chmod")) return;
    for (size_t i = 0; i < sizeof may / sizeof *may; i++)
        if (!strcmp(may[i].call, call)) {
            for (int j = 0; j < 8; j++)
                if (may[i].errors[j] == errno) return;
            t_fail(__FILE__, __LINE__, "%s: %s", call, t_errno(errno));
            return;
        }
    t_fail(__FILE__, __LINE__, "%s is in no row", call);
}
static void use_names(unsigned seed, double end) {
    srandom(seed);
    char a[16], b[16], text[64];
    struct stat st;
    while (now() < end && !*t_fails) {
        // Some in a directory that others rename, too.
        snprintf(a, sizeof a, random() % 4 ? "n%ld" : "n%ld/x", random() % NAMES);
        snprintf(b, sizeof b, "n%ld", random() % NAMES);
        int fd = -1;
        switch (random() % 26) {
        case 0: judge("open", fd = open(a, O_RDONLY | O_NONBLOCK)); break;
        case 1: judge("open", fd = open(a, O_RDWR | O_NONBLOCK)); break;
        case 2: judge("creat", fd = open(a, O_CREAT | O_WRONLY | O_NONBLOCK, 0644)); break;
        case 3: judge("creat", fd = open(a, O_CREAT | O_RDWR | O_TRUNC | O_NONBLOCK, 0644)); break;
        case 4: judge("excl", fd = open(a, O_CREAT | O_EXCL | O_RDWR, 0644)); break;
        case 5: judge("stat", stat(a, &st)); break;
        case 6: judge("lstat", lstat(a, &st)); break;
        case 7: judge("chmod", chmod(a, 0755)); break;
        case 8: judge("chown", lchown(a, 0, 0)); break;
        case 9: judge("utimes", utimensat(AT_FDCWD, a, 0, 0)); break;
        case 10: judge("truncate", truncate(a, 3)); break;
        case 11: judge("rename", rename(a, b)); break;
        case 12: judge("exchange", syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 2)); break;
        case 13: judge("link", link(a, b)); break;
        case 14: judge("symlink", symlink(b, a)); break;
        case 15: judge("unlink", unlink(a)); break;
        case 16: judge("mkdir", mkdir(a, 0755)); break;
        case 17: judge("rmdir", rmdir(a)); break;
        case 18: judge("mkfifo", mkfifo(a, 0644)); break;
        case 19: judge("readlink", readlink(a, text, sizeof text)); break;
        case 20: judge("list", fd = open(a, O_RDONLY | O_DIRECTORY)); break;
        case 21: judge("access", access(a, R_OK)); break;
        case 22: judge("getxattr", getxattr(a, "user.x", text, sizeof text)); break;
        case 23: judge("setxattr", setxattr(a, "user.x", "1", 1, 0)); break;
        case 24:
        case 25:
            judge("place", fd = open(a, O_PATH | O_NOFOLLOW));
            if (fd < 0) break;
            CHECK_EQ(fstat(fd, &st), 0);
            if (S_ISREG(st.st_mode)) {
                int again = open(own(fd), O_RDWR);
                judge("again", again);
                close(again);
            }
            judge("place-chmod", chmod(own(fd), 0700));
            break;
        }
        if (fd >= 0 && fstat(fd, &st)) t_fail(__FILE__, __LINE__, "fstat: %s", t_errno(errno));
        if (fd >= 0) close(fd);
    }
}
// HELD_DIR: a directory that others use in the same way meanwhile.
TEST(held_thirty_names) {
    const char *dir = getenv("HELD_DIR");
    if (dir) SYS(chdir(dir));
    double end = now() + 2 * seconds();
    pid_t all[10];
    for (int i = 0; i < 10; i++)
        if (!(all[i] = SYS(fork()))) use_names(time(0) + i, end), _exit(0);
    for (int i = 0; i < 10; i++) waitpid(all[i], 0, 0);
}

// An object that several hold stays with the last of them: an open file, a watch and descriptors by O_PATH, which two
// processes open at the same moment.
static void make_one(int kind) {
    switch (kind) {
    case 0: put("one", "x"); break;
    case 1: SYS(mkdir("one", 0755)); break;
    case 2: SYS(mkfifo("one", 0644)); break;
    default: SYS(symlink("x", "one"));
    }
}
static void check_held(int fd, int kind) {
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_nlink, 0);
    if (kind != 3) OK(chmod(own(fd), 0700));
    OK(fstat(fd, &st));
    if (kind != 3) CHECK_EQ(st.st_mode & 0777, 0700);
}
TEST(held_by_several) {
    for (int kind = 0; kind < 4; kind++) {
        make_one(kind);
        int other = kind == 3 ? -1 : SYS(open("one", O_RDONLY | O_NONBLOCK)), fd = SYS(open("one", O_PATH | O_NOFOLLOW));
        close(other);
        SYS(kind == 1 ? rmdir("one") : unlink("one"));
        check_held(fd, kind);
        close(fd);
        make_one(kind);
        int watches = SYS(inotify_init()), w = SYS(inotify_add_watch(watches, "one", IN_ATTRIB | IN_DONT_FOLLOW));
        fd = SYS(open("one", O_PATH | O_NOFOLLOW));
        OK(inotify_rm_watch(watches, w));
        SYS(kind == 1 ? rmdir("one") : unlink("one"));
        check_held(fd, kind);
        close(fd);
        close(watches);
    }
    _Atomic int *turn = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const int rounds = 400;
    pid_t p = FORK();
    if (p == 0) {
        for (int i = 0; i < rounds; i++) {
            while (*turn != 3 * i + 1) sched_yield();
            int fd = open("one", O_PATH | O_NOFOLLOW);
            *turn = 3 * i + 2;
            while (*turn != 3 * i + 3) sched_yield();
            close(fd);
            *turn = 3 * i + 4 - 1000000;
        }
        _exit(0);
    }
    for (int i = 0; i < rounds && !*t_fails; i++) {
        make_one(i % 4);
        *turn = 3 * i + 1;
        int fd = SYS(open("one", O_PATH | O_NOFOLLOW));
        while (*turn != 3 * i + 2) sched_yield();
        *turn = 3 * i + 3;
        while (*turn != 3 * i + 4 - 1000000) sched_yield();
        SYS(i % 4 == 1 ? rmdir("one") : unlink("one"));
        check_held(fd, i % 4);
        close(fd);
    }
    kill(p, SIGKILL);
    waitpid(p, 0, 0);
}
TEST(held_two_names) {
    struct stat st;
    put("a", "1"), SYS(link("a", "b"));
    int fd = SYS(open("a", O_RDONLY));
    SYS(unlink("a"));
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_nlink, 1);
    OK(stat("b", &st));
    int other = open("b", O_RDWR);
    CHECK(other >= 0);
    OK(chmod("b", 0600));
    SYS(unlink("b"));
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_nlink, 0);
}
TEST(held_watch_of_one_of_two_names) {
    put("a", "1"), SYS(link("a", "b"));
    int in = SYS(inotify_init1(IN_NONBLOCK));
    SYS(inotify_add_watch(in, "a", IN_ALL_EVENTS));
    SYS(unlink("a"));
    char buf[4096];
    ssize_t n = read(in, buf, sizeof buf);
    for (char *p = buf; n > 0 && p < buf + n;) {
        struct inotify_event *e = (void *)p;
        CHECK_EQ(e->mask & (IN_DELETE_SELF | IN_IGNORED), 0);
        p += sizeof *e + e->len;
    }
    put("b", "22");
    n = read(in, buf, sizeof buf);
    uint32_t seen = 0;
    for (char *p = buf; n > 0 && p < buf + n;) {
        struct inotify_event *e = (void *)p;
        seen |= e->mask;
        p += sizeof *e + e->len;
    }
    CHECK(seen & IN_MODIFY);
}
TEST(held_numbers_that_are_used_again) {
    // A file system that gives a number again soon may give it to the next file.
    struct stat before, st;
    put("old", "old");
    int place = SYS(open("old", O_PATH));
    OK(fstat(place, &before));
    SYS(unlink("old"));
    for (int i = 0; i < 40; i++) {
        char name[16];
        sprintf(name, "new%d", i);
        put(name, "new");
    }
    OK(fstat(place, &st));
    CHECK_EQ(st.st_nlink, 0);
    CHECK_EQ(st.st_size, 3);
    OK(chmod(own(place), 0600));
    for (int i = 0; i < 40; i++) {
        char name[16];
        sprintf(name, "new%d", i);
        OK(stat(name, &st));
        CHECK_EQ(st.st_mode & 0777, 0644);
        CHECK(st.st_ino != before.st_ino);
    }
    int fd = open(own(place), O_RDONLY);
    CHECK(fd >= 0);
    if (fd >= 0) CHECK_STR(read_fd(fd), "old");
}
TEST(held_working_directory) {
    struct stat before, st;
    SYS(mkdir("d", 0755));
    OK(stat("d", &before));
    SYS(chdir("d"));
    SYS(rmdir("../d"));
    for (int i = 0; i < 20; i++) {
        char name[300];
        sprintf(name, "%s/e%d", t_dir, i);
        SYS(mkdir(name, 0700));
        sprintf(name, "%s/e%d/inside", t_dir, i);
        put(name, "x");
    }
    OK(stat(".", &st));
    CHECK_EQ(st.st_ino, before.st_ino);
    CHECK_EQ(st.st_mode & 0777, 0755);
    CHECK_ERR(open("inside", O_RDONLY), ENOENT);
    CHECK_ERR(open("new", O_CREAT | O_RDWR, 0644), ENOENT);
    CHECK_ERR(mkdir("new", 0755), ENOENT);
    char path[PATH_MAX];
    CHECK_ERR(syscall(SYS_getcwd, path, sizeof path), ENOENT);
    OK(chmod(".", 0711));
    OK(stat(".", &st));
    CHECK_EQ(st.st_mode & 0777, 0711);
}
TEST(held_working_directory_that_moves) {
    SYS(mkdir("d", 0755)), SYS(chdir("d")), SYS(mkdir("sub", 0755)), put("f", "here");
    pid_t pid = SYS(fork());
    if (!pid) _exit(rename("../d", "../e") || mkdir("../d", 0755));
    int status;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0);
    int fd = open("f", O_RDONLY);
    CHECK(fd >= 0);
    put("g", "new");
    OK(access("../e/g", F_OK));
    CHECK_ERR(access("../d/g", F_OK), ENOENT);
}
TEST(held_file_without_a_name_opened_again) {
    struct stat st;
    for (int removed = 0; removed < 2; removed++) {
        int fd = removed ? SYS(open("f", O_CREAT | O_RDWR, 0600)) : open(".", O_TMPFILE | O_RDWR, 0600);
        if (fd < 0) continue;
        if (removed) SYS(unlink("f"));
        CHECK_EQ(write(fd, "hello", 5), 5);
        int r = open(own(fd), O_RDONLY), w = open(own(fd), O_WRONLY), a = open(own(fd), O_WRONLY | O_APPEND);
        CHECK(r >= 0), CHECK(w >= 0), CHECK(a >= 0);
        CHECK_ERR(write(r, "x", 1), EBADF);
        CHECK_ERR(read(w, &st, 1), EBADF);
        CHECK_EQ(write(w, "J", 1), 1);
        CHECK_EQ(write(a, "!", 1), 1);
        CHECK_STR(read_fd(r), "Jello!");
        CHECK_EQ(truncate(own(fd), 2), 0);
        CHECK_STR(read_fd(r), "Je");
        int t = open(own(r), O_WRONLY | O_TRUNC);
        CHECK(t >= 0);
        OK(fstat(fd, &st));
        CHECK_EQ(st.st_size, 0);
        OK(chmod(own(fd), 0400));
        OK(fstat(r, &st));
        CHECK_EQ(st.st_mode & 0777, 0400);
        CHECK_EQ(st.st_nlink, 0);
        int p = open(own(fd), O_PATH);
        CHECK(p >= 0);
        CHECK(open(own(p), O_RDONLY) >= 0);
    }
}
TEST(held_program_that_is_gone) {
    // Runs itself again after its file has been removed, as after an update.
    char self[PATH_MAX];
    ssize_t n = SYS(readlink("/proc/self/exe", self, sizeof self - 1));
    self[n] = 0;
    int from = SYS(open(self, O_RDONLY)), to = SYS(open("prog", O_CREAT | O_WRONLY, 0755));
    char buf[65536];
    while ((n = read(from, buf, sizeof buf)) > 0) CHECK_EQ(write(to, buf, n), n);
    close(to);
    pid_t pid = SYS(fork());
    if (!pid) execl("./prog", "prog", "-n", "held_is_itself", (char *)0), _exit(99);
    int status;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0);
}
TEST(held_is_itself) {
    if (!strstr(t_self, "/prog")) return;
    SYS(unlink(t_self));
    int fd = open("/proc/self/exe", O_RDONLY);
    CHECK(fd >= 0);
    char *const args[] = {"again", "-l", 0}, *const none[] = {0};
    pid_t pid = SYS(fork());
    if (!pid) {
        dup2(open("/dev/null", O_WRONLY), 1);
        execve("/proc/self/exe", args, none), _exit(98);
    }
    int status;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0);
    if (!(pid = SYS(fork()))) {
        dup2(open("/dev/null", O_WRONLY), 1);
        syscall(SYS_execveat, fd, "", args, none, AT_EMPTY_PATH), _exit(97);
    }
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0);
}
TEST(held_mount_of_a_file_that_is_gone) {
    if (unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0)) SKIP("no mounts");
    put("f", "bound"), put("on", "");
    SYS(mount("f", "on", 0, MS_BIND, 0));
    SYS(unlink("f"));
    put("f", "another");
    int fd = open("on", O_RDWR);
    CHECK(fd >= 0);
    if (fd >= 0) CHECK_STR(read_fd(fd), "bound");
    struct stat st;
    OK(stat("on", &st));
    CHECK_EQ(st.st_size, 5);
    umount("on");
}
TEST(held_capabilities_of_a_file) {
    // cap_net_bind_service+ep, version 2.
    unsigned char caps[20] = {1, 0, 0, 2, 0, 4}, got[24];
    put("f", "x");
    if (setxattr("f", "security.capability", caps, sizeof caps, 0)) {
        CHECK_EQ(errno, EOPNOTSUPP);
        return;
    }
    CHECK_EQ(getxattr("f", "security.capability", got, sizeof got), sizeof caps);
    CHECK_MEM(got, caps, sizeof caps);
    OK(removexattr("f", "security.capability"));
    CHECK_ERR(getxattr("f", "security.capability", got, sizeof got), ENODATA);
}
TEST(held_set_id_bits_stay_for_root) {
    struct stat st;
    put("f", "123456");
    OK(chmod("f", 06755));
    int fd = SYS(open("f", O_RDWR));
    CHECK_EQ(write(fd, "x", 1), 1);
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_mode & 07777, 06755);
    OK(ftruncate(fd, 2));
    OK(truncate("f", 1));
    CHECK_EQ(fallocate(fd, 0, 0, 4096), 0);
    close(SYS(open("f", O_WRONLY | O_TRUNC)));
    int a = SYS(open("f", O_WRONLY | O_APPEND));
    CHECK_EQ(write(a, "y", 1), 1);
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_mode & 07777, 06755);
    char big[20000] = {1};
    CHECK_EQ(pwrite(fd, big, sizeof big, 0), sizeof big);
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_mode & 07777, 06755);
}

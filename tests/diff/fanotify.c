// fanotify(7): groups that are told of what is done to files, with a descriptor for each event.
#include "ns.h"
#include <poll.h>
#include <sys/fanotify.h>
#include <sys/sendfile.h>
#include <sys/vfs.h>

#ifndef FAN_MARK_IGNORE
#define FAN_MARK_IGNORE 0x400
#endif

static int f_group;

static void f_begin(unsigned flags, unsigned event_flags) {
    f_group = fanotify_init(flags | FAN_NONBLOCK, event_flags);
    if (f_group < 0 && errno == ENOSYS) SKIP("no fanotify");
    SYS(f_group);
}

static int f_mark(unsigned flags, unsigned long long mask, const char *path) {
    return fanotify_mark(f_group, flags, mask, AT_FDCWD, path);
}

// Something that is done by another process, so that the group has no part in it.
#define BY_CHILD(...) CHECK_STATUS(CHILD(__VA_ARGS__), "exit 0")

static struct fanotify_event_metadata f_events[64];
static int f_count;

// All events that wait, and what they are about: the name of each file's last component.
static char f_names[64][64];

static int f_read(void) {
    int n = read(f_group, f_events, sizeof f_events);
    f_count = n < 0 ? 0 : n / (int)sizeof *f_events;
    for (int i = 0; i < f_count; i++) {
        char link[64], path[PATH_MAX];
        *f_names[i] = 0;
        if (f_events[i].fd < 0) continue;
        snprintf(link, sizeof link, "/proc/self/fd/%d", f_events[i].fd);
        int len = readlink(link, path, sizeof path - 1);
        if (len > 0) {
            path[len] = 0;
            char *last = strrchr(path, '/');
            snprintf(f_names[i], sizeof f_names[i], "%.60s", last ? last + 1 : path);
        }
    }
    return n;
}

static void f_close(void) {
    for (int i = 0; i < f_count; i++)
        if (f_events[i].fd >= 0) close(f_events[i].fd);
}

// The masks of all events of a name together; its events are closed.
static unsigned long long f_of(const char *name) {
    unsigned long long mask = 0;
    for (int i = 0; i < f_count; i++)
        if (!strcmp(f_names[i], name)) mask |= f_events[i].mask;
    return mask;
}

static unsigned long long f_told(const char *name) {
    f_read();
    unsigned long long mask = f_of(name);
    f_close();
    return mask;
}

static void f_touch(const char *name) {
    int fd = SYS(open(name, O_CREAT | O_WRONLY, 0644));
    SYS(write(fd, "text", 4));
    close(fd);
}

static void f_look(const char *name) {
    char c;
    int fd = SYS(open(name, O_RDONLY));
    read(fd, &c, 1);
    close(fd);
}

TEST(fanotify_init_flags) {
    CHECK_ERR(fanotify_init(0x80000000, 0), EINVAL);
    CHECK_ERR(fanotify_init(FAN_CLASS_CONTENT | FAN_CLASS_PRE_CONTENT, 0), EINVAL);
    CHECK_ERR(fanotify_init(0, O_ACCMODE), EINVAL);
    CHECK_ERR(fanotify_init(0, O_CREAT), EINVAL);
    f_begin(FAN_CLOEXEC, O_RDONLY);
    CHECK_EQ(fcntl(f_group, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(f_group, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDWR | O_NONBLOCK);
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/fd/%d", f_group);
    text[SYS(readlink(path, text, sizeof text - 1))] = 0;
    CHECK_STR(text, "anon_inode:[fanotify]");
    char c[100];
    CHECK_ERR(read(f_group, c, 0), EAGAIN);
    CHECK_ERR(read(f_group, c, sizeof c), EAGAIN);
    CHECK_ERR(write(f_group, c, 4), EINVAL);
    int count = -1;
    SYS(ioctl(f_group, FIONREAD, &count));
    CHECK_EQ(count, 0);
    SYS(fanotify_init(FAN_CLASS_CONTENT, O_RDWR | O_LARGEFILE | O_NOATIME | O_CLOEXEC));
    SYS(fanotify_init(FAN_CLASS_PRE_CONTENT | FAN_UNLIMITED_QUEUE | FAN_UNLIMITED_MARKS, O_WRONLY | O_APPEND));
    BY_CHILD(become(1000); CHECK_ERR(fanotify_init(0, 0), EPERM));
    BY_CHILD(become(1000); own_namespaces(0); CHECK_ERR(fanotify_init(0, 0), EPERM));
}

TEST(fanotify_mark_flags) {
    f_touch("file");
    SYS(mkdir("dir", 0755));
    SYS(symlink("file", "link"));
    f_begin(0, 0);
    CHECK_ERR(f_mark(FAN_MARK_ADD, 0, "file"), EINVAL);
    CHECK_ERR(f_mark(0, FAN_OPEN, "file"), EINVAL);
    CHECK_ERR(f_mark(FAN_MARK_ADD | FAN_MARK_REMOVE, FAN_OPEN, "file"), EINVAL);
    CHECK_ERR(f_mark(FAN_MARK_ADD | 0x80000, FAN_OPEN, "file"), EINVAL);
    CHECK_ERR(f_mark(FAN_MARK_ADD, 1ULL << 40, "file"), EINVAL);
    CHECK_ERR(f_mark(FAN_MARK_ADD, FAN_CREATE, "dir"), EINVAL);
    CHECK_ERR(f_mark(FAN_MARK_ADD, FAN_OPEN_PERM, "file"), EINVAL);
    CHECK_ERR(f_mark(FAN_MARK_ADD, FAN_OPEN | FAN_ACCESS_PERM, "file"), EINVAL);
    CHECK_ERR(f_mark(FAN_MARK_ADD | FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORE, FAN_OPEN, "file"), EINVAL);
    CHECK_ERR(f_mark(FAN_MARK_FLUSH | FAN_MARK_ONLYDIR, 0, "file"), EINVAL);
    CHECK_ERR(f_mark(FAN_MARK_ADD | FAN_MARK_ONLYDIR, FAN_OPEN, "file"), ENOTDIR);
    CHECK_ERR(f_mark(FAN_MARK_ADD, FAN_OPEN, "none"), ENOENT);
    CHECK_ERR(f_mark(FAN_MARK_ADD, FAN_OPEN, BAD_PTR), EFAULT);
    CHECK_ERR(fanotify_mark(999, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "file"), EBADF);
    CHECK_ERR(fanotify_mark(0, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, "file"), EINVAL);
    CHECK_ERR(fanotify_mark(f_group, FAN_MARK_ADD, FAN_OPEN, 999, 0), EBADF);
    CHECK_ERR(f_mark(FAN_MARK_REMOVE, FAN_OPEN, "file"), ENOENT);
    SYS(f_mark(FAN_MARK_ADD, FAN_OPEN | FAN_CLOSE, "file"));
    SYS(f_mark(FAN_MARK_REMOVE, FAN_OPEN, "file"));
    SYS(f_mark(FAN_MARK_REMOVE, FAN_CLOSE, "file"));
    CHECK_ERR(f_mark(FAN_MARK_REMOVE, FAN_CLOSE, "file"), ENOENT);
    SYS(f_mark(FAN_MARK_ADD | FAN_MARK_DONT_FOLLOW, FAN_OPEN, "link"));
    CHECK_ERR(f_mark(FAN_MARK_REMOVE, FAN_OPEN, "link"), ENOENT);
    SYS(f_mark(FAN_MARK_ADD | FAN_MARK_IGNORED_MASK, FAN_OPEN, "file"));
    SYS(f_mark(FAN_MARK_ADD | FAN_MARK_IGNORE | FAN_MARK_IGNORED_SURV_MODIFY, FAN_OPEN, "file"));
    CHECK_ERR(f_mark(FAN_MARK_ADD | FAN_MARK_IGNORE, FAN_OPEN, "file"), EEXIST);
    CHECK_ERR(f_mark(FAN_MARK_ADD | FAN_MARK_IGNORED_MASK, FAN_OPEN, "file"), EEXIST);
    CHECK_ERR(f_mark(FAN_MARK_ADD | FAN_MARK_IGNORE, FAN_OPEN, "dir"), EISDIR);
    CHECK_ERR(f_mark(FAN_MARK_ADD | FAN_MARK_IGNORE | FAN_MARK_MOUNT, FAN_OPEN, "dir"), EINVAL);
    SYS(f_mark(FAN_MARK_FLUSH, 0, 0));
    CHECK_ERR(f_mark(FAN_MARK_REMOVE, FAN_OPEN, "file"), ENOENT);
    int file = SYS(open("file", O_RDONLY));
    SYS(fanotify_mark(f_group, FAN_MARK_ADD, FAN_OPEN, file, 0));
    SYS(f_mark(FAN_MARK_REMOVE, FAN_OPEN, "file"));
    SYS(chmod("file", 0));
    BY_CHILD(become(1000); CHECK_ERR(f_mark(FAN_MARK_ADD, FAN_OPEN, "file"), EACCES));
}

TEST(fanotify_file) {
    f_touch("file");
    f_begin(0, O_RDONLY | O_CLOEXEC);
    SYS(f_mark(FAN_MARK_ADD, FAN_OPEN | FAN_ACCESS | FAN_MODIFY | FAN_CLOSE, "file"));
    pid_t child = FORK();
    if (!child) {
        f_look("file");
        _exit(0);
    }
    SYS(waitpid(child, 0, 0));
    struct pollfd p = {f_group, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, 0), 1);
    int count = 0;
    SYS(ioctl(f_group, FIONREAD, &count));
    CHECK_EQ(count, 24);
    char small[23];
    CHECK_ERR(read(f_group, small, sizeof small), EINVAL);
    CHECK_EQ(f_read(), 24);
    CHECK_EQ(f_events[0].event_len, 24);
    CHECK_EQ(f_events[0].vers, FANOTIFY_METADATA_VERSION);
    CHECK_EQ(f_events[0].metadata_len, 24);
    CHECK_EQ(f_events[0].mask, FAN_OPEN | FAN_ACCESS | FAN_CLOSE_NOWRITE);
    CHECK_EQ(f_events[0].pid, child);
    CHECK_STR(f_names[0], "file");
    int fd = f_events[0].fd;
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    // What is done with the event's descriptor is no event.
    char text[5] = "";
    CHECK_EQ(read(fd, text, 4), 4);
    CHECK_STR(text, "text");
    f_close();
    CHECK_ERR(f_read(), EAGAIN);
    BY_CHILD(f_touch("file"));
    CHECK_EQ(f_told("file"), FAN_OPEN | FAN_MODIFY | FAN_CLOSE_WRITE);
    // The end of a process closes its files.
    child = FORK();
    if (!child) {
        open("file", O_RDONLY);
        _exit(0);
    }
    SYS(waitpid(child, 0, 0));
    CHECK_EQ(f_read(), 24);
    CHECK_EQ(f_events[0].mask, FAN_OPEN | FAN_CLOSE_NOWRITE);
    CHECK_EQ(f_events[0].pid, child);
    f_close();
    // Names, attributes and lengths are not told of.
    BY_CHILD(SYS(truncate("file", 2)); SYS(chmod("file", 0600)); SYS(rename("file", "other")); SYS(close(SYS(open("other", O_PATH)))));
    CHECK_ERR(f_read(), EAGAIN);
    BY_CHILD(f_look("other"));
    CHECK_EQ(f_told("other"), FAN_OPEN | FAN_ACCESS | FAN_CLOSE_NOWRITE);
    SYS(f_mark(FAN_MARK_REMOVE, FAN_OPEN | FAN_ACCESS | FAN_MODIFY | FAN_CLOSE, "other"));
    BY_CHILD(f_look("other"));
    CHECK_ERR(f_read(), EAGAIN);
}

TEST(fanotify_directory) {
    SYS(mkdir("dir", 0755));
    SYS(mkdir("dir/sub", 0755));
    f_touch("dir/file");
    f_begin(0, O_RDONLY);
    SYS(f_mark(FAN_MARK_ADD, FAN_OPEN, "dir"));
    BY_CHILD(f_look("dir/file"); close(SYS(open("dir", O_RDONLY))));
    CHECK_ERR(f_read(), EAGAIN);
    SYS(f_mark(FAN_MARK_ADD, FAN_EVENT_ON_CHILD, "dir"));
    BY_CHILD(f_look("dir/file"); close(SYS(open("dir", O_RDONLY))); close(SYS(open("dir/sub", O_RDONLY))));
    CHECK_EQ(f_read(), 24);
    CHECK_EQ(f_of("file"), FAN_OPEN);
    f_close();
    SYS(f_mark(FAN_MARK_ADD, FAN_ONDIR, "dir"));
    BY_CHILD(f_look("dir/file"); close(SYS(open("dir", O_RDONLY))); close(SYS(open("dir/sub", O_RDONLY))));
    CHECK_EQ(f_read(), 72);
    CHECK_EQ(f_of("file"), FAN_OPEN);
    CHECK_EQ(f_of("dir"), FAN_OPEN);
    CHECK_EQ(f_of("sub"), FAN_OPEN);
    f_close();
    SYS(f_mark(FAN_MARK_REMOVE, FAN_ONDIR, "dir"));
    SYS(f_mark(FAN_MARK_ADD | FAN_MARK_IGNORED_MASK, FAN_OPEN, "dir/file"));
    BY_CHILD(f_look("dir/file"));
    CHECK_ERR(f_read(), EAGAIN);
    // Once it is modified, it is ignored no longer.
    BY_CHILD(f_touch("dir/file"); f_look("dir/file"));
    CHECK_EQ(f_told("file"), FAN_OPEN);
    SYS(f_mark(FAN_MARK_ADD | FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY, FAN_OPEN, "dir/file"));
    BY_CHILD(f_touch("dir/file"); f_look("dir/file"));
    CHECK_ERR(f_read(), EAGAIN);
}

TEST(fanotify_ignored_until_modified) {
    char info[64], text[1024];
    SYS(mkdir("dir", 0755));
    f_touch("dir/file");
    f_begin(0, O_RDONLY);
    snprintf(info, sizeof info, "/proc/self/fdinfo/%d", f_group);
    // A directory's mark is about what is in the directory only if it says so.
    SYS(f_mark(FAN_MARK_ADD | FAN_MARK_IGNORED_MASK, FAN_CLOSE, "dir"));
    BY_CHILD(f_touch("dir/file"));
    t_slurp(info, text, sizeof text);
    CHECK(strstr(text, " mflags:0 mask:0 ignored_mask:18 "));
    SYS(f_mark(FAN_MARK_ADD, FAN_MODIFY | FAN_EVENT_ON_CHILD, "dir"));
    BY_CHILD(f_touch("dir/file"));
    CHECK_EQ(f_told("file"), FAN_MODIFY);
    t_slurp(info, text, sizeof text);
    CHECK(strstr(text, " mflags:0 mask:8000002 ignored_mask:0 "));
    SYS(f_mark(FAN_MARK_ADD | FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY, FAN_MODIFY, "dir"));
    BY_CHILD(f_touch("dir/file"));
    CHECK_ERR(f_read(), EAGAIN);
    t_slurp(info, text, sizeof text);
    CHECK(strstr(text, " mflags:40 mask:8000002 ignored_mask:2 "));
}

TEST(fanotify_mount_and_file_system) {
    SYS(unshare(CLONE_NEWNS));
    SYS(mount("none", "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mkdir("m", 0755));
    SYS(mkdir("n", 0755));
    SYS(mount("none", "m", "tmpfs", 0, 0));
    SYS(mount("m", "n", 0, MS_BIND, 0));
    f_touch("m/file");
    f_begin(0, O_RDWR);
    SYS(f_mark(FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN, "m"));
    BY_CHILD(f_look("n/file"));
    CHECK_ERR(f_read(), EAGAIN);
    BY_CHILD(f_look("m/file"));
    CHECK_EQ(f_read(), 24);
    CHECK_EQ(f_of("file"), FAN_OPEN);
    CHECK_EQ(write(f_events[0].fd, "TEXT", 4), 4);
    f_close();
    CHECK_ERR(f_mark(FAN_MARK_REMOVE | FAN_MARK_FILESYSTEM, FAN_OPEN, "m"), ENOENT);
    SYS(f_mark(FAN_MARK_FLUSH | FAN_MARK_MOUNT, 0, 0));
    SYS(f_mark(FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_CLOSE_NOWRITE, "m"));
    BY_CHILD(f_look("n/file"));
    CHECK_EQ(f_told("file"), FAN_CLOSE_NOWRITE);
    SYS(f_mark(FAN_MARK_ADD | FAN_MARK_IGNORED_MASK | FAN_MARK_MOUNT, FAN_CLOSE, "n"));
    BY_CHILD(f_look("n/file"));
    CHECK_ERR(f_read(), EAGAIN);
    BY_CHILD(f_look("m/file"));
    CHECK_EQ(f_told("file"), FAN_CLOSE_NOWRITE);
    // Marks do not keep a mount.
    SYS(umount("n"));
    SYS(umount("m"));
    CHECK_ERR(f_read(), EAGAIN);
}

TEST(fanotify_execution) {
    SYS(mkdir("dir", 0755));
    f_begin(0, O_RDONLY);
    SYS(f_mark(FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN_EXEC, "/"));
    pid_t child = FORK();
    if (!child) {
        execl("/bin/true", "true", (char *)0);
        _exit(1);
    }
    SYS(waitpid(child, 0, 0));
    f_read();
    int found = 0;
    for (int i = 0; i < f_count; i++)
        found += f_events[i].pid == child && f_events[i].mask == FAN_OPEN_EXEC;
    CHECK(found >= 1);
    f_close();
}

TEST(fanotify_queue) {
    char name[16];
    SYS(mkdir("dir", 0755));
    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "dir/%d", i);
        f_touch(name);
    }
    f_begin(FAN_REPORT_TID, O_RDONLY);
    SYS(f_mark(FAN_MARK_ADD, FAN_OPEN | FAN_CLOSE | FAN_EVENT_ON_CHILD, "dir"));
    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "dir/%d", i);
        f_look(name);
        f_look(name);
    }
    CHECK_EQ(read(f_group, f_events, 50), 48);
    CHECK_EQ(f_events[1].mask, FAN_OPEN | FAN_CLOSE_NOWRITE);
    CHECK_EQ(f_events[1].pid, syscall(SYS_gettid));
    CHECK_EQ(f_read(), 8 * 24);
    CHECK_STR(f_names[7], "9");
    f_close();
    // Removed files can still be had.
    f_look("dir/1");
    SYS(unlink("dir/1"));
    CHECK_EQ(f_read(), 24);
    char text[5] = "";
    CHECK_EQ(read(f_events[0].fd, text, 4), 4);
    CHECK_STR(text, "text");
    f_close();
    // A wait ends with an event, and with a signal.
    SYS(fcntl(f_group, F_SETFL, 0));
    pid_t child = FORK();
    if (!child) {
        usleep(50000);
        f_look("dir/2");
        _exit(0);
    }
    // What follows the first event may come with it.
    CHECK(f_read() >= 24);
    CHECK_EQ(f_events[0].pid, child);
    f_close();
    SYS(waitpid(child, 0, 0));
}

// Reads one event, and answers it when it is a question.
static unsigned long long f_answer(unsigned response) {
    struct fanotify_event_metadata event;
    CHECK_EQ(read(f_group, &event, sizeof event), sizeof event);
    if (event.mask & (FAN_OPEN_PERM | FAN_ACCESS_PERM | FAN_OPEN_EXEC_PERM)) {
        struct fanotify_response answer = {event.fd, response};
        CHECK_EQ(write(f_group, &answer, sizeof answer), sizeof answer);
        CHECK_ERR(write(f_group, &answer, sizeof answer), ENOENT);
    }
    close(event.fd);
    return event.mask;
}

static void f_wait(pid_t child, const char *how) {
    int status = -1;
    SYS(waitpid(child, &status, 0));
    CHECK_STATUS(status, how);
}

TEST(fanotify_permission) {
    f_touch("file");
    f_begin(FAN_CLASS_CONTENT, O_RDONLY);
    SYS(fcntl(f_group, F_SETFL, 0));
    CHECK_ERR(f_mark(FAN_MARK_ADD, FAN_OPEN_PERM, "/proc/self/status"), EINVAL);
    SYS(f_mark(FAN_MARK_ADD, FAN_OPEN_PERM | FAN_ACCESS_PERM | FAN_CLOSE, "file"));
    struct fanotify_response bad = {5000, FAN_ALLOW};
    CHECK_ERR(write(f_group, &bad, sizeof bad), ENOENT);
    bad.response = 99;
    CHECK_ERR(write(f_group, &bad, sizeof bad), EINVAL);
    bad = (struct fanotify_response){-1, FAN_ALLOW};
    CHECK_ERR(write(f_group, &bad, sizeof bad), EINVAL);
    CHECK_ERR(write(f_group, &bad, 7), EINVAL);
    pid_t child = FORK();
    if (!child) {
        close(f_group);
        CHECK_ERR(open("file", O_RDONLY), EPERM);
        int fd = SYS(open("file", O_RDONLY));
        char c;
        CHECK_ERR(read(fd, &c, 1), EPERM);
        CHECK_EQ(read(fd, &c, 1), 1);
        _exit(0);
    }
    CHECK_EQ(f_answer(FAN_DENY), FAN_OPEN_PERM);
    CHECK_EQ(f_answer(FAN_ALLOW), FAN_OPEN_PERM);
    CHECK_EQ(f_answer(FAN_DENY), FAN_ACCESS_PERM);
    CHECK_EQ(f_answer(FAN_ALLOW), FAN_ACCESS_PERM);
    CHECK_EQ(f_answer(0), FAN_CLOSE_NOWRITE);
    f_wait(child, "exit 0");
    // Other ways to read.
    child = FORK();
    if (!child) {
        close(f_group);
        int fd = SYS(open("file", O_RDONLY));
        int to = SYS(open("copy", O_CREAT | O_WRONLY, 0644));
        CHECK_ERR(sendfile(to, fd, 0, 4), EPERM);
        CHECK_ERR(copy_file_range(fd, 0, to, 0, 4, 0), EPERM);
        CHECK_EQ(sendfile(to, fd, 0, 4), 4);
        char text[4];
        CHECK_ERR(pread(fd, text, 4, 0), EPERM);
        // The end of a process closes its files.
        _exit(0);
    }
    CHECK_EQ(f_answer(FAN_ALLOW), FAN_OPEN_PERM);
    CHECK_EQ(f_answer(FAN_DENY), FAN_ACCESS_PERM);
    CHECK_EQ(f_answer(FAN_DENY), FAN_ACCESS_PERM);
    CHECK_EQ(f_answer(FAN_ALLOW), FAN_ACCESS_PERM);
    CHECK_EQ(f_answer(FAN_DENY), FAN_ACCESS_PERM);
    CHECK_EQ(f_answer(0), FAN_CLOSE_NOWRITE);
    f_wait(child, "exit 0");
    // A file that is not opened is not truncated.
    child = FORK();
    if (!child) {
        close(f_group);
        CHECK_ERR(open("file", O_WRONLY | O_TRUNC), EPERM);
        _exit(0);
    }
    CHECK_EQ(f_answer(FAN_DENY), FAN_OPEN_PERM);
    f_wait(child, "exit 0");
    struct stat st;
    SYS(stat("file", &st));
    CHECK_EQ(st.st_size, 4);
}

TEST(fanotify_permission_ends) {
    f_touch("file");
    f_begin(FAN_CLASS_CONTENT, O_RDONLY);
    SYS(f_mark(FAN_MARK_ADD, FAN_OPEN_PERM, "file"));
    // A thread that waits can be killed, whether its question has been read or not.
    for (int i = 0; i < 2; i++) {
        pid_t child = FORK();
        if (!child) {
            close(f_group);
            open("file", O_RDONLY);
            _exit(1);
        }
        struct pollfd p = {f_group, POLLIN, 0};
        CHECK_EQ(poll(&p, 1, 10000), 1);
        if (i) CHECK_EQ(f_read(), 24);
        SYS(kill(child, SIGKILL));
        f_wait(child, "signal 9");
        if (i) {
            struct fanotify_response answer = {f_events[0].fd, FAN_ALLOW};
            write(f_group, &answer, sizeof answer);
            f_close();
        }
    }
    while (f_read() > 0) f_close();
    // The end of the group allows what nobody answers: what was read, and what was not.
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = FORK();
        if (!children[i]) {
            close(f_group);
            _exit(open("file", O_RDONLY) < 0);
        }
        struct pollfd p = {f_group, POLLIN, 0};
        CHECK_EQ(poll(&p, 1, 10000), 1);
        if (!i) CHECK_EQ(f_read(), 24);
    }
    f_close();
    SYS(close(f_group));
    for (int i = 0; i < 2; i++) f_wait(children[i], "exit 0");
}

TEST(fanotify_permission_to_execute) {
    char text[65536];
    int n, from = SYS(open("/bin/true", O_RDONLY)), to = SYS(open("true", O_CREAT | O_WRONLY, 0755));
    while ((n = read(from, text, sizeof text)) > 0) write(to, text, n);
    close(to);
    f_begin(FAN_CLASS_CONTENT, O_RDONLY);
    SYS(fcntl(f_group, F_SETFL, 0));
    SYS(f_mark(FAN_MARK_ADD, FAN_OPEN_EXEC_PERM, "true"));
    SYS(close(SYS(open("true", O_RDONLY))));
    for (int i = 0; i < 2; i++) {
        pid_t child = FORK();
        if (!child) {
            close(f_group);
            execl("./true", "true", (char *)0);
            _exit(errno == EPERM ? 3 : 4);
        }
        CHECK_EQ(f_answer(i ? FAN_ALLOW : FAN_DENY), FAN_OPEN_EXEC_PERM);
        f_wait(child, i ? "exit 0" : "exit 3");
    }
}

// What inotify tells of, and when.
#include "t.h"
#include <sys/inotify.h>
#include <sys/sendfile.h>
#include <sys/xattr.h>

static int in;
// The events that wait, as "mask:name" words; masks of several events are not merged.
static char *events(void) {
    static char out[4096];
    char b[4096];
    *out = 0;
    ssize_t n = read(in, b, sizeof b);
    for (ssize_t i = 0; i < n;) {
        struct inotify_event *e = (void *)(b + i);
        sprintf(out + strlen(out), "%s%x%s%s", *out ? " " : "", e->mask, e->len ? ":" : "", e->len ? e->name : "");
        i += sizeof *e + e->len;
    }
    return out;
}
static void start(const char *path, uint32_t mask) {
    in = SYS(inotify_init1(IN_NONBLOCK));
    SYS(inotify_add_watch(in, path, mask));
}

TEST(changes_of_attributes) {
    t_make("f", "text");
    start("f", IN_ALL_EVENTS);
    struct timespec now[2] = {{1, 0}, {2, 0}};
    OK(utimensat(AT_FDCWD, "f", now, 0));
    CHECK_STR(events(), "4");
    now[1].tv_nsec = UTIME_OMIT;
    OK(utimensat(AT_FDCWD, "f", now, 0));
    CHECK_STR(events(), "1");
    now[0].tv_nsec = UTIME_OMIT, now[1].tv_nsec = 0;
    OK(utimensat(AT_FDCWD, "f", now, 0));
    CHECK_STR(events(), "2");
    OK(setxattr("f", "user.x", "1", 1, 0));
    CHECK_STR(events(), "4");
    OK(removexattr("f", "user.x"));
    CHECK_STR(events(), "4");
    CHECK_ERR(removexattr("f", "user.x"), ENODATA);
    CHECK_STR(events(), "");
    OK(chmod("f", 0600));
    CHECK_STR(events(), "4");
    OK(chown("f", 0, 0));
    CHECK_STR(events(), "4");
}
TEST(changes_of_content) {
    t_make("f", "text");
    start("f", IN_MODIFY | IN_OPEN);
    int fd = SYS(open("f", O_RDWR));
    CHECK_STR(events(), "20");
    OK(fallocate(fd, 0, 0, 8192));
    CHECK_STR(events(), "2");
    OK(ftruncate(fd, 10));
    CHECK_STR(events(), "2");
    close(SYS(open("f", O_RDWR | O_TRUNC)));
    CHECK_STR(events(), "20 2");
    close(SYS(creat("f", 0644)));
    CHECK_STR(events(), "20 2");
    OK(truncate("f", 5));
    CHECK_STR(events(), "2");
    int in2 = t_file("from", "0123456789");
    CHECK_EQ(sendfile(fd, in2, &(off_t){0}, 4), 4);
    CHECK_STR(events(), "2");
    CHECK_EQ(copy_file_range(in2, &(off_t){0}, fd, 0, 4, 0), 4);
    CHECK_STR(events(), "2");
    CHECK_EQ(write(fd, "", 0), 0);
    CHECK_STR(events(), "");
}
TEST(unlinked_children) {
    SYS(mkdir("d", 0755));
    int fd = t_file("d/f", "x");
    start("d", IN_MODIFY | IN_EXCL_UNLINK);
    CHECK_EQ(write(fd, "y", 1), 1);
    CHECK_STR(events(), "2:f");
    OK(unlink("d/f"));
    CHECK_EQ(write(fd, "y", 1), 1);
    CHECK_STR(events(), "");
    close(fd);
    close(in);
    // Without the flag the directory still hears of it.
    fd = t_file("d/g", "x");
    start("d", IN_MODIFY);
    OK(unlink("d/g"));
    CHECK_EQ(write(fd, "y", 1), 1);
    CHECK_STR(events(), "2:g");
    close(fd);
    close(in);
    // A file whose name another one has taken has none either.
    fd = t_file("d/h", "x");
    t_make("d/i", "x");
    start("d", IN_MODIFY | IN_EXCL_UNLINK);
    OK(rename("d/i", "d/h"));
    CHECK_EQ(write(fd, "y", 1), 1);
    CHECK_STR(events(), "");
}
TEST(a_removed_file_ends_its_watch) {
    int fd = t_file("f", "x");
    start("f", IN_MODIFY);
    OK(unlink("f"));
    CHECK_STR(events(), "");
    CHECK_EQ(write(fd, "y", 1), 1);
    CHECK_STR(events(), "2");
    close(fd);
    CHECK_STR(events(), "8000");
    close(in);
    t_make("g", "x");
    start("g", IN_DELETE_SELF);
    OK(unlink("g"));
    CHECK_STR(events(), "400 8000");
    close(in);
    t_make("g", "x");
    start("g", IN_ATTRIB | IN_ONESHOT);
    OK(chmod("g", 0600));
    CHECK_STR(events(), "4 8000");
}
TEST(one_of_two_names) {
    t_make("h", "x");
    OK(link("h", "h2"));
    start("h", IN_ALL_EVENTS);
    OK(unlink("h"));
    CHECK_STR(events(), "4");
    OK(unlink("h2"));
    CHECK_STR(events(), "4 400 8000");
}
TEST(a_file_that_is_replaced_ends_its_watch) {
    t_make("f", "x");
    t_make("g", "y");
    start("f", IN_MODIFY);
    OK(rename("g", "f"));
    CHECK_STR(events(), "8000");
}
TEST(a_removed_directory_that_is_open) {
    SYS(mkdir("d", 0755));
    int fd = SYS(open("d", O_RDONLY));
    start("d", IN_ALL_EVENTS);
    OK(rmdir("d"));
    CHECK_STR(events(), "");
    close(fd);
    CHECK_STR(events(), "40000010 400 8000");
    close(in);
    SYS(mkdir("d", 0755));
    int p = CHILD({
        SYS(chdir("d"));
        start("../d", IN_DELETE_SELF);
        OK(rmdir("../d"));
        CHECK_STR(events(), "");
        SYS(chdir("/"));
        CHECK_STR(events(), "400 8000");
    });
    CHECK_STATUS(p, "exit 0");
}
TEST(execve_opens_and_reads) {
    int from = SYS(open(t_self, O_RDONLY)), to = SYS(open("prog", O_CREAT | O_WRONLY, 0755));
    struct stat st;
    OK(fstat(from, &st));
    for (off_t left = st.st_size; left > 0;) {
        ssize_t n = sendfile(to, from, 0, left);
        MUST(n > 0);
        left -= n;
    }
    close(to);
    start("prog", IN_OPEN | IN_CLOSE | IN_MODIFY | IN_ATTRIB);
    CHECK_CHILD({
        close(1);
        execl("./prog", "prog", "-l", NULL);
        _exit(1);
    });
    CHECK_STR(events(), "20 10");
}
TEST(fdinfo_shows_masks) {
    t_make("f", "");
    start("f", IN_MODIFY | IN_ONESHOT | IN_EXCL_UNLINK);
    char path[64], b[1000];
    sprintf(path, "/proc/self/fdinfo/%d", in);
    t_slurp(path, b, sizeof b);
    char *m = strstr(b, "mask:");
    MUST(m);
    m[13] = 0;
    CHECK_STR(m, "mask:84000002");
}
TEST(watches_on_proc) {
    in = SYS(inotify_init1(IN_NONBLOCK));
    CHECK(inotify_add_watch(in, "/proc/self/status", IN_ALL_EVENTS) > 0);
    CHECK(inotify_add_watch(in, "/proc", IN_ALL_EVENTS) > 0);
    CHECK(inotify_add_watch(in, "/proc/sys/kernel", IN_CREATE) > 0);
    int fd = SYS(open("/proc/self/status", O_RDONLY));
    char c;
    CHECK_EQ(read(fd, &c, 1), 1);
    close(fd);
    CHECK(strstr(events(), "20"));
}
TEST(the_queue_is_limited) {
    in = SYS(inotify_init1(IN_NONBLOCK));
    SYS(inotify_add_watch(in, ".", IN_CREATE | IN_DELETE));
    char b[100];
    t_slurp("/proc/sys/fs/inotify/max_queued_events", b, sizeof b);
    int max = atoi(b), total = 0, lost = 0;
    for (int i = 0; i < max / 2 + 10; i++) {
        t_make("f", "");
        unlink("f");
    }
    static char buf[1 << 20];
    ssize_t n;
    while ((n = read(in, buf, sizeof buf)) > 0)
        for (ssize_t i = 0; i < n; total++) {
            struct inotify_event *e = (void *)(buf + i);
            lost += e->mask == IN_Q_OVERFLOW;
            i += sizeof *e + e->len;
        }
    CHECK_EQ(total, max + 1);
    CHECK_EQ(lost, 1);
}
TEST(instances_of_a_user_are_limited) {
    char b[100];
    t_slurp("/proc/sys/fs/inotify/max_user_instances", b, sizeof b);
    int max = atoi(b);
    if (max > 900) SKIP("too many for this test");
    CHECK_CHILD({
        SYS(setuid(54321));
        int n = 0;
        while (inotify_init() >= 0) n++;
        CHECK_EQ(errno, EMFILE);
        CHECK_EQ(n, max);
        close(5);
        SYS(inotify_init());
        CHECK_ERR(inotify_init(), EMFILE);
    });
    CHECK_CHILD({
        SYS(setuid(54321));
        SYS(inotify_init());
    });
}


static void run_it(const char *program) {
    CHECK_STATUS(CHILD(execl(program, program, (char *)0)), "exit 0");
}
// The next event, of those that one read(2) gives.
static void is_next(int fd, int wd, unsigned mask) {
    static char buffer[4096] __attribute__((aligned(8)));
    static long at, length;
    if (at >= length) at = 0, length = read(fd, buffer, sizeof buffer);
    const struct inotify_event *e = (void *)(buffer + at);
    CHECK(at < length);
    if (at >= length) return;
    at += sizeof *e + e->len;
    CHECK_EQ(e->wd, wd);
    CHECK_EQ(e->mask, mask);
}
TEST(an_executed_script_is_read) {
    int f = SYS(open("s", O_CREAT | O_WRONLY, 0755));
    CHECK_EQ(write(f, "#!/bin/true\n", 12), 12);
    close(f);
    int fd = SYS(inotify_init1(IN_NONBLOCK)), s = SYS(inotify_add_watch(fd, "s", IN_ALL_EVENTS));
    run_it("./s");
    is_next(fd, s, IN_OPEN);
    is_next(fd, s, IN_ACCESS);
    is_next(fd, s, IN_CLOSE_NOWRITE);
}
TEST(what_goes_hears_of_it_before_its_directory) {
    OK(mkdir("d", 0755));
    close(t_file("f", ""));
    int fd = SYS(inotify_init1(IN_NONBLOCK)), here = SYS(inotify_add_watch(fd, ".", IN_DELETE));
    int d = SYS(inotify_add_watch(fd, "d", IN_DELETE_SELF)), f = SYS(inotify_add_watch(fd, "f", IN_DELETE_SELF));
    OK(rmdir("d"));
    is_next(fd, d, IN_DELETE_SELF);
    is_next(fd, d, IN_IGNORED);
    is_next(fd, here, IN_DELETE | IN_ISDIR);
    OK(unlink("f"));
    is_next(fd, f, IN_DELETE_SELF);
    is_next(fd, f, IN_IGNORED);
    is_next(fd, here, IN_DELETE);
}
TEST(truncation_of_a_removed_file) {
    SYS(mkdir("d", 0755));
    int f = t_file("d/f", "text"), g = t_file("d/g", "text");
    start("d", IN_MODIFY | IN_ATTRIB | IN_EXCL_UNLINK);
    OK(unlink("d/f"));
    OK(ftruncate(f, 1));
    OK(ftruncate(g, 1));
    CHECK_STR(events(), "2:f 2:g");
    OK(fchmod(f, 0600));
    CHECK_STR(events(), "4:f");
    struct timespec now[2] = {{5, 0}, {5, 0}};
    OK(futimens(f, now));
    CHECK_STR(events(), "4:f");
    OK(fchown(f, 0, 0));
    CHECK_STR(events(), "4:f");
    char path[64];
    sprintf(path, "/proc/self/fd/%d", f);
    OK(truncate(path, 2));
    CHECK_STR(events(), "2:f");
    close(SYS(open(path, O_WRONLY | O_TRUNC)));
    CHECK_STR(events(), "2:f");
    CHECK_EQ(pwrite(f, "x", 1, 0), 1);
    OK(fallocate(f, 0, 0, 100));
    CHECK_STR(events(), "");
    start("d", IN_MODIFY);
    OK(ftruncate(f, 2));
    CHECK_STR(events(), "2:f");
    OK(fallocate(f, 0, 0, 100));
    CHECK_STR(events(), "2:f");
    CHECK_EQ(pwrite(f, "x", 1, 0), 1);
    CHECK_STR(events(), "2:f");
    int gone = SYS(open("d", O_RDONLY | O_DIRECTORY));
    OK(unlink("d/g"));
    OK(rmdir("d"));
    OK(ftruncate(f, 1));
    OK(ftruncate(g, 1));
    CHECK_STR(events(), "2:f 2:g");
    close(gone);
}
TEST(excl_unlink_is_about_the_files_own_watch_too) {
    int f = t_file("f", "x"), fd = SYS(inotify_init1(IN_NONBLOCK));
    int w = SYS(inotify_add_watch(fd, "f", IN_ALL_EVENTS | IN_EXCL_UNLINK));
    OK(unlink("f"));
    is_next(fd, w, IN_ATTRIB);
    char c;
    CHECK_EQ(pwrite(f, "y", 1, 0), 1);
    CHECK_EQ(pread(f, &c, 1, 0), 1);
    OK(fchmod(f, 0600));
    is_next(fd, w, IN_ATTRIB);
    close(f);
    is_next(fd, w, IN_DELETE_SELF);
    is_next(fd, w, IN_IGNORED);
}

// The kernel's log: syslog(2) and /dev/kmsg. What the host has in its log stays there.
#include "t.h"
#include <poll.h>
#include <sched.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>

static int device(int flags) {
    if (getuid()) SKIP("root only");
    // Directories of the host take no device nodes.
    SYS(unshare(CLONE_NEWNS));
    OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mkdir("m", 0700));
    OK(mount("none", "m", "tmpfs", 0, NULL));
    if (mknod("m/kmsg", S_IFCHR | 0600, makedev(1, 11)) < 0) SKIP("no device nodes");
    int fd = open("m/kmsg", flags);
    if (fd < 0) SKIP("no device");
    return fd;
}
TEST(written_and_read) {
    int fd = device(O_RDWR | O_NONBLOCK);
    char b[2000], text[80];
    CHECK_EQ(lseek(fd, 0, SEEK_END), 0);
    sprintf(text, "<6>test %d \\ \t end\n", getpid());
    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
    ssize_t n;
    bool found = false;
    sprintf(text, ";test %d \\x5c \\x09 end\n", getpid());
    while ((n = read(fd, b, sizeof b - 1)) > 0) {
        b[n] = 0;
        if (strstr(b, text)) found = true, CHECK_EQ(atoi(b), 14);
    }
    CHECK(found);
    CHECK_ERR(read(fd, b, sizeof b), EAGAIN);
    struct pollfd p = {fd, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, 0), 0);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK_EQ(poll(&p, 1, 0), 1);
    CHECK(read(fd, b, sizeof b) > 0);
    CHECK_EQ(lseek(fd, 0, SEEK_DATA), 0);
    CHECK_ERR(lseek(fd, 1, SEEK_SET), ESPIPE);
    CHECK_ERR(lseek(fd, 0, SEEK_CUR), EINVAL);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK_ERR(read(fd, b, 5), EINVAL);
    static char big[5000];
    memset(big, 'x', sizeof big);
    CHECK_ERR(write(fd, big, sizeof big), EINVAL);
}
TEST(syslog_actions) {
    if (getuid()) SKIP("root only");
    char b[4000];
    CHECK(klogctl(10, 0, 0) > 0);
    CHECK(klogctl(3, b, sizeof b) >= 0);
    CHECK_ERR(klogctl(3, 0, 10), EINVAL);
    CHECK_ERR(klogctl(3, b, -1), EINVAL);
    OK(klogctl(3, b, 0));
    CHECK_ERR(klogctl(8, 0, 9), EINVAL);
    CHECK_ERR(klogctl(8, 0, 0), EINVAL);
    CHECK_ERR(klogctl(99, 0, 0), EINVAL);
    OK(klogctl(0, 0, 0));
    OK(klogctl(1, 0, 0));
}
TEST(without_rights) {
    if (getuid()) SKIP("root only");
    int fd = device(O_WRONLY);
    OK(fchmod(fd, 0666));
    OK(chmod(".", 0755));
    CHECK_CHILD({
        char b[100];
        OK(setresuid(1000, 1000, 1000));
        CHECK_ERR(klogctl(2, b, sizeof b), EPERM);
        CHECK_ERR(klogctl(5, 0, 0), EPERM);
        CHECK_ERR(klogctl(99, 0, 0), EPERM);
    });
}

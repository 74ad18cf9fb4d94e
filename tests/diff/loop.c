// Loop devices: loop(4), and the requests of block devices.
#include "t.h"
#include <linux/fs.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>

#define SIZE (64 << 10)

// A device that nobody has, by a node in a tmpfs: directories of the host take none. One test at a time looks for one.
static char node[64];
static int number;

static void find_device(void) {
    if (getuid()) SKIP("root only");
    SYS(unshare(CLONE_NEWNS));
    OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mkdir("m", 0700));
    OK(mount("none", "m", "tmpfs", 0, NULL));
    if (mknod("m/control", S_IFCHR | 0600, makedev(10, 237)) < 0) SKIP("no device nodes");
    OK(flock(SYS(open("/dev/zero", O_RDONLY)), LOCK_EX));
    int control = open("m/control", O_RDWR);
    if (control < 0) SKIP("no loop devices");
    number = SYS(ioctl(control, LOOP_CTL_GET_FREE));
    sprintf(node, "m/loop%d", number);
    OK(mknod(node, S_IFBLK | 0600, makedev(7, number)));
    close(control);
}

static int backing(int flags) {
    int fd = SYS(open("image", O_RDWR | O_CREAT, 0600));
    static char b[SIZE + 700];
    for (size_t i = 0; i < sizeof b; i++) b[i] = i / 512 + 1;
    CHECK_EQ(pwrite(fd, b, sizeof b, 0), sizeof b);
    close(fd);
    return SYS(open("image", flags));
}

TEST(attach_read_write) {
    find_device();
    int file = backing(O_RDWR), fd = SYS(open(node, O_RDWR));
    struct loop_info64 info;
    CHECK_ERR(ioctl(fd, LOOP_GET_STATUS64, &info), ENXIO);
    CHECK_ERR(ioctl(fd, LOOP_CLR_FD), ENXIO);
    CHECK_ERR(ioctl(fd, LOOP_SET_FD, -1), EBADF);
    OK(ioctl(fd, LOOP_SET_FD, file));
    CHECK_ERR(ioctl(fd, LOOP_SET_FD, file), EBUSY);
    unsigned long long size = 0;
    OK(ioctl(fd, BLKGETSIZE64, &size));
    CHECK_EQ(size, SIZE + 512);
    CHECK_EQ(lseek(fd, 0, SEEK_END), SIZE + 512);
    struct stat st, own;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_size, 0);
    CHECK(S_ISBLK(st.st_mode));
    char b[1024];
    CHECK_EQ(pread(fd, b, 1024, 1024), 1024);
    CHECK_EQ(b[0], 3);
    CHECK_EQ(b[1023], 4);
    CHECK_EQ(pread(fd, b, 1024, SIZE), 512);
    CHECK_EQ(pread(fd, b, 1024, SIZE + 512), 0);
    memset(b, 'x', sizeof b);
    CHECK_EQ(pwrite(fd, b, 1024, 512), 1024);
    CHECK_EQ(pwrite(fd, b, 1024, SIZE), 512);
    CHECK_ERR(pwrite(fd, b, 1024, SIZE + 512), ENOSPC);
    OK(fsync(fd));
    CHECK_EQ(pread(file, b, 2, 511), 2);
    CHECK_EQ(b[0], 1);
    CHECK_EQ(b[1], 'x');
    OK(fstat(file, &own));
    CHECK_EQ(own.st_size, SIZE + 700);
    OK(ioctl(fd, LOOP_GET_STATUS64, &info));
    CHECK_EQ(info.lo_number, number);
    CHECK_EQ(info.lo_inode, own.st_ino);
    CHECK_EQ(info.lo_flags, 0);
    OK(ioctl(fd, LOOP_CLR_FD));
    CHECK_ERR(ioctl(fd, LOOP_GET_STATUS64, &info), ENXIO);
    OK(close(fd));
}
TEST(status) {
    find_device();
    int file = backing(O_RDWR), fd = SYS(open(node, O_RDWR));
    OK(ioctl(fd, LOOP_SET_FD, file));
    struct loop_info64 info = {.lo_offset = 1024, .lo_sizelimit = 4096 + 100, .lo_flags = 0};
    strcpy((char *)info.lo_file_name, "name");
    OK(ioctl(fd, LOOP_SET_STATUS64, &info));
    struct loop_info old;
    OK(ioctl(fd, LOOP_GET_STATUS, &old));
    CHECK_EQ(old.lo_offset, 1024);
    CHECK_EQ(old.lo_number, number);
    CHECK_STR(old.lo_name, "name");
    unsigned long long size;
    OK(ioctl(fd, BLKGETSIZE64, &size));
    CHECK_EQ(size, 4096);
    unsigned long sectors;
    OK(ioctl(fd, BLKGETSIZE, &sectors));
    CHECK_EQ(sectors, 8);
    char c;
    CHECK_EQ(pread(fd, &c, 1, 0), 1);
    CHECK_EQ(c, 3);
    info.lo_encrypt_key_size = 33;
    CHECK_ERR(ioctl(fd, LOOP_SET_STATUS64, &info), EINVAL);
    info.lo_encrypt_key_size = 0, info.lo_offset = 1ull << 63;
    CHECK_ERR(ioctl(fd, LOOP_SET_STATUS64, &info), EOVERFLOW);
    CHECK_ERR(ioctl(fd, LOOP_SET_STATUS64, 1), EFAULT);
    old.lo_offset = 512;
    OK(ioctl(fd, LOOP_SET_STATUS, &old));
    OK(ioctl(fd, LOOP_GET_STATUS64, &info));
    CHECK_EQ(info.lo_offset, 512);
    CHECK_EQ(info.lo_sizelimit, 0);
    OK(ftruncate(file, SIZE * 2));
    OK(ioctl(fd, LOOP_SET_CAPACITY));
    OK(ioctl(fd, BLKGETSIZE64, &size));
    CHECK_EQ(size, SIZE * 2 - 512);
    CHECK_ERR(ioctl(fd, 0x4c55, 0), EINVAL);
    OK(ioctl(fd, LOOP_CLR_FD));
}
TEST(configure) {
    find_device();
    int file = backing(O_RDWR), fd = SYS(open(node, O_RDWR));
    struct loop_config c = {.fd = file, .block_size = 1024};
    c.info.lo_flags = LO_FLAGS_READ_ONLY;
    OK(ioctl(fd, LOOP_CONFIGURE, &c));
    int n = 0;
    OK(ioctl(fd, BLKROGET, &n));
    CHECK_EQ(n, 1);
    OK(ioctl(fd, BLKSSZGET, &n));
    CHECK_EQ(n, 1024);
    char b[1024] = "";
    CHECK_ERR(pwrite(fd, b, 1024, 0), EPERM);
    int other = SYS(open(node, O_RDONLY));
    CHECK_EQ(pread(other, b, 1024, 0), 1024);
    CHECK_EQ(b[0], 1);
    OK(close(other));
    OK(ioctl(fd, LOOP_CLR_FD));
    CHECK_ERR(ioctl(fd, LOOP_CONFIGURE, &c), EBUSY);
    OK(close(fd));
    fd = SYS(open(node, O_RDWR));
    c.block_size = 1000;
    CHECK_ERR(ioctl(fd, LOOP_CONFIGURE, &c), EINVAL);
}
TEST(read_only_file) {
    find_device();
    int file = backing(O_RDONLY), fd = SYS(open(node, O_RDWR));
    OK(ioctl(fd, LOOP_SET_FD, file));
    struct loop_info64 info;
    OK(ioctl(fd, LOOP_GET_STATUS64, &info));
    CHECK_EQ(info.lo_flags, LO_FLAGS_READ_ONLY);
    OK(ioctl(fd, LOOP_CLR_FD));
    OK(close(fd));
    fd = SYS(open(node, O_RDWR));
    int p[2];
    SYS(pipe(p));
    CHECK_ERR(ioctl(fd, LOOP_SET_FD, p[0]), EINVAL);
    int dir = SYS(open(".", O_RDONLY));
    CHECK_ERR(ioctl(fd, LOOP_SET_FD, dir), EINVAL);
}
TEST(detached_by_the_last) {
    find_device();
    int file = backing(O_RDWR), fd = SYS(open(node, O_RDWR)), other = SYS(open(node, O_RDONLY));
    OK(ioctl(fd, LOOP_SET_FD, file));
    OK(ioctl(fd, LOOP_CLR_FD));
    struct loop_info64 info;
    OK(ioctl(fd, LOOP_GET_STATUS64, &info));
    CHECK_EQ(info.lo_flags & LO_FLAGS_AUTOCLEAR, LO_FLAGS_AUTOCLEAR);
    OK(close(fd));
    OK(close(other));
    fd = SYS(open(node, O_RDONLY));
    CHECK_ERR(ioctl(fd, LOOP_GET_STATUS64, &info), ENXIO);
}
static void shows(const char *name, const char *want) {
    char path[128], got[256] = "";
    sprintf(path, "/sys/block/loop%d/%s", number, name);
    int fd = SYS(open(path, O_RDONLY));
    CHECK(read(fd, got, sizeof got - 1) >= 0);
    close(fd);
    CHECK_STR(got, want);
}
static void leads(const char *format, const char *want) {
    char path[128], got[256] = "", whole[256];
    sprintf(path, format, number);
    sprintf(whole, want, number);
    CHECK(readlink(path, got, sizeof got - 1) > 0);
    CHECK_STR(got, whole);
}
TEST(shown_in_sysfs) {
    find_device();
    int file = backing(O_RDWR), fd = SYS(open(node, O_RDWR));
    char path[128], want[PATH_MAX + 32];
    leads("/sys/block/loop%d", "../devices/virtual/block/loop%d");
    leads("/sys/class/block/loop%d", "../../devices/virtual/block/loop%d");
    leads("/sys/dev/block/7:%d", "../../devices/virtual/block/loop%d");
    leads("/sys/block/loop%d/subsystem", "../../../../class/block");
    shows("size", "0\n");
    sprintf(path, "/sys/block/loop%d/loop", number);
    CHECK_ERR(open(path, O_RDONLY), ENOENT);
    OK(ioctl(fd, LOOP_SET_FD, file));
    struct loop_info64 info = {.lo_offset = 1024, .lo_sizelimit = 8192, .lo_flags = LO_FLAGS_AUTOCLEAR};
    OK(ioctl(fd, LOOP_SET_STATUS64, &info));
    sprintf(want, "7:%d\n", number);
    shows("dev", want);
    shows("size", "16\n");
    shows("ro", "0\n");
    shows("removable", "0\n");
    shows("queue/logical_block_size", "512\n");
    shows("loop/offset", "1024\n");
    shows("loop/sizelimit", "8192\n");
    shows("loop/autoclear", "1\n");
    shows("loop/partscan", "0\n");
    shows("loop/dio", "0\n");
    MUST(realpath("image", want));
    strcat(want, "\n");
    shows("loop/backing_file", want);
    FILE *f = fopen("/proc/partitions", "r");
    char line[128], name[32];
    int found = 0, major, minor, blocks;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%d %d %d %31s", &major, &minor, &blocks, name) == 4 && major == 7 && minor == number)
            found = blocks;
    CHECK_EQ(found, 8);
    fclose(f);
    OK(close(fd));
    // The last close(2) detached the file.
    CHECK_ERR(open(path, O_RDONLY), ENOENT);
    shows("size", "0\n");
}
TEST(file_system_on_top) {
    // What the device holds is no file system that can be mounted; one without a device does not mind it.
    find_device();
    int file = backing(O_RDWR), fd = SYS(open(node, O_RDWR));
    OK(ioctl(fd, LOOP_SET_FD, file));
    OK(mkdir("t", 0700));
    OK(mount(node, "t", "tmpfs", 0, NULL));
    OK(umount("t"));
    OK(ioctl(fd, LOOP_CLR_FD));
}

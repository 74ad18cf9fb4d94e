// Daemons of FUSE file systems that answer nonsense, are interrupted, die, or are taken away.
#include "fuse.h"

static char b[70000];

TEST(garbage) {
    fz_setup("");
    struct stat s;
    struct {
        const char *name;
        int error, refused;
    } all[] = {
        {"id_zero", ENOENT, 0},        {"id_root", EIO, 0},           {"no_type", EIO, 0},
        {"bad_type", EIO, 0},          {"bad_size", EIO, 0},          {"short", EIO, EINVAL},
        {"long", EIO, EINVAL},         {"error_body", EIO, EINVAL},   {"error_positive", ENXIO, EINVAL},
        {"error_large", ENXIO, EINVAL}, {"other_number", EXDEV, ENOENT}, {"length_lies", EXDEV, EINVAL},
        {"header_cut", EXDEV, EINVAL},
    };
    for (int i = 0; i < sizeof all / sizeof *all; i++) {
        char path[100];
        fz->refused = 0;
        sprintf(path, "m/%s", all[i].name);
        CHECK_ERR(stat(path, &s), all[i].error);
        // The daemon learns of it a little later.
        for (int j = 0; j < 1000 && fz->refused != all[i].refused; j++) usleep(1000);
        if (fz->refused != all[i].refused) t_fail(__FILE__, __LINE__, "%s: %s", all[i].name, t_errno(fz->refused));
    }
    fz_make(1, "read_long", S_IFREG | 0644, "0123456789");
    int fd = SYS(open("m/read_long", O_RDONLY | O_DIRECT));
    CHECK_ERR(read(fd, b, 4096), EIO);
    close(fd);
    fz_make(1, "write_more", S_IFREG | 0644, "");
    fd = SYS(open("m/write_more", O_WRONLY));
    CHECK_ERR(write(fd, b, 10), EIO);
    close(fd);
    fz_make(1, "changes_type", S_IFREG | 0644, "");
    CHECK_ERR(stat("m/changes_type", &s), EIO);
    fz_make(1, "list_slash", S_IFDIR | 0755, 0);
    fz_make(1, "list_empty_name", S_IFDIR | 0755, 0);
    fz_make(1, "list_long_name", S_IFDIR | 0755, 0);
    fz_make(1, "list_cut", S_IFDIR | 0755, 0);
    const char *lists[] = {"m/list_slash", "m/list_empty_name", "m/list_long_name", "m/list_cut"};
    for (int i = 0; i < 4; i++) {
        fd = SYS(open(lists[i], O_RDONLY | O_DIRECTORY));
        long got = syscall(SYS_getdents64, fd, b, sizeof b);
        // Some kernels know "." and ".." by themselves.
        if (i < 3 ? got != -1 : got < 0 || memmem(b, got, "abcd", 4)) t_fail(__FILE__, __LINE__, "%s: %ld", lists[i], got);
        close(fd);
    }
    // All is well with the rest.
    OK(stat("m/hello", &s));
    fz_end();
}
TEST(other_protocol) {
    private_mounts();
    fz_prepare();
    fz_open();
    mkdir("m", 0755);
    OK(fz_try("fuse", "fd=%d,rootmode=40000,user_id=0,group_id=0", fz_fd));
    struct fuse_in_header *h = (void *)b;
    SYS(read(fz_fd, b, sizeof b));
    struct fuse_init_out out = {.major = 8, .minor = 31, .max_write = 65536};
    fz_reply(h->unique, 0, &out, sizeof out);
    struct stat s;
    CHECK_ERR(stat("m/x", &s), ECONNREFUSED);
    OK(umount("m"));
}
static volatile int caught;
static void on_signal(int sig) { caught++; }

TEST(interrupted) {
    fz_setup("");
    fz_make(1, "hang_read", S_IFREG | 0644, "0123456789");
    pid_t child = FORK();
    if (!child) {
        struct sigaction a = {.sa_handler = on_signal};
        sigaction(SIGUSR1, &a, 0);
        int fd = SYS(open("m/hang_read", O_RDONLY | O_DIRECT));
        CHECK_ERR(read(fd, b, 4096), EINTR);
        CHECK_EQ(caught, 1);
        _exit(*t_fails != 0);
    }
    FZ_UNTIL(fz->hung);
    kill(child, SIGUSR1);
    int status;
    SYS(waitpid(child, &status, 0));
    CHECK_STATUS(status, "exit 0");
    CHECK_EQ(fz->interrupts, 1);
    fz_end();
}
TEST(killed_before_it_is_read) {
    fz_setup("");
    fz->stop_reading = 1;
    usleep(20000);
    struct stat s;
    int sigs[] = {SIGKILL, SIGTERM};
    for (int i = 0; i < 2; i++) {
        pid_t child = FORK();
        if (!child) stat("m/hello", &s), _exit(1);
        usleep(50000);
        kill(child, sigs[i]);
        int status;
        SYS(waitpid(child, &status, 0));
        CHECK_STATUS(status, i ? "signal 15" : "signal 9");
    }
    fz->stop_reading = 0;
    OK(stat("m/hello", &s));
    fz_end();
}
// A process that waits for the pages of a mapping ends when it is killed, whatever the daemon does.
TEST(killed_while_a_mapping_is_read) {
    fz_setup("");
    fz_make(1, "hang_read", S_IFREG | 0644, "0123456789");
    pid_t child = FORK();
    if (!child) {
        int fd = SYS(open("m/hang_read", O_RDONLY));
        volatile char *p = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        _exit(p == MAP_FAILED ? 1 : p[0]);
    }
    FZ_UNTIL(fz->hung);
    kill(child, SIGKILL);
    int status = -1;
    for (int i = 0; i < 500 && waitpid(child, &status, WNOHANG) == 0; i++) usleep(10000);
    CHECK_STATUS(status, "signal 9");
    fz_end();
}
TEST(daemon_dies) {
    fz_setup("");
    fz_make(1, "hang_read", S_IFREG | 0644, "0123456789");
    int open_one = SYS(open("m/hello", O_RDONLY));
    pid_t child = FORK();
    if (!child) {
        int fd = SYS(open("m/hang_read", O_RDONLY | O_DIRECT));
        CHECK_ERR(read(fd, b, 4096), ECONNABORTED);
        CHECK_ERR(pread(fd, b, 10, 0), ENOTCONN);
        _exit(*t_fails != 0);
    }
    FZ_UNTIL(fz->hung);
    kill(fz_daemon, SIGKILL);
    SYS(waitpid(fz_daemon, 0, 0));
    int status;
    SYS(waitpid(child, &status, 0));
    CHECK_STATUS(status, "exit 0");
    struct stat s;
    CHECK_ERR(stat("m/hello", &s), ENOTCONN);
    CHECK_ERR(stat("m", &s), ENOTCONN);
    CHECK_ERR(read(open_one, b, 10), ENOTCONN);
    CHECK_ERR(mkdir("m/x", 0700), ENOTCONN);
    CHECK_ERR(umount("m"), EBUSY);
    close(open_one);
    OK(umount("m"));
}
TEST(device_is_closed) {
    private_mounts();
    fz_prepare();
    fz_open();
    mkdir("m", 0755);
    OK(fz_try("fuse", "fd=%d,rootmode=40000,user_id=0,group_id=0", fz_fd));
    close(fz_fd);
    struct stat s;
    CHECK_ERR(stat("m/x", &s), ENOTCONN);
    OK(umount("m"));
}
TEST(forced_unmount) {
    fz_setup("");
    fz_make(1, "hang_open", S_IFREG | 0644, "");
    pid_t child = FORK();
    if (!child) {
        CHECK_ERR(open("m/hang_open", O_RDONLY), ECONNABORTED);
        _exit(*t_fails != 0);
    }
    FZ_UNTIL(fz->hung);
    umount2("m", MNT_FORCE);
    int status;
    SYS(waitpid(child, &status, 0));
    CHECK_STATUS(status, "exit 0");
    SYS(waitpid(fz_daemon, &status, 0));
    CHECK_STATUS(status, "exit 40");
    umount2("m", MNT_DETACH);
}
TEST(detached) {
    fz_setup("");
    int fd = SYS(open("m/hello", O_RDONLY));
    OK(umount2("m", MNT_DETACH));
    CHECK_EQ(read(fd, b, 5), 5);
    close(fd);
    int status;
    SYS(waitpid(fz_daemon, &status, 0));
    CHECK_STATUS(status, "exit 40");
}
TEST(clones) {
    private_mounts();
    fz_prepare();
    fz_open();
    mkdir("m", 0755);
    int other = open("/dev/fuse", O_RDWR);
    if (other < 0) other = SYS(open("dev/fuse", O_RDWR));
    uint32_t from = fz_fd;
    CHECK_ERR(ioctl(other, FUSE_DEV_IOC_CLONE, &from), EPERM);
    OK(fz_try("fuse", "fd=%d,rootmode=40000,user_id=0,group_id=0", fz_fd));
    uint32_t wrong = 2;
    CHECK_ERR(ioctl(other, FUSE_DEV_IOC_CLONE, &wrong), EINVAL);
    CHECK_ERR(ioctl(other, FUSE_DEV_IOC_CLONE, BAD_PTR), EFAULT);
    OK(ioctl(other, FUSE_DEV_IOC_CLONE, &from));
    CHECK_ERR(ioctl(other, FUSE_DEV_IOC_CLONE, &from), EINVAL);
    CHECK_ERR(ioctl(other, 0x1234, 0), ENOTTY);
    struct fuse_in_header *h = (void *)b;
    SYS(read(other, b, sizeof b));
    CHECK_EQ(h->opcode, FUSE_INIT);
    struct fuse_init_out out = {.major = 7, .minor = 31, .max_write = 65536};
    // An answer goes where the request came from.
    fz_reply(h->unique, 0, &out, sizeof out);
    CHECK_EQ(fz->refused, ENOENT);
    fz_fd = other;
    fz_reply(h->unique, 0, &out, sizeof out);
    close(from);
    pid_t child = FORK();
    if (!child) {
        struct stat s;
        CHECK_ERR(stat("m/x", &s), EXDEV);
        _exit(*t_fails != 0);
    }
    do SYS(read(other, b, sizeof b));
    while (h->opcode != FUSE_LOOKUP && h->opcode != FUSE_GETATTR);
    fz_reply(h->unique, EXDEV, 0, 0);
    int status;
    SYS(waitpid(child, &status, 0));
    CHECK_STATUS(status, "exit 0");
    OK(umount("m"));
}
TEST(notices) {
    private_mounts();
    fz_prepare();
    fz->timeout = 1000;
    fz_open();
    fz_start("");
    struct stat s;
    OK(stat("m/hello", &s));
    fz->node[fz_find(1, "hello")].size = 5;
    OK(stat("m/hello", &s));
    CHECK_EQ(s.st_size, 13);
    struct {
        struct fuse_out_header h;
        struct fuse_notify_inval_inode_out i;
    } inode = {{sizeof inode, FUSE_NOTIFY_INVAL_INODE, 0}, {fz_find(1, "hello"), 0, 0}};
    CHECK_EQ(write(fz_fd, &inode, sizeof inode), sizeof inode);
    OK(stat("m/hello", &s));
    CHECK_EQ(s.st_size, 5);
    inode.i.ino = 999;
    CHECK_ERR(write(fz_fd, &inode, sizeof inode), ENOENT);
    inode.h.len = 8;
    CHECK_ERR(write(fz_fd, &inode, sizeof inode), EINVAL);
    struct {
        struct fuse_out_header h;
        struct fuse_notify_inval_entry_out e;
        char name[6];
    } __attribute__((packed)) entry = {{sizeof entry, FUSE_NOTIFY_INVAL_ENTRY, 0}, {1, 5, 0}, "hello"};
    strcpy(fz->node[fz_find(1, "hello")].name, "gone");
    OK(stat("m/hello", &s));
    CHECK_EQ(write(fz_fd, &entry, sizeof entry), sizeof entry);
    CHECK_ERR(stat("m/hello", &s), ENOENT);
    entry.e.namelen = 4;
    CHECK_ERR(write(fz_fd, &entry, sizeof entry), EINVAL);
    struct fuse_out_header unknown = {sizeof unknown, 77, 0};
    CHECK_ERR(write(fz_fd, &unknown, sizeof unknown), EINVAL);
    close(fz_fd);
    fz_end();
}

// FUSE file systems whose daemon is the test's own: fuse(4), mount.fuse(8).
#include "fuse.h"

static char b[70000];

static char *again(int fd) {
    static char options[100];
    sprintf(options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
    return options;
}
TEST(mount_options) {
    if (getuid()) SKIP("root only");
    SYS(unshare(CLONE_NEWNS));
    OK(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    fz_prepare();
    fz_open();
    mkdir("m", 0755);
    CHECK_ERR(read(fz_fd, b, sizeof b), EPERM);
    CHECK_ERR(write(fz_fd, b, 16), EPERM);
    struct pollfd p = {fz_fd, POLLIN | POLLOUT, 0};
    CHECK_EQ(poll(&p, 1, 0), 1);
    CHECK_EQ(p.revents, POLLERR);
    CHECK_ERR(mount("s", "m", "fuse", 0, 0), EINVAL);
    CHECK_ERR(fz_try("fuse", "fd=%d,rootmode=40000,user_id=0", fz_fd), EINVAL);
    CHECK_ERR(fz_try("fuse", "fd=%d,rootmode=40000,group_id=0", fz_fd), EINVAL);
    CHECK_ERR(fz_try("fuse", "fd=%d,user_id=0,group_id=0", fz_fd), EINVAL);
    CHECK_ERR(fz_try("fuse", "rootmode=40000,user_id=0,group_id=0", fz_fd), EINVAL);
    CHECK_ERR(fz_try("fuse", "fd=%d,rootmode=9,user_id=0,group_id=0", fz_fd), EINVAL);
    CHECK_ERR(fz_try("fuse", "fd=%d,rootmode=0,user_id=0,group_id=0", fz_fd), EINVAL);
    CHECK_ERR(fz_try("fuse", "fd=%d,rootmode=40000,user_id=0,group_id=0,nonsense", fz_fd), EINVAL);
    CHECK_ERR(fz_try("fuse", "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other=1", fz_fd), EINVAL);
    CHECK_ERR(fz_try("fuse", "fd=%d,rootmode=40000,user_id=-1,group_id=0", fz_fd), EINVAL);
    CHECK_ERR(fz_try("fuse", "fd=%d,rootmode=40000,user_id=0,group_id=0", 2), EINVAL);
    CHECK_ERR(fz_try("fuse", "fd=%d,rootmode=40000,user_id=0,group_id=0", 999), EINVAL);
    CHECK_ERR(fz_try("fuse.", "fd=%d,rootmode=40000,user_id=0,group_id=0", fz_fd), EINVAL);
    CHECK_ERR(fz_try("tmpfs.x", "fd=%d", fz_fd), ENODEV);
    OK(fz_try("fuse.kind", "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,max_read=100", fz_fd));
    // The same descriptor again is the same file system.
    CHECK_ERR(fz_try("fuse", "fd=%d,rootmode=40000,user_id=0,group_id=0", fz_fd), EBUSY);
    mkdir("n", 0755);
    OK(mount("s", "n", "fuse", 0, again(fz_fd)));
    OK(umount("n"));
    t_slurp("/proc/self/mounts", b, sizeof b);
    CHECK(strstr(b, "/m fuse.kind rw,nosuid,nodev,relatime,user_id=0,group_id=0,default_permissions,allow_other,max_read=4096 0 0\n"));
    p.events = POLLIN | POLLOUT;
    CHECK_EQ(poll(&p, 1, 0), 1);
    CHECK_EQ(p.revents, POLLIN | POLLOUT);
    CHECK_ERR(read(fz_fd, b, 4096), EINVAL);
    ssize_t n = read(fz_fd, b, sizeof b);
    struct fuse_in_header *h = (void *)b;
    CHECK_EQ(n, h->len);
    CHECK_EQ(h->opcode, FUSE_INIT);
    CHECK_EQ(n, 40 + sizeof(struct fuse_init_in));
    CHECK_EQ(((struct fuse_init_in *)(h + 1))->major, 7);
    SYS(fcntl(fz_fd, F_SETFL, O_NONBLOCK));
    CHECK_ERR(read(fz_fd, b, sizeof b), EAGAIN);
    OK(umount("m"));
    CHECK_ERR(read(fz_fd, b, sizeof b), ENODEV);
    CHECK_EQ(poll(&p, 1, 0), 1);
    CHECK_EQ(p.revents, POLLERR);
    CHECK_ERR(mount("s", "m", "fuse", 0, again(fz_fd)), ENOTCONN);
}
TEST(read_tree) {
    fz_setup("");
    struct stat s;
    OK(stat("m", &s));
    CHECK_EQ(s.st_mode, S_IFDIR | 0755);
    CHECK_EQ(s.st_ino, 1);
    OK(stat("m/hello", &s));
    CHECK_EQ(s.st_mode, S_IFREG | 0644);
    CHECK_EQ(s.st_size, 13);
    CHECK_EQ(s.st_blocks, 1);
    CHECK_EQ(s.st_mtime, 1000000000);
    CHECK_ERR(stat("m/none", &s), ENOENT);
    CHECK_ERR(stat("m/hello/x", &s), ENOTDIR);
    t_slurp("m/hello", b, sizeof b);
    CHECK_STR(b, "hello, world\n");
    t_slurp("m/link", b, sizeof b);
    CHECK_STR(b, "inner\n");
    CHECK_EQ(readlink("m/link", b, sizeof b), 9);
    OK(lstat("m/link", &s));
    CHECK(S_ISLNK(s.st_mode));
    int fd = SYS(open("m/hello", O_RDONLY));
    CHECK_EQ(fz->pid, getpid());
    CHECK_EQ(lseek(fd, 0, SEEK_END), 13);
    CHECK_EQ(lseek(fd, 7, SEEK_SET), 7);
    CHECK_EQ(read(fd, b, 100), 6);
    CHECK_MEM(b, "world\n", 6);
    CHECK_EQ(read(fd, b, 100), 0);
    CHECK_EQ(pread(fd, b, 4, 1), 4);
    CHECK_MEM(b, "ello", 4);
    CHECK_EQ(pread(fd, b, 4, 1000), 0);
    CHECK_EQ(lseek(fd, 3, SEEK_HOLE), 13);
    CHECK_EQ(lseek(fd, 3, SEEK_DATA), 3);
    CHECK_ERR(lseek(fd, 13, SEEK_DATA), ENXIO);
    CHECK_ERR(write(fd, b, 1), EBADF);
    close(fd);
    FZ_UNTIL(fz->count[FUSE_RELEASE] == 3);
    CHECK_EQ(fz->count[FUSE_FLUSH], 3);
    CHECK_ERR(open("m/hello", O_RDONLY | O_DIRECTORY), ENOTDIR);
    CHECK_ERR(open("m/link", O_RDONLY | O_NOFOLLOW), ELOOP);
    OK(chdir("m/dir"));
    char *cwd = getcwd(b, sizeof b);
    CHECK(cwd && strstr(cwd, "/m/dir"));
    OK(stat("../hello", &s));
    OK(chdir("../.."));
    fz_end();
}
TEST(directory_above_itself) {
    fz_setup("");
    fz->timeout = 1000;
    struct stat s;
    OK(mkdir("m/dir/low", 0755));
    CHECK_ERR(stat("m/dir/self", &s), ELOOP);
    CHECK_ERR(stat("m/dir/low/self", &s), ELOOP);
    CHECK_ERR(stat("m/dir/low/above", &s), ELOOP);
    CHECK_ERR(chdir("m/dir/low/above/low"), ELOOP);
    OK(chdir("m/dir/low"));
    CHECK_ERR(chdir("self"), ELOOP);
    CHECK_ERR(chdir("above"), ELOOP);
    OK(chdir("../../.."));
    fz_end();
}
TEST(appends_do_not_mix) {
    fz_setup("");
    pid_t writers[4];
    for (int i = 0; i < 4; i++) {
        if ((writers[i] = SYS(fork()))) continue;
        int fd = open("m/hello", O_WRONLY | O_APPEND);
        for (int n = 0; n < 50; n++)
            if (write(fd, "12345678", 8) != 8) _exit(1);
        _exit(0);
    }
    for (int i = 0; i < 4; i++) {
        int status;
        CHECK_EQ(waitpid(writers[i], &status, 0), writers[i]);
        CHECK_EQ(status, 0);
    }
    struct stat s;
    OK(stat("m/hello", &s));
    CHECK_EQ(s.st_size, 13 + 4 * 50 * 8);
    fz_end();
}
TEST(create_refused) {
    fz_setup("");
    CHECK_ERR(open("m/create_dir", O_RDWR | O_CREAT, 0644), EIO);
    CHECK_ERR(open("m/there_and_not", O_RDWR | O_CREAT, 0644), EEXIST);
    CHECK(fz->count[FUSE_CREATE] <= 3);
    fz_end();
}
static void list(uint32_t flags) {
    fz_prepare();
    fz->init_flags = flags;
    for (int i = 0; i < 40; i++) {
        char name[200];
        sprintf(name, "%0*d", 50 + i, i);
        fz_make(1, name, S_IFREG | 0600, "x");
    }
    fz_open();
    fz_start("");
    close(fz_fd);
    DIR *d = opendir("m");
    MUST(d);
    for (int pass = 0; pass < 2; pass++) {
        int n = 0, dots = 0;
        for (struct dirent *e; (e = readdir(d)); n++) {
            dots += e->d_name[0] == '.';
            if (!strcmp(e->d_name, "dir")) CHECK_EQ(e->d_type, DT_DIR);
            if (!strcmp(e->d_name, "link")) CHECK_EQ(e->d_type, DT_LNK);
        }
        CHECK_EQ(n, 45);
        CHECK_EQ(dots, 2);
        rewinddir(d);
    }
    closedir(d);
    CHECK(fz->count[flags ? FUSE_READDIRPLUS : FUSE_READDIR] > 0);
    struct stat s;
    OK(stat("m/dir/inner", &s));
    // Small buffers.
    int fd = SYS(open("m", O_RDONLY | O_DIRECTORY)), n = 0;
    for (long got; (got = syscall(SYS_getdents64, fd, b, 160)) > 0;)
        for (long at = 0; at < got; at += ((struct dirent64 *)(b + at))->d_reclen) n++;
    CHECK_EQ(n, 45);
    OK(fsync(fd));
    close(fd);
    FZ_UNTIL(fz->count[FUSE_RELEASEDIR] == 2);
    fz_end();
}
TEST(listings) {
    private_mounts();
    list(0);
}
TEST(listings_with_attributes) {
    private_mounts();
    list(FUSE_DO_READDIRPLUS);
}
static void list_raw(uint32_t flags) {
    fz_prepare();
    fz->init_flags = flags;
    fz->no_dots = 1;
    fz_open();
    fz_start("");
    close(fz_fd);
    DIR *d = opendir("m");
    MUST(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d)); n++) CHECK(e->d_name[0] != '.');
    CHECK(n > 2);
    closedir(d);
    // A directory without any entry.
    OK(mkdir("m/empty", 0755));
    d = opendir("m/empty");
    MUST(d);
    CHECK(!readdir(d));
    CHECK(!readdir(d));
    closedir(d);
    fz_end();
}
// `.` and `..` come from the daemon, or not at all.
TEST(listings_without_dots) {
    private_mounts();
    list_raw(0);
}
TEST(listings_without_dots_with_attributes) {
    private_mounts();
    list_raw(FUSE_DO_READDIRPLUS);
}
// A daemon frees what it forgets: it hears that a node is forgotten after it has released the node's files.
TEST(forgotten_after_release) {
    fz_setup("");
    for (int i = 0; i < 20; i++) {
        int fd = SYS(open("m/new", O_CREAT | O_EXCL | O_RDWR, 0666));
        OK(unlink("m/new"));
        close(fd);
    }
    FZ_UNTIL(fz->count[FUSE_RELEASE] == 20);
    FZ_UNTIL(fz->count[FUSE_FORGET] + fz->count[FUSE_BATCH_FORGET] > 0);
    fz_end();
    CHECK_EQ(fz->out_of_order, 0);
}
TEST(write_and_change) {
    fz_setup("");
    umask(022);
    int fd = SYS(open("m/new", O_CREAT | O_EXCL | O_RDWR, 0666));
    CHECK_EQ(fz->count[FUSE_CREATE], 1);
    CHECK_EQ(fz->umask, 022);
    CHECK_EQ(fz->flags & (O_ACCMODE | O_CREAT | O_EXCL), O_RDWR | O_CREAT | O_EXCL);
    struct stat s;
    OK(fstat(fd, &s));
    CHECK_EQ(s.st_mode, S_IFREG | 0644);
    CHECK_EQ(write(fd, "0123456789", 10), 10);
    CHECK_EQ(pwrite(fd, "ab", 2, 3), 2);
    OK(fstat(fd, &s));
    CHECK_EQ(s.st_size, 10);
    CHECK_EQ(pread(fd, b, 20, 0), 10);
    CHECK_MEM(b, "012ab56789", 10);
    OK(ftruncate(fd, 5));
    OK(fstat(fd, &s));
    CHECK_EQ(s.st_size, 5);
    OK(ftruncate(fd, 8));
    CHECK_EQ(pread(fd, b, 20, 0), 8);
    CHECK_MEM(b, "012ab\0\0\0", 8);
    OK(fsync(fd));
    OK(fdatasync(fd));
    CHECK_EQ(fz->count[FUSE_FSYNC], 2);
    OK(fallocate(fd, 0, 0, 100));
    OK(fstat(fd, &s));
    CHECK_EQ(s.st_size, 100);
    CHECK_ERR(fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 10), EOPNOTSUPP);
    CHECK_ERR(pwrite(fd, "x", 1, DATA), ENOSPC);
    static char much[DATA];
    memset(much, 'y', sizeof much);
    CHECK_EQ(pwrite(fd, much, DATA, 10), DATA - 10);
    CHECK_ERR(ftruncate(fd, DATA + 1), EFBIG);
    close(fd);
    fd = SYS(open("m/new", O_WRONLY | O_TRUNC));
    OK(fstat(fd, &s));
    CHECK_EQ(s.st_size, 0);
    close(fd);
    fd = SYS(open("m/new", O_WRONLY | O_APPEND));
    CHECK_EQ(write(fd, "one", 3), 3);
    CHECK_EQ(write(fd, "two", 3), 3);
    close(fd);
    t_slurp("m/new", b, sizeof b);
    CHECK_STR(b, "onetwo");
    CHECK_ERR(open("m/new", O_CREAT | O_EXCL | O_RDWR, 0666), EEXIST);
    OK(chmod("m/new", 0600));
    OK(chown("m/new", 7, 8));
    struct timespec t[2] = {{1, 2}, {3, 4}};
    OK(utimensat(AT_FDCWD, "m/new", t, 0));
    OK(stat("m/new", &s));
    CHECK_EQ(s.st_mode, S_IFREG | 0600);
    CHECK_EQ(s.st_uid, 7);
    CHECK_EQ(s.st_gid, 8);
    CHECK_EQ(s.st_atim.tv_nsec, 2);
    CHECK_EQ(s.st_mtim.tv_sec, 3);
    OK(mkdir("m/d", 0777));
    OK(stat("m/d", &s));
    CHECK_EQ(s.st_mode, S_IFDIR | 0755);
    CHECK_ERR(mkdir("m/d", 0777), EEXIST);
    OK(symlink("d", "m/l"));
    CHECK_EQ(readlink("m/l", b, sizeof b), 1);
    OK(mkfifo("m/fifo", 0600));
    OK(stat("m/fifo", &s));
    CHECK(S_ISFIFO(s.st_mode));
    OK(mknod("m/null", S_IFCHR | 0600, makedev(300, 700)));
    OK(stat("m/null", &s));
    CHECK_EQ(s.st_rdev, makedev(300, 700));
    CHECK_ERR(link("m/new", "m/other"), EMLINK);
    CHECK_ERR(link("m/d", "m/other"), EPERM);
    OK(rename("m/new", "m/d/moved"));
    CHECK_ERR(access("m/new", F_OK), ENOENT);
    CHECK_ERR(rename("m/d", "m/d/below"), EINVAL);
    CHECK_ERR(rmdir("m/d"), ENOTEMPTY);
    CHECK_ERR(unlink("m/d"), EISDIR);
    CHECK_ERR(rmdir("m/d/moved"), ENOTDIR);
    CHECK_ERR(renameat2(AT_FDCWD, "m/d/moved", AT_FDCWD, "m/hello", RENAME_NOREPLACE), EEXIST);
    OK(renameat2(AT_FDCWD, "m/d/moved", AT_FDCWD, "m/hello", RENAME_EXCHANGE));
    t_slurp("m/hello", b, sizeof b);
    CHECK_STR(b, "onetwo");
    t_slurp("m/d/moved", b, sizeof b);
    CHECK_STR(b, "hello, world\n");
    OK(unlink("m/d/moved"));
    OK(rmdir("m/d"));
    CHECK_ERR(rename("m/hello", "x"), EXDEV);
    fz_end();
}
TEST(old_daemons) {
    private_mounts();
    fz_prepare();
    int lacks[] = {FUSE_CREATE, FUSE_FLUSH, FUSE_FSYNC, FUSE_ACCESS, FUSE_GETXATTR, FUSE_SETXATTR, FUSE_LISTXATTR, FUSE_REMOVEXATTR, FUSE_LSEEK, FUSE_FALLOCATE, FUSE_RENAME2, FUSE_OPEN, FUSE_OPENDIR, FUSE_FSYNCDIR};
    for (int i = 0; i < sizeof lacks / sizeof *lacks; i++) fz->missing[lacks[i]] = 1;
    fz_open();
    fz_start("");
    close(fz_fd);
    int fd = SYS(open("m/new", O_CREAT | O_RDWR, 0600));
    CHECK_EQ(fz->count[FUSE_MKNOD], 1);
    CHECK_EQ(write(fd, "abc", 3), 3);
    OK(fsync(fd));
    CHECK_EQ(lseek(fd, 1, SEEK_HOLE), 3);
    CHECK_EQ(lseek(fd, 1, SEEK_DATA), 1);
    CHECK_ERR(fallocate(fd, 0, 0, 10), EOPNOTSUPP);
    CHECK_ERR(fgetxattr(fd, "user.a", b, 10), EOPNOTSUPP);
    CHECK_ERR(fsetxattr(fd, "user.a", b, 10, 0), EOPNOTSUPP);
    CHECK_ERR(fremovexattr(fd, "user.a"), EOPNOTSUPP);
    CHECK_ERR(flistxattr(fd, b, 10), EOPNOTSUPP);
    OK(close(fd));
    OK(close(SYS(open("m/new", O_CREAT | O_RDWR, 0600))));
    CHECK_ERR(renameat2(AT_FDCWD, "m/new", AT_FDCWD, "m/x", RENAME_NOREPLACE), EINVAL);
    OK(access("m/new", W_OK));
    t_slurp("m/new", b, sizeof b);
    CHECK_STR(b, "abc");
    fd = SYS(open("m", O_RDONLY | O_DIRECTORY));
    CHECK(syscall(SYS_getdents64, fd, b, sizeof b) > 0);
    OK(fsync(fd));
    close(fd);
    for (int i = 0; i < sizeof lacks / sizeof *lacks; i++)
        if (fz->count[lacks[i]] != 1) t_fail(__FILE__, __LINE__, "operation %d: %d requests", lacks[i], fz->count[lacks[i]]);
    CHECK_EQ(fz->count[FUSE_RELEASE], 0);
    fz_end();
}
TEST(copied_by_the_daemon) {
    fz_setup("");
    int in = SYS(open("m/hello", O_RDONLY)), out = SYS(open("m/copy", O_RDWR | O_CREAT, 0600));
    off_t from = 7, to = 3;
    CHECK_EQ(copy_file_range(in, &from, out, &to, 100, 0), 6);
    CHECK_EQ(from, 13);
    CHECK_EQ(to, 9);
    CHECK_EQ(fz->count[FUSE_COPY_FILE_RANGE], 1);
    CHECK_EQ(pread(out, b, 100, 0), 9);
    CHECK_MEM(b, "\0\0\0world\n", 9);
    CHECK_EQ(copy_file_range(in, &from, out, &to, 100, 0), 0);
    fz->missing[FUSE_COPY_FILE_RANGE] = 1;
    from = to = 0;
    CHECK_EQ(copy_file_range(in, &from, out, &to, 5, 0), 5);
    CHECK_EQ(pread(out, b, 100, 0), 9);
    CHECK_MEM(b, "hello", 5);
    close(in);
    close(out);
    fz_end();
}
TEST(extended_attributes) {
    fz_setup("");
    CHECK_ERR(getxattr("m/hello", "user.a", b, 10), ENODATA);
    CHECK_EQ(listxattr("m/hello", b, sizeof b), 0);
    OK(setxattr("m/hello", "user.a", "value", 5, XATTR_CREATE));
    CHECK_ERR(setxattr("m/hello", "user.a", "value", 5, XATTR_CREATE), EEXIST);
    CHECK_EQ(getxattr("m/hello", "user.a", 0, 0), 5);
    CHECK_EQ(getxattr("m/hello", "user.a", b, 10), 5);
    CHECK_MEM(b, "value", 5);
    CHECK_ERR(getxattr("m/hello", "user.a", b, 3), ERANGE);
    CHECK_EQ(listxattr("m/hello", b, sizeof b), 7);
    CHECK_STR(b, "user.a");
    OK(removexattr("m/hello", "user.a"));
    CHECK_ERR(removexattr("m/hello", "user.a"), ENODATA);
    // Names of any name space, and of none, are the daemon's to judge.
    for (char **name = (char *[]){"plain", "ceph.layout", "system.ntfs_acl", "user.", 0}; *name; name++) {
        OK(setxattr("m/hello", *name, "value", 5, 0));
        CHECK_EQ(getxattr("m/hello", *name, b, 10), 5);
        CHECK_EQ(listxattr("m/hello", b, sizeof b), strlen(*name) + 1);
        CHECK_STR(b, *name);
        OK(removexattr("m/hello", *name));
    }
    CHECK_ERR(getxattr("m/hello", "other.name", b, 10), ENODATA);
    fz_make(1, "bad_xattrs", S_IFREG | 0600, "");
    CHECK_ERR(listxattr("m/bad_xattrs", b, sizeof b), EIO);
    fz_end();
}
TEST(statfs_and_access) {
    fz_setup("");
    struct statfs s;
    OK(statfs("m/hello", &s));
    CHECK_EQ(s.f_type, 0x65735546);
    CHECK_EQ(s.f_blocks, 1000);
    CHECK_EQ(s.f_bavail, 400);
    CHECK_EQ(s.f_namelen, 200);
    OK(access("m/hello", R_OK));
    CHECK_ERR(access("m/hello", W_OK), EACCES);
    OK(chdir("m/dir"));
    OK(chdir("../.."));
    CHECK_EQ(fz->count[FUSE_ACCESS], 3);
    fz_end();
}
static void become(int id) {
    SYS(setresgid(id, id, id));
    SYS(setresuid(id, id, id));
}
TEST(others_are_kept_out) {
    fz_setup("");
    int fd = SYS(open("m/hello", O_RDONLY)), dir = SYS(open("m", O_PATH));
    CHECK_CHILD({
        become(1000);
        struct stat s;
        CHECK_ERR(stat("m", &s), EACCES);
        CHECK_ERR(fstat(dir, &s), EACCES);
        CHECK_ERR(openat(dir, "hello", O_RDONLY), EACCES);
        CHECK_ERR(open("m", O_RDONLY | O_DIRECTORY), EACCES);
        CHECK_ERR(access("m/hello", F_OK), EACCES);
        CHECK_ERR(mkdir("m/x", 0700), EACCES);
        CHECK_EQ(read(fd, b, 5), 5); // what is open stays open
        struct statfs f;
        OK(statfs("m", &f));
        CHECK_EQ(f.f_blocks, 0);
    });
    // All IDs of a process have to be those of the owner.
    CHECK_CHILD({
        SYS(setresuid(0, 0, 1000));
        CHECK_ERR(access("m/hello", F_OK), EACCES);
    });
    close(fd);
    close(dir);
    fz_end();
}
TEST(daemon_decides) {
    fz_setup(",allow_other");
    fz_make(1, "secret", S_IFREG | 0600, "secret");
    CHECK_CHILD({
        become(1000);
        t_slurp("m/secret", b, sizeof b);
        CHECK_STR(b, "secret");
        CHECK_EQ(fz->uid, 1000);
        OK(chmod("m/secret", 0640));
        OK(unlink("m/secret"));
    });
    fz_end();
}
TEST(kernel_decides) {
    fz_setup(",allow_other,default_permissions");
    fz_make(1, "secret", S_IFREG | 0600, "secret");
    CHECK_CHILD({
        become(1000);
        CHECK_ERR(open("m/secret", O_RDONLY), EACCES);
        CHECK_ERR(chmod("m/secret", 0644), EPERM);
        CHECK_ERR(unlink("m/secret"), EACCES);
        OK(access("m/hello", R_OK));
        CHECK_ERR(access("m/hello", W_OK), EACCES);
    });
    CHECK_EQ(fz->count[FUSE_ACCESS], 0);
    fz->node[fz_find(1, "secret")].mode = S_IFREG | 0644;
    CHECK_CHILD({
        become(1000);
        OK(close(SYS(open("m/secret", O_RDONLY))));
    });
    fz_end();
}
TEST(timeouts) {
    private_mounts();
    fz_prepare();
    fz->timeout = 1000;
    fz_open();
    fz_start("");
    close(fz_fd);
    struct stat s;
    for (int i = 0; i < 5; i++) OK(stat("m/hello", &s));
    CHECK_EQ(fz->count[FUSE_LOOKUP], 1);
    CHECK_EQ(fz->count[FUSE_GETATTR], 0);
    // What the kernel does itself it knows.
    OK(unlink("m/hello"));
    CHECK_ERR(stat("m/hello", &s), ENOENT);
    OK(mkdir("m/d", 0700));
    OK(stat("m/d", &s));
    int lookups = fz->count[FUSE_LOOKUP];
    OK(stat("m/d", &s));
    CHECK_EQ(fz->count[FUSE_LOOKUP], lookups);
    fz_end();
}
TEST(mapped) {
    fz_setup("");
    int fd = SYS(open("m/hello", O_RDWR));
    char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0), *q = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
    MUST(p != MAP_FAILED && q != MAP_FAILED);
    CHECK_MEM(p, "hello, world\n\0\0", 15);
    CHECK_MEM(q, "hello, world\n\0\0", 15);
    p[0] = 'J';
    CHECK_MEM(q, "hello", 5);
    CHECK_EQ(pwrite(fd, "Y", 1, 0), 1);
    CHECK_MEM(q, "Yello", 5);
    CHECK_MEM(p, "Jello", 5);
    munmap(p, 4096);
    munmap(q, 4096);
    close(fd);
    fz_end();
}
TEST(programs) {
    fz_setup("");
    // The daemon has the same descriptor when it is made before the daemon is.
    OK(umount("m"));
    SYS(waitpid(fz_daemon, 0, 0));
    fz_open();
    int host = SYS(open(t_self, O_RDONLY | O_CLOEXEC));
    struct stat s;
    OK(fstat(host, &s));
    uint64_t id = fz_make(1, "prog", S_IFREG | 0755, 0);
    fz->node[id].host = host;
    fz->node[id].size = s.st_size;
    fz_start("");
    close(fz_fd);
    close(host);
    pid_t child = FORK();
    if (!child) {
        close(1);
        SYS(open("out", O_WRONLY | O_CREAT, 0600));
        execl("m/prog", "m/prog", "-l", (char *)0);
        _exit(100);
    }
    int status;
    SYS(waitpid(child, &status, 0));
    CHECK_STATUS(status, "exit 0");
    t_slurp("out", b, sizeof b);
    CHECK(strstr(b, "mount_options"));
    fz->node[id].mode = S_IFREG | 0644;
    CHECK_ERR(execl("m/prog", "m/prog", (char *)0), EACCES);
    int fd = SYS(open("m/prog", O_RDONLY)), same = 0;
    char *p = mmap(0, s.st_size, PROT_READ, MAP_SHARED, fd, 0), *q = mmap(0, s.st_size, PROT_READ, MAP_SHARED, SYS(open(t_self, O_RDONLY)), 0);
    same = !memcmp(p, q, s.st_size);
    CHECK(same);
    munmap(p, s.st_size);
    close(fd);
    fz_end();
}
TEST(direct) {
    private_mounts();
    fz_prepare();
    fz->open_flags = FOPEN_DIRECT_IO;
    fz_open();
    fz_start("");
    close(fz_fd);
    uint64_t id = fz_make(1, "grows", S_IFREG | 0644, "more than its size");
    fz->node[id].size = 0;
    int fd = SYS(open("m/grows", O_RDWR));
    CHECK_EQ(read(fd, b, 10), 0);
    fz->node[id].size = 9;
    CHECK_EQ(read(fd, b, 100), 9);
    void *p = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(p != MAP_FAILED);
    munmap(p, 4096);
    close(fd);
    fz->open_flags = FOPEN_DIRECT_IO | FOPEN_NONSEEKABLE;
    fd = SYS(open("m/hello", O_RDONLY));
    CHECK_ERR(lseek(fd, 0, SEEK_SET), ESPIPE);
    CHECK_ERR(pread(fd, b, 5, 0), ESPIPE);
    CHECK_EQ(read(fd, b, 5), 5);
    CHECK_EQ(read(fd, b, 5), 5);
    CHECK_MEM(b, ", wor", 5);
    close(fd);
    fz_end();
}
static void put(const char *path, const char *text) {
    int fd = SYS(open(path, O_WRONLY));
    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}
TEST(user_namespace) {
    private_mounts();
    // The one of the host may be for root alone.
    OK(mkdir("dev", 0755));
    OK(mount("none", "dev", "tmpfs", 0, 0));
    OK(mknod("dev/fuse", S_IFCHR | 0666, makedev(10, 229)));
    OK(chmod("dev/fuse", 0666));
    OK(chmod(".", 0755));
    CHECK_CHILD({
        become(1000);
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) SKIP("no user namespaces");
        SYS(prctl(PR_SET_DUMPABLE, 1));
        put("/proc/self/setgroups", "deny");
        put("/proc/self/uid_map", "0 1000 1");
        put("/proc/self/gid_map", "0 1000 1");
        fz_prepare();
        fz_fd = SYS(open("dev/fuse", O_RDWR));
        OK(mount("none", "/tmp", "tmpfs", 0, 0));
        OK(chdir("/tmp"));
        fz_start("");
        close(fz_fd);
        t_slurp("m/hello", b, sizeof b);
        CHECK_STR(b, "hello, world\n");
        struct stat s;
        OK(stat("m/hello", &s));
        CHECK_EQ(s.st_uid, 0);
        fz_end();
    });
}
TEST(steps) {
    private_mounts();
    fz_prepare();
    fz_open();
    mkdir("m", 0755);
    int fs = SYS(syscall(SYS_fsopen, "fuse.test", 0));
    char number[20];
    sprintf(number, "%d", fz_fd);
    enum { FLAG, STRING, FD = 5, CREATE };
    CHECK_ERR(syscall(SYS_fsconfig, fs, STRING, "nonsense", "1", 0), EINVAL);
    OK(syscall(SYS_fsconfig, fs, STRING, "fd", number, 0));
    OK(syscall(SYS_fsconfig, fs, STRING, "rootmode", "40000", 0));
    OK(syscall(SYS_fsconfig, fs, STRING, "user_id", "0", 0));
    OK(syscall(SYS_fsconfig, fs, STRING, "group_id", "0", 0));
    OK(syscall(SYS_fsconfig, fs, FLAG, "allow_other", 0, 0));
    OK(syscall(SYS_fsconfig, fs, CREATE, 0, 0, 0));
    int mnt = SYS(syscall(SYS_fsmount, fs, 0, 0));
    OK(syscall(SYS_move_mount, mnt, "", AT_FDCWD, "m", 4));
    fz_daemon = FORK();
    if (!fz_daemon) {
        close(mnt);
        close(fs);
        alarm(60);
        fz_serve();
    }
    close(mnt);
    close(fs);
    close(fz_fd);
    t_slurp("m/hello", b, sizeof b);
    CHECK_STR(b, "hello, world\n");
    fz_end();
}

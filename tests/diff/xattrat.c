// setxattrat(2), getxattrat(2), listxattrat(2), removexattrat(2), and file_getattr(2), file_setattr(2).
#include "t.h"
#include <sys/xattr.h>

struct args {
    uint64_t value;
    uint32_t size, flags;
    uint64_t more;
};
struct attr {
    uint64_t flags;
    uint32_t extent_size, extents, project, cow_extent_size;
    uint64_t more;
};
static char value[100];

static int set(int dir, const char *path, int flags, const char *name, const char *text, int how) {
    struct args a = {(uintptr_t)text, strlen(text), how, 0};
    return syscall(463, dir, path, flags, name, &a, 16);
}
static int get(int dir, const char *path, int flags, const char *name) {
    struct args a = {(uintptr_t)value, sizeof value, 0, 0};
    return syscall(464, dir, path, flags, name, &a, 16);
}
static int list(int dir, const char *path, int flags) { return syscall(465, dir, path, flags, value, sizeof value); }
static int drop(int dir, const char *path, int flags, const char *name) { return syscall(466, dir, path, flags, name); }

TEST(by_directory_and_name) {
    SYS(mkdir("d", 0755));
    t_make("d/f", "");
    SYS(symlink("f", "d/l"));
    int d = SYS(open("d", O_PATH | O_DIRECTORY));
    OK(set(d, "f", 0, "user.a", "one", 0));
    CHECK_EQ(get(AT_FDCWD, "d/f", 0, "user.a"), 3);
    CHECK_MEM(value, "one", 3);
    OK(set(d, "l", 0, "user.b", "two", XATTR_CREATE));
    CHECK_ERR(set(d, "l", 0, "user.b", "two", XATTR_CREATE), EEXIST);
    CHECK_ERR(set(d, "f", 0, "user.c", "two", XATTR_REPLACE), ENODATA);
    CHECK_EQ(list(d, "f", 0), 14);
    CHECK_ERR(set(d, "l", AT_SYMLINK_NOFOLLOW, "user.b", "two", 0), EPERM);
    CHECK_ERR(get(d, "l", AT_SYMLINK_NOFOLLOW, "user.b"), ENODATA);
    CHECK_EQ(list(d, "l", AT_SYMLINK_NOFOLLOW), 0);
    OK(drop(d, "l", 0, "user.b"));
    CHECK_ERR(drop(d, "f", 0, "user.b"), ENODATA);
    CHECK_EQ(list(d, "f", 0), 7);
    CHECK_ERR(get(d, "missing", 0, "user.a"), ENOENT);
    CHECK_ERR(get(d, "", 0, "user.a"), ENOENT);
    CHECK_ERR(get(99, "f", 0, "user.a"), EBADF);
    int f = SYS(open("d/f", O_RDONLY));
    CHECK_ERR(get(f, "f", 0, "user.a"), ENOTDIR);
}
TEST(by_descriptor) {
    int f = t_file("f", ""), o = SYS(open("f", O_PATH));
    for (int null = 0; null < 2; null++) {
        const char *no = null ? 0 : "";
        OK(set(f, no, AT_EMPTY_PATH, "user.a", "text", 0));
        CHECK_EQ(get(f, no, AT_EMPTY_PATH, "user.a"), 4);
        CHECK_EQ(list(f, no, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW), 7);
        OK(drop(f, no, AT_EMPTY_PATH, "user.a"));
        CHECK_ERR(set(o, no, AT_EMPTY_PATH, "user.a", "text", 0), EBADF);
        CHECK_ERR(get(o, no, AT_EMPTY_PATH, "user.a"), EBADF);
        CHECK_ERR(list(o, no, AT_EMPTY_PATH), EBADF);
        CHECK_ERR(drop(99, no, AT_EMPTY_PATH, "user.a"), EBADF);
        // The working directory.
        OK(set(AT_FDCWD, no, AT_EMPTY_PATH, "user.d", "dir", 0));
        CHECK_EQ(get(AT_FDCWD, no, AT_EMPTY_PATH, "user.d"), 3);
        // Two of the four calls do not know it.
        CHECK_ERR(list(AT_FDCWD, no, AT_EMPTY_PATH), EBADF);
        CHECK_ERR(drop(AT_FDCWD, no, AT_EMPTY_PATH, "user.d"), EBADF);
        OK(drop(AT_FDCWD, ".", 0, "user.d"));
    }
    CHECK_ERR(get(f, 0, 0, "user.a"), EFAULT);
    // A path beside AT_EMPTY_PATH is a path.
    OK(set(AT_FDCWD, "f", AT_EMPTY_PATH, "user.p", "x", 0));
    CHECK_EQ(list(f, "", AT_EMPTY_PATH), 7);
}
TEST(arguments) {
    int f = t_file("f", "");
    struct args a = {(uintptr_t) "v", 1, 0, 0};
    CHECK_ERR(syscall(463, f, "", AT_EMPTY_PATH, "user.a", &a, 15), EINVAL);
    CHECK_ERR(syscall(464, f, "", AT_EMPTY_PATH, "user.a", &a, 0), EINVAL);
    CHECK_ERR(syscall(463, f, "", AT_EMPTY_PATH, "user.a", &a, 4097), E2BIG);
    OK(syscall(463, f, "", AT_EMPTY_PATH, "user.a", &a, 24));
    a.more = 1;
    CHECK_ERR(syscall(463, f, "", AT_EMPTY_PATH, "user.a", &a, 24), E2BIG);
    OK(syscall(463, f, "", AT_EMPTY_PATH, "user.a", &a, 16));
    CHECK_ERR(syscall(463, f, "", AT_EMPTY_PATH, "user.a", BAD_PTR, 16), EFAULT);
    CHECK_ERR(syscall(463, f, "", AT_EMPTY_PATH, BAD_PTR, &a, 16), EFAULT);
    a.flags = 4;
    CHECK_ERR(syscall(463, f, "", AT_EMPTY_PATH, "user.a", &a, 16), EINVAL);
    a.flags = XATTR_CREATE;
    CHECK_ERR(syscall(464, f, "", AT_EMPTY_PATH, "user.a", &a, 16), EINVAL);
    a = (struct args){0, 0, 0, 0};
    CHECK_EQ(syscall(464, f, "", AT_EMPTY_PATH, "user.a", &a, 16), 1);
    OK(set(f, "", AT_EMPTY_PATH, "user.long", "more than there is room for", 0));
    a = (struct args){(uintptr_t)value, 3, 0, 0};
    CHECK_ERR(syscall(464, f, "", AT_EMPTY_PATH, "user.long", &a, 16), ERANGE);
    CHECK_ERR(syscall(465, f, "", AT_EMPTY_PATH, value, 3), ERANGE);
    CHECK_EQ(syscall(465, f, "", AT_EMPTY_PATH, 0, 0), 17);
    CHECK_ERR(set(f, "", AT_EMPTY_PATH, "", "x", 0), ERANGE);
    int bad[] = {1, 0x400, 0x800};
    for (int i = 0; i < 3; i++) {
        CHECK_ERR(set(f, "", bad[i] | AT_EMPTY_PATH, "user.a", "x", 0), EINVAL);
        CHECK_ERR(get(f, "", bad[i] | AT_EMPTY_PATH, "user.a"), EINVAL);
        CHECK_ERR(list(f, "", bad[i] | AT_EMPTY_PATH), EINVAL);
        CHECK_ERR(drop(f, "", bad[i] | AT_EMPTY_PATH, "user.a"), EINVAL);
    }
}
TEST(attributes_that_files_do_not_have) {
    struct attr a = {0};
    int p[2], o = SYS(open(".", O_PATH));
    SYS(pipe(p));
    CHECK_ERR(syscall(468, p[0], "", &a, 24, AT_EMPTY_PATH), EOPNOTSUPP);
    CHECK_ERR(syscall(469, p[0], "", &a, 24, AT_EMPTY_PATH), EOPNOTSUPP);
    CHECK_ERR(syscall(468, AT_FDCWD, "/proc/self/status", &a, 24, 0), EOPNOTSUPP);
    CHECK_ERR(syscall(468, AT_FDCWD, "/proc/self/status", BAD_PTR, 32, 0), EOPNOTSUPP);
    CHECK_ERR(syscall(468, AT_FDCWD, "/proc/self/status", &a, 20, 0), EINVAL);
    CHECK_ERR(syscall(468, AT_FDCWD, "/proc/self/status", &a, 4097, 0), E2BIG);
    CHECK_ERR(syscall(468, AT_FDCWD, "/proc/self/status", &a, 24, 1), EINVAL);
    CHECK_ERR(syscall(468, AT_FDCWD, "missing", &a, 24, 0), ENOENT);
    CHECK_ERR(syscall(468, AT_FDCWD, "", &a, 24, 0), ENOENT);
    CHECK_ERR(syscall(468, 99, "", &a, 24, AT_EMPTY_PATH), EBADF);
    CHECK_ERR(syscall(468, o, "", &a, 24, AT_EMPTY_PATH), EBADF);
    CHECK_ERR(syscall(469, p[0], "", BAD_PTR, 24, AT_EMPTY_PATH), EFAULT);
    CHECK_ERR(syscall(469, p[0], "", 0, 24, AT_EMPTY_PATH), EFAULT);
    a.more = 1;
    CHECK_ERR(syscall(469, p[0], "", &a, 32, AT_EMPTY_PATH), E2BIG);
    for (int i = 0; i < 64; i++) {
        a = (struct attr){.flags = 1ULL << i};
        CHECK_ERR(syscall(469, AT_FDCWD, "/proc/self/status", &a, 24, 0), 0x8001fffbULL >> i & 1 ? EOPNOTSUPP : EINVAL);
    }
}

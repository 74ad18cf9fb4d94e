// PROCMAP_QUERY of /proc/PID/maps, and /proc/config.gz.
#include "t.h"
#include <linux/types.h>
#include <sys/ioctl.h>

struct query {
    __u64 size, flags, addr, start, end, vma_flags, page_size, offset, inode;
    __u32 major, minor, name_size, build_id_size;
    __u64 name_addr, build_id_addr;
};
enum { READABLE = 1, WRITABLE = 2, EXECUTABLE = 4, SHARED = 8, COVERING_OR_NEXT = 16, FILE_BACKED = 32 };
#define PROCMAP_QUERY _IOWR('f', 17, struct query)

static int ask(int fd, struct query *q, __u64 addr, __u64 flags) {
    q->size = sizeof *q;
    q->addr = addr;
    q->flags = flags;
    return ioctl(fd, PROCMAP_QUERY, q);
}
TEST(one_mapping) {
    int fd = SYS(open("/proc/self/maps", O_RDONLY)), file = t_file("mapped", "x");
    OK(ftruncate(file, 16384));
    char *p = mmap(0, 5 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), name[4096] = "", id[64];
    SYS(mmap(p + 4096, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 8192));
    OK(munmap(p + 3 * 4096, 4096));
    struct stat st;
    OK(fstat(file, &st));
    __u64 at = (__u64)p;
    struct query q = {0};
    OK(ask(fd, &q, at + 4096 + 5, 0));
    CHECK_EQ(q.start, at + 4096);
    CHECK_EQ(q.end, at + 8192);
    CHECK_EQ(q.vma_flags, READABLE | WRITABLE | SHARED);
    CHECK_EQ(q.page_size, 4096);
    CHECK_EQ(q.offset, 8192);
    CHECK_EQ(q.inode, st.st_ino);
    CHECK_EQ(q.addr, at + 4096 + 5);
    // Its name, which must fit with its end.
    q = (struct query){.name_addr = (__u64)name, .name_size = sizeof name};
    OK(ask(fd, &q, at + 4096, 0));
    CHECK_EQ(q.name_size, strlen(name) + 1);
    CHECK(strstr(name, "/mapped"));
    __u32 full = q.name_size;
    q.name_size = full - 1;
    CHECK_ERR(ask(fd, &q, at + 4096, 0), ENAMETOOLONG);
    q.name_size = full;
    OK(ask(fd, &q, at + 4096, 0));
    q.name_size = sizeof name;
    OK(ask(fd, &q, at, 0));
    CHECK_EQ(q.name_size, 0);
    // The next one, by rights, and of files.
    q = (struct query){0};
    CHECK_ERR(ask(fd, &q, at + 3 * 4096, 0), ENOENT);
    OK(ask(fd, &q, at + 3 * 4096, COVERING_OR_NEXT));
    CHECK_EQ(q.start, at + 4 * 4096);
    CHECK_ERR(ask(fd, &q, at, READABLE), ENOENT);
    OK(ask(fd, &q, at, COVERING_OR_NEXT | WRITABLE));
    CHECK_EQ(q.start, at + 4096);
    OK(ask(fd, &q, at, COVERING_OR_NEXT | FILE_BACKED));
    CHECK_EQ(q.start, at + 4096);
    CHECK_ERR(ask(fd, &q, at, FILE_BACKED), ENOENT);
    CHECK_ERR(ask(fd, &q, -4096, COVERING_OR_NEXT), ENOENT);
    // Code of a file with a build ID or without one; anonymous memory has none.
    q = (struct query){.build_id_addr = (__u64)id, .build_id_size = sizeof id};
    OK(ask(fd, &q, (__u64)(void *)ask, EXECUTABLE));
    CHECK(q.build_id_size == 0 || q.build_id_size == 20);
    q.build_id_size = sizeof id;
    OK(ask(fd, &q, at, 0));
    CHECK_EQ(q.build_id_size, 0);
}
TEST(refused) {
    int fd = SYS(open("/proc/self/maps", O_RDONLY));
    char more[sizeof(struct query) + 8] = "";
    struct query *q = (void *)more;
    __u64 here = (__u64)(void *)ask;
    q->size = 16;
    CHECK_ERR(ioctl(fd, PROCMAP_QUERY, q), EINVAL);
    q->size = 4097;
    CHECK_ERR(ioctl(fd, PROCMAP_QUERY, q), E2BIG);
    q->size = sizeof more;
    q->addr = here;
    OK(ioctl(fd, PROCMAP_QUERY, q));
    more[sizeof more - 1] = 1;
    CHECK_ERR(ioctl(fd, PROCMAP_QUERY, q), E2BIG);
    CHECK_ERR(ask(fd, q, here, 64), EINVAL);
    q->name_size = 4;
    CHECK_ERR(ask(fd, q, here, 0), EINVAL);
    q->name_size = 0;
    q->build_id_addr = here;
    CHECK_ERR(ask(fd, q, here, 0), EINVAL);
    CHECK_ERR(ioctl(fd, PROCMAP_QUERY, 8), EFAULT);
    CHECK_ERR(ioctl(SYS(open("/proc/self/smaps", O_RDONLY)), PROCMAP_QUERY, q), ENOTTY);
    CHECK_ERR(ioctl(fd, _IO('f', 17), q), ENOTTY);
    // Of a process that has ended, by a file that was opened before.
    pid_t p = FORK();
    if (p == 0) {
        pause();
        _exit(0);
    }
    char path[64];
    sprintf(path, "/proc/%d/maps", p);
    fd = SYS(open(path, O_RDONLY));
    q->build_id_addr = 0;
    OK(ask(fd, q, here, 0));
    kill(p, SIGKILL);
    t_status(p);
    CHECK_ERR(ask(fd, q, here, 0), ESRCH);
}
TEST(configuration) {
    unsigned char head[3];
    int fd = open("/proc/config.gz", O_RDONLY);
    if (fd < 0) SKIP("no /proc/config.gz");
    CHECK_EQ(read(fd, head, 3), 3);
    CHECK_MEM(head, "\x1f\x8b\x08", 3);
    char out[256];
    FILE *f = popen("zcat /proc/config.gz | grep -E '^(CONFIG_(NAMESPACES|USER_NS|SECCOMP_FILTER|PROC_FS|64BIT|UNIX)=y|# Linux/)' | sed 's/^# Linux.*/head/' | sort | tr '\\n' ' '", "r");
    out[fread(out, 1, sizeof out - 1, f)] = 0;
    pclose(f);
    CHECK_STR(out, "CONFIG_64BIT=y CONFIG_NAMESPACES=y CONFIG_PROC_FS=y CONFIG_SECCOMP_FILTER=y CONFIG_UNIX=y CONFIG_USER_NS=y head ");
}

// Memory policies on one node: mbind, set_mempolicy, get_mempolicy, migrate_pages, move_pages, set_mempolicy_home_node.
#include "t.h"
#include <linux/mempolicy.h>
#include <sys/mman.h>

#define P 4096ul
#define RW (PROT_READ | PROT_WRITE)
static long mbind_(void *a, size_t n, int mode, unsigned long *m, unsigned long bits, unsigned f) { return syscall(SYS_mbind, a, n, mode, m, bits, f); }
static long set(int mode, unsigned long *m, unsigned long bits) { return syscall(SYS_set_mempolicy, mode, m, bits); }
static long get(int *mode, unsigned long *m, unsigned long bits, void *a, unsigned long f) { return syscall(SYS_get_mempolicy, mode, m, bits, a, f); }
static unsigned long one = 1, two = 2, none;
static char *anon(size_t n) {
    char *p = mmap(0, n, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(p != MAP_FAILED);
    return p;
}

TEST(task_policy) {
    int mode = -1;
    unsigned long m[16] = {7};
    OK(get(&mode, m, 1024, 0, 0));
    CHECK_EQ(mode, MPOL_DEFAULT);
    CHECK_EQ(m[0], 0);
    OK(set(MPOL_BIND, &one, 64));
    OK(get(&mode, m, 1024, 0, 0));
    CHECK_EQ(mode, MPOL_BIND);
    CHECK_EQ(m[0], 1);
    CHECK_CHILD({
        OK(get(&mode, 0, 0, 0, 0));
        CHECK_EQ(mode, MPOL_BIND);
    });
    OK(set(MPOL_PREFERRED, &none, 64));
    OK(get(&mode, m, 1024, 0, 0));
    CHECK_EQ(mode, MPOL_LOCAL);
    OK(set(MPOL_PREFERRED | MPOL_F_STATIC_NODES, &one, 64));
    OK(get(&mode, m, 1024, 0, 0));
    CHECK_EQ(mode, MPOL_PREFERRED | MPOL_F_STATIC_NODES);
    OK(set(MPOL_INTERLEAVE, &one, 64));
    OK(get(&mode, 0, 0, 0, MPOL_F_NODE));
    CHECK_EQ(mode, 0);
    OK(set(MPOL_LOCAL, 0, 0));
    OK(set(MPOL_DEFAULT, 0, 0));
    OK(get(0, m, 1024, 0, MPOL_F_MEMS_ALLOWED));
    CHECK_EQ(m[0], 1);
}
TEST(task_policy_errors) {
    int mode;
    unsigned long m[16];
    CHECK_ERR(set(99, 0, 0), EINVAL);
    CHECK_ERR(set(MPOL_DEFAULT, &one, 64), EINVAL);
    CHECK_ERR(set(MPOL_BIND, 0, 0), EINVAL);
    CHECK_ERR(set(MPOL_BIND, &none, 64), EINVAL);
    CHECK_ERR(set(MPOL_BIND, &two, 64), EINVAL);
    CHECK_ERR(set(MPOL_LOCAL, &one, 64), EINVAL);
    CHECK_ERR(set(MPOL_BIND | MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES, &one, 64), EINVAL);
    CHECK_ERR(set(MPOL_BIND, BAD_PTR, 64), EFAULT);
    CHECK_ERR(set(MPOL_BIND, &one, 40000), EINVAL);
    CHECK_ERR(get(&mode, 0, 0, (void *)&mode, 0), EINVAL);
    CHECK_ERR(get(&mode, 0, 0, 0, 8), EINVAL);
    CHECK_ERR(get(&mode, 0, 0, 0, MPOL_F_MEMS_ALLOWED | MPOL_F_NODE), EINVAL);
    CHECK_ERR(get(&mode, 0, 0, 0, MPOL_F_ADDR), EFAULT);
    CHECK_ERR(get(&mode, 0, 0, 0, MPOL_F_NODE), EINVAL);
    CHECK_ERR(get(BAD_PTR, 0, 0, 0, 0), EFAULT);
    CHECK_ERR(get(&mode, m, 0, 0, 0), EINVAL);
}
TEST(binding) {
    int mode;
    unsigned long m[16];
    char *p = anon(4 * P);
    OK(mbind_(p + P, P, MPOL_BIND, &one, 64, 0));
    OK(get(&mode, m, 1024, p + P, MPOL_F_ADDR));
    CHECK_EQ(mode, MPOL_BIND);
    CHECK_EQ(m[0], 1);
    OK(get(&mode, 0, 0, p, MPOL_F_ADDR));
    CHECK_EQ(mode, MPOL_DEFAULT);
    OK(get(&mode, 0, 0, p, MPOL_F_ADDR | MPOL_F_NODE));
    CHECK_EQ(mode, 0);
    OK(mbind_(p, 4 * P, MPOL_DEFAULT, 0, 0, MPOL_MF_MOVE));
    OK(get(&mode, 0, 0, p + P, MPOL_F_ADDR));
    CHECK_EQ(mode, MPOL_DEFAULT);
    CHECK_ERR(mbind_(p + 1, P, MPOL_BIND, &one, 64, 0), EINVAL);
    CHECK_ERR(mbind_(p, P, MPOL_BIND, &one, 64, 64), EINVAL);
    CHECK_ERR(mbind_(p, P, 99, &one, 64, 0), EINVAL);
    CHECK_ERR(mbind_(p, P, MPOL_BIND, &two, 64, 0), EINVAL);
    CHECK_ERR(mbind_(p, -P, MPOL_BIND, &one, 64, 0), EINVAL);
    OK(mbind_(p, 0, MPOL_BIND, &one, 64, 0));
    munmap(p + 2 * P, P);
    CHECK_ERR(mbind_(p, 4 * P, MPOL_BIND, &one, 64, 0), EFAULT);
}
TEST(home_node) {
    char *p = anon(2 * P);
    long (*home)(long, ...) = (void *)syscall;
    CHECK_ERR(home(450, p, P, 0, 0), ENOENT);
    OK(mbind_(p, P, MPOL_BIND, &one, 64, 0));
    OK(home(450, p, P, 0, 0));
    CHECK_ERR(home(450, p, P, 5000, 0), EINVAL);
    CHECK_ERR(home(450, p, P, 0, 1), EINVAL);
    CHECK_ERR(home(450, p + 1, P, 0, 0), EINVAL);
    OK(mbind_(p, P, MPOL_INTERLEAVE, &one, 64, 0));
    CHECK_ERR(home(450, p, P, 0, 0), EOPNOTSUPP);
    OK(home(450, p, 0, 0, 0));
}
TEST(pages) {
    char *p = anon(4 * P);
    p[0] = p[2 * P] = 1;
    void *a[4] = {p, p + P, p + 2 * P, (void *)P};
    int st[4] = {9, 9, 9, 9}, nodes[4] = {0, 0, 0, 0}, bad[4] = {0, 77, 0, 0};
    OK(syscall(SYS_move_pages, 0, 4, a, 0, st, 0));
    CHECK_EQ(st[0], 0);
    CHECK_EQ(st[1], -ENOENT);
    CHECK_EQ(st[2], 0);
    CHECK_EQ(st[3], -EFAULT);
    OK(syscall(SYS_move_pages, 0, 1, a, nodes, st, MPOL_MF_MOVE));
    CHECK_EQ(st[0], 0);
    CHECK_ERR(syscall(SYS_move_pages, 0, 4, a, bad, st, MPOL_MF_MOVE), ENODEV);
    CHECK_ERR(syscall(SYS_move_pages, 0, 4, a, nodes, st, 64), EINVAL);
    CHECK_ERR(syscall(SYS_move_pages, 0, 4, BAD_PTR, 0, st, 0), EFAULT);
    CHECK_ERR(syscall(SYS_move_pages, 0, 1, a, 0, BAD_PTR, 0), EFAULT);
    CHECK_ERR(syscall(SYS_move_pages, 0x3ffffff, 1, a, 0, st, 0), ESRCH);
    OK(syscall(SYS_migrate_pages, 0, 64, &one, &one));
    CHECK_ERR(syscall(SYS_migrate_pages, 0, 64, &one, &two), EINVAL);
    CHECK_ERR(syscall(SYS_migrate_pages, 0, 64, BAD_PTR, &one), EFAULT);
    CHECK_ERR(syscall(SYS_migrate_pages, 0x3ffffff, 64, &one, &one), ESRCH);
}
TEST(numa_maps) {
    char *p = anon(2 * P), line[500], want[60], b[60];
    OK(mbind_(p, P, MPOL_BIND, &one, 64, 0));
    sprintf(want, "%08lx bind:0", (unsigned long)p);
    FILE *f = fopen("/proc/self/numa_maps", "r");
    MUST(f);
    bool found = false;
    while (fgets(line, sizeof line, f)) snprintf(b, strlen(want) + 1, "%s", line), found |= !strcmp(b, want);
    CHECK(found);
}

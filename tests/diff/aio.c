// io_setup, io_submit, io_getevents and relatives.
#include "t.h"
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

static long setup(unsigned n, aio_context_t *c) { return syscall(SYS_io_setup, n, c); }
static long submit(aio_context_t c, long n, struct iocb **l) { return syscall(SYS_io_submit, c, n, l); }
static long events(aio_context_t c, long min, long max, struct io_event *e, struct timespec *t) { return syscall(SYS_io_getevents, c, min, max, e, t); }
static long destroy(aio_context_t c) { return syscall(SYS_io_destroy, c); }
static struct iocb request(int fd, int op, void *buf, size_t n, long off) {
    struct iocb cb = {.aio_fildes = fd, .aio_lio_opcode = op, .aio_buf = (long)buf, .aio_nbytes = n, .aio_offset = off, .aio_data = 42, .aio_key = 7};
    return cb;
}

TEST(setup_and_destroy) {
    aio_context_t c = 0, d = 0;
    OK(setup(10, &c));
    CHECK(c != 0);
    CHECK_ERR(setup(10, &c), EINVAL); // not zero
    CHECK_ERR(setup(0, &d), EINVAL);
    CHECK_ERR(setup(-1, &d), EINVAL);
    CHECK_ERR(setup(1, BAD_PTR), EFAULT);
    OK(destroy(c));
    CHECK_ERR(destroy(c), EINVAL);
    CHECK_ERR(destroy(-1), EINVAL);
}
TEST(reads_and_writes) {
    aio_context_t c = 0;
    OK(setup(8, &c));
    int fd = t_file("f", "");
    char b[16] = "";
    struct iovec v[2] = {{"def", 3}, {"ghi", 3}};
    struct iocb w = request(fd, IOCB_CMD_PWRITE, "abc", 3, 0), wv = request(fd, IOCB_CMD_PWRITEV, v, 2, 3),
                s = request(fd, IOCB_CMD_FSYNC, 0, 0, 0);
    struct iocb *l[] = {&w, &wv, &s};
    CHECK_EQ(submit(c, 3, l), 3);
    struct io_event e[8];
    CHECK_EQ(events(c, 3, 8, e, 0), 3);
    CHECK_EQ(e[0].res + e[1].res + e[2].res, 9);
    CHECK_EQ(e[0].data, 42);
    CHECK(e[0].obj == (long)&w || e[0].obj == (long)&wv || e[0].obj == (long)&s);
    OK(e[0].res2);
    OK(w.aio_key);
    struct iocb r = request(fd, IOCB_CMD_PREAD, b, 16, 1);
    l[0] = &r;
    CHECK_EQ(submit(c, 1, l), 1);
    CHECK_EQ(events(c, 1, 1, e, 0), 1);
    CHECK_EQ(e[0].res, 8);
    CHECK_MEM(b, "bcdefghi", 8);
    struct timespec ts = {0, 10000000};
    OK(events(c, 1, 1, e, &ts));
    OK(events(c, 0, 1, e, 0));
    OK(destroy(c));
}
TEST(errors) {
    aio_context_t c = 0;
    OK(setup(2, &c));
    int fd = t_file("f", "x"), ro = SYS(open("f", O_RDONLY));
    char b[4];
    struct io_event e[4];
    struct iocb good = request(fd, IOCB_CMD_PREAD, b, 1, 0), bad = request(-1, IOCB_CMD_PREAD, b, 1, 0);
    struct iocb *l[] = {&good, &bad, &good, &good};
    CHECK_ERR(submit(c, -1, l), EINVAL);
    OK(submit(c, 0, l));
    CHECK_ERR(submit(-1, 1, l), EINVAL);
    CHECK_ERR(submit(c, 1, BAD_PTR), EFAULT);
    struct iocb *nowhere[] = {BAD_PTR};
    CHECK_ERR(submit(c, 1, nowhere), EFAULT);
    CHECK_ERR(submit(c, 1, l + 1), EBADF);
    CHECK_EQ(submit(c, 2, l), 1); // stops at the second
    CHECK_EQ(events(c, 1, 4, e, 0), 1);
    bad = request(ro, IOCB_CMD_PWRITE, b, 1, 0);
    CHECK_ERR(submit(c, 1, l + 1), EBADF);
    bad = request(fd, 99, b, 1, 0);
    CHECK_ERR(submit(c, 1, l + 1), EINVAL);
    bad = request(fd, IOCB_CMD_PREAD, b, 1, 0);
    bad.aio_reserved2 = 1;
    CHECK_ERR(submit(c, 1, l + 1), EINVAL);
    bad = request(fd, IOCB_CMD_PREAD, b, 1, 0);
    bad.aio_flags = IOCB_FLAG_RESFD, bad.aio_resfd = fd;
    CHECK_ERR(submit(c, 1, l + 1), EINVAL);
    CHECK_ERR(events(c, 2, 1, e, 0), EINVAL);
    CHECK_ERR(events(c, -1, 1, e, 0), EINVAL);
    CHECK_ERR(events(-1, 0, 1, e, 0), EINVAL);
    CHECK_ERR(syscall(SYS_io_cancel, c, BAD_PTR, e), EFAULT);
    CHECK_ERR(syscall(SYS_io_cancel, -1, &good, e), EINVAL);
    good = request(fd, IOCB_CMD_PREAD, BAD_PTR, 1, 0);
    CHECK_EQ(submit(c, 1, l), 1);
    CHECK_EQ(events(c, 1, 1, e, 0), 1);
    CHECK_EQ(e[0].res, -EFAULT);
    OK(destroy(c));
}
TEST(event_descriptor) {
    aio_context_t c = 0;
    OK(setup(4, &c));
    int fd = t_file("f", "xyz"), ev = SYS(eventfd(0, EFD_NONBLOCK));
    char b[4];
    struct iocb r = request(fd, IOCB_CMD_PREAD, b, 3, 0);
    r.aio_flags = IOCB_FLAG_RESFD, r.aio_resfd = ev;
    struct iocb *l[] = {&r};
    CHECK_EQ(submit(c, 1, l), 1);
    struct io_event e;
    CHECK_EQ(events(c, 1, 1, &e, 0), 1);
    uint64_t n = 0;
    CHECK_EQ(read(ev, &n, 8), 8);
    CHECK_EQ(n, 1);
    OK(destroy(c));
}
TEST(waiting_is_interrupted) {
    aio_context_t c = 0;
    OK(setup(1, &c));
    struct io_event e;
    t_pester(SA_RESTART);
    CHECK_ERR(events(c, 1, 1, &e, 0), EINTR);
    t_pester_stop();
}
TEST(contexts_are_not_inherited) {
    aio_context_t c = 0;
    OK(setup(1, &c));
    CHECK_CHILD(CHECK_ERR(destroy(c), EINVAL));
    OK(destroy(c));
}
static aio_context_t shared;
static int file;
static void *submits(void *a) {
    static char text[] = "hello";
    struct iocb w = request(file, IOCB_CMD_PWRITE, text, 5, 0), *l[] = {&w};
    t_ms(30);
    CHECK_EQ(submit(shared, 1, l), 1);
    return a;
}
TEST(a_thread_waits_for_another) {
    OK(setup(1, &shared));
    file = t_file("f", "");
    pthread_t t;
    OK(pthread_create(&t, 0, submits, 0));
    struct io_event e;
    CHECK_EQ(events(shared, 1, 1, &e, 0), 1);
    CHECK_EQ(e.res, 5);
    pthread_join(t, 0);
}
TEST(shared_zero_device_is_read_only) {
    int fd = SYS(open("/dev/zero", O_RDONLY));
    char *p = SYS(mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0));
    CHECK_ERR(mprotect(p, 4096, PROT_READ | PROT_WRITE), EACCES);
    fd = SYS(open("/dev/zero", O_RDWR));
    p = SYS(mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    p[5000] = 3;
    CHECK_CHILD(p[5000] = 4);
    CHECK_EQ(p[5000], 4);
    OK(munmap(p, 4096));
    CHECK_EQ(p[5000], 4);
}
TEST(map_shared_validate) {
    int fd = t_file("f", "x");
    CHECK_ERR((long)mmap(0, 4096, PROT_READ, MAP_SHARED_VALIDATE | 0x400000, fd, 0), EOPNOTSUPP);
    CHECK_ERR((long)mmap(0, 4096, PROT_READ, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0), EINVAL);
    SYS(mmap(0, 4096, PROT_READ, MAP_SHARED_VALIDATE, fd, 0));
    SYS(mmap(0, 4096, PROT_READ, MAP_SHARED | 0x400000, fd, 0));
}
TEST(eventfd_that_overflows) {
    aio_context_t ctx = 0;
    SYS(syscall(SYS_io_setup, 4, &ctx));
    int fd = t_file("f", "x"), e = SYS(eventfd(0, EFD_NONBLOCK));
    uint64_t v = UINT64_MAX - 1;
    CHECK_EQ(write(e, &v, 8), 8);
    char b;
    struct iocb cb = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = fd, .aio_buf = (uintptr_t)&b, .aio_nbytes = 1, .aio_flags = IOCB_FLAG_RESFD, .aio_resfd = e}, *list[] = {&cb};
    CHECK_EQ(syscall(SYS_io_submit, ctx, 1, list), 1);
    struct io_event ev;
    CHECK_EQ(syscall(SYS_io_getevents, ctx, 1, 1, &ev, 0), 1);
    struct pollfd p = {e, POLLIN | POLLOUT, 0};
    CHECK_EQ(poll(&p, 1, 0), 1);
    CHECK_EQ(p.revents, POLLIN | POLLERR);
    CHECK_EQ(read(e, &v, 8), 8);
    CHECK_EQ(v, UINT64_MAX);
    OK(poll(&p, 1, 0) == 1 && p.revents == POLLOUT ? 0 : 1);
}
// It cannot become larger or executable.
TEST(the_ring_stays_what_it_is) {
    aio_context_t c = 0;
    OK(setup(4, &c));
    void *ring = (void *)c;
    CHECK_ERR(mprotect(ring, 4096, PROT_READ | PROT_EXEC), EACCES);
    OK(mprotect(ring, 4096, PROT_READ));
    OK(mprotect(ring, 4096, PROT_READ | PROT_WRITE));
    CHECK_ERR((long)mremap(ring, 4096, 8192, MREMAP_MAYMOVE), EFAULT);
    CHECK_ERR((long)mremap(ring, 0, 4096, MREMAP_MAYMOVE), EFAULT);
    CHECK_ERR((long)mremap(ring, 4096, 4096, MREMAP_MAYMOVE | MREMAP_DONTUNMAP), EINVAL);
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    for (int mine = 0; fgets(line, sizeof line, f);) {
        if (strstr(line, "[aio]")) mine = 1;
        if (mine && !strncmp(line, "VmFlags:", 8)) break;
    }
    fclose(f);
    CHECK_STR(line, "VmFlags: rd wr sh mr mw ms de \n");
}
struct ring {
    unsigned id, nr, head, tail, magic, compat, incompat, length;
    struct io_event events[];
};
TEST(the_ring_is_in_memory) {
    aio_context_t c = 0;
    OK(setup(4, &c));
    volatile struct ring *r = (void *)c;
    CHECK_EQ(r->magic, 0xa10a10a1);
    CHECK_EQ(r->compat, 1);
    CHECK_EQ(r->incompat, 0);
    CHECK_EQ(r->length, 32);
    CHECK(r->nr >= 10);
    int fd = t_file("f", "0123456789");
    char b[4];
    struct iocb cb = request(fd, IOCB_CMD_PREAD, b, 3, 0), *l[] = {&cb};
    for (int i = 0; i < 200; i++) {
        cb.aio_nbytes = i % 3 + 1;
        CHECK_EQ(submit(c, 1, l), 1);
        for (int k = 0; k < 100 && r->head == r->tail; k++) t_ms(1);
        MUST(r->head != r->tail);
        struct io_event e = r->events[r->head % r->nr];
        CHECK_EQ(e.res, i % 3 + 1);
        CHECK_EQ(e.obj, (uintptr_t)&cb);
        CHECK_EQ(e.data, 42);
        // Every other one by hand.
        if (i % 2) r->head = (r->head + 1) % r->nr;
        else CHECK_EQ(events(c, 1, 4, &e, 0), 1);
    }
    struct timespec none = {0, 0};
    struct io_event e;
    OK(events(c, 0, 1, &e, &none));
    OK(events(c, 1, 1, &e, &none));
    char maps[1 << 16];
    t_slurp("/proc/self/maps", maps, sizeof maps);
    CHECK(strstr(maps, "/[aio]"));
    OK(destroy(c));
    t_slurp("/proc/self/maps", maps, sizeof maps);
    CHECK(!strstr(maps, "/[aio]"));
}
TEST(the_ring_moves_and_goes) {
    aio_context_t c = 0, d = 0;
    OK(setup(4, &c));
    OK(setup(4, &d));
    char maps[1 << 16], *m;
    t_slurp("/proc/self/maps", maps, sizeof maps);
    unsigned long from = 0, to = 0;
    for (m = maps; m && from != c; m = strchr(m, '\n')) {
        m += *m == '\n';
        if (sscanf(m, "%lx-%lx", &from, &to) != 2) break;
    }
    MUST(from == c);
    char *place = SYS(mmap(0, to - from, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    aio_context_t moved = (aio_context_t)SYS(mremap((void *)c, to - from, to - from, MREMAP_MAYMOVE | MREMAP_FIXED, place));
    int fd = t_file("f", "0123456789");
    char b[4];
    struct iocb cb = request(fd, IOCB_CMD_PREAD, b, 3, 0), *l[] = {&cb};
    struct io_event e;
    CHECK_ERR(submit(c, 1, l), EINVAL);
    CHECK_EQ(submit(moved, 1, l), 1);
    CHECK_EQ(events(moved, 1, 1, &e, 0), 1);
    CHECK_EQ(e.res, 3);
    OK(destroy(moved));
    CHECK_ERR(destroy(moved), EINVAL);
    OK(munmap((void *)d, 4096));
    CHECK_ERR(submit(d, 1, l), EINVAL);
    CHECK_ERR(destroy(d), EINVAL);
}

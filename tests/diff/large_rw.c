// Large reads and writes, again and again: the platform may have the program's own thread make them.
#include "t.h"
#include <pthread.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define PIECE (64 << 10)
#define PIECES 32
#define SIZE (PIECE * PIECES)
#define OFTEN 40

// Each word says which file it is of, and where it is.
static uint64_t word(unsigned file, uint64_t at) {
    return (uint64_t)file << 56 | at;
}
static void fill(uint64_t *b, unsigned file, uint64_t at, size_t n) {
    for (size_t i = 0; i < n / 8; i++) b[i] = word(file, at + i * 8);
}
static int is(const void *b, unsigned file, uint64_t at, size_t n) {
    const uint64_t *w = b;
    for (size_t i = 0; i < n / 8; i++)
        if (w[i] != word(file, at + i * 8)) return 0;
    return 1;
}
static int make(const char *name, unsigned file) {
    static uint64_t b[PIECE / 8];
    int fd = SYS(open(name, O_RDWR | O_CREAT | O_TRUNC, 0644));
    for (int i = 0; i < PIECES; i++) {
        fill(b, file, (uint64_t)i * PIECE, PIECE);
        CHECK_EQ(write(fd, b, PIECE), PIECE);
    }
    close(fd);
    return SYS(open(name, O_RDWR));
}
static void *memory(size_t n) {
    void *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}
// Reads so often that whatever makes it fast is at work afterwards.
static void often(int fd, unsigned file, char *b) {
    for (int i = 0; i < OFTEN; i++) {
        uint64_t at = (uint64_t)(i % PIECES) * PIECE;
        memset(b, 0, 4096);
        CHECK_EQ(pread(fd, b, PIECE, at), PIECE);
        CHECK(is(b, file, at, PIECE));
    }
}

TEST(positions) {
    int fd = make("f", 1);
    char *b = memory(2 * PIECE);
    often(fd, 1, b);
    for (int i = 0; i < OFTEN; i++) {
        off_t at = (i * 7 % PIECES) * PIECE + 8 * i;
        SYS(lseek(fd, at, SEEK_SET));
        size_t left = SIZE - at, n = left < PIECE ? left : PIECE;
        CHECK_EQ(read(fd, b, PIECE), n);
        CHECK(is(b, 1, at, n));
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), at + n);
    }
    SYS(lseek(fd, SIZE - 3 * PIECE / 2, SEEK_SET));
    CHECK_EQ(read(fd, b, PIECE), PIECE);
    CHECK_EQ(read(fd, b, PIECE), PIECE / 2);
    CHECK(is(b, 1, SIZE - PIECE / 2, PIECE / 2));
    CHECK_EQ(read(fd, b, PIECE), 0);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), SIZE);
    CHECK_EQ(pread(fd, b, PIECE, SIZE), 0);
    CHECK_EQ(pread(fd, b, PIECE, SIZE + 5), 0);
    CHECK_EQ(pread(fd, b, 2 * PIECE, SIZE - PIECE), PIECE);
    CHECK_ERR(pread(fd, b, PIECE, -1), EINVAL);
}

TEST(bad_memory) {
    int fd = make("f", 2);
    char *b = memory(4 * PIECE);
    for (int round = 0; round < 3; round++) {
        often(fd, 2, b);
        SYS(munmap(b + PIECE, PIECE));
        // As much as there is room for.
        CHECK_EQ(pread(fd, b + PIECE / 2, PIECE, 0), PIECE / 2);
        CHECK(is(b + PIECE / 2, 2, 0, PIECE / 2));
        SYS(lseek(fd, 0, SEEK_SET));
        CHECK_EQ(read(fd, b + PIECE / 2, PIECE), PIECE / 2);
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), PIECE / 2);
        CHECK_ERR(read(fd, b + PIECE, PIECE), EFAULT);
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), PIECE / 2);
        SYS(mprotect(b + 2 * PIECE, PIECE, PROT_READ));
        CHECK_ERR(pread(fd, b + 2 * PIECE, PIECE, 0), EFAULT);
        SYS(mprotect(b + 2 * PIECE, PIECE, PROT_READ | PROT_WRITE));
        CHECK_EQ(pread(fd, b + 2 * PIECE, PIECE, 0), PIECE);
        CHECK(mmap(b + PIECE, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == b + PIECE);
    }
}

TEST(shorter_and_longer) {
    int fd = make("f", 3), other = SYS(open("f", O_RDWR));
    char *b = memory(PIECE);
    for (int round = 0; round < 3; round++) {
        often(fd, 3, b);
        SYS(ftruncate(other, PIECE / 2));
        SYS(lseek(fd, 0, SEEK_SET));
        CHECK_EQ(read(fd, b, PIECE), PIECE / 2);
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), PIECE / 2);
        CHECK_EQ(pread(fd, b, PIECE, 0), PIECE / 2);
        SYS(ftruncate(other, SIZE));
        CHECK_EQ(pread(fd, b, PIECE, 0), PIECE);
        CHECK(is(b, 3, 0, PIECE / 2) && b[PIECE / 2] == 0 && b[PIECE - 1] == 0);
        static uint64_t w[PIECE / 8];
        for (int i = 0; i < PIECES; i++) {
            fill(w, 3, (uint64_t)i * PIECE, PIECE);
            CHECK_EQ(pwrite(other, w, PIECE, (off_t)i * PIECE), PIECE);
        }
    }
    // O_TRUNC, by its name.
    often(fd, 3, b);
    close(SYS(open("f", O_WRONLY | O_TRUNC)));
    CHECK_EQ(pread(fd, b, PIECE, 0), 0);
}

TEST(what_was_written_is_read) {
    int fd = make("f", 4);
    char *b = memory(PIECE);
    often(fd, 4, b);
    uint64_t w[512];
    for (int i = 0; i < OFTEN; i++) {
        off_t at = (i % PIECES) * PIECE;
        fill(w, 100 + i, at, sizeof w);
        CHECK_EQ(pwrite(fd, w, sizeof w, at), sizeof w);
        CHECK_EQ(pread(fd, b, PIECE, at), PIECE);
        CHECK(is(b, 100 + i, at, sizeof w));
    }
    char *m = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(m != MAP_FAILED);
    memset(m + PIECE, 'm', PIECE);
    CHECK_EQ(pread(fd, b, PIECE, PIECE), PIECE);
    CHECK(b[0] == 'm' && b[PIECE - 1] == 'm');
}

// More files than anybody keeps ready, read in turn.
TEST(many_files) {
    enum { FILES = 20 };
    int fd[FILES];
    char *b = memory(PIECE), name[20];
    for (int i = 0; i < FILES; i++) {
        sprintf(name, "f%d", i);
        fd[i] = make(name, i);
    }
    for (int round = 0; round < 12; round++)
        for (int i = 0; i < FILES; i++)
            for (int k = 0; k <= round; k++) {
                uint64_t at = (uint64_t)((round + k) % PIECES) * PIECE;
                CHECK_EQ(pread(fd[i], b, PIECE, at), PIECE);
                CHECK(is(b, i, at, PIECE));
            }
}

// A descriptor's number is another file's after close(2), dup2(2).
TEST(numbers_again) {
    char *b = memory(PIECE), name[20];
    for (int i = 0; i < 12; i++) {
        sprintf(name, "f%d", i % 3);
        int fd = make(name, i);
        often(fd, i, b);
        close(fd);
    }
    int a = make("a", 50), c = make("c", 51);
    often(a, 50, b);
    SYS(dup2(c, a));
    often(a, 51, b);
    close(c);
    often(a, 51, b);
}

TEST(removed_files) {
    int fd = make("f", 5);
    char *b = memory(PIECE);
    often(fd, 5, b);
    SYS(unlink("f"));
    often(fd, 5, b);
    int other = make("f", 6);
    often(other, 6, b);
    often(fd, 5, b);
}

struct reader {
    int fd;
    unsigned file;
    pthread_t thread;
};
static void *reads(void *a) {
    struct reader *r = a;
    char *b = memory(PIECE);
    for (int i = 0; i < 10; i++) often(r->fd, r->file, b);
    return 0;
}
static void *opens(void *a) {
    for (int i = 0; i < 200; i++) {
        int fd = open("f0", O_RDONLY);
        CHECK(fd >= 0);
        char c[8];
        CHECK_EQ(pread(fd, c, 8, 0), 8);
        close(fd);
        if (i % 10 == 0) usleep(1000);
    }
    return a;
}
TEST(threads) {
    enum { THREADS = 12 };
    struct reader r[THREADS];
    pthread_t t;
    char name[20];
    for (int i = 0; i < THREADS; i++) {
        sprintf(name, "f%d", i);
        r[i] = (struct reader){make(name, i), i, 0};
    }
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&r[i].thread, 0, reads, &r[i]), 0);
    CHECK_EQ(pthread_create(&t, 0, opens, 0), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(r[i].thread, 0);
    pthread_join(t, 0);
}

TEST(children) {
    int fd = make("f", 7);
    char *b = memory(PIECE);
    often(fd, 7, b);
    SYS(lseek(fd, 0, SEEK_SET));
    pid_t c[4];
    for (int i = 0; i < 4; i++)
        if (!(c[i] = SYS(fork()))) {
            int own = make(i % 2 ? "x" : "y", 8), known = 0;
            close(own);
            often(fd, 7, b);
            // The position is shared: each piece goes to one of them.
            while (read(fd, b, PIECE) == PIECE) {
                uint64_t at;
                memcpy(&at, b, 8);
                at &= ~(0xfful << 56);
                CHECK_EQ(at % PIECE, 0);
                CHECK(is(b, 7, at, PIECE));
                known++;
            }
            _exit(known);
        }
    int all = 0, status;
    for (int i = 0; i < 4; i++) {
        SYS(waitpid(c[i], &status, 0));
        CHECK(WIFEXITED(status));
        all += WEXITSTATUS(status);
    }
    CHECK_EQ(all, PIECES);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), SIZE);
}

static volatile int ticks;
static void tick(int sig) {
    (void)sig;
    ticks++;
}
TEST(signals) {
    int fd = make("f", 9);
    char *b = memory(SIZE);
    struct sigaction sa = {.sa_handler = tick};
    SYS(sigaction(SIGALRM, &sa, 0));
    struct itimerval every = {{0, 500}, {0, 500}};
    SYS(setitimer(ITIMER_REAL, &every, 0));
    for (int i = 0; i < 200 || (ticks < 20 && i < 100000); i++) {
        SYS(lseek(fd, 0, SEEK_SET));
        CHECK_EQ(read(fd, b, SIZE), SIZE);
        if (i % 16 == 0) CHECK(is(b, 9, 0, SIZE));
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), SIZE);
        // In the same breath: nothing to be had, and memory that is not there.
        CHECK_EQ(read(fd, b, PIECE), 0);
    }
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(pread(fd, b, SIZE, PIECE), SIZE - PIECE);
        CHECK_ERR(pread(fd, (void *)4096, SIZE, 0), EFAULT);
        CHECK_EQ(pread(fd, b, SIZE, 0), SIZE);
    }
    CHECK(ticks > 0);
}

// A file that is open for writing only stays unreadable, one for reading only unwritable.
TEST(rights) {
    int fd = make("f", 10), w = SYS(open("f", O_WRONLY)), r = SYS(open("f", O_RDONLY));
    char *b = memory(PIECE);
    often(fd, 10, b);
    often(r, 10, b);
    CHECK_ERR(pread(w, b, PIECE, 0), EBADF);
    CHECK_ERR(pwrite(r, b, PIECE, 0), EBADF);
    int p = SYS(open("f", O_PATH));
    CHECK_ERR(read(p, b, PIECE), EBADF);
    CHECK_ERR(read(SYS(open(".", O_RDONLY)), b, PIECE), EISDIR);
}

TEST(vectors_and_flags) {
    int fd = make("f", 11);
    char *b = memory(2 * PIECE);
    often(fd, 11, b);
    struct iovec one = {b, PIECE}, two[2] = {{b, PIECE}, {b + PIECE, PIECE}};
    for (int i = 0; i < OFTEN; i++) {
        off_t at = (i % (PIECES - 2)) * PIECE;
        CHECK_EQ(preadv(fd, &one, 1, at), PIECE);
        CHECK(is(b, 11, at, PIECE));
        CHECK_EQ(preadv(fd, two, 2, at), 2 * PIECE);
        CHECK(is(b, 11, at, 2 * PIECE));
        CHECK_EQ(preadv2(fd, &one, 1, at, 0), PIECE);
        CHECK(is(b, 11, at, PIECE));
    }
    SYS(fcntl(fd, F_SETFL, O_APPEND));
    often(fd, 11, b);
}

TEST(written_by_positions) {
    int fd = make("f", 20), r = SYS(open("f", O_RDONLY));
    char *b = memory(SIZE), *back = memory(SIZE);
    struct stat st;
    for (int round = 0; round < 4; round++) {
        SYS(ftruncate(fd, 0));
        SYS(lseek(fd, 0, SEEK_SET));
        for (int i = 0; i < PIECES; i++) {
            fill((uint64_t *)b, 20 + round, (uint64_t)i * PIECE, PIECE);
            CHECK_EQ(write(fd, b, PIECE), PIECE);
            CHECK_EQ(lseek(fd, 0, SEEK_CUR), (i + 1) * PIECE);
            SYS(fstat(r, &st));
            CHECK_EQ(st.st_size, (i + 1) * PIECE);
            SYS(stat("f", &st));
            CHECK_EQ(st.st_size, (i + 1) * PIECE);
        }
        CHECK_EQ(pread(r, back, SIZE, 0), SIZE);
        CHECK(is(back, 20 + round, 0, SIZE));
        for (int i = PIECES - 1; i >= 0; i--) {
            fill((uint64_t *)b, 40 + round, (uint64_t)i * PIECE, PIECE);
            CHECK_EQ(pwrite(fd, b, PIECE, (off_t)i * PIECE), PIECE);
        }
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), SIZE);
        CHECK_EQ(pread(r, back, SIZE, 0), SIZE);
        CHECK(is(back, 40 + round, 0, SIZE));
    }
    // Beyond the end: what is between reads as zeros.
    SYS(lseek(fd, 2 * SIZE, SEEK_SET));
    CHECK_EQ(write(fd, b, PIECE), PIECE);
    SYS(fstat(fd, &st));
    CHECK_EQ(st.st_size, 2 * SIZE + PIECE);
    CHECK_EQ(pread(r, back, PIECE, SIZE), PIECE);
    CHECK(back[0] == 0 && back[PIECE - 1] == 0);
}

static void write_often(int fd, char *b) {
    for (int i = 0; i < OFTEN; i++) CHECK_EQ(pwrite(fd, b, PIECE, (off_t)(i % PIECES) * PIECE), PIECE);
}

TEST(writes_from_bad_memory) {
    int fd = make("f", 21);
    char *b = memory(4 * PIECE), *back = memory(PIECE);
    memset(b, 'w', 4 * PIECE);
    for (int round = 0; round < 3; round++) {
        write_often(fd, b);
        SYS(munmap(b + PIECE, PIECE));
        SYS(lseek(fd, 0, SEEK_SET));
        CHECK_EQ(write(fd, b + PIECE / 2, PIECE), PIECE / 2);
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), PIECE / 2);
        CHECK_ERR(write(fd, b + PIECE, PIECE), EFAULT);
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), PIECE / 2);
        CHECK(mmap(b + PIECE, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == b + PIECE);
    }
    CHECK_EQ(pread(fd, back, PIECE, 0), PIECE);
    CHECK(back[0] == 'w');
}

TEST(appended) {
    int fd = SYS(open("f", O_RDWR | O_CREAT | O_APPEND, 0644));
    char *b = memory(PIECE), *back = memory(PIECE);
    struct stat st;
    for (int i = 0; i < OFTEN; i++) {
        memset(b, 'a' + i % 26, PIECE);
        SYS(lseek(fd, 0, SEEK_SET));
        CHECK_EQ(write(fd, b, PIECE), PIECE);
        SYS(fstat(fd, &st));
        CHECK_EQ(st.st_size, (i + 1) * PIECE);
        CHECK_EQ(pread(fd, back, PIECE, (off_t)i * PIECE), PIECE);
        CHECK(!memcmp(b, back, PIECE));
    }
    // The flag comes and goes.
    SYS(fcntl(fd, F_SETFL, 0));
    write_often(fd, b);
    SYS(fcntl(fd, F_SETFL, O_APPEND));
    SYS(fstat(fd, &st));
    off_t size = st.st_size;
    CHECK_EQ(write(fd, b, PIECE), PIECE);
    SYS(fstat(fd, &st));
    CHECK_EQ(st.st_size, size + PIECE);
}

// The limit of the file size holds, and the rights of the descriptor, whoever makes the write.
TEST(writes_have_rules) {
    int fd = make("f", 22);
    char *b = memory(PIECE);
    struct stat st;
    write_often(fd, b);
    struct rlimit limit = {SIZE, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    SYS(setrlimit(RLIMIT_FSIZE, &limit));
    write_often(fd, b);
    CHECK_EQ(pwrite(fd, b, PIECE, SIZE - PIECE / 2), PIECE / 2);
    CHECK_ERR(pwrite(fd, b, PIECE, SIZE), EFBIG);
    SYS(fstat(fd, &st));
    CHECK_EQ(st.st_size, SIZE);
    int r = SYS(open("f", O_RDONLY));
    CHECK_ERR(pwrite(r, b, PIECE, 0), EBADF);
}

// Whoever sees that a write has been made sees its size and its bytes.
TEST(others_see_writes) {
    enum { LAPS = 200 };
    _Atomic int *done = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int fd = SYS(open("f", O_RDWR | O_CREAT, 0644));
    char *b = memory(PIECE);
    pid_t child = SYS(fork());
    if (!child) {
        struct stat st;
        for (int seen = 0, now; seen < LAPS; seen = now) {
            now = *done;
            SYS(stat("f", &st));
            CHECK(st.st_size >= (off_t)now * PIECE);
            if (now) CHECK_EQ(pread(fd, b, PIECE, (off_t)(now - 1) * PIECE), PIECE);
            if (now == seen) usleep(100);
        }
        _exit(0);
    }
    for (int i = 0; i < LAPS; i++) {
        CHECK_EQ(write(fd, b, PIECE), PIECE);
        *done = i + 1;
        if (i % 20 == 0) usleep(300);
    }
    int status;
    SYS(waitpid(child, &status, 0));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

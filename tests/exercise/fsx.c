// Random operations on one file, each checked against a copy in memory.
//
//   fsx SEED SECONDS FILE
//
// The first difference ends it with what was done last and the seed that does the same again.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX (300 << 10)
#define PAGE 4096
#define REMEMBERED 24

static unsigned char model[MAX], buffer[MAX];
static size_t size; // of the model
static uint64_t state, operation;
static unsigned long seed;
static const char *path;
static int fd, appending;
static char history[REMEMBERED][96];

static uint64_t rnd(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return below ? (state >> 11) % below : 0;
}

#define NOTE(...) snprintf(history[operation % REMEMBERED], sizeof history[0], __VA_ARGS__)

static void die(const char *what, uint64_t a, uint64_t b) {
    fprintf(stderr, "fsx: seed %lu, operation %lu: %s (%lu, %lu), errno %s\n", seed, (long)operation, what, (long)a,
            (long)b, strerrorname_np(errno));
    for (uint64_t n = operation < REMEMBERED ? 0 : operation - REMEMBERED + 1; n <= operation; n++)
        fprintf(stderr, "  %lu: %s\n", (long)n, history[n % REMEMBERED]);
    exit(1);
}

static void same(const unsigned char *got, size_t off, size_t len) {
    if (!memcmp(got, model + off, len)) return;
    for (size_t i = 0; i < len; i++)
        if (got[i] != model[off + i]) {
            errno = 0;
            fprintf(stderr, "fsx: byte %zu is %d rather than %d\n", off + i, got[i], model[off + i]);
            die("content differs", off, len);
        }
}

static void fill(unsigned char *to, size_t len) {
    unsigned char start = rnd(255) + 1;
    for (size_t i = 0; i < len; i++) to[i] = start + i % 251;
}

// The model's size grows or shrinks; what is new is zero.
static void resize(size_t to) {
    if (to > size) memset(model + size, 0, to - size);
    size = to;
}

static void check_size(void) {
    struct stat st;
    if (fstat(fd, &st) || (size_t)st.st_size != size) die("size", st.st_size, size);
}

static void do_read(void) {
    size_t off = rnd(MAX), len = rnd(MAX / 4);
    size_t want = off >= size ? 0 : off + len > size ? size - off : len;
    NOTE("read %zu at %zu", len, off);
    ssize_t n = pread(fd, buffer, len, off);
    if (n != (ssize_t)want) die("read", n, want);
    same(buffer, off, n);
}

static void do_write(void) {
    size_t len = rnd(5) ? rnd(9000) : rnd(MAX / 4), off = rnd(MAX - len);
    NOTE("write %zu at %zu", len, off);
    fill(buffer, len);
    if (pwrite(fd, buffer, len, off) != (ssize_t)len) die("write", len, off);
    if (!len) return;
    if (off + len > size) resize(off + len);
    memcpy(model + off, buffer, len);
}

static void do_append(void) {
    size_t len = rnd(5000);
    if (size + len > MAX) return;
    NOTE("append %zu", len);
    fill(buffer, len);
    if (write(appending, buffer, len) != (ssize_t)len) die("append", len, size);
    memcpy(model + size, buffer, len);
    size += len;
}

static void do_truncate(void) {
    size_t to = rnd(3) ? rnd(MAX) : 0;
    NOTE("truncate to %zu", to);
    if (rnd(2) ? ftruncate(fd, to) : truncate(path, to)) die("truncate", to, size);
    resize(to);
}

static void do_map(int writes) {
    if (!size) return;
    size_t off = rnd(size) / PAGE * PAGE, len = rnd(size - off) + 1;
    NOTE("%s %zu at %zu by a mapping", writes ? "write" : "read", len, off);
    int shared = writes || rnd(2);
    unsigned char *p = mmap(0, len, PROT_READ | (writes ? PROT_WRITE : 0), shared ? MAP_SHARED : MAP_PRIVATE, fd, off);
    if (p == MAP_FAILED) die("mmap", off, len);
    same(p, off, len);
    // The rest of the last page reads as zero.
    size_t end = (len + PAGE - 1) / PAGE * PAGE;
    if (off + len == size)
        for (size_t i = len; i < end; i++)
            if (p[i]) die("behind the end is not zero", i, p[i]);
    if (writes) {
        size_t at = rnd(len), n = rnd(len - at) + 1;
        fill(p + at, n);
        memcpy(model + off + at, p + at, n);
        if (rnd(2) && msync(p, len, rnd(2) ? MS_SYNC : MS_ASYNC)) die("msync", off, len);
    }
    if (munmap(p, len)) die("munmap", off, len);
}

static void do_allocate(void) {
    size_t off = rnd(MAX - 1), len = rnd(MAX - off) + 1;
    int mode = (int[]){0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE}[rnd(4)];
    NOTE("fallocate mode %d of %zu at %zu", mode, len, off);
    if (fallocate(fd, mode, off, len)) {
        if (errno == EOPNOTSUPP && mode) return;
        die("fallocate", off, len);
    }
    if (!(mode & FALLOC_FL_KEEP_SIZE) && off + len > size) resize(off + len);
    if ((mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) && off < size)
        memset(model + off, 0, off + len > size ? size - off : len);
}

static void do_copy(void) {
    if (size < 2) return;
    size_t half = size / 2, len = rnd(half) + 1, from = rnd(half - len + 1), to = half + rnd(MAX - half - len);
    NOTE("copy_file_range %zu from %zu to %zu", len, from, to);
    off_t in = from, out = to;
    ssize_t n = copy_file_range(fd, &in, fd, &out, len, 0);
    if (n < 0 || (size_t)n > len || in != (off_t)from + n || out != (off_t)to + n) die("copy_file_range", n, len);
    if (!n) return;
    if (to + n > size) resize(to + n);
    memmove(model + to, model + from, n);
}

// What is called a hole holds zeros, and holes and data together are the file.
static void do_seek(void) {
    NOTE("holes");
    off_t at = 0;
    while ((size_t)at < size) {
        off_t data = lseek(fd, at, SEEK_DATA);
        if (data < 0 && errno != ENXIO) die("SEEK_DATA", at, size);
        size_t end = data < 0 ? size : (size_t)data;
        if (end < (size_t)at || end > size) die("data begins", end, size);
        for (size_t i = at; i < end; i++)
            if (model[i]) die("a hole where there are data", i, end);
        if (data < 0) break;
        off_t hole = lseek(fd, data, SEEK_HOLE);
        if (hole <= data || (size_t)hole > size) die("SEEK_HOLE", data, hole);
        at = hole;
    }
}

static void do_reopen(void) {
    NOTE("%s and open again", rnd(2) ? "fsync" : "close");
    if (rnd(2) && (rnd(2) ? fsync(fd) : fdatasync(fd))) die("fsync", 0, 0);
    close(fd), close(appending);
    fd = open(path, O_RDWR), appending = open(path, O_WRONLY | O_APPEND);
    if (fd < 0 || appending < 0) die("open", 0, 0);
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: fsx SEED SECONDS FILE\n"), 2;
    seed = strtoul(argv[1], 0, 10), path = argv[3];
    state = seed * 0x9e3779b97f4a7c15 + 1;
    time_t end = time(0) + atoi(argv[2]);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), appending = open(path, O_WRONLY | O_APPEND);
    if (fd < 0 || appending < 0) return perror(path), 2;
    for (; time(0) < end; operation++) {
        switch (rnd(22)) {
        case 0 ... 4: do_read(); break;
        case 5 ... 9: do_write(); break;
        case 10 ... 11: do_append(); break;
        case 12: do_truncate(); break;
        case 13 ... 14: do_map(0); break;
        case 15 ... 16: do_map(1); break;
        case 17 ... 18: do_allocate(); break;
        case 19: do_copy(); break;
        case 20: do_seek(); break;
        case 21: do_reopen(); break;
        }
        check_size();
        if (operation % 50 == 49) {
            NOTE("everything");
            if (pread(fd, buffer, MAX, 0) != (ssize_t)size) die("read of everything", 0, size);
            same(buffer, 0, size);
        }
    }
    unlink(path);
    printf("%lu operations\n", (long)operation);
    return 0;
}

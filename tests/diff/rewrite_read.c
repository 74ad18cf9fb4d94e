// What others read of a program's text is what its file has, though many processes have made calls from it: a program that
// maps libraries itself (translators do), process_vm_readv(2), /proc/PID/mem.
#include "t.h"
#include <elf.h>
#include <sys/mman.h>
#include <sys/uio.h>

// Programs with libraries, so many that their call sites are worth a change for all that come later.
static void others_call(int n) {
    for (int i = 0; i < n; i++) {
        pid_t k = FORK();
        if (k == 0) {
            execl("/bin/sh", "sh", "-c", "x=$(echo); read y </etc/passwd; kill -0 $$", (char *)0);
            _exit(9);
        }
        CHECK_STATUS(t_status(k), "exit 0");
    }
}
struct text {
    char path[256];
    unsigned long start, end, offset;
};
// The executable mappings of a process that are of libraries; how many.
static int texts(pid_t pid, struct text *t, int max) {
    char name[64], line[512];
    sprintf(name, "/proc/%d/maps", pid);
    FILE *f = fopen(name, "r");
    MUST(f);
    int n = 0;
    while (n < max && fgets(line, sizeof line, f)) {
        char prot[8] = "";
        t[n].path[0] = 0;
        sscanf(line, "%lx-%lx %7s %lx %*s %*s %255s", &t[n].start, &t[n].end, prot, &t[n].offset, t[n].path);
        if (!strcmp(prot, "r-xp") && strstr(t[n].path, ".so")) n++;
    }
    fclose(f);
    return n;
}
static char *file_bytes(const struct text *t) {
    char *b = calloc(1, t->end - t->start);
    int fd = SYS(open(t->path, O_RDONLY));
    CHECK(pread(fd, b, t->end - t->start, t->offset) > 0);
    close(fd);
    return b;
}
static void same_text(const char *how, const struct text *t, const char *got) {
    char *want = file_bytes(t);
    for (unsigned long i = 0, shown = 0; i < t->end - t->start && shown < 3; i++)
        if (want[i] != got[i]) {
            t_fail(__FILE__, __LINE__, "%s: %s at %lx: %02x, in the file %02x", how, t->path, t->offset + i, got[i] & 255, want[i] & 255);
            shown++, i += 16;
        }
    free(want);
}
// A child with libraries, which waits; its input.
static pid_t waits(int *in) {
    int p[2];
    SYS(pipe(p));
    pid_t k = FORK();
    if (k == 0) {
        dup2(p[0], 0);
        close(p[0]), close(p[1]);
        execl("/bin/sh", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do kill -0 $$; x=$(echo); done; echo ready >here; read x; exit 0", (char *)0);
        _exit(9);
    }
    close(p[0]);
    *in = p[1];
    struct stat st;
    for (int i = 0; i < 2000 && (stat("here", &st) || st.st_size < 6); i++) t_ms(5);
    return k;
}

TEST(text_that_a_program_maps) {
    others_call(60);
    struct text t[8];
    int in, n;
    pid_t k = waits(&in);
    n = texts(k, t, 8);
    CHECK(n >= 2);
    for (int i = 0; i < n; i++) {
        int fd = SYS(open(t[i].path, O_RDONLY));
        // As a loader does: room first, the text over it; and the text alone.
        char *room = SYS(mmap(0, t[i].end - t[i].start + t[i].offset, PROT_READ, MAP_PRIVATE, fd, 0));
        char *over = SYS(mmap(room + t[i].offset, t[i].end - t[i].start, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, t[i].offset));
        char *alone = SYS(mmap(0, t[i].end - t[i].start, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, t[i].offset));
        same_text("mapped over", t + i, over);
        same_text("mapped", t + i, alone);
        close(fd);
    }
    close(in);
    CHECK_STATUS(t_status(k), "exit 0");
}
TEST(text_of_another_process) {
    others_call(60);
    struct text t[8];
    char name[64];
    int in, n;
    pid_t k = waits(&in);
    n = texts(k, t, 8);
    CHECK(n >= 2);
    sprintf(name, "/proc/%d/mem", k);
    int mem = SYS(open(name, O_RDONLY));
    for (int i = 0; i < n; i++) {
        size_t len = t[i].end - t[i].start;
        char *b = malloc(len);
        for (size_t done = 0; done < len;) {
            // Pieces that begin and end anywhere.
            struct iovec to = {b + done, len - done < 4099 ? len - done : 4099}, from = {(char *)t[i].start + done, to.iov_len};
            ssize_t got = SYS(process_vm_readv(k, &to, 1, &from, 1, 0));
            MUST(got > 0);
            done += got;
        }
        same_text("process_vm_readv", t + i, b);
        memset(b, 0, len);
        for (size_t done = 0; done < len;) {
            ssize_t got = SYS(pread(mem, b + done, len - done < 1021 ? len - done : 1021, t[i].start + done));
            MUST(got > 0);
            done += got;
        }
        same_text("/proc/PID/mem", t + i, b);
        free(b);
    }
    close(mem);
    close(in);
    CHECK_STATUS(t_status(k), "exit 0");
}
// A call site of this program: its own calls make it worth a change.
long own_call(long nr);
__asm__(".pushsection .text\n.p2align 6\nown_call: mov %rdi,%rax\n xor %edi,%edi\n syscall\n cmp $-4095,%rax\n ret\n .popsection\n");
TEST(text_of_itself_in_proc) {
    for (int i = 0; i < 100; i++) CHECK_EQ(own_call(SYS_getpid), getpid());
    static const unsigned char want[] = {0x48, 0x89, 0xf8, 0x31, 0xff, 0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0xc3};
    unsigned char got[sizeof want];
    int mem = SYS(open("/proc/self/mem", O_RDONLY));
    CHECK_EQ(pread(mem, got, sizeof got, (off_t)(uintptr_t)own_call), sizeof got);
    CHECK_MEM(got, want, sizeof got);
    for (size_t i = 0; i < sizeof want; i++) {
        CHECK_EQ(pread(mem, got, 1, (off_t)(uintptr_t)own_call + i), 1);
        CHECK_EQ(got[0], want[i]);
    }
    close(mem);
}

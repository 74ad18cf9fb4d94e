// Core files: when there is one, what it holds, its limits. See core(5).
#include "t.h"
#include <elf.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/procfs.h>
#include <cpuid.h>
#include <sys/resource.h>

static void limit(rlim_t n) {
    struct rlimit r = {n, n};
    OK(setrlimit(RLIMIT_CORE, &r));
}
static bool plain_pattern(void) {
    char text[256] = {0};
    int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY);
    bool plain = read(fd, text, sizeof text - 1) == 5 && !memcmp(text, "core\n", 5);
    close(fd);
    return plain;
}
static const char marker[] = "a string that the core file holds";
static char *kept;

// Runs `body`, which ends by a signal, with this limit; gives the wait status.
static int ends(rlim_t n, void (*body)(void)) {
    unlink("core");
    pid_t p = fork();
    if (p == 0) {
        limit(n);
        kept = strdup(marker);
        body();
        _exit(1);
    }
    int status = 0;
    CHECK_EQ(waitpid(p, &status, 0), p);
    return status;
}
static void *load(size_t *size) {
    int fd = open("core", O_RDONLY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) return 0;
    CHECK_EQ(st.st_mode, S_IFREG | 0600);
    *size = st.st_size;
    void *at = mmap(0, *size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    return at;
}
// The notes of a kind; the first one's bytes.
static int notes(char *core, unsigned kind, char **first) {
    Elf64_Ehdr *e = (void *)core;
    Elf64_Phdr *p = (void *)(core + e->e_phoff);
    int n = 0;
    for (char *at = core + p->p_offset, *end = at + p->p_filesz; at < end;) {
        Elf64_Nhdr *h = (void *)at;
        char *bytes = at + sizeof *h + (h->n_namesz + 3) / 4 * 4;
        if (h->n_type == kind && n++ == 0 && first) *first = bytes;
        at = bytes + (h->n_descsz + 3) / 4 * 4;
    }
    return n;
}
static void aborts(void) { abort(); }
TEST(cut_off_by_the_limit) {
    static char much[4 << 20];
    memset(much, 1, sizeof much);
    CHECK(WCOREDUMP(ends(4096, aborts)));
    CHECK(WCOREDUMP(ends(1 << 20, aborts)));
    struct stat st;
    OK(stat("core", &st));
    CHECK(st.st_size < 3 << 20);
}
static void faults(void) { *(volatile int *)8 = 1; }

TEST(abort_leaves_a_core) {
    if (!plain_pattern()) SKIP("core_pattern is another");
    int status = ends(RLIM_INFINITY, aborts);
    CHECK_EQ(status, SIGABRT | 0x80);
    size_t size = 0;
    char *core = load(&size), *note = 0;
    CHECK(core != 0);
    if (!core) return;
    Elf64_Ehdr *e = (void *)core;
    CHECK_EQ(memcmp(e->e_ident, ELFMAG, 4), 0);
    CHECK_EQ(e->e_type, ET_CORE);
    CHECK_EQ(e->e_machine, EM_X86_64);
    CHECK(e->e_phnum > 5);
    Elf64_Phdr *p = (void *)(core + e->e_phoff);
    CHECK_EQ(p->p_type, PT_NOTE);
    CHECK_EQ(notes(core, NT_PRSTATUS, &note), 1);
    struct elf_prstatus *st = (void *)note;
    CHECK_EQ(st->pr_cursig, SIGABRT);
    CHECK_EQ(st->pr_ppid, getpid());
    CHECK_EQ(notes(core, NT_PRPSINFO, &note), 1);
    CHECK_EQ(((struct elf_prpsinfo *)note)->pr_uid, getuid());
    CHECK_EQ(notes(core, NT_SIGINFO, &note), 1);
    CHECK_EQ(((siginfo_t *)note)->si_code, SI_TKILL);
    CHECK_EQ(notes(core, NT_AUXV, 0), 1);
    CHECK_EQ(notes(core, NT_FILE, 0), 1);
    CHECK_EQ(notes(core, NT_FPREGSET, 0), 1);
    CHECK_EQ(notes(core, NT_X86_XSTATE, &note), 1);
    uint64_t components = *(uint64_t *)(note + 464) & ~3ull;
    CHECK_EQ(notes(core, 0x205 /* NT_X86_XSAVE_LAYOUT */, &note), components != 0);
    for (int i = 2; components; i++) {
        unsigned layout[4], a, b, c, d;
        if (!(components & 1ull << i)) continue;
        components &= ~(1ull << i);
        memcpy(layout, note, sizeof layout);
        __cpuid_count(0xd, i, a, b, c, d);
        CHECK_EQ(layout[0], i);
        CHECK_EQ(layout[1], a);
        CHECK_EQ(layout[2], b);
        CHECK_EQ(layout[3], 0);
        note += sizeof layout;
    }
    CHECK(memmem(core + p->p_offset + p->p_filesz, size - p->p_offset - p->p_filesz, marker, sizeof marker) != 0);
    for (int i = 1; i < e->e_phnum; i++) {
        CHECK_EQ(p[i].p_type, PT_LOAD);
        CHECK(p[i].p_offset + p[i].p_filesz <= size && p[i].p_filesz <= p[i].p_memsz);
    }
}
TEST(a_fault_is_in_the_core) {
    if (!plain_pattern()) SKIP("core_pattern is another");
    CHECK_EQ(ends(RLIM_INFINITY, faults), SIGSEGV | 0x80);
    size_t size = 0;
    char *core = load(&size), *note = 0;
    CHECK(core != 0);
    if (!core) return;
    CHECK_EQ(notes(core, NT_SIGINFO, &note), 1);
    CHECK_EQ(((siginfo_t *)note)->si_signo, SIGSEGV);
    CHECK_EQ((long)((siginfo_t *)note)->si_addr, 8);
}
static void *waits(void *arg) {
    for (;;) pause();
    return arg;
}
static void *spins(void *arg) {
    for (;;) sched_yield();
    return arg;
}
static void threads(void) {
    pthread_t t;
    pthread_create(&t, 0, waits, 0);
    pthread_create(&t, 0, spins, 0);
    usleep(20000);
    abort();
}
TEST(all_threads_are_in_the_core) {
    if (!plain_pattern()) SKIP("core_pattern is another");
    CHECK_EQ(ends(RLIM_INFINITY, threads), SIGABRT | 0x80);
    size_t size = 0;
    char *core = load(&size);
    CHECK(core != 0);
    if (core) CHECK_EQ(notes(core, NT_PRSTATUS, 0), 3);
}
TEST(no_core) {
    CHECK_EQ(ends(0, aborts), SIGABRT);
    CHECK_ERR(access("core", F_OK), ENOENT);
    CHECK_EQ(ends(1, aborts), SIGABRT);
    pid_t p = fork();
    if (p == 0) {
        limit(RLIM_INFINITY);
        prctl(PR_SET_DUMPABLE, 0);
        abort();
    }
    int status;
    waitpid(p, &status, 0);
    CHECK_EQ(status, SIGABRT);
    OK(mkdir("core", 0700)); // not a regular file
    CHECK_EQ(ends(RLIM_INFINITY, aborts), SIGABRT);
    rmdir("core");
    OK(symlink("other", "core"));
    p = fork();
    if (p == 0) {
        limit(RLIM_INFINITY);
        abort();
    }
    waitpid(p, &status, 0);
    CHECK_EQ(status, SIGABRT | 0x80); // in place of the link
    CHECK_ERR(access("other", F_OK), ENOENT);
    struct stat st;
    OK(lstat("core", &st));
    CHECK_EQ(st.st_mode, S_IFREG | 0600);
    unlink("core");
}
TEST(the_filter) {
    char text[32] = {0};
    int fd = open("/proc/self/coredump_filter", O_RDWR);
    CHECK_EQ(read(fd, text, sizeof text - 1), 9);
    CHECK_EQ(strcmp(text, "00000033\n"), 0);
    CHECK_EQ(pwrite(fd, "0x7f\n", 5, 0), 5);
    pid_t p = fork();
    if (p == 0) {
        int own = open("/proc/self/coredump_filter", O_RDONLY);
        CHECK_EQ(read(own, text, sizeof text - 1), 9);
        CHECK_EQ(strcmp(text, "0000007f\n"), 0); // inherited
        _exit(0);
    }
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_ERR(pwrite(fd, "x", 1, 0), EINVAL);
}

static char *secret, *shown;
static void aborts_with_advice(void) {
    secret = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    shown = secret + 4096;
    strcpy(secret, "what nobody is to find: 1");
    strcpy(shown, "what everybody may find: 2");
    secret[24]++, shown[25]++; // the program's own text has neither
    OK(madvise(secret, 8192, MADV_DONTDUMP));
    OK(madvise(shown, 4096, MADV_DODUMP));
    abort();
}
TEST(what_is_not_to_be_dumped) {
    if (!plain_pattern()) SKIP("core_pattern is another");
    CHECK_EQ(ends(RLIM_INFINITY, aborts_with_advice), SIGABRT | 0x80);
    size_t size = 0;
    char *core = load(&size), one[] = "what nobody is to find: 1", other[] = "what everybody may find: 2";
    CHECK(core != 0);
    if (!core) return;
    one[24]++, other[25]++;
    CHECK(!memmem(core, size, one, sizeof one));
    CHECK(memmem(core, size, other, sizeof other));
}

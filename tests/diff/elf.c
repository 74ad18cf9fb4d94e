// Programs with unusual segments: what execve(2) loads and what it refuses.
#include "t.h"
#include <elf.h>

// Programs of 12 bytes: exit(42), at 0x1000 and 0x2010 of the file; at 0x3000 one of 20 that writes to 0x500000 before.
static const char *tiny(int type, unsigned long entry, const Elf64_Phdr *ph, int n) {
    static const unsigned char code[] = {0xb8, 60, 0, 0, 0, 0xbf, 42, 0, 0, 0, 0x0f, 5};
    static char b[0x5000], text[64];
    memset(b, 0, sizeof b);
    Elf64_Ehdr *h = (void *)b;
    memcpy(h->e_ident, ELFMAG, 4);
    h->e_ident[4] = 2, h->e_ident[5] = 1, h->e_ident[6] = 1;
    h->e_type = type, h->e_machine = EM_X86_64, h->e_version = 1, h->e_entry = entry;
    h->e_phoff = 64, h->e_ehsize = 64, h->e_phentsize = 56, h->e_phnum = n;
    memcpy(b + 64, ph, 56 * n);
    memcpy(b + 0x1000, code, sizeof code);
    memcpy(b + 0x2010, code, sizeof code);
    memcpy(b + 0x3000, (char[]){0xc6, 4, 0x25, 0, 0, 0x50, 0, 1}, 8);
    memcpy(b + 0x3008, code, sizeof code);
    unlink("tiny");
    int fd = SYS(open("tiny", O_CREAT | O_WRONLY, 0755));
    MUST(write(fd, b, sizeof b) == sizeof b);
    close(fd);
    char *a[] = {"x", 0};
    return t_describe(CHILD({
        execve("./tiny", a, a + 1);
        _exit(errno);
    }), text);
}
#define LOAD(fl, off, va, fs, ms) {PT_LOAD, fl, off, va, va, fs, ms, 4096}
#define CODE LOAD(5, 0x1000, 0x401000, 12, 12)
#define PIE LOAD(5, 0x1000, 0x1000, 12, 12)
#define RUNS(want, type, entry, ...)                                                                                   \
    ({                                                                                                                 \
        Elf64_Phdr ph_[] = {__VA_ARGS__};                                                                              \
        CHECK_STR(tiny(type, entry, ph_, sizeof ph_ / sizeof *ph_), want);                                             \
        (void)0; \
    })
TEST(segments_of_all_kinds) {
    const char *ok = "exit 42", *killed = "signal 11";
    RUNS(ok, ET_EXEC, 0x401000, CODE);
    RUNS(ok, ET_EXEC, 0x401000, CODE, LOAD(6, 0, 0x500000, 0, 0x3000));
    RUNS(ok, ET_EXEC, 0x401000, LOAD(6, 0, 0x300000, 0, 0x3000), CODE);
    RUNS(ok, ET_EXEC, 0x401000, CODE, LOAD(6, 0x123, 0x500456, 0, 0x3000));
    RUNS(ok, ET_EXEC, 0x401000, CODE, LOAD(6, 0, 0x500000, 0, 0));
    RUNS(ok, ET_EXEC, 0x401000, LOAD(6, 0x2000, 0x600000, 16, 0x2000), CODE);
    RUNS(ok, ET_DYN, 0x1000, LOAD(6, 0x2000, 0x200000, 16, 0x2000), PIE);
    RUNS(ok, ET_EXEC, 0x402010, LOAD(5, 0x2010, 0x402010, 12, 12));
    RUNS(ok, ET_EXEC, 0x401000, CODE, LOAD(4, 0x2000, 0x500000, 16, 0x4000));
    // Zeroed memory is writable, whatever its segment says.
    RUNS(ok, ET_EXEC, 0x403000, LOAD(5, 0x3000, 0x403000, 20, 20), LOAD(4, 0, 0x500000, 0, 0x1000));
    RUNS(killed, ET_EXEC, 0x403000, LOAD(5, 0x3000, 0x403000, 20, 20), LOAD(4, 0x2000, 0x500000, 16, 0x1000));
    // An interpreter without a name.
    RUNS("exit 13", ET_EXEC, 0x401000, {PT_INTERP, 4, 0x4f00, 0, 0, 2, 2, 1}, CODE);
    // What cannot be loaded kills: the old program is gone already.
    RUNS(killed, ET_EXEC, 0x401010, LOAD(5, 0x1000, 0x401010, 12, 12));
    RUNS(killed, ET_DYN, 0x1010, LOAD(5, 0x1000, 0x1010, 12, 12));
    RUNS(killed, ET_EXEC, 0x401000, CODE, LOAD(6, 0x2010, 0x500000, 16, 16));
    RUNS(killed, ET_DYN, 0x1000, PIE, LOAD(6, 0x2000, 0x7ffffffff000, 16, 0x2000));
    RUNS(killed, ET_DYN, 0x1000, PIE, LOAD(6, 0x2000, 0xfffffffffffff000, 16, 16));
    RUNS(killed, ET_DYN, 0x1000, PIE, LOAD(6, 0x2000, 0x3000, 16, 0xfffffffffffff000));
    RUNS(killed, ET_DYN, 0x1000, PIE, LOAD(6, 0x2000, 0x3000, 16, 0x7ffffffff000));
    RUNS(killed, ET_EXEC, 0x401000, CODE, LOAD(6, 0x2000, 0x7ffffffff000, 16, 16));
    RUNS(killed, ET_EXEC, 0x401000, LOAD(5, 0x1000, 0x401000, 12, 4));
    RUNS(killed, ET_EXEC, 0x401000, CODE, LOAD(6, 0x7ffffffffffff000, 0x500000, 0x2000, 0x2000));
    RUNS(killed, ET_EXEC, 0x401000, CODE, LOAD(6, 0xfffffffffffff000, 0x500000, 16, 16));
    RUNS(killed, ET_EXEC, 0x401000, {.p_type = PT_NOTE});
}

// bpf(2) for the device rules of control groups: programs of BPF_PROG_TYPE_CGROUP_DEVICE, attached and asked for.
#include "cgroup.h"
#include <linux/bpf.h>

typedef struct bpf_insn insn;

#define INSN(c, d, s, o, i) ((insn){.code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i)})
#define MOV(d, v) INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, v)
#define LDX(size, d, o) INSN(BPF_LDX | BPF_MEM | (size), d, 1, o, 0)
#define JNE(d, v, o) INSN(BPF_JMP | BPF_JNE | BPF_K, d, 0, o, v)
#define EXIT() INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

static char b_log[4096];

static int b_bpf(int cmd, union bpf_attr *attr) {
    return syscall(SYS_bpf, cmd, attr, sizeof *attr);
}

static int b_load_as(int type, const insn *code, int count, int log_size) {
    union bpf_attr a = {.prog_type = type, .insn_cnt = count, .insns = (uintptr_t)code, .license = (uintptr_t) "GPL"};
    if (log_size) {
        a.log_level = 1;
        a.log_size = log_size;
        a.log_buf = (uintptr_t)b_log;
        *b_log = 0;
    }
    strcpy(a.prog_name, "test_1.x");
    return b_bpf(BPF_PROG_LOAD, &a);
}

#define LOAD(...) ({ insn code_[] = {__VA_ARGS__}; b_load_as(BPF_PROG_TYPE_CGROUP_DEVICE, code_, sizeof code_ / sizeof *code_, sizeof b_log); })

static int b_attach(int group, int prog, int flags, int replaced) {
    union bpf_attr a = {.target_fd = group, .attach_bpf_fd = prog, .attach_type = BPF_CGROUP_DEVICE, .attach_flags = flags};
    a.replace_bpf_fd = replaced;
    return b_bpf(BPF_PROG_ATTACH, &a);
}

static int b_detach(int group, int prog) {
    union bpf_attr a = {.target_fd = group, .attach_bpf_fd = prog, .attach_type = BPF_CGROUP_DEVICE};
    return b_bpf(BPF_PROG_DETACH, &a);
}

static unsigned b_ids[80], b_count, b_flags;

static int b_query(int group, int how, int room) {
    union bpf_attr a = {.query = {.target_fd = group, .attach_type = BPF_CGROUP_DEVICE, .query_flags = how}};
    a.query.attach_flags = 99;
    a.query.prog_ids = (uintptr_t)b_ids;
    a.query.prog_cnt = room;
    memset(b_ids, 0, sizeof b_ids);
    int got = b_bpf(BPF_PROG_QUERY, &a);
    b_count = a.query.prog_cnt;
    b_flags = a.query.attach_flags;
    return got;
}

static unsigned b_id(int prog) {
    struct bpf_prog_info info = {0};
    union bpf_attr a = {.info = {.bpf_fd = prog, .info_len = sizeof info, .info = (uintptr_t)&info}};
    return b_bpf(BPF_OBJ_GET_INFO_BY_FD, &a) ? 0 : info.id;
}

// Refuses one use of one device and allows the rest.
static int b_refuse(int type, int access, int major, int minor) {
    return LOAD(LDX(BPF_W, 2, 0), INSN(BPF_ALU | BPF_AND | BPF_K, 2, 0, 0, 0xffff), LDX(BPF_W, 3, 0),
                INSN(BPF_ALU | BPF_RSH | BPF_K, 3, 0, 0, 16), LDX(BPF_W, 4, 4), LDX(BPF_W, 5, 8), JNE(2, type, 7),
                INSN(BPF_ALU | BPF_MOV | BPF_X, 1, 3, 0, 0), INSN(BPF_ALU | BPF_AND | BPF_K, 1, 0, 0, access),
                INSN(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 4, 0), JNE(4, major, 3), JNE(5, minor, 2), MOV(0, 0), EXIT(),
                MOV(0, 1), EXIT());
}

static int b_dir(const char *name) {
    SYS(mkdir(name, 0755));
    return SYS(open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static int b_open(const char *path, int flags) {
    int fd = open(path, flags);
    if (fd >= 0) close(fd);
    return fd < 0 ? -1 : 0;
}

#define ALL() LOAD(MOV(0, 1), EXIT())
#define NONE() LOAD(MOV(0, 0), EXIT())

TEST(bpf_device_loading) {
    int fd = SYS(ALL());
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
    CHECK(strstr(b_log, "processed 2 insns (limit "));
    char path[64], text[4096], c;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    text[SYS(readlink(path, text, sizeof text - 1))] = 0;
    CHECK_STR(text, "anon_inode:bpf-prog");
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    t_slurp(path, text, sizeof text);
    CHECK(strstr(text, "prog_type:\t15\n"));
    char id[64];
    snprintf(id, sizeof id, "prog_id:\t%u\n", b_id(fd));
    CHECK(strstr(text, id));
    CHECK_ERR(read(fd, &c, 1), EINVAL);
    CHECK_ERR(write(fd, "x", 1), EINVAL);
    insn code[] = {MOV(0, 1), EXIT()};
    CHECK_EQ(b_load_as(BPF_PROG_TYPE_CGROUP_DEVICE, code, 2, 0), fd + 1);
    CHECK_ERR(b_load_as(BPF_PROG_TYPE_CGROUP_DEVICE, code, 0, 0), E2BIG);
    CHECK_ERR(b_load_as(999, code, 2, 0), EINVAL);
    CHECK_ERR(b_load_as(BPF_PROG_TYPE_CGROUP_DEVICE, BAD_PTR, 2, 0), EFAULT);
    union bpf_attr a = {.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE, .insn_cnt = 2, .insns = (uintptr_t)code};
    a.license = (uintptr_t)BAD_PTR;
    CHECK_ERR(b_bpf(BPF_PROG_LOAD, &a), EFAULT);
    a.license = (uintptr_t) "none";
    strcpy(a.prog_name, "a/b");
    CHECK_ERR(b_bpf(BPF_PROG_LOAD, &a), EINVAL);
    memset(a.prog_name, 'x', sizeof a.prog_name);
    CHECK_ERR(b_bpf(BPF_PROG_LOAD, &a), EINVAL);
    memset(a.prog_name, 0, sizeof a.prog_name);
    a.prog_flags = 1 << 30;
    CHECK_ERR(b_bpf(BPF_PROG_LOAD, &a), EINVAL);
    a.prog_flags = BPF_F_STRICT_ALIGNMENT;
    SYS(b_bpf(BPF_PROG_LOAD, &a));
    a.log_level = 1;
    a.log_size = 100;
    CHECK_ERR(b_bpf(BPF_PROG_LOAD, &a), EINVAL);
    a.log_buf = (uintptr_t)b_log;
    a.log_level = 0;
    CHECK_ERR(b_bpf(BPF_PROG_LOAD, &a), EINVAL);
    a.log_level = 16;
    CHECK_ERR(b_bpf(BPF_PROG_LOAD, &a), EINVAL);
    a.log_level = 1;
    a.log_buf = (uintptr_t)BAD_PTR;
    CHECK_ERR(b_bpf(BPF_PROG_LOAD, &a), EFAULT);
}

#define REFUSED(error, text, ...)                                                                                      \
    do {                                                                                                               \
        CHECK_ERR(LOAD(__VA_ARGS__), error);                                                                           \
        if (!strstr(b_log, text)) t_fail(__FILE__, __LINE__, "no \"%s\" in \"%s\"", text, b_log);                      \
    } while (0)

TEST(bpf_device_verifier) {
    REFUSED(EACCES, "R0 !read_ok", EXIT());
    REFUSED(EACCES, "R5 !read_ok", INSN(BPF_ALU64 | BPF_MOV | BPF_X, 0, 5, 0, 0), EXIT());
    REFUSED(EINVAL, "should have been in [0, 1]", MOV(0, 2), EXIT());
    REFUSED(EINVAL, "should have been in [0, 1]", LDX(BPF_W, 0, 4), EXIT());
    REFUSED(EINVAL, "R0 is not a known value (ctx)", INSN(BPF_ALU64 | BPF_MOV | BPF_X, 0, 1, 0, 0), EXIT());
    REFUSED(EINVAL, "jump out of range from insn 1 to 11", MOV(0, 1), INSN(BPF_JMP | BPF_JA, 0, 0, 9, 0), EXIT());
    REFUSED(EINVAL, "last insn is not an exit or jmp", MOV(0, 1));
    REFUSED(EINVAL, "unreachable insn 2", MOV(0, 1), EXIT(), MOV(0, 1), EXIT());
    REFUSED(EINVAL, "unknown opcode ff", INSN(0xff, 0, 0, 0, 0), EXIT());
    REFUSED(EINVAL, "R11 is invalid", MOV(11, 0), EXIT());
    REFUSED(EINVAL, "div by zero", MOV(0, 1), INSN(BPF_ALU64 | BPF_DIV | BPF_K, 0, 0, 0, 0), EXIT());
    REFUSED(EINVAL, "invalid shift 64", MOV(0, 1), INSN(BPF_ALU64 | BPF_LSH | BPF_K, 0, 0, 0, 64), EXIT());
    REFUSED(EINVAL, "BPF_MOV uses reserved fields", INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 1, 1), EXIT());
    REFUSED(EINVAL, "BPF_EXIT uses reserved fields", MOV(0, 1), INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 1));
    REFUSED(EINVAL, "BPF_JA uses reserved fields", MOV(0, 1), INSN(BPF_JMP | BPF_JA, 0, 0, 0, 3), EXIT());
    REFUSED(EINVAL, "invalid bpf_ld_imm64 insn", INSN(BPF_LD | BPF_DW | BPF_IMM, 0, 0, 0, 1), EXIT());
    REFUSED(EINVAL, "not allowed for this program type", INSN(BPF_LD | BPF_ABS | BPF_W, 0, 0, 0, 0), EXIT());
    REFUSED(EACCES, "frame pointer is read only", MOV(10, 1), MOV(0, 1), EXIT());
    REFUSED(EACCES, "R1 pointer", INSN(BPF_ALU64 | BPF_ADD | BPF_X, 1, 1, 0, 0), MOV(0, 1), EXIT());
    REFUSED(EACCES, "invalid mem access 'scalar'", MOV(2, 0), INSN(BPF_LDX | BPF_MEM, 0, 2, 0, 0), EXIT());
    REFUSED(EACCES, "invalid bpf_context access off=0 size=4", INSN(BPF_ST | BPF_MEM, 1, 0, 0, 0), MOV(0, 1), EXIT());
    REFUSED(EACCES, "invalid bpf_context access off=12 size=4", LDX(BPF_W, 0, 12), EXIT());
    REFUSED(EACCES, "invalid bpf_context access off=0 size=8", LDX(BPF_DW, 0, 0), EXIT());
    REFUSED(EACCES, "invalid bpf_context access off=4 size=2", LDX(BPF_H, 0, 4), EXIT());
    REFUSED(EACCES, "invalid bpf_context access off=2 size=4", LDX(BPF_W, 0, 2), EXIT());
    SYS(LOAD(LDX(BPF_B, 0, 3), LDX(BPF_H, 0, 2), LDX(BPF_W, 0, 8), MOV(0, 0), EXIT()));
    SYS(LOAD(LDX(BPF_W, 0, 4), INSN(BPF_ALU | BPF_AND | BPF_K, 0, 0, 0, 1), EXIT()));
    SYS(LOAD(INSN(BPF_LD | BPF_DW | BPF_IMM, 0, 0, 0, 1), INSN(0, 0, 0, 0, 0), EXIT()));
    insn two[] = {MOV(0, 2), EXIT()};
    CHECK_ERR(b_load_as(BPF_PROG_TYPE_CGROUP_DEVICE, two, 2, 10), ENOSPC);
    CHECK_EQ(strlen(b_log), 9);
}

TEST(bpf_device_information) {
    long long before = t_now_ms();
    int fd = SYS(ALL());
    unsigned char bytes[300];
    struct bpf_prog_info *info = (void *)bytes;
    insn code[2] = {};
    memset(bytes, 0, sizeof bytes);
    info->xlated_prog_len = 3 * sizeof *code;
    info->xlated_prog_insns = (uintptr_t)code;
    union bpf_attr a = {.info = {.bpf_fd = fd, .info_len = sizeof bytes, .info = (uintptr_t)info}};
    SYS(b_bpf(BPF_OBJ_GET_INFO_BY_FD, &a));
    CHECK(a.info.info_len >= 228 && a.info.info_len <= 256);
    CHECK_EQ(info->type, BPF_PROG_TYPE_CGROUP_DEVICE);
    CHECK(info->id > 0);
    CHECK_EQ(info->xlated_prog_len, sizeof code);
    CHECK_EQ(code[0].code, BPF_ALU64 | BPF_MOV);
    CHECK_EQ(code[1].code, BPF_JMP | BPF_EXIT);
    CHECK_EQ(info->created_by_uid, 0);
    CHECK_EQ(info->nr_map_ids, 0);
    CHECK_EQ(info->gpl_compatible, 1);
    CHECK_EQ(info->verified_insns, 2);
    CHECK_STR(info->name, "test_1.x");
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    long long at = now.tv_sec * 1000LL + now.tv_nsec / 1000000 - info->load_time / 1000000;
    CHECK(at >= 0 && at <= t_now_ms() - before + 1000);
    unsigned id = info->id;
    a.info.info_len = 8;
    memset(bytes, 0, sizeof bytes);
    SYS(b_bpf(BPF_OBJ_GET_INFO_BY_FD, &a));
    CHECK_EQ(a.info.info_len, 8);
    CHECK_EQ(info->id, id);
    CHECK_EQ(info->tag[0], 0);
    bytes[290] = 1;
    a.info.info_len = sizeof bytes;
    CHECK_ERR(b_bpf(BPF_OBJ_GET_INFO_BY_FD, &a), E2BIG);
    a.info.info_len = 5000;
    CHECK_ERR(b_bpf(BPF_OBJ_GET_INFO_BY_FD, &a), E2BIG);
    a.info.info_len = 8;
    a.info.info = (uintptr_t)BAD_PTR;
    CHECK_ERR(b_bpf(BPF_OBJ_GET_INFO_BY_FD, &a), EFAULT);
    a.info.bpf_fd = 999;
    CHECK_ERR(b_bpf(BPF_OBJ_GET_INFO_BY_FD, &a), EBADFD);
    a.info.bpf_fd = SYS(open("/", O_RDONLY));
    CHECK_ERR(b_bpf(BPF_OBJ_GET_INFO_BY_FD, &a), EINVAL);
    // By number.
    union bpf_attr n = {.prog_id = id};
    int again = SYS(b_bpf(BPF_PROG_GET_FD_BY_ID, &n));
    CHECK_EQ(b_id(again), id);
    CHECK_EQ(fcntl(again, F_GETFD), FD_CLOEXEC);
    n = (union bpf_attr){.start_id = id - 1};
    SYS(b_bpf(BPF_PROG_GET_NEXT_ID, &n));
    CHECK_EQ(n.next_id, id);
    n = (union bpf_attr){.start_id = 0x7fffffff};
    CHECK_ERR(b_bpf(BPF_PROG_GET_NEXT_ID, &n), EINVAL);
    n = (union bpf_attr){.start_id = 0x7ffffffe};
    CHECK_ERR(b_bpf(BPF_PROG_GET_NEXT_ID, &n), ENOENT);
    n = (union bpf_attr){.prog_id = 0};
    CHECK_ERR(b_bpf(BPF_PROG_GET_FD_BY_ID, &n), ENOENT);
    n = (union bpf_attr){.prog_id = id, .open_flags = 1};
    CHECK_ERR(b_bpf(BPF_PROG_GET_FD_BY_ID, &n), EINVAL);
    // It goes with its last descriptor.
    SYS(close(fd));
    SYS(close(again));
    n = (union bpf_attr){.prog_id = id};
    for (int i = 0; i < 1000 && (again = b_bpf(BPF_PROG_GET_FD_BY_ID, &n)) >= 0; i++) {
        close(again);
        usleep(5000);
    }
    CHECK_ERR(b_bpf(BPF_PROG_GET_FD_BY_ID, &n), ENOENT);
}

TEST(bpf_device_attaching) {
    IN_GROUP({
        int g = b_dir("g");
        int all = SYS(ALL());
        int other = SYS(ALL());
        int file = SYS(open("g/cgroup.procs", O_RDONLY));
        int null = SYS(open("/dev/null", O_RDONLY));
        CHECK_ERR(b_detach(g, all), ENOENT);
        CHECK_ERR(b_attach(file, all, 0, 0), EBADF);
        CHECK_ERR(b_attach(null, all, 0, 0), EBADF);
        CHECK_ERR(b_attach(999, all, 0, 0), EBADF);
        CHECK_ERR(b_attach(g, null, 0, 0), EINVAL);
        CHECK_ERR(b_attach(g, 999, 0, 0), EBADF);
        CHECK_ERR(b_attach(g, all, 1 << 20, 0), EINVAL);
        CHECK_ERR(b_attach(g, all, BPF_F_ALLOW_OVERRIDE | BPF_F_ALLOW_MULTI, 0), EINVAL);
        CHECK_ERR(b_attach(g, all, BPF_F_REPLACE, other), EINVAL);
        CHECK_ERR(b_attach(null, all, BPF_F_ALLOW_MULTI | BPF_F_REPLACE, all), EBADF);
        CHECK_ERR(b_attach(g, all, BPF_F_ALLOW_MULTI | BPF_F_REPLACE, 999), EBADF);
        CHECK_ERR(b_attach(g, all, BPF_F_ALLOW_MULTI | BPF_F_REPLACE, other), ENOENT);
        union bpf_attr a = {.target_fd = g, .attach_bpf_fd = all, .attach_type = 9999};
        CHECK_ERR(b_bpf(BPF_PROG_ATTACH, &a), EINVAL);
        CHECK_ERR(b_bpf(BPF_PROG_DETACH, &a), EINVAL);
        // As libraries find out whether programs can be attached, and replaced.
        insn code[] = {MOV(0, 0), EXIT()};
        int skb = SYS(b_load_as(BPF_PROG_TYPE_CGROUP_SKB, code, 2, 0));
        a = (union bpf_attr){.target_fd = -1, .attach_bpf_fd = skb, .attach_type = BPF_CGROUP_INET_INGRESS};
        a.attach_flags = BPF_F_REPLACE;
        CHECK_ERR(b_bpf(BPF_PROG_ATTACH, &a), EBADF);
        CHECK_ERR(b_attach(g, skb, 0, 0), EINVAL);
        // One alone, replaced by the next.
        SYS(b_query(g, 0, 80));
        CHECK_EQ(b_count, 0);
        CHECK_EQ(b_flags, 0);
        SYS(b_attach(g, all, 0, 0));
        SYS(b_attach(g, other, 0, 0));
        SYS(b_query(g, 0, 80));
        CHECK_EQ(b_count, 1);
        CHECK_EQ(b_ids[0], b_id(other));
        CHECK_ERR(b_attach(g, all, BPF_F_ALLOW_MULTI, 0), EPERM);
        CHECK_ERR(b_attach(g, all, BPF_F_ALLOW_OVERRIDE, 0), EPERM);
        SYS(b_detach(g, -1));
        CHECK_ERR(b_detach(g, other), ENOENT);
        // Several.
        SYS(b_attach(g, all, BPF_F_ALLOW_MULTI, 0));
        CHECK_ERR(b_attach(g, all, BPF_F_ALLOW_MULTI, 0), EINVAL);
        SYS(b_attach(g, other, BPF_F_ALLOW_MULTI, 0));
        CHECK_ERR(b_detach(g, -1), EINVAL);
        int third = SYS(ALL());
        CHECK_ERR(b_detach(g, third), ENOENT);
        SYS(b_query(g, 0, 80));
        CHECK_EQ(b_count, 2);
        CHECK_EQ(b_flags, BPF_F_ALLOW_MULTI);
        CHECK_EQ(b_ids[0], b_id(all));
        CHECK_EQ(b_ids[1], b_id(other));
        SYS(b_attach(g, third, BPF_F_ALLOW_MULTI | BPF_F_REPLACE, all));
        CHECK_ERR(b_attach(g, third, BPF_F_ALLOW_MULTI | BPF_F_REPLACE, other), EINVAL);
        SYS(b_query(g, 0, 80));
        CHECK_EQ(b_ids[0], b_id(third));
        CHECK_ERR(b_query(g, 0, 1), ENOSPC);
        CHECK_EQ(b_count, 2);
        CHECK_EQ(b_ids[0], b_id(third));
        CHECK_EQ(b_ids[1], 0);
        SYS(b_query(g, 0, 0));
        CHECK_EQ(b_count, 2);
        CHECK_ERR(b_query(g, 2, 1), EINVAL);
        CHECK_ERR(b_query(file, 0, 1), EBADF);
        SYS(b_detach(g, other));
        SYS(b_detach(g, third));
        int progs[65];
        for (int i = 0; i < 65; i++) progs[i] = SYS(ALL());
        for (int i = 0; i < 64; i++) SYS(b_attach(g, progs[i], BPF_F_ALLOW_MULTI, 0));
        CHECK_ERR(b_attach(g, progs[64], BPF_F_ALLOW_MULTI, 0), E2BIG);
        // A group that is gone has none.
        SYS(rmdir("g"));
        CHECK_ERR(b_attach(g, all, 0, 0), ENOENT);
        CHECK_ERR(b_detach(g, progs[0]), ENOENT);
        CHECK_ERR(b_query(g, 0, 80), ENOENT);
    });
}

TEST(bpf_device_levels) {
    IN_GROUP({
        int a = b_dir("a");
        int b = b_dir("a/b");
        int c = b_dir("a/b/c");
        int one = SYS(ALL());
        int two = SYS(ALL());
        SYS(b_attach(a, one, 0, 0));
        CHECK_ERR(b_attach(b, two, 0, 0), EPERM);
        CHECK_ERR(b_attach(c, two, BPF_F_ALLOW_MULTI, 0), EPERM);
        SYS(b_query(c, BPF_F_QUERY_EFFECTIVE, 80));
        CHECK_EQ(b_count, 1);
        CHECK_EQ(b_ids[0], b_id(one));
        CHECK_EQ(b_flags, 0);
        SYS(b_detach(a, one));
        SYS(b_attach(a, one, BPF_F_ALLOW_OVERRIDE, 0));
        SYS(b_attach(b, two, 0, 0));
        CHECK_ERR(b_attach(c, two, 0, 0), EPERM);
        SYS(b_query(c, BPF_F_QUERY_EFFECTIVE, 80));
        CHECK_EQ(b_count, 1);
        CHECK_EQ(b_ids[0], b_id(two));
        SYS(b_detach(b, two));
        SYS(b_detach(a, one));
        SYS(b_attach(a, one, BPF_F_ALLOW_MULTI, 0));
        SYS(b_attach(b, two, 0, 0));
        SYS(b_query(c, BPF_F_QUERY_EFFECTIVE, 80));
        CHECK_EQ(b_count, 2);
        CHECK_EQ(b_ids[0], b_id(two));
        CHECK_EQ(b_ids[1], b_id(one));
        SYS(b_query(c, 0, 80));
        CHECK_EQ(b_count, 0);
    });
}

TEST(bpf_device_opening) {
    IN_GROUP({
        int g = b_dir("g");
        SYS(mkdir("g/below", 0755));
        SYS(put("g/below/cgroup.procs", "0"));
        int before = SYS(open("/dev/zero", O_RDONLY));
        int no_write = SYS(b_refuse(BPF_DEVCG_DEV_CHAR, BPF_DEVCG_ACC_WRITE, 1, 5));
        SYS(b_attach(g, no_write, BPF_F_ALLOW_MULTI, 0));
        SYS(b_open("/dev/zero", O_RDONLY));
        CHECK_ERR(b_open("/dev/zero", O_WRONLY), EPERM);
        CHECK_ERR(b_open("/dev/zero", O_RDWR), EPERM);
        SYS(b_open("/dev/null", O_RDWR));
        SYS(b_open("/dev/zero", O_PATH));
        SYS(access("/dev/zero", F_OK));
        SYS(access("/dev/zero", R_OK));
        CHECK_ERR(access("/dev/zero", W_OK), EPERM);
        // Another program below cannot allow it again.
        int all = SYS(ALL());
        int below = SYS(open("g/below", O_RDONLY | O_DIRECTORY));
        SYS(b_attach(below, all, BPF_F_ALLOW_MULTI, 0));
        CHECK_ERR(b_open("/dev/zero", O_WRONLY), EPERM);
        // What is open stays so, but cannot be opened again.
        int none = SYS(NONE());
        SYS(b_attach(below, none, BPF_F_ALLOW_MULTI, 0));
        char c = 1;
        char path[64];
        CHECK_EQ(read(before, &c, 1), 1);
        snprintf(path, sizeof path, "/proc/self/fd/%d", before);
        CHECK_ERR(b_open(path, O_RDONLY), EPERM);
        CHECK_ERR(b_open("/dev/null", O_RDONLY), EPERM);
        CHECK_ERR(access("/dev/null", F_OK), EPERM);
        SYS(b_open("/", O_RDONLY));
        SYS(b_open("/dev/null", O_PATH));
        struct stat st;
        SYS(stat("/dev/null", &st));
        // Children begin in the group.
        CHECK_STATUS(CHILD(CHECK_ERR(b_open("/dev/null", O_RDONLY), EPERM)), "exit 0");
        // Out of it, and in again; the programs go without their descriptors.
        SYS(put("cgroup.procs", "0"));
        SYS(b_open("/dev/zero", O_RDWR));
        SYS(close(none));
        SYS(put("g/below/cgroup.procs", "0"));
        CHECK_ERR(b_open("/dev/zero", O_RDONLY), EPERM);
        SYS(put("cgroup.procs", "0"));
        SYS(rmdir("g/below"));
    });
}

TEST(bpf_device_order) {
    IN_GROUP({
        int g = b_dir("g");
        int none = SYS(NONE());
        SYS(mount("none", "/mnt", "tmpfs", 0, 0));
        SYS(mknod("/mnt/zero", S_IFCHR | 0600, makedev(1, 5)));
        SYS(mknod("/mnt/strange", S_IFCHR | 0600, makedev(230, 77)));
        SYS(mknod("/mnt/white", S_IFCHR | 0600, makedev(0, 0)));
        SYS(b_attach(g, none, BPF_F_ALLOW_MULTI, 0));
        SYS(put("g/cgroup.procs", "0"));
        CHECK_ERR(b_open("/mnt/strange", O_RDONLY), EPERM);
        CHECK_ERR(b_open("/mnt/white", O_RDONLY), ENXIO);
        CHECK_ERR(mknod("/mnt/a", S_IFCHR | 0600, makedev(1, 5)), EPERM);
        CHECK_ERR(mknod("/mnt/a", S_IFBLK | 0600, makedev(1, 5)), EPERM);
        CHECK_ERR(mknod("/mnt/zero", S_IFCHR | 0600, makedev(1, 5)), EEXIST);
        SYS(mknod("/mnt/a", S_IFCHR | 0600, makedev(0, 0)));
        SYS(mknod("/mnt/b", S_IFIFO | 0600, makedev(1, 5)));
        SYS(mknod("/mnt/c", S_IFREG | 0600, makedev(1, 5)));
        CHECK_ERR(open("/mnt/zero", O_CREAT | O_RDONLY, 0600), EPERM);
        CHECK_ERR(truncate("/mnt/zero", 0), EINVAL);
        // Permissions come first, and whether there may be devices before these.
        CHECK_STATUS(CHILD(become(1000); CHECK_ERR(b_open("/mnt/zero", O_RDONLY), EACCES);
                           CHECK_ERR(access("/mnt/zero", R_OK), EACCES)),
                     "exit 0");
        SYS(mount("none", "/mnt", "tmpfs", MS_REMOUNT | MS_NODEV, 0));
        CHECK_ERR(b_open("/mnt/zero", O_RDONLY), EACCES);
        CHECK_ERR(access("/mnt/zero", R_OK), EPERM);
    });
}

TEST(bpf_device_making) {
    IN_GROUP({
        int g = b_dir("g");
        int no_node = SYS(b_refuse(BPF_DEVCG_DEV_BLOCK, BPF_DEVCG_ACC_MKNOD, 7, 1));
        SYS(mount("none", "/mnt", "tmpfs", 0, 0));
        SYS(b_attach(g, no_node, 0, 0));
        SYS(put("g/cgroup.procs", "0"));
        CHECK_ERR(mknod("/mnt/a", S_IFBLK | 0600, makedev(7, 1)), EPERM);
        SYS(mknod("/mnt/a", S_IFBLK | 0600, makedev(7, 2)));
        SYS(mknod("/mnt/b", S_IFCHR | 0600, makedev(7, 1)));
        SYS(b_detach(g, no_node));
        SYS(mknod("/mnt/c", S_IFBLK | 0600, makedev(7, 1)));
    });
}

TEST(bpf_device_rights) {
    IN_GROUP({
        int g = b_dir("g");
        int all = SYS(ALL());
        CHECK_STATUS(CHILD({
                         become(1000);
                         CHECK_ERR(ALL(), EPERM);
                         insn one = EXIT();
                         CHECK_ERR(b_load_as(BPF_PROG_TYPE_CGROUP_DEVICE, &one, 0, 0), EPERM);
                         union bpf_attr a = {.prog_id = b_id(all)};
                         CHECK(b_id(all) > 0);
                         CHECK_ERR(b_bpf(BPF_PROG_GET_FD_BY_ID, &a), EPERM);
                         CHECK_ERR(b_bpf(BPF_PROG_GET_NEXT_ID, &a), EPERM);
                         CHECK_ERR(b_query(g, 0, 80), EPERM);
                         a = (union bpf_attr){.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
                         CHECK_ERR(b_bpf(BPF_MAP_CREATE, &a), EPERM);
                         // Who has the descriptors may attach.
                         SYS(b_attach(g, all, 0, 0));
                         SYS(b_detach(g, all));
                     }),
                     "exit 0");
        // Root of a user namespace has no rights here.
        CHECK_STATUS(CHILD({
                         become(1000);
                         own_namespaces(0);
                         CHECK_ERR(ALL(), EPERM);
                         CHECK_ERR(b_query(g, 0, 80), EPERM);
                     }),
                     "exit 0");
    });
}

TEST(bpf_device_commands) {
    union bpf_attr a = {};
    CHECK_ERR(syscall(SYS_bpf, 9999, &a, sizeof a), EINVAL);
    CHECK_ERR(syscall(SYS_bpf, -1, &a, sizeof a), EINVAL);
    CHECK_ERR(syscall(SYS_bpf, BPF_PROG_LOAD, BAD_PTR, sizeof a), EFAULT);
    CHECK_ERR(syscall(SYS_bpf, BPF_PROG_LOAD, &a, 5000), E2BIG);
    static unsigned char big[4096];
    big[4000] = 1;
    CHECK_ERR(syscall(SYS_bpf, BPF_PROG_LOAD, big, sizeof big), E2BIG);
    big[4000] = 0;
    CHECK_ERR(syscall(SYS_bpf, BPF_PROG_LOAD, big, sizeof big), E2BIG);
    // Only a part of the structure is passed.
    insn code[] = {MOV(0, 1), EXIT()};
    union bpf_attr p = {.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE, .insn_cnt = 2, .insns = (uintptr_t)code};
    p.license = (uintptr_t) "GPL";
    p.log_level = 77;
    SYS(syscall(SYS_bpf, BPF_PROG_LOAD, &p, 24));
}

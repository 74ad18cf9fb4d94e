// add_key, request_key, keyctl; /proc/keys and /proc/key-users.
#include "t.h"
#include <linux/keyctl.h>
#include <pthread.h>

typedef int key;
static long add(const char *type, const char *desc, const void *p, size_t n, int ring) { return syscall(SYS_add_key, type, desc, p, n, ring); }
static long request(const char *type, const char *desc, const char *info, int ring) { return syscall(SYS_request_key, type, desc, info, ring); }
#define KC(...) syscall(SYS_keyctl, __VA_ARGS__)
enum { THREAD = -1, PROCESS = -2, SESSION = -3, USERR = -4, USESS = -5 };
static void fresh(void) { SYS(KC(KEYCTL_JOIN_SESSION_KEYRING, 0)); }

TEST(add_read_update) {
    char b[100];
    fresh();
    key k = SYS(add("user", "one", "payload", 7, SESSION));
    CHECK(k > 0);
    CHECK_EQ(KC(KEYCTL_READ, k, 0, 0), 7);
    CHECK_EQ(KC(KEYCTL_READ, k, b, sizeof b), 7);
    CHECK_MEM(b, "payload", 7);
    memset(b, 0, sizeof b);
    CHECK_EQ(KC(KEYCTL_READ, k, b, 3), 7);
    CHECK_EQ(b[0], 0);
    CHECK_EQ(add("user", "one", "new", 3, SESSION), k);
    CHECK_EQ(KC(KEYCTL_READ, k, b, sizeof b), 3);
    OK(KC(KEYCTL_UPDATE, k, "again", 5));
    CHECK_EQ(KC(KEYCTL_READ, k, b, sizeof b), 5);
    CHECK_MEM(b, "again", 5);
    CHECK_ERR(KC(KEYCTL_UPDATE, k, "", 0), EINVAL);
    CHECK_ERR(KC(KEYCTL_UPDATE, k, b, 5000), EINVAL);
    CHECK_ERR(KC(KEYCTL_READ, k, BAD_PTR, 100), EFAULT);
}
TEST(add_errors) {
    fresh();
    static char big[1 << 20], name[5000];
    memset(name, 'n', 4999);
    CHECK_ERR(add("user", "d", big, 32768, SESSION), EINVAL);
    CHECK_ERR(add("user", "d", big, 1 << 20, SESSION), EINVAL);
    CHECK_ERR(add("user", "d", 0, 0, SESSION), EINVAL);
    CHECK_ERR(add("user", "d", 0, 5, SESSION), EFAULT);
    CHECK_ERR(add("user", "", "p", 1, SESSION), EINVAL);
    CHECK_ERR(add("user", 0, "p", 1, SESSION), EINVAL);
    CHECK_ERR(add("user", name, "p", 1, SESSION), EINVAL);
    CHECK_ERR(add("user", "d", BAD_PTR, 1, SESSION), EFAULT);
    CHECK_ERR(add("user", BAD_PTR, "p", 1, SESSION), EFAULT);
    CHECK_ERR(add(BAD_PTR, "d", "p", 1, SESSION), EFAULT);
    CHECK_ERR(add("", "d", "p", 1, SESSION), EINVAL);
    CHECK_ERR(add(".x", "d", "p", 1, SESSION), EPERM);
    CHECK_ERR(add("nothing", "d", "p", 1, SESSION), ENODEV);
    CHECK_ERR(add("0123456789012345678901234567890123456789", "d", "p", 1, SESSION), EINVAL);
    CHECK_ERR(add("keyring", ".d", 0, 0, SESSION), EPERM);
    CHECK_ERR(add("keyring", "d", "p", 1, SESSION), EINVAL);
    CHECK_ERR(add("logon", "d", "p", 1, SESSION), EINVAL);
    CHECK_ERR(add("logon", ":d", "p", 1, SESSION), EINVAL);
    CHECK_ERR(add("user", "d", "p", 1, 0), EINVAL);
    CHECK_ERR(add("user", "d", "p", 1, -6), EINVAL);
    CHECK_ERR(add("user", "d", "p", 1, -99), EINVAL);
    CHECK_ERR(add("user", "d", "p", 1, 0x7ffffff0), ENOKEY);
    key k = SYS(add("user", "d", "p", 1, SESSION));
    CHECK_ERR(add("user", "e", "p", 1, k), ENOTDIR);
    CHECK(add("user", "large", big, 32767, SESSION) > 0 || errno == EDQUOT);
}
TEST(logon) {
    fresh();
    key k = SYS(add("logon", "me:pass", "p", 1, SESSION));
    CHECK_ERR(KC(KEYCTL_READ, k, 0, 0), EOPNOTSUPP);
    OK(KC(KEYCTL_UPDATE, k, "q", 1));
    char b[100];
    CHECK_EQ(KC(KEYCTL_DESCRIBE, k, b, sizeof b), strlen(b) + 1);
    CHECK(strstr(b, ";3d010000;me:pass"));
}
TEST(keyrings) {
    fresh();
    int ids[8];
    key r = SYS(add("keyring", "ring", 0, 0, SESSION)), s = SYS(add("keyring", "sub", 0, 0, r));
    key k = SYS(add("user", "k", "p", 1, s));
    CHECK_EQ(KC(KEYCTL_READ, r, 0, 0), 4);
    CHECK_EQ(KC(KEYCTL_READ, r, ids, sizeof ids), 4);
    CHECK_EQ(ids[0], s);
    CHECK_ERR(KC(KEYCTL_UPDATE, r, "p", 1), EOPNOTSUPP);
    CHECK_EQ(KC(KEYCTL_SEARCH, r, "user", "k", 0), k);
    CHECK_EQ(KC(KEYCTL_SEARCH, SESSION, "user", "k", 0), k);
    CHECK_ERR(KC(KEYCTL_SEARCH, r, "user", "x", 0), ENOKEY);
    CHECK_ERR(KC(KEYCTL_SEARCH, k, "user", "k", 0), ENOTDIR);
    CHECK_ERR(KC(KEYCTL_SEARCH, r, "nothing", "k", 0), ENOKEY);
    CHECK_EQ(KC(KEYCTL_SEARCH, r, "user", "k", r), k);
    CHECK_EQ(KC(KEYCTL_READ, r, 0, 0), 8);
    CHECK_ERR(KC(KEYCTL_LINK, r, s), EDEADLK);
    CHECK_ERR(KC(KEYCTL_LINK, s, s), EDEADLK);
    CHECK_ERR(KC(KEYCTL_LINK, r, k), ENOTDIR);
    OK(KC(KEYCTL_UNLINK, k, r));
    CHECK_ERR(KC(KEYCTL_UNLINK, k, r), ENOENT);
    CHECK_ERR(KC(KEYCTL_UNLINK, r, k), ENOTDIR);
    OK(KC(KEYCTL_LINK, k, SESSION));
    OK(KC(KEYCTL_LINK, k, SESSION));
    OK(KC(KEYCTL_CLEAR, s));
    CHECK_EQ(KC(KEYCTL_READ, s, 0, 0), 0);
    CHECK_EQ(KC(KEYCTL_READ, k, 0, 0), 1);
    CHECK_ERR(KC(KEYCTL_CLEAR, k), ENOTDIR);
    OK(KC(KEYCTL_UNLINK, k, SESSION));
    // The last link.
    for (int i = 0; i < 200 && (KC(KEYCTL_READ, k, 0, 0) >= 0 || errno != ENOKEY); i++) t_ms(5);
    CHECK_ERR(KC(KEYCTL_READ, k, 0, 0), ENOKEY);
}
TEST(moving) {
    fresh();
    key a = SYS(add("keyring", "a", 0, 0, SESSION)), b = SYS(add("keyring", "b", 0, 0, SESSION)), k = SYS(add("user", "k", "p", 1, a));
    OK(KC(KEYCTL_MOVE, k, a, a, 0));
    OK(KC(KEYCTL_MOVE, k, a, b, 0));
    CHECK_ERR(KC(KEYCTL_MOVE, k, a, b, 0), ENOENT);
    key k2 = SYS(add("user", "k", "p", 1, a));
    CHECK_ERR(KC(KEYCTL_MOVE, k2, a, b, 1), EEXIST);
    CHECK_ERR(KC(KEYCTL_MOVE, k2, a, b, 2), EINVAL);
    OK(KC(KEYCTL_MOVE, k2, a, b, 0));
    CHECK_EQ(KC(KEYCTL_SEARCH, b, "user", "k", 0), k2);
}
TEST(describe_and_permissions) {
    char b[200], want[200];
    fresh();
    key k = SYS(add("user", "the description", "p", 1, SESSION));
    CHECK_EQ(KC(KEYCTL_DESCRIBE, k, b, sizeof b), strlen(b) + 1);
    sprintf(want, "user;%d;%d;3f010000;the description", getuid(), getgid());
    CHECK_STR(b, want);
    CHECK_EQ(KC(KEYCTL_DESCRIBE, k, b, 5), strlen(want) + 1);
    CHECK_ERR(KC(KEYCTL_SETPERM, k, 0x40), EINVAL);
    OK(KC(KEYCTL_SETPERM, k, 0x3f3f0000));
    OK(KC(KEYCTL_SETPERM, k, 0x09000000));
    CHECK_ERR(KC(KEYCTL_UPDATE, k, "x", 1), EACCES);
    CHECK_ERR(KC(KEYCTL_SETPERM, k, 0x3f3f0000), EACCES);
    CHECK_EQ(KC(KEYCTL_READ, k, 0, 0), 1); // by possession
    CHECK_ERR(KC(KEYCTL_LINK, k, PROCESS), EACCES);
    key r = SYS(add("keyring", "r", 0, 0, SESSION));
    KC(KEYCTL_DESCRIBE, r, b, sizeof b);
    CHECK(strstr(b, ";3f010000;r"));
    KC(KEYCTL_DESCRIBE, SESSION, b, sizeof b);
    CHECK(strstr(b, ";3f030000;_ses"));
    SYS(KC(KEYCTL_GET_KEYRING_ID, PROCESS, 1));
    KC(KEYCTL_DESCRIBE, PROCESS, b, sizeof b);
    CHECK(strstr(b, ";3f010000;_pid"));
    KC(KEYCTL_DESCRIBE, USERR, b, sizeof b);
    CHECK(strstr(b, ";1f3f0000;_uid."));
    OK(KC(KEYCTL_GET_SECURITY, k, 0, 0) - 1);
    CHECK_ERR(KC(KEYCTL_DESCRIBE, 0x7ffffff0, b, sizeof b), ENOKEY);
    CHECK_ERR(KC(KEYCTL_DESCRIBE, 0, b, sizeof b), EINVAL);
}
TEST(ownership) {
    if (getuid()) SKIP("root only");
    fresh();
    key k = SYS(add("user", "k", "secret", 6, SESSION));
    OK(KC(KEYCTL_CHOWN, k, -1, -1));
    CHECK_CHILD({
        fresh();
        OK(setresgid(1000, 1000, 1000));
        OK(setresuid(1000, 1000, 1000));
        CHECK_ERR(KC(KEYCTL_READ, k, 0, 0), EACCES);
        CHECK_ERR(KC(KEYCTL_DESCRIBE, k, 0, 0), EACCES);
        CHECK_ERR(KC(KEYCTL_CHOWN, k, 1000, -1), EACCES);
        CHECK_ERR(KC(KEYCTL_LINK, k, SESSION), EACCES);
        key own = SYS(add("user", "own", "p", 1, PROCESS));
        CHECK_ERR(KC(KEYCTL_CHOWN, own, 0, -1), EACCES);
        CHECK_ERR(KC(KEYCTL_CHOWN, own, -1, 5), EACCES);
        OK(KC(KEYCTL_CHOWN, own, 1000, 1000));
    });
    OK(KC(KEYCTL_CHOWN, k, 1000, 1000));
    char b[100];
    KC(KEYCTL_DESCRIBE, k, b, sizeof b);
    CHECK(strstr(b, "user;1000;1000;"));
}
TEST(revoke_expire_invalidate) {
    fresh();
    key k = SYS(add("user", "k", "p", 1, SESSION));
    OK(KC(KEYCTL_REVOKE, k));
    CHECK_ERR(KC(KEYCTL_READ, k, 0, 0), EKEYREVOKED);
    CHECK_ERR(KC(KEYCTL_REVOKE, k), EKEYREVOKED);
    CHECK_ERR(KC(KEYCTL_SEARCH, SESSION, "user", "k", 0), EKEYREVOKED);
    CHECK_ERR(request("user", "k", 0, 0), EKEYREVOKED);
    CHECK_ERR(KC(KEYCTL_LINK, k, PROCESS), EKEYREVOKED);
    key n = SYS(add("user", "k", "q", 1, SESSION));
    CHECK(n != k);
    OK(KC(KEYCTL_SET_TIMEOUT, n, 1));
    CHECK_EQ(KC(KEYCTL_READ, n, 0, 0), 1);
    t_ms(2100);
    CHECK_ERR(KC(KEYCTL_READ, n, 0, 0), EKEYEXPIRED);
    CHECK_ERR(KC(KEYCTL_SEARCH, SESSION, "user", "k", 0), EKEYEXPIRED);
    CHECK_ERR(request("user", "k", 0, 0), ENOKEY);
    key i = SYS(add("user", "i", "q", 1, SESSION));
    OK(KC(KEYCTL_INVALIDATE, i));
    for (int j = 0; j < 200 && KC(KEYCTL_SEARCH, SESSION, "user", "i", 0) >= 0; j++) t_ms(5);
    // EACCES while the collector has taken it out of the keyring and not freed it yet.
    CHECK_EQ(KC(KEYCTL_READ, i, 0, 0), -1);
    CHECK(errno == ENOKEY || errno == EACCES);
    OK(KC(KEYCTL_SET_TIMEOUT, SESSION, 0));
}
TEST(requesting) {
    fresh();
    key k = SYS(add("user", "wanted", "p", 1, SESSION));
    CHECK_EQ(request("user", "wanted", 0, 0), k);
    CHECK_EQ(request("user", "wanted", 0, PROCESS), k);
    CHECK_EQ(KC(KEYCTL_SEARCH, PROCESS, "user", "wanted", 0), k);
    CHECK_ERR(request("user", "absent", 0, 0), ENOKEY);
    CHECK_ERR(request("nothing", "absent", 0, 0), ENOKEY);
    CHECK_ERR(request(".user", "absent", 0, 0), EPERM);
    CHECK_ERR(request("user", BAD_PTR, 0, 0), EFAULT);
    CHECK_ERR(request("user", "absent", BAD_PTR, 0), EFAULT);
    CHECK_ERR(request("user", "wanted", 0, 0x7ffffff0), ENOKEY);
}
static void *thread_rings(void *a) {
    long t = KC(KEYCTL_GET_KEYRING_ID, THREAD, 0);
    CHECK(t > 0 && t != ((long *)a)[0]);
    CHECK_EQ(KC(KEYCTL_GET_KEYRING_ID, PROCESS, 0), ((long *)a)[1]);
    CHECK_EQ(KC(KEYCTL_GET_KEYRING_ID, SESSION, 0), ((long *)a)[2]);
    return 0;
}
TEST(special_keyrings) {
    fresh();
    CHECK_ERR(KC(KEYCTL_GET_KEYRING_ID, THREAD, 0), ENOKEY);
    CHECK_ERR(KC(KEYCTL_GET_KEYRING_ID, PROCESS, 0), ENOKEY);
    CHECK_ERR(KC(KEYCTL_GET_KEYRING_ID, KEY_SPEC_REQKEY_AUTH_KEY, 0), ENOKEY);
    CHECK_ERR(KC(KEYCTL_GET_KEYRING_ID, KEY_SPEC_REQUESTOR_KEYRING, 0), ENOKEY);
    CHECK_ERR(KC(KEYCTL_GET_KEYRING_ID, KEY_SPEC_GROUP_KEYRING, 0), EINVAL);
    long ids[3] = {SYS(KC(KEYCTL_GET_KEYRING_ID, THREAD, 1)), SYS(KC(KEYCTL_GET_KEYRING_ID, PROCESS, 1)), SYS(KC(KEYCTL_GET_KEYRING_ID, SESSION, 0))};
    CHECK_EQ(KC(KEYCTL_GET_KEYRING_ID, THREAD, 0), ids[0]);
    pthread_t t;
    OK(pthread_create(&t, 0, thread_rings, ids));
    OK(pthread_join(t, 0));
    CHECK_CHILD({
        CHECK_ERR(KC(KEYCTL_GET_KEYRING_ID, THREAD, 0), ENOKEY);
        CHECK_ERR(KC(KEYCTL_GET_KEYRING_ID, PROCESS, 0), ENOKEY);
        CHECK_EQ(KC(KEYCTL_GET_KEYRING_ID, SESSION, 0), ids[2]);
        CHECK(SYS(KC(KEYCTL_JOIN_SESSION_KEYRING, 0)) != ids[2]);
    });
    CHECK_EQ(KC(KEYCTL_GET_KEYRING_ID, SESSION, 0), ids[2]);
    CHECK(SYS(KC(KEYCTL_GET_KEYRING_ID, USERR, 0)) != SYS(KC(KEYCTL_GET_KEYRING_ID, USESS, 0)));
    CHECK_EQ(KC(KEYCTL_SEARCH, USESS, "keyring", "nothing", 0), -1);
}
TEST(named_sessions) {
    char name[40];
    sprintf(name, "s%d", getpid());
    fresh();
    CHECK_ERR(KC(KEYCTL_JOIN_SESSION_KEYRING, ".x"), EPERM);
    CHECK_ERR(KC(KEYCTL_JOIN_SESSION_KEYRING, BAD_PTR), EFAULT);
    key s = SYS(KC(KEYCTL_JOIN_SESSION_KEYRING, name));
    CHECK_EQ(KC(KEYCTL_GET_KEYRING_ID, SESSION, 0), s);
    OK(KC(KEYCTL_SETPERM, s, 0x3f1b0000));
    CHECK_EQ(KC(KEYCTL_JOIN_SESSION_KEYRING, name), 0);
    CHECK_CHILD({
        fresh();
        CHECK_EQ(KC(KEYCTL_JOIN_SESSION_KEYRING, name), s);
    });
}
TEST(session_to_parent) {
    fresh();
    key mine = KC(KEYCTL_GET_KEYRING_ID, SESSION, 0);
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        fresh();
        OK(KC(KEYCTL_SESSION_TO_PARENT));
        t_open(g);
        _exit(0);
    }
    t_pass(g);
    CHECK(KC(KEYCTL_GET_KEYRING_ID, SESSION, 0) != mine);
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(reqkey_keyring) {
    CHECK_EQ(KC(KEYCTL_SET_REQKEY_KEYRING, -1), 0);
    CHECK_EQ(KC(KEYCTL_SET_REQKEY_KEYRING, 3), 0);
    CHECK_EQ(KC(KEYCTL_SET_REQKEY_KEYRING, 1), 3);
    CHECK(KC(KEYCTL_GET_KEYRING_ID, THREAD, 0) > 0);
    CHECK_EQ(KC(KEYCTL_SET_REQKEY_KEYRING, 0), 1);
    CHECK_ERR(KC(KEYCTL_SET_REQKEY_KEYRING, 6), EINVAL);
    CHECK_ERR(KC(KEYCTL_SET_REQKEY_KEYRING, 99), EINVAL);
}
TEST(other_operations) {
    unsigned char caps[4] = {9, 9, 9, 9};
    fresh();
    key k = SYS(add("user", "k", "p", 1, SESSION)), r = SYS(add("keyring", "r", 0, 0, SESSION));
    CHECK_EQ(KC(KEYCTL_CAPABILITIES, caps, 4), 2);
    CHECK(caps[0] & 1);
    CHECK_EQ(caps[2] | caps[3], 0);
    CHECK_EQ(KC(KEYCTL_CAPABILITIES, 0, 0), 2);
    CHECK_ERR(KC(99), EOPNOTSUPP);
    CHECK_ERR(KC(KEYCTL_INSTANTIATE, k, "p", 1, 0), EPERM);
    CHECK_ERR(KC(KEYCTL_NEGATE, k, 1, 0), EPERM);
    CHECK_ERR(KC(KEYCTL_REJECT, k, 1, 0, 0), EINVAL);
    CHECK_ERR(KC(KEYCTL_REJECT, k, 1, EIO, 0), EPERM);
    CHECK_ERR(KC(KEYCTL_ASSUME_AUTHORITY, k), ENOKEY);
    CHECK_ERR(KC(KEYCTL_ASSUME_AUTHORITY, -1), EINVAL);
    OK(KC(KEYCTL_ASSUME_AUTHORITY, 0));
    CHECK_ERR(KC(KEYCTL_RESTRICT_KEYRING, r, 0, "x"), EINVAL);
    CHECK_ERR(KC(KEYCTL_RESTRICT_KEYRING, r, "user", 0), EINVAL);
    CHECK_ERR(KC(KEYCTL_RESTRICT_KEYRING, r, "user", "x"), ENOENT);
    CHECK_ERR(KC(KEYCTL_RESTRICT_KEYRING, k, 0, 0), ENOTDIR);
    OK(KC(KEYCTL_RESTRICT_KEYRING, r, 0, 0));
    CHECK_ERR(KC(KEYCTL_RESTRICT_KEYRING, r, 0, 0), EEXIST);
    CHECK_ERR(KC(KEYCTL_LINK, k, r), EPERM);
    CHECK_ERR(add("user", "new", "p", 1, r), EPERM);
    char b[100];
    key p = SYS(KC(KEYCTL_GET_PERSISTENT, -1, SESSION));
    KC(KEYCTL_DESCRIBE, p, b, sizeof b);
    CHECK(strstr(b, ";1f030000;_persistent."));
}
TEST(quota) {
    if (getuid()) SKIP("root only");
    CHECK_CHILD({
        fresh();
        OK(setresuid(4321, 4321, 4321));
        int n = 0;
        char d[20];
        while (n < 1000) {
            sprintf(d, "k%d", n);
            if (add("user", d, "p", 1, PROCESS) < 0) break;
            n++;
        }
        CHECK_EQ(errno, EDQUOT);
        CHECK(n > 100 && n <= 200);
        OK(KC(KEYCTL_CLEAR, PROCESS));
        char p[20000] = {1};
        CHECK_ERR(add("user", "big", p, 20000, PROCESS), EDQUOT);
    });
}
TEST(proc_keys) {
    char line[300], want[300];
    fresh();
    key k = SYS(add("user", "listed in proc", "12345", 5, SESSION));
    sprintf(want, "%08x I--Q---     1 perm 3f010000 %5d %5d user      listed in proc: 5\n", k, getuid(), getgid());
    FILE *f = fopen("/proc/keys", "r");
    bool found = false;
    while (fgets(line, sizeof line, f)) found |= !strcmp(line, want);
    CHECK(found);
    fclose(f);
    f = fopen("/proc/key-users", "r");
    found = false;
    int uid, uses, n, ni, qn, mn, qb, mb;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%d: %d %d/%d %d/%d %d/%d", &uid, &uses, &n, &ni, &qn, &mn, &qb, &mb) == 8 && uid == getuid()) found = n > 0 && qn > 0 && qb > 0;
    CHECK(found);
    fclose(f);
}

static void map_ids(pid_t p, const char *file, const char *map) {
    char path[64];
    sprintf(path, "/proc/%d/%s", p, file);
    int fd = SYS(open(path, O_WRONLY));
    CHECK_EQ(write(fd, map, strlen(map)), strlen(map));
    close(fd);
}
// Users 0 to 9 of a user namespace are the host's 1000 to 1009. Its root is nobody special where keys are concerned.
TEST(ownership_in_a_user_namespace) {
    struct t_gate made = t_gate(), mapped = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        SYS(unshare(CLONE_NEWUSER));
        t_open(made);
        t_pass(mapped);
        SYS(setresgid(0, 0, 0));
        SYS(setresuid(0, 0, 0));
        char b[200];
        fresh();
        key k = SYS(add("user", "mine", "p", 1, SESSION));
        CHECK(KC(KEYCTL_DESCRIBE, k, b, sizeof b) > 0);
        CHECK_STR(b, "user;0;0;3f010000;mine");
        CHECK_ERR(KC(KEYCTL_CHOWN, k, 10, -1), EINVAL);
        CHECK_ERR(KC(KEYCTL_CHOWN, k, -1, 10), EINVAL);
        CHECK_ERR(KC(KEYCTL_CHOWN, 0x7ffffff0, 10, -1), EINVAL);
        CHECK_ERR(KC(KEYCTL_CHOWN, k, 5, -1), EACCES);
        CHECK_ERR(KC(KEYCTL_CHOWN, k, -1, 5), EACCES);
        OK(KC(KEYCTL_CHOWN, k, 0, -1));
        OK(KC(KEYCTL_CHOWN, k, -1, 0));
        OK(KC(KEYCTL_SETPERM, k, 0x3f3f0000));
        syscall(SYS_setfsuid, 5);
        key other = SYS(add("user", "other", "p", 1, SESSION));
        syscall(SYS_setfsuid, 0);
        CHECK(KC(KEYCTL_DESCRIBE, other, b, sizeof b) > 0);
        CHECK_STR(b, "user;5;0;3f010000;other");
        CHECK_ERR(KC(KEYCTL_SETPERM, other, 0x3f3f0000), EACCES);
        CHECK_ERR(KC(KEYCTL_GET_PERSISTENT, 10, SESSION), EINVAL);
        char text[8192];
        CHECK(t_slurp("/proc/keys", text, sizeof text) > 0);
        char *line = text;
        while (line && strtoul(line, 0, 16) != (unsigned)other)
            line = strchr(line, '\n') ? strchr(line, '\n') + 1 : 0;
        MUST(line);
        unsigned perm, uid, gid;
        CHECK_EQ(sscanf(line, "%*x %*s %*u %*s %x %u %u", &perm, &uid, &gid), 3);
        CHECK_EQ(uid, 5);
        CHECK_EQ(gid, 0);
        // Those with keys are listed under their numbers here.
        CHECK(t_slurp("/proc/key-users", text, sizeof text) > 0);
        CHECK(strstr(text, "    5:"));
        CHECK(!strstr(text, " 1005:"));
        key ring = SYS(KC(KEYCTL_GET_KEYRING_ID, USERR, 1));
        CHECK(KC(KEYCTL_DESCRIBE, ring, b, sizeof b) > 0);
        CHECK_STR(b, "keyring;0;65534;1f3f0000;_uid.0");
        _exit(0);
    }
    t_pass(made);
    map_ids(p, "uid_map", "0 1000 10");
    map_ids(p, "gid_map", "0 1000 10");
    t_open(mapped);
    CHECK_STATUS(t_status(p), "exit 0");
}

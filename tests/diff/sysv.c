// System V IPC: shared memory, semaphores, message queues.
#include "t.h"
#include <grp.h>
#include <pthread.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
    struct seminfo *info;
};
static void drop_root(void) {
    if (getuid() == 0) OK(setgid(65534));
    if (getuid() == 0) OK(setuid(65534));
}
// The line of an id in a table of /proc/sysvipc: its number of fields, 0 when there is none.
static int table_line(const char *path, int id, char *line, size_t size) {
    static char all[65536];
    t_slurp(path, all, sizeof all);
    for (char *l = strtok(all, "\n"); l; l = strtok(0, "\n")) {
        int k, i;
        if (sscanf(l, "%d %d", &k, &i) == 2 && i == id) {
            snprintf(line, size, "%s", l);
            return 1;
        }
    }
    return 0;
}

// ---- shared memory
static struct shmid_ds shm(int id) {
    struct shmid_ds d;
    memset(&d, 0xee, sizeof d);
    OK(shmctl(id, IPC_STAT, &d));
    return d;
}
TEST(shm_get) {
    CHECK_ERR(shmget(4711, 4096, 0600), ENOENT);
    int id = SYS(shmget(4711, 5000, IPC_CREAT | 0640));
    CHECK_EQ(shmget(4711, 5000, 0600), id);
    CHECK_EQ(shmget(4711, 0, 0), id);
    CHECK_ERR(shmget(4711, 5001, 0), EINVAL);
    CHECK_ERR(shmget(4711, 100, IPC_CREAT | IPC_EXCL), EEXIST);
    CHECK_ERR(shmget(IPC_PRIVATE, 0, 0600), EINVAL);
    struct shmid_ds d = shm(id);
    CHECK_EQ(d.shm_segsz, 5000);
    CHECK_EQ(d.shm_perm.__key, 4711);
    CHECK_EQ(d.shm_perm.mode, 0640);
    CHECK_EQ(d.shm_perm.uid, getuid());
    CHECK_EQ(d.shm_perm.cgid, getgid());
    CHECK_EQ(d.shm_cpid, getpid());
    OK(d.shm_lpid);
    OK(d.shm_nattch);
    OK(d.shm_atime);
    CHECK(d.shm_ctime >= time(0) - 100 && d.shm_ctime <= time(0));
    OK(shmctl(id, IPC_RMID, 0));
    CHECK_ERR(shmctl(id, IPC_STAT, &d), EINVAL);
    CHECK_ERR(shmget(4711, 0, 0), ENOENT);
    CHECK_ERR(shmctl(-1, IPC_STAT, &d), EINVAL);
    CHECK_ERR(shmat(id, 0, 0) == (void *)-1 ? -1 : 0, EINVAL);
}
TEST(shm_attach) {
    int id = SYS(shmget(IPC_PRIVATE, 3 * 4096, 0600));
    char *a = SYS(shmat(id, 0, 0)), *b = SYS(shmat(id, 0, SHM_RDONLY));
    OK(a[8191]);
    a[8191] = 7;
    CHECK_EQ(b[8191], 7);
    CHECK_EQ(shm(id).shm_nattch, 2);
    CHECK_EQ(shm(id).shm_lpid, getpid());
    CHECK(shm(id).shm_atime);
    CHECK_ERR(mprotect(b, 4096, PROT_READ | PROT_WRITE), EACCES);
    CHECK_STATUS(CHILD(b[0] = 1), "signal 11");
    CHECK_ERR((long)shmat(id, a + 100, 0), EINVAL);
    CHECK_ERR((long)shmat(id, a, 0), EINVAL);
    CHECK_ERR((long)shmat(id, 0, SHM_REMAP), EINVAL);
    CHECK_EQ(shmat(id, b + 100, SHM_RND | SHM_REMAP), b);
    b[1] = 9;
    CHECK_EQ(a[1], 9);
    CHECK_EQ(shm(id).shm_nattch, 2);
    CHECK_ERR(shmdt(a + 4096), EINVAL);
    CHECK_ERR(shmdt(a + 1), EINVAL);
    OK(shmdt(a));
    CHECK_ERR(shmdt(a), EINVAL);
    CHECK_EQ(shm(id).shm_nattch, 1);
    CHECK(shm(id).shm_dtime);
    OK(shmdt(b));
    OK(shm(id).shm_nattch);
    OK(shmctl(id, IPC_RMID, 0));
}
TEST(shm_fork_exec_exit) {
    int id = SYS(shmget(IPC_PRIVATE, 4096, 0600));
    int *a = SYS(shmat(id, 0, 0));
    struct t_gate g = t_gate(), h = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        a[0] = 42;
        t_open(g);
        t_pass(h);
        _exit(0);
    }
    t_pass(g);
    CHECK_EQ(a[0], 42);
    CHECK_EQ(shm(id).shm_nattch, 2);
    t_open(h);
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_EQ(shm(id).shm_nattch, 1);
    p = FORK();
    if (p == 0) {
        execl("/bin/sleep", "sleep", "0.3", NULL);
        _exit(1);
    }
    for (int i = 0; i < 200 && shm(id).shm_nattch != 1; i++) t_ms(1);
    CHECK_EQ(shm(id).shm_nattch, 1);
    CHECK_STATUS(t_status(p), "exit 0");
    p = FORK();
    if (p == 0) {
        raise(SIGKILL);
    }
    t_status(p);
    CHECK_EQ(shm(id).shm_nattch, 1);
    OK(munmap(a, 4096));
    OK(shm(id).shm_nattch);
    OK(shmctl(id, IPC_RMID, 0));
}
TEST(shm_removed_while_attached) {
    int id = SYS(shmget(5, 4096, IPC_CREAT | 0600));
    int *a = SYS(shmat(id, 0, 0));
    OK(shmctl(id, IPC_RMID, 0));
    struct shmid_ds d = shm(id);
    CHECK_EQ(d.shm_perm.mode, 0600 | SHM_DEST);
    OK(d.shm_perm.__key);
    CHECK_ERR(shmget(5, 0, 0), ENOENT);
    a[0] = 1;
    int *b = SYS(shmat(id, 0, 0));
    CHECK_EQ(b[0], 1);
    OK(shmdt(b));
    OK(shmdt(a));
    CHECK_ERR(shmctl(id, IPC_STAT, &d), EINVAL);
}
// Each mapping counts: one that is cut in two counts twice, one that is moved once.
TEST(shm_pieces_count) {
    int id = SYS(shmget(IPC_PRIVATE, 4 * 4096, IPC_CREAT | 0600));
    char *p = SYS(shmat(id, 0, 0));
    CHECK_EQ(shm(id).shm_nattch, 1);
    OK(munmap(p + 4096, 4096));
    CHECK_EQ(shm(id).shm_nattch, 2);
    OK(mprotect(p + 3 * 4096, 4096, PROT_READ));
    CHECK_EQ(shm(id).shm_nattch, 3);
    char *q = mremap(p, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, p + 4096);
    CHECK(q == p + 4096);
    CHECK_EQ(shm(id).shm_nattch, 3);
    OK(munmap(p, 4 * 4096));
    CHECK_EQ(shm(id).shm_nattch, 0);
    OK(shmctl(id, IPC_RMID, 0));
}

TEST(shm_partly_unmapped) {
    int id = SYS(shmget(IPC_PRIVATE, 4 * 4096, 0600));
    char *a = SYS(shmat(id, 0, 0));
    OK(munmap(a + 4096, 4096));
    CHECK_EQ(shm(id).shm_nattch, 2);
    OK(shmdt(a));
    OK(shm(id).shm_nattch);
    OK(shmctl(id, IPC_RMID, 0));
}
TEST(shm_permissions) {
    int id = SYS(shmget(77, 4096, IPC_CREAT | 0600)), ro = SYS(shmget(78, 4096, IPC_CREAT | 0644));
    CHECK_CHILD({
        drop_root();
        struct shmid_ds d;
        CHECK_ERR(shmctl(id, IPC_STAT, &d), EACCES);
        CHECK_ERR(shmctl(id, IPC_RMID, 0), EPERM);
        CHECK_ERR((long)shmat(id, 0, 0), EACCES);
        CHECK_ERR(shmget(77, 0, 0400), EACCES);
        CHECK_EQ(shmget(77, 0, 0), id);
        CHECK_ERR((long)shmat(ro, 0, 0), EACCES);
        CHECK(shmat(ro, 0, SHM_RDONLY) != (void *)-1);
        CHECK_ERR(shmctl(ro, IPC_SET, &d), EPERM);
        OK(shmctl(ro, IPC_STAT, &d));
    });
    struct shmid_ds d = shm(id);
    d.shm_perm.uid = 65534;
    d.shm_perm.mode = 0666;
    OK(shmctl(id, IPC_SET, &d));
    CHECK_EQ(shm(id).shm_perm.uid, 65534);
    CHECK_EQ(shm(id).shm_perm.mode, 0666);
    CHECK_CHILD(drop_root(); CHECK((long)shmat(id, 0, 0) != -1); OK(shmctl(id, IPC_RMID, 0)));
    OK(shmctl(ro, IPC_RMID, 0));
}
TEST(shm_of_huge_pages_needs_a_capability) {
    if (geteuid() != 0) SKIP("not root");
    CHECK_CHILD({
        OK(setgroups(0, 0));
        OK(setresgid(1234, 1234, 1234));
        OK(setresuid(1234, 1234, 1234));
        CHECK_ERR(shmget(IPC_PRIVATE, 2 << 20, IPC_CREAT | SHM_HUGETLB | 0600), EPERM);
    });
}
TEST(shm_info) {
    struct shminfo i;
    struct shm_info u, v;
    int before = SYS(shmctl(0, SHM_INFO, (void *)&u));
    int id = SYS(shmget(IPC_PRIVATE, 8192, 0600));
    CHECK(shmctl(0, IPC_INFO, (void *)&i) >= 0);
    CHECK_EQ(i.shmmni, 4096);
    CHECK_EQ(i.shmmin, 1);
    CHECK(shmctl(0, SHM_INFO, (void *)&v) >= before);
    CHECK_EQ(v.used_ids, u.used_ids + 1);
    CHECK_EQ(v.shm_tot, u.shm_tot + 2);
    struct shmid_ds d;
    CHECK_EQ(shmctl(id & 0x7fff, SHM_STAT, &d), id);
    CHECK_EQ(d.shm_segsz, 8192);
    CHECK_EQ(shmctl(id & 0x7fff, 15 /* SHM_STAT_ANY */, &d), id);
    char line[512];
    CHECK(table_line("/proc/sysvipc/shm", id, line, sizeof line));
    CHECK(strstr(line, "  600                  8192 "));
    OK(shmctl(id, SHM_LOCK, 0));
    CHECK_EQ(shm(id).shm_perm.mode, 0600 | SHM_LOCKED);
    OK(shmctl(id, SHM_UNLOCK, 0));
    CHECK_ERR(shmctl(id, 99, 0), EINVAL);
    OK(shmctl(id, IPC_RMID, 0));
    CHECK(!table_line("/proc/sysvipc/shm", id, line, sizeof line));
}
TEST(shm_maps_name) {
    int id = SYS(shmget(0x1234, 4096, IPC_CREAT | 0600));
    char *a = SYS(shmat(id, 0, 0)), buf[16384], want[64];
    t_slurp("/proc/self/maps", buf, sizeof buf);
    CHECK(strstr(buf, "/SYSV00001234 (deleted)"));
    sprintf(want, "%lx-%lx rw-s 00000000", (long)a, (long)a + 4096);
    CHECK(strstr(buf, want));
    OK(shmctl(id, IPC_RMID, 0));
}
TEST(shm_futexes_work_across) {
    int id = SYS(shmget(IPC_PRIVATE, 4096, 0600));
    pthread_mutex_t *m = SYS(shmat(id, 0, 0));
    int *n = (int *)((char *)m + 1024);
    pthread_mutexattr_t at;
    pthread_mutexattr_init(&at);
    pthread_mutexattr_setpshared(&at, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(m, &at);
    for (int p = 0; p < 3; p++)
        if (FORK() == 0) {
            for (int i = 0; i < 500; i++) {
                pthread_mutex_lock(m);
                ++*n;
                pthread_mutex_unlock(m);
            }
            _exit(0);
        }
    for (int p = 0; p < 3; p++) wait(0);
    CHECK_EQ(*n, 1500);
    OK(shmctl(id, IPC_RMID, 0));
}

// ---- semaphores
static int op(int id, int n, int v, int flags) {
    struct sembuf b = {n, v, flags};
    return semop(id, &b, 1);
}
TEST(sem_get) {
    CHECK_ERR(semget(5, 1, 0600), ENOENT);
    CHECK_ERR(semget(5, 0, IPC_CREAT | 0600), EINVAL);
    CHECK_ERR(semget(5, -1, IPC_CREAT | 0600), EINVAL);
    CHECK_ERR(semget(5, 32001, IPC_CREAT | 0600), EINVAL);
    int id = SYS(semget(5, 3, IPC_CREAT | 0600));
    CHECK_EQ(semget(5, 0, 0), id);
    CHECK_EQ(semget(5, 3, 0), id);
    CHECK_ERR(semget(5, 4, 0), EINVAL);
    CHECK_ERR(semget(5, 3, IPC_CREAT | IPC_EXCL), EEXIST);
    struct semid_ds d;
    OK(semctl(id, 0, IPC_STAT, (union semun){.buf = &d}));
    CHECK_EQ(d.sem_nsems, 3);
    OK(d.sem_otime);
    CHECK(d.sem_ctime);
    CHECK_EQ(d.sem_perm.mode & 0777, 0600);
    OK(semctl(id, 0, IPC_RMID));
    CHECK_ERR(semctl(id, 0, IPC_RMID), EINVAL);
}
TEST(sem_values) {
    int id = SYS(semget(IPC_PRIVATE, 3, 0600));
    unsigned short v[3] = {9, 9, 9};
    OK(semctl(id, 0, GETALL, (union semun){.array = v}));
    OK(v[0] | v[1] | v[2]);
    v[0] = 1, v[1] = 2, v[2] = 3;
    OK(semctl(id, 0, SETALL, (union semun){.array = v}));
    CHECK_EQ(semctl(id, 2, GETVAL), 3);
    OK(semctl(id, 1, SETVAL, (union semun){.val = 32767}));
    CHECK_EQ(semctl(id, 1, GETVAL), 32767);
    CHECK_EQ(semctl(id, 1, GETPID), getpid());
    CHECK_ERR(semctl(id, 1, SETVAL, (union semun){.val = 32768}), ERANGE);
    CHECK_ERR(semctl(id, 1, SETVAL, (union semun){.val = -1}), ERANGE);
    CHECK_ERR(semctl(id, 3, SETVAL, (union semun){.val = 1}), EINVAL);
    CHECK_ERR(semctl(id, 3, GETVAL), EINVAL);
    CHECK_ERR(semctl(id, -1, GETVAL), EINVAL);
    v[0] = 40000;
    CHECK_ERR(semctl(id, 0, SETALL, (union semun){.array = v}), ERANGE);
    CHECK_ERR(semctl(id, 0, SETALL, (union semun){.array = BAD_PTR}), EFAULT);
    CHECK_ERR(semctl(id, 0, 99), EINVAL);
    OK(semctl(id, 0, IPC_RMID));
}
TEST(sem_operations) {
    int id = SYS(semget(IPC_PRIVATE, 2, 0600));
    OK(op(id, 0, 5, 0));
    OK(op(id, 0, -2, 0));
    CHECK_EQ(semctl(id, 0, GETVAL), 3);
    CHECK_ERR(op(id, 0, -4, IPC_NOWAIT), EAGAIN);
    CHECK_ERR(op(id, 0, 0, IPC_NOWAIT), EAGAIN);
    OK(op(id, 1, 0, 0));
    CHECK_ERR(op(id, 2, 1, 0), EFBIG);
    CHECK_ERR(op(id, 0, 32767, 0), ERANGE);
    struct sembuf b[3] = {{0, -1, 0}, {0, -1, 0}, {1, -1, IPC_NOWAIT}};
    CHECK_ERR(semop(id, b, 3), EAGAIN);
    CHECK_EQ(semctl(id, 0, GETVAL), 3);
    CHECK_ERR(semop(id, b, 0), EINVAL);
    CHECK_ERR(semop(id, b, 501), E2BIG);
    CHECK_ERR(semop(id, BAD_PTR, 1), EFAULT);
    CHECK_ERR(semop(-1, b, 1), EINVAL);
    struct timespec ts = {0, 20000000}, bad = {0, 1000000000};
    struct sembuf w = {1, -1, 0};
    CHECK_ERR(semtimedop(id, &w, 1, &ts), EAGAIN);
    CHECK_ERR(semtimedop(id, &w, 1, &bad), EINVAL);
    struct semid_ds d;
    OK(semctl(id, 0, IPC_STAT, (union semun){.buf = &d}));
    CHECK(d.sem_otime);
    OK(semctl(id, 0, IPC_RMID));
}
TEST(sem_waits) {
    int id = SYS(semget(IPC_PRIVATE, 2, 0600));
    pid_t p = FORK();
    if (p == 0) {
        OK(op(id, 0, -2, 0));
        _exit(0);
    }
    while (semctl(id, 0, GETNCNT) != 1) t_ms(1);
    OK(semctl(id, 0, GETZCNT));
    OK(op(id, 0, 1, 0));
    t_ms(20);
    CHECK_EQ(semctl(id, 0, GETNCNT), 1);
    OK(op(id, 0, 1, 0));
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_EQ(semctl(id, 0, GETPID), p);
    OK(semctl(id, 0, GETNCNT));
    OK(op(id, 1, 1, 0));
    p = FORK();
    if (p == 0) {
        OK(op(id, 1, 0, 0));
        _exit(0);
    }
    while (semctl(id, 1, GETZCNT) != 1) t_ms(1);
    OK(op(id, 1, -1, 0));
    CHECK_STATUS(t_status(p), "exit 0");
    p = FORK();
    if (p == 0) {
        CHECK_ERR(op(id, 1, -1, 0), EIDRM);
        _exit(0);
    }
    while (semctl(id, 1, GETNCNT) != 1) t_ms(1);
    OK(semctl(id, 0, IPC_RMID));
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(sem_is_interrupted) {
    int id = SYS(semget(IPC_PRIVATE, 1, 0600));
    t_pester(SA_RESTART);
    CHECK_ERR(op(id, 0, -1, 0), EINTR);
    t_pester_stop();
    OK(semctl(id, 0, GETNCNT));
    OK(semctl(id, 0, IPC_RMID));
}
TEST(sem_undo) {
    int id = SYS(semget(IPC_PRIVATE, 2, 0600));
    OK(op(id, 0, 10, 0));
    pid_t p = FORK();
    if (p == 0) {
        OK(op(id, 0, -3, SEM_UNDO));
        OK(op(id, 1, 4, SEM_UNDO));
        CHECK_EQ(semctl(id, 0, GETVAL), 7);
        _exit(0);
    }
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_EQ(semctl(id, 0, GETVAL), 10);
    OK(semctl(id, 1, GETVAL));
    CHECK_EQ(semctl(id, 0, GETPID), p);
    // Killed, and with SETVAL in between.
    p = FORK();
    if (p == 0) {
        OK(op(id, 0, -3, SEM_UNDO));
        OK(op(id, 1, 4, SEM_UNDO));
        OK(semctl(id, 0, SETVAL, (union semun){.val = 1}));
        raise(SIGKILL);
    }
    t_status(p);
    CHECK_EQ(semctl(id, 0, GETVAL), 1);
    OK(semctl(id, 1, GETVAL));
    // Below zero is zero.
    p = FORK();
    if (p == 0) {
        OK(op(id, 1, 4, SEM_UNDO));
        OK(op(id, 1, -3, 0));
        _exit(0);
    }
    t_status(p);
    OK(semctl(id, 1, GETVAL));
    // Not at exec.
    p = FORK();
    if (p == 0) {
        OK(op(id, 1, 4, SEM_UNDO));
        execl("/bin/sleep", "sleep", "0.2", NULL);
    }
    while (semctl(id, 1, GETVAL) != 4) t_ms(1);
    t_ms(50);
    CHECK_EQ(semctl(id, 1, GETVAL), 4);
    t_status(p);
    OK(semctl(id, 1, GETVAL));
    OK(semctl(id, 0, IPC_RMID));
}
static void *undoes(void *a) {
    OK(op(*(int *)a, 0, 5, SEM_UNDO));
    return 0;
}
TEST(sem_undo_is_the_processes) {
    int id = SYS(semget(IPC_PRIVATE, 1, 0600));
    pid_t p = FORK();
    if (p == 0) {
        pthread_t t;
        pthread_create(&t, 0, undoes, &id);
        pthread_join(t, 0);
        t_ms(20);
        CHECK_EQ(semctl(id, 0, GETVAL), 5);
        _exit(0);
    }
    t_status(p);
    OK(semctl(id, 0, GETVAL));
    OK(semctl(id, 0, IPC_RMID));
}
TEST(sem_info) {
    struct seminfo i, u, v;
    CHECK(semctl(0, 0, SEM_INFO, (union semun){.info = &u}) >= 0);
    int id = SYS(semget(IPC_PRIVATE, 7, 0600));
    CHECK(semctl(0, 0, IPC_INFO, (union semun){.info = &i}) >= 0);
    CHECK_EQ(i.semmsl, 32000);
    CHECK_EQ(i.semopm, 500);
    CHECK_EQ(i.semvmx, 32767);
    CHECK(semctl(0, 0, SEM_INFO, (union semun){.info = &v}) >= 0);
    CHECK_EQ(v.semusz, u.semusz + 1);
    CHECK_EQ(v.semaem, u.semaem + 7);
    struct semid_ds d;
    CHECK_EQ(semctl(id & 0x7fff, 0, SEM_STAT, (union semun){.buf = &d}), id);
    char line[512];
    CHECK(table_line("/proc/sysvipc/sem", id, line, sizeof line));
    OK(semctl(id, 0, IPC_RMID));
}
TEST(sem_permissions) {
    int id = SYS(semget(IPC_PRIVATE, 1, 0604));
    CHECK_CHILD({
        drop_root();
        CHECK_ERR(op(id, 0, 1, 0), EACCES);
        OK(op(id, 0, 0, 0));
        OK(semctl(id, 0, GETVAL));
        CHECK_ERR(semctl(id, 0, SETVAL, (union semun){.val = 1}), EACCES);
        CHECK_ERR(semctl(id, 0, IPC_RMID), EPERM);
    });
    OK(semctl(id, 0, IPC_RMID));
}

// ---- messages
struct m {
    long type;
    char text[100];
};
static int put(int id, long type, const char *s, int flags) {
    struct m m = {type, ""};
    strcpy(m.text, s);
    return msgsnd(id, &m, strlen(s), flags);
}
#define GOT(id, want_type, want, kind, flags)                                                                          \
    ({                                                                                                                 \
        struct m m_ = {0};                                                                                             \
        CHECK_EQ(msgrcv(id, &m_, 99, kind, flags), strlen(want));                                                      \
        CHECK_EQ(m_.type, want_type);                                                                                  \
        CHECK_STR(m_.text, want);                                                                                      \
    })
TEST(msg_types) {
    int id = SYS(msgget(IPC_PRIVATE, 0600));
    OK(put(id, 3, "three", 0));
    OK(put(id, 1, "one", 0));
    OK(put(id, 2, "two", 0));
    OK(put(id, 1, "uno", 0));
    OK(put(id, 7, "", 0));
    GOT(id, 1, "one", 1, 0);
    GOT(id, 1, "uno", -2, 0);
    GOT(id, 2, "two", 3, MSG_EXCEPT);
    GOT(id, 3, "three", 0, 0);
    GOT(id, 7, "", 0, 0);
    struct m m;
    CHECK_ERR(msgrcv(id, &m, 99, 0, IPC_NOWAIT), ENOMSG);
    CHECK_ERR(put(id, 0, "x", 0), EINVAL);
    CHECK_ERR(put(id, -1, "x", 0), EINVAL);
    CHECK_ERR(msgsnd(id, &m, 8193, 0), EINVAL);
    CHECK_ERR(msgsnd(id, BAD_PTR, 1, 0), EFAULT);
    CHECK_ERR(msgrcv(id, &m, -1, 0, 0), EINVAL);
    CHECK_ERR(msgrcv(-1, &m, 1, 0, 0), EINVAL);
    OK(put(id, 1, "long text", 0));
    CHECK_ERR(msgrcv(id, &m, 4, 0, 0), E2BIG);
    CHECK_EQ(msgrcv(id, &m, 4, 0, MSG_NOERROR), 4);
    CHECK_MEM(m.text, "long", 4);
    CHECK_ERR(msgrcv(id, &m, 4, 0, IPC_NOWAIT), ENOMSG);
    OK(msgctl(id, IPC_RMID, 0));
    CHECK_ERR(msgctl(id, IPC_RMID, 0), EINVAL);
}
TEST(msg_copy) {
    int id = SYS(msgget(IPC_PRIVATE, 0600));
    struct m m = {0};
    OK(put(id, 4, "a", 0));
    OK(put(id, 5, "b", 0));
    CHECK_ERR(msgrcv(id, &m, 99, 0, MSG_COPY), EINVAL);
    CHECK_ERR(msgrcv(id, &m, 99, 0, MSG_COPY | MSG_EXCEPT | IPC_NOWAIT), EINVAL);
    long r = msgrcv(id, &m, 99, 1, MSG_COPY | IPC_NOWAIT);
    if (r < 0 && errno == ENOSYS) SKIP("no MSG_COPY");
    CHECK_EQ(r, 1);
    CHECK_EQ(m.type, 5);
    CHECK_ERR(msgrcv(id, &m, 99, 2, MSG_COPY | IPC_NOWAIT), ENOMSG);
    GOT(id, 4, "a", 0, 0);
    OK(msgctl(id, IPC_RMID, 0));
}
TEST(msg_full_queue) {
    int id = SYS(msgget(IPC_PRIVATE, 0600));
    struct msqid_ds d;
    OK(msgctl(id, IPC_STAT, &d));
    CHECK_EQ(d.msg_qbytes, 16384);
    OK(d.msg_stime);
    d.msg_qbytes = 10;
    OK(msgctl(id, IPC_SET, &d));
    OK(put(id, 1, "12345678", 0));
    CHECK_ERR(put(id, 1, "abc", IPC_NOWAIT), EAGAIN);
    OK(msgctl(id, IPC_STAT, &d));
    CHECK_EQ(d.msg_qnum, 1);
    CHECK_EQ(d.msg_cbytes, 8);
    CHECK_EQ(d.msg_lspid, getpid());
    OK(d.msg_lrpid);
    pid_t p = FORK();
    if (p == 0) {
        OK(put(id, 2, "waits", 0));
        _exit(0);
    }
    t_ms(30);
    GOT(id, 1, "12345678", 0, 0);
    GOT(id, 2, "waits", 0, 0);
    CHECK_STATUS(t_status(p), "exit 0");
    d.msg_qbytes = 1000000;
    CHECK_CHILD(drop_root(); CHECK_ERR(msgctl(id, IPC_SET, &d), EPERM));
    OK(msgctl(id, IPC_RMID, 0));
}
TEST(msg_receiver_waits) {
    int id = SYS(msgget(9, IPC_CREAT | 0600));
    pid_t p = FORK();
    if (p == 0) {
        GOT(id, 5, "five", 5, 0);
        CHECK_ERR(put(id, 1, "x", 0) < 0 ? -1 : msgrcv(id, BAD_PTR, 9, 0, 0), EFAULT);
        struct m m;
        CHECK_ERR(msgrcv(id, &m, 9, 8, 0), EIDRM);
        _exit(0);
    }
    t_ms(30);
    OK(put(id, 4, "four", 0));
    OK(put(id, 5, "five", 0));
    t_ms(50);
    OK(msgctl(id, IPC_RMID, 0));
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(msg_interrupted) {
    int id = SYS(msgget(IPC_PRIVATE, 0600));
    struct m m;
    t_pester(SA_RESTART);
    CHECK_ERR(msgrcv(id, &m, 9, 0, 0), EINTR);
    t_pester_stop();
    OK(msgctl(id, IPC_RMID, 0));
}
TEST(msg_info) {
    struct msginfo i, u, v;
    CHECK(msgctl(0, MSG_INFO, (void *)&u) >= 0);
    int id = SYS(msgget(IPC_PRIVATE, 0640));
    OK(put(id, 1, "12345", 0));
    CHECK(msgctl(0, IPC_INFO, (void *)&i) >= 0);
    CHECK_EQ(i.msgmax, 8192);
    CHECK_EQ(i.msgmnb, 16384);
    CHECK_EQ(i.msgmni, 32000);
    CHECK(msgctl(0, MSG_INFO, (void *)&v) >= 0);
    CHECK_EQ(v.msgpool, u.msgpool + 1);
    CHECK_EQ(v.msgmap, u.msgmap + 1);
    CHECK_EQ(v.msgtql, u.msgtql + 5);
    struct msqid_ds d;
    CHECK_EQ(msgctl(id & 0x7fff, MSG_STAT, &d), id);
    CHECK_EQ(d.msg_qnum, 1);
    char line[512];
    CHECK(table_line("/proc/sysvipc/msg", id, line, sizeof line));
    CHECK(strstr(line, "  640           5          1 "));
    OK(msgctl(id, IPC_RMID, 0));
}
TEST(ids_are_not_used_again_soon) {
    int a = SYS(msgget(IPC_PRIVATE, 0600));
    OK(msgctl(a, IPC_RMID, 0));
    int b = SYS(msgget(IPC_PRIVATE, 0600));
    CHECK(a != b);
    OK(msgctl(b, IPC_RMID, 0));
}
TEST(limits_of_proc) {
    char b[100];
    t_slurp("/proc/sys/kernel/sem", b, sizeof b);
    CHECK_STR(b, "32000\t1024000000\t500\t32000\n");
    t_slurp("/proc/sys/kernel/msgmax", b, sizeof b);
    CHECK_STR(b, "8192\n");
    t_slurp("/proc/sys/kernel/shmmni", b, sizeof b);
    CHECK_STR(b, "4096\n");
    t_slurp("/proc/sys/kernel/shmmax", b, sizeof b);
    CHECK_STR(b, "18446744073692774399\n");
}
TEST(ipcs_and_ipcrm) {
    if (access("/usr/bin/ipcs", X_OK)) SKIP("no ipcs");
    int a = SYS(msgget(IPC_PRIVATE, 0600)), b = SYS(semget(IPC_PRIVATE, 2, 0600)), c = SYS(shmget(IPC_PRIVATE, 4096, 0600));
    char cmd[256], out[4096];
    sprintf(cmd, "ipcs | awk '$2 == %d || $2 == %d || $2 == %d' | wc -l >o; ipcrm -q %d -s %d -m %d", a, b, c, a, b, c);
    OK(system(cmd));
    t_slurp("o", out, sizeof out);
    CHECK(atoi(out) >= 3);
    CHECK_ERR(msgctl(a, IPC_RMID, 0), EINVAL);
    CHECK_ERR(semctl(b, 0, IPC_RMID), EINVAL);
    CHECK_ERR(shmctl(c, IPC_RMID, 0), EINVAL);
}
TEST(msgrcv_copies_whole_messages_only) {
    int id = SYS(msgget(IPC_PRIVATE, 0600));
    struct {
        long type;
        char text[100];
    } m = {1, "0123456789"};
    OK(msgsnd(id, &m, 10, 0));
    long r = msgrcv(id, &m, 99, 0, MSG_COPY | IPC_NOWAIT);
    if (r < 0 && errno == ENOSYS) SKIP("no MSG_COPY");
    CHECK_EQ(r, 10);
    CHECK_ERR(msgrcv(id, &m, 5, 0, MSG_COPY | IPC_NOWAIT), E2BIG);
    CHECK_ERR(msgrcv(id, &m, 5, 0, MSG_COPY | MSG_NOERROR | IPC_NOWAIT), EINVAL);
    CHECK_EQ(msgrcv(id, &m, 5, 0, MSG_NOERROR | IPC_NOWAIT), 5);
    OK(msgctl(id, IPC_RMID, 0));
}

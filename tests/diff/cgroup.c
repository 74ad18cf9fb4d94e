// Control groups of version 2: the tree, processes in it, events, the freezer, namespaces. cgroups(7), cgroup-v2.rst.
#include "cgroup.h"

TEST(cgroup_files) {
    IN_GROUP({
        struct stat st;
        struct statfs fs;
        SYS(statfs(".", &fs));
        CHECK_EQ(fs.f_type, 0x63677270);
        SYS(mkdir("a", 0750));
        SYS(stat("a", &st));
        CHECK_EQ(st.st_mode, S_IFDIR | 0750);
        CHECK_EQ(st.st_nlink, 2);
        SYS(mkdir("a/b", 0755));
        SYS(stat("a", &st));
        CHECK_EQ(st.st_nlink, 3);
        static const struct {
            const char *name;
            int mode;
        } files[] = {{"cgroup.procs", 0644},  {"cgroup.threads", 0644},         {"cgroup.type", 0644},
                     {"cgroup.events", 0444}, {"cgroup.subtree_control", 0644}, {"cgroup.controllers", 0444},
                     {"cgroup.stat", 0444},   {"cgroup.max.depth", 0644},       {"cgroup.max.descendants", 0644},
                     {"cgroup.freeze", 0644}, {"cgroup.kill", 0200},            {"cpu.stat", 0444}};
        SYS(chdir("a"));
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            SYS(stat(files[i].name, &st));
            CHECK_EQ(st.st_mode, S_IFREG | files[i].mode);
            CHECK_EQ(st.st_size, 0);
            CHECK_EQ(st.st_nlink, 1);
        }
        CHECK_STR(get("cgroup.procs"), "");
        CHECK_STR(get("cgroup.type"), "domain\n");
        CHECK_STR(get("cgroup.events"), "populated 0\nfrozen 0\n");
        CHECK_STR(get("cgroup.subtree_control"), "");
        CHECK_STR(get("cgroup.max.depth"), "max\n");
        CHECK_STR(get("cgroup.max.descendants"), "max\n");
        CHECK_STR(get("cgroup.freeze"), "0\n");
        CHECK_EQ(g_field("cgroup.stat", "nr_descendants"), 1);
        CHECK_EQ(g_field("cgroup.stat", "nr_dying_descendants"), 0);
        char c;
        int file = SYS(open("cgroup.kill", O_RDONLY));
        CHECK_ERR(read(file, &c, 1), EINVAL);
        file = SYS(open("cgroup.events", O_WRONLY));
        CHECK_ERR(write(file, "x", 1), EINVAL);
        CHECK_ERR(open("other", O_CREAT | O_WRONLY, 0644), EACCES);
        CHECK_ERR(mkfifo("other", 0644), EPERM);
        CHECK_ERR(symlink("b", "other"), EPERM);
        CHECK_ERR(link("cgroup.procs", "other"), EPERM);
        CHECK_ERR(unlink("cgroup.procs"), EPERM);
        CHECK_ERR(unlink("b"), EISDIR);
        CHECK_ERR(rmdir("cgroup.procs"), ENOTDIR);
        CHECK_ERR(rename("b", "c"), EPERM);
        CHECK_ERR(rename("cgroup.procs", "c"), EPERM);
        CHECK_ERR(mkdir("b", 0755), EEXIST);
        CHECK_ERR(mkdir("cgroup.procs", 0755), EEXIST);
        CHECK_ERR(mkdir("x\ny", 0755), EINVAL);
        CHECK_ERR(rmdir("x"), ENOENT);
        SYS(chdir(".."));
        CHECK_ERR(rmdir("a"), EBUSY);
        int fd = SYS(open("a/b/cgroup.procs", O_RDWR));
        int dir = SYS(open("a/b", O_RDONLY | O_DIRECTORY));
        SYS(rmdir("a/b"));
        CHECK_ERR(read(fd, &c, 1), ENODEV);
        CHECK_ERR(write(fd, "0", 1), ENODEV);
        CHECK_ERR(mkdirat(dir, "x", 0755), ENOENT);
        CHECK_ERR(openat(dir, "cgroup.procs", O_RDONLY), ENOENT);
        SYS(rmdir("a"));
        CHECK_ERR(stat("a", &st), ENOENT);
    });
}

TEST(cgroup_list) {
    IN_GROUP({
        SYS(mkdir("a", 0755));
        SYS(mkdir("b", 0755));
        int dirs = 0, procs = 0, twice = 0;
        char seen[64][256];
        int n = 0;
        DIR *d = opendir(".");
        for (struct dirent *e; (e = readdir(d)) && n < 64;) {
            for (int i = 0; i < n; i++) twice += !strcmp(seen[i], e->d_name);
            snprintf(seen[n++], 256, "%s", e->d_name);
            dirs += e->d_type == DT_DIR;
            procs += !strcmp(e->d_name, "cgroup.procs");
        }
        closedir(d);
        CHECK_EQ(dirs, 4);
        CHECK_EQ(procs, 1);
        CHECK_EQ(twice, 0);
    });
}

TEST(cgroup_procs) {
    IN_GROUP({
        char me[32];
        SYS(mkdir("a", 0755));
        SYS(mkdir("b", 0755));
        CHECK_ERR(put("a/cgroup.procs", "x"), EINVAL);
        CHECK_ERR(put("a/cgroup.procs", "-1"), EINVAL);
        CHECK_ERR(put("a/cgroup.procs", "1 2"), EINVAL);
        CHECK_ERR(put("a/cgroup.procs", "99999999999"), EINVAL);
        CHECK_ERR(put("a/cgroup.procs", "4000000"), ESRCH);
        SYS(put("a/cgroup.procs", "0\n"));
        snprintf(me, sizeof me, "%d\n", getpid());
        CHECK_STR(get("a/cgroup.procs"), me);
        CHECK_STR(get("a/cgroup.threads"), me);
        CHECK_STR(g_of(0), "/a");
        CHECK_EQ(g_field("a/cgroup.events", "populated"), 1);
        CHECK_EQ(g_field("cgroup.events", "populated"), 1);
        CHECK_ERR(rmdir("a"), EBUSY);
        int gate[2];
        SYS(pipe(gate));
        pid_t child = FORK();
        if (!child) {
            char c;
            read(gate[0], &c, 1);
            _exit(0);
        }
        CHECK_STR(g_of(child), "/a");
        SYS(put("b/cgroup.procs", "0"));
        CHECK_STR(g_of(0), "/b");
        SYS(g_move("b/cgroup.procs", child));
        CHECK_STR(g_of(child), "/b");
        CHECK_STR(get("a/cgroup.procs"), "");
        SYS(g_move("a/cgroup.procs", child));
        SYS(g_move("a/cgroup.procs", child));
        SYS(write(gate[1], "x", 1));
        siginfo_t info;
        SYS(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
        // A zombie is no member any more, and remembers where it was.
        CHECK_EQ(g_field("a/cgroup.events", "populated"), 0);
        CHECK_STR(get("a/cgroup.procs"), "");
        CHECK_STR(g_of(child), "/a");
        SYS(g_move("b/cgroup.procs", child));
        CHECK_STR(g_of(child), "/a");
        SYS(rmdir("a"));
        CHECK_STR(g_of(child), "/a (deleted)");
        SYS(waitpid(child, 0, 0));
        // Nothing but its own group is open to a thread.
        SYS(mkdir("a", 0755));
        CHECK_ERR(put("a/cgroup.threads", "0"), EOPNOTSUPP);
        SYS(put("b/cgroup.threads", "0"));
    });
}

static void *g_wait(void *gate) {
    char c;
    read(*(int *)gate, &c, 1);
    return 0;
}

#include <pthread.h>

TEST(cgroup_threads) {
    IN_GROUP({
        int gate[2];
        pthread_t t;
        SYS(pipe(gate));
        SYS(mkdir("a", 0755));
        SYS(put("cgroup.procs", "0"));
        CHECK_EQ(pthread_create(&t, 0, g_wait, &gate[0]), 0);
        SYS(put("a/cgroup.procs", "0"));
        CHECK_STR(get("cgroup.threads"), "");
        char *text = get("a/cgroup.threads");
        int lines = 0;
        for (; *text; text++) lines += *text == '\n';
        CHECK_EQ(lines, 2);
        char me[32];
        snprintf(me, sizeof me, "%d\n", getpid());
        CHECK_STR(get("a/cgroup.procs"), me);
        SYS(write(gate[1], "x", 1));
        pthread_join(t, 0);
        CHECK_STR(get("a/cgroup.procs"), me);
    });
}

TEST(cgroup_events) {
    IN_GROUP({
        SYS(mkdir("a", 0755));
        int fd = SYS(open("a/cgroup.events", O_RDONLY));
        struct pollfd p = {.fd = fd, .events = POLLPRI | POLLIN};
        CHECK_EQ(poll(&p, 1, 0), 1);
        CHECK_EQ(p.revents, POLLIN | POLLPRI | POLLERR);
        char text[64];
        CHECK_EQ(pread(fd, text, sizeof text, 0), 21);
        p.events = POLLPRI;
        CHECK_EQ(poll(&p, 1, 0), 0);
        int in = SYS(inotify_init1(IN_NONBLOCK));
        int w = SYS(inotify_add_watch(in, "a/cgroup.events", IN_MODIFY));
        pid_t child = FORK();
        if (!child) {
            SYS(put("a/cgroup.procs", "0"));
            pause();
        }
        CHECK_EQ(poll(&p, 1, 5000), 1);
        CHECK_EQ(p.revents, POLLPRI | POLLERR);
        CHECK_EQ(pread(fd, text, sizeof text, 0), 21);
        CHECK_MEM(text, "populated 1\nfrozen 0\n", 21);
        CHECK_EQ(poll(&p, 1, 0), 0);
        struct inotify_event e[4];
        struct pollfd q = {.fd = in, .events = POLLIN};
        CHECK_EQ(poll(&q, 1, 5000), 1);
        CHECK_EQ(read(in, e, sizeof e), sizeof *e);
        CHECK_EQ(e->wd, w);
        CHECK_EQ(e->mask, IN_MODIFY);
        kill(child, SIGKILL);
        SYS(waitpid(child, 0, 0));
        CHECK_EQ(poll(&p, 1, 5000), 1);
        CHECK_EQ(pread(fd, text, sizeof text, 0), 21);
        CHECK_MEM(text, "populated 0\nfrozen 0\n", 21);
        SYS(put("a/cgroup.freeze", "1"));
        CHECK_EQ(poll(&p, 1, 5000), 1);
        CHECK_EQ(pread(fd, text, sizeof text, 0), 21);
        CHECK_MEM(text, "populated 0\nfrozen 1\n", 21);
        SYS(rmdir("a"));
        CHECK_EQ(poll(&p, 1, 0), 1);
        CHECK_ERR(pread(fd, text, sizeof text, 0), ENODEV);
    });
}

static void on_usr1(int signo) { _exit(9); }

TEST(cgroup_freeze) {
    IN_GROUP({
        volatile long *count = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int gate[2], back[2];
        SYS(pipe(gate));
        SYS(pipe(back));
        SYS(mkdir("a", 0755));
        SYS(mkdir("a/b", 0755));
        CHECK_ERR(put("a/cgroup.freeze", "2"), ERANGE);
        CHECK_ERR(put("a/cgroup.freeze", "-1"), ERANGE);
        CHECK_ERR(put("a/cgroup.freeze", "x"), EINVAL);
        pid_t runs = FORK();
        if (!runs) {
            SYS(put("a/cgroup.procs", "0"));
            for (;;) ++*count;
        }
        pid_t sleeps = FORK();
        if (!sleeps) {
            SYS(put("a/b/cgroup.procs", "0"));
            char c;
            signal(SIGUSR1, on_usr1);
            read(gate[0], &c, 1);
            write(back[1], "y", 1);
            for (;;) pause();
        }
        while (*count < 1000 || g_field("a/b/cgroup.events", "populated") != 1) usleep(1000);
        usleep(20000);
        SYS(put("a/cgroup.freeze", "1"));
        CHECK(g_comes("a/cgroup.events", "frozen", 1));
        CHECK(g_comes("a/b/cgroup.events", "frozen", 1));
        CHECK_EQ(g_field("cgroup.events", "frozen"), 0);
        CHECK_STR(get("a/b/cgroup.freeze"), "0\n");
        long then = *count;
        usleep(50000);
        CHECK_EQ(*count, then);
        // What it waits for has no effect yet, nor has a signal.
        SYS(write(gate[1], "x", 1));
        SYS(kill(sleeps, SIGUSR1));
        struct pollfd p = {.fd = back[0], .events = POLLIN};
        CHECK_EQ(poll(&p, 1, 50), 0);
        CHECK_EQ(waitpid(sleeps, 0, WNOHANG), 0);
        // Who is moved out goes on.
        SYS(g_move("cgroup.procs", runs));
        for (int i = 0; i < 1000 && *count == then; i++) usleep(5000);
        CHECK(*count != then);
        // Who is born or moved in there stands still.
        SYS(g_move("a/cgroup.procs", runs));
        CHECK(g_comes("a/cgroup.events", "frozen", 1));
        SYS(mkdir("a/c", 0755));
        CHECK_EQ(g_field("a/c/cgroup.events", "frozen"), 1);
        // Death comes all the same.
        SYS(kill(runs, SIGKILL));
        CHECK_EQ(t_status(runs), SIGKILL);
        SYS(put("a/cgroup.freeze", "0"));
        CHECK_EQ(t_status(sleeps), 9 << 8);
        SYS(put("a/cgroup.freeze", "1"));
        sleeps = FORK();
        if (!sleeps) {
            SYS(put("a/b/cgroup.procs", "0"));
            pause();
        }
        CHECK(g_comes("a/cgroup.events", "populated", 1));
        CHECK(g_comes("a/cgroup.events", "frozen", 1));
        // A signal that would end it ends it now.
        SYS(kill(sleeps, SIGTERM));
        CHECK_EQ(t_status(sleeps), SIGTERM);
        SYS(put("a/cgroup.freeze", "0"));
        CHECK_STR(get("a/cgroup.events"), "populated 0\nfrozen 0\n");
        SYS(put("a/b/cgroup.freeze", "1"));
        CHECK_EQ(g_field("a/b/cgroup.events", "frozen"), 1);
        CHECK_EQ(g_field("a/cgroup.events", "frozen"), 0);
    });
}

TEST(cgroup_freeze_calls) {
    IN_GROUP({
        int gate[2], back[2];
        SYS(pipe(gate));
        SYS(pipe(back));
        SYS(mkdir("a", 0755));
        pid_t child = FORK();
        if (!child) {
            SYS(put("a/cgroup.procs", "0"));
            char c;
            SYS(write(back[1], "1", 1));
            // The call goes on after a pause, as if nothing had been.
            int n = read(gate[0], &c, 1);
            SYS(write(back[1], n == 1 ? "2" : "-", 1));
            struct timespec ts = {0, 300000000};
            n = nanosleep(&ts, 0);
            SYS(write(back[1], n == 0 ? "3" : "-", 1));
            _exit(0);
        }
        char c = 0;
        SYS(read(back[0], &c, 1));
        usleep(20000);
        SYS(put("a/cgroup.freeze", "1"));
        CHECK(g_comes("a/cgroup.events", "frozen", 1));
        SYS(put("a/cgroup.freeze", "0"));
        SYS(write(gate[1], "x", 1));
        SYS(read(back[0], &c, 1));
        CHECK_EQ(c, '2');
        usleep(20000);
        SYS(put("a/cgroup.freeze", "1"));
        CHECK(g_comes("a/cgroup.events", "frozen", 1));
        SYS(put("a/cgroup.freeze", "0"));
        SYS(read(back[0], &c, 1));
        CHECK_EQ(c, '3');
        CHECK_EQ(t_status(child), 0);
        // A stopped process counts as frozen, and stays stopped.
        child = FORK();
        if (!child) {
            SYS(put("a/cgroup.procs", "0"));
            raise(SIGSTOP);
            _exit(7);
        }
        int st;
        SYS(waitpid(child, &st, WUNTRACED));
        SYS(put("a/cgroup.freeze", "1"));
        CHECK(g_comes("a/cgroup.events", "frozen", 1));
        SYS(put("a/cgroup.freeze", "0"));
        CHECK(g_comes("a/cgroup.events", "frozen", 0));
        CHECK_EQ(waitpid(child, 0, WNOHANG), 0);
        SYS(kill(child, SIGCONT));
        CHECK_EQ(t_status(child), 7 << 8);
    });
}

TEST(cgroup_kill) {
    IN_GROUP({
        SYS(mkdir("a", 0755));
        SYS(mkdir("a/b", 0755));
        SYS(mkdir("c", 0755));
        CHECK_ERR(put("a/cgroup.kill", "0"), ERANGE);
        CHECK_ERR(put("a/cgroup.kill", "x"), EINVAL);
        SYS(put("a/cgroup.kill", "1"));
        static const char *where[] = {"a/cgroup.procs", "a/b/cgroup.procs", "c/cgroup.procs"};
        pid_t child[3];
        int ready[2];
        SYS(pipe(ready));
        for (int i = 0; i < 3; i++)
            if (!(child[i] = FORK())) {
                SYS(put(where[i], "0"));
                SYS(write(ready[1], "x", 1));
                // Grandchildren, one after the other.
                while (fork() > 0) usleep(2000);
                for (;;) pause();
            }
        char c;
        for (int i = 0; i < 3; i++) SYS(read(ready[0], &c, 1));
        SYS(put("a/cgroup.freeze", "1"));
        CHECK(g_comes("a/cgroup.events", "frozen", 1));
        SYS(put("a/cgroup.kill", "1"));
        CHECK_EQ(t_status(child[0]), SIGKILL);
        CHECK_EQ(t_status(child[1]), SIGKILL);
        CHECK(g_comes("a/cgroup.events", "populated", 0));
        CHECK_EQ(waitpid(child[2], 0, WNOHANG), 0);
        SYS(put("c/cgroup.kill", "1"));
        CHECK_EQ(t_status(child[2]), SIGKILL);
        CHECK(g_comes("c/cgroup.events", "populated", 0));
    });
}

// No child escapes that is being made when its parent is killed.
TEST(cgroup_kill_while_forking) {
    IN_GROUP({
        SYS(mkdir("c", 0755));
        for (int round = 0; round < 25; round++) {
            int ready[2];
            SYS(pipe(ready));
            pid_t child = FORK();
            if (!child) {
                SYS(put("c/cgroup.procs", "0"));
                SYS(write(ready[1], "x", 1));
                for (int i = 0; i < 40; i++)
                    if (fork() == 0) break;
                for (;;) pause();
            }
            char x;
            SYS(read(ready[0], &x, 1));
            usleep(round * 150);
            SYS(put("c/cgroup.kill", "1"));
            CHECK_EQ(t_status(child), SIGKILL);
            CHECK(g_comes("c/cgroup.events", "populated", 0));
            SYS(close(ready[0]));
            SYS(close(ready[1]));
        }
    });
}

TEST(cgroup_clone_into) {
    IN_GROUP({
        SYS(mkdir("a", 0755));
        int dir = SYS(open("a", O_RDONLY | O_DIRECTORY)), path = SYS(open("a", O_PATH)), file = SYS(open("a/cgroup.procs", O_RDONLY));
        int other = SYS(open("/", O_RDONLY | O_DIRECTORY));
        CHECK_ERR(g_clone(-1, 0), EINVAL);
        CHECK_ERR(g_clone(1LL << 32, 0), EINVAL);
        CHECK_ERR(g_clone(999, 0), EBADF);
        CHECK_ERR(g_clone(other, 0), EBADF);
        CHECK_ERR(g_clone(file, 0), EBADF);
        for (int i = 0; i < 2; i++) {
            int child = SYS(g_clone(i ? path : dir, 0));
            if (!child) {
                CHECK_STR(g_of(0), "/a");
                _exit(3);
            }
            CHECK_EQ(t_status(child), 3 << 8);
        }
        CHECK(strcmp(g_of(0), "/a"));
        int child = SYS(g_clone(dir, CLONE_NEWCGROUP));
        if (!child) {
            // The namespace begins where the child is.
            char line[256];
            CHECK_STR(g_line("self", line), "/");
            _exit(0);
        }
        CHECK_EQ(t_status(child), 0);
        SYS(put("a/cgroup.freeze", "1"));
        child = SYS(g_clone(dir, 0));
        if (!child) _exit(4);
        CHECK(g_comes("a/cgroup.events", "frozen", 1));
        CHECK_EQ(waitpid(child, 0, WNOHANG), 0);
        SYS(put("a/cgroup.freeze", "0"));
        CHECK_EQ(t_status(child), 4 << 8);
        SYS(rmdir("a"));
        CHECK_ERR(g_clone(dir, 0), ENOENT);
    });
}

TEST(cgroup_limits) {
    IN_GROUP({
        SYS(mkdir("a", 0755));
        CHECK_ERR(put("a/cgroup.max.depth", "x"), EINVAL);
        CHECK_ERR(put("a/cgroup.max.depth", "-1"), ERANGE);
        CHECK_ERR(put("a/cgroup.max.descendants", "-1"), ERANGE);
        SYS(put("a/cgroup.max.depth", "1\n"));
        CHECK_STR(get("a/cgroup.max.depth"), "1\n");
        SYS(mkdir("a/b", 0755));
        CHECK_ERR(mkdir("a/b/c", 0755), EAGAIN);
        SYS(put("a/cgroup.max.depth", "max"));
        SYS(mkdir("a/b/c", 0755));
        SYS(put("a/cgroup.max.descendants", "2"));
        CHECK_ERR(mkdir("a/d", 0755), EAGAIN);
        CHECK_ERR(mkdir("a/b/d", 0755), EAGAIN);
        SYS(rmdir("a/b/c"));
        SYS(mkdir("a/d", 0755));
        SYS(put("a/cgroup.max.descendants", "0"));
        CHECK_EQ(g_field("cgroup.stat", "nr_descendants"), 3);
        CHECK_ERR(put("a/cgroup.subtree_control", "+nosuch"), EINVAL);
        CHECK_ERR(put("a/cgroup.subtree_control", "pids"), EINVAL);
        CHECK_ERR(put("a/cgroup.subtree_control", "+pids"), ENOENT);
        SYS(put("a/cgroup.subtree_control", "-pids"));
        CHECK_ERR(put("a/cgroup.type", "domain"), EINVAL);
        char text[5000];
        memset(text, ' ', sizeof text);
        text[4999] = 0;
        CHECK_ERR(put("a/cgroup.procs", text), E2BIG);
    });
}

// The root of the mount whose place ends like this, in mountinfo.
static const char *mount_root(const char *place) {
    static char root[512], text[1 << 16];
    char line[1024], at[512];
    root[0] = 0;
    t_slurp("/proc/self/mountinfo", text, sizeof text);
    for (char *l = strtok(text, "\n"); l; l = strtok(0, "\n")) {
        snprintf(line, sizeof line, "%s", l);
        if (sscanf(line, "%*d %*d %*s %511s %511s", root, at) != 2) continue;
        size_t n = strlen(at), m = strlen(place);
        if (n >= m && !strcmp(at + n - m, place)) return root;
    }
    return "not found";
}
TEST(cgroup_namespace) {
    IN_GROUP({
        char line[256], pid[16];
        SYS(mkdir("a", 0755));
        SYS(mkdir("a/b", 0755));
        SYS(mkdir("c", 0755));
        int outer = SYS(open("/proc/self/ns/cgroup", O_RDONLY));
        int inside[2], done[2];
        SYS(pipe(inside));
        SYS(pipe(done));
        snprintf(pid, sizeof pid, "%d", getpid());
        pid_t child = FORK();
        if (!child) {
            SYS(put("a/cgroup.procs", "0"));
            SYS(unshare(CLONE_NEWCGROUP));
            CHECK_STR(g_line("self", line), "/");
            SYS(put("a/b/cgroup.procs", "0"));
            CHECK_STR(g_line("self", line), "/b");
            SYS(unshare(CLONE_NEWNS));
            // What mounts of the group above show, seen from here.
            char up[256] = "/..";
            for (char *s = g_path; (s = strchr(s, '/')); s++) strcat(up, "/..");
            CHECK_STR(mount_root("/cg"), up);
            SYS(mkdir("/tmp/ns.b", 0755));
            SYS(mount("a/b", "/tmp/ns.b", 0, MS_BIND, 0));
            CHECK_STR(mount_root("/tmp/ns.b"), "/b");
            SYS(umount("/tmp/ns.b"));
            SYS(rmdir("/tmp/ns.b"));
            SYS(mkdir("/tmp/ns.cg", 0755));
            SYS(mount("none", "/tmp/ns.cg", "cgroup2", 0, 0));
            CHECK_EQ(access("/tmp/ns.cg/b", F_OK), 0);
            CHECK_ERR(access("/tmp/ns.cg/c", F_OK), ENOENT);
            char want[32];
            snprintf(want, sizeof want, "%d\n", getpid());
            CHECK_STR(get("/tmp/ns.cg/b/cgroup.procs"), want);
            SYS(umount("/tmp/ns.cg"));
            SYS(rmdir("/tmp/ns.cg"));
            SYS(write(inside[1], "x", 1));
            char c;
            SYS(read(done[0], &c, 1));
            g_line("self", line);
            CHECK_STR(line, "/../c");
            SYS(setns(outer, CLONE_NEWCGROUP));
            CHECK_STR(g_of(0), "/c");
            _exit(0);
        }
        char c;
        SYS(read(inside[0], &c, 1));
        CHECK_STR(g_of(child), "/a/b");
        SYS(g_move("c/cgroup.procs", child));
        SYS(write(done[1], "x", 1));
        CHECK_EQ(t_status(child), 0);
    });
}

TEST(cgroup_delegation) {
    IN_GROUP({
        struct stat st;
        SYS(mkdir("d", 0755));
        SYS(mkdir("d/in", 0755));
        SYS(mkdir("out", 0755));
        SYS(chown("d", 1000, 1000));
        SYS(chown("d/cgroup.procs", 1000, 1000));
        SYS(chown("d/cgroup.subtree_control", 1000, 1000));
        SYS(stat("d/cgroup.procs", &st));
        CHECK_EQ(st.st_uid, 1000);
        CHECK_EQ(st.st_mode, S_IFREG | 0644);
        SYS(stat("d/cgroup.type", &st));
        CHECK_EQ(st.st_uid, 0);
        int kept = SYS(open("out/cgroup.procs", O_WRONLY));
        int users = SYS(open("d/cgroup.procs", O_WRONLY));
        pid_t child = FORK();
        if (!child) {
            SYS(put("d/cgroup.procs", "0"));
            become(1000);
            umask(022);
            CHECK_ERR(mkdir("no", 0755), EACCES);
            SYS(mkdir("d/mine", 0755));
            SYS(stat("d/mine", &st));
            CHECK_EQ(st.st_uid, 1000);
            SYS(stat("d/mine/cgroup.freeze", &st));
            CHECK_EQ(st.st_uid, 1000);
            CHECK_EQ(st.st_gid, 1000);
            SYS(put("d/mine/cgroup.procs", "0"));
            CHECK_STR(g_of(0), "/d/mine");
            SYS(put("d/cgroup.procs", "0"));
            CHECK_ERR(put("d/in/cgroup.procs", "0"), EACCES);
            CHECK_ERR(put("out/cgroup.procs", "0"), EACCES);
            CHECK_ERR(put("d/cgroup.freeze", "1"), EACCES);
            SYS(put("d/mine/cgroup.freeze", "1"));
            SYS(put("d/mine/cgroup.freeze", "0"));
            SYS(put("d/cgroup.subtree_control", ""));
            // Who opened the file counts.
            CHECK_EQ(write(kept, "0", 1), 1);
            CHECK_STR(g_of(0), "/out");
            // The common group is not the user's.
            CHECK_ERR(put("d/mine/cgroup.procs", "0"), EACCES);
            CHECK_EQ(write(users, "0", 1), 1);
            int dir = SYS(open("d/mine", O_RDONLY));
            int one = SYS(g_clone(dir, 0));
            if (!one) _exit(0);
            CHECK_EQ(t_status(one), 0);
            int in = SYS(open("d/in", O_RDONLY));
            CHECK_ERR(g_clone(in, 0), EACCES);
            SYS(rmdir("d/mine"));
            SYS(rmdir("d/in"));
            CHECK_ERR(rmdir("out"), EACCES);
            _exit(0);
        }
        CHECK_EQ(t_status(child), 0);
        SYS(chmod("d", 0700));
        SYS(stat("d", &st));
        CHECK_EQ(st.st_mode, S_IFDIR | 0700);
    });
}

TEST(cgroup_cpu_stat) {
    IN_GROUP({
        SYS(mkdir("a", 0755));
        SYS(mkdir("a/b", 0755));
        CHECK_EQ(g_field("a/cpu.stat", "usage_usec"), 0);
        CHECK_CHILD({
            SYS(put("a/b/cgroup.procs", "0"));
            long long end = t_now_ms() + 300;
            while (t_now_ms() < end) {}
        });
        long used = g_field("a/cpu.stat", "usage_usec");
        CHECK(used > 20000 && used < 5000000);
        CHECK(g_field("a/b/cpu.stat", "usage_usec") > 20000);
        CHECK(g_field("a/cpu.stat", "user_usec") + g_field("a/cpu.stat", "system_usec") <= used + 1);
        SYS(rmdir("a/b"));
        CHECK(g_field("a/cpu.stat", "usage_usec") >= used);
    });
}

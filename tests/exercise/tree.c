// Random operations on a tree of names, each checked against a model: its result, and what is there afterwards.
//
//   tree SEED SECONDS DIRECTORY
//
// DIRECTORY gets four directories with eight names each. A name is a file, one of several names of a file, a link or a
// directory that may hold files. The first difference ends it with what was done last and the seed that does the same again.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define DIRS 4
#define NAMES 8
#define INNER 3
#define INODES (DIRS * NAMES * (INNER + 1) + 8)
#define REMEMBERED 24

enum kind { NOTHING, REGULAR, LINK, DIRECTORY, FIFO };

struct inode {
    enum kind kind;
    int links, mode, uid, gid, size, tag; // tag: the byte that fills it; of a link, in its target
    int attribute;                        // value of user.model, -1 for none
    struct inode *in[INNER];              // of a directory
    unsigned long number;
};

static struct inode *names[DIRS][NAMES];
static uint64_t state, operation;
static unsigned long seed;
static char history[REMEMBERED][160];

static uint64_t rnd(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state >> 11) % below;
}

#define NOTE(...) snprintf(history[operation % REMEMBERED], sizeof history[0], __VA_ARGS__)

static void die(const char *what, long got, long want) {
    fprintf(stderr, "tree: seed %lu, operation %lu: %s is %ld rather than %ld\n", seed, (long)operation, what, got, want);
    for (uint64_t n = operation < REMEMBERED ? 0 : operation - REMEMBERED + 1; n <= operation; n++)
        fprintf(stderr, "  %lu: %s\n", (long)n, history[n % REMEMBERED]);
    exit(1);
}

static void want(const char *what, long got, long expected) {
    if (got != expected) die(what, got, expected);
}

// A place in the tree: a name, or one in a directory with a name.
struct place {
    int dir, name, inner; // inner: -1 for the name itself
    char path[64];
};

static struct place pick(int deep) {
    struct place p = {rnd(DIRS), rnd(NAMES), -1, ""};
    struct inode *i = names[p.dir][p.name];
    if (deep && i && i->kind == DIRECTORY && rnd(2)) p.inner = rnd(INNER);
    int n = snprintf(p.path, sizeof p.path, "d%d/n%d", p.dir, p.name);
    if (p.inner >= 0) snprintf(p.path + n, sizeof p.path - n, "/i%d", p.inner);
    return p;
}

static struct inode **slot(const struct place *p) {
    struct inode **s = &names[p->dir][p->name];
    return p->inner < 0 ? s : &(*s)->in[p->inner];
}

static int empty(const struct inode *d) {
    for (int i = 0; i < INNER; i++)
        if (d->in[i]) return 0;
    return 1;
}

static void dropped(struct inode *i) {
    if (i->kind == DIRECTORY || !--i->links) free(i);
}

static int result(int r) { return r < 0 ? errno : 0; }

static void look(const char *path, struct inode *i) {
    struct stat st;
    int e = result(lstat(path, &st));
    want("error of lstat", e, i ? 0 : ENOENT);
    if (!i) return;
    static const int type[] = {0, S_IFREG, S_IFLNK, S_IFDIR, S_IFIFO};
    want("type", st.st_mode & S_IFMT, type[i->kind]);
    want("mode", st.st_mode & 07777, i->kind == LINK ? 0777 : i->mode);
    want("owner", st.st_uid, i->uid);
    want("group", st.st_gid, i->gid);
    if (i->kind != DIRECTORY) want("number of links", st.st_nlink, i->links);
    if (!i->number) i->number = st.st_ino;
    want("inode number", st.st_ino, i->number);
    char text[4096];
    if (i->kind == LINK) {
        ssize_t n = readlink(path, text, sizeof text);
        want("length of a link", n, 7);
        want("target of a link", text[6], i->tag);
    } else if (i->kind == REGULAR) {
        want("size", st.st_size, i->size);
        int fd = open(path, O_RDONLY);
        ssize_t n = read(fd, text, sizeof text);
        close(fd);
        want("bytes read", n, i->size);
        for (int k = 0; k < n; k++) want("content", text[k], i->tag);
    }
    if (i->kind == REGULAR || i->kind == DIRECTORY) {
        char v = 0;
        e = result(getxattr(path, "user.model", &v, 1));
        want("error of getxattr", e, i->attribute < 0 ? ENODATA : 0);
        if (!e) want("attribute", v, i->attribute);
    }
}

static void list(const char *path, int count, int (*there)(int, void *), void *of) {
    int seen[NAMES] = {0};
    DIR *d = opendir(path);
    if (!d) die("error of opendir", errno, 0);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') seen[e->d_name[1] - '0']++;
    closedir(d);
    for (int n = 0; n < count; n++) want("times that a name is listed", seen[n], there(n, of));
}

static int has_name(int n, void *of) { return ((struct inode **)of)[n] != 0; }

static struct inode *made(enum kind kind, int mode, int size, int tag) {
    struct inode *i = calloc(1, sizeof *i);
    *i = (struct inode){kind, 1, mode, 0, 0, size, tag, -1, {0}, 0};
    return i;
}

static void do_make(void) {
    struct place p = pick(1);
    struct inode **s = slot(&p);
    int mode = rnd(01000), tag = 'a' + rnd(26), size = rnd(4000), e;
    enum kind kind = p.inner < 0 ? 1 + rnd(4) : REGULAR;
    char text[4000];
    memset(text, tag, sizeof text);
    NOTE("make %s, kind %d, mode %o", p.path, kind, mode);
    if (kind == REGULAR) {
        int fd = open(p.path, O_CREAT | O_EXCL | O_WRONLY, mode);
        e = result(fd);
        if (fd >= 0) {
            want("written", write(fd, text, size), size);
            close(fd);
        }
    } else if (kind == LINK) {
        memcpy(text, "target", 6);
        text[7] = 0;
        e = result(symlink(text, p.path));
    } else {
        e = result(kind == DIRECTORY ? mkdir(p.path, mode) : mkfifo(p.path, mode));
    }
    want("error", e, *s ? EEXIST : 0);
    if (!*s) *s = made(kind, mode, kind == REGULAR ? size : 0, tag);
    look(p.path, *s);
}

static void do_remove(void) {
    struct place p = pick(1);
    struct inode **s = slot(&p), *i = *s;
    int as_dir = rnd(2);
    NOTE("%s %s", as_dir ? "rmdir" : "unlink", p.path);
    int e = result(as_dir ? rmdir(p.path) : unlink(p.path)), expected = 0;
    if (!i)
        expected = ENOENT;
    else if (as_dir)
        expected = i->kind != DIRECTORY ? ENOTDIR : empty(i) ? 0 : ENOTEMPTY;
    else
        expected = i->kind == DIRECTORY ? EISDIR : 0;
    want("error", e, expected);
    if (!e) dropped(i), *s = 0;
    look(p.path, *s);
}

static void do_link(void) {
    struct place a = pick(1), b = pick(1);
    struct inode **from = slot(&a), **to = slot(&b);
    NOTE("link %s to %s", a.path, b.path);
    int e = result(link(a.path, b.path));
    int directory = b.inner >= 0 && *from && (*from)->kind != REGULAR; // the model has files alone in there
    if (!*from) return want("error", e, ENOENT);
    if (*to) return want("error", e, EEXIST);
    if ((*from)->kind == DIRECTORY) return want("error", e, EPERM);
    want("error", e, 0);
    if (directory) {
        want("error of unlink", result(unlink(b.path)), 0);
        return;
    }
    *to = *from, (*from)->links++;
    look(a.path, *from), look(b.path, *to);
}

static void do_rename(void) {
    struct place a = pick(0), b = pick(0);
    struct inode **from = slot(&a), **to = slot(&b);
    int flags = (int[]){0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE}[rnd(4)], expected = 0;
    NOTE("rename %s to %s, flags %d", a.path, b.path, flags);
    int e = result(renameat2(AT_FDCWD, a.path, AT_FDCWD, b.path, flags));
    struct inode *x = *from, *y = *to;
    if (!x)
        expected = ENOENT;
    else if (flags == RENAME_NOREPLACE)
        expected = y ? EEXIST : 0;
    else if (flags == RENAME_EXCHANGE)
        expected = y ? 0 : ENOENT;
    else if (!y || x == y)
        expected = 0;
    else if (x->kind == DIRECTORY && y->kind != DIRECTORY)
        expected = ENOTDIR;
    else if (x->kind != DIRECTORY && y->kind == DIRECTORY)
        expected = EISDIR;
    else if (y->kind == DIRECTORY && !empty(y))
        expected = ENOTEMPTY;
    want("error", e, expected);
    if (e || x == y) return look(a.path, *from), look(b.path, *to);
    if (flags == RENAME_EXCHANGE) {
        *from = y, *to = x;
    } else {
        if (y) dropped(y);
        *to = x, *from = 0;
    }
    look(a.path, *from), look(b.path, *to);
}

static void do_change(void) {
    struct place p = pick(1);
    struct inode *i = *slot(&p);
    int what = rnd(5), number = rnd(01000), e;
    NOTE("change %s, %d to %d", p.path, what, number);
    if (i && i->kind == LINK) return;
    switch (what) {
    case 0: e = result(chmod(p.path, number)); break;
    case 1: e = result(chown(p.path, number, number + 1)); break;
    case 2: {
        char v = number & 127;
        if (i && i->kind == FIFO) return;
        e = result(setxattr(p.path, "user.model", &v, 1, 0));
        break;
    }
    case 3:
        if (i && i->kind != REGULAR) return;
        e = result(truncate(p.path, number));
        break;
    default: {
        if (i && i->kind != REGULAR) return;
        int fd = open(p.path, O_WRONLY | O_APPEND);
        e = result(fd);
        number = i && i->size < 3000 ? number : 0;
        char text[512];
        memset(text, i ? i->tag : 0, sizeof text);
        if (fd >= 0) {
            want("written", write(fd, text, number), number);
            close(fd);
        }
    }
    }
    want("error", e, i ? 0 : ENOENT);
    if (!i) return;
    if (what == 0) i->mode = number;
    if (what == 1) i->uid = number, i->gid = number + 1;
    if (what == 2) i->attribute = number & 127;
    if (what == 3) {
        // What truncate adds is not the tag: begin anew.
        want("error of truncate", result(truncate(p.path, 0)), 0);
        i->size = 0;
    }
    if (what == 4) i->size += number;
    look(p.path, i);
}

static void everything(void) {
    NOTE("everything");
    char path[64];
    for (int d = 0; d < DIRS; d++) {
        snprintf(path, sizeof path, "d%d", d);
        list(path, NAMES, has_name, names[d]);
        for (int n = 0; n < NAMES; n++) {
            struct inode *i = names[d][n];
            snprintf(path, sizeof path, "d%d/n%d", d, n);
            look(path, i);
            if (!i || i->kind != DIRECTORY) continue;
            list(path, INNER, has_name, i->in);
            for (int k = 0; k < INNER; k++) {
                snprintf(path, sizeof path, "d%d/n%d/i%d", d, n, k);
                look(path, i->in[k]);
            }
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: tree SEED SECONDS DIRECTORY\n"), 2;
    seed = strtoul(argv[1], 0, 10);
    state = seed * 0x9e3779b97f4a7c15 + 1;
    time_t end = time(0) + atoi(argv[2]);
    umask(0);
    if (mkdir(argv[3], 0755) || chdir(argv[3])) return perror(argv[3]), 2;
    for (int d = 0; d < DIRS; d++) {
        char path[8];
        snprintf(path, sizeof path, "d%d", d);
        if (mkdir(path, 0755)) return perror(path), 2;
    }
    for (; time(0) < end; operation++) {
        switch (rnd(8)) {
        case 0 ... 2: do_make(); break;
        case 3: do_remove(); break;
        case 4: do_link(); break;
        case 5 ... 6: do_rename(); break;
        case 7: do_change(); break;
        }
        if (operation % 100 == 99) everything();
    }
    printf("%lu operations\n", (long)operation);
    return 0;
}

// A small FUSE daemon that speaks the protocol of /dev/fuse by itself: a tree in memory, with objects that misbehave on purpose.
#include "t.h"
#include <dirent.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#define NODES 64
#define DATA 40000

struct fz_node {
    int used, linked;
    uint64_t parent;
    char name[256];
    uint32_t mode, uid, gid, nlink, rdev;
    uint64_t size;
    struct timespec atime, mtime;
    int host;   // a file of the host that has the bytes, or -1
    int opens;  // open files that are not released
    int forgotten;
    char *data; // DATA bytes
};

// What daemon and test share.
struct fz_shared {
    int count[64];      // requests by operation
    int interrupts;
    int refused;        // errno of the last write(2) that failed
    int missing[64];    // operations that are answered with ENOSYS
    uint64_t timeout;   // seconds that names and attributes hold
    uint32_t open_flags;
    uint32_t init_flags;
    int stop_reading;   // the daemon reads no requests
    int flags, uid, pid; // of the last OPEN
    uint64_t hung;      // the request that has no answer
    int hung_op;
    uint32_t umask, init_minor;
    int no_dots;      // listings are without . and ..
    int out_of_order; // nodes forgotten while open, and files of forgotten nodes released
    struct fz_node node[NODES];
};
static struct fz_shared *fz;
static int fz_fd = -1; // the device
static pid_t fz_daemon;
static char fz_xattr[256], fz_xname[256];
static int fz_xlen = -1;

static void fz_reply(uint64_t unique, int error, const void *data, size_t len) {
    struct fuse_out_header h = {.len = sizeof h + len, .error = -error, .unique = unique};
    struct iovec v[2] = {{&h, sizeof h}, {(void *)data, len}};
    if (writev(fz_fd, v, 2) < 0) fz->refused = errno;
}
static void fz_attr(uint64_t id, struct fuse_attr *a) {
    struct fz_node *n = &fz->node[id];
    memset(a, 0, sizeof *a);
    a->ino = id;
    a->size = n->size;
    a->blocks = (n->size + 511) / 512;
    a->mode = n->mode;
    a->nlink = n->nlink;
    a->uid = n->uid;
    a->gid = n->gid;
    a->rdev = n->rdev;
    a->blksize = 4096;
    a->atime = n->atime.tv_sec, a->atimensec = n->atime.tv_nsec;
    a->mtime = n->mtime.tv_sec, a->mtimensec = n->mtime.tv_nsec;
    a->ctime = n->mtime.tv_sec;
}
static void fz_entry(uint64_t id, struct fuse_entry_out *e) {
    memset(e, 0, sizeof *e);
    e->nodeid = id;
    e->entry_valid = e->attr_valid = fz->timeout;
    fz_attr(id, &e->attr);
}
static void fz_reply_entry(uint64_t unique, uint64_t id) {
    struct fuse_entry_out e;
    fz_entry(id, &e);
    fz_reply(unique, 0, &e, sizeof e);
}
static void fz_reply_attr(uint64_t unique, uint64_t id) {
    struct fuse_attr_out a = {.attr_valid = fz->timeout};
    fz_attr(id, &a.attr);
    fz_reply(unique, 0, &a, sizeof a);
}
static uint64_t fz_find(uint64_t dir, const char *name) {
    for (int i = 2; i < NODES; i++)
        if (fz->node[i].linked && fz->node[i].parent == dir && !strcmp(fz->node[i].name, name)) return i;
    return 0;
}
static uint64_t fz_make(uint64_t dir, const char *name, uint32_t mode, const char *data) {
    for (int i = 2; i < NODES; i++) {
        struct fz_node *n = &fz->node[i];
        if (n->used) continue;
        char *bytes = n->data;
        memset(n, 0, sizeof *n);
        n->data = bytes;
        memset(bytes, 0, DATA);
        n->used = n->linked = n->nlink = 1;
        n->parent = dir;
        n->host = -1;
        snprintf(n->name, sizeof n->name, "%s", name);
        n->mode = mode;
        if (S_ISDIR(mode)) n->nlink = 2;
        n->uid = getuid();
        n->gid = getgid();
        n->mtime.tv_sec = 1000000000;
        if (data) n->size = strlen(data), memcpy(bytes, data, n->size);
        return i;
    }
    return 0;
}
static int fz_empty(uint64_t dir) {
    for (int i = 2; i < NODES; i++)
        if (fz->node[i].linked && fz->node[i].parent == dir) return 0;
    return 1;
}
static void fz_unlink(uint64_t id) {
    fz->node[id].linked = 0;
    fz->node[id].nlink = 0;
}

// The misbehaviour of objects with certain names. True when the request is dealt with.
static int fz_misbehave(struct fuse_in_header *h, char *body) {
    char *name = fz->node[h->nodeid < NODES ? h->nodeid : 0].name;
    struct fuse_entry_out e;
    if (h->opcode == FUSE_LOOKUP) {
        name = body;
        uint64_t id = fz_find(h->nodeid, "hello");
        fz_entry(id, &e);
        if (!strcmp(name, "hang_lookup")) {
            fz->hung = h->unique, fz->hung_op = h->opcode;
            return 1;
        }
        if (!strcmp(name, "id_zero")) e.nodeid = 0;
        else if (!strcmp(name, "id_root")) fz_entry(1, &e);
        else if (!strcmp(name, "self")) fz_entry(h->nodeid, &e);
        else if (!strcmp(name, "above")) fz_entry(fz->node[h->nodeid].parent, &e);
        else if (!strcmp(name, "no_type")) e.nodeid = 1000, e.attr.mode = 0644;
        else if (!strcmp(name, "bad_type")) e.nodeid = 1000, e.attr.mode = 0170644;
        else if (!strcmp(name, "bad_size")) e.nodeid = 1000, e.attr.size = 1ull << 63;
        else if (!strcmp(name, "short")) {
            fz_reply(h->unique, 0, &e, sizeof e - 8);
            return 1;
        } else if (!strcmp(name, "long")) {
            char more[sizeof e + 8] = "";
            fz_reply(h->unique, 0, more, sizeof more);
            return 1;
        } else if (!strcmp(name, "error_body")) {
            fz_reply(h->unique, ENOENT, &e, 8);
            return 1;
        } else if (!strcmp(name, "error_positive") || !strcmp(name, "error_large")) {
            fz_reply(h->unique, !strcmp(name, "error_large") ? 512 : -5, 0, 0);
            fz_reply(h->unique, ENXIO, 0, 0);
            return 1;
        } else if (!strcmp(name, "other_number")) {
            fz_reply(h->unique + 100000, 0, 0, 0);
            fz_reply(h->unique, EXDEV, 0, 0);
            return 1;
        } else if (!strcmp(name, "length_lies")) {
            struct fuse_out_header o = {.len = 17, .error = -ENOENT, .unique = h->unique};
            if (write(fz_fd, &o, sizeof o) < 0) fz->refused = errno;
            fz_reply(h->unique, EXDEV, 0, 0);
            return 1;
        } else if (!strcmp(name, "header_cut")) {
            if (write(fz_fd, "12345678", 8) < 0) fz->refused = errno;
            fz_reply(h->unique, EXDEV, 0, 0);
            return 1;
        } else return 0;
        fz_reply(h->unique, 0, &e, sizeof e);
        return 1;
    }
    if (h->opcode == FUSE_CREATE && !strcmp(body + sizeof(struct fuse_create_in), "create_dir")) {
        struct {
            struct fuse_entry_out e;
            struct fuse_open_out o;
        } out = {0};
        fz_entry(fz_find(1, "dir"), &out.e);
        fz_reply(h->unique, 0, &out, sizeof out);
        return 1;
    }
    if (h->opcode == FUSE_CREATE && !strcmp(body + sizeof(struct fuse_create_in), "there_and_not")) {
        fz_reply(h->unique, EEXIST, 0, 0);
        return 1;
    }
    if (h->opcode == FUSE_OPEN && !strcmp(name, "hang_open")) goto hang;
    if (h->opcode == FUSE_READ && !strcmp(name, "hang_read")) goto hang;
    if (h->opcode == FUSE_MKDIR && !strcmp(body + sizeof(struct fuse_mkdir_in), "hang_mkdir")) goto hang;
    if (h->opcode == FUSE_READ && !strcmp(name, "read_long")) {
        static char much[70000];
        fz_reply(h->unique, 0, much, ((struct fuse_read_in *)body)->size + 1);
        return 1;
    }
    if (h->opcode == FUSE_WRITE && !strcmp(name, "write_more")) {
        struct fuse_write_out w = {.size = ((struct fuse_write_in *)body)->size + 1};
        fz_reply(h->unique, 0, &w, sizeof w);
        return 1;
    }
    if (h->opcode == FUSE_GETATTR && !strcmp(name, "changes_type")) {
        struct fuse_attr_out a = {0};
        fz_attr(h->nodeid, &a.attr);
        a.attr.mode = S_IFDIR | 0755;
        fz_reply(h->unique, 0, &a, sizeof a);
        return 1;
    }
    if (h->opcode == FUSE_LISTXATTR && !strcmp(name, "bad_xattrs")) {
        fz_reply(h->unique, 0, "user.a\0user.b", 13);
        return 1;
    }
    if ((h->opcode == FUSE_READDIR || h->opcode == FUSE_READDIRPLUS) && !strncmp(name, "list_", 5)) {
        struct {
            struct fuse_dirent d;
            char name[32];
        } r = {{5, 1, 4, 0}, "a/bc"};
        if (!strcmp(name, "list_empty_name")) r.d.namelen = 0;
        if (!strcmp(name, "list_long_name")) r.d.namelen = 5000;
        if (!strcmp(name, "list_cut")) memcpy(r.name, "abcd", 4), r.d.namelen = 900;
        fz_reply(h->unique, 0, &r, 32);
        return 1;
    }
    return 0;
hang:
    fz->hung = h->unique, fz->hung_op = h->opcode;
    return 1;
}

static void fz_readdir(struct fuse_in_header *h, struct fuse_read_in *in, int plus) {
    static char out[70000];
    size_t len = 0;
    for (uint64_t i = in->offset; i < NODES; i++) {
        struct fz_node *n = &fz->node[i];
        const char *name = i == 0 ? "." : i == 1 ? ".." : n->name;
        if (i > 1 ? !(n->linked && n->parent == h->nodeid) : fz->no_dots) continue;
        size_t head = plus ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET;
        size_t size = FUSE_DIRENT_ALIGN(head + strlen(name));
        if (len + size > in->size) break;
        memset(out + len, 0, size);
        struct fuse_dirent *d = (void *)(out + len);
        if (plus) {
            struct fuse_direntplus *p = (void *)(out + len);
            if (i > 1) fz_entry(i, &p->entry_out);
            d = &p->dirent;
        }
        d->ino = i > 1 ? i : h->nodeid;
        d->off = i + 1;
        d->namelen = strlen(name);
        d->type = (i > 1 ? n->mode : S_IFDIR) >> 12;
        memcpy(d->name, name, d->namelen);
        len += size;
    }
    fz_reply(h->unique, 0, out, len);
}

static void fz_forget(uint64_t id) {
    if (id >= NODES) return;
    fz->node[id].forgotten = 1;
    if (fz->node[id].opens) fz->out_of_order++;
}

static void fz_serve_one(struct fuse_in_header *h, char *body) {
    struct fz_node *n = &fz->node[h->nodeid < NODES ? h->nodeid : 0];
    if (h->opcode < 64) __sync_fetch_and_add(&fz->count[h->opcode], 1);
    if (h->opcode < 64 && fz->missing[h->opcode]) return fz_reply(h->unique, ENOSYS, 0, 0);
    if (fz_misbehave(h, body)) return;
    switch (h->opcode) {
    case FUSE_INIT: {
        struct fuse_init_in *in = (void *)body;
        fz->init_minor = in->minor;
        struct fuse_init_out out = {.major = 7, .minor = 31, .max_write = 65536, .max_readahead = in->max_readahead};
        out.flags = in->flags & (FUSE_BIG_WRITES | FUSE_PARALLEL_DIROPS | fz->init_flags);
        return fz_reply(h->unique, 0, &out, sizeof out);
    }
    case FUSE_LOOKUP: {
        uint64_t id = fz_find(h->nodeid, body);
        if (!id) return fz_reply(h->unique, ENOENT, 0, 0);
        return fz_reply_entry(h->unique, id);
    }
    case FUSE_FORGET: return fz_forget(h->nodeid);
    case FUSE_BATCH_FORGET: {
        struct fuse_batch_forget_in *in = (void *)body;
        struct fuse_forget_one *one = (void *)(in + 1);
        for (uint32_t i = 0; i < in->count; i++) fz_forget(one[i].nodeid);
        return;
    }
    case FUSE_INTERRUPT: {
        uint64_t which = ((struct fuse_interrupt_in *)body)->unique;
        fz->interrupts++;
        if (which == fz->hung) fz->hung = 0, fz_reply(which, EINTR, 0, 0);
        return;
    }
    case FUSE_GETATTR: return fz_reply_attr(h->unique, h->nodeid);
    case FUSE_SETATTR: {
        struct fuse_setattr_in *in = (void *)body;
        if (in->valid & FATTR_MODE) n->mode = (n->mode & S_IFMT) | (in->mode & 07777);
        if (in->valid & FATTR_UID) n->uid = in->uid;
        if (in->valid & FATTR_GID) n->gid = in->gid;
        if (in->valid & FATTR_SIZE) {
            if (in->size > DATA) return fz_reply(h->unique, EFBIG, 0, 0);
            if (in->size < n->size) memset(n->data + in->size, 0, n->size - in->size);
            n->size = in->size;
        }
        if (in->valid & FATTR_ATIME) n->atime = (struct timespec){in->atime, in->atimensec};
        if (in->valid & FATTR_MTIME) n->mtime = (struct timespec){in->mtime, in->mtimensec};
        return fz_reply_attr(h->unique, h->nodeid);
    }
    case FUSE_READLINK: return fz_reply(h->unique, 0, n->data, n->size);
    case FUSE_SYMLINK:
        return fz_reply_entry(h->unique, fz_make(h->nodeid, body, S_IFLNK | 0777, body + strlen(body) + 1));
    case FUSE_MKNOD: {
        struct fuse_mknod_in *in = (void *)body;
        uint64_t id = fz_make(h->nodeid, body + sizeof *in, in->mode, 0);
        fz->node[id].rdev = in->rdev;
        fz->umask = in->umask;
        return fz_reply_entry(h->unique, id);
    }
    case FUSE_MKDIR: {
        struct fuse_mkdir_in *in = (void *)body;
        return fz_reply_entry(h->unique, fz_make(h->nodeid, body + sizeof *in, S_IFDIR | in->mode, 0));
    }
    case FUSE_UNLINK:
    case FUSE_RMDIR: {
        uint64_t id = fz_find(h->nodeid, body);
        if (!id) return fz_reply(h->unique, ENOENT, 0, 0);
        if (h->opcode == FUSE_RMDIR && !fz_empty(id)) return fz_reply(h->unique, ENOTEMPTY, 0, 0);
        fz_unlink(id);
        return fz_reply(h->unique, 0, 0, 0);
    }
    case FUSE_RENAME:
    case FUSE_RENAME2: {
        uint64_t dir = *(uint64_t *)body;
        uint32_t flags = h->opcode == FUSE_RENAME ? 0 : ((struct fuse_rename2_in *)body)->flags;
        char *from = body + (h->opcode == FUSE_RENAME ? 8 : 16), *to = from + strlen(from) + 1;
        uint64_t a = fz_find(h->nodeid, from), b = fz_find(dir, to);
        if (!a) return fz_reply(h->unique, ENOENT, 0, 0);
        if (flags == RENAME_EXCHANGE && b) {
            fz->node[b].parent = h->nodeid;
            strcpy(fz->node[b].name, from);
        } else if (flags == RENAME_NOREPLACE && b) return fz_reply(h->unique, EEXIST, 0, 0);
        else if (flags & RENAME_WHITEOUT) return fz_reply(h->unique, EINVAL, 0, 0);
        else if (b) fz_unlink(b);
        fz->node[a].parent = dir;
        snprintf(fz->node[a].name, 256, "%s", to);
        return fz_reply(h->unique, 0, 0, 0);
    }
    case FUSE_LINK: // names are all that a node has one of here
        return fz_reply(h->unique, EMLINK, 0, 0);
    case FUSE_CREATE: {
        struct fuse_create_in *in = (void *)body;
        struct {
            struct fuse_entry_out e;
            struct fuse_open_out o;
        } out = {0};
        uint64_t id = fz_make(h->nodeid, body + sizeof *in, in->mode, 0);
        fz->umask = in->umask;
        fz->flags = in->flags;
        fz_entry(id, &out.e);
        fz->node[id].opens++;
        out.o.fh = id;
        return fz_reply(h->unique, 0, &out, sizeof out);
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        struct fuse_open_out o = {.fh = h->nodeid, .open_flags = h->opcode == FUSE_OPEN ? fz->open_flags : 0};
        n->opens++;
        if (h->opcode == FUSE_OPEN) fz->flags = ((struct fuse_open_in *)body)->flags, fz->uid = h->uid, fz->pid = h->pid;
        return fz_reply(h->unique, 0, &o, sizeof o);
    }
    case FUSE_READ: {
        struct fuse_read_in *in = (void *)body;
        static char b[1 << 17];
        if (n->host >= 0) {
            ssize_t got = pread(n->host, b, in->size, in->offset);
            return fz_reply(h->unique, got < 0 ? EIO : 0, b, got < 0 ? 0 : got);
        }
        size_t left = in->offset < n->size ? n->size - in->offset : 0;
        return fz_reply(h->unique, 0, n->data + in->offset, left < in->size ? left : in->size);
    }
    case FUSE_WRITE: {
        struct fuse_write_in *in = (void *)body;
        if (in->offset >= DATA) return fz_reply(h->unique, ENOSPC, 0, 0);
        struct fuse_write_out w = {.size = in->offset + in->size > DATA ? DATA - in->offset : in->size};
        memcpy(n->data + in->offset, in + 1, w.size);
        if (in->offset + w.size > n->size) n->size = in->offset + w.size;
        n->mtime.tv_sec++;
        return fz_reply(h->unique, 0, &w, sizeof w);
    }
    case FUSE_STATFS: {
        struct fuse_statfs_out s = {.st = {.blocks = 1000, .bfree = 500, .bavail = 400, .files = 64, .ffree = 32, .bsize = 4096, .namelen = 200, .frsize = 4096}};
        return fz_reply(h->unique, 0, &s, sizeof s);
    }
    case FUSE_SETXATTR: {
        struct fuse_setxattr_in *in = (void *)body;
        char *name = body + 8;
        if ((in->flags & XATTR_CREATE) && fz_xlen >= 0) return fz_reply(h->unique, EEXIST, 0, 0);
        snprintf(fz_xname, sizeof fz_xname, "%s", name);
        fz_xlen = in->size;
        memcpy(fz_xattr, name + strlen(name) + 1, fz_xlen);
        return fz_reply(h->unique, 0, 0, 0);
    }
    case FUSE_GETXATTR:
    case FUSE_LISTXATTR: {
        struct fuse_getxattr_in *in = (void *)body;
        const char *value = h->opcode == FUSE_LISTXATTR ? fz_xname : fz_xattr;
        int len = h->opcode == FUSE_LISTXATTR ? fz_xlen < 0 ? 0 : strlen(fz_xname) + 1 : fz_xlen;
        if (h->opcode == FUSE_GETXATTR && (fz_xlen < 0 || strcmp(body + 8, fz_xname))) return fz_reply(h->unique, ENODATA, 0, 0);
        if (in->size == 0) {
            struct fuse_getxattr_out o = {.size = len};
            return fz_reply(h->unique, 0, &o, sizeof o);
        }
        if (in->size < len) return fz_reply(h->unique, ERANGE, 0, 0);
        return fz_reply(h->unique, 0, value, len);
    }
    case FUSE_REMOVEXATTR:
        if (fz_xlen < 0) return fz_reply(h->unique, ENODATA, 0, 0);
        fz_xlen = -1;
        return fz_reply(h->unique, 0, 0, 0);
    case FUSE_READDIR:
    case FUSE_READDIRPLUS: return fz_readdir(h, (void *)body, h->opcode == FUSE_READDIRPLUS);
    case FUSE_ACCESS: return fz_reply(h->unique, ((struct fuse_access_in *)body)->mask & 2 ? EACCES : 0, 0, 0);
    case FUSE_FALLOCATE: {
        struct fuse_fallocate_in *in = (void *)body;
        if (in->mode) return fz_reply(h->unique, EOPNOTSUPP, 0, 0);
        if (in->offset + in->length > DATA) return fz_reply(h->unique, ENOSPC, 0, 0);
        if (in->offset + in->length > n->size) n->size = in->offset + in->length;
        return fz_reply(h->unique, 0, 0, 0);
    }
    case FUSE_COPY_FILE_RANGE: {
        struct fuse_copy_file_range_in *in = (void *)body;
        struct fz_node *to = &fz->node[in->nodeid_out];
        uint64_t left = in->off_in < n->size ? n->size - in->off_in : 0;
        struct fuse_write_out w = {.size = left < in->len ? left : in->len};
        memmove(to->data + in->off_out, n->data + in->off_in, w.size);
        if (in->off_out + w.size > to->size) to->size = in->off_out + w.size;
        return fz_reply(h->unique, 0, &w, sizeof w);
    }
    case FUSE_LSEEK: {
        struct fuse_lseek_in *in = (void *)body;
        struct fuse_lseek_out o = {.offset = in->whence == SEEK_HOLE ? n->size : in->offset};
        return fz_reply(h->unique, in->offset >= n->size ? ENXIO : 0, &o, in->offset >= n->size ? 0 : sizeof o);
    }
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
        n->opens--;
        if (n->forgotten) fz->out_of_order++;
        return fz_reply(h->unique, 0, 0, 0);
    case FUSE_FLUSH:
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR: return fz_reply(h->unique, 0, 0, 0);
    default: return fz_reply(h->unique, ENOSYS, 0, 0);
    }
}

static void fz_serve(void) {
    static char b[1 << 18];
    for (;;) {
        struct pollfd p = {fz_fd, POLLIN, 0};
        if (poll(&p, 1, 10) == 0 || fz->stop_reading) {
            usleep(1000);
            continue;
        }
        ssize_t n = read(fz_fd, b, sizeof b);
        if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT)) continue;
        if (n <= 0) _exit(errno == ENODEV ? 40 : 41);
        fz_serve_one((void *)b, b + sizeof(struct fuse_in_header));
    }
}

// Memory and tree, before the mount.
static void fz_prepare(void) {
    fz = mmap(0, sizeof *fz, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *data = mmap(0, NODES * DATA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < NODES; i++) fz->node[i].data = data + i * DATA, fz->node[i].host = -1;
    fz->node[1] = (struct fz_node){.used = 1, .mode = S_IFDIR | 0755, .nlink = 2, .uid = getuid(), .gid = getgid(), .data = data, .host = -1};
    fz_make(1, "hello", S_IFREG | 0644, "hello, world\n");
    uint64_t dir = fz_make(1, "dir", S_IFDIR | 0755, 0);
    fz_make(dir, "inner", S_IFREG | 0600, "inner\n");
    fz_make(1, "link", S_IFLNK | 0777, "dir/inner");
}
static void fz_open(void) {
    fz_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fz_fd >= 0) return;
    // Directories of the host take no device nodes.
    mkdir("dev", 0700);
    if (!mount("none", "dev", "tmpfs", 0, 0) && !mknod("dev/fuse", S_IFCHR | 0666, makedev(10, 229)))
        fz_fd = open("dev/fuse", O_RDWR | O_CLOEXEC);
    if (fz_fd < 0) SKIP("no /dev/fuse");
}
static int fz_try(const char *type, const char *format, int fd) {
    char options[300];
    snprintf(options, sizeof options, format, fd);
    return mount("source", "m", type, MS_NOSUID | MS_NODEV, options);
}
// A file system at "m", and its daemon. More options begin with a comma.
static void fz_start(const char *more) {
    char options[300];
    mkdir("m", 0755);
    snprintf(options, sizeof options, "fd=%%d,rootmode=40000,user_id=%d,group_id=%d%s", getuid(), getgid(), more);
    OK(fz_try("fuse.test", options, fz_fd));
    fz_daemon = FORK();
    if (!fz_daemon) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(60);
        fz_serve();
    }
}
static void private_mounts(void) {
    if (getuid()) SKIP("root only");
    SYS(unshare(CLONE_NEWNS));
    OK(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
}
static void fz_setup(const char *more) {
    private_mounts();
    OK(chmod(".", 0755));
    fz_prepare();
    fz_open();
    fz_start(more);
    close(fz_fd); // the daemon alone has it
}
static void fz_end(void) {
    OK(umount("m"));
    int status;
    SYS(waitpid(fz_daemon, &status, 0));
    CHECK_STATUS(status, "exit 40");
}
// Until the daemon has got something.
#define FZ_UNTIL(what)                                                                                                 \
    for (int i_ = 0; i_ < 5000 && !(what); i_++) usleep(1000);                                                         \
    CHECK(what)

// What the tests of overlayfs share. Layers are directories of one tmpfs, unless a test mounts others.
#pragma once
#include "mount_fd.h"
#include "ns.h"
#include <dirent.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

__attribute__((unused)) static void o_start(void) {
    SYS(unshare(CLONE_NEWNS));
    OK(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mount("t", ".", "tmpfs", 0, 0));
    SYS(chdir(t_dir));
    umask(022);
    for (const char *d = "l\0l2\0u\0w\0m\0"; *d; d += strlen(d) + 1) SYS(mkdir(d, 0755));
}
#define O_DATA "lowerdir=l,upperdir=u,workdir=w"
__attribute__((unused)) static int o_mount(const char *data) { return mount("o", "m", "overlay", 0, data); }
// With two lower layers, of which `l` is the upper one.
#define O_DATA2 "lowerdir=l:l2,upperdir=u,workdir=w"

__attribute__((unused)) static void o_text(const char *path, const char *want, const char *file, int line) {
    char b[256];
    int fd = open(path, O_RDONLY), n = fd < 0 ? -1 : (int)read(fd, b, sizeof b - 1);
    int e = errno;
    if (fd >= 0) close(fd);
    b[n < 0 ? 0 : n] = 0;
    if (n < 0) t_fail(file, line, "%s: %s", path, t_errno(e));
    else if (strcmp(b, want)) t_fail(file, line, "%s: expected \"%s\", got \"%s\"", path, want, b);
}
#define TEXT(p, w) o_text(p, w, __FILE__, __LINE__)

static int o_cmp(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }
// The names of a directory in order, each followed by a space.
__attribute__((unused)) static const char *o_names(const char *path) {
    static char out[65536];
    char *all[4096];
    int n = 0;
    DIR *d = opendir(path);
    if (!d) return t_errno(errno);
    for (struct dirent *e; (e = readdir(d)) && n < 4096;)
        if (e->d_name[0] != '.') all[n++] = strdup(e->d_name);
    closedir(d);
    qsort(all, n, sizeof *all, o_cmp);
    out[0] = 0;
    for (int i = 0; i < n; i++) strcat(strcat(out, all[i]), " ");
    return out;
}
__attribute__((unused)) static int o_whiteout(const char *path) {
    struct stat s;
    return lstat(path, &s) == 0 && S_ISCHR(s.st_mode) && s.st_rdev == 0;
}
// The one-letter value of an attribute, or 0.
__attribute__((unused)) static int o_mark(const char *path, const char *name) {
    char v[16];
    return lgetxattr(path, name, v, sizeof v) == 1 ? v[0] : 0;
}

/* What a program sees of a directory, in lines that must be the same on the host and inside: inside WHAT DIRECTORY

   changes   makes, writes, renames and removes files, each in several ways
   nameless  uses an open file that has lost its name
   listing   everything below the directory with its attributes and a sum of its content
   pokes     uses good and evil files in every way; the lines do not matter, only that it ends */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

static void told(const char *what, long result) {
    if (result < 0)
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: %ld\n", what, result);
    fflush(stdout);
}
#define DO(call) told(#call, (long)(call))

static void content(const char *name) {
    char data[64];
    int fd = open(name, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : pread(fd, data, sizeof data - 1, 0);
    printf("content of %s: %.*s\n", name, (int)(n < 0 ? 0 : n), n < 0 ? "" : data);
    if (fd >= 0)
        close(fd);
}

static void attributes(const char *name) {
    struct stat s;
    if (lstat(name, &s) < 0)
        told(name, -1);
    else
        printf("%s: mode %o, %ld bytes, %u:%u\n", name, s.st_mode, S_ISDIR(s.st_mode) ? 0 : (long)s.st_size, s.st_uid,
               s.st_gid);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* All names of a directory, sorted; how many, or -1. */
static long names(const char *name, char ***list) {
    DIR *dir = opendir(name);
    long count = 0, room = 0;
    *list = NULL;
    if (!dir)
        return -1;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (count == room)
            *list = realloc(*list, (room = room * 2 + 16) * sizeof **list);
        (*list)[count++] = strdup(entry->d_name);
    }
    closedir(dir);
    if (count)
        qsort(*list, count, sizeof **list, by_name);
    return count;
}

static void changes(void) {
    int fd, other;
    struct stat s, t;
    char name[64], **list;
    DO(mkdir("d", 0750));
    DO(mkdir("d", 0750));
    attributes("d");
    DO(fd = open("d/f", O_RDWR | O_CREAT | O_EXCL, 0640) >= 0 ? open("d/f", O_RDWR) : -1);
    fd = open("d/f", O_RDWR);
    DO(open("d/f", O_RDWR | O_CREAT | O_EXCL, 0640));
    DO(write(fd, "0123456789", 10));
    DO(pwrite(fd, "AB", 2, 4));
    attributes("d/f");
    content("d/f");
    other = open("d/f", O_WRONLY | O_APPEND);
    DO(write(other, "end", 3));
    content("d/f");
    DO(read(other, name, 1));
    DO(close(other));
    DO(ftruncate(fd, 6));
    content("d/f");
    DO(truncate("d/f", 8));
    attributes("d/f");
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    DO(map == MAP_FAILED ? -1 : 0);
    if (map != MAP_FAILED) {
        map[0] = 'm';
        DO(msync(map, 4096, MS_SYNC));
        content("d/f");
        DO(pwrite(fd, "p", 1, 1));
        printf("mapped: %c%c\n", map[0], map[1]);
        munmap(map, 4096);
    }
    DO(fsync(fd));
    DO(lseek(fd, 0, SEEK_END));
    DO(fchmod(fd, 0600));
    attributes("d/f");
    DO(chmod("d/f", 04755));
    attributes("d/f");
    DO(chmod("d", 0700));
    attributes("d");
    struct timespec times[2] = {{1000, 1}, {2000, 2}};
    DO(utimensat(AT_FDCWD, "d/f", times, 0));
    stat("d/f", &s);
    printf("times %ld.%ld %ld.%ld\n", s.st_atim.tv_sec, s.st_atim.tv_nsec, s.st_mtim.tv_sec, s.st_mtim.tv_nsec);
    fstat(fd, &t);
    printf("the same object: %d\n", s.st_ino == t.st_ino && s.st_dev == t.st_dev);
    printf("links: %ld %ld\n", (long)s.st_nlink, (long)t.st_nlink);
    /* Renames. */
    DO(rename("d/f", "d/g"));
    attributes("d/f");
    stat("d/g", &t);
    printf("still the same: %d\n", s.st_ino == t.st_ino);
    DO(close(open("d/h", O_WRONLY | O_CREAT, 0644)));
    DO(renameat2(AT_FDCWD, "d/g", AT_FDCWD, "d/h", RENAME_NOREPLACE));
    DO(renameat2(AT_FDCWD, "d/g", AT_FDCWD, "d/h", RENAME_EXCHANGE));
    attributes("d/h");
    DO(rename("d/h", "d/g"));
    attributes("d/h");
    DO(rename("d", "d/inner"));
    DO(mkdir("e", 0755));
    DO(rename("d", "e/d"));
    DO(rename("e/d/g", "e"));
    DO(rename("e/d", "e/d/g"));
    content("e/d/g");
    /* Removing. */
    DO(unlink("e/d"));
    DO(rmdir("e/d"));
    DO(rmdir("e/d/g"));
    close(fd);
    fd = open("e/d/g", O_RDWR);
    DO(unlink("e/d/g"));
    DO(unlink("e/d/g"));
    DO(pread(fd, name, 4, 0));
    DO(pwrite(fd, "after", 5, 0));
    DO(fchmod(fd, 0644));
    DO(ftruncate(fd, 3));
    fstat(fd, &s);
    printf("open without a name: mode %o, %ld bytes, %ld links\n", s.st_mode, (long)s.st_size, (long)s.st_nlink);
    close(fd);
    DO(rmdir("e/d"));
    /* Many names. */
    DO(mkdir("many", 0755));
    for (int n = 0; n < 700; n++) {
        sprintf(name, "many/%050d", n);
        close(open(name, O_WRONLY | O_CREAT, 0644));
    }
    DO(names("many", &list));
    for (int n = 0; n < 700; n += 2) {
        sprintf(name, "many/%050d", n);
        unlink(name);
    }
    long left = names("many", &list);
    told("left", left);
    printf("%s %s\n", list[0], list[left - 1]);
    /* Locks of two open files. */
    fd = open("many/lock", O_RDWR | O_CREAT, 0644);
    other = open("many/lock", O_RDWR);
    DO(flock(fd, LOCK_EX));
    DO(flock(other, LOCK_EX | LOCK_NB));
    DO(flock(fd, LOCK_UN));
    DO(flock(other, LOCK_EX | LOCK_NB));
    DO(open("many/no/such", O_RDONLY));
    DO(open("many/lock/below", O_RDONLY));
    DO(open("many", O_WRONLY));
    DO(chdir("many"));
    DO(access("../many/lock", F_OK));
}

/* The last open file of an object is closed, and an earlier one is left. */
static void nameless(void) {
    struct stat s;
    int fd = open("file", O_RDWR | O_CREAT, 0600);
    DO(write(fd, "content", 7));
    content("file");
    DO(unlink("file"));
    DO(fchmod(fd, 0644));
    DO(ftruncate(fd, 3));
    DO(fstat(fd, &s));
    printf("mode %o, %ld bytes, %ld links\n", s.st_mode, (long)s.st_size, (long)s.st_nlink);
}

static void listing(const char *path) {
    char **list, below[4096], text[4096];
    long count = names(path, &list);
    if (count < 0)
        told(path, count);
    for (long n = 0; n < count; n++) {
        struct stat s;
        snprintf(below, sizeof below, "%s/%s", path, list[n]);
        if (lstat(below, &s) < 0) {
            told(below, -1);
            continue;
        }
        printf("%s %o %u:%u", below, s.st_mode, s.st_uid, s.st_gid);
        if (!S_ISDIR(s.st_mode))
            printf(" %ld bytes %ld links %ld", (long)s.st_size, (long)s.st_nlink, (long)s.st_mtime);
        if (S_ISLNK(s.st_mode)) {
            ssize_t length = readlink(below, text, sizeof text);
            printf(" -> %.*s", (int)(length < 0 ? 0 : length), text);
        } else if (S_ISREG(s.st_mode)) {
            unsigned sum = 0;
            int fd = open(below, O_RDONLY);
            for (ssize_t n; fd >= 0 && (n = read(fd, text, sizeof text)) > 0;)
                for (ssize_t i = 0; i < n; i++)
                    sum = sum * 31 + (unsigned char)text[i];
            printf(" sum %08x", fd < 0 ? 0 : sum);
            close(fd);
        }
        printf("\n");
        if (S_ISDIR(s.st_mode))
            listing(below);
    }
    fflush(stdout);
}

static void refusals(void) {
    DO(open("new", O_WRONLY | O_CREAT, 0644));
    DO(mkdir("new", 0755));
    DO(symlink("x", "new"));
    DO(rename("file", "new"));
    DO(unlink("file"));
    DO(chmod("file", 0777));
    DO(truncate("file", 0));
    DO(open("file", O_RDWR));
    DO(access("file", W_OK));
    DO(utimensat(AT_FDCWD, "file", NULL, 0));
}

static void faulted(int number) {
    (void)number;
    _exit(3);
}

static void pokes(void) {
    static const char *const all[] = {"good", "evil", "d/evil", "evil.d", "evil.d/good", "d/good", "evil-new", "evil"};
    char data[10000], **list;
    struct stat s;
    struct statfs f;
    for (int n = 0; n < 8; n++) {
        printf("%s\n", all[n]);
        fflush(stdout);
        DO(lstat(all[n], &s));
        DO(access(all[n], R_OK));
        /* A name may be that of a FIFO by now. */
        int fd = open(all[n], O_RDONLY | O_NONBLOCK);
        if (fd >= 0) {
            DO(fstat(fd, &s));
            DO(read(fd, data, sizeof data));
            DO(pread(fd, data, 100, 7000));
            DO(fsync(fd));
            /* A mapping may fault: that is the program's own. */
            pid_t child = fork();
            if (!child) {
                signal(SIGBUS, faulted);
                volatile char *map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
                for (int turn = 0; map != MAP_FAILED && turn < 2000; turn++)
                    (void)map[turn % 8000];
                _exit(0);
            }
            close(fd);
        }
        DO(names(all[n], &list));
        fd = open(all[n], O_RDWR | O_CREAT | O_NONBLOCK, 0644);
        if (fd >= 0) {
            DO(pwrite(fd, "more", 4, 0));
            DO(ftruncate(fd, 5000));
            close(fd);
        }
        DO(chmod(all[n], 0644));
        DO(readlink(all[n], data, sizeof data));
        DO(rename("evil-new", "evil-newer"));
        DO(mkdir("evil-directory", 0755));
        DO(rmdir("evil-directory"));
        DO(statfs(all[n], &f));
        if (!fork()) {
            execl(all[n], all[n], (char *)NULL);
            _exit(0);
        }
    }
}

int main(int count, char **arguments) {
    umask(0);
    if (count != 3 || chdir(arguments[2]) < 0)
        return 2;
    if (!strcmp(arguments[1], "changes"))
        changes();
    else if (!strcmp(arguments[1], "listing")) {
        listing(".");
        fflush(stdout);
    } else if (!strcmp(arguments[1], "nameless"))
        nameless();
    else if (!strcmp(arguments[1], "refusals"))
        refusals();
    else if (!strcmp(arguments[1], "pokes"))
        pokes();
    else
        return 2;
    printf("done\n");
    return 0;
}

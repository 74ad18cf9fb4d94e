// Writes records and tells of each one when it is on stable storage, until somebody kills it.
//
//   ledger DIRECTORY
//
// DIRECTORY/log grows by one record of 64 bytes at a time, fsync(2)ed. DIRECTORY/current is replaced by rename(2) with a file
// of the same number, which is fsync(2)ed like the directory. Then the number goes to standard output.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void must(int ok, const char *what) {
    if (!ok) perror(what), exit(1);
}

int main(int argc, char **argv) {
    must(argc == 2 && !chdir(argv[1]), "chdir");
    int dir = open(".", O_RDONLY | O_DIRECTORY), log = open("log", O_CREAT | O_WRONLY | O_APPEND, 0644);
    must(dir >= 0 && log >= 0, "open");
    for (long n = 0;; n++) {
        char record[65];
        snprintf(record, sizeof record, "%63ld\n", n);
        must(write(log, record, 64) == 64 && !fsync(log), "log");
        int new = open("new", O_CREAT | O_TRUNC | O_WRONLY, 0644);
        must(write(new, record, 64) == 64 && !fsync(new) && !close(new), "new");
        must(!rename("new", "current") && !fsync(dir), "rename");
        printf("%ld\n", n);
        fflush(stdout);
    }
}

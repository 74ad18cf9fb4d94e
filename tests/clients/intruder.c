// Does what each rule of docs/examples/watching.yaml is about. The rules know the program as a server by its name.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void must(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void run(const char *path, const char *arg) {
    pid_t pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        execl(path, arg, "-c", "exit 0", (char *)NULL);
        _exit(99);
    }
    int status;
    must(waitpid(pid, &status, 0) == pid && status == 0, path);
}

static void copy(const char *from, const char *to) {
    char buffer[65536];
    ssize_t n;
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    must(in >= 0 && out >= 0, to);
    while ((n = read(in, buffer, sizeof buffer)) > 0)
        must(write(out, buffer, n) == n, to);
    must(close(in) == 0 && close(out) == 0, to);
}

int main(void) {
    char byte;
    run("/bin/bash", "sh");
    copy("/bin/bash", "/tmp/dropped");
    run("/tmp/dropped", "sh");
    run("/usr/bin/changed", "sh");
    copy("/bin/bash", "/usr/bin/changed");
    run("/usr/bin/changed", "sh");
    must(close(open("/etc/ringfence-test", O_WRONLY | O_CREAT, 0644)) == 0, "/etc/ringfence-test");
    must(read(open("/etc/shadow", O_RDONLY), &byte, 1) == 1, "/etc/shadow");
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(53)};
    inet_pton(AF_INET, "192.0.2.1", &to.sin_addr);
    connect(socket(AF_INET, SOCK_DGRAM, 0), (struct sockaddr *)&to, sizeof to);
    must(setresuid(1000, 1000, 0) == 0 && setuid(0) == 0, "setuid");
    puts("done");
    return 0;
}

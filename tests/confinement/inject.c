/* Has the first thread of a process make one system call, as an attacker would who has taken it over:
   inject PID NUMBER ARGUMENT... ; an argument is a number, or text, which stands for its address in the process.
   Says what came of it: a number, or "killed". */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

static pid_t pid;

static void check(long done, const char *what) {
    if (done < 0) {
        perror(what);
        exit(1);
    }
}

/* Waits until it stops; ends with it. */
static void stopped(void) {
    int status;
    check(waitpid(pid, &status, __WALL), "waitpid");
    if (WIFSIGNALED(status) || WIFEXITED(status)) {
        printf("killed\n");
        exit(0);
    }
}

int main(int count, char **arguments) {
    struct user_regs_struct before, regs;
    unsigned long long values[6] = {0}, room;
    pid = atoi(arguments[1]);
    check(ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_EXITKILL), "seize");
    check(ptrace(PTRACE_INTERRUPT, pid, 0, 0), "interrupt");
    stopped();
    check(ptrace(PTRACE_GETREGS, pid, 0, &before), "registers");
    /* It waits in a system call: the instruction is right before. */
    long code = ptrace(PTRACE_PEEKTEXT, pid, before.rip - 2, 0);
    if ((code & 0xffff) != 0x050f) {
        fprintf(stderr, "it is in no system call\n");
        return 1;
    }
    /* Below what the interrupted function may use without moving the pointer. */
    room = (before.rsp - 8192) & ~15ULL;
    for (int i = 3; i < count && i < 9; i++) {
        char *end;
        values[i - 3] = strtoull(arguments[i], &end, 0);
        if (*end == 0 && end != arguments[i])
            continue;
        values[i - 3] = room;
        for (size_t at = 0; at <= strlen(arguments[i]); at += 8) {
            long word = 0;
            strncpy((char *)&word, arguments[i] + at, sizeof word);
            check(ptrace(PTRACE_POKEDATA, pid, room + at, word), "text");
        }
        room += 512;
    }
    regs = before;
    regs.rip -= 2;
    regs.rax = strtoull(arguments[2], NULL, 0);
    regs.orig_rax = -1;
    regs.rdi = values[0], regs.rsi = values[1], regs.rdx = values[2];
    regs.r10 = values[3], regs.r8 = values[4], regs.r9 = values[5];
    check(ptrace(PTRACE_SETREGS, pid, 0, &regs), "registers");
    check(ptrace(PTRACE_SINGLESTEP, pid, 0, 0), "step");
    stopped();
    check(ptrace(PTRACE_GETREGS, pid, 0, &regs), "registers");
    printf("%lld\n", (long long)regs.rax);
    return 0;
}

# needs: gdb strace gcc
d=$(mktemp -d "$E2E_DIR/debug.XXXXXX"); cd "$d"
cat > p.c <<'C'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int total;
int add(int a, int b) { int c = a + b; total += c; return c; }
void *worker(void *p) { for (int i = 0; i < 3; i++) add(i, 1); return p; }
int depth(int n) { if (n == 0) abort(); return depth(n - 1) + 1; }
int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "abort")) return depth(3);
    if (argc > 1 && !strcmp(argv[1], "loop")) for (volatile int go = 1; go;) { add(1, 1); usleep(1000); }
    if (argc > 1 && !strcmp(argv[1], "fork")) {
        if (fork() == 0) { add(40, 2); _exit(7); }
        int status; wait(&status); printf("child %d\n", WEXITSTATUS(status)); return 0;
    }
    int x = add(1, 2);
    printf("x %d\n", x); fflush(stdout);
    pthread_t t;
    pthread_create(&t, 0, worker, 0);
    pthread_join(t, 0);
    printf("total %d\n", total);
    return 0;
}
C
gcc -g -O0 -o p p.c -lpthread || exit 1
clean() {
    sed -E '
        s/0x[0-9a-f]+/ADDR/g; s/(process|LWP|Process|pid) [0-9]+/\1 N/g
        s/\[(Switching|New|Thread|Inferior|Detaching|Attaching).*//; s/^\[//; /^Thread ADDR/d; /^$/d
        /debuginfod|warning: |libthread_db|No such file or directory/d; s/^[0-9]+ +([a-z_]+\()/N \1/'
}
debug() {
    gdb -q -nx -batch -iex 'set debuginfod enabled off' -ex 'set pagination off' -ex 'set confirm off' "$@" \
        </dev/null 2>&1 | clean
}
echo "== breakpoints"
debug -ex 'break add' -ex run -ex bt -ex 'info args' -ex finish -ex 'print total' -ex next -ex delete -ex continue ./p
echo "== steps"
debug -ex 'break main' -ex run -ex 'stepi' -ex 'stepi' -ex step -ex next -ex 'print add(20, 22)' \
    -ex 'set var total = 100' -ex continue ./p | grep -v '^ADDR'
echo "== a watchpoint"
debug -ex 'set can-use-hw-watchpoints 0' -ex 'break main' -ex run -ex 'watch total' -ex continue -ex 'bt 1' -ex kill ./p
debug -ex 'break main' -ex run -ex 'watch total' -ex 'hbreak worker' -ex continue -ex kill ./p | sed 's/ *at p.c.*//'
echo "== threads"
debug -ex 'break worker' -ex run -ex 'thread apply all -s frame function' -ex 'info threads' \
    -ex delete -ex continue ./p | grep -E 'worker|hit|exited|total'
echo "== the child of a fork"
debug -ex 'set follow-fork-mode child' -ex 'break add' -ex 'run fork' -ex 'info args' -ex continue ./p | grep -v '^\['
echo "== attached"
./p loop & pid=$!
sleep 0.3
debug -p $pid -ex 'break add' -ex continue -ex 'print a' -ex delete -ex detach | grep -E '^\$|hit|add \(a'
kill $pid; wait $pid 2>/dev/null; echo "ended by $(( $? - 128 ))"
echo "== a core file"
{ sh -c 'ulimit -c unlimited; exec ./p abort'; } 2>/dev/null; echo "status $?"
[ -f core ] && debug -ex bt -ex 'up 6' -ex 'print n' ./p core | grep -E 'depth|main|SIGABRT|^\$'
debug -ex 'break add' -ex run -ex 'generate-core-file made' -ex kill ./p | grep -i saved
debug -ex bt ./p made | grep -E 'add|main'
echo "== strace"
strace -f -e trace=clone3,exit_group,write -o log ./p
sed -E 's/^[0-9]+ +//; s/0x[0-9a-f]+/A/g; s/[0-9]{2,}/N/g' log | grep -E 'write|exit_group|exited'
strace -f --seccomp-bpf -e trace=write -o log ./p; grep -c 'write(1' log
strace -c -o log ./p; grep -cE ' (execve|mmap|write)$' log
strace -e inject=write:error=ENOSPC -o log ./p; grep -c INJECTED log
./p loop & pid=$!
timeout -s INT 1 strace -p $pid -e trace=clock_nanosleep -o log 2>/dev/null
[ "$(grep -c clock_nanosleep log)" -gt 3 ] && echo "calls of a running process"
kill $pid; wait $pid 2>/dev/null
echo "== sanitizers"
cat > s.c <<'C'
#include <stdlib.h>
int main(int c, char **v) { char *p = malloc(10); if (c > 1) return p[c + 9]; p = 0; return 0; }
C
gcc -g -fsanitize=address -o s s.c 2>/dev/null && {
    ./s 2>&1 | grep -c 'detected memory leaks'
    ./s 1 2>&1 | grep -c heap-buffer-overflow
}
cd /; rm -rf "$d"

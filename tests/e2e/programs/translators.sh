# needs: valgrind qemu-x86_64 gdb gcc bash
# places: do (the Debian root has none of them, and the programs that they read are as good here)
# Programs that read or translate the code of others, after many processes have made calls from the same libraries.
set -u
d=$(mktemp -d) && cd "$d" || exit 1
cat >p.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    char *p = strdup("text"), b[8] = "";
    int q[2], status;
    pipe(q);
    if (fork() == 0) { write(q[1], p, 4); free(p); _exit(getpid() == getppid()); }
    wait(&status);
    read(q[0], b, 4);
    free(p);
    printf("%s %d %d\n", b, status, system("exit 3") >> 8);
    return 0;
}
C
gcc -g -O1 -w -o p p.c || exit 1
i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i + 1)); done
i=0; while [ $i -lt 60 ]; do
    x=$(echo $i | cat | head -1); bash -c 'read x </etc/passwd; echo $$ >/dev/null'; i=$((i + 1))
done
i=0; while [ $i -lt 12 ]; do
    ./p >/dev/null; gdb --version >/dev/null; valgrind --version >/dev/null; i=$((i + 1))
done
echo warm
bash -c 'x=$(true); valgrind -q true'; echo "valgrind $?"
valgrind -q --leak-check=full --error-exitcode=9 ./p; echo "memcheck $?"
valgrind -q --tool=none --trace-children=yes sh -c 'echo $((6 * 7)); exec ls -d /'; echo "none $?"
qemu-x86_64 ./p; echo "qemu $?"
qemu-x86_64 /bin/sh -c 'echo $((6 * 7)); exec /bin/ls -d /'; echo "qemu sh $?"
# What gdb shows of a live process is what it shows of the file.
libc=$(ldd ./p | sed -n 's/.*libc.so.6 => \([^ ]*\).*/\1/p')
text() { sed -n 's/^ *0x[0-9a-f]*[^:]*:[[:space:]]*//p' | sed 's/0x[0-9a-f]* </</; s/#.*//'; }
for f in read getpid fork brk; do
    gdb -nx -batch -ex "disassemble $f" "$libc" 2>/dev/null | text >file
    gdb -nx -batch -ex 'break main' -ex run -ex "disassemble $f" ./p 2>/dev/null | sed '/^=> /s/^=>/  /' | text >live
    [ -s file ] && cmp -s file live && echo "$f as in the file" || { echo "$f differs"; diff file live | head -5; }
done
cd /; rm -r "$d"

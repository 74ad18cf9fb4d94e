# needs: gcc
set -e
cat >m.c <<'E'
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
int f(int);
static void *t(void *a) { return (void *)((long)a * 2); }
int main(int c, char **v) {
    pthread_t p; void *r; pthread_create(&p, 0, t, (void *)21); pthread_join(p, &r);
    printf("%d %ld %.3f %s\n", f(20), (long)r, sin(1.0), c > 1 ? v[1] : "-"); return 7;
}
E
echo 'int f(int n) { return n < 2 ? n : f(n-1) + f(n-2); }' >f.c
for o in -O0 -O2 "-O2 -flto" "-g -O1 -static" "-O2 -fPIE -pie"; do
    gcc $o -o m m.c f.c -lm -pthread; ./m arg || echo "exit $?"
done
gcc -shared -fPIC -o libf.so f.c; gcc -o d m.c -L. -lf -lm -Wl,-rpath,'$ORIGIN'; ./d || true
gcc -c f.c; ar rcs libg.a f.o; nm libg.a | grep ' T '; gcc -o s m.c libg.a -lm; ./s x || true
gcc -E m.c | wc -l | awk '{print ($1 > 100)}'; gcc -S -O2 -o - f.c | grep -c 'f:'
echo 'int main(){return x;}' >bad.c; gcc bad.c 2>&1 | grep -c error; 
for i in $(seq 20); do
    echo "int v$i(void){return $i;}" >v$i.c; gcc -O2 -c v$i.c & [ $((i % 4)) = 0 ] && wait
done
wait; ls v*.o | wc -l
objdump -d f.o | grep -c '<f>:'; strip m; file m 2>/dev/null | grep -c ELF || echo 1
strace -V >/dev/null 2>&1; echo done

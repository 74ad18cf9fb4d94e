# needs: gcc make
set -e
cp -r "$SRC/zlib" z; cd z; chmod -R u+w .; mkdir -p test
cat >Makefile <<'E'
S := $(filter-out minigzip.c example.c t.c,$(wildcard *.c))
libz.a: $(S:.c=.o)
	ar rcs $@ $^
libz.so: $(S:.c=.lo)
	gcc -shared -o $@ $^
%.o: %.c
	gcc -O2 -D_LARGEFILE64_SOURCE -DHAVE_UNISTD_H -c -o $@ $<
%.lo: %.c
	gcc -O2 -fPIC -D_LARGEFILE64_SOURCE -DHAVE_UNISTD_H -c -o $@ $<
E
make -j2 libz.a libz.so >log 2>&1 || { tail -5 log; exit 1; }
cat >t.c <<'E'
#include "zlib.h"
#include <stdio.h>
int main(int c, char **v) {
    char b[65536]; size_t n;
    if (c > 1) {
        gzFile g = gzdopen(0, "rb"); int r; while ((r = gzread(g, b, sizeof b)) > 0) fwrite(b, 1, r, stdout);
        return r < 0;
    }
    gzFile g = gzdopen(1, "wb"); while ((n = fread(b, 1, sizeof b, stdin)) > 0) gzwrite(g, b, n); gzclose(g); return 0;
}
E
gcc -o static t.c libz.a; gcc -o shared t.c -L. -lz -Wl,-rpath,'$ORIGIN'
seq 100000 | ./static >x.gz; ./shared -d <x.gz | md5sum; gzip -dc x.gz | md5sum; make libz.a | grep -c 'up to date'

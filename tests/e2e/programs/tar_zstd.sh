# needs: tar gzip zstd xz
set -e
mkdir src; for i in $(seq 300); do seq $i >src/f$i; done
ln -s f1 src/link; ln src/f2 src/hard; mkfifo src/fifo; mkdir -p src/x/y
truncate -s 1M src/sparse; touch -d @1234567 src/f*; chmod 4755 src/f3
tar --sort=name --mtime=@0 --owner=7 --group=8 -cf a.tar src; sha256sum a.tar
mkdir out; tar -xpf a.tar -C out; diff -r --no-dereference src out/src 2>&1 | grep -v fifo || true
stat -c '%a %h %u %Y' out/src/f3 out/src/f2; readlink out/src/link
gzip -nk a.tar; gunzip -c a.tar.gz | sha256sum
zstd -q -T2 a.tar -o a.zst; zstd -dc a.zst | sha256sum
zstd -q -19 a.tar -o b.zst; zstd -t -q b.zst && echo ok
xz -T2 -k a.tar; xz -dc a.tar.xz | sha256sum
tar -czf - src | tar -tzf - | sort | md5sum
tar -C src -cf - . | (mkdir pipe; tar -C pipe -xf -); find pipe | wc -l
tar -cSf s.tar src/sparse; tar -xOf s.tar | sha256sum

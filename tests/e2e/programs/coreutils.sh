set -e
mkdir -p a/b/c; seq 100 >a/f; cp -a a d; diff -r a d && echo same
ln -s a/f l; readlink l; ln a/f h; stat -c '%h %s %a %F' a/f; cat l | md5sum
mv d e; rmdir e/b/c e/b; rm -r e; ls
chmod 640 a/f; stat -c %a a/f; chown 12:34 a/f; stat -c '%u %g' a/f; touch -d @1000000 a/f; stat -c %Y a/f
dd if=/dev/zero of=z bs=64k count=16 2>/dev/null; stat -c %s z; truncate -s 5M z; stat -c %s z; sha256sum z
sort -rn a/f | head -3; sort -R a/f | sort -n | md5sum; shuf -i 1-50 | sort -n | tail -1
seq 5 | tac; seq 10 | split -l 3 - part.; ls part.*; cat part.* | wc -l
paste a/f a/f | head -2; cut -c1 a/f | uniq -c | head -2
echo 'x y z' | awk '{print $2}' 2>/dev/null || echo y; echo hello | sed 's/l/L/g'; expr 6 \* 7; factor 360
seq 3 | tee t1 t2 >/dev/null; cmp t1 t2 && echo cmp
od -An -tx1 -N8 /dev/zero; head -c 1000 /dev/urandom | wc -c; base64 a/f | base64 -d | cmp - a/f && echo b64
du -s --apparent-size a >/dev/null; df . >/dev/null && echo df; mktemp -u XXXX | wc -c; basename /x/y.z .z; dirname /x/y
env -i A=1 env; nproc >/dev/null && echo nproc; id -u; whoami; printenv HOME; date -u -d @0 +%F
sleep 0.01; nice -n 5 nice; nohup true 2>/dev/null; stdbuf -oL echo buf
install -m 700 a/f inst; stat -c %a inst; ls -la /dev/null | cut -c1-10; test -c /dev/null && echo chr
sync; realpath l | sed 's|.*/||'; tr -dc 0-9 </dev/urandom | head -c 20 | wc -c
timeout 1 tail -f a/f | head -1; printf '%s\n' b a | sort -c 2>/dev/null || echo unsorted
numfmt --to=iec 1048576; wc -l <a/f; comm -12 t1 t2 | wc -l; join t1 t2 | head -1

# needs: bindfs squashfuse sshfs sshd fuse-overlayfs fusermount3 mksquashfs unshare mount
# Daemons of FUSE file systems, as root and as root of a user namespace.
set -e
cd "$E2E_DIR"
rm -rf fuse; mkdir fuse; cd fuse
gone() { for i in $(seq 500); do mountpoint -q "$1" || return 0; sleep 0.01; done; echo "$1 stays"; }

tree() {
    mkdir -p src/deep/er
    for i in 1 2 3 4 5; do echo file $i > src/$i; cp src/$i src/deep/er/$i; done
    seq 20000 > src/long; ln -s 1 src/link; cp /bin/true /bin/cat src/; chmod 640 src/2
}

work() {
    diff -r src "$1" && echo same
    (cd "$1"; ls; readlink link; stat -c '%n %a %s %F' 2 long deep link; sha256sum < long; ./true && echo ran; ./cat 3)
}

change() {
    (cd "$1"; echo new > new; echo more >> 3; mkdir d; mv 4 d/four; rm 5; rm -r deep; ln 1 hard; chmod 600 new
     truncate -s 5 long; ln -s there l; touch -d @1000000 2; cp -p ../src/cat d/; d/cat new
     dd if=/dev/zero of=big bs=100k count=30 status=none; dd if=big of=big2 bs=1M status=none; cmp big big2
     find . | sort; stat -c '%n %a %s' 1 new long; stat -c %Y 2; ls -l l | sed 's/.* l/l/')
    fgrep -c x /dev/null "$1"/big > counted || true; cat counted
}

echo "-- bindfs"
tree; mkdir copy m; cp -a src/. copy
bindfs copy m
grep -c ' fuse ' /proc/self/mountinfo | grep -qv '^0$' && echo mounted
work m; change m
fusermount3 -u m; gone m
find copy | sort; cat copy/3
rm -rf copy

echo "-- squashfuse"
mksquashfs src image -quiet -no-progress -all-root > out
squashfuse image m
work m; touch m/x 2>&1 || true; umount m; gone m

echo "-- fuse-overlayfs"
mkdir upper work low; cp -a src/. low
fuse-overlayfs -o lowerdir=low,upperdir=upper,workdir=work m
work m; change m; umount m; gone m
fuse-overlayfs -o lowerdir=low,upperdir=upper,workdir=work m
(cd m; find . | sort; cat 3 new); umount m; gone m
diff -r low src && echo untouched
rm -rf upper work low

echo "-- sshfs"
printf '#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n' > server; chmod 755 server
mkdir copy; cp -a src/. copy
sshfs -o ssh_command="$PWD/server" there:"$PWD/copy" m
work m; change m; umount m; gone m
find copy | sort; rm -rf copy

echo "-- a daemon that is killed"
mkdir copy; cp -a src/. copy
bindfs -f copy m & daemon=$!
for i in $(seq 500); do mountpoint -q m && break; sleep 0.01; done
exec 5< m/long; read -r first <&5; echo "$first"
kill -9 $daemon; wait $daemon 2> out || echo killed
cat m/1 2>&1 || true; ls m 2>&1 || true; exec 5<&-
fusermount3 -uz m; gone m; ls m

echo "-- a user namespace"
unshare -Urm sh -ec '
    bindfs -f copy m & daemon=$!
    for i in $(seq 500); do mountpoint -q m && break; sleep 0.01; done
    cat m/1; echo inside > m/inside; stat -c %u:%a m/inside; m/true && echo ran
    umount m; wait $daemon; echo "daemon $?"'
cat copy/inside
cd ..; rm -rf fuse

# needs: podman crun busybox newuidmap setpriv
# Podman's storage driver overlay: images of several layers, changes in containers, commit and diff.
set -e
[ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ] || mount -t cgroup2 none /sys/fs/cgroup
chmod 755 .; mkdir t; mount -t tmpfs none t; cd t
mkdir -p root/bin root/etc/gone h run; cp "$(which busybox)" root/bin/busybox
for i in sh id cat echo ls sed rm mkdir touch stat; do ln -s busybox root/bin/$i; done
echo one > root/etc/one; echo two > root/etc/gone/two
tar -C root -cf box.tar .; D=$PWD; chmod 755 .; chmod -R a+rX .; chown 1000:1000 h run
echo 'user1000:x:1000:1000::/:/bin/sh' > passwd
grep -v :1000: /etc/passwd >> passwd; mount --bind passwd /etc/passwd
echo user1000:100000:65536 > sub; for f in /etc/subuid /etc/subgid; do [ -e $f ] || : > $f; mount --bind sub $f; done
cat > go <<'F'
cd "$HOME"
P="podman --log-level error --root $HOME/s --runroot $XDG_RUNTIME_DIR/rr --storage-driver overlay"
P="$P --runtime crun --cgroup-manager cgroupfs --events-backend file"
$P info --format '{{.Store.GraphDriverName}}'
$P import "$1/box.tar" box >/dev/null 2>&1
R="$P run --cgroups=disabled --network none"
$R --name change box sh -c '
    echo changed > /etc/one; rm -r /etc/gone; mkdir /etc/gone; touch /etc/gone/new; ls /etc/gone'
$P diff change | grep etc | sort
$P commit -q change box2 >/dev/null 2>&1
$R --rm box2 sh -c 'cat /etc/one; ls /etc/gone; echo again >> /etc/one; cat /etc/one; stat -c %a /etc'
$R --rm box sh -c 'cat /etc/one /etc/gone/two'
$P rm change >/dev/null
F
echo "-- root"; HOME=$PWD/h0 XDG_RUNTIME_DIR=$PWD/run0; mkdir $HOME $XDG_RUNTIME_DIR
export HOME XDG_RUNTIME_DIR; sh go "$D"
echo "-- rootless"; exec setpriv --reuid 1000 --regid 1000 --clear-groups \
    env HOME="$D/h" XDG_RUNTIME_DIR="$D/run" sh go "$D"

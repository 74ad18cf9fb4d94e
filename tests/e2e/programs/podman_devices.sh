# needs: podman runc busybox
# Podman's rules for devices hold in its containers' groups.
set -e
[ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ] || mount -t cgroup2 none /sys/fs/cgroup
mkdir -p t; mount -t tmpfs none t; cd t; mkdir -p root/bin root/etc h run; cp "$(which busybox)" root/bin/busybox
for i in sh cat mknod; do ln -s busybox root/bin/$i; done
tar -C root -cf box.tar .; HOME=$PWD/h XDG_RUNTIME_DIR=$PWD/run; export HOME XDG_RUNTIME_DIR
P="podman --log-level error --root $PWD/s --runroot $PWD/run/rr --storage-driver vfs"
P="$P --runtime runc --cgroup-manager cgroupfs --events-backend file"
$P import box.tar box > /dev/null 2>&1
R="$P run --pids-limit 0 --network none --rm"
# Nobody drives 230:77 and 230:78: what is allowed gets as far as that.
$R --cap-add mknod --device-cgroup-rule 'c 230:77 r' box sh -c '
    echo x > /dev/null && echo null
    for i in 77 78; do mknod /n$i c 230 $i; cat /n$i; (echo x > /n$i); done; :' 2>&1
$R --cap-add mknod --privileged box sh -c 'mknod /n c 230 78; cat /n' 2>&1 || echo privileged

# needs: runc crun busybox
# Rules for devices, which these runtimes give to the kernel as BPF programs of the container's group.
set -e
mkdir -p b/rootfs/bin b/rootfs/proc b/rootfs/dev b/rootfs/sys b/rootfs/tmp; cp "$(which busybox)" b/rootfs/bin/busybox
for i in sh cat mknod rm; do ln -s busybox b/rootfs/bin/$i; done
cd b; [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ] || mount -t cgroup2 none /sys/fs/cgroup
runc spec
sed -i 's/"terminal": true/"terminal": false/; s/"CAP_KILL"/"CAP_KILL", "CAP_MKNOD"/; s/"sh"/"sh", "\/go"/' config.json
sed -i 's/"readonly": true/"readonly": false/; s/"resources": {/"cgroupsPath": "GROUP", &/' config.json
sed -i "s,GROUP,/e2e.$$.devices," config.json
# Nobody drives 230:77 and 230:78: what is allowed gets as far as that.
sed -i '/"access": "rwm"/{n;s/}/}, {"allow": true, "type": "c", "major": 230, "minor": 77, "access": "r"}/}' config.json
cat > rootfs/go <<'F'
echo x > /dev/null && echo null; cat /dev/null && echo empty
for i in 77 78; do mknod /tmp/$i c 230 $i; cat /tmp/$i; (echo x > /tmp/$i); rm /tmp/$i; done
mknod /tmp/b b 7 9; cat /tmp/b; mknod /tmp/f p && echo pipe; rm /tmp/b /tmp/f
F
run() { "$@" run x 2>&1 | grep -v level=warning; }
run runc --root "$PWD/r" | tee runc.out
# crun raises RLIMIT_MEMLOCK first, for kernels that count programs there. It stops when it may not.
if (ulimit -l unlimited) 2> /dev/null; then run crun --cgroup-manager=cgroupfs --root "$PWD/c" > crun.out
else cp runc.out crun.out; rmdir /sys/fs/cgroup/e2e.$$.devices 2> /dev/null || :; fi
cmp runc.out crun.out && echo same
ls -d /sys/fs/cgroup/e2e.$$.devices 2> /dev/null || echo gone

# needs: runc crun busybox
set -e
end() { [ ! -e $C ] || { echo 1 > $C/cgroup.kill; sleep 0.1; rmdir $C; }; rmdir /sys/fs/cgroup$G || :; }
mkdir -p b/rootfs/bin b/rootfs/proc b/rootfs/dev b/rootfs/sys b/rootfs/tmp; cp "$(which busybox)" b/rootfs/bin/busybox
for i in sh cat echo sleep; do ln -s busybox b/rootfs/bin/$i; done
cd b; [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ] || mount -t cgroup2 none /sys/fs/cgroup
G=/e2e.$$.groups; C=/sys/fs/cgroup$G/one
trap end EXIT
runc spec
# Rules of devices are for oci_devices.
sed -i '/"devices": \[/,/\]/d; s/"resources": {/"cgroupsPath": "GROUP", &/' config.json
sed -i 's/"terminal": true/"terminal": false/' config.json
sed -i "s,GROUP,$G/one,; "'s/"sh"/"sh", "-c", "sleep 1000 \& sleep 1000"/' config.json
r="crun --cgroup-manager=cgroupfs --root $PWD/r"
$r run -d --pid-file pid x > out 2>&1 < /dev/null
until [ "$(grep -c . $C/cgroup.procs)" -ge 2 ]; do sleep 0.1; done
sed "s,$G,/G," "/proc/$(cat pid)/cgroup" | grep 0::
$r pause x; $r state x | grep status; grep frozen $C/cgroup.events
$r resume x; $r state x | grep status; grep frozen $C/cgroup.events
[ "$($r ps x | wc -l)" -ge 3 ] && echo several
$r delete --force x; [ -e $C ] || echo gone

# needs: podman crun busybox newuidmap setpriv
set -e
[ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ] || mount -t cgroup2 none /sys/fs/cgroup
mkdir -p root/bin root/etc h run; cp "$(which busybox)" root/bin/busybox
for i in sh id cat echo ls sed; do ln -s busybox root/bin/$i; done
tar -C root -cf box.tar .; D=$PWD; chmod 755 .; chmod -R a+rX .; chown 1000:1000 h run
echo 'user1000:x:1000:1000::/:/bin/sh' > passwd
grep -v :1000: /etc/passwd >> passwd; mount --bind passwd /etc/passwd
echo user1000:100000:65536 > sub; for f in /etc/subuid /etc/subgid; do [ -e $f ] || : > $f; mount --bind sub $f; done
cat > go <<'F'
cd "$HOME"
P="podman --log-level error --root $HOME/s --runroot $XDG_RUNTIME_DIR/rr --storage-driver vfs"
P="$P --runtime crun --cgroup-manager cgroupfs --events-backend file"
$P import "$1/box.tar" box >/dev/null 2>&1
$P run --cgroups=disabled --network none --rm box sh -c '
    id -u; id -g; ls /; sed "s/ \+/ /g" /proc/self/uid_map; echo $$; echo /proc/[0-9]*'
$P run --cgroups=disabled --network none --rm --user 5:6 --read-only --tmpfs /t --env A=b box sh -c '
    id -u; echo x > /t/x; cat /t/x; (echo y > /y) 2>/dev/null || echo fixed; echo $A'
F
echo "-- root"; HOME=$PWD/h0 XDG_RUNTIME_DIR=$PWD/run0; mkdir $HOME $XDG_RUNTIME_DIR
export HOME XDG_RUNTIME_DIR; sh go "$D"
echo "-- rootless"; exec setpriv --reuid 1000 --regid 1000 --clear-groups \
    env HOME="$D/h" XDG_RUNTIME_DIR="$D/run" sh go "$D"

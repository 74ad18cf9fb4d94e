# needs: bwrap setpriv
u() { setpriv --reuid 1000 --regid 1000 --clear-groups bwrap "$@"; }
u --ro-bind / / id -u
u --ro-bind / / --unshare-all --proc /proc --dev /dev --tmpfs /tmp sh -c '
    ps -o args= ax | grep -c sh; ls /dev | tr "\n" " "
    echo hi > /tmp/x; touch /etc/x 2>&1; grep -c : /proc/net/dev; echo x > /dev/null'
u --unshare-user --uid 5 --gid 6 --ro-bind / / --die-with-parent --new-session \
    --hostname abc --unshare-uts sh -c 'id -u; id -g; hostname'
u --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 --symlink usr/bin /bin --dir /tmp \
    --proc /proc --dev /dev --unshare-all --share-net --as-pid-1 --cap-drop ALL --bind /tmp /mnt \
    --setenv A b --unsetenv SRC --chdir /tmp /bin/sh -c 'echo $$ $A $SRC; pwd; grep CapEff /proc/self/status; ls /'
u --ro-bind / / --unshare-user --disable-userns --assert-userns-disabled \
    sh -c 'unshare -U true 2>&1'
u --ro-bind / / --unshare-pid --perms 0700 --tmpfs /tmp --size 65536 --tmpfs /mnt \
    --ro-bind-data 9 /tmp/g --lock-file /etc/passwd \
    sh -c 'stat -c %a:%s /tmp/g; cat /tmp/g; stat -c %a /tmp' 9</etc/hostname | tail -1
u --bind / / --dev-bind /dev /dev --remount-ro / --unshare-cgroup-try --clearenv \
    sh -c 'touch /usr/y 2>&1; env | grep -c HOME'
bwrap --ro-bind / / --proc /proc --dev /dev --mqueue /dev/mqueue --unshare-all --cap-add ALL \
    sh -c 'ls -d /dev/mqueue; id -u'

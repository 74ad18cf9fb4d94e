# needs: newuidmap unshare setpriv
set -e
mount --bind "$(which newuidmap)" "$(which newuidmap)" 2>/dev/null || true
echo 'user1000:x:1000:1000::/:/bin/sh' > passwd
grep -v :1000: /etc/passwd >> passwd; mount --bind passwd /etc/passwd
echo user1000:100000:65536 > sub; for f in /etc/subuid /etc/subgid; do [ -e $f ] || : > $f; mount --bind sub $f; done
setpriv --reuid 1000 --regid 1000 --clear-groups unshare -r --map-auto \
    sh -c 'cat /proc/self/uid_map; chroot / id -u; setpriv --reuid 5 --regid 6 --clear-groups id'

# needs: unshare nsenter lsns setpriv ps
u() { setpriv --reuid 1000 --regid 1000 --clear-groups "$@"; }
echo "-- user"; u unshare -Ur sh -c 'id -u; id -g; cat /proc/self/uid_map /proc/self/setgroups; hostname x 2>&1'
u unshare -U id -u
u unshare -Ur unshare -Ur id -u
echo "-- all"; u unshare -Urmpfnui --mount-proc sh -c '
ps -o pid=,args= ax; hostname in; hostname
mount -t tmpfs none /tmp && touch /tmp/x && stat -c %u:%g /tmp/x
cat /proc/net/dev | grep -c :; umount /tmp; umount /etc 2>/dev/null || echo no
chown 5 /etc/passwd 2>/dev/null || echo not mine'
echo "-- pid"; u unshare -Urpf sh -c 'echo $$; sleep 100 & sh -c "echo \$PPID"; kill -9 1; echo alive; exit 4'
echo $?
echo "-- enter"; mkfifo up; unshare -muinpf --mount-proc sh -c 'hostname there; echo x > up; exec sleep 100' &
read x < up
p=$(ps -o pid= -C sleep | tr -d ' '); nsenter -t "$p" -a sh -c 'hostname; ps -o args= ax | grep -v ps'
for n in mnt uts ipc net pid; do
    [ "$(readlink /proc/$p/ns/$n)" = "$(readlink /proc/self/ns/$n)" ] && echo same || echo other
done
lsns -t uts -n -o NPROCS,COMMAND | grep -c sleep
touch held; mount --bind /proc/$p/ns/uts held; kill -9 "$p"; wait; nsenter --uts=held hostname; umount held
echo "-- limits"; u unshare -Ur sh -c '
echo 1 > /proc/sys/user/max_user_namespaces; unshare -U true && unshare -U unshare -U true 2>&1 | grep -c "No space"'

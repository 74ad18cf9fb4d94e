# needs: podman crun busybox ip iptables /usr/lib/cni/portmap /usr/lib/podman/netavark
# Podman's networks, made by netavark and by the plug-ins of CNI.
[ "$1" ] || exec unshare --net --mount sh "$0" begun
set -e
mount -t tmpfs run /run; mount -t tmpfs lib /var/lib
mount -t sysfs sys /sys; mount -t cgroup2 none /sys/fs/cgroup
ip link set dev lo up
mkdir -p root/bin root/etc root/www h run; cp "$(which busybox)" root/bin/busybox
for i in sh ip wget httpd cat nslookup; do ln -s busybox root/bin/$i; done
echo "from inside" > root/www/page
tar -C root -cf box.tar .
export HOME=$PWD/h XDG_RUNTIME_DIR=$PWD/run
N="--cgroups=disabled --network bridge"
# Until the server is there, which takes what it takes.
fetch() { for _ in $(seq 100); do busybox wget -qO- "http://$1/page" 2> /dev/null && return; sleep 0.3; done; }
# The plug-ins leave their bridge, with the address that netavark wants.
for backend in netavark cni; do
echo "== $backend"
P="podman --log-level error --root $HOME/s-$backend --runroot $XDG_RUNTIME_DIR/rr-$backend --storage-driver vfs"
P="$P --network-backend $backend --runtime crun --cgroup-manager cgroupfs --events-backend file"
$P import box.tar box >/dev/null 2>&1
echo "-- one container"
$P run $N --rm box sh -c 'ip -4 -o addr show dev eth0; ip route'
echo "-- a published port"
$P run -d --name web $N -p 8080:80 box httpd -f -p 80 -h /www > /dev/null
fetch 127.0.0.1:8080
fetch 10.88.0.1:8080
$P port web
echo "-- from another container"
$P run $N --rm box sh -c 'wget -qO- http://10.88.0.3/page; wget -qO- http://10.88.0.1:8080/page'
$P rm -f -t 0 web > /dev/null
echo "-- what is left"
ip -o link | sed 's/^\([0-9]*: [^:]*\):.*/\1/'
iptables -t nat -S | grep 8080 || echo "no port"
done

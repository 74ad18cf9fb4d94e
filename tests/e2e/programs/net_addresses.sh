# needs: ip nft python3
# places: do (the Debian root has no nft)
# net: own
# Addresses of one network, their routes and metrics, refusals of rules and of packet filters, names of counters.
same() { sed -E 's/([0-9a-f]{2}:){5}[0-9a-f]{2}/MAC/g; s/@if[0-9]+/@PEER/; s/^[0-9]+: //'; }
say() { echo "\$ $*"; "$@" 2>&1 | same; }
on() { ip -4 -o addr show dev "$1" | same; ip -4 route; ip route show table local dev "$1"; }
ip link set lo up
for n in 0 1; do
    [ -e /sys/class/net/v$n ] && ip link del v$n
    ip link add v$n type veth peer name w$n && ip link set v$n addrgenmode none up &&
        ip link set w$n addrgenmode none up
done
for a in 10.1.0.1/24 10.1.0.2/24 10.1.0.3/16 10.1.0.9/24; do ip addr add $a dev v0; done
on v0
say ip addr add 10.1.0.4/24 dev v0 scope link
ip addr del 10.1.0.9/24 dev v0
on v0
ip addr del 10.1.0.1/24 dev v0
on v0
ip addr flush dev v0
ip addr add 10.2.0.1/24 dev v0 && ip addr add 10.2.0.2/24 dev v1
ip -4 route
ip addr del 10.2.0.1/24 dev v0
ip -4 route
ip addr add 10.3.0.1/24 dev v0 metric 50
ip addr change 10.3.0.1/24 dev v0 metric 60
on v0
for s in site nowhere 33 link host; do
    ip addr add 10.4.0.1/24 dev v0 scope $s
    ip -4 -o addr show dev v0 to 10.4.0.1 | same
    ip addr del 10.4.0.1/24 dev v0
done
ip addr add fc00::1/64 dev v0 metric 70 nodad && ip addr add fc00::2/64 dev v1 nodad && ip addr add fc01::1/64 dev lo
ip -6 route
ip rule add to 10.9.0.0/24 unreachable && ip rule add to 10.10.0.0/24 prohibit && ip rule add to 10.11.0.0/24 blackhole
ip -6 rule add to fc09::/64 unreachable
for to in 10.9.0.1 10.10.0.1 10.11.0.1 fc09::1; do say ip route get $to; done
ip link set v0 multicast off
ip -o link show v0 | grep -o '<.*>'
ip link set v0 multicast on
ip -o link show v0 | grep -o '<.*>'
say ip route add 10.20.0.0/24 dev v0 scope link onlink
say ip route add 10.21.0.0/24 dev v0 onlink
ip link set w0 down
timeout 10 sh -c 'until ip -4 route | grep -q linkdown; do :; done'
ip -4 route
# An ICMP error belongs to the packet that it is about, which no table has yet.
nft -f - <<'N'
table inet f {
 chain o {
  type filter hook output priority 0; policy drop;
  ct state established,related accept
  ip daddr 127.0.0.9 reject with icmp type admin-prohibited
 }
}
N
python3 - <<'P'
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    s = socket.socket(socket.AF_INET, kind)
    s.settimeout(4)
    try:
        s.connect(("127.0.0.9", 9000))
        s.send(b"x")
        s.recv(1)
    except OSError as e:
        print(e)
P
nft delete table inet f
python3 - <<'P'
import socket
names = [line.split()[0] for line in open("/proc/net/snmp6") if "Type" not in line]
print(*names)
for line in open("/proc/net/netstat"):
    if not line.split()[1].isdigit():
        print(line, end="")
def count(file, name):
    return sum(int(line.split()[1]) for line in open(file) if line.startswith(name + " "))
before = count("/proc/net/snmp6", "Udp6OutDatagrams"), count("/proc/net/snmp6", "Ip6OutOctets")
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.bind(("::1", 0))
s.sendto(bytes(100), s.getsockname())
print(count("/proc/net/snmp6", "Udp6OutDatagrams") - before[0], count("/proc/net/snmp6", "Ip6OutOctets") - before[1])
print(all(len(line.split()) == 15 for line in open("/proc/net/softnet_stat")))
print(*[line.split()[0] for line in open("/proc/vmstat") if not line.startswith(("nr_unstable", "thp", "balloon"))][:8])
P
# A table that is only checked takes a handle.
nft add table ip a && nft --check add table ip b && nft add table ip c && nft -a list ruleset | grep table
nft delete table ip a && nft delete table ip c
for n in 0 1; do ip link del v$n; done

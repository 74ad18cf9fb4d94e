# needs: ip ss ifconfig netstat route arp ping traceroute tcpdump dig python3
# net: own
# What programs say of a pair of interfaces, its addresses, routes, rules, neighbours and sockets.
same() { sed -E 's/([0-9a-f]{2}:){5}[0-9a-f]{2}/MAC/g; s/@if[0-9]+/@PEER/; s/[0-9.]+ ms/TIME/g; s/^[0-9]+: //'; }
say() { echo "\$ $*"; "$@" 2>&1 | same; }
ip link set lo up
[ -e /sys/class/net/v0 ] && ip link del v0
timeout 20 ip -4 monitor address route rule > monitor.txt &
monitor=$!
sleep 1
say ip link add v0 type veth peer name v1
ip link set v0 up && ip link set v1 up
ip addr add 10.1.0.1/24 dev v0
say ip addr add 10.1.0.1/24 dev v0
say ip -4 addr show dev v0
say ip route add 10.5.0.0/16 via 10.1.0.2 mtu 1400
say ip route add 10.5.0.0/16 via 10.1.0.2
say ip route add 10.6.0.0/16 via 10.77.0.2
say ip route add unreachable 10.7.0.0/16 table 77
say ip route
say ip route show table 77
say ip route show table 78
say ip route get 10.5.1.1
say ip rule add from 10.1.0.0/16 lookup 77 pref 100
say ip rule
say ip neigh add 10.1.0.5 lladdr 02:00:00:00:00:05 dev v0
say ip neigh add 10.1.0.5 lladdr 02:00:00:00:00:05 dev v0
ip -4 neigh show dev v0 | grep PERMANENT | same
arp -n -i v0 10.1.0.5 | same
arp -d 10.1.0.5
arp -n -i v0 10.1.0.5 | same
route add -net 10.8.0.0 netmask 255.255.0.0 gw 10.1.0.9
route -n
route del -net 10.8.0.0 netmask 255.255.0.0
say ip link set v0 txqueuelen 77 alias hello
say ip link show v0
ifconfig v0 | grep -E 'inet |mtu' | same
cat /sys/class/net/v0/operstate /sys/class/net/v0/tx_queue_len /sys/class/net/v0/ifalias
say ip link add x type no-such-kind
say ip rule del pref 100
say ip rule del pref 100
cat > sockets.py <<'P'
import socket, subprocess, sys
a = socket.socket(); a.bind(("127.0.0.1", 7777)); a.listen(3)
c = socket.create_connection(("127.0.0.1", 7777)); d = a.accept()[0]
u = socket.socket(socket.AF_UNIX); u.bind("\0net_tools"); u.listen(3)
def run(*command):
    print("$", *command)
    text = subprocess.run(command, capture_output=True, text=True).stdout
    print("\n".join(" ".join(l.split()) for l in text.splitlines()), flush=True)
run("ss", "-Htln")
run("ss", "-Htn", "sport", "=", ":7777")
run("ss", "-Htln", "src", "10.0.0.0/8")
listed = subprocess.run(["ss", "-Hxl"], capture_output=True, text=True).stdout
print(any("@net_tools" in l for l in listed.splitlines()))
print(any("@net_tools" in l for l in open("/proc/net/unix")))
run("netstat", "-tln")
run("ss", "-KHtn", "sport", "=", f":{c.getsockname()[1]}")
P
python3 sockets.py 2>&1 | sed -E 's/:[0-9]{5}/:PORT/g'
say ping -c 2 -i 0.2 -q 127.0.0.1 | grep -o '2 packets transmitted, 2 received'
traceroute -n -q 1 127.0.0.1 | tail -n +2 | same
(tcpdump -i lo -c 1 -nn -q udp port 9 2>/dev/null | sed -E 's/^[0-9:.]+ //; s/\.[0-9]+ >/.PORT >/' > dump.txt) &
sleep 2
python3 -c 'import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"hello", ("127.0.0.1", 9))'
wait $!
cat dump.txt
dig +time=1 +tries=1 @127.0.0.1 -p 9 example.org 2>&1 |
    grep -oE 'no servers could be reached|connection refused' | sort -u
kill $monitor
same < monitor.txt
ip link del v0

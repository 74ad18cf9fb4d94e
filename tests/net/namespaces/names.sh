# What network namespaces call each other, and interfaces that move, as ip(8) shows them.
show() { ip "$@" -o link | sed 's/link.ether [^ ]*//'; }
mkdir -p /run/netns
ip netns add x1
ip netns add x2
ip netns list | sort
ip netns set x2 7
ip netns list-id | sort
ip netns set x2 8
ip netns set x1 7
ip link set dev lo up
ip link add name a type veth peer name b netns x1
show
show -n x1
ip link set dev a up
show
ip netns list-id | sort
ip netns list | sort
ip -n x1 link set dev b up
# On Linux the carrier follows a moment later.
until show | grep -q ' a@.* state UP'; do :; done
show
ip link add name v type veth peer name w
ip link set dev w netns x2
ip -n x2 link set dev w netns x1
show
show -n x1 | grep -v ' b@'
ip link set dev lo netns x1
ip link add name br0 type bridge
ip link set dev br0 netns x1
ip link set dev nothere netns x1
ip link set dev v netns nothere
ip link set dev v netns 99999
ip -n x1 link set dev w name a
ip -n x1 link set dev a netns $$
ip -n x1 link set dev a netns $$ name c
ip link property add dev c altname other
ip -n x2 link add name other type veth peer name o
ip link set dev c netns x2 2>/dev/null || echo refused
ip link property del dev c altname other
ip link set dev c alias "keeps this" mtu 1400 txqueuelen 77 group 5
ip addr add 10.1.0.1/24 dev c
ip link set dev c up
ip link set dev c netns x2
show -n x2
ip -n x2 -4 addr show dev c
ip -n x1 -4 addr add 10.0.0.2/24 dev b
ip -4 addr add 10.0.0.1/24 dev a
ip -4 route
ip netns exec x1 ls /sys/class/net
until show -n x1 | grep -q ' b@.* state UP'; do :; done
ip netns exec x1 cat /sys/class/net/b/operstate /sys/class/net/b/iflink
ip netns identify $$
ip netns exec x2 ip netns identify
ip netns del x1
while test -e /sys/class/net/a; do :; done
show
ip netns list-id | sort
ip netns list | sort
ip netns del x2
while test -e /sys/class/net/v; do :; done
show

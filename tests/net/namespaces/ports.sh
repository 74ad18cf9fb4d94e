# Ports of bridges, as bridge(8) and ip(8) set and show them, and a CNI plugin's work.
settled() { until bridge link | grep -q 'state forwarding'; do :; done; }
ip link add name br0 type bridge
ip link add name a type veth peer name b
ip link set dev a master br0 up
ip link set dev b up
ip link set dev br0 up
settled
bridge -d link
for x in "hairpin on" "isolated on" "flood off" "learning off" "hairpin on guard off" "mcast_flood off" "state 3"; do
    echo "$x"
    ip link set dev a type bridge_slave $x
done
bridge -d link
bridge link set dev a hairpin off learning on
bridge -d link
ip link set dev b type bridge_slave hairpin on
bridge link set dev b hairpin on
ip link set dev a nomaster
bridge link
ip link set dev a master br0
settled
bridge -d link
ip link del dev a
ip link del dev br0

show() { ip "$@" -o link | sed 's/link.ether [^ ]*//; s/veth[0-9a-f]*/vethX/'; }
plugin() { /usr/lib/cni/bridge | sed 's/"mac": "[^"]*"//; s/veth[0-9a-f]*/vethX/'; echo; }
mkdir -p /run/netns
ip link set dev lo up
ip netns add c1
conf='{"cniVersion": "0.4.0", "name": "n1", "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
    "hairpinMode": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]],
    "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/cni-data"}}'
export CNI_COMMAND=ADD CNI_CONTAINERID=c1 CNI_NETNS=/run/netns/c1 CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni
echo "$conf" | plugin
show
settled
bridge link | sed 's/veth[0-9a-f]*/vethX/'
ip -n c1 -4 addr
ip -n c1 route
ip -4 route
iptables -t nat -S
export CNI_COMMAND=DEL
echo "$conf" | plugin
show | grep -v cni0
iptables -t nat -S

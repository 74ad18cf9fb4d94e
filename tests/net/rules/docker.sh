# What dockerd writes: a bridge, one published port, isolation between networks.
w="iptables --wait"
once() { table=$1; shift; $w -t "$table" -C "$@" 2>/dev/null || $w -t "$table" -A "$@"; }
$w --version
$w -t nat -n -L DOCKER
for chain in DOCKER DOCKER-ISOLATION-STAGE-1 DOCKER-ISOLATION-STAGE-2 DOCKER-USER; do $w -t filter -N $chain; done
$w -t nat -N DOCKER
$w -t nat -N DOCKER
once nat POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
once nat POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
once nat DOCKER -i docker0 -j RETURN
once nat PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
once nat OUTPUT -m addrtype --dst-type LOCAL -j DOCKER ! --dst 127.0.0.0/8
$w -D FORWARD -i docker0 -o docker0 -j DROP
$w -I FORWARD -i docker0 -o docker0 -j ACCEPT
$w -I FORWARD -i docker0 ! -o docker0 -j ACCEPT
$w -I FORWARD -o docker0 -j DOCKER
$w -I FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
$w -I FORWARD -j DOCKER-ISOLATION-STAGE-1
$w -A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
$w -A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
$w -A DOCKER-ISOLATION-STAGE-2 -j RETURN
$w -A DOCKER-ISOLATION-STAGE-1 -j RETURN
$w -A DOCKER-USER -j RETURN
$w -I FORWARD -j DOCKER-USER
$w -P FORWARD DROP
$w -t nat -A DOCKER -p tcp -d 0/0 --dport 8080 -j DNAT --to-destination 172.17.0.2:80 ! -i docker0
$w -t filter -A DOCKER ! -i docker0 -o docker0 -p tcp -d 172.17.0.2 --dport 80 -j ACCEPT
$w -t nat -A POSTROUTING -p tcp -s 172.17.0.2 -d 172.17.0.2 --dport 80 -j MASQUERADE
$w -t nat -I DOCKER -d 127.0.0.11 -p udp --dport 53 -j DNAT --to-destination 127.0.0.11:40000
$w -t nat -I POSTROUTING -s 127.0.0.11 -p udp --sport 40000 -j SNAT --to-source :53
iptables-save
iptables -L -nv --line-numbers
iptables -t nat -S
ip6tables --wait -t nat -A POSTROUTING -s fd00::/64 ! -o docker0 -j MASQUERADE
ip6tables --wait -A FORWARD -p icmpv6 --icmpv6-type echo-request -j ACCEPT
ip6tables-save
nft -a list ruleset
iptables-save | iptables-restore
iptables-save -c
$w -F DOCKER; $w -X DOCKER; $w -D FORWARD -o docker0 -j DOCKER; $w -X DOCKER; $w -D FORWARD -j nothing
iptables -t nat -F; iptables -t nat -X; iptables -F; iptables -X
iptables-save

# What kube-proxy writes, with nftables and with iptables.
nft -f - <<'X'
table ip kube-proxy {
    comment "rules for kube-proxy"
    set cluster-ips { type ipv4_addr; comment "Active ClusterIPs"
    }
    set nodeport-ips { type ipv4_addr; comment "IPs that accept NodePort traffic"
    }
    map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict
    }
    map no-endpoint-nodeports { type inet_proto . inet_service : verdict
    }
    map firewall-ips { type ipv4_addr . inet_proto . inet_service : verdict
    }
    map service-ips { type ipv4_addr . inet_proto . inet_service : verdict
    }
    map service-nodeports { type inet_proto . inet_service : verdict
    }
    chain filter-prerouting { type filter hook prerouting priority -110; policy accept;
        ct state new jump firewall-check
    }
    chain filter-input { type filter hook input priority -110; policy accept;
        ct state new jump nodeport-endpoints-check
        ct state new jump service-endpoints-check
    }
    chain filter-forward { type filter hook forward priority -110; policy accept;
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }
    chain filter-output { type filter hook output priority -110; policy accept;
        ct state new jump service-endpoints-check
        ct state new jump firewall-check
    }
    chain filter-output-post-dnat { type filter hook output priority -90; policy accept;
        ct state new jump cluster-ips-check
    }
    chain nat-prerouting { type nat hook prerouting priority dstnat; policy accept;
        jump services
    }
    chain nat-output { type nat hook output priority -100; policy accept;
        jump services
    }
    chain nat-postrouting { type nat hook postrouting priority srcnat; policy accept;
        jump masquerading
    }
    chain reject-chain { comment "helper for @no-endpoint-services"
        reject
    }
    chain nodeport-endpoints-check {
        ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
    }
    chain service-endpoints-check {
        ip daddr . meta l4proto . th dport vmap @no-endpoint-services
    }
    chain firewall-check {
        ip daddr . meta l4proto . th dport vmap @firewall-ips
    }
    chain cluster-ips-check {
        ip daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"
        ip daddr { 172.30.0.0/16 } drop comment "Drop traffic to unallocated ClusterIPs"
    }
    chain services {
        ip daddr . meta l4proto . th dport vmap @service-ips
        ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
    }
    chain masquerading {
        mark and 0x4000 == 0 return
        mark set mark xor 0x4000
        masquerade fully-random
    }
    chain mark-for-masquerade {
        mark set mark or 0x4000
    }
}
add chain ip kube-proxy service-ULMVA6XW-ns1/svc1/tcp/p80
add chain ip kube-proxy endpoint-5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80
add chain ip kube-proxy endpoint-6XMKSD3E-ns1/svc1/tcp/p80__10.180.0.2/80
add rule ip kube-proxy service-ULMVA6XW-ns1/svc1/tcp/p80 ip daddr 172.30.0.41 tcp dport 80 \
    ip saddr != 10.0.0.0/8 jump mark-for-masquerade
add rule ip kube-proxy service-ULMVA6XW-ns1/svc1/tcp/p80 numgen random mod 2 vmap {
    0 : goto endpoint-5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80 ,
    1 : goto endpoint-6XMKSD3E-ns1/svc1/tcp/p80__10.180.0.2/80 }
add rule ip kube-proxy endpoint-5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80 ip saddr 10.180.0.1 jump mark-for-masquerade
add rule ip kube-proxy endpoint-5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80 meta l4proto tcp dnat to 10.180.0.1:80
add rule ip kube-proxy endpoint-6XMKSD3E-ns1/svc1/tcp/p80__10.180.0.2/80 meta l4proto tcp dnat to 10.180.0.2:80
add element ip kube-proxy service-ips { 172.30.0.41 . tcp . 80 : goto service-ULMVA6XW-ns1/svc1/tcp/p80 }
add element ip kube-proxy cluster-ips { 172.30.0.41 }
add element ip kube-proxy no-endpoint-services { 172.30.0.42 . udp . 53 comment "ns2/svc2:p53" : goto reject-chain }
X
nft -a list ruleset
nft delete chain ip kube-proxy reject-chain
nft delete element ip kube-proxy no-endpoint-services '{ 172.30.0.42 . udp . 53 }'
nft get element ip kube-proxy service-ips '{ 172.30.0.41 . tcp . 80 }'
nft delete chain ip kube-proxy service-endpoints-check
nft -j list map ip kube-proxy service-ips
nft flush map ip kube-proxy service-ips
nft delete table ip kube-proxy
iptables-restore --noflush <<X
*filter
:KUBE-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
-I INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m comment --comment "kube-system/kube-dns:dns has no endpoints" \
-m udp --dport 53 -j REJECT
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]
:KUBE-SEP-AAAA - [0:0]
:KUBE-SEP-BBBB - [0:0]
-I PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "default/kubernetes:https" \
-m tcp --dport 443 -j KUBE-SVC-NPX46M4PTMTKRN6Y
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-SVC-NPX46M4PTMTKRN6Y
-A KUBE-SVC-NPX46M4PTMTKRN6Y ! -s 10.244.0.0/16 -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j KUBE-MARK-MASQ
-A KUBE-SVC-NPX46M4PTMTKRN6Y -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-AAAA
-A KUBE-SVC-NPX46M4PTMTKRN6Y -j KUBE-SEP-BBBB
-A KUBE-SEP-AAAA -s 10.0.0.1/32 -j KUBE-MARK-MASQ
-A KUBE-SEP-AAAA -p tcp -m tcp -j DNAT --to-destination 10.0.0.1:6443
-A KUBE-SEP-BBBB -p tcp -m tcp -j DNAT --to-destination 10.0.0.2:6443
COMMIT
*mangle
:KUBE-PROXY-CANARY - [0:0]
COMMIT
X
iptables-save
iptables -t nat -L -n
# A sidecar's redirection.
iptables -t nat -N ISTIO_OUTPUT
iptables -t nat -A ISTIO_OUTPUT -o lo ! -d 127.0.0.1/32 -p tcp -m multiport ! --dports 53,15008 \
    -m owner --uid-owner 1337 -j RETURN
iptables -t nat -A ISTIO_OUTPUT -m owner ! --gid-owner 1337 -p tcp -j REDIRECT --to-ports 15001
iptables -t raw -A OUTPUT -p udp -m udp --dport 53 -j CT --notrack
iptables -t mangle -A FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
iptables -t nat -S ISTIO_OUTPUT
iptables -t mangle -S FORWARD

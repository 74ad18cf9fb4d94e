# What netavark writes with its nftables driver: one network, one published port, isolation.
nft -f - <<'X'
table inet netavark {
    chain INPUT {
        type filter hook input priority filter; policy accept;
    }
    chain FORWARD {
        type filter hook forward priority filter; policy accept;
        ct state invalid drop
        jump NETAVARK-ISOLATION-1
    }
    chain POSTROUTING {
        type nat hook postrouting priority srcnat; policy accept;
        meta mark & 0x00002000 == 0x00002000 masquerade
    }
    chain PREROUTING {
        type nat hook prerouting priority dstnat; policy accept;
        fib daddr type local jump NETAVARK-HOSTPORT-DNAT
    }
    chain OUTPUT {
        type nat hook output priority -100; policy accept;
        fib daddr type local jump NETAVARK-HOSTPORT-DNAT
    }
    chain NETAVARK-HOSTPORT-DNAT {
    }
    chain NETAVARK-HOSTPORT-SETMARK {
        meta mark set meta mark | 0x00002000
    }
    chain NETAVARK-ISOLATION-1 {
    }
    chain NETAVARK-ISOLATION-2 {
    }
    chain NETAVARK-ISOLATION-3 {
        oifname "podman0" drop
        jump NETAVARK-ISOLATION-2
    }
}
X
nft -f - <<'X'
add chain inet netavark nv_2f259bab_10_88_0_0_nm16
add rule inet netavark nv_2f259bab_10_88_0_0_nm16 ip daddr 10.88.0.0/16 accept
add rule inet netavark nv_2f259bab_10_88_0_0_nm16 ip daddr != 224.0.0.0/4 masquerade
add rule inet netavark POSTROUTING ip saddr 10.88.0.0/16 jump nv_2f259bab_10_88_0_0_nm16
add rule inet netavark FORWARD ip daddr 10.88.0.0/16 ct state established,related accept
add rule inet netavark FORWARD ip saddr 10.88.0.0/16 accept
insert rule inet netavark INPUT ip saddr 10.88.0.0/16 meta l4proto { tcp, udp } th dport 53 accept
add chain inet netavark nv_2f259bab_10_88_0_0_nm16_dnat
add rule inet netavark nv_2f259bab_10_88_0_0_nm16_dnat ip saddr 10.88.0.0/16 tcp dport 8080 \
    jump NETAVARK-HOSTPORT-SETMARK
add rule inet netavark nv_2f259bab_10_88_0_0_nm16_dnat ip saddr 127.0.0.1 tcp dport 8080 jump NETAVARK-HOSTPORT-SETMARK
add rule inet netavark nv_2f259bab_10_88_0_0_nm16_dnat tcp dport 8080 dnat ip to 10.88.0.2:80
add rule inet netavark NETAVARK-HOSTPORT-DNAT tcp dport 8080 jump nv_2f259bab_10_88_0_0_nm16_dnat
X
nft -a list ruleset
nft -j list ruleset
nft -j -f - <<'X'
{"nftables": [{"add": {"rule": {"family": "inet", "table": "netavark", "chain": "NETAVARK-ISOLATION-1", "expr": [
  {"match": {"left": {"meta": {"key": "iifname"}}, "right": "podman0", "op": "=="}},
  {"match": {"left": {"meta": {"key": "oifname"}}, "right": "podman0", "op": "!="}},
  {"jump": {"target": "NETAVARK-ISOLATION-2"}}]}}}]}
X
nft list chain inet netavark NETAVARK-ISOLATION-1
nft delete chain inet netavark nv_2f259bab_10_88_0_0_nm16_dnat
nft flush chain inet netavark NETAVARK-HOSTPORT-DNAT
nft delete chain inet netavark nv_2f259bab_10_88_0_0_nm16_dnat
nft list table inet netavark
nft delete table inet netavark
nft list ruleset

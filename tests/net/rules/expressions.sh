# One rule for each expression, and what a listing makes of it.
set -x
nft -f - <<'X'
table inet big {
	comment "the table"
	counter c1 { packets 5 bytes 100
	}
	quota q1 { over 10 mbytes
	}
	limit l1 { rate 10/second burst 20 packets
	}
	set ivals { type ipv4_addr; flags interval; auto-merge; elements = { 10.0.0.0/8, 192.168.1.1-192.168.1.20, 172.16.0.5 }
	}
	set i6 { type ipv6_addr; flags interval; elements = { fe80::/10, 2001:db8::1-2001:db8::ff }
	}
	set tmo { type ipv4_addr; flags timeout; timeout 1d; gc-interval 10s; comment "x y"
	}
	set cc { type ipv4_addr . inet_service . inet_proto; flags interval
		elements = { 1.2.3.0/24 . 80-90 . tcp, 1.2.4.0/24 . 53 . udp }
	}
	set ifs { type ifname; elements = { "lo", "eth0" }
	}
	set ifw { type ifname; flags interval; elements = { "veth*" }
	}
	set typ { typeof ip saddr . tcp dport; size 500; policy memory
	}
	map nat4 { type inet_service : ipv4_addr . inet_service; elements = { 80 : 10.0.0.2 . 8080, 443 : 10.0.0.3 . 8443 }
	}
	map ctr { type ipv4_addr : counter; elements = { 1.1.1.1 : "c1" }
	}
	map marks { type ipv4_addr : mark; flags interval; elements = { 10.0.0.0/24 : 0x1, 10.0.1.0-10.0.1.5 : 0x2 }
	}
	map vm { type ifname : verdict; elements = { "lo" : jump sub, "eth0" : goto sub2 }
	}
	set dyn { type ipv4_addr; size 128; flags dynamic,timeout; counter; timeout 5m
		elements = { 9.9.9.9 counter packets 1 bytes 2 }
	}
	set catch { type ipv4_addr; flags interval; counter
		elements = { 1.0.0.0/8 counter packets 0 bytes 0 , * counter packets 0 bytes 0 }
	}
	chain sub { 
	}
	chain sub2 { 
	}
	chain in {type filter hook input priority filter + 5; policy drop;
	}
	chain fw {type filter hook forward priority -150; policy accept;
	}
	chain pre {type nat hook prerouting priority dstnat; 
	}
	chain post {type nat hook postrouting priority srcnat; policy accept;
	}
	chain raw {type filter hook prerouting priority raw; policy accept;
	}
	chain out {type route hook output priority mangle; policy accept;
	}
	chain outn {type nat hook output priority -100; policy accept;
	}
}
X
nft add rule inet big sub 'counter name "c1" accept'
nft add rule inet big sub2 'quota name "q1" drop'
nft add rule inet big in 'limit name "l1" accept'
nft add rule inet big in 'counter name ip saddr map @ctr'
nft add rule inet big in 'iifname vmap @vm'
nft add rule inet big in 'iifname @ifs iifname @ifw accept'
nft add rule inet big in 'ip saddr @ivals ip daddr != @ivals accept'
nft add rule inet big in 'ip6 saddr @i6 accept'
nft add rule inet big in 'ip saddr . tcp dport . ip protocol @cc accept'
nft add rule inet big in 'meta mark set ip saddr map @marks'
nft add rule inet big in 'meta l4proto { tcp, udp } th dport 53 accept'
nft add rule inet big in 'ct state vmap { established : accept, related : accept, invalid : drop }'
nft add rule inet big in 'ct direction original ct status dnat ct mark 0x10 accept'
nft add rule inet big in 'ct original ip saddr 1.2.3.4 ct reply proto-dst 80 ct original protocol tcp accept'
nft add rule inet big in 'meta skuid 0-1000 meta skgid 5 meta pkttype broadcast meta cpu 1 accept'
nft add rule inet big in 'meta length 100-200 meta protocol ip6 meta nfproto ipv4 meta priority 5 accept'
nft add rule inet big in 'tcp flags & (syn | ack) == syn tcp option maxseg size 1000 accept'
nft add rule inet big in 'tcp flags syn / fin,syn,rst,ack accept'
nft add rule inet big in 'ip frag-off & 0x1fff != 0 ip ttl < 5 ip dscp cs1 ip version 4 ip hdrlength 5 ip id 7 accept'
nft add rule inet big in 'icmp type echo-request icmp code 0 icmpv6 type { nd-neighbor-solicit, echo-request } accept'
nft add rule inet big in 'exthdr frag exists ip6 hoplimit 255 ip6 nexthdr tcp frag more-fragments 1 rt type 0 accept'
nft add rule inet big in 'fib daddr type local fib saddr . iif oif missing' \
    'fib daddr . iif type { local, broadcast } drop'
nft add rule inet big in 'fib saddr oif "lo" fib saddr . mark oifname "x" accept'
nft add rule inet big in 'numgen inc mod 3 vmap { 0 : jump sub, 1 : goto sub2, 2 : accept }'
nft add rule inet big in 'numgen random mod 10 < 3 counter'
nft add rule inet big in 'meta mark set jhash ip saddr . ip daddr mod 16 seed 0xabcd offset 100'
nft add rule inet big in 'meta mark set symhash mod 4'
nft add rule inet big in 'ct mark set meta mark'
nft add rule inet big in 'ct mark set ct mark & 0xffff0000 | 0x12'
nft add rule inet big in 'meta mark set meta mark << 4'
nft add rule inet big in 'meta mark set numgen inc mod 4 offset 8'
nft add rule inet big in 'update @dyn { ip saddr timeout 1m limit rate 3/minute } accept'
nft add rule inet big in 'add @tmo { ip saddr timeout 30s }'
nft add rule inet big in 'delete @tmo { ip daddr }'
nft add rule inet big in 'ip saddr @dyn counter'
nft add rule inet big in 'log prefix "pre: " level debug flags all'
nft add rule inet big in 'log group 3 snaplen 64 queue-threshold 5 prefix "g"'
nft add rule inet big in 'reject with icmpx type admin-prohibited'
nft add rule inet big in 'meta nfproto ipv4 reject with icmp type host-unreachable'
nft add rule inet big in 'ip6 saddr ::1 reject with icmpv6 type no-route'
nft add rule inet big in 'limit rate over 1 mbytes/second burst 100 kbytes drop'
nft add rule inet big in 'quota until 100 bytes accept'
nft add rule inet big in 'quota over 5 kbytes used 1 kbytes drop'
nft add rule inet big in '@th,16,16 80 @nh,8,8 & 0xf0 == 0x10 accept'
nft add rule inet big in 'ether saddr 00:11:22:33:44:55 accept'
nft add rule inet big in 'tcp dport != { 1, 5-9 } tcp sport > 1024 udp length 8 accept'
nft add rule inet big in 'ip saddr 1.1.1.1-2.2.2.2 ip daddr 10.0.0.0/13 accept'
nft add rule inet big in 'meta iif lo meta oif != lo iiftype loopback accept'
nft add rule inet big in 'jump { ip saddr 5.5.5.5 accept; drop; }'
nft add rule inet big fw 'tcp flags syn tcp option maxseg size set rt mtu'
nft add rule inet big fw 'tcp flags syn tcp option maxseg size set 1200'
nft add rule inet big fw 'ip ttl set 5 ip dscp set af11'
nft add rule inet big fw 'tcp dport set 99 udp sport set 53 ip saddr set 1.2.3.4 ip6 daddr set ::5'
nft add rule inet big fw 'rt nexthop 1.1.1.1 rt ip6 nexthop ::1 accept'
nft add rule inet big pre 'dnat ip to tcp dport map { 80 : 10.0.0.1, 81 : 10.0.0.2 }'
nft add rule inet big pre 'tcp dport 8080 dnat ip to 10.0.0.1:80'
nft add rule inet big pre 'dnat ip addr . port to tcp dport map @nat4'
nft add rule inet big pre 'tcp dport 1000-2000 redirect to :5000-6000'
nft add rule inet big pre 'udp dport 99 dnat ip to 10.0.0.1-10.0.0.9 random,persistent'
nft add rule inet big pre 'dnat ip6 to [fe80::1]:80'
nft add rule inet big pre 'redirect'
nft add rule inet big post 'ip saddr 10.0.0.0/8 masquerade fully-random'
nft add rule inet big post 'masquerade to :1024-65535 persistent'
nft add rule inet big post 'snat ip to 1.2.3.4:1000-2000'
nft add rule inet big post 'snat ip to numgen inc mod 2 map { 0 : 1.1.1.1, 1 : 2.2.2.2 }'
nft add rule inet big raw 'notrack'
nft add rule inet big raw 'ip protocol tcp notrack accept'
nft add rule inet big out 'meta mark set 1'
nft add rule inet big in 'ct original ip saddr 1.2.3.4 accept'
nft add rule inet big in 'ct reply proto-dst 80 ct protocol tcp accept'
nft add rule inet big in 'ct reply ip daddr 1.2.3.4 ct original l3proto ipv4 accept'
nft add rule inet big in 'ct expiration 30s accept'
nft add rule inet big in 'ct zone 1 accept'
nft add rule inet big in 'icmpv6 type { nd-neighbor-solicit, echo-request } accept'
nft add rule inet big in 'udp length 8 udp sport > 1024'
nft add rule inet big fw 'udp sport set 53'
nft add rule inet big fw 'ip saddr set 1.2.3.4'
nft add rule inet big fw 'ip6 daddr set ::5'
nft add rule inet big fw 'rt ip nexthop 1.1.1.1'
nft add rule inet big fw 'rt ip6 nexthop ::1'
nft add rule inet big pre 'meta l4proto tcp dnat ip6 to [fe80::1]:80'
nft add rule inet big post 'meta l4proto tcp masquerade to :1024-65535'
nft add rule inet big in 'masquerade'
nft add rule inet big fw 'redirect'
nft add rule inet big pre 'snat ip to 1.1.1.1'
nft add rule inet big post 'dnat ip to 1.1.1.1'
nft add rule inet big out 'masquerade'
nft add rule inet big in 'queue num 1'
nft add rule inet big in 'dup to 1.2.3.4'
nft add rule inet big in 'tproxy to :80'
nft add rule inet big in 'flow add @x'
nft add rule inet big in 'ip option lsrr exists'
nft add rule inet big in 'tcp option sack-perm exists tcp option timestamp tsval 5'
nft add rule inet big in 'ip6 hopopt... '
nft add rule inet big in 'hbh nexthdr tcp'
nft add rule inet big in 'meta iifgroup 0 meta oifgroup 0'
nft add rule inet big in 'ip saddr & 255.0.0.0 == 10.0.0.0'
nft add rule inet big in 'ip saddr != { 1.1.1.1, 2.2.2.0/24 }'
nft add rule inet big in 'tcp dport { 1-5, 7 } : accept'
nft add rule inet big in 'tcp dport vmap { 1-5 : accept, 7 : jump sub }'
nft add rule inet big in 'ip saddr . tcp dport vmap { 1.1.1.1 . 22 : accept }'
nft add rule inet big in 'ip saddr . ip daddr vmap { 1.1.1.0/24 . 2.2.2.2 : drop }'
nft add rule inet big in 'goto nochain'
nft add rule inet big in 'jump in'
nft add rule inet big in 'jump sub'
nft add rule inet big sub 'jump sub'
nft add rule inet big in 'ip saddr @nosuch'
nft add rule inet big in 'counter name nosuch'
nft add rule inet big in 'ip protocol vmap @vm'
nft add rule inet big in 'sctp dport 5'
nft add rule inet big in 'dccp dport 5'
nft add rule inet big in 'udplite dport 5'
nft add rule inet big in 'ah spi 5'
nft add rule inet big in 'esp spi 5'
nft add rule inet big in 'comp cpi 5'
nft add rule inet big in 'arp operation request'
nft add rule inet big in 'vlan id 5'
nft add rule inet big in 'meter m1 { ip saddr limit rate 3/second }'
nft add rule inet big in 'add @dyn { ip saddr counter }'
nft add rule inet big in 'update @typ { ip saddr . tcp dport }'
nft add rule inet big in 'update @ivals { ip saddr }'
nft add rule inet big in 'delete @typ { ip saddr . tcp dport }'
nft add rule inet big in 'last'
nft add rule inet big in 'continue'
nft add rule inet big in 'return'
nft add rule inet big in 'tcp sequence 5 tcp ackseq 6 tcp doff 5 tcp window 7 tcp checksum 8 tcp urgptr 9'
nft add rule inet big in 'ip length 5 ip checksum 6 ip ecn ce'
nft add rule inet big in 'ip6 flowlabel 5 ip6 dscp cs1 ip6 ecn ect0 ip6 length 5'
nft add rule inet big in 'icmp id 5 icmp sequence 6 icmp mtu 5'
nft add rule inet big in 'icmpv6 mtu 5'
nft add rule inet big in 'mh type 1 dst nexthdr 6 srh flags 0'
nft add rule inet big in 'tcp option 254 exists'
nft add rule inet big in 'reset tcp option sack-perm'
nft add rule inet big in 'counter packets 5 bytes 6'
nft add rule inet big in 'ip saddr 1.2.3.4 counter log accept comment "hello world"'
nft add rule inet big pre 'dnat ip prefix to ip daddr map { 10.0.0.0/8 : 11.0.0.0/8 }'
nft add rule inet big post 'snat ip to ip saddr map { 10.0.0.1 : 1.1.1.1-1.1.1.5 }'
set +x
saved=$(mktemp)
listed() { nft -a list ruleset | sed 's/ expires [0-9a-z]*//'; }
listed
nft -j list ruleset | sed 's/, "expires": [0-9]*//'
nft -s list ruleset > "$saved"
nft flush ruleset
nft -f "$saved"
nft -s list ruleset | diff "$saved" - | sed 's/ expires [0-9a-z]*//'
rm "$saved"

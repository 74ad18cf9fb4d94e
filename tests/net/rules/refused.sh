# What is refused, with Linux's words, and what is listed after it.
set -x
nft add table ip t
nft add table ip t
nft create table ip t
nft delete table ip x
nft add chain ip t c
nft create chain ip t c
nft add chain ip t b '{ type filter hook input priority 0; policy drop; }'
nft add chain ip t b '{ policy accept; }'
nft add chain ip t b '{ type filter hook input priority 5; }'
nft add chain ip t b '{ type nat hook input priority 0; }'
nft add chain ip t bad '{ type nat hook forward priority 0; }'
nft add chain ip t bad '{ type route hook input priority 0; }'
nft add chain ip t bad '{ type nat hook prerouting priority -300; }'
nft add chain ip t bad '{ type foo hook input priority 0; }'
nft add chain ip t bad '{ type filter hook ingress device lo priority 0; }'
nft rename chain ip t c d
nft rename chain ip t d b
nft rename chain ip t zz q
nft list table ip t
nft add rule ip t d accept
nft insert rule ip t d drop
nft add rule ip t d index 0 counter
nft insert rule ip t d index 1 log
nft -a list chain ip t d
nft replace rule ip t d handle 4 continue
nft -a list chain ip t d
nft replace rule ip t d handle 99 continue
nft delete rule ip t d handle 99
nft delete rule ip t d handle 6
nft add rule ip t d position 5 return
nft -a list chain ip t d
nft add rule ip t b jump d
nft delete chain ip t d
nft flush chain ip t b
nft flush chain ip t nosuch
nft delete chain ip t d
nft list ruleset
nft add set ip t s '{ type ipv4_addr; }'
nft add element ip t s '{ 1.1.1.1, 2.2.2.2 }'
nft add element ip t s '{ 1.1.1.1 }'
nft create element ip t s '{ 1.1.1.1 }'
nft delete element ip t s '{ 3.3.3.3 }'
nft delete element ip t s '{ 1.1.1.1 }'
nft add element ip t s '{ 1.0.0.0/8 }'
nft get element ip t s '{ 2.2.2.2 }'
nft get element ip t s '{ 2.2.2.3 }'
nft list set ip t s
nft list set ip t zz
nft add element ip t zz '{ 1.1.1.1 }'
nft add set ip t small '{ type ipv4_addr; size 2; }'
nft add element ip t small '{ 1.1.1.1, 2.2.2.2 }'
nft add element ip t small '{ 3.3.3.3 }'
nft add set ip t s '{ type inet_service; }'
nft add set ip t s '{ type ipv4_addr; flags interval; }'
nft create set ip t s '{ type ipv4_addr; }'
nft add set ip t iv '{ type ipv4_addr; flags interval; }'
nft add element ip t iv '{ 10.0.0.0/8 }'
nft add element ip t iv '{ 10.1.0.0/16 }'
nft add element ip t iv '{ 9.0.0.0-11.0.0.0 }'
nft add element ip t iv '{ 10.0.0.0/8 }'
nft get element ip t iv '{ 10.5.5.5 }'
nft get element ip t iv '{ 11.5.5.5 }'
nft add element ip t iv '{ 11.0.0.0/8, 255.0.0.0/8 }'
nft delete element ip t iv '{ 10.0.0.0/8 }'
nft list set ip t iv
nft delete element ip t iv '{ 11.0.0.0/9 }'
nft add rule ip t b ip saddr @s drop
nft delete set ip t s
nft flush set ip t s
nft list set ip t s
nft delete set ip t zz
nft flush set ip t zz
nft add map ip t m '{ type ipv4_addr : verdict; }'
nft add chain ip t e
nft add element ip t m '{ 1.1.1.1 : jump e }'
nft delete chain ip t e
nft add element ip t m '{ 1.1.1.1 : accept }'
nft add element ip t m '{ 1.1.1.2 : jump nowhere }'
nft add rule ip t b ip saddr vmap @m
nft add rule ip t e jump e
nft add rule ip t e ip saddr vmap @m
nft delete element ip t m '{ 1.1.1.1 }'
nft delete chain ip t e
nft list ruleset
nft add counter ip t c1
nft add counter ip t c1
nft create counter ip t c1
nft add rule ip t b counter name c1
nft delete counter ip t c1
nft delete counter ip t c2
nft list counters
nft reset counters
nft add quota ip t c1 '{ over 5 bytes }'
nft list quotas
nft add limit ip t l '{ rate 5/second }'
nft list limits
nft list counter ip t c1
nft reset rules
nft add flowtable ip t f '{ hook ingress priority 0; devices = { lo }; }'
nft list flowtables
nft delete table ip t
nft list ruleset
nft flush ruleset
nft list tables
nft list chains
nft list sets
nft list maps
nft -s list ruleset
nft -c add table ip q
nft list ruleset
nft -c 'add rule ip q q accept'
nft add table inet i '{ flags dormant; }'
nft list ruleset
nft add table inet i
nft list ruleset
nft add table inet i '{ flags owner; }'

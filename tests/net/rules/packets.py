"""What rules do to packets of the loopback interface. Prints what programs see, and the counters."""

import errno, re, socket, subprocess, time

IP_RECVTTL = 12


def nft(text):
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)


def listed(*what):
    out = subprocess.run(["nft", "list", *what], text=True, check=True, capture_output=True).stdout
    print(re.sub(r" expires [0-9a-z]+", "", out), end="")


def set_of(name):
    return subprocess.run(["nft", "list", "set", "ip", "s", name], text=True, check=True, capture_output=True).stdout


def listen(port, family=socket.AF_INET):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("", port))
    s.listen(16)
    return s


def connected(port, ip="127.0.0.1"):
    with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET) as s:
        s.settimeout(0.5)
        try:
            s.connect((ip, port))
            return "connected"
        except TimeoutError:
            return "nothing"
        except OSError as e:
            return errno.errorcode[e.errno]


def sent(port, count, bound):
    """How many of some datagrams arrive."""
    with socket.socket(type=socket.SOCK_DGRAM) as u:
        got = 0
        for _ in range(count):
            try:
                u.sendto(b"x" * 72, ("127.0.0.1", port))
            except OSError as e:
                return errno.errorcode[e.errno]
        bound.settimeout(0.3)
        try:
            while bound.recv(100):
                got += 1
        except TimeoutError:
            return got


def bind(port):
    u = socket.socket(type=socket.SOCK_DGRAM)
    u.bind(("127.0.0.1", port))
    return u


def verdicts():
    keep = [listen(port) for port in (8001, 8002, 8003, 8004, 8005)] + [listen(8006, socket.AF_INET6)]
    nft("""table inet v {
        chain in { type filter hook input priority 0; policy accept;
            tcp dport 8001 counter drop
            tcp dport 8002 counter reject with tcp reset
            tcp dport 8003 counter reject
            tcp dport 8006 ip6 nexthdr tcp counter reject with icmpv6 port-unreachable
            tcp dport vmap { 8004 : jump sub, 8005 : goto end }
            tcp dport 8005 counter drop
        }
        chain sub {
            counter return
        }
        chain end {
            counter
        }
        chain out { type filter hook output priority 0; policy accept;
            tcp dport 8009 counter drop
            udp dport 8009 counter reject with icmp host-prohibited
        }
    }""")
    print([connected(port) for port in (8001, 8002, 8003, 8004, 8005, 8007)], connected(8009))
    # What TCP over IPv6 makes of the error is not the rules' business.
    connected(8006, "::1")
    u = bind(8008)
    print(sent(8009, 1, u))
    listed("table", "inet", "v")
    nft("flush ruleset")
    print(connected(8001), len(keep))


def translation():
    keep = [listen(9001), listen(9002), listen(9003)]
    nft("""table ip n {
        chain out { type nat hook output priority -100; policy accept;
            tcp dport 9000 counter redirect to :9001
            ip daddr 10.1.2.3 tcp dport 80 counter dnat to 127.0.0.1:9002
            ip daddr 10.1.0.0/16 counter dnat ip to tcp dport map { 81 : 127.0.0.1, 82 : 127.0.0.2 }
            tcp dport 9100 dnat to numgen inc mod 2 map { 0 : 127.0.0.1 . 9001, 1 : 127.0.0.1 . 9002 }
        }
        chain post { type nat hook postrouting priority 100; policy accept;
            tcp dport 9003 counter snat to 127.0.0.9:5000-5001
        }
        chain states { type filter hook input priority 0; policy accept;
            ct state new ct status dnat ct protocol tcp counter
            ct state established ct direction reply counter
        }
    }
    """)
    with socket.create_connection(("127.0.0.1", 9000), timeout=5) as c:
        a, peer = keep[0].accept()
        c.sendall(b"to")
        a.sendall(b"fro")
        print(c.getpeername(), a.recv(9), c.recv(9), a.getsockname(), peer == c.getsockname())
        a.close()
    sources = []
    for _ in (1, 2):
        with socket.create_connection(("127.0.0.1", 9003), timeout=5):
            sources.append(keep[2].accept()[1])
    # The port is the host's choice.
    print([(ip, port in (5000, 5001)) for ip, port in sources])
    for n in range(4):
        with socket.create_connection(("127.0.0.1", 9100), timeout=5) as c:
            keep[n % 2].settimeout(5)
            print(keep[n % 2].accept()[0].getsockname())
    out = subprocess.run(["nft", "list", "table", "ip", "n"], text=True, check=True, capture_output=True).stdout
    # How many acknowledgements a connection takes is TCP's business. When the second connection gets the port of the
    # first, its SYN may meet TIME-WAIT, and the next SYN is a new connection to the rules.
    out = re.sub(r"(reply counter packets) \d+ bytes \d+", r"\1 N", out)
    again = lambda m: f"{m[1]} at least 2" if int(m[2]) >= 2 and int(m[3]) == 60 * int(m[2]) else m[0]
    print(re.sub(r"(dport 9003 counter packets) (\d+) bytes (\d+)", again, out), end="")
    nft("flush ruleset")


def marks_and_sets():
    u = bind(7001)
    nft("""table ip s {
        counter named {
        }
        set seen { type inet_service; size 8; flags dynamic,timeout; timeout 1h;
        }
        set short { type ipv4_addr; flags timeout; elements = { 127.0.0.1 timeout 2s }
        }
        set nets { type ipv4_addr . inet_service; flags interval; elements = { 127.0.0.0/8 . 7000-7001 }
        }
        map marks { type inet_service : mark; elements = { 7001 : 0x12 }
        }
        chain out { type filter hook output priority 0; policy accept;
            meta skuid 0 udp dport 7001 meta mark set udp dport map @marks
            ct mark set meta mark
        }
        chain in { type filter hook input priority 0; policy accept;
            udp dport 7001 ip saddr @short counter drop
            udp dport 7001 ip saddr . udp dport @nets meta mark 0x12 ct mark 0x12 counter name "named"
            udp dport 7001 add @seen { udp dport } counter
            udp dport 7001 iifname "lo" meta length 100 @th,16,16 7001 numgen inc mod 2 0 counter
        }
    }""")
    print(sent(7001, 2, u))
    end = time.monotonic() + 20
    while "127.0.0.1" in set_of("short") and time.monotonic() < end:
        time.sleep(0.05)
    print(sent(7001, 4, u))
    listed("ruleset")
    nft("flush ruleset")


def rates():
    u = bind(7002)
    nft("""table ip r {
        chain in { type filter hook input priority 0; policy accept;
            udp dport 7002 limit rate over 1/hour burst 3 packets counter drop
        }
    }""")
    print(sent(7002, 8, u))
    nft("flush ruleset")
    nft("""table ip r {
        chain in { type filter hook input priority 0; policy accept;
            udp dport 7002 quota over 250 bytes counter drop
        }
    }""")
    print(sent(7002, 5, u))
    listed("ruleset")
    nft("flush ruleset")
    for rule in (
        "-A INPUT -p udp --dport 7002 -m limit --limit 1/hour --limit-burst 2 -j ACCEPT",
        "-A INPUT -p udp --dport 7002 -j DROP",
    ):
        subprocess.run(["iptables", *rule.split()], check=True)
    print(sent(7002, 5, u))
    print(subprocess.run(["iptables-save", "-c", "-t", "filter"], text=True, capture_output=True).stdout)


def headers():
    u = bind(7003)
    u.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
    u.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    u.settimeout(2)
    nft("""table ip h {
        chain out { type filter hook output priority 0; policy accept;
            udp dport 7004 ip ttl set 7 ip dscp set af11 udp dport set 7003
        }
        chain in { type filter hook input priority 0; policy accept;
            ip ttl 7 ip dscp af11 udp checksum != 0 counter
            tcp flags syn tcp option maxseg size 1200 counter
        }
        chain mss { type filter hook output priority 1; policy accept;
            tcp dport 7005 tcp flags syn tcp option maxseg size set 1200
        }
    }""")
    with socket.socket(type=socket.SOCK_DGRAM) as v:
        v.sendto(b"hello", ("127.0.0.1", 7004))
        data, control, _, _ = u.recvmsg(100, 100)
        print(data, [(kind, value[0]) for _, kind, value in control])
    keep = listen(7005)
    print(connected(7005), keep.fileno() >= 0)
    listed("ruleset")
    nft("flush ruleset")


if __name__ == "__main__":
    for part in (verdicts, translation, marks_and_sets, rates, headers):
        print(part.__name__, flush=True)
        part()

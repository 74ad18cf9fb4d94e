"""Containers as Docker joins them: a bridge with a pair of interfaces into each, NAT to the world, and a published
port. Prints what programs in the namespaces see."""

import ctypes, errno, hashlib, os, re, socket, struct, subprocess, threading

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
SO_ORIGINAL_DST = 80
HOST, GATEWAY, ONE, TWO, WORLD = "192.0.2.1", "172.17.0.1", "172.17.0.2", "172.17.0.3", "192.0.2.2"


def run(command, show=False):
    done = subprocess.run(command, shell=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if show or done.returncode:
        print(f"$ {command}", *re.sub(r"link/ether \S+", "link/ether", done.stdout).splitlines(), sep="\n")


def within(net, what, *args):
    """Calls a function in a namespace; sockets that it makes stay there."""
    result = []

    def body():
        if net:
            with open(f"/run/netns/{net}") as f:
                assert LIBC.setns(f.fileno(), CLONE_NEWNET) == 0, ctypes.get_errno()
        try:
            result.append(what(*args))
        except OSError as e:
            result.append(errno.errorcode.get(e.errno, str(e)))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return result[0]


def checksum(data):
    words = sum(struct.unpack(f">{len(data) // 2}H", data))
    words = (words >> 16) + (words & 0xFFFF)
    return ~(words + (words >> 16)) & 0xFFFF


def ping(to):
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    s.settimeout(5)
    body = struct.pack(">BBHHH", 8, 0, 0, 77, 1) + b"x" * 56
    s.sendto(body[:2] + struct.pack(">H", checksum(body)) + body[4:], (to, 0))
    while True:
        packet, peer = s.recvfrom(2048)
        kind, code = packet[20:22]
        if kind != 8:
            return f"answer {kind} {code} from {peer[0]}, TTL {packet[8]}"


def listener(port):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("", port))
    s.listen(16)
    return s


def served(server, seen):
    """Takes one connection, reads all, and answers with a hash."""
    connection, peer = server.accept()
    seen.append(peer[0])
    total = hashlib.sha256()
    while data := connection.recv(1 << 20):
        total.update(data)
    connection.sendall(total.digest())
    connection.close()


def connected(ip, port, data=b"hello"):
    s = socket.socket()
    s.settimeout(10)
    s.connect((ip, port))
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    got = b""
    while part := s.recv(100):
        got += part
    return "same bytes" if got == hashlib.sha256(data).digest() else f"other bytes: {len(got)}"


def stream(title, server, net, ip, port, data=b"hello"):
    seen = []
    thread = threading.Thread(target=served, args=(server, seen))
    thread.start()
    print(title, within(net, connected, ip, port, data), end=", ")
    thread.join(10)
    print("from", seen)


def refused(title, net, ip, port):
    def attempt():
        s = socket.socket()
        s.settimeout(0.5)
        s.connect((ip, port))

    print(title, within(net, attempt))


def udp():
    """A datagram, its answer, and an error that comes back through NAT."""
    server = within("world", socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((WORLD, 5353))
    client = within("one", socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(5)
    client.sendto(b"question", (WORLD, 5353))
    data, peer = server.recvfrom(100)
    server.sendto(b"answer", peer)
    print("UDP", data, "from", peer[0], client.recvfrom(100))
    client.connect((WORLD, 5354))
    client.send(b"nobody")
    try:
        print(client.recv(100))
    except OSError as e:
        print("UDP", errno.errorcode.get(e.errno, str(e)))


def join(name, ip):
    run(f"ip netns add {name}")
    run(f"ip link add name v{name} type veth peer name eth0 netns {name}")
    run(f"ip link set dev v{name} master docker0 up")
    run(f"ip -n {name} link set dev lo up")
    run(f"ip -n {name} addr add {ip}/16 dev eth0")
    run(f"ip -n {name} link set dev eth0 up")
    run(f"ip -n {name} route add default via {GATEWAY}")


def main():
    os.makedirs("/run/netns", exist_ok=True)
    run("ip link set dev lo up")
    # The world outside, by an interface that moves there.
    run("ip netns add world")
    run("ip link add name wan0 type veth peer name out")
    run("ip link set dev out netns world name eth0")
    run(f"ip addr add {HOST}/24 dev wan0 && ip link set dev wan0 up")
    run(f"ip -n world addr add {WORLD}/24 dev eth0 && ip -n world link set dev eth0 up")
    # Without an address of its own a bridge has one of its ports'.
    run("ip link add name docker0 address 02:42:ac:11:00:01 type bridge")
    run(f"ip addr add {GATEWAY}/16 dev docker0 && ip link set dev docker0 up")
    run("ip -o -4 link show dev docker0", show=True)
    join("one", ONE)
    join("two", TWO)
    with open("/proc/sys/net/ipv4/ip_forward", "w") as f:
        f.write("1")
    for rule in (
        "-P FORWARD DROP",
        "-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "-A FORWARD -i docker0 ! -o docker0 -j ACCEPT",
        "-A FORWARD -i docker0 -o docker0 -j ACCEPT",
        f"-A FORWARD ! -i docker0 -o docker0 -p tcp -d {ONE} --dport 80 -j ACCEPT",
        "-t nat -N DOCKER",
        "-t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER",
        "-t nat -A OUTPUT -m addrtype --dst-type LOCAL ! --dst 127.0.0.0/8 -j DOCKER",
        f"-t nat -A POSTROUTING -s {GATEWAY}/16 ! -o docker0 -j MASQUERADE",
        f"-t nat -A DOCKER ! -i docker0 -p tcp --dport 8080 -j DNAT --to-destination {ONE}:80",
    ):
        run(f"iptables {rule}")
    run("ip -o link show dev docker0", show=True)
    for net in ("one", "two", "world"):
        run(f"ip -n {net} -o link; ip -n {net} -4 -o addr; ip -n {net} route", show=True)
    for net, to in (("one", GATEWAY), ("one", TWO), ("two", WORLD), ("", ONE), ("world", HOST), ("one", HOST)):
        print("ping from", net or "the host", "to", to + ":", within(net, ping, to))
    web, inner = within("one", listener, 80), within("one", listener, 81)
    outside = within("world", listener, 443)
    stream("one to the world:", outside, "one", WORLD, 443)
    stream("two to one:", web, "two", ONE, 80, os.urandom(5_000_000))
    stream("much to the world:", outside, "two", WORLD, 443, os.urandom(5_000_000))
    stream("the world to the published port:", web, "world", HOST, 8080, os.urandom(3_000_000))
    stream("the host to its own port:", web, "", HOST, 8080)
    stream("the host to the container:", inner, "", ONE, 81)
    refused("the world to the container:", "world", ONE, 80)
    run(f"ip -n world route add 172.17.0.0/16 via {HOST}")
    refused("the same with a route to it:", "world", ONE, 80)
    refused("the same to a port that is not published:", "world", ONE, 81)
    refused("to a port that nobody listens at:", "two", ONE, 82)
    udp()
    run("iptables -t nat -S; iptables -S", show=True)
    # What leads into a namespace goes with it, when nothing of it is left.
    for s in (web, inner):
        s.close()
    run("ip netns del one")
    while os.path.exists("/sys/class/net/vone"):
        pass
    run("ip -o link show | grep -v lo:", show=True)
    print("ping from two to the world:", within("two", ping, WORLD))


main()

"""Builds interfaces at random, with traffic over them: links.py SECONDS SEED

Runs as root of a user namespace with a network namespace of its own; nothing here needs to succeed.
"""

import os
import random
import socket
import subprocess
import sys
import time

seconds, seed = float(sys.argv[1]), int(sys.argv[2])
R = random.Random(seed)
BATCH = 60
nets = []


def name():
    return f"n{R.randrange(24)}"


def address():
    return f"10.{R.randrange(4)}.0.{R.randrange(1, 12)}"


def network():
    return R.choice([f"10.{R.randrange(4)}.0.0/{R.choice([8, 16, 24])}", "default", address()])


def netns():
    return R.choice(nets) if nets and R.random() < 0.3 else None


def command():
    a, b = name(), name()
    vlan = f"link add link {a} name {b} type vlan id {R.randrange(1, 4)}"
    pair = f"link add {a} type veth peer name {b}"
    there = netns()
    return R.choice(
        [
            f"link add {a} type bridge",
            pair,
            pair if there is None else f"{pair} netns {there}",
            f"link add {a} type dummy",
            vlan,
            vlan,
            vlan,
            f"link set {a} master {b}",
            f"link set {a} master {b}",
            f"link set {a} master {b}",
            f"link set {a} nomaster",
            f"link set {a} up",
            f"link set {a} up",
            f"link set {a} up",
            f"link set {a} {R.choice(['down', 'mtu 1280', 'mtu 9000', 'address 02:00:00:00:00:07'])}",
            f"link set {a} type bridge_slave hairpin on",
            f"link set {a} netns {there or 1}",
            f"link del {a}" if R.random() < 0.3 else f"link show {a}",
            f"addr add {address()}/24 dev {a}",
            f"addr add fd00::{R.randrange(99)}/64 dev {a}",
            f"addr del {address()}/24 dev {a}",
            f"route add {network()} dev {a}",
            f"route add {network()} via {address()}",
            f"route add {network()} nexthop via {address()} nexthop via {address()}",
            f"route add {R.choice(['blackhole', 'unreachable', 'throw'])} {network()}",
            f"route get {address()} from {address()} iif {a}",
            f"rule add from {network()} lookup {R.randrange(250, 256)} pref {R.randrange(9)}",
            f"rule del pref {R.randrange(9)}",
            f"neigh add {address()} lladdr 02:00:00:00:00:{R.randrange(99):02d} dev {a}",
            "route flush cache",
        ]
    )


def inside(net, *argv, **rest):
    prefix = ["nsenter", f"--net=/proc/{net}/ns/net"] if net else []
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([*prefix, *argv], **quiet, **rest)


def frame(tags):
    """A broadcast with tags of VLANs."""
    head = b"\xff" * 6 + b"\2\0\0\0\0" + bytes([R.randrange(99)])
    return head + b"".join(b"\x81\0\0" + bytes([R.randrange(1, 4)]) for _ in range(tags)) + b"\x08\6" + bytes(28)


def shout():
    """Sends frames by whatever interfaces there are."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
        for _, link in socket.if_nameindex():
            for tags in (0, 1, 3, 300):
                try:
                    s.sendto(frame(tags), (link, 0))
                except OSError:
                    pass


def main():
    for key in ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"):
        try:
            with open(f"/proc/sys/{key}", "w") as f:
                f.write("1")
        except OSError:
            pass
    others = [subprocess.Popen(["unshare", "-n", "sleep", "1000"]) for _ in range(2)]
    own, end = os.readlink("/proc/self/ns/net"), time.monotonic() + 20
    while any(os.readlink(f"/proc/{other.pid}/ns/net") == own for other in others) and time.monotonic() < end:
        time.sleep(0.01)
    nets.extend(other.pid for other in others)
    end, built = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        lines = "".join(command() + "\n" for _ in range(BATCH))
        net = netns()
        builder = inside(net, "ip", "-force", "-batch", "-", stdin=subprocess.PIPE)
        pings = [
            inside(netns(), "ping", "-c", "3", "-i", "0.01", "-w", "1", *flags, address())
            for flags in ([], ["-b"], ["-I", name()])
        ]
        builder.communicate(lines.encode())
        shout()
        for process in pings:
            process.wait()
        built += BATCH
    for other in others:
        other.kill()
    print(f"held: {built} commands, {len(os.listdir('/sys/class/net'))} interfaces")


main()

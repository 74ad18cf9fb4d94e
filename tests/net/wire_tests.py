"""TCP between our stack and the host's over a bad link (wire.c): every byte arrives, whatever the link does.

WIRE_BYTES  how much goes each way with each link, 2 MiB by default
WIRE_SHOW   prints how long it took, and beside it how long two stacks of the host need
"""

import contextlib
import hashlib
import os
import random
import socket
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BOX = {socket.AF_INET: "10.88.0.2", socket.AF_INET6: "fd88::2"}

# Links by name: the MTU, and what the wire does.
LINKS = {
    "plain": (1500, ""),
    "loss_0.1": (1500, "loss=0.1"),
    "loss_1": (1500, "loss=1 delay=2000"),
    "loss_5": (1500, "loss=5 delay=1000"),
    "repeat": (1500, "repeat=5"),
    "reorder": (1500, "reorder=5"),
    "spoil": (1500, "spoil=1"),
    "delay": (1500, "delay=25000 jitter=5000"),
    "narrow": (1500, "rate=50 delay=5000 queue=60"),
    "all": (1400, "loss=0.5 repeat=1 reorder=2 spoil=0.5 delay=1000 jitter=1000"),
    "mtu_576": (576, "loss=0.5"),
    "mtu_1280": (1280, "loss=0.5"),
    "mtu_9000": (9000, "loss=0.5"),
}

# What both ends run: `send N SEED` and `take N` on a connection each; the answer is the sum of what was taken.
PEER = """
import hashlib, os, random, socket, sys, threading
def block(seed): return random.Random(seed).randbytes(1 << 20)
def put(s, count, seed):
    piece = block(seed)
    while count > 0:
        s.sendall(piece[:count]); count -= len(piece)
def take(s, count):
    sum = hashlib.sha256()
    while count > 0:
        data = s.recv(min(count, 1 << 18))
        if not data: break
        sum.update(data); count -= len(data)
    return sum.hexdigest()
def serve(s):
    with s, s.makefile("r") as lines:
        what, count, seed, control = lines.readline().split()
        if control != "-": s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        s.sendall(b"g")
        if what == "send":
            put(s, int(count), int(seed))
        else:
            s.sendall(take(s, int(count)).encode())
        s.recv(1)
l = socket.create_server(("::", 9000), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
print("up", flush=True)
while True: threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
"""


def expected(count, seed):
    piece, total = random.Random(seed).randbytes(1 << 20), hashlib.sha256()
    while count > 0:
        total.update(piece[:count])
        count -= len(piece)
    return total.hexdigest()


def transfer(family, what, count, seed, control):
    """Seconds that the bytes took; a sum that differs is an error."""
    with socket.create_connection((BOX[family], 9000), timeout=120) as s:
        if control != "-":
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        s.sendall(f"{what} {count} {seed} {control}\n".encode())
        assert s.recv(1) == b"g"
        start = time.monotonic()
        if what == "send":
            total, left = hashlib.sha256(), count
            while left > 0:
                data = s.recv(min(left, 1 << 18))
                assert data, f"{count - left} of {count} bytes came"
                total.update(data)
                left -= len(data)
            got = total.hexdigest()
        else:
            piece, left = random.Random(seed).randbytes(1 << 20), count
            while left > 0:
                s.sendall(piece[:left])
                left -= len(piece)
            got = s.recv(64, socket.MSG_WAITALL).decode()
        seconds = time.monotonic() - start
        assert got == expected(count, seed), f"{what}: the bytes are not those that were sent"
        return seconds


def build(rf):
    program = rf.scratch + "/wire"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-o", program, HERE + "/wire.c"], check=True)
    return program


@contextlib.contextmanager
def wire(program, options):
    process = subprocess.Popen([program, "vh0", "p1", *options.split()], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.terminate()
        said = process.stdout.read()
        process.stdout.close()
        process.wait()
        if os.environ.get("WIRE_SHOW"):
            print("  ", said.strip())


# The smallest MTU that IPv6 has.
SIX = 1280


def plumbing(program, mtu):
    """Puts a wire between the namespace's interface and the host's: eth0 - vh0, wire, p1 - p0."""
    six = "ip -6 addr add fd88::1/64 dev p0 nodad" if mtu >= SIX else ":"
    return f"""
ip addr flush dev vh0; ip link add p0 type veth peer name p1
for i in vh0 p1; do echo 1 >/proc/sys/net/ipv6/conf/$i/disable_ipv6; ip link set $i arp off mtu {mtu} up; done
ip link set p0 mtu {mtu} up; ip addr add 10.88.0.1/24 dev p0; {six}
ip -n box link set eth0 mtu {mtu}; {program} plain vh0 p0 p1; ip netns exec box {program} plain eth0
"""


@contextlib.contextmanager
def native(script):
    """The same peer without a sandbox."""
    setup = """ip netns add box; ip link add vh0 type veth peer name eth0 netns box; ip link set vh0 up
ip -n box addr add 10.88.0.2/24 dev eth0; ip -n box link set lo up; ip -n box link set eth0 up"""
    process = None
    try:
        subprocess.run(["sh", "-ec", setup + "\nsh -e " + script], check=True)
        command = ["ip", "netns", "exec", "box", sys.executable, "-c", PEER]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "up\n"
        yield
    finally:
        if process:
            process.kill()
            process.wait()
            process.stdout.close()
        subprocess.run(["ip", "link", "delete", "vh0"], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "netns", "delete", "box"], check=True)
        subprocess.run(["umount", "/run/netns"], stderr=subprocess.DEVNULL)


def both_ways(name, families, count, seed):
    """Each way alone, and both at once; IPv6 beside IPv4."""
    out, failed = [], []
    for what in ("send", "take"):
        out.append(transfer(socket.AF_INET, what, count, seed, "-"))

    def part(family, what):
        try:
            transfer(family, what, count // 4, seed + 1, "-")
        except (OSError, AssertionError) as error:
            failed.append(f"{what}, family {int(family)}: {error!r}")

    threads = [threading.Thread(target=part, args=(f, w)) for f in families for w in ("send", "take")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, f"{name}: {failed}"
    return out


def links(rf, namespace):
    program = build(rf)
    count = int(os.environ.get("WIRE_BYTES", 2 << 20))
    only = os.environ.get("WIRE_LINKS", "").split()
    for seed, (name, (mtu, options)) in enumerate(LINKS.items()):
        if only and name not in only:
            continue
        script = rf.scratch + "/plumbing"
        with open(script, "w") as f:
            f.write(plumbing(program, mtu))
        with namespace(PEER, before=f"sh -e {script}") as box:
            try:
                assert box.line() == "up"
                with wire(program, f"{options} seed={seed}"):
                    inside = both_ways(name, list(BOX)[: 1 + (mtu >= SIX)], count, seed)
                if os.environ.get("WIRE_SHOW"):
                    print(f"{name}: {' '.join(f'{count / s / 1e6:.1f}' for s in inside)} MB/s from and to the sandbox")
            finally:
                subprocess.run(["ip", "link", "delete", "p0"], stderr=subprocess.DEVNULL)


def compare(rf, namespace):
    """Prints what our stack and the host's reach over the same links, with each congestion control that both have."""
    program = build(rf)
    count = int(os.environ.get("WIRE_BYTES", 2 << 20))
    script = rf.scratch + "/plumbing"
    for name in os.environ["WIRE_LINKS"].split():
        mtu, options = LINKS[name]
        with open(script, "w") as f:
            f.write(plumbing(program, mtu))
        for control in os.environ.get("WIRE_CONTROLS", "cubic").split():
            rates = {}
            for turn in range(int(os.environ.get("WIRE_ROUNDS", 3))):
                for stack in ("host", "ours"):
                    place = native(script) if stack == "host" else namespace(PEER, before=f"sh -e {script}")
                    with place as box:
                        try:
                            assert box is None or box.line() == "up"
                            with wire(program, f"{options} seed={turn}"):
                                for what in ("send", "take"):
                                    seconds = transfer(socket.AF_INET, what, count, turn, control)
                                    rates.setdefault((stack, what), []).append(count / seconds / 1e6)
                        finally:
                            subprocess.run(["ip", "link", "delete", "p0"], stderr=subprocess.DEVNULL)
            medians = [f"{s} {w} {sorted(r)[len(r) // 2]:.2f}" for (s, w), r in rates.items()]
            print(f"{name} {control}: {', '.join(medians)} MB/s")


def tests(rf, namespace):
    """The tests by name."""
    found = {"test_bad_links": lambda: links(rf, namespace)}
    if os.environ.get("WIRE_CONTROLS"):
        found["test_compare"] = lambda: compare(rf, namespace)
    return found

"""Floods from a neighbour on the link: a sandbox goes on serving others, and holds a bounded amount of memory."""

import contextlib
import os
import re
import socket
import struct
import threading
import time

# The sandbox, as Namespace has it, and the addresses that the flood pretends to come from.
BOX, OWN = "10.88.0.2", "10.88.0.1"
TCP, UDP, ARP, IP = 6, 17, 0x0806, 0x0800
SYN, RST, ACK, PSH = 2, 4, 16, 8
# How much more memory the sandbox may hold. Answers to hosts whose hardware address is not known wait as in Linux: up
# to 208 KiB for each.
MORE = 192 << 20

SERVER = """
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536): self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 64
    def handle_error(self, *_): pass
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("0.0.0.0", 53))
threading.Thread(target=lambda: [u.recv(65536) for _ in iter(int, 1)], daemon=True).start()
server = Server(("0.0.0.0", 80), Echo); print("up"); server.serve_forever()"""


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Neighbour:
    """Frames of any kind on the link to the sandbox."""

    def __init__(self, rounds):
        self.rounds = rounds
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind(("vh0", 0))
        self.socket.settimeout(1)
        self.own = self.socket.getsockname()[4]
        # A datagram makes the host ask for the sandbox's hardware address.
        with socket.create_connection((BOX, 80), timeout=10):
            pass
        with open("/proc/net/arp") as f:
            self.box = bytes.fromhex(
                re.search(rf"^{re.escape(BOX)} .*?(\w\w(:\w\w){{5}})", f.read(), re.MULTILINE)[1].replace(":", "")
            )

    def send(self, kind, packet):
        try:
            self.socket.send(self.box + self.own + struct.pack(">H", kind) + packet)
        except (BlockingIOError, TimeoutError, OSError):
            pass  # the link is full

    def ip(self, source, protocol, payload, ident=1, fragment=0):
        source, target = socket.inet_aton(source), socket.inet_aton(BOX)
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), ident & 0xFFFF, fragment, 64, protocol, 0)
        sum_ = checksum(head + source + target)
        self.send(IP, head[:10] + struct.pack(">H", sum_) + source + target + payload)

    def tcp(self, source, ports, seq, ack, flags, data=b""):
        head = struct.pack(">HHIIBBHHH", *ports, seq & 0xFFFFFFFF, ack, 5 << 4, flags, 65535, 0, 0)
        pseudo = socket.inet_aton(source) + socket.inet_aton(BOX) + struct.pack(">HH", TCP, 20 + len(data))
        sum_ = checksum(pseudo + head + data)
        self.ip(source, TCP, head[:16] + struct.pack(">H", sum_) + head[18:] + data)

    def claim(self, source):
        """Tells its hardware address before it is asked for."""
        ip = socket.inet_aton(source)
        self.send(ARP, struct.pack(">HHBBH", 1, IP, 6, 4, 2) + self.own + ip + self.box + socket.inet_aton(BOX))
        self.send(ARP, struct.pack(">HHBBH", 1, IP, 6, 4, 1) + self.own + ip + bytes(6) + socket.inet_aton(BOX))

    def connect(self, source, port):
        """The sequence number of the sandbox's answer to a SYN; the connection is half open."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            # The flood may have taken its place in a queue: it is sent again as any host would.
            self.claim(source)
            self.tcp(source, (port, 80), 1000, 0, SYN)
            again = time.monotonic() + 1
            while time.monotonic() < again:
                try:
                    frame = self.socket.recv(65536)
                except TimeoutError:
                    break
                if frame[12:14] == b"\x08\0" and frame[23] == TCP and frame[30:34] == socket.inet_aton(source):
                    ports, seq = struct.unpack(">HH", frame[34:38]), struct.unpack(">I", frame[38:42])[0]
                    if ports == (80, port) and frame[47] & SYN:
                        return seq
        raise AssertionError("the sandbox does not answer")

    # The floods.

    def syn(self):
        for n in range(self.rounds):
            self.tcp(f"10.88.0.{3 + n % 250}", (1024 + n % 60000, 80), n * 7919, 0, SYN)

    def half_open(self):
        for n in range(min(self.rounds // 20, 200)):
            source = f"10.88.0.{3 + n % 100}"
            self.connect(source, 20000 + n)

    def tiny_segments(self):
        """Every other byte of a stream, and never the first; the same bytes again and again."""
        source, port = "10.88.0.200", 30000
        seq = self.connect(source, port)
        self.tcp(source, (port, 80), 1001, seq + 1, ACK)
        for n in range(self.rounds):
            self.tcp(source, (port, 80), 1003 + n * 2 % 40000, seq + 1, ACK | PSH, b"x" * (1 + n % 3))

    def fragments(self):
        """Parts that overlap, of datagrams that are never complete."""
        for n in range(self.rounds):
            at, more = n * 5 % 180, 0x2000
            self.ip(f"10.88.0.{3 + n % 250}", UDP, bytes(8 * (1 + n % 20)), n // 8, more | at)

    def scan(self):
        for n in range(self.rounds):
            self.tcp("10.88.0.201", (4000, n % 65536), 1, 1, SYN if n % 2 else ACK)


def memory():
    """Bytes of the processes of the kernels inside; the tests have a PID namespace of their own."""
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                kernel = f.read().split(b"\0")[:2] == [b"ringfence", b"boot"]
            if kernel:
                with open(f"/proc/{pid}/smaps_rollup") as f:
                    total += int(re.search(r"^Pss: +(\d+)", f.read(), re.MULTILINE)[1]) << 10
    assert total, "there is no sandbox"
    return total


def served(stop, times):
    """Connects, and has bytes sent back, until it is told to end."""
    while not stop.is_set():
        begun = time.monotonic()
        with socket.create_connection((BOX, 80), timeout=30) as s:
            s.sendall(b"alive" * 200)
            got = b""
            while len(got) < 1000:
                piece = s.recv(1000)
                assert piece, "the connection is closed"
                got += piece
        assert got == b"alive" * 200
        times.append(time.monotonic() - begun)


def floods(rf, namespace):
    rounds = int(os.environ.get("FLOOD_ROUNDS", "20000"))
    with namespace(SERVER) as box:
        assert box.line() == "up"
        neighbour = Neighbour(rounds)
        before, failed = memory(), []
        for flood in (neighbour.syn, neighbour.half_open, neighbour.tiny_segments, neighbour.fragments, neighbour.scan):
            stop, times = threading.Event(), []

            def honest(stop=stop, times=times):
                try:
                    served(stop, times)
                except (OSError, AssertionError) as error:
                    failed.append(error)

            thread = threading.Thread(target=honest)
            thread.start()
            try:
                flood()
            finally:
                # One more after the flood.
                count = len(times)
                end = time.monotonic() + 30
                while len(times) <= count and not failed and time.monotonic() < end:
                    time.sleep(0.01)
                stop.set()
                thread.join()
            name = flood.__name__
            assert not failed, f"{name}: {failed[0]!r} after {len(times)} connections"
            assert times and max(times) < 15, f"{name}: {len(times)} connections, the longest took {max(times):.1f} s"
            more = memory() - before
            assert more < MORE, f"{name}: the sandbox holds {more >> 20} MiB more"
            if os.environ.get("FLOOD_SHOW"):
                print(f"{name}: {len(times)} connections, {max(times):.2f} s at most, {more / (1 << 20):.1f} MiB more")


def tests(rf, namespace):
    """The tests by name."""
    return {"test_floods": lambda: floods(rf, namespace)}

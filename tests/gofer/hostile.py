#!/usr/bin/env python3
"""A gofer that keeps to the protocol until a request has "evil" in it: hostile.py ATTACK SOCKET

Without arguments it names its attacks. What it serves otherwise is FILES, by the gofer of objects.
"""

import errno, itertools, os, random, socket, struct, sys, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "docs/examples/gofer"))
from objects import Store  # noqa: E402
from ringfence_gofer import MAX_MESSAGE, Connection, serve  # noqa: E402

FILES = {"good": "good", "evil": "evil" * 2000, "d/good": "good", "d/evil": "evil", "evil.d/good": "good"}
ATTACH, CHANNEL, WALK, STAT, OPEN, OPEN_DIRECTORY, CREATE = range(1, 8)
READ_LINK, LIST = 13, 14
EVIL = b"evil"

ATTACKS = {}


def attack(function):
    """Registers an attack: it gets the connection, the channel, the request, the honest reply and its descriptors."""
    ATTACKS[function.__name__.replace("_", "-")] = function
    return function


def head(reply):
    return reply[:12]


def operation(request):
    return struct.unpack_from("<H", request, 4)[0]


def send(channel, reply, fds=()):
    if fds:
        socket.send_fds(channel, [reply], fds, socket.MSG_NOSIGNAL)
    else:
        channel.send(reply, socket.MSG_NOSIGNAL)


# Messages.


@attack
def garbage(connection, channel, request, reply, fds):
    send(channel, random.randbytes(random.randrange(1, 2000)), fds)


@attack
def garbled_body(connection, channel, request, reply, fds):
    send(channel, head(reply) + random.randbytes(len(reply) - 12), fds)


@attack
def empty_message(connection, channel, request, reply, fds):
    send(channel, b"", fds)


@attack
def too_long(connection, channel, request, reply, fds):
    send(channel, reply + bytes(MAX_MESSAGE + 1 - len(reply)), fds)


@attack
def cut(connection, channel, request, reply, fds):
    send(channel, reply[:-1], fds)


@attack
def extended(connection, channel, request, reply, fds):
    send(channel, reply + b"\0", fds)


@attack
def wrong_sequence(connection, channel, request, reply, fds):
    send(channel, struct.pack("<I", struct.unpack_from("<I", reply)[0] + 1) + reply[4:], fds)


@attack
def wrong_operation(connection, channel, request, reply, fds):
    send(channel, reply[:4] + struct.pack("<H", operation(reply) % 22 + 1) + reply[6:], fds)


@attack
def repeated(connection, channel, request, reply, fds):
    for _ in range(3):
        send(channel, reply, fds)


@attack
def replies_to_come(connection, channel, request, reply, fds):
    """Also the replies to the next requests, whose sequences are easily guessed."""
    send(channel, reply, fds)
    sequence = struct.unpack_from("<I", reply)[0]
    for following in range(sequence + 1, sequence + 20):
        send(channel, struct.pack("<I", following) + reply[4:], fds)


@attack
def flood(connection, channel, request, reply, fds):
    """Messages without end, as fast as the sentry takes them."""
    threading.Thread(target=connection.flood, args=[channel.dup(), reply], daemon=True).start()


@attack
def strange_errors(connection, channel, request, reply, fds):
    """Numbers that mean something to a system call, but nothing to a program."""
    number = next(connection.errors)
    send(channel, reply[:8] + struct.pack("<I", number))


@attack
def impossible_error(connection, channel, request, reply, fds):
    send(channel, reply[:8] + struct.pack("<I", 0xFFFFFFFF))


@attack
def silence(connection, channel, request, reply, fds):
    pass


@attack
def death(connection, channel, request, reply, fds):
    os._exit(0)


@attack
def hang_up(connection, channel, request, reply, fds):
    channel.shutdown(socket.SHUT_RDWR)


# Descriptors.


@attack
def many_descriptors(connection, channel, request, reply, fds):
    with open("/dev/null") as null:
        send(channel, reply, [*fds, *[null.fileno()] * (250 - len(fds))])


@attack
def descriptor_unasked(connection, channel, request, reply, fds):
    with open("/dev/null") as null:
        send(channel, reply, fds or [null.fileno()])


@attack
def no_descriptor(connection, channel, request, reply, fds):
    send(channel, reply)


def instead(path_or_fd):
    """An attack that gives another descriptor than the file's."""

    def act(connection, channel, request, reply, fds):
        if not fds:
            return send(channel, reply)
        fd = path_or_fd() if callable(path_or_fd) else os.open(path_or_fd, os.O_RDONLY | os.O_NONBLOCK)
        send(channel, reply, [fd])
        os.close(fd)

    return act


def pipe():
    r, w = os.pipe()
    os.close(w)
    return r


ATTACKS["a-pipe"] = instead(pipe)
ATTACKS["a-socket"] = instead(lambda: socket.socketpair()[0].detach())
ATTACKS["a-device"] = instead("/dev/zero")
ATTACKS["a-directory"] = instead("/")
ATTACKS["a-place"] = instead(lambda: os.open("/etc/passwd", os.O_PATH))
ATTACKS["a-file-of-proc"] = instead("/proc/self/status")
ATTACKS["write-only"] = instead(lambda: os.open("/dev/shm", os.O_WRONLY | os.O_TMPFILE))


@attack
def a_bad_channel(connection, channel, request, reply, fds):
    """Every channel after the first request is a pipe."""
    connection.pipes = True
    send(channel, reply, fds)


# Attributes.


def attrs_at(reply, kind):
    """Where attributes are in a successful reply."""
    if struct.unpack_from("<I", reply, 8)[0]:
        return []
    if kind == WALK:
        return [12, *range(156, len(reply), 128)]
    return [12] if kind in (STAT, OPEN, CREATE, READ_LINK, 15, 9) else []


def change(offset, form, value):
    """An attack that changes a field of the last attributes of every reply; `value` gets the present one."""

    def act(connection, channel, request, reply, fds):
        reply = bytearray(reply)
        for at in attrs_at(reply, operation(request))[-1:]:
            (old,) = struct.unpack_from(form, reply, at + offset)
            struct.pack_into(form, reply, at + offset, value(old))
        send(channel, bytes(reply), fds)

    return act


numbers = itertools.count(1 << 40)
flip = itertools.cycle([0o100644, 0o040755, 0o120777, 0o010644, 0o020666, 0o060666, 0o140777, 0, 0o170777])
ATTACKS["changing-inodes"] = change(8, "<Q", lambda old: next(numbers))
ATTACKS["changing-devices"] = change(0, "<Q", lambda old: next(numbers))
ATTACKS["one-inode"] = change(8, "<Q", lambda old: 1 << 62)
ATTACKS["inode-0"] = change(8, "<Q", lambda old: 0)
ATTACKS["changing-types"] = change(48, "<I", lambda old: next(flip))
ATTACKS["larger"] = change(32, "<Q", lambda old: (1 << 63) - 1)
ATTACKS["larger-than-possible"] = change(32, "<Q", lambda old: 1 << 63)
ATTACKS["smaller"] = change(32, "<Q", lambda old: 0)
ATTACKS["set-user-id"] = change(48, "<I", lambda old: old | 0o6777)
ATTACKS["bad-time"] = change(72, "<q", lambda old: -1)
ATTACKS["no-links"] = change(16, "<Q", lambda old: 0)
ATTACKS["distant-times"] = change(80, "<q", lambda old: random.choice([-(1 << 63), (1 << 63) - 1]))
ATTACKS["block-size-0"] = change(60, "<I", lambda old: 0)


@attack
def shrinking(connection, channel, request, reply, fds):
    """The file loses its content whenever it was opened, and gets it again: mappings fault, sizes are outdated."""
    send(channel, reply, fds)
    for fd in fds:
        threading.Thread(target=breathe, args=[os.open(f"/proc/self/fd/{fd}", os.O_RDWR)], daemon=True).start()


def breathe(fd):
    for _ in range(500):
        os.ftruncate(fd, 0)
        time.sleep(0.002)
        os.pwrite(fd, b"evil" * 2000, 0)
        time.sleep(0.002)
    os.close(fd)


# Walks.


@attack
def more_components(connection, channel, request, reply, fds):
    if operation(request) == WALK and len(reply) >= 284:
        count = struct.unpack_from("<I", reply, 152)[0] + 3
        reply = reply[:152] + struct.pack("<I", count) + reply[156:] + reply[-128:] * 3
    send(channel, reply, fds)


@attack
def fewer_components(connection, channel, request, reply, fds):
    if operation(request) == WALK and len(reply) >= 284:
        reply = reply[:152] + struct.pack("<I", 0)
    send(channel, reply, fds)


@attack
def handle_of_a_file(connection, channel, request, reply, fds):
    if operation(request) == WALK:
        reply = reply[:140] + struct.pack("<Q", 99) + reply[148:]
    send(channel, reply, fds)


@attack
def handle_and_error(connection, channel, request, reply, fds):
    if operation(request) == WALK:
        reply = reply[:140] + struct.pack("<QI", 1, errno.ENOENT) + reply[152:]
    send(channel, reply, fds)


# Listings. They are asked for by handle, so a directory with "evil" in its name is the trigger.


def listing(entries):
    """An attack on listings: `entries` gets the cookie, and gives the next one and the entries' bytes."""

    def act(connection, channel, request, reply, fds):
        if operation(request) != LIST or not connection.is_evil(request):
            return send(channel, reply, fds)
        following, some = entries(struct.unpack_from("<Q", request, 16)[0])
        send(channel, reply[:8] + bytes(4) + struct.pack("<QI", following, len(some)) + b"".join(some))

    act.on_listings = True
    return act


def entry(name, ino=7, kind=8, has=0):
    return struct.pack("<QBBI", ino, kind, has, len(name)) + name


for attack_name, bad in {
    "slash": b"a/b",
    "root": b"/",
    "dot": b".",
    "dots": b"..",
    "nul": b"a\0b",
    "empty": b"",
    "long": b"n" * 256,
}.items():
    ATTACKS[f"name-{attack_name}"] = listing(lambda cookie, bad=bad: (0, [entry(b"good"), entry(bad)]))
ATTACKS["strange-name"] = listing(lambda cookie: (0, [entry(b"\x1b[2J\xff\n", 7, 99)]))
ATTACKS["same-name"] = listing(lambda cookie: (0, [entry(b"good", n) for n in range(50)]))
ATTACKS["circle"] = listing(lambda cookie: (1, []))
ATTACKS["circle-of-two"] = listing(lambda cookie: (1 + cookie % 2, []))
ATTACKS["endless-empty"] = listing(lambda cookie: (cookie + 1, []))
ATTACKS["endless"] = listing(lambda cookie: (cookie + 1, [entry(b"%020d-%03d" % (cookie, n)) for n in range(1500)]))
ATTACKS["too-many"] = listing(lambda cookie: (0, [entry(b"n%d" % n) for n in range(3000)]) if not cookie else (0, []))


class Hostile(Connection):
    """A connection that attacks. `ATTACK` is the attack's name."""

    ATTACK = None

    def __init__(self, tree):
        super().__init__(tree)
        self.pipes = False
        self.errors = itertools.cycle([4, 512, 513, 514, 516, 85, 11, 115, 133, 134, 4000, 4095])

    def is_evil(self, request):
        """The request is about something evil, by its name or by its handle."""
        if EVIL in request:
            return True
        if operation(request) in (STAT, LIST, OPEN_DIRECTORY) and len(request) >= 16:
            node = self.handles.get(struct.unpack_from("<Q", request, 8)[0])
            return node is not None and node is self.tree.top.get(b"evil.d")
        return False

    def send(self, channel, request, reply, given):
        act = ATTACKS[self.ATTACK]
        if self.pipes and operation(request) == CHANNEL and given:
            return ATTACKS["a-pipe"](self, channel, request, reply, given)
        # Attacks on listings leave the way to the directory alone.
        if self.is_evil(request) and (operation(request) == LIST or not hasattr(act, "on_listings")):
            return act(self, channel, request, reply, given)
        super().send(channel, request, reply, given)

    def flood(self, channel, reply):
        try:
            while True:
                send(channel, reply)
        except OSError:
            pass


def main():
    if len(sys.argv) != 3:
        print("\n".join(ATTACKS))
        return
    Hostile.ATTACK = sys.argv[1]
    if Hostile.ATTACK not in ATTACKS:
        sys.exit(f"no such attack: {Hostile.ATTACK}")
    serve(Store(FILES), sys.argv[2], Hostile)


if __name__ == "__main__":
    main()

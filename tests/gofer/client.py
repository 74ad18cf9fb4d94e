"""A client of the gofer's protocol, written from docs/gofer-protocol.md alone: it shares no code with the gofers."""

import os, socket, struct, time

MAX_MESSAGE = 72 << 10
OPERATIONS = (
    "attach channel walk stat open open_directory create create_unnamed make link unlink rename read_link list "
    "set_attr get_xattr set_xattr list_xattr remove_xattr stat_fs mark close look"
).split()
NUMBER = {name: number for number, name in enumerate(OPERATIONS, 1)}
PLACE, READ, WRITE, READ_WRITE, DIRECTORY = range(5)
MADE_DIRECTORY, FIFO, SOCKET, WHITEOUT, SYMLINK = range(5)
ATTR_FIELDS = "dev ino nlink rdev size blocks mode uid gid blksize".split()


class Closed(Exception):
    """The gofer has closed the channel."""


class Attr:
    """The 128 bytes of attributes."""

    SIZE = 128

    def __init__(self, data):
        *fields, a, an, m, mn, c, cn, has_btime, b, bn = struct.unpack("<6Q4I6qIqI", data)
        self.__dict__.update(zip(ATTR_FIELDS, fields))
        self.atime, self.mtime, self.ctime = ((s, n) for s, n in ((a, an), (m, mn), (c, cn)))
        self.btime = (b, bn) if has_btime else None
        assert all(0 <= n < 1_000_000_000 for n in (an, mn, cn, bn)) and has_btime <= 1 and self.mode <= 0o177777
        assert has_btime or (b, bn) == (0, 0)
        self.key = self.dev, self.ino


def text(data):
    return struct.pack("<I", len(data)) + data


def in_directory(handle):
    return struct.pack("<IQ", 0, handle)


def named(handle, name, key):
    return struct.pack("<IQQQ", 1, handle, *key) + text(name)


DESCRIPTOR = struct.pack("<I", 2)


def changes(mode=None, uid=None, gid=None, size=None, atime=None, mtime=None):
    """What SetAttr is told. A time is "now", or seconds and nanoseconds."""
    bits = sum(1 << n for n, value in enumerate((mode, uid, gid, size)) if value is not None)
    body = b"".join(struct.pack("<I", value) for value in (mode, uid, gid) if value is not None)
    if size is not None:
        body += struct.pack("<Q", size)
    for at, value in ((4, atime), (6, mtime)):
        if value == "now":
            bits |= 1 << at
        elif value is not None:
            bits |= 2 << at
            body += struct.pack("<qq", *value)
    return struct.pack("<I", bits) + body


class Channel:
    """One channel. Every method is an operation; an error number of the gofer's is raised as OSError."""

    def __init__(self, sock):
        self.socket = sock
        self.socket.settimeout(20)
        self.sequence = 0

    def close(self):
        self.socket.close()

    def send(self, message, fds=()):
        socket.send_fds(self.socket, [message], fds) if fds else self.socket.send(message)

    def receive(self):
        """A message and its descriptors."""
        data, fds, flags, _ = socket.recv_fds(self.socket, MAX_MESSAGE + 1, 8)
        if not data:
            raise Closed()
        assert len(data) <= MAX_MESSAGE and not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
        return data, fds

    def call(self, operation, body=b"", fds=(), gives=False):
        """The reply's fields; with `gives`, also the descriptor."""
        self.sequence = (self.sequence + 1) & 0xFFFFFFFF
        number = NUMBER[operation]
        self.send(struct.pack("<IHH", self.sequence, number, 0) + body, fds)
        data, got = self.receive()
        error = struct.unpack_from("<I", data, 8)[0]
        assert data[:8] == struct.pack("<IHH", self.sequence, number, 0), data[:8]
        assert len(got) == (1 if gives and not error else 0), f"{operation} came with {len(got)} descriptors"
        if error:
            assert len(data) == 12 and error <= 4095
            raise OSError(error, os.strerror(error))
        return (data[12:], got[0]) if gives else data[12:]

    def attach(self, version=1):
        """The gofer's version, the root's handle and attributes, and the figures of the file system."""
        data = self.call("attach", struct.pack("<I", version))
        its_version, root = struct.unpack_from("<IQ", data)
        assert len(data) == 12 + 128 + 120 and root
        return its_version, root, Attr(data[12:140]), struct.unpack("<2q5Q2I3q4q", data[140:])

    def channel(self):
        data, fd = self.call("channel", gives=True)
        assert not data
        return Channel(socket.socket(fileno=fd))

    def walk(self, handle, path, keep=False):
        """Attributes of the components, the error number, and a handle or 0."""
        data = self.call("walk", struct.pack("<QI", handle, keep) + text(path))
        self.start = Attr(data[:128])  # of the directory where the walk began
        kept, error, count = struct.unpack_from("<QII", data, 128)
        assert len(data) == 144 + count * 128 and not (error and kept)
        asked = path.count(b"/") + 1
        assert count == asked or count < asked and error, f"{count} of {asked} components and error {error}"
        return [Attr(data[at : at + 128]) for at in range(144, len(data), 128)], error, kept

    def look(self, handle, path):
        """Attributes of what a path leads to."""
        attrs, error, _ = self.walk(handle, path)
        if error:
            raise OSError(error, os.strerror(error))
        return attrs[-1]

    def look_at_all(self, handle, names):
        """Attributes of several names, or error numbers."""
        data = self.call("look", struct.pack("<QII", handle, 0, len(names)) + b"".join(text(n) for n in names))
        assert struct.unpack_from("<I", data)[0] == len(names)
        at, found = 4, []
        for _ in names:
            error = struct.unpack_from("<I", data, at)[0]
            if error:
                found.append(error)
                at += 4
            else:
                assert data[at + 4 : at + 8] == bytes(4)
                found.append(Attr(data[at + 8 : at + 136]))
                at += 136
        assert at == len(data)
        return found

    def keep(self, handle, path):
        """A handle of the directory that a path leads to."""
        _, error, kept = self.walk(handle, path, True)
        if error:
            raise OSError(error, os.strerror(error))
        return kept

    def stat(self, handle):
        return Attr(self.call("stat", struct.pack("<Q", handle)))

    def opened(self, operation, body):
        data, fd = self.call(operation, body, gives=True)
        try:
            return Attr(data), fd
        except Exception:
            os.close(fd)
            raise

    def open(self, handle, name, access=READ):
        return self.opened("open", struct.pack("<QI", handle, access) + text(name))

    def open_directory(self, handle):
        return self.opened("open_directory", struct.pack("<Q", handle))

    def create(self, handle, name, mode=0o644, uid=0, gid=0):
        return self.opened("create", struct.pack("<QIII", handle, mode, uid, gid) + text(name))

    def create_unnamed(self, handle, mode=0o644, uid=0, gid=0):
        return self.opened("create_unnamed", struct.pack("<QIII", handle, mode, uid, gid))

    def make(self, handle, name, kind, link=None, mode=0o755, uid=0, gid=0):
        body = struct.pack("<QIIII", handle, mode, uid, gid, kind) + text(name)
        return Attr(self.call("make", body + (b"" if link is None else text(link))))

    def link(self, handle, name, source, fds=()):
        """`source` is a handle and a name, or nothing when a descriptor is given."""
        tail = struct.pack("<IQ", 0, source[0]) + text(source[1]) if source else struct.pack("<I", 1)
        assert not self.call("link", struct.pack("<Q", handle) + text(name) + tail, fds)

    def unlink(self, handle, name, directory=False):
        assert not self.call("unlink", struct.pack("<QI", handle, directory) + text(name))

    def rename(self, old, old_name, new, new_name, flags=0):
        assert not self.call("rename", struct.pack("<QQI", old, new, flags) + text(old_name) + text(new_name))

    def read_link(self, handle, name):
        data = self.call("read_link", struct.pack("<Q", handle) + text(name))
        assert struct.unpack_from("<I", data, 128)[0] == len(data) - 132
        return Attr(data[:128]), data[132:]

    def list_once(self, handle, cookie, attributes=False):
        """Where to go on, and (inode number, DT_*, name, attributes or None) of some entries."""
        data = self.call("list", struct.pack("<QQI", handle, cookie, attributes))
        following, count = struct.unpack_from("<QI", data)
        at, entries = 12, []
        for _ in range(count):
            ino, kind, has_attr, length = struct.unpack_from("<QBBI", data, at)
            at += 14
            name, attr = data[at : at + length], None
            at += length
            if has_attr:
                attr = Attr(data[at : at + 128])
                at += 128
            entries.append((ino, kind, name, attr))
        assert at == len(data)
        return following, entries

    def list(self, handle, attributes=False):
        entries, cookie = [], 0
        while True:
            cookie, some = self.list_once(handle, cookie, attributes)
            entries += some
            if not cookie:
                return entries

    def names(self, handle):
        return sorted(name for _, _, name, _ in self.list(handle))

    def set_attr(self, target, what, fds=()):
        return Attr(self.call("set_attr", target + what, fds))

    def get_xattr(self, target, name):
        return self.call("get_xattr", target + text(name))

    def stat_fs(self, dir):
        return struct.unpack("<2q5Q2I3q4q", self.call("stat_fs", struct.pack("<Q", dir)))

    def forget(self, *handles):
        assert not self.call("close", struct.pack(f"<I{len(handles)}Q", len(handles), *handles))


def connect(path, seconds=20):
    """The first channel of a new connection, once the gofer listens."""
    end = time.time() + seconds
    while True:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            s.connect(path)
            return Channel(s)
        except (FileNotFoundError, ConnectionRefusedError):
            s.close()
            assert time.time() < end, f"nothing listens on {path}"
            time.sleep(0.01)

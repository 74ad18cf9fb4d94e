"""A gofer in Python: the protocol of docs/gofer-protocol.md for a tree of files that a class describes.

A program makes a subclass of `Tree` and calls `serve(tree, path_of_the_socket)`. The subclass answers with objects of
its own, here called nodes. This module knows connections, channels, handles and the layout of the messages.
"""

import dataclasses
import errno
import itertools
import os
import socket
import stat
import struct
import sys
import threading
import time

VERSION = 1
MAX_MESSAGE = 72 << 10
MAX_CHANNELS = 16
MAX_HANDLES = 16384
MAX_NAME = 255
MAX_PATH = 4095
MAX_COMPONENTS = 256
MAX_TEXT = 4095
MAX_VALUE = 65536
MAX_CLOSE = 1024
MAX_MODE = 0o7777
NANO = 1_000_000_000

# How a file is opened: the field `access` of Open.
PLACE, READ, WRITE, READ_WRITE, DIRECTORY = range(5)
OPEN_FLAGS = [os.O_PATH, os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_DIRECTORY]
# What is made: the field `kind` of Make.
MAKE_DIRECTORY, MAKE_FIFO, MAKE_SOCKET, MAKE_WHITEOUT, MAKE_SYMLINK = range(5)


@dataclasses.dataclass
class Attr:
    """Attributes of an object, as stat(2) has them. Times are in nanoseconds."""

    dev: int
    ino: int
    mode: int
    nlink: int = 1
    uid: int = 0
    gid: int = 0
    rdev: int = 0
    size: int = 0
    blocks: int = 0
    blksize: int = 4096
    atime: int = 0
    mtime: int = 0
    ctime: int = 0

    def pack(self):
        times = [part for t in (self.atime, self.mtime, self.ctime) for part in divmod(t, NANO)]
        return struct.pack(
            "<6Q4I6qIqI",
            *(self.dev, self.ino, self.nlink, self.rdev, self.size, self.blocks),
            *(self.mode, self.uid, self.gid, self.blksize),
            *times,
            *(0, 0, 0),  # no time of creation
        )


@dataclasses.dataclass
class StatFs:
    """Figures of a file system, as statfs(2) has them."""

    type: int = 0x01021994  # that of tmpfs
    bsize: int = 4096
    blocks: int = 0
    bfree: int = 0
    bavail: int = 0
    files: int = 0
    ffree: int = 0
    flags: int = 0

    def pack(self):
        figures = (self.type, self.bsize, self.blocks, self.bfree, self.bavail, self.files, self.ffree)
        return struct.pack("<2q5Q2I3q4q", *figures, 0, 0, MAX_NAME, self.bsize, self.flags, 0, 0, 0, 0)


@dataclasses.dataclass
class Changes:
    """What SetAttr changes; `None` stays. Times are in nanoseconds."""

    mode: int = None
    uid: int = None
    gid: int = None
    size: int = None
    atime: int = None
    mtime: int = None


def fail(number):
    """End a request with an error number."""
    raise OSError(number, os.strerror(number))


def reopen(fd, access):
    """Another descriptor of an open file, with an offset and locks of its own and no more access than asked for."""
    return os.open(f"/proc/self/fd/{fd}", OPEN_FLAGS[access])


class Tree:
    """The files. All methods are called with `lock` held, so one at a time; they raise OSError.

    A node is whatever the subclass likes. The nodes of the directories that the sentry keeps stay referred to.
    """

    def __init__(self):
        self.lock = threading.RLock()

    # To be written by the subclass.

    def root(self):
        """The node of the root directory."""
        raise NotImplementedError

    def attr(self, node):
        """The attributes of a node."""
        raise NotImplementedError

    def find(self, directory, name):
        """The node with a name in a directory. ENOENT."""
        raise NotImplementedError

    def entries(self, directory, cookie):
        """(cookie, name, node) of the entries behind `cookie`, which is 0 for all. No cookie is 0, and cookies rise."""
        raise NotImplementedError

    def open(self, node, access):
        """A new descriptor of a regular file, which the caller closes."""
        raise NotImplementedError

    def statfs(self):
        return StatFs()

    # Optional. A tree without these is read-only.

    def read_link(self, node):
        fail(errno.EINVAL)

    def open_directory(self, node):
        fail(errno.EOPNOTSUPP)

    def by_descriptor(self, fd):
        """The node of a descriptor that the gofer once sent."""
        fail(errno.EOPNOTSUPP)

    def create(self, directory, name, mode, uid, gid):
        """Make a regular file, without a name if `name` is None. Returns the node and a new descriptor."""
        fail(errno.EROFS)

    def make(self, directory, name, kind, text, mode, uid, gid):
        fail(errno.EROFS)

    def link(self, node, directory, name):
        fail(errno.EROFS)

    def unlink(self, directory, name, is_directory):
        fail(errno.EROFS)

    def rename(self, from_directory, from_name, to_directory, to_name, flags):
        fail(errno.EROFS)

    def set_attr(self, node, changes):
        fail(errno.EROFS)


class Malformed(Exception):
    """A request that has not the form of the protocol. The gofer closes its channel."""


def demand(condition):
    if not condition:
        raise Malformed()


class Fields:
    """Takes the fields of a request, one after the other."""

    def __init__(self, message):
        self.message, self.at = message, 0

    def take(self, form):
        try:
            values = struct.unpack_from("<" + form, self.message, self.at)
        except struct.error:
            raise Malformed() from None
        self.at += struct.calcsize("<" + form)
        return values

    def u32(self):
        return self.take("I")[0]

    def u64(self):
        return self.take("Q")[0]

    def upto(self, most):
        value = self.u32()
        demand(value <= most)
        return value

    def flag(self):
        return self.upto(1) == 1

    def bytes(self, most):
        length = self.upto(most)
        demand(self.at + length <= len(self.message))
        self.at += length
        return self.message[self.at - length : self.at]

    def name(self):
        name = self.bytes(MAX_NAME)
        demand(is_name(name))
        return name

    def path(self):
        names = self.bytes(MAX_PATH).split(b"/")
        demand(len(names) <= MAX_COMPONENTS and all(map(is_name, names)))
        return names

    def text(self, most):
        text = self.bytes(most)
        demand(text and b"\0" not in text)
        return text

    def rights(self):
        return self.upto(MAX_MODE), self.u32(), self.u32()

    def time(self):
        seconds, nanoseconds = self.take("qq")
        demand(0 <= nanoseconds < NANO)
        return seconds * NANO + nanoseconds

    def owner(self):
        """A user or group ID, or None: no change."""
        value = self.u32()
        return None if value == 0xFFFFFFFF else value

    def changes(self):
        given, changes = self.upto(0xFF), Changes()
        if given & 1:
            changes.mode = self.upto(MAX_MODE)
        if given & 2:
            changes.uid = self.owner()
        if given & 4:
            changes.gid = self.owner()
        if given & 8:
            changes.size = self.u64()
            demand(changes.size < 1 << 63)
        for name, how in (("atime", given >> 4 & 3), ("mtime", given >> 6)):
            demand(how <= 2)
            if how:
                setattr(changes, name, time.time_ns() if how == 1 else self.time())
        return changes

    def end(self):
        demand(self.at == len(self.message))


def is_name(name):
    return 1 <= len(name) <= MAX_NAME and name not in (b".", b"..") and not (b"/" in name or b"\0" in name)


def packed(data):
    """A byte string: its length, then its bytes."""
    return struct.pack("<I", len(data)) + data


class Connection:
    """One connection: the handles, which all its channels share. A channel is a thread."""

    def __init__(self, tree):
        self.tree = tree
        self.numbers = itertools.count(1)
        self.handles = {}
        self.channels = 1

    def serve(self, channel):
        """Answer the requests of a channel until the other side closes it."""
        try:
            with channel:
                while self.exchange(channel):
                    pass
        except ConnectionError:
            pass
        finally:
            with self.tree.lock:
                self.channels -= 1

    def exchange(self, channel):
        # One byte more, so that a message that is too long is seen.
        message, descriptors, flags, _ = socket.recv_fds(channel, MAX_MESSAGE + 1, 4, socket.MSG_CMSG_CLOEXEC)
        try:
            if not message:
                return False
            demand(len(message) <= MAX_MESSAGE and not flags & socket.MSG_CTRUNC and len(descriptors) <= 1)
            fields = Fields(message)
            sequence, operation, _processor = fields.take("IHH")
            demand(operation in OPERATIONS)
            # The descriptor of the reply, if there is one.
            given = []
            try:
                with self.tree.lock:
                    body = OPERATIONS[operation](self, fields, descriptors, given)
                reply = struct.pack("<IHHI", sequence, operation, 0, 0) + body
            except OSError as error:
                reply = struct.pack("<IHHI", sequence, operation, 0, error.errno or errno.EIO)
            try:
                self.send(channel, message, reply, given)
            finally:
                close_all(given)
            return True
        except Malformed:
            print("a request is malformed: its channel is closed", file=sys.stderr)
            return False
        finally:
            close_all(descriptors)

    def send(self, channel, request, reply, given):
        if given:
            socket.send_fds(channel, [reply], given, socket.MSG_NOSIGNAL)
        else:
            channel.send(reply, socket.MSG_NOSIGNAL)

    # Handles, and what else requests name.

    def keep(self, node):
        if len(self.handles) >= MAX_HANDLES:
            fail(errno.EMFILE)
        handle = next(self.numbers)
        self.handles[handle] = node
        return handle

    def directory(self, handle):
        if handle not in self.handles:
            fail(errno.EBADF)
        return self.handles[handle]

    def entry(self, handle, name):
        return self.tree.find(self.directory(handle), name)

    def target(self, wanted, descriptors):
        """The node that `wanted` describes."""
        kind, handle, name, key = wanted
        if kind == 0:
            return self.directory(handle)
        if kind == 1:
            node = self.entry(handle, name)
            attr = self.tree.attr(node)
            if (attr.dev, attr.ino) != key:
                fail(errno.ESTALE)
            return node
        return self.tree.by_descriptor(one(descriptors))

    def is_directory(self, node):
        return stat.S_ISDIR(self.tree.attr(node).mode)

    # The operations. Each takes all fields first: a malformed request has no effect.

    def attach(self, fields, descriptors, given):
        version = fields.u32()
        fields.end()
        if version != VERSION:
            fail(errno.EPROTONOSUPPORT)
        root = self.tree.root()
        reply = struct.pack("<IQ", VERSION, self.keep(root))
        return reply + self.tree.attr(root).pack() + self.tree.statfs().pack()

    def channel(self, fields, descriptors, given):
        fields.end()
        if self.channels >= MAX_CHANNELS:
            fail(errno.EMFILE)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given.append(theirs.detach())
        self.channels += 1
        threading.Thread(target=self.serve, args=[ours], daemon=True).start()
        return b""

    def walk(self, fields, descriptors, given):
        at, keep, path = fields.u64(), fields.flag(), fields.path()
        fields.end()
        node, attrs, handle, number = self.directory(at), [], 0, 0
        own = self.tree.attr(node).pack()
        try:
            for name in path:
                # The walk has come to a file or a link, and more is to follow.
                if not self.is_directory(node):
                    fail(errno.ENOTDIR)
                node = self.tree.find(node, name)
                attrs.append(self.tree.attr(node).pack())
            if keep and self.is_directory(node):
                handle = self.keep(node)
        except OSError as error:
            number = error.errno
        return own + struct.pack("<QII", handle, number, len(attrs)) + b"".join(attrs)

    def look(self, fields, descriptors, given):
        """The attributes of several names, without descriptors: a memfd tells other attributes than the object has."""
        handle, _places, count = fields.u64(), fields.flag(), fields.u32()
        demand(1 <= count <= 128)
        names = [fields.name() for _ in range(count)]
        fields.end()
        directory, found = self.directory(handle), []
        for name in names:
            try:
                found.append(struct.pack("<II", 0, 0) + self.tree.attr(self.tree.find(directory, name)).pack())
            except OSError as error:
                found.append(struct.pack("<I", error.errno))
        return struct.pack("<I", count) + b"".join(found)

    def stat(self, fields, descriptors, given):
        handle = fields.u64()
        fields.end()
        return self.tree.attr(self.directory(handle)).pack()

    def open(self, fields, descriptors, given):
        handle, access, name = fields.u64(), fields.upto(DIRECTORY), fields.name()
        fields.end()
        node = self.entry(handle, name)
        kind = stat.S_IFMT(self.tree.attr(node).mode)
        if kind == stat.S_IFDIR and access in (READ, WRITE, READ_WRITE):
            fail(errno.EISDIR)
        if kind != stat.S_IFDIR and access == DIRECTORY:
            fail(errno.ENOTDIR)
        if kind == stat.S_IFDIR:
            given.append(self.tree.open_directory(node))
        elif kind == stat.S_IFREG:
            given.append(self.tree.open(node, access))
        else:
            fail(errno.EOPNOTSUPP if access == PLACE else errno.ELOOP if kind == stat.S_IFLNK else errno.ENXIO)
        return self.tree.attr(node).pack()

    def open_directory(self, fields, descriptors, given):
        handle = fields.u64()
        fields.end()
        node = self.directory(handle)
        given.append(self.tree.open_directory(node))
        return self.tree.attr(node).pack()

    def create(self, fields, descriptors, given):
        handle, rights, name = fields.u64(), fields.rights(), fields.name()
        fields.end()
        node, fd = self.tree.create(self.directory(handle), name, *rights)
        given.append(fd)
        return self.tree.attr(node).pack()

    def create_unnamed(self, fields, descriptors, given):
        handle, rights = fields.u64(), fields.rights()
        fields.end()
        node, fd = self.tree.create(self.directory(handle), None, *rights)
        given.append(fd)
        return self.tree.attr(node).pack()

    def make(self, fields, descriptors, given):
        handle, rights, kind, name = fields.u64(), fields.rights(), fields.upto(MAKE_SYMLINK), fields.name()
        text = fields.text(MAX_TEXT) if kind == MAKE_SYMLINK else b""
        fields.end()
        return self.tree.attr(self.tree.make(self.directory(handle), name, kind, text, *rights)).pack()

    def link(self, fields, descriptors, given):
        handle, name, by_descriptor = fields.u64(), fields.name(), fields.flag()
        source = None if by_descriptor else (fields.u64(), fields.name())
        fields.end()
        node = self.entry(*source) if source else self.tree.by_descriptor(one(descriptors))
        self.tree.link(node, self.directory(handle), name)
        return b""

    def unlink(self, fields, descriptors, given):
        handle, is_directory, name = fields.u64(), fields.flag(), fields.name()
        fields.end()
        self.tree.unlink(self.directory(handle), name, is_directory)
        return b""

    def rename(self, fields, descriptors, given):
        old, new, flags, old_name, new_name = fields.u64(), fields.u64(), fields.u32(), fields.name(), fields.name()
        fields.end()
        self.tree.rename(self.directory(old), old_name, self.directory(new), new_name, flags)
        return b""

    def read_link(self, fields, descriptors, given):
        handle, name = fields.u64(), fields.name()
        fields.end()
        node = self.entry(handle, name)
        return self.tree.attr(node).pack() + packed(self.tree.read_link(node))

    def list(self, fields, descriptors, given):
        handle, last, with_attributes = fields.u64(), fields.u64(), fields.flag()
        fields.end()
        room, entries, following = MAX_MESSAGE - 24, [], 0
        for cookie, name, node in self.tree.entries(self.directory(handle), last):
            attr = self.tree.attr(node)
            # DT_* of readdir(3) is the file type of the mode.
            entry = struct.pack("<QBB", attr.ino, attr.mode >> 12, with_attributes) + packed(name)
            entry += attr.pack() if with_attributes else b""
            if len(entry) > room:
                following = last
                break
            room -= len(entry)
            entries.append(entry)
            last = cookie
        return struct.pack("<QI", following, len(entries)) + b"".join(entries)

    def set_attr(self, fields, descriptors, given):
        wanted, changes = fields_of_target(fields), fields.changes()
        fields.end()
        node = self.target(wanted, descriptors)
        self.tree.set_attr(node, changes)
        return self.tree.attr(node).pack()

    def no_xattr(self, fields, descriptors, given):
        """This module has no extended attributes."""
        fail(errno.EOPNOTSUPP)

    def statfs(self, fields, descriptors, given):
        self.directory(fields.u64())
        fields.end()
        return self.tree.statfs().pack()

    def mark(self, fields, descriptors, given):
        """A memfd cannot be watched in a useful way."""
        fail(errno.EOPNOTSUPP)

    def close(self, fields, descriptors, given):
        handles = [fields.u64() for _ in range(fields.upto(MAX_CLOSE))]
        fields.end()
        for handle in handles:
            self.handles.pop(handle, None)
        return b""


def fields_of_target(fields):
    """An object by its directory's handle, by its name (with device and inode number), or by the descriptor."""
    kind = fields.upto(2)
    handle = fields.u64() if kind != 2 else None
    key = fields.take("QQ") if kind == 1 else None
    name = fields.name() if kind == 1 else None
    return kind, handle, name, key


def one(descriptors):
    if not descriptors:
        fail(errno.EBADF)
    return descriptors[0]


def close_all(descriptors):
    for fd in descriptors:
        os.close(fd)


OPERATIONS = {
    1: Connection.attach,
    2: Connection.channel,
    3: Connection.walk,
    4: Connection.stat,
    5: Connection.open,
    6: Connection.open_directory,
    7: Connection.create,
    8: Connection.create_unnamed,
    9: Connection.make,
    10: Connection.link,
    11: Connection.unlink,
    12: Connection.rename,
    13: Connection.read_link,
    14: Connection.list,
    15: Connection.set_attr,
    16: Connection.no_xattr,  # GetXattr
    17: Connection.no_xattr,  # SetXattr
    18: Connection.no_xattr,  # ListXattr
    19: Connection.no_xattr,  # RemoveXattr
    20: Connection.statfs,
    21: Connection.mark,
    22: Connection.close,
    23: Connection.look,
}


def serve(tree, path, connection=Connection):
    """Listen on a Unix socket and serve every connection to it, for ever."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.path.exists(path) and stat.S_ISSOCK(os.lstat(path).st_mode):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            if probe.connect_ex(path) == 0:
                sys.exit(f"{path}: another gofer listens there")
        os.unlink(path)
    # Only processes of this user may connect.
    before = os.umask(0o077)
    listener.bind(path)
    os.umask(before)
    listener.listen()
    while True:
        channel, _ = listener.accept()
        threading.Thread(target=connection(tree).serve, args=[channel], daemon=True).start()

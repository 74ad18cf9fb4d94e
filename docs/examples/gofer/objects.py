#!/usr/bin/env python3
"""A gofer that serves a store of objects in memory, as a bucket of S3 looks: the key a/b/c is the file c in a/b.

objects.py SOCKET [OBJECTS]     OBJECTS is JSON, or the name of a file with JSON: {"a/b": "text", ...}
ringfence --gofer=unix:SOCKET do ...

An object is a memfd. The sentry gets descriptors of it and reads and writes through them. The gofer is asked about
names and attributes only. The attributes of an object are those of its memfd. So they are right at any time, also for
an object that has lost its name and is still open. Only a gofer that runs as root can give objects to other users.
"""

import errno
import itertools
import json
import os
import resource
import stat
import sys
import time
import weakref

from ringfence_gofer import MAKE_DIRECTORY, READ_WRITE, Attr, StatFs, Tree, fail, is_name, reopen, serve

RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
ANY_ID = 0xFFFFFFFF
# Inode numbers of directories. Those of memfds are far smaller.
FIRST_DIRECTORY = 1 << 62


class Object:
    """A regular file."""

    def __init__(self, fd):
        self.fd = fd
        self.links = 0

    def __del__(self):
        os.close(self.fd)

    def change(self, mode=None, uid=None, gid=None, size=None, atime=None, mtime=None):
        if size is not None:
            os.ftruncate(self.fd, size)
        now = os.fstat(self.fd)
        if uid not in (None, now.st_uid) or gid not in (None, now.st_gid):
            # EPERM unless this gofer runs as root.
            os.fchown(self.fd, -1 if uid is None else uid, -1 if gid is None else gid)
        if mode is not None:
            os.fchmod(self.fd, mode)
        if (atime, mtime) != (None, None):
            times = (now.st_atime_ns if atime is None else atime, now.st_mtime_ns if mtime is None else mtime)
            os.utime(self.fd, ns=times)

    def attr(self):
        s = os.fstat(self.fd)
        rest = {"uid": s.st_uid, "gid": s.st_gid, "size": s.st_size, "blocks": s.st_blocks}
        times = {"atime": s.st_atime_ns, "mtime": s.st_mtime_ns, "ctime": s.st_ctime_ns}
        return Attr(s.st_dev, s.st_ino, s.st_mode, self.links, **rest, **times)


class Directory:
    """A directory, which a store of objects knows as the beginning of keys."""

    numbers = itertools.count(FIRST_DIRECTORY)

    def __init__(self, device, mode=0o755, uid=0, gid=0):
        self.device, self.ino = device, next(self.numbers)
        self.mode, self.uid, self.gid = mode, uid, gid
        self.atime = self.mtime = self.ctime = time.time_ns()
        self.parent = None  # of the root, and of a directory that was removed
        self.is_removed = False
        # name -> (cookie, node). Cookies rise, so that a listing in pieces shows every entry that stays exactly once.
        self.children = {}
        self.cookies = itertools.count(1)

    def change(self, mode=None, uid=None, gid=None, size=None, atime=None, mtime=None):
        if size is not None:
            fail(errno.EISDIR)
        for name, value in {"mode": mode, "uid": uid, "gid": gid, "atime": atime, "mtime": mtime}.items():
            if value is not None:
                setattr(self, name, value)
        self.ctime = time.time_ns()

    def attr(self):
        rest = {"uid": self.uid, "gid": self.gid, "atime": self.atime, "mtime": self.mtime, "ctime": self.ctime}
        return Attr(self.device, self.ino, stat.S_IFDIR | self.mode, 0 if self.is_removed else 1, **rest)

    def get(self, name):
        return self.children.get(name, (0, None))[1]

    def put(self, name, node):
        if self.is_removed:
            fail(errno.ENOENT)
        if isinstance(node, Directory):
            node.parent = self
        else:
            node.links += 1
        self.children[name] = (next(self.cookies), node)
        self.touch()

    def take(self, name):
        _, node = self.children.pop(name)
        if isinstance(node, Directory):
            node.parent = None
        else:
            node.links -= 1
        self.touch()
        return node

    def touch(self):
        self.mtime = self.ctime = time.time_ns()


class Store(Tree):
    """The tree."""

    def __init__(self, objects):
        super().__init__()
        self.objects = weakref.WeakValueDictionary()  # by inode number
        self.made = set()  # the inode numbers of all objects that there ever were
        # All memfds have one device number. Directories get it, too.
        self.device = self.new_object().attr().dev
        self.top = Directory(self.device)
        for key, text in objects.items():
            self.fill(key, text)

    def fill(self, key, text):
        """Make an object of the start, with the directories of its key."""
        *path, name = os.fsencode(key).split(b"/")
        if not all(map(is_name, [*path, name])):
            sys.exit(f"{key!r}: a key is names with one slash between them; none is . or .. or has more than 255 bytes")
        at = self.top
        for part in path:
            if at.get(part) is None:
                at.put(part, Directory(self.device))
            at = at.get(part)
            if not isinstance(at, Directory):
                sys.exit(f"{key!r}: a part of the key is an object itself")
        if at.get(name) is not None:
            sys.exit(f"{key!r}: this is a directory of other keys")
        node = self.new_object()
        node.change(mode=0o644)
        with open(node.fd, "wb", closefd=False) as file:
            file.write(text.encode())
        at.put(name, node)

    def new_object(self):
        node = Object(os.memfd_create("object"))
        self.objects[node.attr().ino] = node
        self.made.add(node.attr().ino)
        return node

    # What the gofer answers.

    def root(self):
        return self.top

    def attr(self, node):
        return node.attr()

    def find(self, directory, name):
        return directory.get(name) or fail(errno.ENOENT)

    def entries(self, directory, cookie):
        for name, (place, node) in list(directory.children.items()):
            if place > cookie:
                yield place, name, node

    def statfs(self):
        s = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else os.statvfs("/")
        return StatFs(blocks=s.f_blocks, bfree=s.f_bfree, bavail=s.f_bavail, files=s.f_files, ffree=s.f_ffree)

    def open(self, node, access):
        return reopen(node.fd, access)

    def by_descriptor(self, fd):
        """An object by a descriptor, which may be all that is left of it. Other files are refused."""
        s = os.fstat(fd)
        if not stat.S_ISREG(s.st_mode) or s.st_dev != self.device or s.st_ino not in self.made:
            fail(errno.EINVAL)
        return self.objects.get(s.st_ino) or Object(reopen(fd, READ_WRITE))

    def create(self, directory, name, mode, uid, gid):
        if name is not None and directory.get(name):
            fail(errno.EEXIST)
        node = self.new_object()
        # Before the mode is set: it need not allow what the creator of a file may do.
        fd = reopen(node.fd, READ_WRITE)
        try:
            try:
                node.change(uid=uid, gid=gid)
            except PermissionError:
                pass  # This gofer does not run as root: all objects are its user's.
            node.change(mode=mode)
            if name is not None:
                directory.put(name, node)
        except OSError:
            os.close(fd)
            raise
        return node, fd

    def make(self, directory, name, kind, text, mode, uid, gid):
        if directory.get(name):
            fail(errno.EEXIST)
        if kind != MAKE_DIRECTORY:
            fail(errno.EPERM)  # As file systems without links and FIFOs answer.
        uid, gid = (0 if i == ANY_ID else i for i in (uid, gid))
        node = Directory(self.device, mode, uid, gid)
        directory.put(name, node)
        return node

    def link(self, node, directory, name):
        if directory.get(name):
            fail(errno.EEXIST)
        # An object has one key. One that was made without (O_TMPFILE) may get it now.
        if isinstance(node, Directory) or node.links:
            fail(errno.EPERM)
        directory.put(name, node)
        self.objects[node.attr().ino] = node

    def unlink(self, directory, name, is_directory):
        node = self.find(directory, name)
        if isinstance(node, Directory) != is_directory:
            fail(errno.ENOTDIR if is_directory else errno.EISDIR)
        if is_directory and node.children:
            fail(errno.ENOTEMPTY)
        directory.take(name)
        if is_directory:
            node.is_removed = True

    def rename(self, from_directory, from_name, to_directory, to_name, flags):
        if flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE) or flags == RENAME_NOREPLACE | RENAME_EXCHANGE:
            fail(errno.EINVAL)
        node = self.find(from_directory, from_name)
        other = to_directory.get(to_name)
        if flags == RENAME_NOREPLACE and other:
            fail(errno.EEXIST)
        if flags == RENAME_EXCHANGE and not other:
            fail(errno.ENOENT)
        if to_directory.is_removed:
            fail(errno.ENOENT)
        # No directory moves into itself.
        if is_in(to_directory, node) or flags == RENAME_EXCHANGE and is_in(from_directory, other):
            fail(errno.EINVAL)
        if node is other:
            return
        if flags != RENAME_EXCHANGE and is_in(from_directory, other):
            fail(errno.ENOTEMPTY)
        if other and flags != RENAME_EXCHANGE:
            if isinstance(other, Directory) and not isinstance(node, Directory):
                fail(errno.EISDIR)
            if isinstance(node, Directory) and not isinstance(other, Directory):
                fail(errno.ENOTDIR)
            self.unlink(to_directory, to_name, isinstance(other, Directory))
        from_directory.take(from_name)
        if flags == RENAME_EXCHANGE:
            to_directory.take(to_name)
            from_directory.put(from_name, other)
        to_directory.put(to_name, node)

    def set_attr(self, node, changes):
        node.change(**vars(changes))


def is_in(directory, ancestor):
    """Whether a directory is another one or below it."""
    if ancestor is None:
        return False
    while directory is not None and directory is not ancestor:
        directory = directory.parent
    return directory is not None


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    objects = {}
    if len(sys.argv) == 3:
        text = sys.argv[2]
        if not text.lstrip().startswith("{"):
            with open(text) as file:
                text = file.read()
        objects = json.loads(text)
    # Each object is an open descriptor.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    serve(Store(objects), sys.argv[1])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A gofer that serves a tar or zip archive, read-only.

archive.py ARCHIVE SOCKET
ringfence --gofer=unix:SOCKET do ...

The archive is read once for its names. The content of a file is unpacked into a memfd when the file is opened. The
memfd is sealed, so that a process that has a descriptor of it cannot change what others read.
"""

import calendar
import collections
import contextlib
import errno
import fcntl
import os
import shutil
import stat
import sys
import tarfile
import zipfile

from ringfence_gofer import NANO, PLACE, READ, Attr, StatFs, Tree, fail, reopen, serve

# Unpacked files that are kept for the next open(2), in bytes.
KEEP = 256 << 20
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class Node:
    """A file, directory or symbolic link of the archive."""

    def __init__(self, ino, mode, uid=0, gid=0, mtime=0, size=0, member=None, text=b""):
        self.ino, self.mode, self.uid, self.gid = ino, mode, uid, gid
        self.mtime = mtime  # in seconds
        self.size = size
        self.member = member  # what the archive's module calls a file
        self.text = text  # of a symbolic link
        self.nlink = 0  # how many names it has
        self.children = {}  # of a directory: name -> node

    def is_directory(self):
        return stat.S_ISDIR(self.mode)


class Archive(Tree):
    """The tree. It does not change after it was made."""

    def __init__(self, path):
        super().__init__()
        self.count = 0
        # A device number that no file system of the host has.
        self.device = os.makedev(4095, os.getpid() & 0xFFFFF)
        self.top = self.node(stat.S_IFDIR | 0o755)
        self.top.nlink = 1
        self.unpacked = collections.OrderedDict()  # node -> memfd, the one used last at the end
        self.kept = 0  # bytes in it
        if zipfile.is_zipfile(path):
            self.archive = zipfile.ZipFile(path)
            self.read_zip()
            self.open_member = self.archive.open
        else:
            self.archive = tarfile.open(path)  # noqa: SIM115
            self.read_tar()
            self.open_member = self.archive.extractfile

    def node(self, *args, **rest):
        self.count += 1
        return Node(self.count, *args, **rest)

    # What the gofer answers.

    def root(self):
        return self.top

    def attr(self, node):
        times = dict.fromkeys(("atime", "mtime", "ctime"), node.mtime * NANO)
        blocks = (node.size + 511) // 512
        owner = {"uid": node.uid, "gid": node.gid}
        return Attr(self.device, node.ino, node.mode, node.nlink, size=node.size, blocks=blocks, **owner, **times)

    def find(self, directory, name):
        return directory.children.get(name) or fail(errno.ENOENT)

    def entries(self, directory, cookie):
        # The order never changes, so that the place of an entry can be its cookie.
        for place, (name, node) in enumerate(directory.children.items(), 1):
            if place > cookie:
                yield place, name, node

    def read_link(self, node):
        return node.text or fail(errno.EINVAL)

    def statfs(self):
        st_rdonly = 1
        size = sum(os.fstat(fd).st_blocks for fd in self.unpacked.values()) // 8
        return StatFs(blocks=size, files=self.count, flags=st_rdonly)

    def open(self, node, access):
        if access not in (PLACE, READ):
            fail(errno.EROFS)
        if node not in self.unpacked:
            self.unpack(node)
        self.unpacked.move_to_end(node)
        return reopen(self.unpacked[node], access)

    def unpack(self, node):
        """Unpack a file, and forget those that were opened longest ago."""
        while self.unpacked and self.kept + node.size > KEEP:
            old, fd = self.unpacked.popitem(last=False)
            os.close(fd)
            self.kept -= old.size
        fd = os.memfd_create("archive", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with self.open_member(node.member) as source, open(fd, "wb", closefd=False) as target:
                shutil.copyfileobj(source, target)
            if os.fstat(fd).st_size != node.size:
                fail(errno.EIO)  # The archive lied about the size.
            self.dress(fd, node)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, RuntimeError) as error:
            os.close(fd)
            raise OSError(errno.EIO, str(error)) from None
        except OSError:
            os.close(fd)
            raise
        self.unpacked[node] = fd
        self.kept += node.size

    def dress(self, fd, node):
        """Give a memfd the attributes of its file, for callers that look at the descriptor alone."""
        with contextlib.suppress(PermissionError):  # unless this gofer runs as root
            os.fchown(fd, node.uid, node.gid)
        os.fchmod(fd, stat.S_IMODE(node.mode))
        os.utime(fd, ns=(node.mtime * NANO, node.mtime * NANO))

    # Reading the archive.

    def read_tar(self):
        kinds = {tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK, tarfile.FIFOTYPE: stat.S_IFIFO}
        for member in self.archive:
            name = os.fsencode(member.name)
            if member.islnk():
                # A hard link is one more name of an earlier member.
                node = self.look_up(os.fsencode(member.linkname))
                if node and not node.is_directory():
                    self.place(name, node)
                continue
            kind = stat.S_IFREG if member.isreg() else kinds.get(member.type)
            if kind is None:
                continue  # A device, which a gofer must not serve.
            rest = {"uid": member.uid, "gid": member.gid, "mtime": int(member.mtime)}
            if kind == stat.S_IFREG:
                rest |= {"size": member.size, "member": member}
            elif kind == stat.S_IFLNK:
                text = os.fsencode(member.linkname)
                rest |= {"size": len(text), "text": text}
            mode = 0o777 if kind == stat.S_IFLNK else member.mode & 0o777
            self.place(name, self.node(kind | mode, **rest))

    def read_zip(self):
        for info in self.archive.infolist():
            mode = info.external_attr >> 16  # 0 if the archive was not made on Unix
            mtime = calendar.timegm((*info.date_time, 0, 0, 0))
            if info.is_dir():
                node = self.node(stat.S_IFDIR | (mode & 0o777 or 0o755), mtime=mtime)
            elif stat.S_ISLNK(mode):
                text = self.archive.read(info)
                node = self.node(stat.S_IFLNK | 0o777, mtime=mtime, size=len(text), text=text)
            else:
                rest = {"mtime": mtime, "size": info.file_size, "member": info}
                node = self.node(stat.S_IFREG | (mode & 0o777 or 0o644), **rest)
            self.place(os.fsencode(info.filename), node)

    def place(self, path, node):
        """Give a node a name. Directories that are missing are made. A later member replaces an earlier one."""
        names = names_of(path)
        if names == []:
            self.become(self.top, node)
        if not names:
            return
        at = self.top
        for name in names[:-1]:
            if name not in at.children or not at.children[name].is_directory():
                self.put(at, name, self.node(stat.S_IFDIR | 0o755, mtime=node.mtime))
            at = at.children[name]
        before = at.children.get(names[-1])
        if before and before.is_directory() and node.is_directory():
            self.become(before, node)
        else:
            self.put(at, names[-1], node)

    def put(self, directory, name, node):
        node.nlink += 1
        if name in directory.children:
            directory.children[name].nlink -= 1
        directory.children[name] = node

    def become(self, directory, node):
        """A directory was there already: its members came before itself."""
        if node.is_directory():
            directory.mode, directory.mtime = node.mode, node.mtime
            directory.uid, directory.gid = node.uid, node.gid

    def look_up(self, path):
        node = self.top
        for name in names_of(path) or []:
            node = node and node.children.get(name)
        return node


def names_of(path):
    """The names in a path, or `None` where the path leads out of the archive or has a name that Linux refuses."""
    names = [name for name in path.split(b"/") if name not in (b"", b".")]
    return None if any(name == b".." or len(name) > 255 or b"\0" in name for name in names) else names


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    serve(Archive(sys.argv[1]), sys.argv[2])

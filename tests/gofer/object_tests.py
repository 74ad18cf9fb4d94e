"""The gofer of objects: what can be done with a directory that is written."""

import fcntl, json, mmap, os

from checks import check, refuses
from client import DESCRIPTOR, FIFO, MADE_DIRECTORY, READ, READ_WRITE, SYMLINK, WRITE, changes, in_directory, named
from gofers import objects

NOREPLACE, EXCHANGE = 1, 2


def content(channel, handle, name):
    _, fd = channel.open(handle, name)
    with open(fd, "rb") as file:
        return file.read()


class Objects:
    def __init__(self, rf):
        self.rf = rf

    def test_keys(self):
        """Keys with slashes are directories; JSON may be a file."""
        file = self.rf.dir("objects") + "/objects.json"
        with open(file, "w") as f:
            json.dump({"a/b/c": "text", "a/b/d": "ü", "e": ""}, f)
        with objects(self.rf, file) as gofer:
            channel, root = gofer.attach()
            check(channel.names(root), [b"a", b"e"])
            b = channel.keep(root, b"a/b")
            check(channel.names(b), [b"c", b"d"])
            check((content(channel, b, b"c"), content(channel, b, b"d")), (b"text", "ü".encode()))

    def test_bad_keys(self):
        for key in ("", "/a", "a/", "a//b", "a/../b"):
            with objects(self.rf, json.dumps({key: "x"})) as gofer:
                check(gofer.process.wait(20), 1)
                assert "a key is names" in gofer.output(), gofer.output()
        with objects(self.rf, '{"a": "x", "a/b": "y"}') as gofer:
            check(gofer.process.wait(20), 1)

    def test_data(self):
        """Data move through descriptors, which all see the same object, at once."""
        with objects(self.rf) as gofer:
            channel, root = gofer.attach()
            attr, fd = channel.create(root, b"f", 0o640, 0, 0)
            check((attr.mode, attr.size, attr.nlink), (0o100640, 0, 1))
            other, other_root = gofer.attach()
            its, other_fd = other.open(other_root, b"f", READ_WRITE)
            check(its.key, attr.key)
            os.pwrite(fd, b"0123456789", 0)
            check(os.pread(other_fd, 20, 0), b"0123456789")
            check(other.look(other_root, b"f").size, 10)
            with mmap.mmap(other_fd, 10) as shared:
                shared[0:1] = b"x"
            check(os.pread(fd, 2, 0), b"x1")
            # Descriptors allow what was asked for, and have offsets and locks of their own.
            _, reader = other.open(other_root, b"f", READ)
            with refuses("EBADF"):
                os.pwrite(reader, b"y", 0)
            _, writer = other.open(other_root, b"f", WRITE)
            with refuses("EBADF"):
                os.pread(writer, 1, 0)
            fcntl.flock(reader, fcntl.LOCK_EX)
            with refuses("EAGAIN"):
                fcntl.flock(other_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for f in (fd, other_fd, reader, writer):
                os.close(f)

    def test_attributes(self):
        with objects(self.rf, '{"f": "0123456789", "d/x": ""}') as gofer:
            channel, root = gofer.attach()
            key = channel.look(root, b"f").key
            f = named(root, b"f", key)
            check(channel.set_attr(f, changes(size=4)).size, 4)
            check(content(channel, root, b"f"), b"0123")
            check(channel.set_attr(f, changes(size=6)).size, 6)
            check(content(channel, root, b"f"), b"0123\0\0")
            after = channel.set_attr(f, changes(mode=0o4711, mtime=(5, 6), atime=(7, 8)))
            check((after.mode, after.mtime, after.atime), (0o104711, (5, 6), (7, 8)))
            assert channel.set_attr(f, changes(mtime="now")).mtime > (1_600_000_000, 0)
            check(channel.look(root, b"f").atime, (7, 8))
            if os.geteuid() == 0:
                after = channel.set_attr(f, changes(uid=5, gid=6))
                check((after.uid, after.gid), (5, 6))
            d = channel.keep(root, b"d")
            after = channel.set_attr(in_directory(d), changes(mode=0o1777, mtime=(-5, 6)))
            check((after.mode, after.mtime), (0o041777, (-5, 6)))
            with refuses("EISDIR"):
                channel.set_attr(in_directory(d), changes(size=1))

    def test_names(self):
        """Making and removing."""
        with objects(self.rf, '{"f": "", "d/x": ""}') as gofer:
            channel, root = gofer.attach()
            with refuses("EEXIST"):
                channel.create(root, b"f")
            with refuses("EEXIST"):
                channel.make(root, b"d", MADE_DIRECTORY)
            with refuses("EPERM"):
                channel.make(root, b"l", SYMLINK, b"f")
            with refuses("EPERM"):
                channel.make(root, b"p", FIFO)
            with refuses("EPERM"):
                channel.link(root, b"g", (root, b"f"))
            made = channel.make(root, b"new", MADE_DIRECTORY, mode=0o700, uid=1, gid=2)
            check((made.mode, made.uid, made.gid), (0o040700, 1, 2))
            # The gofer may choose this owner.
            made = channel.make(root, b"any", MADE_DIRECTORY, uid=0xFFFFFFFF, gid=0xFFFFFFFF)
            assert made.uid != 0xFFFFFFFF != made.gid
            channel.unlink(root, b"any", True)
            with refuses("ENOTDIR"):
                channel.unlink(root, b"f", True)
            with refuses("EISDIR"):
                channel.unlink(root, b"d")
            with refuses("ENOTEMPTY"):
                channel.unlink(root, b"d", True)
            with refuses("ENOENT"):
                channel.unlink(root, b"no")
            new = channel.keep(root, b"new")
            channel.unlink(root, b"new", True)
            check(channel.stat(new).nlink, 0)
            check(channel.names(new), [])
            with refuses("ENOENT"):
                channel.create(new, b"x")
            channel.unlink(root, b"f")
            check(channel.names(root), [b"d"])

    def test_renames(self):
        with objects(self.rf, '{"a/x": "x", "b/y": "y", "c": "c", "full/f": ""}') as gofer:
            channel, root = gofer.attach()
            a, b = channel.keep(root, b"a"), channel.keep(root, b"b")
            key = channel.look(a, b"x").key
            channel.rename(a, b"x", b, b"z")
            check((channel.names(a), channel.names(b)), ([], [b"y", b"z"]))
            check(channel.look(b, b"z").key, key)
            with refuses("EEXIST"):
                channel.rename(b, b"z", b, b"y", NOREPLACE)
            channel.rename(b, b"z", b, b"y")
            check((channel.names(b), content(channel, b, b"y")), ([b"y"], b"x"))
            channel.rename(root, b"c", b, b"y", EXCHANGE)
            check((content(channel, root, b"c"), content(channel, b, b"y")), (b"x", b"c"))
            channel.rename(root, b"a", b, b"inner")
            check(channel.stat(a).key, channel.look(root, b"b/inner").key)
            for old, old_name, new, new_name, flags, error in (
                (root, b"b", a, b"loop", 0, "EINVAL"),
                (root, b"b", b, b"loop", 0, "EINVAL"),
                (root, b"b", b, b"inner", EXCHANGE, "EINVAL"),
                (b, b"inner", root, b"b", EXCHANGE, "EINVAL"),
                (root, b"c", b, b"no", EXCHANGE, "ENOENT"),
                (root, b"no", b, b"y", 0, "ENOENT"),
                (root, b"c", b, b"inner", 0, "EISDIR"),
                (b, b"inner", root, b"c", 0, "ENOTDIR"),
                (b, b"inner", root, b"full", 0, "ENOTEMPTY"),
                (b, b"y", root, b"b", 0, "ENOTEMPTY"),
                (root, b"c", root, b"d", 4, "EINVAL"),
                (root, b"c", root, b"d", 3, "EINVAL"),
            ):
                with refuses(error):
                    channel.rename(old, old_name, new, new_name, flags)
            check((channel.names(root), channel.names(b)), ([b"b", b"c", b"full"], [b"inner", b"y"]))

    def test_files_without_a_name(self):
        """An object lives while it is open, and its attributes change by the descriptor."""
        with objects(self.rf, '{"f": "data"}') as gofer:
            channel, root = gofer.attach()
            before = gofer.descriptors()
            attr, fd = channel.open(root, b"f", READ_WRITE)
            channel.unlink(root, b"f")
            check(os.pread(fd, 9, 0), b"data")
            after = channel.set_attr(DESCRIPTOR, changes(mode=0o600, size=2), [fd])
            check((after.key, after.mode, after.size, after.nlink), (attr.key, 0o100600, 2, 0))
            os.close(fd)
            self.rf.wait_for(lambda: gofer.descriptors() == before - 1, 20)
            # O_TMPFILE, and a name for it.
            attr, fd = channel.create_unnamed(root, 0o640)
            check((attr.nlink, attr.mode), (0, 0o100640))
            os.pwrite(fd, b"made", 0)
            check(channel.names(root), [])
            channel.link(root, b"g", None, [fd])
            os.close(fd)
            check(content(channel, root, b"g"), b"made")
            check((channel.look(root, b"g").key, channel.look(root, b"g").nlink), (attr.key, 1))
            _, fd = channel.open(root, b"g")
            check(channel.set_attr(DESCRIPTOR, changes(mode=0o644), [fd]).nlink, 1)
            with refuses("EPERM"):
                channel.link(root, b"h", None, [fd])
            os.close(fd)

    def test_listings_while_names_change(self):
        """Names that stay during a listing are listed exactly once."""
        file = self.rf.dir("objects") + "/objects.json"
        with open(file, "w") as f:
            json.dump({f"d/{n:0200}": "" for n in range(1000)}, f)
        with objects(self.rf, file) as gofer:
            channel, root = gofer.attach()
            d = channel.keep(root, b"d")
            seen, cookie, removed = [], 0, 0
            while True:
                cookie, some = channel.list_once(d, cookie)
                seen += [name for _, _, name, _ in some]
                if not cookie:
                    break
                for _ in range(50):
                    channel.unlink(d, b"%0200d" % removed)
                    removed += 1
                os.close(channel.create(d, b"new%d" % removed)[1])
            stayed = [b"%0200d" % n for n in range(removed, 1000)]
            check(sorted(n for n in seen if n in set(stayed)), stayed)
            check(len(seen), len(set(seen)))

"""The gofer of archives: what a tar or zip file has is there, and nothing changes."""

import errno, fcntl, io, mmap, os, stat, tarfile, zipfile

from checks import check, refuses
from client import MADE_DIRECTORY, PLACE, READ_WRITE, WRITE, changes, named
from gofers import archive


def content(channel, handle, name):
    attr, fd = channel.open(handle, name)
    with open(fd, "rb") as file:
        data = file.read()
    check(len(data), attr.size)
    return data


class Archives:
    def __init__(self, rf):
        self.rf = rf

    def tar(self, *members, mode="w:gz"):
        """An archive of (name, bytes or None or the text of a link, attributes)."""
        path = self.rf.dir("archive") + "/archive.tar.gz"
        with tarfile.open(path, mode) as tar:
            for name, data, rest in members:
                info = tarfile.TarInfo(name)
                info.type = tarfile.REGTYPE if isinstance(data, bytes) else tarfile.DIRTYPE
                if isinstance(data, str):
                    info.type, info.linkname = tarfile.SYMTYPE, data
                info.size = len(data) if isinstance(data, bytes) else 0
                for key, value in rest.items():
                    setattr(info, key, value)
                tar.addfile(info, io.BytesIO(data) if isinstance(data, bytes) else None)
        return path

    def test_tar(self):
        """Content, attributes, links, directories that no member names."""
        big = os.urandom(3 << 20)
        path = self.tar(
            ("./", None, dict(mode=0o750, uid=3)),
            ("./etc/hosts", b"127.0.0.1 localhost\n", dict(mode=0o640, uid=7, gid=8, mtime=1234567890)),
            ("etc/link", "../big", {}),
            ("big", big, {}),
            ("twin", None, dict(type=tarfile.LNKTYPE, linkname="./etc/hosts")),
            ("fifo", None, dict(type=tarfile.FIFOTYPE)),
            ("null", None, dict(type=tarfile.CHRTYPE, devmajor=1, devminor=3)),
            ("empty/", None, dict(mode=0o700)),
        )
        with archive(self.rf, path) as gofer:
            channel = gofer.connect()
            _, root, attr, statfs = channel.attach()
            check((attr.mode, attr.uid), (0o040750, 3))
            assert statfs[11] & os.ST_RDONLY, "the figures do not say that it is read-only"
            check(channel.names(root), [b"big", b"empty", b"etc", b"fifo", b"twin"])
            attrs, error, etc = channel.walk(root, b"etc", True)
            check((attrs[0].mode, error), (0o040755, 0))
            hosts = channel.look(etc, b"hosts")
            check((hosts.mode, hosts.uid, hosts.gid, hosts.size, hosts.nlink), (0o100640, 7, 8, 20, 2))
            check(hosts.mtime, (1234567890, 0))
            check(channel.look(root, b"twin").key, hosts.key)
            check(content(channel, etc, b"hosts"), b"127.0.0.1 localhost\n")
            check(content(channel, root, b"big"), big)
            link, target = channel.read_link(etc, b"link")
            check((link.mode, link.size, target), (0o120777, 6, b"../big"))
            with refuses("EINVAL"):
                channel.read_link(etc, b"hosts")
            with refuses("ELOOP"):
                channel.open(etc, b"link")
            with refuses("ENXIO"):
                channel.open(root, b"fifo")
            check(channel.walk(root, b"etc/link/x")[1], errno.ENOTDIR)
            check(channel.names(channel.keep(root, b"empty")), [])

    def test_zip(self):
        path = self.rf.dir("archive") + "/archive.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive_file:
            archive_file.writestr("a/b.txt", "text " * 1000)
            info = zipfile.ZipInfo("a/link", (2001, 2, 3, 4, 5, 6))
            info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
            archive_file.writestr(info, "b.txt")
            info = zipfile.ZipInfo("a/run", (2001, 2, 3, 4, 5, 6))
            info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o755) << 16
            archive_file.writestr(info, "#!/bin/sh\n")
        with archive(self.rf, path) as gofer:
            channel, root = gofer.attach()
            a = channel.keep(root, b"a")
            check(channel.names(a), [b"b.txt", b"link", b"run"])
            check(content(channel, a, b"b.txt"), b"text " * 1000)
            check(channel.read_link(a, b"link")[1], b"b.txt")
            run = channel.look(a, b"run")
            check((run.mode, run.mtime), (0o100755, (981173106, 0)))

    def test_nothing_changes(self):
        """No operation changes anything, and a descriptor does not help."""
        with archive(self.rf, self.tar(("d/f", b"data", {}))) as gofer:
            channel, root = gofer.attach()
            d = channel.keep(root, b"d")
            key = channel.look(d, b"f").key
            for attempt in (
                lambda: channel.create(d, b"new"),
                lambda: channel.create_unnamed(d),
                lambda: channel.make(d, b"new", MADE_DIRECTORY),
                lambda: channel.unlink(d, b"f"),
                lambda: channel.unlink(root, b"d", True),
                lambda: channel.rename(d, b"f", root, b"g"),
                lambda: channel.link(d, b"g", (d, b"f")),
                lambda: channel.set_attr(named(d, b"f", key), changes(mode=0o777)),
                lambda: channel.open(d, b"f", WRITE),
                lambda: channel.open(d, b"f", READ_WRITE),
            ):
                with refuses("EROFS"):
                    attempt()
            _, fd = channel.open(d, b"f")
            for how in (os.O_RDWR, os.O_WRONLY):
                again = os.open(f"/proc/self/fd/{fd}", how)
                for act in (lambda f: os.pwrite(f, b"evil", 0), lambda f: os.ftruncate(f, 0)):
                    with refuses("EPERM"):
                        act(again)
                os.close(again)
            assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
            with mmap.mmap(fd, 4, mmap.MAP_SHARED, mmap.PROT_READ) as shared:
                check(shared[:], b"data")
            os.close(fd)
            _, place = channel.open(d, b"f", PLACE)
            check(os.fstat(place).st_size, 4)
            os.close(place)
            check(content(channel, d, b"f"), b"data")

    def test_names_that_lead_out(self):
        """Members with such names are left out, and later members replace earlier ones."""
        path = self.tar(
            ("../up", b"1", {}),
            ("a/../../up", b"2", {}),
            ("/abs", b"3", {}),
            ("a/" + "n" * 256, b"4", {}),
            ("x", b"first", {}),
            ("x", b"second", {}),
            ("y", "..", {}),
            ("y/z", b"5", {}),
        )
        with archive(self.rf, path) as gofer:
            channel, root = gofer.attach()
            check(channel.names(root), [b"abs", b"x", b"y"])
            check(content(channel, root, b"x"), b"second")
            # A link is not followed while the archive is read, either: the directory replaces it.
            check(content(channel, channel.keep(root, b"y"), b"z"), b"5")

    def test_large_directory(self):
        """A listing in pieces has every name once, with and without attributes."""
        count = 3000
        path = self.tar(*((f"d/{n:0100}", b"", {}) for n in range(count)), mode="w")
        with archive(self.rf, path) as gofer:
            channel, root = gofer.attach()
            d = channel.keep(root, b"d")
            following, some = channel.list_once(d, 0)
            assert following and len(some) < count
            check(channel.names(d), [b"%0100d" % n for n in range(count)])
            entries = channel.list(d, attributes=True)
            check([(e[0], e[1]) for e in entries], [(e[3].ino, e[3].mode >> 12) for e in entries])
            check(len(entries), count)

    def test_a_broken_archive(self):
        """A damaged file cannot be opened; the others can."""
        path = self.rf.dir("archive") + "/archive.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive_file:
            archive_file.writestr("bad", b"BADBADBAD" * 100)
            archive_file.writestr("good", b"good")
        with open(path, "r+b") as file:
            data = file.read()
            file.seek(data.index(b"BADBADBAD") + 5)
            file.write(b"XXX")
        with archive(self.rf, path) as gofer:
            channel, root = gofer.attach()
            before = gofer.descriptors()
            for _ in range(3):
                with refuses("EIO"):
                    channel.open(root, b"bad")
            check(gofer.descriptors(), before)
            check(content(channel, root, b"good"), b"good")

"""The parts of the protocol that all gofers have in common: connections, channels, handles, refusals."""

import errno, os, socket, struct, threading

from checks import check, refuses
from client import DIRECTORY, DESCRIPTOR, MAX_MESSAGE, NUMBER, READ, Closed, changes, in_directory, named, text
from gofers import objects

SOME = '{"a/b/c": "text", "a/d": "", "e": "e"}'


def header(sequence, operation, zero=0):
    return struct.pack("<IHH", sequence, NUMBER.get(operation, operation), zero)


class Protocol:
    def __init__(self, rf):
        self.rf = rf

    def test_attach(self):
        """Version, root and figures; a connection is a tree's view of its own."""
        with objects(self.rf, SOME) as gofer:
            channel = gofer.connect()
            with refuses("EBADF"):
                channel.stat(1)
            version, root, attr, statfs = channel.attach()
            check((version, attr.mode & 0o170000), (1, 0o040000))
            with refuses("EPROTONOSUPPORT"):
                gofer.connect().attach(2)
            check(channel.stat(root).key, attr.key)
            check(channel.stat_fs(root)[0], statfs[0])
            # Handles of another connection are no handles here.
            other, its_root = gofer.attach()
            kept = other.keep(its_root, b"a/b")
            other.stat(kept)
            with refuses("EBADF"):
                channel.stat(kept + 100)

    def test_walks(self):
        """Attributes of each component; why a walk ends; handles of directories alone."""
        with objects(self.rf, SOME) as gofer:
            channel, root = gofer.attach()
            attrs, error, kept = channel.walk(root, b"a/b/c", True)
            check((len(attrs), error, kept), (3, 0, 0))
            check([a.mode >> 12 for a in attrs], [4, 4, 8])
            check(channel.start.key, channel.stat(root).key)
            attrs, error, kept = channel.walk(root, b"a/b", True)
            check((len(attrs), error), (2, 0))
            check(channel.stat(kept).key, attrs[1].key)
            check(channel.walk(kept, b"c")[0][0].size, 4)
            attrs, error, kept = channel.walk(root, b"a/no/c", True)
            check((len(attrs), error, kept), (1, errno.ENOENT, 0))
            attrs, error, kept = channel.walk(root, b"a/d/c", True)
            check((len(attrs), error, kept), (2, errno.ENOTDIR, 0))
            # Handles are not used again.
            first = channel.keep(root, b"a")
            channel.forget(first, 12345678)
            with refuses("EBADF"):
                channel.stat(first)
            assert channel.keep(root, b"a") > first

    def test_handles_are_bounded(self):
        with objects(self.rf, SOME) as gofer:
            channel, root = gofer.attach()
            kept = [channel.keep(root, b"a") for _ in range(16383)]
            # The attributes are told all the same.
            attrs, error, handle = channel.walk(root, b"a/b", True)
            check((len(attrs), error, handle), (2, errno.EMFILE, 0))
            check(channel.look(root, b"a/b/c").size, 4)
            channel.forget(*kept[:1024])
            channel.stat(channel.keep(root, b"a"))

    def test_channels(self):
        """Channels share handles, work at once, and one may end without the others."""
        with objects(self.rf, SOME) as gofer:
            channel, root = gofer.attach()
            channels = [channel, *(channel.channel() for _ in range(15))]
            with refuses("EMFILE"):
                channel.channel()
            handle = channels[3].keep(root, b"a/b")
            failures = []

            def work(own):
                try:
                    for _ in range(200):
                        check(own.look(handle, b"c").size, 4)
                        with refuses("ENOENT"):
                            own.look(handle, b"d")
                except Exception as error:
                    failures.append(error)

            threads = [threading.Thread(target=work, args=[c]) for c in channels]
            for t in threads:
                t.start()
            for t in threads:
                t.join(60)
            check(failures, [])
            channels[0].close()
            self.rf.wait_for(lambda: self.adds_channel(channels[1]), 10)
            check(channels[2].look(handle, b"c").size, 4)

    def adds_channel(self, channel):
        try:
            channel.channel().close()
            return True
        except OSError as error:
            check(error.errno, errno.EMFILE)
            return False

    def test_connections_end(self):
        """What belongs to a connection goes with it."""
        with objects(self.rf, SOME) as gofer:
            gofer.attach()[0].close()
            before = gofer.descriptors()
            for _ in range(20):
                channel, root = gofer.attach()
                second = channel.channel()
                channel.keep(root, b"a")
                second.close()
                channel.close()
            self.rf.wait_for(lambda: gofer.descriptors() <= before, 20)

    def test_malformed_requests(self):
        """A request that has not the form ends its channel, without effect, and nothing else."""
        with objects(self.rf, SOME) as gofer:
            other, other_root = gofer.attach()
            handle = struct.pack("<Q", 1)
            rights = struct.pack("<III", 0o644, 0, 0)
            walk = lambda path, keep=0: header(9, "walk") + handle + struct.pack("<I", keep) + text(path)
            bad = [
                b"x",
                header(9, "stat_fs")[:7],
                header(9, 0),
                header(9, 24),
                header(9, "stat_fs") + b"\0",
                header(9, "stat") + handle[:7],
                header(9, "stat") + handle + b"\0",
                *(walk(p) for p in (b"", b"/", b"/a", b"a/", b"a//b", b".", b"a/..", b"a\0b", b"a" * 256, b"a/" * 256)),
                walk(b"a", 2),
                walk(b"a/" * 2048 + b"a"),
                walk(b"a")[:-1],
                walk(b"a") + b"b",
                header(9, "open") + handle + struct.pack("<I", 5) + text(b"e"),
                header(9, "open") + handle + struct.pack("<I", READ) + struct.pack("<I", 1 << 31) + b"e",
                header(9, "create") + handle + struct.pack("<III", 0o10000, 0, 0) + text(b"new"),
                header(9, "create") + handle + rights + text(b"new/x"),
                header(9, "create") + handle + rights + text(b"new") + b"\0",
                header(9, "make") + handle + rights + struct.pack("<I", 5) + text(b"new"),
                header(9, "make") + handle + rights + struct.pack("<I", 4) + text(b"new") + text(b""),
                header(9, "unlink") + handle + struct.pack("<I", 2) + text(b"e"),
                header(9, "set_attr") + struct.pack("<I", 3) + changes(),
                header(9, "set_attr") + in_directory(1) + struct.pack("<I", 0x100),
                header(9, "set_attr") + in_directory(1) + struct.pack("<I", 0x30),
                header(9, "set_attr") + in_directory(1) + changes(atime=(0, 1_000_000_000)),
                header(9, "set_attr") + in_directory(1) + changes(size=1 << 63),
                header(9, "close") + struct.pack("<I", 1025) + handle * 1025,
                header(9, "close") + struct.pack("<I", 2) + handle,
                header(9, "look") + handle + struct.pack("<II", 0, 0),
                header(9, "look") + handle + struct.pack("<II", 0, 129) + text(b"a") * 129,
                header(9, "look") + handle + struct.pack("<II", 0, 1) + text(b"a/b"),
                header(9, "stat_fs") + b"\0" * MAX_MESSAGE,
            ]
            for message in bad:
                channel, _ = gofer.attach()
                channel.send(message)
                try:
                    answer = channel.receive()
                    raise AssertionError(f"{message[:80]!r} was answered: {answer[0][:40]!r}")
                except (Closed, ConnectionResetError):
                    pass
                channel.close()
            check(other.names(other_root), [b"a", b"e"])

    def test_descriptors_of_requests(self):
        """A request that needs no descriptor may have one; several are malformed; missing ones are an error."""
        with objects(self.rf, SOME) as gofer:
            channel, root = gofer.attach()
            before = gofer.descriptors()
            with open("/dev/null") as null:
                for _ in range(50):
                    channel.call("stat", struct.pack("<Q", root), [null.fileno()])
                self.rf.wait_for(lambda: gofer.descriptors() == before, 20)
                with refuses("EBADF"):
                    channel.set_attr(DESCRIPTOR, changes(mode=0o600))
                # Not a file of the gofer's.
                with refuses("EINVAL"):
                    channel.set_attr(DESCRIPTOR, changes(mode=0o600), [null.fileno()])
                other, _ = gofer.attach()
                for n in (2, 5, 8):
                    other, _ = gofer.attach()
                    other.send(header(1, "stat") + struct.pack("<Q", root), [null.fileno()] * n)
                    try:
                        other.receive()
                        raise AssertionError(f"{n} descriptors were accepted")
                    except (Closed, ConnectionResetError):
                        other.close()
            self.rf.wait_for(lambda: gofer.descriptors() <= before + 1, 20)

    def test_targets(self):
        """A name stands for an object only while it is the one that was meant."""
        with objects(self.rf, SOME) as gofer:
            channel, root = gofer.attach()
            key = channel.look(root, b"e").key
            check(channel.set_attr(named(root, b"e", key), changes(mode=0o600)).mode, 0o100600)
            with refuses("ESTALE"):
                channel.set_attr(named(root, b"e", (key[0], key[1] + 1)), changes(mode=0o644))
            with refuses("ESTALE"):
                channel.set_attr(named(root, b"a", key), changes(mode=0o644))
            with refuses("ENOENT"):
                channel.set_attr(named(root, b"no", key), changes(mode=0o644))
            with refuses("EBADF"):
                channel.set_attr(in_directory(999), changes(mode=0o644))
            check(channel.set_attr(in_directory(root), changes(mode=0o711)).mode, 0o040711)
            with refuses("EOPNOTSUPP"):
                channel.get_xattr(in_directory(root), b"user.x")

    def test_several_names_at_once(self):
        with objects(self.rf, SOME) as gofer:
            channel, root = gofer.attach()
            one, none, other = channel.look_at_all(root, [b"a", b"no", b"e"])
            check((one.key, none, other.key), (channel.look(root, b"a").key, 2, channel.look(root, b"e").key))
            check(len(channel.look_at_all(root, [b"x" * 255] * 128)), 128)
            with refuses("EBADF"):
                channel.look_at_all(999, [b"a"])

    def test_kinds_of_open(self):
        with objects(self.rf, SOME) as gofer:
            channel, root = gofer.attach()
            with refuses("ENOTDIR"):
                channel.open(root, b"e", DIRECTORY)
            with refuses("EISDIR"):
                channel.open(root, b"a")
            with refuses("EOPNOTSUPP"):
                channel.open_directory(root)
            attr, fd = channel.open(root, b"e")
            check((os.read(fd, 10), attr.size), (b"e", 1))
            os.close(fd)

    def test_sequences(self):
        """The gofer repeats the sequence that the request has, whatever it is."""
        with objects(self.rf, SOME) as gofer:
            channel, root = gofer.attach()
            for sequence in (0, 7, 7, 0xFFFFFFFE, 3):
                channel.sequence = sequence
                channel.stat_fs(root)
            channel.socket.shutdown(socket.SHUT_WR)
            try:
                channel.receive()
                raise AssertionError("a reply without a request")
            except Closed:
                pass

"""The hostile gofer: each of its attacks begins when it should, and not before."""

import os, struct, subprocess, sys

from checks import check
from client import Closed
from gofers import HERE, Gofer

HOSTILE = HERE + "/hostile.py"


def attacks():
    return subprocess.run([sys.executable, HOSTILE], stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def hostile(rf, attack):
    return Gofer(rf, HOSTILE, attack, Gofer.SOCKET)


class Hostile:
    def __init__(self, rf):
        self.rf = rf

    def test_attacks_begin_with_evil(self):
        """Honest before; then at least one operation shows that this is no gofer to trust."""
        names = attacks()
        assert len(names) > 50 and len(set(names)) == len(names)
        # What these do is within the protocol, or shows later.
        subtle = {"shrinking", "flood", "repeated", "replies-to-come", "a-bad-channel", "descriptor-unasked", "death"}
        for name in names:
            with hostile(self.rf, name) as gofer:
                channel, root = gofer.attach()
                check(channel.look(root, b"good").size, 4)
                check(channel.look(root, b"d/good").size, 4)
                _, fd = channel.open(root, b"good")
                check(os.pread(fd, 9, 0), b"good")
                os.close(fd)
                if name not in subtle:
                    assert self.evil(channel, root), f"{name}: nothing happened"

    def evil(self, channel, root):
        """Something is not as an honest gofer has it."""
        channel.socket.settimeout(0.5)
        file = 0o100644
        honest = {
            self.attributes: (file, 8000),
            self.opened: (file, b"evilevile"),
            self.names: (0, [(8, b"good")]),
        }
        for ask, wanted in honest.items():
            try:
                if ask(channel, root) != wanted:
                    return True
            except (OSError, AssertionError, Closed, struct.error, ValueError):
                return True
        return False

    def attributes(self, channel, root):
        told = [channel.look(root, b"evil") for _ in range(2)]
        check(told[0].key, told[1].key)
        attr = told[0]
        assert attr.ino < 1 << 40 and attr.ino and attr.nlink and abs(attr.mtime[0]) < 1 << 40 and attr.blksize
        return attr.mode, attr.size

    def opened(self, channel, root):
        attr, fd = channel.open(root, b"evil")
        try:
            return attr.mode, os.pread(fd, 9, 0)
        finally:
            os.close(fd)

    def names(self, channel, root):
        directory = channel.keep(root, b"evil.d")
        following, entries = channel.list_once(directory, 0)
        return following, [(kind, name) for _, kind, name, _ in entries]

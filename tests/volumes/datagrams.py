"""Datagram sockets of the host in volumes (--host-uds=open): /dev/log."""

import os, socket

from results import need_file, need_root

PYTHON = "/usr/bin/python3"

CODE = r"""
import errno, os, socket, sys
path = sys.argv[1]
def say(what, call):
    try:
        got = call()
    except OSError as error:
        got = errno.errorcode[error.errno]
    print(what, got, flush=True)
new = lambda kind=socket.SOCK_DGRAM: socket.socket(socket.AF_UNIX, kind)
s = new()
say("connect", lambda: s.connect(path))
say("send", lambda: s.send(b"connected"))
say("to", lambda: new().sendto(b"addressed", path))
say("stream", lambda: new(socket.SOCK_STREAM).connect(path))
say("rights", lambda: socket.send_fds(s, [b"x"], [0]))
os.setresuid(1000, 1000, 1000)
say("user", lambda: new().sendto(b"user", path))
"""


class Datagrams:
    """The tests, for one program under test."""

    def __init__(self, rf):
        self.rf = rf

    def told(self, flags, mode):
        d = self.rf.dir("volume")
        server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        server.bind(d + "/log")
        os.chmod(d + "/log", mode)
        done = self.rf(*flags, "do", f"--volume={d}:{d}", PYTHON, "-c", CODE, d + "/log")
        assert (done.returncode, done.stderr) == (0, ""), done
        server.setblocking(False)
        got = []
        try:
            while True:
                got.append(server.recv(100).decode())
        except BlockingIOError:
            server.close()
        return done.stdout.splitlines(), got

    def test_datagrams_to_the_host(self):
        """Connected and addressed ones arrive, of other users by the socket's mode; nothing without the flag."""
        need_root()
        need_file(PYTHON)
        lines, got = self.told(["--host-uds=open"], 0o666)
        assert got == ["connected", "addressed", "user"], got
        sent = ["connect None", "send 9", "to 9", "stream EPROTOTYPE", "rights ENOTSUP", "user 4"]
        assert lines == sent, lines
        lines, got = self.told(["--host-uds=open"], 0o600)
        assert got == ["connected", "addressed"] and lines[-1] == "user EACCES", (lines, got)
        lines, got = self.told([], 0o666)
        assert got == [] and lines[0] == "connect ECONNREFUSED" and lines[2] == "to ECONNREFUSED", (lines, got)

"""Sockets that programs inside bind in volumes (--host-uds=create): programs outside and other sandboxes reach them."""

import os, socket, stat, subprocess

from results import need_file, need_root

PYTHON = "/usr/bin/python3"

SERVE = r"""
import os, select, socket, struct, sys
path, kind, user = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if user:
    os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
os.umask(0o027)
s = socket.socket(socket.AF_UNIX, kind)
s.bind(path)
print("bound", oct(os.stat(path).st_mode & 0o7777), os.stat(path).st_uid, s.getsockname() == path, flush=True)
if kind == socket.SOCK_DGRAM:
    for _ in range(2):
        select.select([s], [], [])
        print(s.recv(10), flush=True)
    sys.exit()
sys.stdin.readline()
s.listen(5)
print("listens", flush=True)
own = socket.socket(socket.AF_UNIX, kind)
own.connect(path)
own.send(b"own")
for _ in range(2):
    select.select([s], [], [])
    c, peer = s.accept()
    _, uid, gid = struct.unpack("3i", c.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    print(c.recv(100), repr(peer), c.getsockname() == path, uid, gid, flush=True)
    data = b"".join(iter(lambda: c.recv(65536), b"")) if len(sys.argv) > 4 else b""
    c.sendall(b"answer" + data)
    c.close()
try:
    socket.socket(socket.AF_UNIX, kind).bind(path)
except OSError as error:
    print(error.strerror, flush=True)
"""

CONNECT = r"""
import socket, sys
s = socket.socket(socket.AF_UNIX, int(sys.argv[2]))
s.connect(sys.argv[1])
s.send(b"other")
if int(sys.argv[2]) != socket.SOCK_DGRAM: print(s.recv(100))
"""


class Bound:
    """The tests, for one program under test."""

    def __init__(self, rf):
        self.rf = rf

    def serve(self, d, kind, user, *flags):
        command = [*flags, "do", f"--volume={d}:{d}", PYTHON, "-c", SERVE, d + "/s", str(int(kind)), str(user)]
        p = self.rf.start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        # Several lines may come at once.
        return p, lambda: p.stdout.readline().strip()

    def end(self, p):
        p.kill()
        p.wait()
        p.stdin.close()
        p.stdout.close()

    def streams(self, kind, user, flags):
        d = self.rf.dir("volume")
        os.chown(d, user, user)
        p, line = self.serve(d, kind, user, *flags)
        try:
            assert line() == f"bound 0o750 {user} True"
            made = os.stat(d + "/s")
            assert stat.S_ISSOCK(made.st_mode), made
            assert (made.st_mode & 0o7777, made.st_uid) == (0o750, user), made
            outside = socket.socket(socket.AF_UNIX, kind)
            try:
                outside.connect(d + "/s")
                raise AssertionError("connected before listen(2)")
            except ConnectionRefusedError:
                pass
            p.stdin.write("go\n")
            p.stdin.flush()
            assert line() == "listens"
            # Its own connection came first.
            own = line()
            assert own == f"b'own' '' True {user} {user}", own
            outside.connect(d + "/s")
            outside.send(b"out")
            came = line()
            assert came == f"b'out' '' True {os.geteuid()} {os.getegid()}", came
            assert outside.recv(100) == b"answer"
            outside.close()
            assert line() == "Address already in use"
            assert p.wait(20) == 0
            # The name stays, as on Linux.
            try:
                socket.socket(socket.AF_UNIX, kind).connect(d + "/s")
                raise AssertionError("connected to a socket that is gone")
            except ConnectionRefusedError:
                pass
        finally:
            self.end(p)

    def test_sockets_that_are_bound_in_volumes(self):
        """Streams and records, of root and of another user, whose directory it is."""
        need_root()
        need_file(PYTHON)
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            for user in (0, 1234):
                self.streams(kind, user, ["--host-uds=create"])
        self.streams(socket.SOCK_STREAM, 0, ["--host-uds=all"])

    def test_one_sandbox_reaches_another(self):
        need_root()
        need_file(PYTHON)
        d = self.rf.dir("volume")
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            p, line = self.serve(d, kind, 0, "--host-uds=create")
            try:
                assert line().startswith("bound")
                if kind == socket.SOCK_STREAM:
                    p.stdin.write("go\n")
                    p.stdin.flush()
                    assert line() == "listens"
                    assert line().startswith("b'own'")
                connect = ["do", f"--volume={d}:{d}", PYTHON, "-c", CONNECT, d + "/s", str(int(kind))]
                refused = self.rf("--host-uds=create", *connect)
                assert "ConnectionRefusedError" in refused.stderr, refused
                done = self.rf("--host-uds=open", *connect)
                assert done.returncode == 0, done.stderr
                assert line().startswith("b'other'")
                if kind == socket.SOCK_DGRAM:
                    with socket.socket(socket.AF_UNIX, kind) as outside:
                        outside.sendto(b"outside", d + "/s")
                    assert line() == "b'outside'"
                else:
                    assert done.stdout == "b'answer'\n", done.stdout
                    assert line() == "Address already in use"
                assert p.wait(20) == 0
            finally:
                self.end(p)
            os.unlink(d + "/s")

    def test_bound_sockets_stay_inside_without_the_flag(self):
        need_root()
        need_file(PYTHON)
        for flags in ([], ["--host-uds=open"]):
            d = self.rf.dir("volume")
            p, line = self.serve(d, socket.SOCK_STREAM, 0, *flags)
            try:
                assert line() == "bound 0o750 0 True"
                p.stdin.write("go\n")
                p.stdin.flush()
                assert line() == "listens"
                try:
                    socket.socket(socket.AF_UNIX).connect(d + "/s")
                    raise AssertionError("connected")
                except ConnectionRefusedError:
                    pass
            finally:
                self.end(p)

"""What a volume's file system can do with storage, by the same program on the host and inside."""

import os, shutil, subprocess

from results import need, need_file, need_programs, need_root

PYTHON = "/usr/bin/python3"

PROGRAM = r"""
import ctypes, errno, fcntl, os, stat, struct, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
AT, EMPTY, FOLLOW = -100, 0x1000, 0x400

def say(what, call):
    try:
        got = call()
    except OSError as error:
        got = errno.errorcode[error.errno]
    print(what, got, flush=True)

def c(number):
    if number < 0:
        raise OSError(ctypes.get_errno(), "")
    return number

def blocks(fd): return os.fstat(fd).st_blocks * 512
def mode(a): return f"{stat.S_IFMT(a.st_mode):o} {a.st_mode & 0o7777:o} {a.st_nlink} {a.st_size}"
def fallocate(fd, mode, at, length):
    return c(libc.fallocate(fd, mode, ctypes.c_long(at), ctypes.c_long(length)))

os.umask(0o022)
for flags in (os.O_RDWR, os.O_WRONLY):
    fd = os.open(".", os.O_TMPFILE | flags, 0o640)
    say("unnamed", lambda: mode(os.fstat(fd)))
    say("names", lambda: os.listdir("."))
    say("write", lambda: os.write(fd, b"text" * 3000))
    say("truncate", lambda: os.ftruncate(fd, 9000))
    say("read", lambda: len(os.pread(fd, 20000, 0)))
    say("chmod", lambda: os.fchmod(fd, 0o604))
    say("again", lambda: os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)))
    say("path", lambda: os.readlink(f"/proc/self/fd/{fd}").endswith(" (deleted)"))
    say("link", lambda: c(libc.linkat(AT, f"/proc/self/fd/{fd}".encode(), AT, b"named", FOLLOW)))
    say("linked", lambda: mode(os.stat("named")))
    say("same", lambda: os.path.samestat(os.stat("named"), os.fstat(fd)))
    say("text", lambda: open("named").read(9))
    say("second", lambda: c(libc.linkat(fd, b"", AT, b"second", EMPTY)))
    say("names", lambda: sorted(os.listdir(".")))
    say("write", lambda: os.pwrite(fd, b"more", 100))
    say("text", lambda: open("named").read()[98:106])
    os.close(fd)
    for name in ("named", "second"):
        say("unlink", lambda: os.unlink(name))
fd = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
say("exclusive", lambda: c(libc.linkat(AT, f"/proc/self/fd/{fd}".encode(), AT, b"named", FOLLOW)))
os.close(fd)
say("read only", lambda: os.open(".", os.O_TMPFILE | os.O_RDONLY, 0o600))
say("many", lambda: len([os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600) for n in range(20)]))

open("a", "w").write("a")
open("b", "w").write("bb")
os.mkdir("d")
def rename(a, b, flags): return c(libc.renameat2(AT, a, AT, b, flags))
say("whiteout", lambda: rename(b"a", b"c", 4))
say("there", lambda: mode(os.lstat("a")) + f" {os.lstat('a').st_rdev}")
say("moved", lambda: open("c").read())
say("whiteout over", lambda: rename(b"c", b"b", 4))
say("no replace", lambda: rename(b"b", b"c", 5))
say("directory", lambda: rename(b"d", b"e", 4))
say("names", lambda: sorted(os.listdir(".")))
for name in ("a", "c", "d"):
    say("remove", lambda: os.unlink(name))

fd = os.open("space", os.O_RDWR | os.O_CREAT, 0o600)
os.write(fd, bytes(range(256)) * 1024)
def state():
    data = os.pread(fd, 1 << 20, 0)
    return os.fstat(fd).st_size, sum(data) % 65521, [data[n * 16384] for n in range(len(data) // 16384)]
for what, how, at, length in (
    ("grow", 0, 0, 400000), ("keep size", 1, 400000, 100000), ("punch", 3, 16384, 32768), ("punch alone", 2, 0, 4096),
    ("zero", 0x10, 65536, 5000), ("zero and keep", 0x11, 390000, 50000), ("collapse", 8, 32768, 16384),
    ("collapse part", 8, 100, 4096), ("insert", 0x20, 16384, 16384), ("insert at the end", 0x20, 1 << 20, 4096),
    ("unshare", 0x40, 0, 4096), ("unknown", 0x80, 0, 4096),
):
    say(what, lambda: (fallocate(fd, how, at, length), state()))
say("data", lambda: os.lseek(fd, 0, os.SEEK_HOLE) <= os.fstat(fd).st_size)

FICLONE, FICLONERANGE = 0x40049409, 0x4020940D
to = os.open("clone", os.O_RDWR | os.O_CREAT, 0o600)
read = os.open("space", os.O_RDONLY)
append = os.open("clone", os.O_WRONLY | os.O_APPEND)
say("clone", lambda: fcntl.ioctl(to, FICLONE, fd))
say("cloned", lambda: os.pread(to, 1 << 20, 0) == os.pread(fd, 1 << 20, 0))
say("write", lambda: os.pwrite(to, b"mine", 0))
say("apart", lambda: os.pread(to, 4, 0) != os.pread(fd, 4, 0))
clone = lambda to, fd, off, length, at: fcntl.ioctl(to, FICLONERANGE, struct.pack("qQQQ", fd, off, length, at))
say("range", lambda: len(clone(to, fd, 16384, 16384, 65536)))
say("cloned", lambda: os.pread(to, 16384, 65536) == os.pread(fd, 16384, 16384))
say("unaligned", lambda: len(clone(to, fd, 100, 100, 0)))
say("beyond", lambda: len(clone(to, fd, 1 << 30, 16384, 0)))
say("to itself", lambda: len(clone(to, to, 0, 65536, 1000)))
say("from a reader", lambda: fcntl.ioctl(to, FICLONE, read))
say("to a reader", lambda: fcntl.ioctl(read, FICLONE, to))
say("to one that appends", lambda: fcntl.ioctl(append, FICLONE, fd))
say("of a directory", lambda: fcntl.ioctl(to, FICLONE, os.open(".", os.O_RDONLY)))
say("of a pipe", lambda: fcntl.ioctl(to, FICLONE, os.pipe()[0]))
say("of nothing", lambda: fcntl.ioctl(to, FICLONE, 900))
say("of another file system", lambda: fcntl.ioctl(to, FICLONE, os.memfd_create("other")))
say("cp", lambda: os.system("cp --reflink=always space copy 2>/dev/null && cmp space copy"))
"""


class Storage:
    """The tests, for one program under test."""

    def __init__(self, rf):
        self.rf = rf

    def compare(self, volume):
        """The program says the same natively and inside, on a volume and on a root that is written directly."""
        told = []
        for where in ("native", "volume", "root"):
            d = volume + "/work"
            os.mkdir(d)
            command = [PYTHON, "-c", PROGRAM, d]
            if where == "native":
                done = subprocess.run(command, capture_output=True, text=True)
            elif where == "volume":
                done = self.rf("do", f"--volume={volume}:{volume}", *command)
            else:
                dir = self.rf.bundle(*command)
                bind = {"destination": volume, "type": "bind", "source": volume, "options": ["rbind", "rw"]}
                self.rf.edit(dir, lambda c: (c["root"].update(path="/"), c["mounts"].append(bind)))
                done = self.rf("run", "--bundle", dir, "storage")
            assert (done.returncode, done.stderr) == (0, ""), (where, done)
            told.append(done.stdout.splitlines())
            shutil.rmtree(d)
        for where, lines in zip(("volume", "root"), told[1:]):
            differ = [(a, b) for a, b in zip(told[0], lines) if a != b]
            assert not differ and len(lines) == len(told[0]), f"{where}: native and inside: {differ}"
        return told[0]

    def test_storage(self):
        need_file(PYTHON)
        self.compare(self.rf.dir("volume"))

    def on_image(self, make, clones):
        need_root()
        need_programs(make[0])
        need(os.path.exists("/dev/loop-control"), "no loop devices")
        dir = self.rf.dir("image")
        os.mkdir(dir + "/mnt")
        with open(dir + "/image", "w") as f:
            f.truncate(400 << 20)
        subprocess.run([*make, dir + "/image"], check=True, capture_output=True)
        mounted = subprocess.run(["mount", "-o", "loop", dir + "/image", dir + "/mnt"], capture_output=True, text=True)
        need(mounted.returncode == 0, f"no {make[0]}: {mounted.stderr}")
        try:
            lines = self.compare(dir + "/mnt")
            assert (f"clone {0 if clones else 'ENOTSUP'}" in lines) and ("cp 0" in lines) == clones, lines
        finally:
            subprocess.run(["umount", dir + "/mnt"], check=True)

    def test_storage_on_btrfs(self):
        self.on_image(["mkfs.btrfs", "-q"], True)

    def test_storage_on_xfs(self):
        self.on_image(["mkfs.xfs", "-q"], True)

    def test_storage_on_ext4(self):
        self.on_image(["mkfs.ext4", "-q"], False)

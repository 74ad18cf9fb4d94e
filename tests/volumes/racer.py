"""A program on the host exchanges directories, links and mounts of a volume while a program inside uses their names.
Nothing that lies outside the volume is ever read, listed or changed by it."""

import os, shutil, stat, subprocess

from results import need_root

PYTHON = "/usr/bin/python3"
# How long the two race; what each does in that time is counted.
SECONDS = 6

# Exchanges two names all the time, and mounts over a third one.
RACER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
volume, outside = (arg.encode() for arg in sys.argv[1:])
AT_FDCWD, EXCHANGE, BIND, DETACH = -100, 2, 4096, 2
def exchange(a, b):
    if libc.renameat2(AT_FDCWD, volume + a, AT_FDCWD, volume + b, EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2")
print("ready", flush=True)
turns = 0
while True:
    exchange(b"/swap", b"/trap")
    exchange(b"/deep/er", b"/deep/link")
    exchange(b"/file", b"/filelink")
    turns += 1
    if turns % 50 == 0:
        if libc.mount(outside, volume + b"/mounted", None, BIND, None):
            raise OSError(ctypes.get_errno(), "mount")
        libc.umount2(volume + b"/mounted", DETACH)
    if turns % 1000 == 0:
        print(turns, flush=True)
"""

# Uses the names in every way, and says what it has got.
GUEST = """
import collections, errno, os, sys, time
volume, seconds = sys.argv[1], float(sys.argv[2])
seen = collections.Counter()
def use(what, call):
    try:
        seen[what, str(call())] += 1
    except OSError as error:
        seen[what, errno.errorcode[error.errno]] += 1
def read(name):
    with open(f"{volume}/{name}") as f:
        return f.read()
def write(name):
    with open(f"{volume}/{name}", "r+") as f:
        f.write("inside!!")
def change(name):
    fd = os.open(f"{volume}/{name}", os.O_RDONLY | os.O_DIRECTORY)
    try:
        new = os.open("new", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd)
        os.close(new)
        os.unlink("new", dir_fd=fd)
    finally:
        os.close(fd)
end = time.monotonic() + seconds
while time.monotonic() < end:
    for name in "swap", "trap", "deep/er", "deep/link", "mounted":
        use("read", lambda: read(name + "/secret"))
        listing = lambda: sorted(set(os.listdir(f"{volume}/{name}")) - {"new"})
        use("list" if name != "mounted" else "list mounted", listing)
        use("size", lambda: os.stat(f"{volume}/{name}/secret").st_size)
        use("write", lambda: write(name + "/secret"))
        use("make", lambda: change(name))
        use("chmod", lambda: os.chmod(f"{volume}/{name}/secret", 0o640))
        use("times", lambda: os.utime(f"{volume}/{name}", (5, 5)))
        use("xattr", lambda: os.setxattr(f"{volume}/{name}/secret", "user.inside", b"1"))
        use("link", lambda: os.link(f"{volume}/{name}/secret", f"{volume}/second"))
        use("unlink", lambda: os.unlink(f"{volume}/second"))
        use("move", lambda: os.rename(f"{volume}/{name}/secret", f"{volume}/{name}/secret"))
    for name in "file", "filelink":
        use("read", lambda: read(name))
        use("write", lambda: write(name))
        use("truncate", lambda: os.truncate(f"{volume}/{name}", 8))
        use("chown", lambda: os.chown(f"{volume}/{name}", 7, 7, follow_symlinks=True))
for (what, came), count in sorted(seen.items()):
    print(count, what, came, sep="\\t")
"""


class Racer:
    def __init__(self, rf):
        self.rf = rf

    def trees(self):
        """A volume, and what is beside it."""
        base = self.rf.dir("race")
        volume, outside = base + "/volume", base + "/outside"
        for dir in (volume + "/swap", volume + "/deep/er", volume + "/mounted", outside + "/below"):
            os.makedirs(dir)
        for dir in ("swap", "deep/er", "mounted"):
            with open(f"{volume}/{dir}/secret", "w") as f:
                f.write("inside!!")
        with open(volume + "/file", "w") as f:
            f.write("inside!!")
        for file in ("secret", "below/secret"):
            with open(f"{outside}/{file}", "w") as f:
                f.write("outside, and longer")
        # By name from the host both lead outside; inside the same names lead to nothing.
        os.symlink("../outside", volume + "/trap")
        os.symlink("../../outside/below", volume + "/deep/link")
        os.symlink("../outside/secret", volume + "/filelink")
        return volume, outside

    def facts(self, outside):
        """All of what is outside that a change would show in."""
        found = []
        for root, dirs, files in os.walk(outside):
            for name in [".", *sorted(dirs), *sorted(files)]:
                s = os.lstat(os.path.join(root, name))
                times = (s.st_mtime_ns, s.st_ctime_ns)
                found.append((name, stat.filemode(s.st_mode), s.st_uid, s.st_nlink, s.st_size, *times))
        return found

    def race(self, mounts):
        volume, outside = self.trees()
        before = self.facts(outside)
        program = [PYTHON, "-c", GUEST, "/race", str(SECONDS)]
        guest = self.rf.argv(["do", f"--volume={volume}:/race", *program])
        racer = subprocess.Popen(
            ["unshare", "-m", PYTHON, "-c", RACER, volume, outside], stdout=subprocess.PIPE, text=True, bufsize=1
        )
        try:
            assert self.rf.line(racer) == "ready\n"
            # In the racer's mount namespace there are its mounts, too.
            enter = ["nsenter", f"--mount=/proc/{racer.pid}/ns/mnt"] if mounts else []
            result = subprocess.run([*enter, *guest], capture_output=True, text=True, timeout=300)
            assert racer.poll() is None, "the racer has ended"
        finally:
            racer.kill()
            turns = racer.communicate()[0].split()
        assert result.returncode == 0, result.stderr
        assert turns, "the racer has not come far"
        seen = [line.split("\t") for line in result.stdout.splitlines()]
        # A name may have moved at each of the tries: once in many uses, with a program that does nothing but move it.
        moved = sum(int(count) for count, _, came in seen if came == "ESTALE")
        assert moved * 100 <= sum(int(count) for count, _, _ in seen), result.stdout
        seen = [line for line in seen if line[2] != "ESTALE"]
        reads = {came: int(count) for count, what, came in seen if what == "read"}
        lists = {came for _, what, came in seen if what == "list"}
        sizes = {came for _, what, came in seen if what == "size"}
        # What is mounted is part of the volume: the host has put it there.
        if not mounts:
            # A link leads to nothing inside; no other program makes or removes a name.
            assert reads.keys() == {"inside!!", "ENOENT"}, reads
            assert lists <= {"['secret']", "ENOENT"} and sizes <= {"8", "ENOENT"}, result.stdout
            errors = {came for _, _, came in seen if came.startswith("E")}
            assert errors <= {"ENOENT", "EEXIST"}, result.stdout
        assert min(reads["inside!!"], reads["ENOENT"]) > 0, reads
        if not mounts:
            after = self.facts(outside)
            assert after == before, [pair for pair in zip(before, after) if pair[0] != pair[1]]
        shutil.rmtree(volume)

    def test_a_racer_with_directories_and_links_leads_nothing_outside(self):
        need_root()
        self.race(mounts=False)

    def test_a_racer_with_mounts_ends_nothing(self):
        """A mount of the host is seen or not; whatever comes of it, the sandbox answers and ends by itself."""
        need_root()
        self.race(mounts=True)

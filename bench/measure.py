"""One figure, or the figures of one workload, in one column of bench/run: nanoseconds, or why there are none."""

import ctypes, glob, os, shutil, statistics, subprocess, tempfile, time
from contextlib import contextmanager

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = ":".join(
    ["/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin", *glob.glob("/usr/lib/postgresql/*/bin")]
)
# Native loops that keep the processors busy in the loaded rows.
LOOPS = 4
# Where the images of file systems are made; it should be a disk, not memory.
ON_DISK = os.environ.get("BENCH_DIR", "/var/tmp")
# Bytes of such an image, of which only what is written takes room.
IMAGE = 2 << 30
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 16384, 1 << 18
QUIET = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "cwd": "/"}


class Column:
    """A way to run commands. A word with {dir} shares that directory with the host, and is left out where there is
    none."""

    def __init__(self, prefix, direct=False):
        self.prefix, self.direct = prefix, direct

    def binds(self):
        return self.direct or any("{dir}" in w for w in self.prefix)

    def command(self, directory=None):
        if directory:
            return [w.replace("{dir}", directory) for w in self.prefix]
        return [w for w in self.prefix if "{dir}" not in w]


def last(r):
    lines = (r.stderr.strip() or r.stdout.strip()).splitlines()
    return f"exit status {r.returncode}" + (f": {lines[-1][:100]}" if lines else "")


def missing(needs):
    """A note on what is not installed."""
    packages = sorted({package for program, package in needs.items() if not shutil.which(program, path=PATH)})
    return "not installed: apt-get install " + " ".join(packages) if packages else ""


def own_mounts():
    """Gives this process a mount namespace, so that what `file_system` mounts is seen here only. Needs root."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "mount namespace")


@contextmanager
def file_system():
    """/tmp is an ext4 with a journal, made anew on a loop device. Without a journal ext4 does not use the inodes of
    files that were deleted in the last minutes, and looks at each of them when a file is made: then the row that runs
    second pays for what the first one deleted. Without root /tmp stays as it is."""
    if os.geteuid():
        yield
        return
    with tempfile.NamedTemporaryFile(prefix="ringfence-bench-", suffix=".img", dir=ON_DISK) as image:
        image.truncate(IMAGE)
        options = "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", options, image.name], check=True, **QUIET)
        subprocess.run(["mount", "-o", "loop", image.name, "/tmp"], check=True, **QUIET)
        try:
            os.chmod("/tmp", 0o1777)
            yield
        finally:
            subprocess.run(["umount", "-l", "/tmp"], check=True, **QUIET)


@contextmanager
def place(bind):
    """The directory that the row's own one is made in: /tmp of the root, or one that is shared with the host."""
    with file_system():
        if not bind:
            yield None
            return
        where = ON_DISK if os.geteuid() else "/tmp"
        directory = tempfile.mkdtemp(prefix="ringfence-bench-", dir=where)
        os.chmod(directory, 0o755)
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def sh(column, text, bind=False, env=(), timeout=120, before=""):
    """Runs a shell's text in a column, and `before` natively in the same place, if it is given."""
    with place(bind) as directory:
        if before:
            words = ["env", "-i", f"PATH={PATH}", f"WORK={directory or '/tmp'}", *env, "sh", "-ec", before]
            subprocess.run(words, check=True, timeout=timeout, **QUIET)
        words = ["env", "-i", f"PATH={PATH}", "HOME=/tmp", "LC_ALL=C.UTF-8", f"WORK={directory or '/tmp'}", *env]
        return subprocess.run([*column.command(directory), *words, "sh", "-c", text], timeout=timeout, **QUIET)


def figures(r):
    return {words[0]: float(words[1]) for words in map(str.split, r.stdout.splitlines()) if len(words) == 2}


def micro(column, exe, rows):
    r = subprocess.run([*column.command(), exe, "/tmp", *rows], timeout=900, **QUIET)
    return figures(r), "" if r.returncode == 0 else last(r)


def busy(column, exe, row, n, part):
    """ns per call while n processes make it at once, in one sandbox; each makes 1/part of the calls of the row
    alone."""
    r = sh(column, f"for i in $(seq {n}); do PART={part} {exe} /tmp {row} & done; wait")
    t = [float(l.split()[1]) for l in r.stdout.splitlines() if l.startswith(row + " ")]
    return (statistics.median(t), "") if len(t) == n else (None, f"{len(t)} of {n} processes ended well; {last(r)}")


@contextmanager
def load(n=LOOPS, sessions=False):
    """n busy loops beside, natively; with `sessions` each in one of its own: a group of its own for the host's
    scheduler."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"], start_new_session=sessions) for _ in range(n)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def beside(column, exe, rows, n):
    """Mean and 99th percentile of single calls, and the time of a shell's loop, while n programs compete."""
    with load(n, sessions=True):
        r = sh(column, f"PART=50 EACH=2 {exe} /tmp {' '.join(rows)}")
        loop = "i=0; while [ $i -lt 20 ]; do /bin/true; i=$((i+1)); done"
        took = sh(column, f"a=$(date +%s%N); {loop}; b=$(date +%s%N); echo sh_20_true $((b - a))")
    found = figures(r) | figures(took)
    return {f"{row}_n{n}": t for row, t in found.items()}, "" if r.returncode == 0 else last(r)


def start(column):
    """From the start to the end of `true`."""
    begin = time.monotonic_ns()
    r = subprocess.run([*column.command(), "/bin/true"], **QUIET)
    took = time.monotonic_ns() - begin
    return (took, "") if r.returncode == 0 else (None, last(r))


INTO = 'set -e; top=$(mktemp -d "$WORK/bench.XXXXXX"); trap \'cd /; rm -rf "$top"\' EXIT; cd "$top"'


def program(column, row, env):
    into, prep, before = INTO, row.prep or ":", ""
    if row.cold:
        into, prep, before = 'set -e; cd "$WORK/cold"', ":", f'mkdir "$WORK/cold"; cd "$WORK/cold"; {row.prep}'
    r = sh(
        column,
        f"{into}\n{{ {prep}\n}} >/dev/null 2>&1\na=$(date +%s%N)\n{{ {row.run}\n}} >/dev/null\nb=$(date "
        f"+%s%N)\necho took $((b - a))",
        row.bind,
        env,
        before=before,
    )
    took = figures(r).get("took")
    return (took, "") if took and r.returncode == 0 else (None, last(r))


def workload(column, row, wanted):
    r = sh(column, f"{INTO}\nsh {HERE}/workloads/{row.script}.sh {' '.join(wanted)}", row.bind)
    return figures(r), "" if r.returncode == 0 else last(r)

"""One figure, or the figures of one workload, in one column of bench/run: nanoseconds, or why there are none."""

import glob, os, shutil, statistics, subprocess, tempfile, time
from contextlib import contextmanager

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = ":".join(
    ["/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin", *glob.glob("/usr/lib/postgresql/*/bin")]
)
# Native loops that keep the processors busy in the loaded rows.
LOOPS = 4
# Where directories for bind mounts are made; it should be a disk, not memory.
ON_DISK = os.environ.get("BENCH_DIR", "/var/tmp")
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


@contextmanager
def place(bind):
    """The directory that the row's own one is made in: /tmp of the root, or one shared with the host."""
    if not bind:
        yield None
        return
    directory = tempfile.mkdtemp(prefix="ringfence-bench-", dir=ON_DISK)
    os.chmod(directory, 0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def sh(column, text, bind=False, env=(), timeout=120):
    with place(bind) as directory:
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
def load():
    """Busy loops beside, natively."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(LOOPS)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def start(column):
    """From the start to the end of `true`."""
    begin = time.monotonic_ns()
    r = subprocess.run([*column.command(), "/bin/true"], **QUIET)
    took = time.monotonic_ns() - begin
    return (took, "") if r.returncode == 0 else (None, last(r))


INTO = 'set -e; top=$(mktemp -d "$WORK/bench.XXXXXX"); trap \'cd /; rm -rf "$top"\' EXIT; cd "$top"'


def program(column, row, env):
    r = sh(
        column,
        f"{INTO}\n{{ {row.prep or ':'}\n}} >/dev/null 2>&1\na=$(date +%s%N)\n{{ {row.run}\n}} >/dev/null\nb=$(date "
        f"+%s%N)\necho took $((b - a))",
        row.bind,
        env,
    )
    took = figures(r).get("took")
    return (took, "") if took and r.returncode == 0 else (None, last(r))


def workload(column, row, wanted):
    r = sh(column, f"{INTO}\nsh {HERE}/workloads/{row.script}.sh {' '.join(wanted)}", row.bind)
    return figures(r), "" if r.returncode == 0 else last(r)

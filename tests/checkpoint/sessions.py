"""Sessions of `do`: a sandbox that is saved after each command, and goes back to any step."""

import os, pty, random, subprocess

RF = None  # the program under test
suite = None  # the module of the runner


class Sessions:
    """In a directory of the test."""

    def __init__(self):
        self.env = {**os.environ, "XDG_STATE_HOME": RF.dir("state")}

    def __call__(self, *args, **kw):
        return RF(*args, env=self.env, **kw)

    def do(self, *args, **kw):
        return self("do", "--session", "s", *args, **kw)

    def says(self, *args, **kw):
        result = self.do(*args, **kw)
        suite.check(result.returncode, 0, result.stderr)
        return result.stdout

    def works(self, *args):
        result = self(*args)
        suite.check(result.returncode, 0, result.stderr)
        return result.stdout


def test_session():
    """Each command begins where the last one ended; undo goes back, and branch to any step."""
    rf = Sessions()
    for n in (1, 2, 3):
        result = rf.do("sh", "-c", f"echo {n} >> /opt/log; cat; exit {n}", input="in\n")
        suite.check((result.returncode, result.stdout), (n, "in\n"), result.stderr)
    suite.check(rf.says("cat", "/opt/log"), "1\n2\n3\n")
    suite.check(rf.works("undo", "s", "2"), "step 2\n")
    suite.check(rf.says("cat", "/opt/log"), "1\n2\n")
    rf.works("branch", "s", "0")
    suite.check(rf.says("sh", "-c", "ls /opt/log 2>/dev/null; pwd"), os.getcwd() + "\n")
    rf.works("branch", "s", "3")
    suite.check(rf.says("cat", "/opt/log"), "1\n2\n3\n")
    steps = [line[:9].split() for line in rf.works("session", "log", "s").splitlines()]
    want = [["0", "-"], ["1", "0"], ["2", "1"], ["3", "2"], ["4", "3"], ["5", "2"], ["6", "0"], ["*", "7", "3"]]
    suite.check(steps, want)
    for args, says in (
        (("undo", "s", "99"), "there are 4 steps to undo"),
        (("undo", "s", "0"), "0"),
        (("branch", "s", "99"), "there is no step 99"),
        (("undo", "t"), "there is no session t"),
        (("session", "log", "../s"), "is no name"),
        (("do", "--session", "s"), "CMD"),
        (("do", "--session", "s", "--from", "x", "true"), "cannot be used with"),
    ):
        suite.fails(rf(*args), says)
    suite.check(rf.works("session", "list"), "s\n")
    rf.works("session", "delete", "s")
    suite.check(rf.works("session", "list"), "")


def test_session_keeps_programs():
    """What a command leaves running goes on in the next one; what cannot be saved is refused, and nothing changes."""
    rf = Sessions()
    loop = "n=0; while :; do n=$((n+1)); echo $n > /tmp/count; sleep 0.01; done"
    rf.says("sh", "-c", f"mkdir -p /tmp; ({loop}) < /dev/null > /dev/null 2>&1 &")
    read = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; cat /tmp/count; done"
    first = [int(n) for n in rf.says("sh", "-c", read).split()]
    second = [int(n) for n in rf.says("sh", "-c", read).split()]
    assert first[0] < first[-1] <= second[0] + 1 < second[-1], (first, second)
    rf.works("undo", "s")
    again = [int(n) for n in rf.says("sh", "-c", read).split()]
    assert first[-1] <= again[0] + 1 and again[0] < second[-1], (first, second, again)
    # One that has the command's streams finds that they lead nowhere any more.
    rf.says("sh", "-c", "(trap '' PIPE; while echo on; do sleep 0.05; done; echo over > /tmp/over) 2>&1 &")
    rf.says("sh", "-c", "for i in $(seq 100); do [ -e /tmp/over ] && exit; sleep 0.05; done; exit 1")
    # set_mempolicy(MPOL_INTERLEAVE)
    policy = "import ctypes, time\nctypes.CDLL(None).syscall(238, 3, ctypes.byref(ctypes.c_ulong(1)), 64)\n"
    policy += "time.sleep(1000)"
    held = rf.do("sh", "-c", f"echo lost > /tmp/lost; python3 -c '{policy}' & sleep 1")
    suite.fails(held, "the session stays as it was", "memory policy")
    suite.check(rf.says("sh", "-c", "ls /tmp/lost 2>&1 || true").split()[0], "ls:")
    slow = rf.do("--timeout", "1", "sh", "-c", "echo lost > /tmp/lost; sleep 1000")
    suite.check(slow.returncode, 124, slow.stderr)
    suite.check(rf.says("sh", "-c", "ls /tmp/lost 2>&1 || true").split()[0], "ls:")


def test_session_on_a_terminal():
    rf = Sessions()
    rf.says("true")
    ours, theirs = pty.openpty()
    argv = RF.argv(["do", "--session", "s", "sh", "-c", "tty; read x; echo got $x > /opt/got"])
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=rf.env, start_new_session=True) as p:
        os.write(ours, b"line\r")
        shown = os.read(ours, 1000)
        suite.check(p.wait(120), 0, shown)
    suite.check(rf.says("cat", "/opt/got"), "got line\n")
    os.close(ours)
    os.close(theirs)


DIGEST = "find /opt/work -type f -exec sha256sum {} + | sort; find /opt/work -printf '%P %y %m %l\\n' | sort"
CHANGES = [
    "echo $RANDOM_ >> f$A",
    "head -c $((RANDOM_ % 100000)) /dev/urandom > f$A",
    "mkdir -p d$A && cp -a f* d$A 2>/dev/null",
    "rm -rf d$A f$B",
    "ln -sf f$A l$B",
    "ln -f f$A h$B 2>/dev/null",
    "mv f$A f$B 2>/dev/null",
    "chmod $((RANDOM_ % 8))44 f$A 2>/dev/null",
    "truncate -s $((RANDOM_ % 50000)) f$A",
    "dd if=/dev/zero of=f$A bs=1000 count=3 seek=$((RANDOM_ % 30)) conv=notrunc 2>/dev/null",
]


def test_session_undo_is_exact():
    """Random changes, undone and branched at random: a command finds the very files that the step had."""
    rf, seed = Sessions(), random.randrange(1 << 30)
    random.seed(seed)
    at = lambda: int([line for line in rf.works("session", "log", "s").splitlines() if line[0] == "*"][0].split()[1])
    rf.says("mkdir", "-p", "/opt/work")
    # What each step had at its end, and where it came from.
    found, parent = {0: None, 1: None}, {1: 0}
    head = 1
    for _ in range(30 * RF.rounds):
        change = "; ".join(random.choice(CHANGES) for _ in range(3))
        names = f"A={random.randrange(4)} B={random.randrange(4)} RANDOM_={random.randrange(1 << 20)}"
        script = f"cd /opt/work; {names}; {DIGEST}; echo ---; ({change}); {DIGEST}"
        before, after = rf.says("sh", "-c", script).split("---\n")
        if found[head] is not None:
            suite.check(before, found[head], f"seed {seed}, step {head}")
        new = at()
        found[new], parent[new], head = after, head, new
        if random.random() < 0.4:
            if random.random() < 0.5 and parent[head] > 0:
                head = parent[head]
                suite.check(rf.works("undo", "s"), f"step {head}\n")
            else:
                head = random.choice([step for step in found if step > 0])
                rf.works("branch", "s", str(head))

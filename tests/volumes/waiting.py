"""Waits for locks that others hold: woken soon, without asking, few threads, and ended by signals."""

import fcntl, os, select, signal, struct, subprocess, time

from changes import Lines
from results import need_file

PYTHON = "/usr/bin/python3"
F_OFD_SETLKW = 38

TAKE = """
import fcntl, os, signal, struct, sys, time
kind, path, how = sys.argv[1], sys.argv[2], sys.argv[3]
fd = os.open(path, os.O_RDWR)
def take(write, wait=True):
    if kind == "flock":
        return fcntl.flock(fd, (fcntl.LOCK_EX if write else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB))
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK if write else fcntl.F_RDLCK, 0, 0, 0, 0)
    number = {"posix": (6, 7), "ofd": (37, 38)}[kind][wait]
    fcntl.fcntl(fd, number, lock)
signal.signal(signal.SIGALRM, lambda *_: None)
class Alarm(Exception): pass
def ring(*_): raise Alarm
signal.signal(signal.SIGUSR1, ring)
print("ready", flush=True)
if how == "upgrade":
    take(False)
    print("shared", flush=True)
if how == "alarm":
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        take(True)
    except Alarm:
        print("interrupted", time.time(), flush=True)
else:
    take(how != "read")
    print("locked", time.time(), flush=True)
sys.stdin.read()
"""


def hold(kind, fd, write=True):
    if kind == "flock":
        fcntl.flock(fd, fcntl.LOCK_EX if write else fcntl.LOCK_SH)
    else:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK if write else fcntl.F_RDLCK, 0, 0, 0, 0)
        fcntl.fcntl(fd, F_OFD_SETLKW, lock)


def release(kind, fd):
    if kind == "flock":
        fcntl.flock(fd, fcntl.LOCK_UN)
    else:
        fcntl.fcntl(fd, F_OFD_SETLKW, struct.pack("hhqqi4x", fcntl.F_UNLCK, 0, 0, 0, 0))


class Waiting:
    """The tests, for one program under test."""

    def __init__(self, rf):
        self.rf = rf

    def start(self, kind, file, how):
        volume = os.path.dirname(file)
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process = self.rf.start("do", f"--volume={volume}:{volume}", PYTHON, "-c", TAKE, kind, file, how, **pipes)
        process.lines = Lines(process)
        assert process.lines.next() == "ready"
        return process

    def end(self, *processes):
        for process in processes:
            process.stdin.close()
            process.stdout.close()
            process.wait(20)

    def file(self):
        name = self.rf.dir("volume") + "/f"
        fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
        return name, fd

    def switches(self):
        """How often threads of the sentries have gone to sleep."""
        total = 0
        for boot in self.rf.processes("boot"):
            for task in os.listdir(f"/proc/{boot}/task"):
                text = open(f"/proc/{boot}/task/{task}/status").read()
                total += int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])
        return total

    def helpers(self):
        names = []
        for boot in self.rf.processes("boot"):
            names += [open(f"/proc/{boot}/task/{t}/comm").read() for t in os.listdir(f"/proc/{boot}/task")]
        return names.count("host-lock\n")

    def test_waiters_are_woken(self):
        """A lock that was held for long is there at once when it is free, and nothing is asked meanwhile."""
        need_file(PYTHON)
        for kind in ("flock", "posix", "ofd"):
            late = []
            for how in ("write", "read"):
                name, fd = self.file()
                hold(kind, fd)
                process = self.start(kind, name, how)
                self.rf.wait_for(lambda: self.helpers() == 1)
                time.sleep(0.5)  # where a waiter that asks would ask every 50 ms
                before = self.switches()
                time.sleep(1)
                asked = self.switches() - before
                # One that asks would do so 20 times.
                assert asked < 12, asked
                free = time.time()
                release(kind, fd)
                word, at = process.lines.next().split()
                assert word == "locked", word
                late.append(float(at) - free)
                assert self.helpers() == 0
                # The lock is held on the host.
                other = os.open(name, os.O_RDWR)
                try:
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB) if kind == "flock" else fcntl.lockf(
                        other, fcntl.LOCK_EX | fcntl.LOCK_NB
                    )
                    raise AssertionError("it is not held")
                except BlockingIOError:
                    pass
                self.end(process)
                os.close(other)
                os.close(fd)
            print(f"   {kind}: {', '.join(f'{at * 1e3:.1f} ms' for at in late)}")
            assert min(late) < 0.03 and max(late) < 5, late

    def test_a_wait_is_interrupted(self):
        """A signal and the end of the process end the wait, and the thread that helped."""
        need_file(PYTHON)
        for kind in ("flock", "posix", "ofd"):
            name, fd = self.file()
            hold(kind, fd)
            start = time.time()
            process = self.start(kind, name, "alarm")
            assert process.lines.next().startswith("interrupted")
            assert self.helpers() == 0
            release(kind, fd)
            # It has not got the lock afterwards.
            hold(kind, fd)
            waiter = self.start(kind, name, "write")
            self.rf.wait_for(lambda: self.helpers() == 1)
            self.end(process)
            waiter.send_signal(signal.SIGTERM)
            waiter.wait(10)
            self.end(waiter)
            os.close(fd)

    def test_a_lock_becomes_stronger(self):
        """A reader that waits to write among other readers: its own lock is not in its way."""
        need_file(PYTHON)
        for kind in ("posix", "ofd", "flock"):
            name, fd = self.file()
            hold(kind, fd, False)
            process = self.start(kind, name, "upgrade")
            assert process.lines.next() == "shared"
            assert not select.select([process.stdout], [], [], 0.3)[0]
            release(kind, fd)
            assert process.lines.next().startswith("locked")
            self.end(process)
            os.close(fd)

    def test_a_crowd_of_waiters(self):
        """Very many waiters in one sandbox: few threads help, and all get the lock in the end."""
        need_file(PYTHON)
        name, fd = self.file()
        hold("flock", fd)
        code = (
            "import fcntl, os, sys\n"
            "for n in range(80):\n    if not os.fork():\n        f = os.open(sys.argv[1], os.O_RDWR)\n"
            "        fcntl.flock(f, fcntl.LOCK_EX); os._exit(0)\n"
            "print('ready', flush=True)\nfor n in range(80): os.wait()\nprint('done', flush=True)\n"
        )
        volume = os.path.dirname(name)
        process = self.rf.start(
            "do", f"--volume={volume}:{volume}", PYTHON, "-c", code, name, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        lines = Lines(process)
        assert lines.next() == "ready"
        self.rf.wait_for(lambda: self.helpers() == 32)
        time.sleep(0.5)
        assert self.helpers() == 32, self.helpers()
        release("flock", fd)
        assert lines.next() == "done"
        assert self.helpers() == 0
        self.end(process)
        os.close(fd)

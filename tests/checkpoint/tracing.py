"""Kinds of objects of kinds.py: tracers and their tracees, each in another stop of ptrace(2)."""

import ctypes, os, signal, struct, threading, time

from base import call, libc, pause, same

TRACEME, PEEKTEXT, PEEKUSER, POKETEXT, POKEUSER, CONT, SINGLESTEP, ATTACH, DETACH, SYSCALL, SYSEMU = (
    0, 1, 3, 4, 6, 7, 9, 16, 17, 24, 31,
)  # fmt: skip
SETOPTIONS, GETEVENTMSG, GETSIGINFO, SEIZE, INTERRUPT, LISTEN, SYSCALL_INFO = (
    0x4200, 0x4201, 0x4202, 0x4206, 0x4207, 0x4208, 0x420E,
)  # fmt: skip
SYSGOOD, FORK, VFORK, CLONE, EXEC, VFORK_DONE, EXIT, SECCOMP, EXITKILL = 1, 2, 4, 8, 16, 32, 64, 128, 1 << 20
EVENT = {FORK: 1, VFORK: 2, CLONE: 3, EXEC: 4, VFORK_DONE: 5, EXIT: 6, SECCOMP: 7, "stop": 128}
RAX, ORIG_RAX, RIP, DEBUG = 10 * 8, 15 * 8, 16 * 8, 848
SYS_getpid, SYS_getppid, SYS_nanosleep, SYS_clock_nanosleep = 39, 110, 35, 230
WALL = 0x40000000
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def event(kind):
    return signal.SIGTRAP | EVENT[kind] << 8


class Tracee:
    """A child that runs `body`, traced by the caller, before it has begun."""

    def __init__(self, body, options=0, seized=False):
        r, w = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            if seized:
                os.close(w)
                os.read(r, 1)
            else:
                call("ptrace", TRACEME, 0, None, None)
                os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(body() or 0)
        os.close(r)
        if seized:
            self.ask(SEIZE, 0, options)
        else:
            self.stops(signal.SIGSTOP)
            self.ask(SETOPTIONS, 0, options)
        os.close(w)

    def ask(self, request, addr=0, data=0):
        ctypes.set_errno(0)
        return call("ptrace", request, self.pid, addr, data)

    def stops(self, code):
        """Waits for a stop, which must have this code."""
        status = os.waitpid(self.pid, WALL)[1]
        same((status & 0xFF, hex(status >> 8)), (0x7F, hex(code)), f"stop of {self.pid}, status {status:#x}")

    def ends(self, status):
        same(os.waitpid(self.pid, WALL)[1], status, f"end of {self.pid}")

    def at(self, offset):
        return self.ask(PEEKUSER, offset)

    def info(self):
        buffer = ctypes.create_string_buffer(128)
        self.ask(GETSIGINFO, 0, ctypes.addressof(buffer))
        return struct.unpack_from("iii", buffer)

    def message(self):
        value = ctypes.c_ulong()
        self.ask(GETEVENTMSG, 0, ctypes.addressof(value))
        return value.value

    def syscall_info(self):
        buffer = ctypes.create_string_buffer(88)
        n = self.ask(SYSCALL_INFO, 88, ctypes.addressof(buffer))
        return buffer.raw[:n]

    def enters(self, number, how=SYSCALL):
        """Goes on to the entry of this call."""
        while True:
            self.ask(how)
            self.stops(signal.SIGTRAP | 0x80)
            if self.syscall_info()[0] == 1 and self.at(ORIG_RAX) == number:
                return self

    def to(self, code, how=CONT):
        """Goes on to this stop."""
        self.ask(how)
        self.stops(code)
        return self

    def goes_on_to_end(self, status=0, sig=0):
        self.ask(CONT, 0, sig)
        self.ends(status)


def asks_parent():
    """The low bits of what getppid(2) gives."""
    return libc.getppid() & 63


def kind_traced_calls():
    """The entry and the exit of a call, which the tracer changes afterwards; one that is not made."""
    entry = Tracee(asks_parent, SYSGOOD).enters(SYS_getppid)
    unseen = Tracee(asks_parent, SYSGOOD).enters(SYS_getppid)
    unseen.ask(SYSCALL)
    over = Tracee(asks_parent, SYSGOOD).enters(SYS_getppid).to(signal.SIGTRAP | 0x80, SYSCALL)
    emulated = Tracee(asks_parent, SYSGOOD).enters(SYS_getppid, SYSEMU)
    whole = Tracee(asks_parent, SYSGOOD).enters(SYS_getppid)
    infos = [t.syscall_info() for t in (entry, over, whole)]
    time.sleep(0.1)
    pause()
    same([t.syscall_info() for t in (entry, over, whole)], infos, "PTRACE_GET_SYSCALL_INFO")
    same((infos[0][0], infos[1][0]), (1, 2))
    entry.ask(POKEUSER, ORIG_RAX, SYS_getpid)
    same(entry.to(signal.SIGTRAP | 0x80, SYSCALL).at(RAX), entry.pid, "the call of another number")
    entry.goes_on_to_end((entry.pid & 63) << 8)
    unseen.stops(signal.SIGTRAP | 0x80)
    same((unseen.syscall_info()[0], unseen.at(RAX)), (2, os.getpid()), "a stop that was not waited for")
    unseen.goes_on_to_end((os.getpid() & 63) << 8)
    over.ask(POKEUSER, RAX, 7)
    over.goes_on_to_end(7 << 8)
    emulated.ask(POKEUSER, RAX, 9)
    emulated.goes_on_to_end(9 << 8)
    same(whole.to(signal.SIGTRAP | 0x80, SYSCALL).at(RAX), os.getpid())
    whole.goes_on_to_end((os.getpid() & 63) << 8)


def kind_traced_sleep():
    """A tracee in the middle of a sleep: its tracer sees one entry and one exit, also where a signal comes between."""

    def sleeps():
        libc.usleep(400000)
        return 4

    calm, shaken = Tracee(sleeps, SYSGOOD), Tracee(sleeps, SYSGOOD)
    for t in (calm, shaken):
        while True:
            t.ask(SYSCALL)
            t.stops(signal.SIGTRAP | 0x80)
            if t.syscall_info()[0] == 1 and t.at(ORIG_RAX) in (SYS_nanosleep, SYS_clock_nanosleep):
                break
        t.ask(SYSCALL)
    time.sleep(0.1)
    pause()
    os.kill(shaken.pid, signal.SIGURG)
    calm.stops(signal.SIGTRAP | 0x80)
    same((calm.syscall_info()[0], calm.at(RAX)), (2, 0), "the exit")
    calm.goes_on_to_end(4 << 8)
    stops = []
    while True:
        status = os.waitpid(shaken.pid, WALL)[1]
        if os.WIFEXITED(status):
            break
        stop = status >> 8
        stops.append(shaken.syscall_info()[0] if stop & 0x80 else stop)
        shaken.ask(SYSCALL, 0, 0 if stop & 0x80 else stop)
    same(status, 4 << 8)
    # Exit and entry take turns, if the signal came before the end.
    calls = [stop for stop in stops if stop in (1, 2)]
    same(calls, [2 - n % 2 for n in range(len(calls))], f"{stops}")
    same(stops.count(signal.SIGURG), 1, f"{stops}")


def kind_traced_signals():
    """Before a signal is delivered: with its siginfo, and as another signal, or none."""

    def counts():
        seen = []
        for sig in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(sig, lambda sig, frame: seen.append(sig))
        os.kill(os.getpid(), signal.SIGUSR1)
        return 1 + len(seen) * 10 + (seen or [0])[0]

    first = [Tracee(counts).to(signal.SIGUSR1) for _ in range(3)]
    kills = Tracee(counts).to(signal.SIGUSR1)
    infos = [t.info() for t in first]
    pause()
    same([t.info() for t in first], infos, "siginfo")
    same(infos[0], (signal.SIGUSR1, 0, 0))
    first[0].goes_on_to_end((11 + signal.SIGUSR1) << 8, signal.SIGUSR1)
    first[1].goes_on_to_end((11 + signal.SIGUSR2) << 8, signal.SIGUSR2)
    first[2].goes_on_to_end(1 << 8)
    kills.goes_on_to_end(signal.SIGTERM, signal.SIGTERM)


def kind_traced_steps():
    """A breakpoint in shared text, a step, and a watchpoint."""
    text = ctypes.cast(libc.getppid, ctypes.c_void_p).value
    word = ctypes.c_long(1)

    def writes():
        word.value = 2
        return asks_parent()

    broken = Tracee(writes)
    own = broken.ask(PEEKTEXT, text)
    broken.ask(POKETEXT, text, own & ~0xFF | 0xCC)
    broken.to(signal.SIGTRAP)
    stepping = Tracee(writes)
    for _ in range(5):
        stepping.to(signal.SIGTRAP, SINGLESTEP)
    at = stepping.at(RIP)
    watching = Tracee(writes)
    watching.ask(POKEUSER, DEBUG, ctypes.addressof(word))
    watching.ask(POKEUSER, DEBUG + 7 * 8, 0x9_0001)
    pause()
    same((broken.at(RIP), broken.ask(PEEKTEXT, text) & 0xFF), (text + 1, 0xCC), "at the breakpoint")
    broken.ask(POKETEXT, text, own)
    broken.ask(POKEUSER, RIP, text)
    broken.to(signal.SIGTRAP, SINGLESTEP)
    same(broken.at(RIP) > text, True)
    broken.goes_on_to_end((os.getpid() & 63) << 8)
    same(stepping.at(RIP), at)
    for _ in range(5):
        stepping.to(signal.SIGTRAP, SINGLESTEP)
    stepping.goes_on_to_end((os.getpid() & 63) << 8)
    same(watching.at(DEBUG + 7 * 8), 0x9_0001)
    watching.to(signal.SIGTRAP)
    same((watching.info()[2], watching.at(DEBUG + 6 * 8) & 15), (4, 1), "the watchpoint")
    watching.ask(POKEUSER, DEBUG + 7 * 8, 0)
    watching.goes_on_to_end((os.getpid() & 63) << 8)


class Known(Tracee):
    def __init__(self, pid):
        self.pid = pid


def forks():
    child = os.fork()
    if child == 0:
        os._exit(3)
    return os.waitpid(child, 0)[1] >> 8


def runs():
    os.execv("/bin/true", ["true"])


def kind_traced_events():
    """The events of fork(2), execve(2), the end, and vfork(2), with their messages and what comes then."""
    forking = Tracee(forks, FORK).to(event(FORK))
    child = Known(forking.message())
    child.stops(signal.SIGSTOP)
    running = Tracee(runs, EXEC).to(event(EXEC))
    ending = Tracee(lambda: 6, EXIT).to(event(EXIT))
    r, w = os.pipe()

    def thread_ends_first():
        threading.Thread(target=lambda: None).start()
        os.read(r, 1)

    threads = Tracee(thread_ends_first, CLONE | EXIT).to(event(CLONE))
    thread = Known(threads.message())
    thread.stops(signal.SIGSTOP)
    told = [t.message() for t in (forking, running, ending, threads)]
    pause()
    same([t.message() for t in (forking, running, ending, threads)], told, "PTRACE_GETEVENTMSG")
    same(told[1:3], [running.pid, 6 << 8])
    child.goes_on_to_end(3 << 8)
    # Its tracer has seen the end; its parent has not.
    forking.ask(CONT)
    forking.stops(signal.SIGCHLD)
    forking.goes_on_to_end(3 << 8, signal.SIGCHLD)
    running.goes_on_to_end(0)
    ending.goes_on_to_end(6 << 8)
    # They share a lock of the interpreter.
    threads.ask(CONT)
    thread.to(event(EXIT)).goes_on_to_end(0)
    os.write(w, b"1")
    threads.stops(event(EXIT))
    threads.goes_on_to_end(0)


def plain_vfork():
    return os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1]


def kind_traced_vfork():
    """Before a parent waits in vfork(2), while it does, and when it has."""
    options = VFORK | VFORK_DONE
    before = Tracee(plain_vfork, options).to(event(VFORK))
    waits = Tracee(plain_vfork, options).to(event(VFORK))
    after = Tracee(plain_vfork, options).to(event(VFORK))
    children = [Known(t.message()) for t in (before, waits, after)]
    waits.ask(CONT)
    for child in children:
        child.stops(signal.SIGSTOP)
    after.ask(CONT)
    children[2].to(signal.SIGTRAP).ask(CONT)
    after.stops(event(VFORK_DONE))
    pause()
    before.ask(CONT)
    for child in children[:2]:
        child.to(signal.SIGTRAP).ask(CONT)
    for t in (before, waits):
        t.stops(event(VFORK_DONE))
    for t, child in zip((before, waits, after), children):
        same(t.message(), child.pid)
        child.ends(0)
        t.to(signal.SIGCHLD)
        t.goes_on_to_end(0, signal.SIGCHLD)


def kind_traced_stops():
    """Group stops of seized and of attached tracees, one that listens, one that was interrupted, an attached one."""

    def waits():
        got = []
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.signal(signal.SIGUSR2, lambda *_: got.append(1))
        os.kill(os.getpid(), signal.SIGUSR1)
        while not got:
            time.sleep(0.01)
        return 8

    def stopped(seized):
        t = Tracee(waits, seized=seized)
        t.stops(signal.SIGUSR1) if seized else t.to(signal.SIGUSR1)
        t.ask(CONT, 0, signal.SIGUSR1)
        os.kill(t.pid, signal.SIGSTOP)
        t.stops(signal.SIGSTOP)
        t.ask(CONT, 0, signal.SIGSTOP)
        t.stops(signal.SIGSTOP | (EVENT["stop"] << 8 if seized else 0))
        return t

    def continued(t):
        code = None
        while code != signal.SIGCONT:
            t.ask(CONT)
            code = os.waitpid(t.pid, WALL)[1] >> 8
            same(code in (signal.SIGCONT, event("stop")), True, f"a stop with {code:#x}")
        t.ask(CONT, 0, signal.SIGCONT)

    held, listening, attached = stopped(True), stopped(True), stopped(False)
    listening.ask(LISTEN)
    interrupted = Tracee(waits, seized=True)
    interrupted.stops(signal.SIGUSR1)
    interrupted.ask(CONT, 0, signal.SIGUSR1)
    interrupted.ask(INTERRUPT)
    interrupted.stops(event("stop"))
    pause()
    os.kill(listening.pid, signal.SIGCONT)
    listening.stops(event("stop"))
    continued(listening)
    same(held.info(), (signal.SIGSTOP, 0, event("stop") & ~0xFF | signal.SIGSTOP))
    for t in (held, interrupted, attached):
        os.kill(t.pid, signal.SIGCONT)
        continued(t)
    for t in (held, listening, attached, interrupted):
        os.kill(t.pid, signal.SIGUSR2)
        t.stops(signal.SIGUSR2)
        t.goes_on_to_end(8 << 8, signal.SIGUSR2)


def kind_traced_filter():
    """A filter that asks the tracer: the call is made once, with another number."""

    def filtered():
        load, equal, ret = 0x20, 0x15, 0x06
        code = [(load, 0, 0, 0), (equal, 0, 1, SYS_getppid), (ret, 0, 0, 0x7FF00000 | 33), (ret, 0, 0, 0x7FFF0000)]
        program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *i) for i in code))
        call("prctl", 38, 1, 0, 0, 0)
        call("prctl", 22, 2, struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program)), 0, 0)
        return asks_parent()

    t, unmade = (Tracee(filtered, SECCOMP).to(event(SECCOMP)) for _ in range(2))
    pause()
    same((t.message(), t.at(ORIG_RAX)), (33, SYS_getppid))
    t.ask(POKEUSER, ORIG_RAX, SYS_getpid)
    t.goes_on_to_end((t.pid & 63) << 8)
    unmade.ask(POKEUSER, ORIG_RAX, 2**64 - 1)
    unmade.ask(POKEUSER, RAX, 12)
    unmade.goes_on_to_end(12 << 8)


def kind_traced_end():
    """A tracee that has ended and was not waited for; one that dies with its tracer."""
    ended = Tracee(lambda: 2)
    ended.ask(CONT)
    r, w = os.pipe()
    tracer = os.fork()
    if tracer == 0:
        victim = Tracee(signal.pause, EXITKILL, seized=True)
        os.write(w, struct.pack("i", victim.pid))
        signal.pause()
    victim = struct.unpack("i", os.read(r, 4))[0]
    time.sleep(0.1)
    pause()
    ended.ends(2 << 8)
    with open(f"/proc/{victim}/status") as f:
        same([line.split()[1] for line in f if line.startswith("TracerPid")], [str(tracer)])
    os.kill(tracer, signal.SIGKILL)
    same(os.waitpid(tracer, 0)[1], signal.SIGKILL)
    end = time.monotonic() + 20
    while os.path.exists(f"/proc/{victim}") and time.monotonic() < end:
        with open(f"/proc/{victim}/stat") as f:
            if f.read().rsplit(")")[1].split()[0] == "Z":
                return
        time.sleep(0.01)
    same(os.path.exists(f"/proc/{victim}"), False, "the victim")


def kind_files_of_processes():
    """Open files of /proc that show memory: one's own, and that of a child."""
    word = ctypes.create_string_buffer(b"mine")
    at = ctypes.addressof(word)
    r, w = os.pipe()
    child = os.fork()
    if child == 0:
        word.value = b"your"
        os.read(r, 1)
        os._exit(0 if word.value == b"ours" else 1)
    own, others = (os.open(f"/proc/{pid}/mem", os.O_RDWR) for pid in ("self", child))
    thread = os.open(f"/proc/self/task/{os.getpid()}/mem", os.O_RDONLY)
    shown = [os.open(f"/proc/{child}/{name}", os.O_RDONLY) for name in ("maps", "environ", "stat", "task")]
    time.sleep(0.05)
    pause()
    same([os.pread(fd, 4, at) for fd in (own, others, thread)], [b"mine", b"your", b"mine"])
    os.pwrite(others, b"ours", at)
    same([len(os.read(fd, 100)) > 0 for fd in shown[:3]], [True] * 3, "what is shown")
    same(os.listdir(shown[3]), [str(child)])
    os.write(w, b"x")
    same(os.waitpid(child, 0)[1], 0, "the child")

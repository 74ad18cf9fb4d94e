"""Programs inside are told what others change on a volume: inotify(7) and programs that rely on it."""

import os, select, shutil, signal, subprocess, time

from results import need, need_file, need_programs, need_root

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"
# In which time an event is due on a machine with nothing else to do; and on one that is busy.
DUE, BUSY = 0.05, 5

# What the host does: a line is a step of its own, and {d} is the directory.
STEPS = """
echo one >{d}/f
echo two >>{d}/f
chmod 600 {d}/f
mv {d}/f {d}/g
mv {d}/g {d}/sub/g
mv {d}/sub/g {d}/f
ln {d}/f {d}/second
rm {d}/second
mkdir {d}/new
mv {d}/new {d}/newer
rmdir {d}/newer
mkdir {d}/one; ln -s one {d}/..data
mkdir {d}/two; ln -s two {d}/..data_tmp; mv -T {d}/..data_tmp {d}/..data; rm -r {d}/one
truncate -s 100 {d}/file
echo more >>{d}/file
mv {d}/file {d}/file2
rm {d}/file2
echo x >{d}/sub/x; rm {d}/sub/x
mv {d}/sub {d}/sub2
rmdir {d}/sub2
"""


def check(got, want, what=""):
    assert got == want, f"{what}: expected {want!r}, got {got!r}"


class Lines:
    """What a process says, line by line; several lines may come at once."""

    def __init__(self, process):
        self.fd, self.rest = process.stdout.fileno(), b""

    def next(self, timeout=120):
        while b"\n" not in self.rest:
            assert select.select([self.fd], [], [], timeout)[0], "no line within the time"
            data = os.read(self.fd, 65536)
            if not data:
                return None
            self.rest += data
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()


class Watcher:
    """watcher.py on the host or in a sandbox."""

    def __init__(self, rf, argv, paths, *flags):
        command = [PYTHON, HERE + "/watcher.py", *paths]
        pipes = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if argv is None:
            self.process = subprocess.Popen(command, text=True, bufsize=1, **pipes)
        else:
            self.process = rf.start(*flags, "do", *argv, *command, **pipes)
        self.lines = Lines(self.process)
        check(self.lines.next(), "ready")

    def until(self, name):
        """The events up to that of the removal of `name`, each with the time at which it was read."""
        events = []
        while True:
            *event, at = self.lines.next().split()
            if event[1] == "DELETE" and event[3] == name:
                return events
            if event[3] != name:
                events.append((" ".join(event), float(at)))

    def end(self):
        self.process.kill()
        self.process.stdout.close()
        self.process.wait(20)


def place(rf):
    d = rf.dir("watched")
    os.mkdir(d + "/sub")
    with open(d + "/file", "w") as f:
        f.write("x\n")
    return d, [d, d + "/file", d + "/sub"]


def step(script, name, watchers):
    """Runs a script on the host; what each watcher is told."""
    subprocess.run(["sh", "-ec", script], check=True)
    # The end of the step is an event as well. It is one of a second process, so it comes last.
    subprocess.run(["sh", "-ec", f"echo >{name}; rm {name}"], check=True)
    return [watcher.until(os.path.basename(name)) for watcher in watchers]


class Changes:
    """The tests, for one program under test."""

    def __init__(self, rf):
        self.rf = rf

    def inside(self, d, paths, *flags):
        return Watcher(self.rf, [f"--volume={d}:{d}"], paths, *flags)

    def test_what_the_host_changes_is_told(self):
        """The same events as a watcher of the host gets, and soon; twice, as what is cached must not matter."""
        need_file(PYTHON)
        for cached in (False, True):
            d, paths = place(self.rf)
            native = Watcher(self.rf, None, paths)
            script = f"for i in 1 2 3 4 5 6; do ls -lR {d}; cat {d}/file {d}/none; done >/dev/null 2>&1; exec $*"
            warm = ["sh", "-c", script.replace("$*", '"$@"'), "sh"] if cached else []
            inside = Watcher(self.rf, [f"--volume={d}:{d}", *warm], paths)
            try:
                late = []
                for n, line in enumerate(STEPS.strip().splitlines()):
                    script = line.format(d=d)
                    theirs, ours = step(script, f"{d}/end-{n}", [native, inside])
                    check([e for e, _ in ours], [e for e, _ in theirs], script)
                    late += [b - a for (_, a), (_, b) in zip(theirs, ours)]
                late.sort()
                print(
                    f"   {len(late)} events, {late[len(late) // 2] * 1e3:.1f} ms later, {late[-1] * 1e3:.1f} ms at most"
                )
                assert late[len(late) // 2] < DUE and late[-1] < BUSY, late
            finally:
                native.end()
                inside.end()

    def test_direct_root(self):
        """The same for a root that is written directly, of which names and attributes are kept longer."""
        need_file(PYTHON)
        d, paths = place(self.rf)
        dir = self.rf.bundle(PYTHON, HERE + "/watcher.py", *paths)
        self.rf.edit(dir, lambda c: c["root"].update(path="/", readonly=False))
        native = Watcher(self.rf, None, paths)
        inside = Watcher.__new__(Watcher)
        inside.process = self.rf.start("run", "--bundle", dir, "watched", stdout=subprocess.PIPE)
        inside.lines = Lines(inside.process)
        try:
            check(inside.lines.next(), "ready")
            for n, line in enumerate(STEPS.strip().splitlines()):
                script = line.format(d=d)
                theirs, ours = step(script, f"{d}/end-{n}", [native, inside])
                check([e for e, _ in ours], [e for e, _ in theirs], script)
        finally:
            native.end()
            self.rf("kill", "watched", "KILL")
            inside.end()

    def test_what_a_program_finds_after_an_event(self):
        """A program that looks after an event sees what it was about, also where names and attributes are kept."""
        need_file(PYTHON)
        d = self.rf.dir("watched")
        code = (
            "import ctypes, os, sys\n"
            "libc = ctypes.CDLL(None); fd = libc.inotify_init1(0)\n"
            f"d = {d!r}\n"
            "libc.inotify_add_watch(fd, d.encode(), 0x108)\n"
            "for n in range(20):\n"
            "    [os.path.exists(f'{d}/{m}') for m in range(n, n + 8)]; os.listdir(d)\n"
            "    print('ready', flush=True)\n"
            "    while not os.read(fd, 4096).rstrip(b'\\0').endswith(str(n).encode()): pass\n"
            "    print(open(f'{d}/{n}').read(), os.path.getsize(f'{d}/{n}'), str(n) in os.listdir(d), flush=True)\n"
        )
        dir = self.rf.bundle(PYTHON, "-c", code)
        self.rf.edit(dir, lambda c: c["root"].update(path="/", readonly=False))
        for start in (["do", f"--volume={d}:{d}", PYTHON, "-c", code], ["run", "--bundle", dir, "watched"]):
            process = self.rf.start(*start, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            lines = Lines(process)
            for n in range(20):
                check(lines.next(), "ready")
                subprocess.run(["sh", "-c", f"printf text-{n} >{d}/tmp; mv {d}/tmp {d}/{n}; : >>{d}/{n}"], check=True)
                # The event may be that of the name before.
                check(lines.next(), f"text-{n} {5 + len(str(n))} True")
            check(process.wait(20), 0)
            for n in range(20):
                os.unlink(f"{d}/{n}")

    def test_own_changes_are_told_once(self):
        """A program that changes what it watches gets each event once, as natively."""
        need_file(PYTHON)
        script = (
            "echo a >{d}/f; echo b >>{d}/f; mv {d}/f {d}/g; chmod 600 {d}/g; rm {d}/g; mkdir {d}/n; rmdir {d}/n;"
            "echo x >>{d}/file; rm {d}/file; rmdir {d}/sub"
        )
        told = []
        for argv in (None, ["--volume={d}:{d}"]):
            d, paths = place(self.rf)
            shell = (
                f"mkfifo /tmp/fifo-$$; {PYTHON} {HERE}/watcher.py {' '.join(paths)} >/tmp/fifo-$$ & "
                "exec 3</tmp/fifo-$$; "
                f"read x <&3; {script.format(d=d)}; echo >{d}/end; rm {d}/end; "
                "sleep 0.5; kill $!; cat <&3; rm /tmp/fifo-$$"
            )
            if argv is None:
                done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
            else:
                done = self.rf("do", *[a.format(d=d) for a in argv], "bash", "-c", shell)
            told.append([" ".join(line.split()[:4]) for line in done.stdout.splitlines()])
        assert len(told[0]) > 20, told
        # Equal events one after the other are one, and how many writes that are depends on the time.
        check(told[1], told[0])

    def test_two_sandboxes_and_two_volumes(self):
        """What one sandbox changes another one is told; a volume that is read-only, too."""
        need_file(PYTHON)
        d, paths = place(self.rf)
        native = Watcher(self.rf, None, paths)
        readonly = Watcher(self.rf, [f"--volume={d}:{d}:ro"], paths)
        try:
            for n, line in enumerate(STEPS.strip().splitlines()):
                script = f"{line.format(d=d)}; echo >{d}/end-{n}; rm {d}/end-{n}"
                done = self.rf("do", f"--volume={d}:{d}", "sh", "-ec", script)
                check((done.returncode, done.stderr), (0, ""), script)
                theirs, ours = [w.until(f"end-{n}") for w in (native, readonly)]
                check([e for e, _ in ours], [e for e, _ in theirs], script)
        finally:
            native.end()
            readonly.end()

    def test_a_flood_is_bounded(self):
        """A process of the host that changes very much: the watcher is told that events are lost, and goes on."""
        need_file(PYTHON)
        d = self.rf.dir("watched")
        inside = self.inside(d, [d])
        try:
            boot = self.rf.processes("boot")[0]
            memory = lambda: int(open(f"/proc/{boot}/statm").read().split()[1]) * 4096  # noqa: E731
            os.kill(boot, signal.SIGSTOP)
            subprocess.run(
                [
                    PYTHON,
                    "-c",
                    f"import os\nos.chdir({d!r})\nopen('0', 'w')\n"
                    "[os.rename(str(n), str(n + 1)) for n in range(100000)]",
                ],
                check=True,
            )
            before = memory()
            os.kill(boot, signal.SIGCONT)
            while "Q_OVERFLOW" not in inside.lines.next():
                pass
            assert memory() - before < 64 << 20, memory() - before
            subprocess.run(["sh", "-c", f"echo >{d}/after; rm {d}/after"], check=True)
            inside.until("after")
        finally:
            inside.end()

    def test_threads_only_while_there_are_watches(self):
        """The sentry has one thread more while a program watches, and none before and after."""
        need_file(PYTHON)
        d = self.rf.dir("watched")
        code = (
            "import ctypes, sys\nlibc = ctypes.CDLL(None); fd = libc.inotify_init1(0); print('ready', flush=True)\n"
            f"for line in sys.stdin:\n    wd = libc.inotify_add_watch(fd, {d.encode()!r}, 0x100) if line == 'add\\n' "
            "else libc.inotify_rm_watch(fd, wd)\n    print(wd, flush=True)\n"
        )
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process = self.rf.start("do", f"--volume={d}:{d}", PYTHON, "-c", code, **pipes)

        check(self.rf.line(process), "ready\n")

        def threads():
            boot = self.rf.processes("boot")[0]
            names = [name_of(f"/proc/{boot}/task/{t}/comm") for t in os.listdir(f"/proc/{boot}/task")]
            return names.count("host-watch\n")

        def name_of(thread):
            try:
                with open(thread) as f:
                    return f.read()
            except OSError:
                # It has ended meanwhile.
                return ""

        def tell(what):
            process.stdin.write(what + "\n")
            process.stdin.flush()
            return self.rf.line(process)

        for _ in range(3):
            self.rf.wait_for(lambda: threads() == 0, BUSY)
            tell("add")
            check(threads(), 1)
            tell("remove")
        self.rf.wait_for(lambda: threads() == 0, BUSY)
        process.stdin.close()
        process.stdout.close()
        check(process.wait(20), 0)

    def lines(self, command, volume, changes):
        """Starts a program inside; for each pair of a change by the host and a text, waits for a line with it."""
        pipes = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        process = self.rf.start("do", f"--volume={volume}:{volume}", *command, **pipes)
        lines = Lines(process)
        try:
            for script, text in changes:
                if script:
                    subprocess.run(["sh", "-ec", script], check=True)
                while text not in (lines.next(60) or ""):
                    assert process.poll() is None, f"{command} has ended before {text!r}"
        finally:
            process.kill()
            process.stdout.close()
            process.wait(20)

    def test_tail(self):
        """tail -f and -F by inotify: without it, tail would look once a second."""
        d, _ = place(self.rf)
        follow = [(f"echo line-{n} >>{d}/file", f"line-{n}") for n in range(20)]
        for flag in ("-f", "-F"):
            start = time.time()
            turned = [(f"mv {d}/file {d}/old; echo turned >{d}/file", "turned")] if flag == "-F" else []
            self.lines(["tail", "-n", "+1", flag, d + "/file"], d, [("", "x"), *follow, *turned])
            print(f"   tail {flag}: {(time.time() - start) / 20 * 1e3:.0f} ms for a line")

    def test_inotifywait(self):
        need_programs("inotifywait")
        d, _ = place(self.rf)
        changes = [
            (f"sleep 1; echo >{d}/a", f"{d}/ CREATE a"),
            ("", f"{d}/ CLOSE_WRITE,CLOSE a"),
            (f"mkdir {d}/deep", f"{d}/ CREATE,ISDIR deep"),
            (f"sleep 0.5; echo >{d}/deep/b", f"{d}/deep/ CREATE b"),
            (f"mv {d}/deep/b {d}/sub/c", f"{d}/deep/ MOVED_FROM b"),
            ("", f"{d}/sub/ MOVED_TO c"),
            (f"rm -r {d}/deep", f"{d}/ DELETE,ISDIR deep"),
        ]
        self.lines(["inotifywait", "-m", "-r", d], d, changes)

    def test_kubernetes_config_map(self):
        """An update of a ConfigMap: a new directory, and a link to it that takes the place of the old one."""
        need_file(PYTHON)
        d = self.rf.dir("config")
        os.mkdir(d + "/..1")
        for name, text in (("/..1/key", "one"),):
            with open(d + name, "w") as f:
                f.write(text)
        os.symlink("..1", d + "/..data")
        os.symlink("..data/key", d + "/key")
        code = (
            "import ctypes, os\nlibc = ctypes.CDLL(None); fd = libc.inotify_init1(0)\n"
            f"libc.inotify_add_watch(fd, {d.encode()!r}, 0x180)\n"
            f"while True:\n    print(open({d + '/key'!r}).read(), flush=True)\n"
            "    while b'..data\\0' not in os.read(fd, 4096): pass\n"
        )
        swap = "mkdir {d}/..{n}; echo {v} >{d}/..{n}/key; ln -s ..{n} {d}/..data_tmp; mv -T {d}/..data_tmp {d}/..data"
        changes = [
            (swap.format(d=d, n=n, v=f"value-{n}") + f"; rm -r {d}/..{n - 1}", f"value-{n}") for n in range(2, 12)
        ]
        self.lines([PYTHON, "-c", code], d, [("", "one"), *changes])

    def test_node(self):
        need_programs("node")
        d, _ = place(self.rf)
        code = (
            f"require('fs').watch({d!r}, (what, name) => console.log(what, name)); console.log('ready');"
            "setInterval(() => {}, 1e6)"
        )
        changes = [
            ("", "ready"),
            (f"echo >{d}/new.js", "rename new.js"),
            (f"echo x >>{d}/file", "change file"),
            (f"mv {d}/file {d}/moved", "rename moved"),
        ]
        self.lines(["node", "-e", code], d, changes)

    def test_fanotify(self):
        """A group of fanotify(7) with marks on a directory and a file, natively and inside."""
        need_root()
        d, other = self.rf.dir("marked"), self.rf.dir("other")
        for file in (d + "/there", other + "/single", other + "/unmarked"):
            with open(file, "w") as f:
                f.write("old\n")
        command = [PYTHON, HERE + "/marker.py", d, other + "/single"]
        inside = ("do", f"--volume={d}:{d}", f"--volume={other}:{other}", *command)
        pipes = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        processes = [subprocess.Popen(command, **pipes), self.rf.start(*inside, **pipes)]
        watchers = [Lines(process) for process in processes]
        try:
            for watcher in watchers:
                check(watcher.next(), "ready")
            for n, file in enumerate((d + "/there", d + "/new", other + "/single")):
                subprocess.run(["sh", "-ec", f"echo x >{other}/unmarked; echo {n} >{file}"], check=True)
                for at, watcher in enumerate(watchers):
                    told = set()
                    while "CLOSE_WRITE" not in told:
                        what, path, text = watcher.next(10).split(" ")
                        check(path, file, f"program {at}")
                        told |= set(what.split("|"))
                    # The first event may have been read before the file was written.
                    check(text, str(n), f"program {at}")
                    check(told, {"MODIFY", "CLOSE_WRITE"}, f"program {at}")
            subprocess.run(["sh", "-ec", f"rm {d}/there; mv {d}/new {d}/newer; echo more >{d}/newer"], check=True)
            for watcher in watchers:
                while not watcher.next(10).endswith(f" {d}/newer more"):
                    pass
        finally:
            for process in processes:
                process.kill()
                process.stdout.close()
                process.wait(20)

    def test_nodemon(self):
        """nodemon starts a server anew when one of its files changes."""
        need_programs("npm", "node")
        d, _ = place(self.rf)
        tools = self.rf.dir("nodemon")
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", tools, "nodemon@3"]
        r = subprocess.run(command, capture_output=True, text=True, timeout=120)
        need(r.returncode == 0, "npm has no nodemon")
        with open(d + "/server.js", "w") as f:
            f.write("console.log('port', require('./port.json').port); setInterval(() => {}, 1e6)\n")
        ports = [(f"echo '{{\"port\":{n}}}' >{d}/port.json", f"port {n}") for n in (81, 82, 83)]
        nodemon = f"{tools}/node_modules/.bin/nodemon --ext js,json server.js"
        program = f"cd {d}; echo '{{\"port\":80}}' >port.json; exec {nodemon}"
        self.lines(["sh", "-c", program], d, [("", "port 80"), *ports])

    def test_watchman(self):
        """watchman, a server that watches trees for build tools, and entr, which runs a command after a change."""
        need_programs("watchman", "entr")
        d, _ = place(self.rf)
        query = f'["subscribe", "{d}", "all", {{"expression": ["type", "f"], "fields": ["name", "exists"]}}]'
        program = (
            f"export HOME=/tmp; watchman watch {d} && {{ echo '{query}'; exec sleep 1000; }} |"
            " watchman --persistent --json-command --no-pretty"
        )
        changes = [
            ("", '"subscribe":"all"'),
            (f"echo >{d}/sub/a", '"name":"sub/a"'),
            (f"mkdir {d}/deep; echo >{d}/deep/b", '"name":"deep/b"'),
            (f"mv {d}/deep {d}/deeper", '"name":"deeper/b"'),
        ]
        self.lines(["sh", "-c", program], d, changes)
        program = f"find {d} -type f | entr -n sh -c 'cat {d}/file; echo seen'"
        self.lines(["sh", "-c", program], d, [("", "seen"), (f"sleep 1; echo second >{d}/file", "second")])

    def test_watchdog(self):
        """Python's watchdog, as development servers use it."""
        # Debian's, which has its package.
        python = "/usr/bin/python3"
        need(
            subprocess.run([python, "-c", "import watchdog.observers"], capture_output=True).returncode == 0,
            "python3 has no watchdog",
        )
        d, _ = place(self.rf)
        code = (
            "import time\nfrom watchdog.observers.inotify import InotifyObserver as Observer\n"
            "from watchdog.events import FileSystemEventHandler as Handler\n"
            "class Told(Handler):\n    def on_any_event(self, e):\n"
            "        print(e.event_type, e.src_path, getattr(e, 'dest_path', ''), flush=True)\n"
            f"o = Observer(); o.schedule(Told(), {d!r}, recursive=True); o.start(); print('ready', flush=True)\n"
            "while True: time.sleep(100)\n"
        )
        changes = [
            ("", "ready"),
            (f"echo >{d}/a", f"created {d}/a"),
            ("", f"closed {d}/a"),
            (f"mv {d}/a {d}/sub/b", f"moved {d}/a {d}/sub/b"),
            (f"mkdir {d}/deep; sleep 0.5; echo >{d}/deep/c", f"created {d}/deep/c"),
            (f"rm {d}/deep/c", f"deleted {d}/deep/c"),
        ]
        self.lines([python, "-c", code], d, changes)

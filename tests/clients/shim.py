"""containerd's shim of our own: what the checks of ctr do not cover."""

import fcntl, glob, itertools, json, os, re, signal, socket, struct, subprocess, termios, time

from common import Failure, call, check, has, on_terminal, wait_for

IMAGE = "docker.io/library/img:latest"
STATE = "/run/containerd/ringfence/default"


class Events:
    """`ctr events` while it is in use."""

    def __init__(self, c):
        self.client, self.log = c, f"{c.stage.dir}/events-{c.name()}"
        self.process = subprocess.Popen(
            [*c.base, "events"], stdin=subprocess.DEVNULL, stdout=open(self.log, "w"), stderr=subprocess.DEVNULL
        )

    def __enter__(self):
        # It says nothing when it is ready: events are made until it shows one.
        label = lambda: self.client("namespaces", "label", "default", f"at={time.time()}")
        wait_for(lambda: (label(), os.path.getsize(self.log))[1] > 0, what="an event of our own")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def of(self, name):
        """(topic, event) of a container, without those of containerd itself."""
        found = []
        for line in open(self.log):
            m = re.match(r".* (/tasks/\S+) (\{.*\})$", line.strip())
            if m and json.loads(m[2]).get("container_id") == name:
                found.append((m[1].removeprefix("/tasks/"), json.loads(m[2])))
        return found

    def topics(self, name):
        return [topic for topic, _ in self.of(name)]


def bundle(c, name):
    return f"{c.stage.dir}/containerd/state/io.containerd.runtime.v2.task/default/{name}"


def pid_of_shim(c, name):
    return int(open(f"{bundle(c, name)}/shim.pid").read())


def background(c, *args, flags=()):
    name = c.name()
    c.ok(*c.run_args("-d", *flags, IMAGE, name, *args))
    return name


def remove(c, name):
    c("task", "kill", "-s", "SIGKILL", name)
    wait_for(lambda: c("task", "rm", name).status == 0 or name not in c.ok("task", "ls"))
    c.ok("container", "rm", name)


def number(field, n):
    """A protobuf field: a number or bytes."""

    def varint(n):
        out = b""
        while n > 127:
            out, n = out + bytes([n & 127 | 128]), n >> 7
        return out + bytes([n])

    if isinstance(n, int):
        return varint(field << 3) + varint(n)
    data = n if isinstance(n, bytes) else n.encode()
    return varint(field << 3 | 2) + varint(len(data)) + data


def request(c, name, method, payload, service="containerd.task.v2.Task"):
    """One call of the task API, past containerd. Gives the answer's bytes, of which the status is a part."""
    address = open(f"{bundle(c, name)}/address").read().removeprefix("unix://")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(20)
        s.connect(address)
        body = number(1, service) + number(2, method) + number(3, payload)
        s.sendall(struct.pack(">IIBB", len(body), 1, 1, 0) + body)
        data = b""
        while len(data) < 10 or len(data) < 10 + struct.unpack(">I", data[:4])[0]:
            more = s.recv(65536)
            if not more:
                raise Failure(f"{method}: the shim hung up")
            data += more
        return data[10:]


def shim_status(c):
    for status in (0, 3, 255):
        check(c(*c.run_args("--rm", IMAGE, c.name(), "sh", "-c", f"exit {status}")).status, status)
    r = c(*c.run_args("--rm", IMAGE, c.name(), "sh", "-c", "echo out; echo err >&2"))
    check((r.out, r.err), ("out\n", "err\n"))


def shim_stdin(c):
    r = c(*c.run_args("--rm", IMAGE, c.name(), "wc", "-c"), input="x" * 300000)
    check(r.out.strip(), "300000", r.err)


def shim_output(c):
    r = c(
        *c.run_args("--rm", IMAGE, c.name(), "sh", "-c", "dd if=/dev/zero bs=1000 count=3000 2>/dev/null | tr '\\0' x")
    )
    check((len(r.out), r.status), (3000000, 0), r.err)


def shim_quick(c):
    # The end may come before the start is known.
    with Events(c) as events:
        name = background(c, "sleep", "100")
        for i in range(8):
            r = c("task", "exec", "--exec-id", f"q{i}", name, "sh", "-c", f"exit {i}")
            check(r.status, i, r.err)
        r = c("task", "exec", "--exec-id", "bad", name, "nosuch")
        has(r.err, "executable file not found in $PATH")
        remove(c, name)
        names = [c.name() for _ in range(8)]
        for i, n in enumerate(names):
            check(c(*c.run_args("--rm", IMAGE, n, "sh", "-c", f"exit {i}")).status, i)
        for n in names:
            check(events.topics(n), ["create", "start", "exit", "delete"])
        ends = sorted(e["id"] for topic, e in events.of(name) if topic == "exit")
        check(ends, sorted([name, *[f"q{i}" for i in range(8)]]))


def shim_events(c):
    with Events(c) as events:
        name = background(c, "sh", "-c", "trap 'exit 3' TERM; while :; do sleep 0.1; done")
        c.ok("task", "exec", "--exec-id", "e", name, "true")
        c.ok("task", "pause", name)
        c.ok("task", "resume", name)
        c.ok("task", "kill", name)
        wait_for(lambda: "STOPPED" in c.ok("task", "ls"))
        c("task", "rm", name)
        c.ok("container", "rm", name)
        wait_for(lambda: "delete" in events.topics(name))
        check(
            events.topics(name),
            ["create", "start", "exec-added", "exec-started", "exit", "paused", "resumed", "exit", "delete"],
        )
        exits = [e for topic, e in events.of(name) if topic in ("exit", "delete")]
        check([e.get("exit_status", 0) for e in exits], [0, 3, 3])


def shim_exec(c):
    name = background(c, "sleep", "100")
    check(c("task", "exec", "--exec-id", "cat", name, "cat", input="abc").out, "abc")
    out, status = on_terminal(
        [*c.base, "task", "exec", "-t", "--exec-id", "t", name, "sh", "-c", "tty; read x; echo got:$x; exit 6"],
        [("/dev/pts", b"abc\r")],
    )
    has(out, "got:abc")
    check(status, 6)
    # A process is killed alone.
    p = subprocess.Popen([*c.base, "task", "exec", "--exec-id", "k", name, "sleep", "100"], stdin=subprocess.DEVNULL)
    wait_for(lambda: c("task", "kill", "-s", "SIGKILL", "--exec-id", "k", name).status == 0)
    check(p.wait(20), 137)
    has(c.ok("task", "ls"), "RUNNING")
    check(glob.glob(f"{bundle(c, name)}/exec-*"), [])
    remove(c, name)


def shim_size(c):
    def resize(fd):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", 31, next(widths), 0, 0))

    # ctr heeds the size some time after the program's start, so the size changes until the program sees it.
    widths = itertools.cycle((96, 97))
    script = 'echo up; until stty size 2>/dev/null | grep "31 97"; do sleep 0.1; done'
    command = [*c.base, *c.run_args("--rm", "-t", IMAGE, c.name(), "sh", "-c", script)]
    out, _ = on_terminal(command, [("up", resize)], meanwhile=resize)
    has(out, "31 97")


def shim_metrics(c):
    name = background(c, "sleep", "100")
    text = c.ok("task", "metrics", "--format", "json", name)
    found = json.loads(text)
    if found["memory"]["usage"]["usage"] < 100000 or found["cpu"]["usage"]["total"] == 0:
        raise Failure(text)
    lines = c.ok("task", "ps", name).splitlines()
    assert len(lines) >= 2, lines
    remove(c, name)


def shim_oom(c):
    with Events(c) as events:
        name = background(
            c,
            "sh",
            "-c",
            "sleep 1; dd if=/dev/zero of=/dev/null bs=300M count=1; sleep 1",
            flags=["--memory-limit", str(100 << 20)],
        )
        wait_for(lambda: "oom" in events.topics(name), 30, "oom event")
        remove(c, name)


def shim_update(c):
    name = background(c, "sleep", "100", flags=["--memory-limit", str(200 << 20)])
    resources = json.dumps({"memory": {"limit": 150 << 20}})
    any = number(1, "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources") + number(2, resources)
    answer = request(c, name, "Update", number(1, name) + number(2, any))
    assert len(answer) < 4, answer
    limit = json.loads(c.ok("task", "metrics", "--format", "json", name))["memory"]["usage"]["limit"]
    check(limit, 150 << 20)
    answer = request(c, name, "Update", number(1, name) + number(2, number(1, "other.Resources")))
    has(answer.decode(errors="replace"), "other.Resources")
    remove(c, name)


def shim_checkpoint(c):
    """A task is saved and goes on, and one that is saved with Exit has ended."""
    name = background(c, "sleep", "100")
    image = f"{c.stage.dir}/image-{name}"
    answer = request(c, name, "Checkpoint", number(1, name) + number(2, image))
    assert len(answer) < 4, answer
    check(sorted(os.listdir(image)), ["metadata", "pages"])
    answer = request(c, name, "Checkpoint", number(1, name) + number(2, image))
    has(answer.decode(errors="replace"), "already: give a directory without one")
    any = number(1, "containerd.runc.v1.CheckpointOptions") + number(2, number(3, 1))
    answer = request(c, name, "Checkpoint", number(1, name) + number(2, image + "2") + number(3, any))
    has(answer.decode(errors="replace"), "ExternalUnixSockets")
    remove(c, name)


def shim_options(c):
    config, logs = f"{c.stage.dir}/shim.toml", f"{c.stage.dir}/debug-logs/"
    open(config, "w").write(f'log_level = "debug"\n[ringfence_config]\ndebug = true\ndebug-log = "{logs}"\n')
    r = c(*c.run_args("--rm", "--runtime-config-path", config, IMAGE, c.name(), "true"))
    check(r.status, 0, r.err)
    assert os.listdir(logs)
    for text, part in [
        ("colour = 1\n", "colour"),
        ('[ringfence_config]\nno-such-flag = "x"\n', "no-such-flag"),
        ('binary_name = "/no/such"\n', "/no/such"),
    ]:
        open(config, "w").write(text)
        name = c.name()
        r = c(*c.run_args("--rm", "--runtime-config-path", config, IMAGE, name, "true"))
        assert r.status != 0
        has(r.err, part)


def shim_cgroup(c):
    config = f"{c.stage.dir}/cgroup.toml"
    open(config, "w").write(f'shim_cgroup = "/{c.stage.parent}/shims"\n')
    name = background(c, "sleep", "100", flags=["--runtime-config-path", config])
    has(open(f"/proc/{pid_of_shim(c, name)}/cgroup").read(), f"/{c.stage.parent}/shims\n")
    # The container is not there.
    assert "/shims" not in open(f"/proc/{open(f'{bundle(c, name)}/init.pid').read()}/cgroup").read()
    remove(c, name)


def shim_info(c):
    # What containerd 2 asks when it starts.
    r = subprocess.run(
        [f"{c.stage.dir}/bin/containerd-shim-ringfence-v1", "-info"], stdin=subprocess.DEVNULL, capture_output=True
    )
    has(r.stdout, b"io.containerd.ringfence.v1", b"features/Features", b"ociVersionMax")


def shim_attach(c):
    # A terminal that nobody looked at so far, and that goes on when the user leaves.
    name = c.name()
    # ctr wants a terminal, but leaves it alone.
    on_terminal([*c.base, *c.run_args("-d", "-t", IMAGE, name, "sh", "-c", "while read x; do echo got:$x; done")], [])
    for word in ("abc", "def"):

        def leave(fd):
            raise Left

        class Left(Exception):
            pass

        def attached(fd):
            # The client makes the terminal raw. What is written then waits for it.
            wait_for(lambda: not termios.tcgetattr(fd)[3] & termios.ECHO, what="a raw terminal")
            os.write(fd, word.encode() + b"\r")

        try:
            on_terminal([*c.base, "task", "attach", name], [("", attached), ("got:" + word, leave)])
            raise AssertionError("did not attach")
        except Left:
            pass
    has(c.ok("task", "ls"), "RUNNING")
    remove(c, name)


def shim_terminal_output(c):
    out, status = on_terminal(
        [*c.base, *c.run_args("--rm", "-t", IMAGE, c.name(), "sh", "-c", "seq 1 20000; exit 3")], []
    )
    check((out.count("\n"), out.strip().split("\n")[-1]), (20000, "20000"))


def shim_logs(c):
    log = f"{c.stage.dir}/logs/out"
    name = background(c, "sh", "-c", "echo out; echo err >&2; sleep 100", flags=["--log-uri", f"file://{log}"])
    wait_for(lambda: os.path.exists(log) and sorted(open(log).read().split()) == ["err", "out"])
    remove(c, name)
    program = f"{c.stage.dir}/logger"
    open(program, "w").write(
        f'#!/bin/sh\nexec 5>&-\n(cat <&3; echo "$CONTAINER_NAMESPACE $1 $2"; cat <&4) >{log}.binary\n'
    )
    os.chmod(program, 0o755)
    name = background(c, "sh", "-c", "echo out; echo err >&2", flags=["--log-uri", f"binary://{program}?to=file"])
    wait_for(lambda: os.path.exists(log + ".binary") and open(log + ".binary").read() == "out\ndefault to file\nerr\n")
    remove(c, name)


def shim_grouped(c):
    flags = ["--annotation", "io.containerd.runc.v2.group=g"]
    first, second = background(c, "sleep", "100", flags=flags), background(c, "sleep", "100", flags=flags)
    check(open(f"{bundle(c, first)}/address").read(), open(f"{bundle(c, second)}/address").read())
    assert not os.path.exists(f"{bundle(c, second)}/shim.pid")
    pid = pid_of_shim(c, first)
    remove(c, second)
    check(c("task", "exec", "--exec-id", "e", first, "echo", "alive").out, "alive\n")
    remove(c, first)
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"))


def shim_killed(c):
    with Events(c) as events:
        name = background(c, "sleep", "1000")
        p = subprocess.Popen(
            [*c.base, "task", "exec", "--exec-id", "e", name, "sleep", "1000"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(lambda: "exec-started" in events.topics(name))
        place = bundle(c, name)
        address = open(f"{place}/address").read().removeprefix("unix://")
        init = int(open(f"{place}/init.pid").read())
        os.kill(pid_of_shim(c, name), signal.SIGKILL)
        wait_for(lambda: "delete" in events.topics(name), 30, "the end of the task")
        wait_for(lambda: name not in c.ok("task", "ls"))
        exits = [e for topic, e in events.of(name) if topic == "exit" and e["id"] == name]
        check([(e["pid"], e["exit_status"]) for e in exits], [(init, 137)])
        p.kill()
        p.wait()
        c.ok("container", "rm", name)
        wait_for(lambda: not os.path.exists(f"/proc/{init}"), what="the container's end")
        check([os.path.exists(path) for path in (place, address, f"{STATE}/{name}")], [False] * 3)
        assert place not in open("/proc/mounts").read()


def shim_restart(c):
    # containerd comes back and finds its containers.
    name = background(c, "sh", "-c", "trap 'exit 5' TERM; while :; do sleep 0.1; done")
    c.stage.restart_containerd()
    has(c.ok("task", "ls"), name, "RUNNING")
    with Events(c) as events:
        check(c("task", "exec", "--exec-id", "e", name, "echo", "in").out, "in\n")
        c.ok("task", "kill", name)
        wait_for(lambda: "STOPPED" in c.ok("task", "ls"))
        c("task", "rm", name)
        c.ok("container", "rm", name)
        wait_for(lambda: "delete" in events.topics(name))
        check([e["exit_status"] for topic, e in events.of(name) if topic == "exit" and e["id"] == name], [5])


def shim_footprint(c):
    name = background(c, "sleep", "100")
    pid = pid_of_shim(c, name)
    fds = lambda: len(os.listdir(f"/proc/{pid}/fd"))
    c.ok("task", "exec", "--exec-id", "w", name, "true")
    before = fds()
    for i in range(10):
        c.ok("task", "exec", "--exec-id", f"e{i}", name, "true")
    wait_for(lambda: fds() <= before, 5, "the descriptors that were there before")
    children = [p for p in os.listdir("/proc") if p.isdigit() and f"PPid:\t{pid}\n" in open(f"/proc/{p}/status").read()]
    zombies = [p for p in children if "State:\tZ" in open(f"/proc/{p}/status").read()]
    check(zombies, [])
    pss = lambda: int(re.search(r"^Pss: +(\d+)", open(f"/proc/{pid}/smaps_rollup").read(), re.M)[1])
    # It gives back what it does not need when idle.
    wait_for(lambda: pss() < 2500, what="a shim of 2500 kB")
    print(f"     the shim takes {pss()} kB, {before} descriptors, {len(os.listdir(f'/proc/{pid}/task'))} threads")
    remove(c, name)


def shim_many(c):
    names = [c.name() for _ in range(12)]
    started = [
        subprocess.Popen(
            [*c.base, *c.run_args("--rm", IMAGE, n, "sh", "-c", f"echo {n}")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in names
    ]
    for n, p in zip(names, started):
        out, err = p.communicate(timeout=180)
        check((p.returncode, out), (0, n + "\n"), err)

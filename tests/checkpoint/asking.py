"""Programs that ask for a checkpoint, or learn of one; snapshots of `do`."""

import json, os, subprocess, time

RF = None  # the program under test
suite = None  # the module of the runner

ASKS = r"""
import os, select, socket, sys, time
generation = open("/proc/ringfence/generation", "rb", buffering=0)
first = generation.read()
news = select.poll()
news.register(generation, select.POLLPRI)
file = os.open("/proc/gvisor/checkpoint", os.O_RDWR)
print("generation", first.decode().strip(), news.poll(0), flush=True)
while True:
    try:
        os.write(file, b"1\n")
        break
    except OSError:
        # The command that waits for it is not there yet.
        time.sleep(0.01)
told = os.read(file, 100).decode().strip()
print("told", told, os.read(file, 100), flush=True)
ready = news.poll(0)
generation.seek(0)
print("changed", generation.read() != first, ready != [], news.poll(0), flush=True)
environ = open("/proc/gvisor/spec_environ", "rb").read().split(b"\0")
print("environ", b"GIVEN=later" in environ, "name", socket.gethostname(), flush=True)
print("line", sys.stdin.readline().strip(), flush=True)
"""


def told(text):
    return [line for line in text.splitlines() if line.startswith(("told", "changed", "environ", "line"))]


RESTORED = ["told restore b''", "changed True True []"]
RESUMED = ["told resume b''", "changed False False []"]


def begin(id, *flags):
    """A container with a program that asks, and the command that waits for it."""
    box = suite.Box(id, "python3", "-c", ASKS)
    box.run()
    image = RF.dir("image")
    asked = RF.start("checkpoint", "--when-asked", "--image-path", image, *flags, id, stderr=subprocess.PIPE)
    error = asked.communicate(timeout=120)[1]
    suite.check(asked.returncode, 0, error)
    return box, image


def change(config):
    config["hostname"] = "renamed"
    config["process"]["env"].append("GIVEN=later")


def test_program_asks():
    """It learns that it was restored, and sees the environment and the host name of the new container."""
    box, image = begin("asks")
    RF.wait_for(lambda: suite.status("asks") == "stopped")
    suite.check(told(suite.text(box.out)), [])
    suite.works("delete", "asks")
    RF.edit(box.bundle, change)
    for _ in range(2):
        out = box.restore(image)
        RF.wait_for(lambda: suite.status("asks") == "stopped")
        suite.check(told(suite.text(out))[:3], [*RESTORED, "environ True name renamed"])
        suite.works("delete", "asks")


def test_program_goes_on():
    """It learns that it goes on, and what is restored beside it that it was restored."""
    box, image = begin("stays", "--leave-running")
    RF.wait_for(lambda: suite.status("stays") == "stopped")
    suite.check(told(suite.text(box.out))[:2], RESUMED)
    out = box.restore(image, id="twin")
    RF.wait_for(lambda: suite.status("twin") == "stopped")
    suite.check(told(suite.text(out))[:2], RESTORED)
    for id in ("stays", "twin"):
        suite.works("delete", id)


def test_program_asks_in_vain():
    """Where no command waits the write fails, and a refused checkpoint is an error for the program."""
    script = "f = open('/proc/gvisor/checkpoint', 'wb', buffering=0)\n"
    script += "try: f.write(b'1')\nexcept OSError as e: print(e.errno)\n"
    script += "try: f.write(b'0')\nexcept OSError as e: print(e.errno)\n"
    result = RF("do", "python3", "-c", script)
    suite.check((result.returncode, result.stdout), (0, "107\n22\n"), result.stderr)
    script = "import os\nheld = open('/ctl/held', 'w')\nos.unlink('/ctl/held')\n" + ASKS
    box = suite.Box("vain", "python3", "-c", script)
    box.run()
    image = RF.dir("none") + "/image"
    asked = RF.start("checkpoint", "--when-asked", "--image-path", image, "vain", stderr=subprocess.PIPE)
    error = asked.communicate(timeout=120)[1]
    assert asked.returncode != 0 and "/ctl/held" in error, error
    RF.wait_for(lambda: suite.status("vain") == "stopped")
    suite.check(told(suite.text(box.out))[:1], ["told error b''"])
    assert not os.path.exists(image)
    suite.works("delete", "vain")


def test_hook_runs_before_the_program_goes_on():
    """A startContainer hook of the bundle runs inside a restored container; one that fails ends the restore."""
    script = "import os, time\nread = lambda: open('/proc/ringfence/generation').read()\nfirst = read()\n"
    script += "print('up', flush=True)\nwhile read() == first: time.sleep(0.01)\n"
    script += "print('hooked', os.path.exists('/tmp/hooked'), flush=True)\n"
    box = suite.Box("hooked", "python3", "-c", script).run()
    box.says("up")
    image = box.checkpoint()
    RF.wait_for(lambda: suite.status("hooked") == "stopped")
    suite.works("delete", "hooked")
    hook = {"path": "/bin/sh", "args": ["sh", "-c", "sleep 0.3; echo > /tmp/hooked"]}
    RF.edit(box.bundle, lambda c: c.update(hooks={"startContainer": [hook]}))
    out = box.restore(image)
    RF.wait_for(lambda: suite.status("hooked") == "stopped")
    suite.check(suite.text(out), "hooked True\n")
    suite.works("delete", "hooked")
    hook["args"][2] = "echo no >&2; exit 3"
    RF.edit(box.bundle, lambda c: c.update(hooks={"startContainer": [hook]}))
    with open(box.output(), "w+") as f:
        argv = RF.argv(["restore", "--image-path", image, "--bundle", box.bundle, "--detach", "hooked"])
        failed = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=f, stderr=f, timeout=120)
        f.seek(0)
        said = f.read()
    assert failed.returncode != 0 and "exit status 3" in said, said
    suite.fails(RF("state", "hooked"), "does not exist")


def test_wait_for_checkpoint():
    box = suite.Box("wc", "sleep", "1000").run()
    suite.works("wait", "--restore", "wc")
    waits = RF.start("wait", "--checkpoint", "wc", stderr=subprocess.PIPE)
    RF.stays(lambda: waits.poll() is None, 0.3)

    def ends():
        box.checkpoint("--leave-running")
        return waits.poll() is not None

    RF.wait_for(ends)
    suite.check((waits.communicate()[1], waits.returncode), ("", 0))
    box.checkpoint()
    RF.wait_for(lambda: suite.status("wc") == "stopped")
    suite.fails(RF("wait", "--checkpoint", "wc"), "not running")
    suite.works("delete", "wc")
    suite.fails(RF("wait", "--checkpoint", "--restore", "wc"), "cannot be used with")


class Cache:
    """Snapshots in a directory of the test."""

    def __init__(self):
        self.env = {**os.environ, "XDG_CACHE_HOME": RF.dir("cache")}

    def __call__(self, *args, **kw):
        return RF(*args, env=self.env, **kw)

    def names(self):
        shown = self("snapshot", "list", "--json")
        suite.check(shown.returncode, 0, shown.stderr)
        return {one["name"]: one for one in json.loads(shown.stdout)}


def test_snapshot():
    """A program goes on from its snapshot as often as one likes, with other standard streams."""
    rf, dir = Cache(), RF.dir("volume")
    with open(dir + "/asks.py", "w") as f:
        f.write(ASKS)
    flags = ["--volume", f"{dir}:/asks:ro", "--hostname", "first", "--snapshot", "warm"]
    made = rf("do", *flags, "python3", "/asks/asks.py")
    suite.check((made.returncode, told(made.stdout)), (0, []), made.stderr)
    suite.check([(one["name"], one["in_use"]) for one in rf.names().values()], [("warm", False)])
    for n in range(3):
        back = rf("do", "--env", "GIVEN=later", "--hostname", f"h{n}", "--from", "warm", input=f"{n}\nrest\n")
        suite.check(told(back.stdout), [*RESTORED, f"environ True name h{n}", f"line {n}"], back.stderr)
        suite.check(back.returncode, 0)
    suite.fails(rf("do", "--snapshot", "warm", "true"), "already")
    suite.fails(rf("do", "--from", "other"), "there is no snapshot other")
    suite.fails(rf("do", "--from", "../warm"), "is no name")
    suite.fails(rf("do", "--from", "warm", "--volume", "/tmp", "true"), "cannot be used with")
    suite.fails(rf("--network=host", "do", "--from", "warm"), "--network")
    suite.check(rf("snapshot", "delete", "warm").returncode, 0)
    suite.check(rf.names(), {})
    suite.fails(rf("snapshot", "delete", "warm"), "there is no snapshot warm")


def test_snapshot_when_idle():
    """An interpreter that waits for input is saved as it is; another program runs beside it."""
    rf = Cache()
    argv = RF.argv(["do", "--snapshot", "idle", "--when", "idle", "python3", "-i", "-q", "-c", "x = 6 * 7"])
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=rf.env) as p:
        error = p.stderr.read()
        suite.check(p.wait(120), 0, error)
    back = rf("do", "--from", "idle", input="print(x)\n")
    suite.check((back.returncode, back.stdout), (0, "42\n"), back.stderr)
    for status in (0, 3):
        script = f"read a; echo $a; ls /proc | grep -c '^[0-9]'; exit {status}"
        beside = rf("do", "--from", "idle", "sh", "-c", script, input="in\n")
        suite.check(beside.returncode, status, beside.stderr)
        suite.check(beside.stdout.split()[0], "in")
        assert int(beside.stdout.split()[1]) >= 3, beside.stdout
    missing = rf("do", "--from", "idle", "no-such-program")
    suite.check(missing.returncode, 127, missing.stderr)
    slow = rf("do", "--from", "idle", "--timeout", "1", "sleep", "100")
    suite.check(slow.returncode, 124, slow.stderr)
    # One that is in use stays.
    with subprocess.Popen(RF.argv(["do", "--from", "idle"]), stdin=subprocess.PIPE, env=rf.env) as p:
        RF.wait_for(lambda: rf.names()["idle"]["in_use"])
        suite.fails(rf("snapshot", "delete", "idle"), "in use")
        p.stdin.close()
        suite.check(p.wait(120), 0)
    RF.wait_for(lambda: not rf.names()["idle"]["in_use"])
    suite.check(rf("snapshot", "delete", "idle").returncode, 0)


def test_snapshots_have_a_limit():
    rf = Cache()
    # Large enough for the size to depend on little else.
    script = "x=$(head -c 3000000 /dev/zero | tr '\\0' x); printf 1 > /proc/gvisor/checkpoint; sleep 100"
    for name in ("a", "b"):
        made = rf("do", "--snapshot", name, "sh", "-c", script)
        suite.check(made.returncode, 0, made.stderr)
        time.sleep(1.1)
    suite.check(rf("do", "--from", "a", "true").returncode, 0)
    limit = str(rf.names()["a"]["bytes"] * 5 // 2)
    made = rf("do", "--snapshot", "c", "--snapshot-limit", limit, "sh", "-c", script)
    suite.check(made.returncode, 0, made.stderr)
    assert "removed the snapshot b" in made.stderr, made.stderr
    suite.check(sorted(rf.names()), ["a", "c"])
    # What ends before it asks, or cannot be saved, leaves nothing.
    ended = rf("do", "--snapshot", "d", "true")
    suite.fails(ended, "there is no snapshot", "/proc/gvisor/checkpoint")
    suite.fails(rf("--overlay2=root:dir=/tmp", "do", "--snapshot", "d", "true"), "root:memory")
    suite.fails(rf("do", "--when", "idle", "true"), "--snapshot")
    left = os.listdir(rf.env["XDG_CACHE_HOME"] + "/ringfence/snapshots")
    suite.check(sorted(left), ["a", "c", "~lock"])

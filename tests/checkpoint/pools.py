"""Pools: sandboxes that wait for restore, clone and run. The program counts, as elsewhere in this suite."""

import json, os, signal, subprocess

RF = suite = None  # set by tests/checkpoint/run


class Pool:
    """A pool that is kept while the block runs."""

    def __init__(self, name, bundle, size=2):
        self.name, self.size = name, size
        self.log = RF.dir("pool") + "/log"
        with open(self.log, "w") as log:
            self.p = subprocess.Popen(
                RF.argv(["pool", "serve", "--bundle", bundle, "--size", str(size), name]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self):
        RF.wait_for(lambda: self.p.poll() is None and self.status().get("ready") == self.size)
        return self

    def __exit__(self, *_):
        self.end()

    def status(self):
        found = [pool for pool in listed() if pool["name"] == self.name]
        return found[0] if found else {}

    def end(self, how=signal.SIGTERM):
        if self.p.poll() is None:
            self.p.send_signal(how)
        return self.p.wait(30)


def listed():
    return json.loads(suite.works("pool", "list", "--format", "json"))


def take(*args):
    """A container out of a pool, in the background: its output's file."""
    path = RF.dir("out") + "/out"
    with open(path, "w") as out:
        p = subprocess.run(RF.argv(args), stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=120)
    suite.check(p.returncode, 0, f"{args}: {suite.text(path)}")
    return path


def counts(path):
    RF.wait_for(lambda: len(suite.numbers(path)) > 3)
    seen = suite.numbers(path)
    suite.check(seen, list(range(seen[0], seen[0] + len(seen))))
    return seen[0]


def groups(name):
    return [dir for dir, _, _ in os.walk("/sys/fs/cgroup") if os.path.basename(dir).startswith(name + ".")]


def test_pool():
    """restore, clone and run take sandboxes, which are replaced; names are those that were asked for."""
    box = suite.Box("pooled", "python3", "-c", suite.COUNTS).run()
    RF.wait_for(lambda: len(suite.numbers(box.out)) > 5)
    image = box.checkpoint("--leave-running")
    saved = suite.numbers(box.out)[-1]
    with Pool("warm", box.bundle) as pool:
        pid_file = RF.dir("pid") + "/pid"
        restored = ["restore", "--pool", "warm", "--detach", "--image-path", image]
        assert 5 < counts(take(*restored, "--pid-file", pid_file, "pooled-r")) <= saved + 1
        assert counts(take("clone", "--pool", "warm", "pooled", "pooled-c")) > 5
        suite.check(counts(take("run", "--pool", "warm", "--detach", "pooled-n")), 0)
        many = take("clone", "--count", "3", "--pool", "warm", "pooled-r", "pooled-many")
        RF.wait_for(lambda: len(suite.numbers(many)) > 12)
        state = json.loads(suite.works("state", "pooled-r"))
        suite.check((state["id"], state["status"]), ("pooled-r", "running"))
        suite.check(int(suite.text(pid_file)), state["pid"])
        suite.works("exec", "pooled-r", "true")
        RF.wait_for(lambda: (pool.status()["ready"], pool.status()["taken"]) == (2, 6))
        # Only those that were taken are containers.
        ids = suite.works("list", "--quiet").split()
        assert not [id for id in ids if id.startswith("warm")], ids
        suite.fails(RF(*restored, "pooled-r"), "already exists")
        suite.fails(RF("restore", "--pool", "warm", "--image-path", image, "x"), "give --detach")
        suite.fails(RF("run", "--pool", "none", "--detach", "x"), "there is no pool none: start one")
        with open(image + "/metadata", "r+b") as f:
            f.truncate(1000)
        suite.fails(RF(*restored, "x"), "image of the checkpoint")
        suite.fails(RF("state", "x"), "does not exist")
        suite.fails(RF("pool", "serve", "--bundle", box.bundle, "warm"), "there is a pool warm already")
        suite.check(pool.end(), 0)
    # What was taken goes on without the pool.
    for id in ("pooled", "pooled-r", "pooled-c", "pooled-n", "pooled-many-1", "pooled-many-2", "pooled-many-3"):
        suite.check(suite.status(id), "running")
        suite.works("delete", "--force", id)
    suite.check((listed(), groups("warm")), ([], []))


def test_pool_that_is_killed():
    """Its sandboxes end with it, and the next one of its name removes what is left."""
    box = suite.Box("k", "python3", "-c", suite.COUNTS)
    with Pool("killed", box.bundle) as pool:
        pool.end(signal.SIGKILL)
        suite.check(listed(), [])
        suite.fails(RF("run", "--pool", "killed", "--detach", "x"), "there is no pool killed")
    with Pool("killed", box.bundle) as pool:
        counts(take("run", "--pool", "killed", "--detach", "k"))
        suite.works("delete", "--force", "k")
    RF.wait_for(lambda: not groups("killed"))


def descendants(pid):
    try:
        children = [int(child) for child in suite.text(f"/proc/{pid}/task/{pid}/children").split()]
    except FileNotFoundError:
        return []
    return children + [below for child in children for below in descendants(child)]


def stopped(pool):
    """All processes of the sandboxes that wait in a pool; they do nothing from now on."""
    found = descendants(pool.p.pid)
    assert len(found) > 1
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    return found


def test_pool_with_a_restore_that_hangs():
    """It serves other commands meanwhile; the sandbox ends with the command that has taken it, or with the pool."""
    box = suite.Box("hang", "python3", "-c", suite.COUNTS).run()
    RF.wait_for(lambda: len(suite.numbers(box.out)) > 5)
    image = box.checkpoint()
    suite.works("delete", "hang")
    restored = ["restore", "--pool", "slow", "--detach", "--image-path", image]

    def begin(id):
        return RF.start(*restored, id, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)

    with Pool("slow", box.bundle, size=1) as pool:
        hang = stopped(pool)
        waits = begin("hang-1")
        RF.wait_for(lambda: (pool.status()["ready"], pool.status()["taken"]) == (1, 1))
        counts(take(*restored, "hang-2"))
        suite.fails(RF(*restored, "hang-1"), "already exists")
        suite.check(waits.poll(), None)
        waits.kill()
        waits.communicate()
        RF.wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in hang))
        counts(take(*restored, "hang-1"))
    for id in ("hang-1", "hang-2"):
        suite.works("delete", "--force", id)
    with Pool("slow", box.bundle, size=1) as pool:
        stopped(pool)
        waits = begin("hang-3")
        RF.wait_for(lambda: pool.status()["taken"] == 1)
        suite.check(pool.end(), 0)
        assert "the pool slow has ended" in waits.communicate(timeout=60)[1]
        assert waits.returncode != 0
    suite.check((listed(), groups("slow")), ([], []))
    suite.fails(RF("state", "hang-3"), "does not exist")


def test_pool_of_a_bundle_that_cannot_have_one():
    box = suite.Box("h", "true")
    for what, edit in [
        ("process.terminal is true", lambda c: c["process"].update(terminal=True)),
        ("it has hooks", lambda c: c.update(hooks={"poststop": [{"path": "/bin/true"}]})),
    ]:
        bundle = RF.bundle("true")
        RF.edit(bundle, edit)
        suite.fails(RF("pool", "serve", "--bundle", bundle, "p"), "the bundle cannot have a pool", what)
    suite.fails(RF("pool", "serve", "--bundle", box.bundle, "../p"), "invalid name")
    suite.check(listed(), [])

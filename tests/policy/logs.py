"""Logs of decisions on full disks, and those of sandboxes that do not start."""

import contextlib, json, os, re, resource, subprocess, time

from results import need_root

RF = None  # the program under test
base = None  # the module of the runner


@contextlib.contextmanager
def small_disk():
    """A file system of 64 KiB, and a function that fills it and one that empties it again."""
    need_root()
    dir = RF.dir("small")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "small", dir], check=True)

    def fill():
        with open(dir + "/filler", "wb", buffering=0) as f, contextlib.suppress(OSError):
            while True:
                f.write(b"x" * 4096)

    try:
        yield dir, fill, lambda: os.remove(dir + "/filler")
    finally:
        subprocess.run(["umount", dir], check=True)


def refused_opens(box, count):
    script = f"for i in $(seq {count}); do cat /etc/hostname 2>/dev/null; done; echo alive"
    base.check(base.works("exec", box.name, "sh", "-c", script), "alive\n")


def unwritten(box):
    found = re.search(r"not written: (\d+)", box.shown())
    return int(found[1]) if found else 0


def entries(log):
    """The decisions of a log. A line may have been cut off by a disk that was full, which the next line says."""
    with open(log) as f:
        lines = f.read().splitlines()
    return [json.loads(line).get("decision", {}) for line in lines if line.endswith("}")]


def ended(log):
    RF.wait_for(lambda: '"end"' in (open(log).read().splitlines() or [""])[-1])
    return entries(log)


def test_a_log_on_a_full_disk():
    """The policy goes on to decide; what the log could not take is counted, shown, and told once there is room."""
    path = base.policy(base.rule("file/open", path="/etc/hostname"))
    with small_disk() as (dir, fill, empty), base.Running("sh", "-c", base.FOREVER) as box:
        log = dir + "/log"
        base.works("policy", "load", "--log", log, path, box.name)
        refused_opens(box, 1)
        RF.wait_for(lambda: len(base.read_log(log)) == 1)
        fill()
        # The last page has room for some.
        refused_opens(box, 40)
        RF.wait_for(lambda: "sent: 41, " in box.shown())
        RF.wait_for(lambda: unwritten(box) > 20)
        before = unwritten(box)
        base.check(box.shown().count("deny 41"), 1)
        empty()
        # The writer tries again, a second after it has failed at the earliest.
        more = 0
        while not any("missing" in entry for entry in entries(log)):
            refused_opens(box, 1)
            more += 1
            time.sleep(0.2)
        lost = unwritten(box)
        assert before <= lost < before + more, (before, lost, more)
        base.works("policy", "unload", box.name)
        told = ended(log)
        base.check(sum(entry.get("missing", 0) for entry in told), lost)
        base.check(sum(entry.get("action") == "deny" for entry in told) + lost, 41 + more)
        told = base.works("policy", "verify", log)
        assert f"{lost} more could not be written" in told, told
        # A disk that is full to the end: the log has none. It goes on under another writer.
        os.remove(log)
        base.works("policy", "load", "--log", log, path, box.name)
        fill()
        refused_opens(box, 40)
        RF.wait_for(lambda: unwritten(box) > 20)
        base.works("policy", "unload", box.name)
        RF.wait_for(lambda: not RF.processes("trace-sink"))
        assert RF("policy", "verify", log).returncode == 1
        # Without room a policy with that log does not come into force, and a new log is not left behind.
        base.fails(RF("policy", "load", "--log", log, path, box.name), log, "No space left")
        base.fails(RF("policy", "load", "--log", dir + "/new", path, box.name), dir + "/new", "No space left")
        assert not os.path.exists(dir + "/new"), os.listdir(dir)
        base.check(RF.processes("trace-sink"), [])
        empty()
        base.works("policy", "load", "--log", log, path, box.name)
        base.works("policy", "unload", box.name)
        ended(log)
        assert "started again 1 times" in base.works("policy", "verify", log)


def test_a_log_beyond_the_limit_on_files():
    """A limit on the length of files does not end the writer."""
    path = base.policy(base.rule("file/open", path="/etc/hostname"))
    log = RF.dir("logs") + "/log"
    with base.Running("sh", "-c", base.FOREVER) as box:
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        argv = RF.argv(["policy", "load", "--log", log, path, box.name])
        done = subprocess.run(argv, preexec_fn=limit, timeout=60, stdout=subprocess.DEVNULL)
        base.check(done.returncode, 0)
        refused_opens(box, 40)
        RF.wait_for(lambda: unwritten(box) > 20)
        base.check(len(RF.processes("trace-sink")), 1)


def test_a_log_of_a_sandbox_that_does_not_start():
    """It is removed, so that the next attempt can have its name, unless there are decisions in it."""
    log, path = RF.dir("logs") + "/log", base.policy(base.rule("file/open", path="/etc/hostname"))
    flags = ["--policy", path, "--policy-log", log]
    for command in (["do", "nosuch-program"], ["do", "--cwd", "/nosuch", "true"]):
        assert RF(*flags, *command).returncode != 0
        assert not os.path.exists(log), open(log).read()
    base.check(RF(*flags, "do", "true").returncode, 0)
    base.check(base.decisions(log), [])
    os.remove(log)
    # A container that is created, but whose first process cannot run.
    dir = RF.bundle("nosuch-program")
    assert RF(*flags, "run", "--bundle", dir, "a").returncode != 0
    assert not os.path.exists(log), open(log).read()
    # Refused by the policy itself: that is in the log.
    refuses = base.policy(base.rule("file/exec", path="/**/true"))
    assert RF("--policy", refuses, "--policy-log", log, "do", "true").returncode != 0
    base.check([entry["point"] for entry in base.decisions(log)], ["file/exec"])
    # A log that was there goes on, and is not ours to remove.
    text = open(log).read().splitlines(keepends=True)
    with open(log, "w") as f:
        f.writelines(text[:-1])
    assert RF(*flags, "do", "nosuch-program").returncode != 0
    base.check(open(log).read().splitlines(keepends=True)[: len(text) - 1], text[:-1])

"""Programs inside that look at many names one after the other see what the host has changed meanwhile: between the
listing and the first look, between two looks, and by every way to change a file."""

import json, mmap, os, random, subprocess, time

from results import need_root

PYTHON = "/usr/bin/python3"
NAMES = 60

# Answers each line of input with a line: `list`, then `look FROM TO` for a part of that listing; `do` for a change of
# its own.
GUEST = """
import json, os, sys
top = sys.argv[1]
def facts(name):
    try:
        s = os.lstat(f"{top}/{name}")
    except OSError as error:
        return error.errno
    return [s.st_mode, s.st_ino, s.st_nlink, s.st_uid, s.st_size, s.st_mtime_ns]
names, held = [], []
for line in sys.stdin:
    what, *args = line.split()
    if what == "list":
        names = os.listdir(top)
        answer = sorted(names)
    elif what == "look":
        answer = {name: facts(name) for name in names[int(args[0]):int(args[1])]}
    elif what == "do":
        try:
            exec(" ".join(args), {"os": os, "top": top, "held": held})
        except OSError:
            pass
        answer = []
    print(json.dumps(answer), flush=True)
"""


def facts(path):
    try:
        s = os.lstat(path)
    except OSError as error:
        return error.errno
    return [s.st_mode, s.st_ino, s.st_nlink, s.st_uid, s.st_size, s.st_mtime_ns]


class Scan:
    def __init__(self, rf):
        self.rf = rf

    def change(self, top, rng, lags):
        """Something that the host does to one of the names, by one of many ways."""
        names = [n for n in os.listdir(top) if os.path.isfile(f"{top}/{n}")]
        name = f"{top}/{rng.choice(names)}"
        other = f"{top}/n{rng.randrange(1000)}"

        def write(how):
            with open(name, how) as f:
                f.write("more")

        def mapped():
            with open(name, "r+b") as f:
                if os.fstat(f.fileno()).st_size:
                    with mmap.mmap(f.fileno(), 0) as m:
                        m[0] = rng.randrange(256)
                        m.flush()

        def replace():
            with open(top + "/../fresh", "w") as f:
                f.write("x" * rng.randrange(100))
            os.rename(top + "/../fresh", name)

        def by_another_name():
            os.link(name, top + "/../second")
            with open(top + "/../second", "a") as f:
                f.write("by another name")
            os.unlink(top + "/../second")

        ways = [
            lambda: write("a"),
            lambda: write("w"),
            lambda: os.chmod(name, rng.randrange(0o1000)),
            lambda: os.chown(name, rng.randrange(100), 0),
            lambda: os.truncate(name, rng.randrange(5000)),
            lambda: os.utime(name, ns=(5, rng.randrange(10**9))),
            lambda: os.unlink(name) if len(names) > NAMES // 2 else write("a"),
            lambda: os.rename(name, other),
            lambda: open(other, "a").close(),
            lambda: (os.unlink(name), os.mkdir(name), os.rmdir(name), open(name, "w").close()),
            lambda: (os.link(name, f"{top}/l{rng.getrandbits(64):x}"), os.unlink(name)),
            replace,
        ]
        # What no watch tells of. A root may show it late.
        ways += [] if lags else [mapped, by_another_name]
        rng.choice(ways)()

    # What a program inside does to its own files.
    OWN = [
        'open(top + "/{}", "a").write("inside")',
        'os.chmod(top + "/{}", 0o{:o})',
        'os.path.exists(top + "/{0}") and os.rename(top + "/{0}", top + "/{0}i")',
        'os.path.exists(top + "/{0}") and os.unlink(top + "/{0}")',
        'os.path.exists(top + "/{0}") and (os.link(top + "/{0}", top + "/{0}j"), os.unlink(top + "/{0}"))',
        'os.path.exists(top + "/{0}") and os.truncate(top + "/{0}", {1})',
        # An open file gets another name, and is changed by its descriptor later.
        'os.path.exists(top + "/{0}") and (held.append(os.open(top + "/{0}", os.O_RDWR)),'
        ' os.link(top + "/{0}", top + "/{0}k"), os.unlink(top + "/{0}"))',
        'held and os.write(held[-1], b"by a descriptor")',
        'held and os.fchmod(held[{1} % len(held)], {1} % 512)',
        'len(held) > 5 and os.close(held.pop(0))',
    ]

    def test_many_names_of_a_volume(self):
        need_root()
        top = self.files()
        self.scan(top, ["do", f"--volume={top}:/scan", PYTHON, "-c", GUEST, "/scan"], lags=False)

    def test_many_names_of_a_root(self):
        """A root that is written directly shows what others do within a millisecond."""
        need_root()
        top = self.files()
        bundle = self.rf.bundle(PYTHON, "-c", GUEST, top)
        self.rf.edit(bundle, lambda config: config.update(root={"path": "/", "readonly": False}))
        self.scan(top, ["run", "--bundle", bundle, f"scan-{os.getpid()}"], lags=True)

    def files(self):
        top = self.rf.dir("scan") + "/top"
        os.mkdir(top)
        for n in range(NAMES):
            with open(f"{top}/f{n}", "w") as f:
                f.write("x" * n)
        return top

    def scan(self, top, argv, lags):
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        guest = self.rf.start(*argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None)

        def ask(line):
            if lags:
                time.sleep(0.003)
            guest.stdin.write(line + "\n")
            guest.stdin.flush()
            return json.loads(self.rf.line(guest))

        for turn in range(120):
            names = ask("list")
            assert names == sorted(os.listdir(top)), f"seed {seed}, turn {turn}: the listing"
            at = 0
            while at < len(names):
                step = rng.choice([1, 3, 20, len(names)])
                came = ask(f"look {at} {at + step}")
                wanted = {name: facts(f"{top}/{name}") for name in came}
                bad = [(name, came[name], wanted[name]) for name in came if came[name] != wanted[name]]
                assert not bad, f"seed {seed}, turn {turn}, after {at}: {bad[:3]}"
                at += step
                if rng.randrange(3) == 0:
                    self.change(top, rng, lags)
                if rng.randrange(4) == 0:
                    name, number = rng.choice(os.listdir(top)), rng.randrange(0o1000)
                    ask("do " + rng.choice(self.OWN).format(name, number))
            while len(os.listdir(top)) < NAMES // 2:
                open(f"{top}/again{rng.randrange(10000)}", "w").close()
        guest.stdin.close()
        assert guest.wait(60) == 0

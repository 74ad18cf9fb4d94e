"""What the tests of the command line share: running it, making bundles, and a check that nothing is left behind."""

import argparse, json, os, re, shutil, subprocess, sys, tempfile, time, traceback
from select import select as ready

from results import Results, Skip
from select_tests import select as chosen_tests, prefix_optional

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def arguments(doc):
    target = os.environ.get("CARGO_TARGET_DIR", ROOT + "/target")
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--runtime", default=target + "/x86_64-unknown-linux-gnu/debug/ringfence", metavar="PROGRAM")
    p.add_argument("--platform", default="systrap")
    p.add_argument("--directfs", default="true", choices=["true", "false"], help="false: the gofer serves files")
    made = [d for d in (target + "/rootfs/bookworm", target + "/rootfs/demo") if os.path.exists(d + "/.complete")]
    p.add_argument(
        "--rootfs",
        default=made[0] if made else None,
        help="a root file system for bundles; default: one that other tests have made, or else the host's",
    )
    p.add_argument("--rounds", type=int, default=1, help="how often to repeat random tests")
    p.add_argument("only", nargs="*")
    return p.parse_args()


class Ringfence:
    """The program under test, as a copy whose processes can be told from all others by their executable."""

    def __init__(self, args):
        self.rootfs, self.rounds = args.rootfs, args.rounds
        self.scratch = tempfile.mkdtemp(prefix="ringfence-test-")
        # Other users run the copy, too.
        os.chmod(self.scratch, 0o755)
        self.binary = self.scratch + "/bin/ringfence"
        os.mkdir(self.scratch + "/bin")
        shutil.copy(args.runtime, self.binary)
        if os.path.exists(args.runtime + ".debug"):
            shutil.copy(args.runtime + ".debug", self.binary + ".debug")
        self.files = [] if args.directfs == "true" else ["--directfs=false"]
        # The terminal tests need a program without arguments: a wrapper that adds the platform.
        self.program = self.scratch + "/ringfence"
        with open(self.program, "w") as f:
            f.write(f'#!/bin/sh\nexec {self.binary} --platform={args.platform} {" ".join(self.files)} "$@"\n')
        os.chmod(self.program, 0o755)
        self.platform = args.platform
        self.state = self.scratch + "/state"
        self.count = 0

    def argv(self, args):
        given = any(a.startswith("--root") for a in args[:2])
        platform = [] if any(a.startswith("--platform") for a in args) else [f"--platform={self.platform}"]
        platform += [] if any(a.startswith("--directfs") for a in args) else self.files
        return [self.binary, *platform, *([] if given else ["--root", self.state]), *args]

    # How long things may take is for a machine with much else to do: only a fault uses it up.

    def __call__(self, *args, timeout=300, **kw):
        kw.setdefault("input", "")
        return subprocess.run(self.argv(args), capture_output=True, text=True, timeout=timeout, **kw)

    def start(self, *args, **kw):
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("stderr", subprocess.DEVNULL)
        return subprocess.Popen(self.argv(args), text=True, bufsize=1, **kw)

    def line(self, process, timeout=120):
        """The next line of a started process's output."""
        assert ready([process.stdout], [], [], timeout)[0], "no line within the time"
        return process.stdout.readline()

    def dir(self, name):
        self.count += 1
        path = f"{self.scratch}/{self.count}-{name}"
        os.mkdir(path)
        return path

    def bundle(self, *args, terminal=False):
        """A bundle for a command on the root file system, or on the host's."""
        dir = self.dir("bundle")
        subprocess.run([self.binary, "spec", "--bundle", dir, "--", *args], check=True)

        def edit(c):
            c["root"]["path"] = self.rootfs or "/"
            c["process"]["terminal"] = terminal

        self.edit(dir, edit)
        return dir

    def edit(self, dir, change):
        path = dir + "/config.json"
        with open(path) as f:
            config = json.load(f)
        change(config)
        with open(path, "w") as f:
            json.dump(config, f)

    def processes(self, role=None):
        """All processes that run our copy, or those of one role: the command line, gofer, init, sentry, stubs."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/exe") == self.binary:
                    with open(f"/proc/{pid}/cmdline", errors="replace") as f:
                        if role is None or f.read().split("\0")[1:2] == [role]:
                            found.append(int(pid))
            except OSError:
                pass
        return found

    def wait_for(self, condition, timeout=120):
        end = time.time() + timeout
        while not condition():
            assert time.time() < end, "it did not come to pass"
            time.sleep(0.01)

    def stays(self, condition, seconds):
        """For what must not happen: the condition holds for that long."""
        end = time.time() + seconds
        while time.time() < end:
            assert condition(), f"it did not stay for {seconds} s"
            time.sleep(0.01)

    def leftovers(self, before):
        """What is there that was not there before, after a moment's patience."""
        end = time.time() + 60
        while time.time() < end and (self.processes() or traces() != before):
            time.sleep(0.02)
        left = [f"process {p} {open(f'/proc/{p}/cmdline').read()!r}" for p in self.processes()]
        now = traces()
        return left + [f"{kind}: {sorted(now[kind] - before[kind])}" for kind in now if now[kind] - before[kind]]


def remove_control_groups(base, timeout=5):
    """Remove the groups below that name. The last process of a group may still be on its way out."""
    end = time.time() + timeout
    while True:
        left = [root for root, _, _ in os.walk("/sys/fs/cgroup", topdown=False) if f"/{base}" in root]
        for group in left:
            try:
                os.rmdir(group)
            except OSError:
                pass
        if not any(os.path.isdir(group) for group in left) or time.time() > end:
            return
        time.sleep(0.02)


def traces():
    """Mounts and control groups of the host."""
    with open("/proc/self/mountinfo") as f:
        mounts = set(f.read().splitlines())
    # Others make control groups at any time; ours would carry our name. Those of another run are below a parent of its
    # own.
    other = re.compile(rf"/(rf-\w+|ringfence-oci)-(?!{os.getpid()}\b)\d+\b")
    groups = {d for d, _, _ in os.walk("/sys/fs/cgroup") if "ringfence" in d and not other.search(d)}
    return {"mounts": mounts, "cgroups": groups}


def main_loop(rf, names, only):
    """Runs every test_ function; each one must also leave nothing behind."""
    results = Results()
    try:
        chosen = chosen_tests([n for n in names if n.startswith("test_")], only, prefix_optional)
    except SystemExit:
        shutil.rmtree(rf.scratch, ignore_errors=True)
        raise
    for name in chosen:
        test = names[name]
        before, start = traces(), time.time()
        try:
            test()
            left = rf.leftovers(before)
            assert not left, f"left behind: {left}"
            results.ok(name, f"{time.time() - start:.1f} s")
        except Skip as reason:
            results.skip(name, reason)
        except Exception as error:
            results.fail(name, error)
            if not isinstance(error, AssertionError):
                traceback.print_exc()
            for pid in rf.processes():
                try:
                    os.kill(pid, 9)
                except OSError:
                    pass
            rf.leftovers(before)
    shutil.rmtree(rf.scratch, ignore_errors=True)
    sys.exit(results.end())

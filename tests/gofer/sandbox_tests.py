"""Programs in a sandbox whose files come from a gofer: what they see is what the host shows of the same files."""

import os, subprocess, tarfile

from archive_tests import Archives
from checks import check
from gofers import HERE, archive, objects
from hostile_tests import attacks, hostile

# Attacks that last as long as the sentry's patience, a minute for each request.
SILENT = {"silence"}
# The sentry takes 16 million names before it gives up, and the gofer needs minutes to make them.
LONG = {"endless"}


class Sandbox:
    """The parts that work without a gofer of others: the program itself."""

    def __init__(self, rf):
        self.rf = rf
        self.program = rf.scratch + "/inside"
        command = ["gcc", "-O1", "-Wall", "-Wextra", "-static", "-o", self.program, HERE + "/inside.c"]
        subprocess.run(command, check=True)

    def native(self, what, directory):
        result = subprocess.run([self.program, what, directory], capture_output=True, text=True, timeout=60)
        check((result.returncode, result.stdout.endswith("done\n"), result.stderr), (0, True, ""))
        return result.stdout

    def compare(self, got, wanted):
        check(got.returncode, 0, got.stderr)
        for ours, theirs in zip(got.stdout.splitlines(), wanted.splitlines()):
            check(ours, theirs)
        check(len(got.stdout), len(wanted))

    def test_the_program_on_a_volume(self):
        """The lines are the same on the host and on a volume, which the sentry reaches directly."""
        wanted = self.native("changes", self.rf.dir("native"))
        volume = self.rf.dir("volume")
        self.compare(self.rf("do", f"--volume={volume}:{volume}", self.program, "changes", volume), wanted)
        check(self.native("listing", volume).count("\n"), 354)

    def test_an_open_file_without_a_name(self):
        """Its mode and size change by any descriptor, also after a later one was closed."""
        wanted = self.native("nameless", self.rf.dir("native"))
        volume = self.rf.dir("volume")
        self.compare(self.rf("do", f"--volume={volume}:{volume}", self.program, "nameless", volume), wanted)


class Gofers(Sandbox):
    """The same with `--gofer`."""

    def inside(self, gofer, what, timeout=300):
        """Run the program in the gofer's tree. This is the one place that knows where the tree is inside."""
        return self.rf(f"--gofer=unix:{gofer.socket}", "do", "--", self.program, what, "/gofer", timeout=timeout)

    def test_changes_through_a_gofer(self):
        wanted = self.native("changes", self.rf.dir("native"))
        with objects(self.rf) as gofer:
            self.compare(self.inside(gofer, "changes"), wanted)
            # What it left is with the gofer.
            channel, root = gofer.attach()
            check(channel.names(root), [b"e", b"many"])
            check(len(channel.names(channel.keep(root, b"many"))), 351)

    def test_two_sandboxes_and_one_gofer(self):
        """Each sees at once what the other one does."""
        with objects(self.rf, '{"good": "good"}') as gofer:
            first, second = (self.inside(gofer, "listing").stdout for _ in range(2))
            check(first, second)
            channel, root = gofer.attach()
            os.close(channel.create(root, b"new")[1])
            assert "./new" in self.inside(gofer, "listing").stdout

    def test_an_archive_through_a_gofer(self):
        """The listing is that of the unpacked archive."""
        path = Archives(self.rf).tar(
            ("file", b"content", dict(mode=0o644, mtime=1000)),
            ("d/e/f/deep", os.urandom(100000), dict(mode=0o600, uid=5, gid=6, mtime=2000)),
            ("d/run", b"#!/bin/sh\n", dict(mode=0o755, mtime=3000)),
            ("d/link", "../file", dict(mtime=4000)),
            ("d/twin", None, dict(type=tarfile.LNKTYPE, linkname="file", mtime=1000)),
        )
        unpacked = self.rf.dir("unpacked")
        with tarfile.open(path) as tar:
            tar.extractall(unpacked, numeric_owner=True)
        os.utime(unpacked + "/d/link", (4000, 4000), follow_symlinks=False)
        with archive(self.rf, path) as gofer:
            self.compare(self.inside(gofer, "listing"), self.native("listing", unpacked))
            refused = self.inside(gofer, "refusals").stdout.splitlines()
            assert all(line.endswith(": EROFS") for line in refused[:-1]), refused

    def test_hostile_gofers(self):
        """Whatever a gofer does, the program ends, and so does the sandbox."""
        for attack in attacks():
            if attack in SILENT | LONG:
                continue
            with hostile(self.rf, attack) as gofer:
                result = self.inside(gofer, "pokes", timeout=120)
                check((result.returncode, result.stdout.endswith("done\n")), (0, True), f"{attack}: {result.stderr}")
                assert "panicked" not in result.stderr, f"{attack}: {result.stderr}"


def tests(rf):
    """Those that this build can run."""
    return Gofers(rf) if "--gofer" in rf("flags").stdout else Sandbox(rf)

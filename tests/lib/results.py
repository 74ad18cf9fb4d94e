"""Results of one runner, in lines that tests/all reads too:

skip NAME: REASON              a test that did not run; "(N checks)" at the end when it stands for N checks
flake NAME: WHAT FAILED        a test that failed first and passed when it ran again
N passed, N failed             the last line
"""

import os, shutil


class Skip(Exception):
    """The machine cannot run the test; the text says what it lacks."""


def need(condition, reason):
    if not condition:
        raise Skip(reason)


def need_root():
    need(os.geteuid() == 0, "needs root")


def need_programs(*names):
    missing = [name for name in names if not shutil.which(name)]
    need(not missing, f"not installed: {' '.join(missing)}")


def need_file(path):
    need(os.path.exists(path), f"not installed: {path}")


def one_line(error, length=300):
    """The first line of a message that has text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else "no message")[:length]


class Results:
    """Counts of tests. A lock is the caller's, where tests run at once."""

    def __init__(self):
        self.passed, self.failed, self.skips, self.flakes = 0, 0, [], []

    def ok(self, name, note=""):
        self.passed += 1
        print(f"ok {name}{f' ({note})' if note else ''}", flush=True)

    def fail(self, name, error):
        self.failed += 1
        print(f"FAIL {name}: {error}", flush=True)

    def skip(self, name, reason, checks=1):
        self.skips.append(name)
        print(f"skip {name}: {one_line(reason)}{f' ({checks} checks)' if checks > 1 else ''}", flush=True)

    def flake(self, name, error):
        """Call this when a repeated test has passed, with its first error."""
        self.flakes.append(name)
        print(f"flake {name}: {one_line(error)}", flush=True)

    def end(self):
        """Print the summary; returns the exit status."""
        if self.skips:
            print(f"{len(self.skips)} skipped: {' '.join(self.skips)}")
        if self.flakes:
            print(f"{len(self.flakes)} flakes: {' '.join(self.flakes)}")
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        return 1 if self.failed else 0

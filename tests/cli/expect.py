"""What the tests of the command line expect."""


def check(got, want, what=""):
    assert got == want, f"{what}: expected {want!r}, got {got!r}"


def one_line(result, status, *words):
    """A failure: nothing on standard output, one line that names the program and the words, the status."""
    check(result.returncode, status, f"exit status of {result.args}: {result.stderr!r}")
    check(result.stdout, "", "standard output")
    lines = result.stderr.splitlines()
    check(len(lines), 1, f"lines on standard error: {result.stderr!r}")
    assert lines[0].startswith("ringfence: "), lines[0]
    for word in words:
        assert word in lines[0], f"{word!r} is not in {lines[0]!r}"

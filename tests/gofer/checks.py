"""Checks that the tests of gofers share."""

import contextlib, errno


def check(got, want, what=""):
    assert got == want, f"{what}: expected {want!r}, got {got!r}"


@contextlib.contextmanager
def refuses(name):
    """What happens inside fails with this error."""
    try:
        yield
    except OSError as error:
        got = errno.errorcode.get(error.errno, error.errno)
        assert error.errno == getattr(errno, name), f"expected {name}, got {got}"
    else:
        raise AssertionError(f"expected {name}, got no error")

"""What the programs of kinds.py and objects.py share."""

import ctypes, os, sys, time

DIR = sys.argv[1] if len(sys.argv) > 1 else "/ctl"
libc = ctypes.CDLL(None, use_errno=True)


def pause():
    """The moment in which a checkpoint may be made."""
    print("ready", flush=True)
    while not os.path.exists(DIR + "/go"):
        time.sleep(0.01)


def same(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what}: expected {want!r}, got {got!r}")


def call(name, *args):
    """A function of the C library; OSError when it gives -1."""
    got = getattr(libc, name)(*args)
    if got == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return got

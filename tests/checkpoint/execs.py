"""Processes that `exec` started: the programs at the other ends of their streams are not there after a restore."""

import json, os, socket, subprocess

from results import need_root

RF = None  # the program under test
suite = None  # the module of the runner

# Says what its streams do after the checkpoint, during which it waits for input.
STREAMS = """
import errno, os, select, sys
names = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)]
print("up", flush=True)
got = os.read(0, 10)
poll = select.poll()
poll.register(1)
events = poll.poll(0)[0][1]

def error(call):
    try:
        return call()
    except OSError as failed:
        return errno.errorcode[failed.errno]

said = {
    "read": got.decode(),
    "write": error(lambda: os.write(1, b"x")),
    "poll": bool(events & select.POLLHUP),
    "names": names == [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)],
    "null": error(lambda: os.write(2, b"x")),
}
"""
SAYS = """
import json
with open("/ctl/part", "w") as f:
    json.dump(said, f)
os.rename("/ctl/part", "/ctl/said")
"""
# The same of a terminal.
TERMINAL = """
import os, signal, sys
signals = []
signal.signal(signal.SIGHUP, lambda number, frame: signals.append(number))
print("up", flush=True)
"""


def said(box):
    path = box.ctl + "/said"
    RF.wait_for(lambda: os.path.exists(path))
    with open(path) as f:
        return json.load(f)


def restored(box):
    image = box.checkpoint()
    RF.wait_for(lambda: suite.status(box.id) == "stopped")
    suite.works("delete", box.id)
    return box.restore(image)


def nothing_is_left(box):
    """The processes have gone: the container has its first one alone."""
    RF.wait_for(lambda: len(json.loads(suite.works("ps", "--format", "json", box.id))) == 1)
    suite.works("delete", "--force", box.id)


def test_streams_of_exec():
    """Reads give the end of the file, writes EPIPE; /dev/null stays what it is."""
    need_root()
    box = suite.Box("streams", "python3", "-c", suite.COUNTS).run()
    argv = RF.argv(["exec", "streams", "python3", "-c", STREAMS + SAYS])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(argv, **pipes) as p:
        suite.check(p.stdout.readline(), b"up\n")
        restored(box)
    want = {"read": "", "write": "EPIPE", "poll": True, "names": True, "null": 1}
    suite.check(said(box), want)
    nothing_is_left(box)


def test_terminal_of_exec():
    """The session's leader gets SIGHUP; reads give the end of the file, writes EIO."""
    need_root()
    script = TERMINAL + STREAMS.replace('print("up", flush=True)', "") + "said['signals'] = signals\n" + SAYS
    box = suite.Box("terminal", "python3", "-c", suite.COUNTS).run()
    path = RF.dir("console") + "/s"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    argv = ["exec", "--tty", "--detach", "--console-socket", path, "terminal", "python3", "-c", script]
    p = subprocess.Popen(RF.argv(argv), stdin=subprocess.DEVNULL)
    master = socket.recv_fds(listener.accept()[0], 4096, 1)[1][0]
    suite.check(p.wait(60), 0)
    shown = b""
    while b"up" not in shown:
        shown += os.read(master, 4096)
    restored(box)
    want = {"read": "", "write": "EIO", "poll": True, "names": False, "null": "EIO", "signals": [1]}
    suite.check(said(box) | {"names": False}, want)
    restored(box)
    nothing_is_left(box)
    os.close(master)

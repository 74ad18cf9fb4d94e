"""Starts a gofer for a test and ends it."""

import os, socket, subprocess, sys

from client import connect

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(HERE)), "docs/examples/gofer")


class Gofer:
    """A program that listens on a socket: `with Gofer(rf, "objects.py", SOCKET, ...) as gofer`."""

    SOCKET = object()  # stands for the socket's path among the arguments

    def __init__(self, rf, program, *arguments):
        self.rf, self.socket = rf, rf.dir("gofer") + "/socket"
        self.log = open(self.socket + ".log", "w+")
        arguments = [self.socket if a is Gofer.SOCKET else str(a) for a in arguments]
        path = program if os.path.isabs(program) else f"{EXAMPLES}/{program}"
        command = [sys.executable, path, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def connect(self):
        """A connection's first channel."""
        return connect(self.socket)

    def attach(self):
        """A channel and the handle of the root."""
        channel = self.connect()
        return channel, channel.attach()[1]

    def output(self):
        with open(self.socket + ".log") as log:
            return log.read()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def __enter__(self):
        def listens():
            if self.process.poll() is not None:
                return True  # It has said why.
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                return s.connect_ex(self.socket) == 0

        self.rf.wait_for(listens)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(20)
        self.log.close()


def archive(rf, path):
    return Gofer(rf, "archive.py", path, Gofer.SOCKET)


def objects(rf, text="{}"):
    return Gofer(rf, "objects.py", Gofer.SOCKET, text)

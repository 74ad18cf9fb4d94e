"""Columns of bench/run with trace sessions: every point with a message of its own, and ten that are usual."""

import json, os, socket, subprocess, sys, tempfile

# What a security team watches first.
TEN = (
    "container/start sentry/execve sentry/clone sentry/exit_notify_parent syscall/openat/enter syscall/connect/enter "
    "syscall/accept4/exit syscall/bind/enter syscall/setuid/enter syscall/chroot/enter"
).split()
CONTEXT = "time thread_id group_id container_id credentials process_name".split()
# A consumer that reads all and does nothing with it, in a process of its own.
CONSUMER = """
import socket, sys, threading
listener = socket.socket(fileno=int(sys.argv[1]))
def serve(connection):
    connection.recv(1024)
    connection.send(b"\\x08\\x01")
    buffer = bytearray(1 << 22)
    while connection.recv_into(buffer):
        pass
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


class Traced:
    """Sessions and the consumer that they go to."""

    def __init__(self, program, directory):
        # Not in /tmp, over which the rows mount a file system of their own.
        self.dir = tempfile.mkdtemp(prefix="traced-", dir=directory)
        self.endpoint = self.dir + "/consumer"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self.endpoint)
        listener.listen(64)
        fd = listener.fileno()
        argv = [sys.executable, "-c", CONSUMER, str(fd)]
        self.consumer = subprocess.Popen(argv, pass_fds=[fd], stdin=subprocess.DEVNULL)
        told = subprocess.run([program, "trace", "metadata"], capture_output=True, text=True, check=True).stdout
        names = [line.split(",")[0][len("Name: ") :] for line in told.splitlines() if "optional fields" in line]
        self.all = [name for name in names if "/sysno/" not in name]

    def session(self, name, points):
        """The path of a session with these points."""
        sink = {"name": "remote", "config": {"endpoint": self.endpoint}}
        points = [{"name": p, "context_fields": CONTEXT} for p in points]
        path = f"{self.dir}/{name}.json"
        with open(path, "w") as f:
            json.dump({"trace_session": {"name": name, "points": points, "sinks": [sink]}}, f)
        return path

    def columns(self, program, platform):
        """Prefixes of commands by column."""
        sessions = {"traced-all": self.all, "traced-ten": TEN}
        flags = {n: ["--pod-init-config", self.session(n, points)] for n, points in sessions.items()}
        return {n: [program, f"--platform={platform}", *f, "do", "--volume={dir}"] for n, f in flags.items()}

    def end(self):
        self.consumer.kill()
        self.consumer.wait()
        for name in os.listdir(self.dir):
            os.unlink(f"{self.dir}/{name}")
        os.rmdir(self.dir)

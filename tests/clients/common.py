"""What the checks of all clients use."""

import os, pty, select, signal, subprocess, time


from results import need


class Failure(Exception):
    pass


def check(got, want, what=""):
    if got != want:
        raise Failure(f"{what}: want {want!r}, got {got!r}" if what else f"want {want!r}, got {got!r}")


def has(text, *parts):
    for part in parts:
        if part not in text:
            raise Failure(f"{part!r} is not in {text!r}")


class Unavailable(Exception):
    """A client cannot run on this machine, whatever the runtime."""


def wait_for(condition, seconds=60, what="condition"):
    end = time.time() + seconds
    while not condition():
        if time.time() > end:
            raise Failure(f"{what} did not come true in {seconds} s")
        time.sleep(0.05)


class Result:
    def __init__(self, p):
        self.status, self.out, self.err = p.returncode, p.stdout, p.stderr
        self.all = self.out + self.err


def call(args, input=None, timeout=90, **kw):
    try:
        if input is None:
            kw["stdin"] = subprocess.DEVNULL
        else:
            kw["input"] = input
        return Result(
            subprocess.run(
                args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout, errors="replace", **kw
            )
        )
    except subprocess.TimeoutExpired as e:
        raise Failure(f"no end after {timeout} s: {' '.join(args)[:200]}: {e.stdout!r} {e.stderr!r}")


def on_terminal(args, script, timeout=40, meanwhile=None):
    """Runs a command on a terminal; `script` is a list of (text to wait for, bytes to send then). Gives all output and
    the status. After the script `meanwhile` is called again and again."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp(args[0], args)
    out, end, script = b"", time.time() + timeout, list(script)
    try:
        while True:
            if script and script[0][0].encode() in out:
                send = script.pop(0)[1]
                if callable(send):
                    send(fd)
                else:
                    os.write(fd, send)
                continue
            if time.time() > end:
                raise Failure(f"no end: waiting for {script[:1]}, got {out[-500:]!r}")
            if meanwhile and not script:
                meanwhile(fd)
            if select.select([fd], [], [], 0.2)[0]:
                try:
                    data = os.read(fd, 4096)
                except OSError:
                    break
                if not data:
                    break
                out += data
        _, status = os.waitpid(pid, 0)
        pid = 0
        return out.decode(errors="replace").replace("\r\n", "\n"), os.waitstatus_to_exitcode(status)
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(fd)


def need_ours(e):
    need(call([e.runtime, "--version"]).out.startswith("ringfence"), "for Ringfence only")


# In the state directory: how overlays that are written back are known. It stays (docs/security.md).
WRITE_BACK = "@write-back"


def leftovers(stage):
    """What containers left: processes of the runtime, mounts, state."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/exe").startswith(f"{stage.dir}/bin/"):
                found.append("process " + open(f"/proc/{pid}/cmdline").read().replace("\0", " "))
        except OSError:
            pass
    for state in (
        "/run/ringfence",
        "/run/containerd/ringfence/default",
        "/run/containerd/ringfence/k8s.io",
        "/run/containerd/s",
        # Docker of an ordinary user.
        "/run/xdg/docker/runtime-runc/moby",
    ):
        names = os.listdir(state) if os.path.isdir(state) else []
        found += [f"{state}/{n}" for n in names if n != WRITE_BACK]
    return found

"""Containers of whole runtimes: how long one takes to start and end, and what an idle one holds. Used by bench/run."""

import ctypes, json, os, shutil, subprocess, tempfile, time

CLONE_NEWNS, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 16384, 1 << 18, 2
libc = ctypes.CDLL(None)

# Seconds that an idle container is left alone before it is weighed.
SETTLE = 5
PARENT = f"ringfence-bench-{os.getpid()}"


def hide_unified():
    """crun refuses control groups of both versions at once; in a mount namespace of its own it sees the first only."""
    libc.unshare(CLONE_NEWNS)
    libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    libc.umount2(b"/sys/fs/cgroup/unified", MNT_DETACH)


class Bundles:
    """A busybox root and a state directory, removed at the end."""

    def __enter__(self):
        self.dir, self.count = tempfile.mkdtemp(prefix="ringfence-bench-"), 0
        for d in ("bin", "proc", "dev", "sys", "tmp"):
            os.makedirs(f"{self.dir}/rootfs/{d}")
        shutil.copy(shutil.which("busybox"), self.dir + "/rootfs/bin/busybox")
        for name in ("true", "sleep", "sh"):
            os.symlink("busybox", f"{self.dir}/rootfs/bin/{name}")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir, ignore_errors=True)
        for controller in os.listdir("/sys/fs/cgroup"):
            for top, _, _ in os.walk(f"/sys/fs/cgroup/{controller}/{PARENT}", topdown=False):
                os.rmdir(top)

    def make(self, *args):
        self.count += 1
        self.id = f"bench-{os.getpid()}-{self.count}"
        config = {
            "ociVersion": "1.0.2",
            "process": {
                "terminal": False,
                "user": {"uid": 0, "gid": 0},
                "args": list(args),
                "env": ["PATH=/bin"],
                "cwd": "/",
            },
            "root": {"path": "rootfs"},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            ],
            "linux": {
                "cgroupsPath": f"/{PARENT}/{self.id}",
                "namespaces": [{"type": t} for t in ("pid", "network", "ipc", "uts", "mount")],
            },
        }
        with open(self.dir + "/config.json", "w") as f:
            json.dump(config, f)
        return self.id

    def call(self, runtime, *args):
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.run(
            [runtime, "--root", self.dir + "/state", *args], timeout=60, preexec_fn=hide_unified, **quiet
        ).returncode


def start(runtime, times=5):
    """Nanoseconds of `run` of /bin/true, each time."""
    took = []
    with Bundles() as b:
        for _ in range(times):
            id, begin = b.make("true"), time.monotonic_ns()
            status = b.call(runtime, "run", "--bundle", b.dir, id)
            took.append(time.monotonic_ns() - begin)
            if status:
                return None, f"exit status {status}"
    return took, ""


def proportional(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Pss:")) * 1024


def idle(runtime):
    """Bytes of proportional memory of all processes in the control groups of an idle container."""
    with Bundles() as b:
        id = b.make("sleep", "1000")
        if status := b.call(runtime, "run", "--detach", "--bundle", b.dir, id):
            return None, f"exit status {status}"
        try:
            time.sleep(SETTLE)
            pids = set()
            for controller in os.listdir("/sys/fs/cgroup"):
                for top, _, _ in os.walk(f"/sys/fs/cgroup/{controller}/{PARENT}/{id}"):
                    with open(top + "/cgroup.procs") as f:
                        pids |= set(f.read().split())
            return sum(map(proportional, pids)), "" if pids else "no processes found"
        finally:
            b.call(runtime, "delete", "--force", id)

"""Docker inside: its daemon, containerd and a container that counts are saved, end, and go on, again and again."""

import os

from results import need_programs, need_root

RF = None  # the program under test
suite = None  # the module of the runner

CAPABILITIES = """CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
    NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_CHROOT SYS_PTRACE SYS_ADMIN SYS_BOOT
    SYS_NICE SYS_RESOURCE MKNOD LEASE AUDIT_WRITE SETFCAP"""

# Writes what the container counts to /ctl/said each time when /ctl/ask appears.
SCRIPT = r"""
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp DOCKER_BUILDKIT=0 DOCKER_HOST=unix:///run/docker.sock
for d in /run /var/lib/docker /var/lib/containerd; do mkdir -p $d; mount -t tmpfs none $d; done
mount -t sysfs sys /sys; mount -t cgroup2 none /sys/fs/cgroup
ip link set dev lo up
dockerd --storage-driver overlay2 -H $DOCKER_HOST --exec-opt native.cgroupdriver=cgroupfs > /ctl/log 2>&1 &
for _ in $(seq 300); do docker version > /dev/null 2>&1 && break; sleep 0.1; done
mkdir /tmp/image; cp $(which busybox) /tmp/image/busybox
cat > /tmp/image/Dockerfile <<'FILE'
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
FILE
docker build -q -t image /tmp/image
docker run -d --name counting image sh -c 'i=0; while :; do i=$((i+1)); echo $i > /m; mv /m /n; sleep 0.05; done'
until docker exec counting test -e /n; do sleep 0.1; done 2> /dev/null
echo started
while :; do
    if [ -e /ctl/ask ]; then
        { docker exec counting cat /n; docker ps --format '{{.Names}} {{.State}}'; } > /ctl/saying 2>&1
        rm /ctl/ask; mv /ctl/saying /ctl/said
    fi
    sleep 0.05
done
"""


def test_docker_inside():
    need_root()
    need_programs("dockerd", "docker", "containerd", "runc", "busybox", "ip")
    box = suite.Box("docker", "sh", "-c", SCRIPT, flags=["--overlay2=root:memory"])

    def edit(config):
        config["root"]["readonly"] = False
        names = ["CAP_" + name for name in CAPABILITIES.split()]
        config["process"]["capabilities"] = dict.fromkeys(("bounding", "effective", "permitted"), names)
        config["process"]["rlimits"] = [{"type": "RLIMIT_NOFILE", "hard": 65536, "soft": 65536}]
        for masks in ("readonlyPaths", "maskedPaths"):
            config["linux"].pop(masks, None)

    RF.edit(box.bundle, edit)
    box.run()
    RF.wait_for(lambda: "started" in suite.text(box.out).splitlines(), 60)

    def counted():
        open(box.ctl + "/ask", "w").close()
        RF.wait_for(lambda: os.path.exists(box.ctl + "/said"), 60)
        said = suite.text(box.ctl + "/said").splitlines()
        os.unlink(box.ctl + "/said")
        assert len(said) == 2 and said[0].isdigit(), (said, suite.text(box.ctl + "/log")[-2000:])
        suite.check(said[1], "counting running")
        return int(said[0])

    last = counted()
    for _ in range(10):
        image = box.checkpoint()
        RF.wait_for(lambda: suite.status("docker") == "stopped")
        suite.works("delete", "docker")
        box.restore(image)
        now = counted()
        assert now > last, (now, last)
        last = now
    suite.works("delete", "--force", "docker")

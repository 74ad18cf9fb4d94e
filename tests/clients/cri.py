"""containerd's CRI, as Kubernetes uses it: pods in the shim of our own."""

import json, os, signal, socket, struct, subprocess, sys
from urllib.parse import urlsplit

from common import Failure, check, has, wait_for
from shim import number

PLUGIN = 'plugins."io.containerd.grpc.v1.cri"'


def config_of_cri(directory):
    """The part of containerd's configuration that is CRI's. There is a network of a bridge, without a way out."""
    os.makedirs(f"{directory}/cni", exist_ok=True)
    network = {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "rf-pods",
                "isGateway": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": f"{directory}/cni-state",
                    "ranges": [[{"subnet": "10.87.0.0/16"}]],
                },
            }
        ],
    }
    json.dump(network, open(f"{directory}/cni/10-pods.conflist", "w"))
    with open(f"{directory}/hostnet.toml", "w") as file:
        file.write('[ringfence_config]\nhost-network = "true"\n')
    return f"""
[{PLUGIN}]
sandbox_image = "docker.io/library/pause:latest"
restrict_oom_score_adj = true
disable_tcp_service = true
[{PLUGIN}.cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{directory}/cni"
[{PLUGIN}.containerd]
default_runtime_name = "ringfence"
[{PLUGIN}.containerd.runtimes.ringfence]
runtime_type = "io.containerd.ringfence.v1"
[{PLUGIN}.containerd.runtimes.hostnet]
runtime_type = "io.containerd.ringfence.v1"
[{PLUGIN}.containerd.runtimes.hostnet.options]
TypeUrl = "runtimeoptions.v1.Options"
ConfigPath = "{directory}/hostnet.toml"
"""


def fields(data):
    """A message's fields: number to values, which are numbers or bytes."""
    found, at = {}, 0

    def varint():
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            length = varint()
            value = data[at : at + length]
            at += length
        found.setdefault(key >> 3, []).append(value)
    return found


def text(message, n):
    return message.get(n, [b""])[0].decode(errors="replace")


RUNNING, EXITED = 1, 2


class Cri:
    def __init__(self, stage, ctr):
        # Debian's packages, for a python3 that is another one of the same version.
        sys.path.append("/usr/lib/python3/dist-packages")
        try:
            import grpc
        except ImportError:
            raise Failure("Python's grpc module is missing; install python3-grpcio")
        self.stage, self.ctr, self.n = stage, ctr, 0
        self.channel = grpc.insecure_channel(f"unix://{stage.dir}/containerd/sock")
        self.error = grpc.RpcError
        wait_for(lambda: self("Version", b""), 30, "CRI")

    def __call__(self, method, payload):
        call = self.channel.unary_unary(
            f"/runtime.v1.RuntimeService/{method}", request_serializer=bytes, response_deserializer=bytes
        )
        try:
            return fields(call(payload, timeout=60))
        except self.error as e:
            raise Failure(f"{method}: {e.details()}")

    def clean(self):
        """Removes the pods that a check has left."""
        for sandbox in self("ListPodSandbox", b"").get(1, []):
            id = text(fields(sandbox), 1)
            self("StopPodSandbox", number(1, id))
            self("RemovePodSandbox", number(1, id))

    def pod(self, *, host_network=False, shared_pids=False, handler="ringfence"):
        self.n += 1
        name = f"pod{self.n}"
        namespaces = number(1, 2 if host_network else 0) + number(2, 0 if shared_pids else 1) + number(3, 0)
        linux = number(1, f"/{self.stage.parent}") + number(2, number(1, namespaces))
        config = number(1, number(1, name) + number(2, name) + number(3, "default"))
        config += b"" if host_network else number(2, name)
        config += number(3, f"{self.stage.dir}/pod-logs/{name}") + number(8, linux)
        pod = text(self("RunPodSandbox", number(1, config) + number(2, handler)), 1)
        return Pod(self, name, pod, config, namespaces)


class Pod:
    def __init__(self, cri, name, id, config, namespaces):
        self.cri, self.name, self.id, self.config, self.namespaces, self.n = cri, name, id, config, namespaces, 0

    def create(self, *command, memory=0, uid=None):
        self.n += 1
        context = number(3, self.namespaces)
        if uid is not None:
            context += number(5, number(1, uid))
        config = number(1, number(1, f"c{self.n}")) + number(2, number(1, "docker.io/library/img:latest"))
        config += b"".join(number(3, part) for part in command) + number(11, f"c{self.n}.log")
        config += number(15, number(1, number(4, memory)) + number(2, context))
        return text(self.cri("CreateContainer", number(1, self.id) + number(2, config) + number(3, self.config)), 1)

    def run(self, *command, **options):
        container = self.create(*command, **options)
        self.cri("StartContainer", number(1, container))
        return container

    def log(self, n):
        lines = open(f"{self.cri.stage.dir}/pod-logs/{self.name}/c{n}.log").read().splitlines()
        return [line.split(" ", 3)[3] for line in lines]

    def status(self, container):
        status = fields(self.cri("ContainerStatus", number(1, container))[1][0])
        return status.get(3, [0])[0], status.get(7, [0])[0], text(status, 10)

    def exec(self, container, *command):
        answer = self.cri(
            "ExecSync", number(1, container) + b"".join(number(2, part) for part in command) + number(3, 20)
        )
        return text(answer, 1), answer.get(3, [0])[0]

    def wait(self, container):
        wait_for(lambda: self.status(container)[0] == EXITED, what="the container's end")
        return self.status(container)[1:]

    def remove(self):
        self.cri("StopPodSandbox", number(1, self.id))
        self.cri("RemovePodSandbox", number(1, self.id))


def cri_pod(c):
    pod = c.pod()
    a = pod.run("sh", "-c", "echo out; hostname; exec sleep 1000")
    b = pod.run("sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.1; done")
    check((pod.status(a)[0], pod.status(b)[0]), (RUNNING, RUNNING))
    check(pod.exec(a, "sh", "-c", "echo in; exit 3"), ("in\n", 3))
    wait_for(lambda: pod.log(1) == ["out", pod.name])
    c("StopContainer", number(1, b) + number(2, 10))
    check(pod.wait(b)[0], 7)
    check(pod.status(a)[0], RUNNING)
    c("RemoveContainer", number(1, b))
    pod.remove()


def cri_exit(c):
    pod = c.pod()
    check(pod.wait(pod.run("sh", "-c", "exit 5")), (5, "Error"))
    check(pod.wait(pod.run("true")), (0, "Completed"))
    try:
        pod.run("nosuch")
        raise AssertionError("started")
    except Failure as e:
        has(str(e), "executable file not found")
    pod.remove()


def cri_shared(c):
    pod = c.pod(shared_pids=True)
    a = pod.run("sh", "-c", "exec sleep 4321")
    b = pod.run("sh", "-c", "exec sleep 1000")
    has(pod.exec(b, "ps")[0], "sleep 4321")
    # One host name, too.
    check(pod.exec(a, "hostname"), pod.exec(b, "hostname"))
    pod.remove()


def cri_user(c):
    # /dev/stdout can be opened anew by the container's user.
    pod = c.pod()
    pod.run("sh", "-c", "id -u >/dev/stdout; exec sleep 1000", uid=1000)
    wait_for(lambda: pod.log(1) == ["1000"])
    pod.remove()


def cri_stats(c):
    pod = c.pod()
    a = pod.run("sleep", "1000", memory=200 << 20)
    stats = fields(c("ContainerStats", number(1, a))[1][0])
    memory = fields(fields(stats[3][0])[2][0])
    assert memory.get(1, [0])[0] > 10000, memory
    c("UpdateContainerResources", number(1, a) + number(2, number(4, 100 << 20)))
    pod.remove()


def cri_oom(c):
    pod = c.pod()
    a = pod.run("sh", "-c", "dd if=/dev/zero of=/dev/null bs=300M count=1", memory=100 << 20)
    check(pod.wait(a), (137, "OOMKilled"))
    pod.remove()


def cri_one_shim(c):
    pod = c.pod()
    containers = [pod.run("sleep", "1000") for _ in range(3)]
    shims = shims_of(pod)
    check(len(shims), 1)
    for container in containers:
        check(pod.exec(container, "echo", "here"), ("here\n", 0))
    pod.remove()
    wait_for(lambda: not os.path.exists(f"/proc/{shims[0]}"))


def shims_of(pod):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if pod.id in open(f"/proc/{pid}/cmdline").read().split("\0") and os.readlink(f"/proc/{pid}/exe").endswith(
                "-ringfence-v1"
            ):
                found.append(int(pid))
        except OSError:
            pass
    return found


def cri_shim_killed(c):
    pod = c.pod()
    containers = [pod.run("sleep", "1000") for _ in range(2)]
    os.kill(shims_of(pod)[0], signal.SIGKILL)
    for container in containers:
        # 255: containerd heard of the shim's end first.
        assert pod.wait(container)[0] in (137, 255)
    pod.remove()


def cri_host_network(c):
    """Where the runtime allows it, with the host's sockets."""
    refused = ""
    try:
        c.pod(host_network=True)
    except Failure as failure:
        refused = str(failure)
    has(refused, "--host-network")
    pod = c.pod(host_network=True, handler="hostnet")
    container = pod.run("busybox", "httpd", "-f", "-p", "18083", "-h", "/etc")
    fetch = ("busybox", "wget", "-q", "-O", "/dev/null", "http://127.0.0.1:18083/passwd")
    wait_for(lambda: subprocess.run(fetch).returncode == 0, what="an answer on the host's port")
    check(pod.exec(container, "echo", "here"), ("here\n", 0))
    pod.remove()


def cri_restart(c):
    # A container of a pod ends and another one takes its place, as the kubelet does it.
    pod = c.pod()
    stays = pod.run("sleep", "1000")
    for i in range(3):
        container = pod.run("sh", "-c", f"exit {i}")
        check(pod.wait(container)[0], i)
        c("RemoveContainer", number(1, container))
    check(pod.status(stays)[0], RUNNING)
    pod.remove()


def cri_init_ends(c):
    # The end of the pod's own container is the pod's.
    pod = c.pod()
    container = pod.run("sleep", "1000")
    state = json.load(open(f"/run/containerd/ringfence/k8s.io/{pod.id}/state.json"))
    os.kill(state["state"]["pid"], signal.SIGKILL)
    check(pod.wait(container)[0], 137)
    pod.remove()


def websocket(url, protocol):
    """A connection that speaks frames of binary data."""
    parts = urlsplit(url)
    c = socket.create_connection((parts.hostname, parts.port), timeout=30)
    lines = [
        f"GET {parts.path}?{parts.query} HTTP/1.1", f"Host: {parts.netloc}", "Upgrade: websocket",
        "Connection: Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Protocol: {protocol}", f"Origin: http://{parts.netloc}", "", "",
    ]
    c.sendall("\r\n".join(lines).encode())
    head = b""
    while b"\r\n\r\n" not in head and (byte := c.recv(1)):
        head += byte
    has(head.decode(), " 101 ")
    return c


def frame(c):
    """The payload of the next frame; nothing at the end."""
    start = c.recv(2, socket.MSG_WAITALL)
    if len(start) < 2 or start[0] & 15 == 8:
        return None
    length = start[1] & 127
    if length >= 126:
        length = int.from_bytes(c.recv(2 if length == 126 else 8, socket.MSG_WAITALL), "big")
    return c.recv(length, socket.MSG_WAITALL) if length else b""


def cri_port_forward(c):
    """As `kubectl port-forward`: containerd connects to 127.0.0.1 in the pod's network namespace."""
    pod = c.pod()
    server = pod.run("sh", "-c", "echo passed on >/tmp/f; exec busybox httpd -f -p 127.0.0.1:8080 -h /tmp")
    fetch = ["busybox", "wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8080/f"]
    wait_for(lambda: pod.exec(server, *fetch)[1] == 0, what="the server")
    url = text(c("PortForward", number(1, pod.id) + number(2, 8080)), 1)
    connection = websocket(url + "?port=8080", "v4.channel.k8s.io")
    request, mask = b"\0GET /f HTTP/1.0\r\n\r\n", b"\1\2\3\4"
    # Channel 0 is the data's, 1 the errors'; each begins with the port.
    masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(request))
    connection.sendall(struct.pack(">BB", 0x82, 0x80 | len(request)) + mask + masked)
    got, errors = b"", b""
    while b"passed on\n" not in got and not errors[2:] and (data := frame(connection)) is not None:
        got, errors = (got + data[1:], errors) if data[:1] == b"\0" else (got, errors + data[1:])
    connection.close()
    has(got.decode(errors="replace"), "200 OK", "passed on\n")
    pod.remove()

"""Docker of an ordinary user: dockerd-rootless.sh, in the namespaces of rootlesskit, with slirp4netns."""

import json, os, socket

from common import check, has, need_ours, wait_for
from traffic import ASK, ECHO, PYTHON, USR, Net, answers, echoes, host_image

SCRIPT = "/usr/share/docker.io/contrib/dockerd-rootless.sh"
PROGRAMS = [SCRIPT, "rootlesskit", "rootlesskit-docker-proxy", "slirp4netns", "newuidmap", "dockerd", "/usr/bin/docker"]


def start(stage, as_user, xdg):
    """Starts the daemon of the user; its command line client."""
    sock = f"unix://{xdg}/docker.sock"
    config = {
        "runtimes": {"rf": {"path": stage.runtime}},
        "default-runtime": "rf",
        "data-root": f"{stage.dir}/home/docker",
        "exec-root": f"{xdg}/docker",
        "pidfile": f"{xdg}/docker.pid",
        "hosts": [sock],
        "storage-driver": "vfs",
        "userland-proxy-path": "/usr/bin/rootlesskit-docker-proxy",
    }
    path = f"{stage.dir}/rootless.json"
    with open(path, "w") as f:
        json.dump(config, f)
    os.chmod(path, 0o644)
    stage.start(*as_user, SCRIPT, "--config-file", path)
    return [*as_user, "/usr/bin/docker", "-H", sock]


def published(e, port, addresses, family=socket.AF_INET, datagrams=True):
    host_image(e)
    ports = [part for a in addresses for part in ("-p", f"{a}:{port}:7", "-p", f"{a}:{port}:7/udp")]
    name = e.background(*ports, *USR, "host", PYTHON, "-c", ECHO)
    ip = addresses[0].strip("[]")
    wait_for(lambda: answers(ip, port), what="an answer on the published port")
    echoes(ip, port, family=family, datagrams=datagrams)
    e.ok("rm", "-f", name)


def rootlessdocker_status(e):
    r = e.run("img", "sh", "-c", "id -u; cat /proc/self/uid_map >/dev/null && echo fine; exit 3")
    check((r.out, r.status), ("0\nfine\n", 3), r.err)


def rootlessdocker_streams(e):
    r = e.run("-i", "img", "sh", "-c", "wc -c; echo err >&2", input="x" * 300000)
    check((r.out.strip(), r.err), ("300000", "err\n"))


def rootlessdocker_exec_and_stop(e):
    name = e.background("img", "sh", "-c", "trap 'exit 5' TERM; while :; do sleep 0.1; done")
    check(e.ok("exec", name, "hostname").strip(), e.ok("inspect", "-f", "{{.Config.Hostname}}", name).strip())
    has(e.ok("exec", name, "ip", "addr"), "eth0", "172.")
    e.ok("stop", name)
    check(e.state(name, "ExitCode"), "5")
    e.ok("rm", name)


def rootlessdocker_published(e):
    published(e, 18083, ["127.0.0.1"])


def rootlessdocker_published_ipv6(e):
    published(e, 18084, ["[::1]"], family=socket.AF_INET6, datagrams=False)


def rootlessdocker_names(e):
    """Docker's name server on a network of the user's, and traffic by name."""
    with Net(e) as net:
        name = net.server(f"exec {PYTHON} -c '{ECHO}'")
        net.listens(name, 7)
        address = e.ok("exec", name, "hostname", "-I").split()[0]
        check(net.client(f"exec {PYTHON} -c '{ASK}' {name}"), f"{name} {address} {address}\n")
        script = f'import socket; s = socket.create_connection(("{name}", 7), 20); s.send(b"x")'
        check(net.client(f"{PYTHON} -c '{script}; print(s.recv(1))'"), "b'x'\n")


def rootlessdocker_kernel(e):
    """The container is in a sandbox."""
    need_ours(e)
    check(e.run("img", "test", "-e", "/proc/ringfence/generation").status, 0)

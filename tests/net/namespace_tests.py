"""Network namespaces that lead to each other: programs that make them print the same in namespaces of the host and
inside."""

import os, subprocess

from results import need_programs

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "namespaces")
COMMON = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
# Namespaces of the host have a /run for their names, and a /sys that shows their interfaces.
ON_HOST = ["unshare", "-n", "-m", "sh", "-c", 'mount -t tmpfs run /run; mount -t sysfs sys /sys; exec "$@"', "sh"]


def program(python, name):
    return [python if name.endswith(".py") else "sh", f"{PROGRAMS}/{name}"]


def like_the_host(rf, python, name, tools):
    need_programs(*tools)
    argv = program(python, name)
    host = subprocess.run(ON_HOST + argv, **COMMON).stdout.splitlines()
    inside = subprocess.run(rf.argv(["do", *argv]), **COMMON).stdout.splitlines()
    assert len(host) > 30, host
    pairs = enumerate(zip(host, inside), 1)
    difference = [f"line {n}: {a!r} on the host, {b!r} inside" for n, (a, b) in pairs if a != b]
    assert not difference, "\n".join(difference[:10])
    assert len(host) == len(inside), f"{len(host)} lines on the host, {len(inside)} inside"


def loop(rf, python):
    """Not on the host, whose processors it would keep busy."""
    need_programs("ip")
    lines = subprocess.run(rf.argv(["do", *program(python, "loop.py")]), **COMMON).stdout.splitlines()
    assert len(lines) == 4 and all(line.endswith(": True") for line in lines), lines


def tests(rf, python):
    """The tests by name."""
    return {
        "test_names_of_namespaces": lambda: like_the_host(rf, python, "names.sh", ["ip"]),
        "test_containers_on_a_bridge": lambda: like_the_host(rf, python, "docker.py", ["ip", "iptables"]),
        "test_ports_of_bridges": lambda: like_the_host(
            rf, python, "ports.sh", ["ip", "bridge", "iptables", "/usr/lib/cni/bridge"]
        ),
        "test_bridges_in_a_loop": lambda: loop(rf, python),
    }

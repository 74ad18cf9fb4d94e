"""Rules of nft and iptables: programs that load and list them print the same in a fresh network namespace of the host and inside."""
import os, re, shutil, subprocess

from ringfence import need

RULES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rules")
# Programs, and the tools that they need beside nft and iptables.
PROGRAMS = {
    "test_rules_of_docker": ("docker.sh", "sh"),
    "test_rules_of_netavark": ("netavark.sh", "sh"),
    "test_rules_of_kubernetes": ("kubernetes.sh", "sh"),
    "test_rules_with_every_expression": ("expressions.sh", "sh"),
    "test_refused_rules": ("refused.sh", "sh"),
    "test_what_rules_do": ("packets.py", "nft"),
    "test_connections": ("connections.py", "conntrack"),
}


def like_the_host(rf, python, name, tool):
    need(all(shutil.which(program) for program in ("nft", "iptables-nft", tool)))
    argv = [python if name.endswith(".py") else "sh", f"{RULES}/{name}"]
    common = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    host = subprocess.run(["unshare", "-n", "sh", "-c", 'ip link set lo up; exec "$@"', "sh", *argv], **common).stdout
    inside = subprocess.run(rf.argv(["do", *argv]), **common).stdout
    dates = re.compile(r"^# (Generated|Completed).*", re.MULTILINE)
    lines = [dates.sub("", text).splitlines() for text in (host, inside)]
    assert len(lines[0]) > 30, host
    pairs = enumerate(zip(*lines), 1)
    difference = [f"line {n}: {a!r} on the host, {b!r} inside" for n, (a, b) in pairs if a != b]
    assert not difference, "\n".join(difference[:10])
    assert len(lines[0]) == len(lines[1]), f"{len(lines[0])} lines on the host, {len(lines[1])} inside"


def tests(rf, python):
    """The tests by name."""
    return {test: lambda name=name, tool=tool: like_the_host(rf, python, name, tool) for test, (name, tool) in PROGRAMS.items()}

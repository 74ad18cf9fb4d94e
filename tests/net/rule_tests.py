"""Rules of nft and iptables: programs that load and list them print the same in a fresh network namespace of the host
and inside."""

import os, re, subprocess

from results import need_programs

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
    need_programs("nft", "iptables-nft", tool)
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


LOGGED = """
import socket
s = socket.socket()
s.connect_ex(("127.0.0.1", 9))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 1009))
s.sendto(b"abc", ("127.0.0.1", 9))
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.sendto(b"abc", ("::1", 9))
"""
RULES_THAT_LOG = """
iptables-legacy -A OUTPUT -p udp -j LOG --log-prefix "out: " --log-uid --log-level 5
iptables-legacy -A INPUT -p tcp --syn -j LOG --log-prefix "in: " --log-tcp-sequence --log-tcp-options
ip6tables-nft -A OUTPUT -p udp -j LOG --log-prefix "six: "
"$@"
dmesg --raw
"""


def rules_write_to_the_log(rf, python):
    need_programs("ip6tables-nft", "iptables-legacy")
    argv = ["do", "sh", "-ec", RULES_THAT_LOG, "sh", python, "-c", LOGGED]
    text = subprocess.run(rf.argv(argv), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60).stdout
    zeros = "00:" * 12
    sixth = ":".join(["0000"] * 7 + ["0001"])
    for line in (
        r"<5>.*out: IN= OUT=lo SRC=127.0.0.1 DST=127.0.0.1 LEN=31 TOS=0x00 PREC=0x00 TTL=64 ID=\d+ (DF )?"
        r"PROTO=UDP SPT=1009 DPT=9 LEN=11 UID=0 GID=0 $",
        rf"<4>.*in: IN=lo OUT= MAC={zeros}08:00 SRC=127.0.0.1 DST=127.0.0.1 LEN=60 TOS=0x00 PREC=0x00 TTL=64 "
        r"ID=\d+ DF PROTO=TCP SPT=\d+ DPT=9 SEQ=\d+ ACK=0 WINDOW=\d+ RES=0x00 SYN URGP=0 OPT \(0204[0-9A-F]+\) $",
        rf"<4>.*six: IN= OUT=lo SRC={sixth} DST={sixth} LEN=51 TC=0 HOPLIMIT=64 FLOWLBL=\d+ PROTO=UDP SPT=\d+ DPT=9 "
        r"LEN=11 $",
    ):
        assert re.search(line, text, re.MULTILINE), f"{line}\n{text}"


def tests(rf, python):
    """The tests by name."""
    return {
        test: lambda name=name, tool=tool: like_the_host(rf, python, name, tool)
        for test, (name, tool) in PROGRAMS.items()
    } | {"test_rules_write_to_the_log": lambda: rules_write_to_the_log(rf, python)}

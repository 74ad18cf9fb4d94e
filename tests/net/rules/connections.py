"""conntrack(8): connections are listed, filtered, deleted and forgotten."""

import re, socket, subprocess


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    # What is left of a time-out, and ports of the host's choice.
    out = re.sub(r"(tcp|udp)( +\d+) \d+", r"\1\2 T", done.stdout)
    out = re.sub(r"port=(?!7001|9999)\d+", "port=N", out)
    print("$", *command)
    print("\n".join(sorted(out.splitlines())), done.stderr, done.returncode)


subprocess.run("iptables -A INPUT -m conntrack --ctstate NEW -j ACCEPT".split(), check=True)
server = socket.socket()
server.bind(("127.0.0.1", 7001))
server.listen()
client = socket.create_connection(("127.0.0.1", 7001), timeout=5)
accepted, _ = server.accept()
client.sendall(b"hi")
accepted.recv(2)
bound = socket.socket(type=socket.SOCK_DGRAM)
bound.bind(("127.0.0.1", 9999))
sender = socket.socket(type=socket.SOCK_DGRAM)
sender.sendto(b"x", ("127.0.0.1", 9999))
for options in (
    "-L",
    "-L -p tcp",
    "-C",
    "-L -o extended",
    "-L -f ipv6",
    "-L --mark 5",
    "-D -p udp",
    "-L -p udp",
    "-D -p udp",
    "-D -p tcp --dport 1",
    "-F",
    "-L",
    "-C",
    "-L expect",
):
    run("conntrack", *options.split())
accepted.sendall(b"again")
client.recv(9)
run("conntrack", "-L")

"""Bridges in a loop of two pairs of interfaces: what is sent to all goes round for ever. Other things go on."""

import os, socket, subprocess, time


def ip(command):
    subprocess.run(["ip", *command.split()], check=True)


def count(name):
    with open(f"/sys/class/net/{name}/statistics/rx_packets") as f:
        return int(f.read())


os.makedirs("/run/netns", exist_ok=True)
ip("netns add other")
ip("link add name br0 type bridge")
ip("-n other link add name br1 type bridge")
for n in range(2):
    ip(f"link add name p{n} type veth peer name q{n} netns other")
    ip(f"link set dev p{n} master br0 up")
    ip(f"-n other link set dev q{n} master br1 up")
ip("link set dev br0 up")
ip("addr add 10.6.0.1/24 dev br0")
ip("-n other link set dev br1 up")
s = socket.socket(type=socket.SOCK_DGRAM)
s.sendto(b"x", ("10.6.0.9", 7))
# The question who has the address goes round by itself.
before, end = count("p0"), time.monotonic() + 20
while count("p0") < before + 10000 and time.monotonic() < end:
    time.sleep(0.01)
print("frames go round:", count("p0") >= before + 10000)
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname(), timeout=20)
print("connections are made:", server.accept()[1] == client.getsockname())
begun = time.monotonic()
for _ in range(10):
    time.sleep(0.01)  # the timer that is tested
print("timers ring:", time.monotonic() - begun < 20)
ip("link del dev p1")


def still():
    before = count("p0")
    time.sleep(0.5)  # the time that is measured
    return count("p0") - before < 10


end = time.monotonic() + 20
while not (ended := still()) and time.monotonic() < end:
    pass
print("it ends with the loop:", ended)
ip("netns del other")

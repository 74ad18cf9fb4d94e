# needs: memcached python3
# memcached over TCP, UDP and a Unix socket, many connections at once.
cd "$(mktemp -d)" || exit 1
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
memcached -u root -l 127.0.0.1 -p $port -U $port -t 4 -c 500 -m 64 &
server=$!
memcached -u root -s "$PWD/socket" -t 2 &
other=$!
python3 - $port socket <<'PY'
import os, socket, struct, sys, threading, time
port, path = int(sys.argv[1]), sys.argv[2]
def connect(where):
    s = socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET)
    for _ in range(100):
        try:
            s.connect(where)
            return s.makefile("rwb")
        except (ConnectionRefusedError, FileNotFoundError):
            time.sleep(0.1)
    raise SystemExit("no server")
def ask(f, *lines):
    f.write(b"".join(line + b"\r\n" for line in lines))
    f.flush()
    return f.readline().strip()
for where in (("127.0.0.1", port), path):
    f = connect(where)
    value = b"v" * 900000
    print(ask(f, b"set big 5 0 %d" % len(value), value).decode())
    f.write(b"get big\r\n"); f.flush()
    print(f.readline().strip().decode(), f.read(len(value) + 2) == value + b"\r\n", f.readline().strip().decode())
    print(ask(f, b"set n 0 0 1", b"0").decode())
    threads = []
    def count():
        mine = connect(where)
        for _ in range(500):
            ask(mine, b"incr n 1")
    threads = [threading.Thread(target=count) for _ in range(20)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    f.write(b"get n\r\n"); f.flush()
    f.readline(); print(f.readline().strip().decode()); f.readline()
    idle = [connect(where) for _ in range(200)]
    print(sum(ask(i, b"touch n 0") == b"TOUCHED" for i in idle), "connections")
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout(20)
u.sendto(struct.pack("!HHHH", 7, 0, 1, 0) + b"get n\r\n", ("127.0.0.1", port))
print(u.recv(1400)[8:].decode().split())
PY
kill $server $other
wait $server $other 2>/dev/null
echo "ended"

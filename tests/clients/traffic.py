"""Traffic of real programs through the networks of Docker and Podman: servers and clients in containers and outside."""

import json, os, shutil, socket, struct, subprocess, tempfile, threading

from common import Failure, call, check, has, wait_for
from results import need, need_programs

# The programs are the machine's own, in an image that has links only.
USR = ["-v", "/usr:/usr:ro", "-v", "/etc/alternatives:/etc/alternatives:ro"]
# sh -c with the first word that a shell takes as its own name.
SH = ["sh", "-ec"]
PYTHON = "/usr/bin/python3"
USERS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/sh\nsshd:x:105:65534::/run/sshd:/bin/false\n"


def host_image(e):
    """An image named `host` for the machine's own programs."""
    if e("image", "inspect", "host").status == 0:
        return
    with tempfile.TemporaryDirectory(dir=e.stage.dir) as d:
        for name in ("bin", "lib", "lib64", "sbin"):
            os.symlink(f"usr/{name}", f"{d}/{name}")
        for name in ("usr", "etc", "proc", "dev", "sys", "tmp", "run", "root", "var/tmp", "var/log", "var/lib"):
            os.makedirs(f"{d}/{name}")
        os.chmod(f"{d}/tmp", 0o1777)
        open(f"{d}/etc/passwd", "w").write(USERS)
        open(f"{d}/etc/group", "w").write("root:x:0:\nnogroup:x:65534:\n")
        open(f"{d}/etc/nsswitch.conf", "w").write("hosts: files dns\n")
        shutil.copy("/etc/services", f"{d}/etc/services")
        tar = f"{e.stage.dir}/host.tar"
        subprocess.run(["tar", "-C", d, "-cf", tar, "."], check=True)
        os.chmod(tar, 0o644)
    e.ok("import", tar, "host")


class Net:
    """A network with containers of the image `host`."""

    def __init__(self, e, *options):
        host_image(e)
        self.e, self.name, self.names = e, f"net-{e.name()}", []
        self.options = options

    def __enter__(self):
        self.e.ok("network", "create", *self.options, self.name)
        return self

    def __exit__(self, *_):
        for name in self.names:
            self.e("rm", "-f", name)
        self.e("network", "rm", self.name)

    def server(self, script, *options):
        """A container that runs a script in the background; its name."""
        name = self.e.background("--network", self.name, *options, *USR, "host", *SH, script)
        self.names.append(name)
        return name

    def client(self, script, *options, timeout=120):
        """What a script writes in a container of its own."""
        r = self.e.run("--network", self.name, *options, *USR, "host", *SH, script, timeout=timeout)
        if r.status:
            raise Failure(f"status {r.status}: {script[:300]}: {r.all[-1500:]}")
        return r.out

    def listens(self, name, port):
        """Waits until a server takes connections."""
        script = f"until (exec 3<>/dev/tcp/{name}/{port}) 2>/dev/null; do sleep 0.1; done"
        r = self.e.run("--network", self.name, *USR, "host", "timeout", "60", "bash", "-c", script)
        if r.status:
            raise Failure(f"{name} does not listen on port {port}: {self.e('logs', name).all[-1500:]}")


NGINX = """
mkdir -p /tmp/w; head -c 1048576 /dev/urandom >/tmp/w/large; echo small >/tmp/w/small; chmod -R a+rX /tmp/w
printf 'user root; worker_processes 2; pid /tmp/pid; daemon off; error_log stderr; events {}
http { access_log off; client_body_temp_path /tmp/b; proxy_temp_path /tmp/p; fastcgi_temp_path /tmp/f;
uwsgi_temp_path /tmp/u; scgi_temp_path /tmp/s; server { listen 80; listen [::]:80; root /tmp/w; } }' >/tmp/conf
exec nginx -c /tmp/conf -e stderr"""


def of_ab(text, requests):
    has(text, f"Complete requests:      {requests}\n", "Failed requests:        0\n")


def nginx_from(run, url):
    """ab and wrk with kept connections and without, and 1 MiB."""
    of_ab(run(f"ab -q -n 500 -c 10 {url}/small"), 500)
    of_ab(run(f"ab -q -k -n 2000 -c 20 {url}/small"), 2000)
    of_ab(run(f"ab -q -k -n 50 -c 5 {url}/large"), 50)
    out = run(f"wrk -t 2 -c 20 -d 1 {url}/small")
    has(out, "requests in")
    assert "Non-2xx" not in out and "Socket errors" not in out, out


def outside(script):
    r = call([*SH, script])
    if r.status:
        raise Failure(f"status {r.status}: {script[:300]}: {r.all[-1500:]}")
    return r.out


def web(e):
    need_programs("nginx", "ab", "wrk", "curl", "sha256sum")
    with Net(e) as net:
        name = net.server(NGINX, "-p", "127.0.0.1:18090:80")
        net.listens(name, 80)
        nginx_from(net.client, f"http://{name}")
        nginx_from(outside, "http://127.0.0.1:18090")
        want = e.ok("exec", name, "sha256sum", "/tmp/w/large").split()[0]
        for run, url in ((net.client, f"http://{name}"), (outside, "http://127.0.0.1:18090")):
            check(run(f"curl -sS {url}/large | sha256sum").split()[0], want)


def redis(e):
    need_programs("redis-server", "redis-benchmark")
    with Net(e) as net:
        name = net.server("exec redis-server --protected-mode no --save '' --dir /tmp")
        net.listens(name, 6379)
        tests = "set,get,incr,lpush,lrange_100,mset"
        out = net.client(f"redis-benchmark -h {name} -q -n 5000 -c 20 -t {tests}; redis-cli -h {name} dbsize")
        # Carriage returns separate the figures on the way from the last one.
        check(out.count("requests per second"), 7, out)


PGBENCH = """
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1); cd /tmp; mkdir d; chown nobody d
as() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/tmp PATH="$bin:$PATH" "$@"; }
as initdb -D d/data -A trust -U e2e --no-locale -E UTF8 >/dev/null; echo 'host all all all trust' >>d/data/pg_hba.conf
exec setpriv --reuid=65534 --regid=65534 --clear-groups $bin/postgres -D d/data -h '*' -k /tmp"""


def database(e):
    need_programs("pgbench")
    with Net(e) as net:
        name = net.server(PGBENCH)
        net.listens(name, 5432)
        to = f"pgbench -h {name} -U e2e"
        out = net.client(
            f"{to} -q -i -s 1 postgres 2>&1; {to} -n -c 4 -j 2 -T 1 postgres; {to} -n -c 2 -t 100 -S -M prepared "
            f"postgres; psql -h {name} -U e2e -At -c 'SELECT sum(abalance) = (SELECT sum(tbalance) FROM "
            "pgbench_tellers) FROM pgbench_accounts' postgres"
        )
        check((out.count("number of failed transactions: 0 "), out.split("\n")[-2]), (2, "t"), out)


def of_iperf(text):
    """Bytes that arrived of each direction; an error fails."""
    result = json.loads(text)
    if "error" in result:
        raise Failure(f"iperf3: {result['error']}")
    end = result["end"]
    return [end[key]["bytes"] for key in ("sum_received", "sum_received_bidir_reverse", "sum") if key in end]


IPERF = ["", "-R", "-P 4", "--bidir", "-u -b 50M", "-u -b 50M -R", "-u -l 1200 -b 20M -P 2"]


def iperf(e):
    need_programs("iperf3")
    with Net(e) as net:
        name = net.server("exec iperf3 -s")
        net.listens(name, 5201)
        for options in IPERF:
            got = of_iperf(net.client(f"iperf3 -J -t 1 -c {name} {options}"))
            assert got and min(got) > 0, (options, got)


SSHD = """
mkdir -p /run/sshd /root/.ssh; ssh-keygen -q -t ed25519 -N '' -f /tmp/host; echo "$KEY" >/root/.ssh/authorized_keys
printf 'HostKey /tmp/host\nStrictModes no\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\n' >/tmp/conf
head -c 8388608 /dev/urandom >/root/large; exec /usr/sbin/sshd -D -e -f /tmp/conf"""


def secure_shell(e):
    need_programs("/usr/sbin/sshd", "ssh", "scp", "ssh-keygen")
    with Net(e) as net, tempfile.TemporaryDirectory() as d:
        call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{d}/key"])
        name = net.server(SSHD, "-e", "KEY=" + open(f"{d}/key.pub").read(), "-p", "127.0.0.1:18022:22")
        net.listens(name, 22)
        want = e.ok("exec", name, "sha256sum", "/root/large").split()[0]
        options = "-i /tmp/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        script = (
            f"cd /tmp; printf %s \"$KEY\" >key; chmod 600 key; "
            f"ssh {options} root@{name} 'echo $((6*7)); cat' </dev/null; "
            f"scp -q {options} root@{name}:large . && sha256sum large; scp -q {options} large root@{name}:back; "
            f"ssh {options} root@{name} sha256sum back"
        )
        out = net.client(script, "-e", "KEY=" + open(f"{d}/key").read()).split()
        check(out, ["42", want, "large", want, "back"])
        own = options.replace("/tmp/key", f"{d}/key")
        out = outside(f"scp -q -P 18022 {own} root@127.0.0.1:large {d}/large; sha256sum {d}/large")
        check(out.split()[0], want)


GIT = """
export HOME=/tmp GIT_CONFIG_NOSYSTEM=1 GIT_PROJECT_ROOT=/tmp/git GIT_HTTP_EXPORT_ALL=1; mkdir -p /tmp/s/cgi-bin; cd /tmp
git config --global user.name t; git config --global user.email t@t; git config --global init.defaultBranch main
git init -q work; cd work; for n in $(seq 50); do head -c 20000 /dev/urandom >f$n; done; git add .; git commit -qm one
git clone -q --bare . /tmp/git/r.git; git -C /tmp/git/r.git config http.receivepack true
printf '#!/bin/sh\nexec git http-backend\n' >/tmp/s/cgi-bin/git; chmod 755 /tmp/s/cgi-bin/git; cd /tmp/s
exec /usr/bin/python3 -c '
import http.server
class H(http.server.CGIHTTPRequestHandler): have_fork = True
http.server.CGIHTTPRequestHandler.nobody_uid = lambda: 0
http.server.nobody_uid = lambda: 0
http.server.ThreadingHTTPServer(("", 80), H).serve_forever()'"""


def git(e):
    need_programs("git", "/usr/lib/git-core/git-http-backend")
    with Net(e) as net:
        name = net.server(GIT)
        net.listens(name, 80)
        out = net.client(
            "export HOME=/tmp; cd /tmp; git config --global user.name t; git config --global user.email t@t; "
            f"git clone -q http://{name}/cgi-bin/git/r.git a && cd a && git fsck 2>&1 && ls | wc -l; "
            f"echo more >more; git add .; "
            f"git commit -qm two; git push -q; git clone -q http://{name}/cgi-bin/git/r.git ../b; cat ../b/more"
        )
        check(out.split()[-2:], ["50", "more"], out)


GRPC = """
import grpc, sys
from concurrent import futures
def back(pieces, context):
    for piece in pieces: yield piece[::-1]
handlers = {
    "Echo": grpc.unary_unary_rpc_method_handler(lambda data, context: data),
    "Up": grpc.unary_stream_rpc_method_handler(lambda data, context: (b"%d" % n for n in range(int(data)))),
    "Count": grpc.stream_unary_rpc_method_handler(lambda pieces, context: str(sum(map(len, pieces))).encode()),
    "Back": grpc.stream_stream_rpc_method_handler(back),
}
if sys.argv[1:]:
    with grpc.insecure_channel(sys.argv[1]) as c:
        echo = c.unary_unary("/t.T/Echo")
        print(sum(int(echo(b"%d" % n, timeout=60)) for n in range(200)), len(echo(b"x" * 3000000, timeout=60)))
        print(sum(map(int, c.unary_stream("/t.T/Up")(b"500", timeout=60))))
        print(c.stream_unary("/t.T/Count")(iter([b"y" * 65536] * 100), timeout=60).decode())
        print(b"".join(c.stream_stream("/t.T/Back")(iter([b"abc", b"def"]), timeout=60)).decode())
else:
    server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", handlers),))
    server.add_insecure_port("[::]:50051"); server.start(); server.wait_for_termination()
"""


def grpc_python(e):
    need(os.path.exists("/usr/lib/python3/dist-packages/grpc"), "Python's grpc module is missing")
    with Net(e) as net:
        name = net.server(f"exec {PYTHON} -c '{GRPC}'")
        net.listens(name, 50051)
        out = net.client(f"exec {PYTHON} -c '{GRPC}' {name}:50051")
        check(out.split(), "19900 3000000 124750 6553600 cbafed".split())


GO = """package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

func main() {
	if len(os.Args) < 2 {
		l, err := net.Listen("tcp", ":50051")
		if err != nil {
			panic(err)
		}
		s := grpc.NewServer()
		pb.RegisterTestServiceServer(s, interop.NewTestServer())
		panic(s.Serve(l))
	}
	c, err := grpc.Dial(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	t := pb.NewTestServiceClient(c)
	ctx := context.Background()
	for range 50 {
		interop.DoEmptyUnaryCall(ctx, t)
		interop.DoLargeUnaryCall(ctx, t)
	}
	interop.DoClientStreaming(ctx, t)
	interop.DoServerStreaming(ctx, t)
	interop.DoPingPong(ctx, t)
	interop.DoCancelAfterFirstResponse(ctx, t)
	interop.DoTimeoutOnSleepingServer(ctx, t)
	_ = io.EOF
	fmt.Println("all as expected")
}
"""


def build_go(d):
    """gRPC's own interoperability tests in Go, built in a directory outside of the test's network namespace; the
    program, or why there is none."""
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not os.path.exists(go):
        return None, "Go is missing"
    open(f"{d}/main.go", "w").write(GO)
    env = dict(os.environ, CGO_ENABLED="0", GOFLAGS="-mod=mod")
    get, build = ("get", "google.golang.org/grpc@v1.64.0"), ("build", "-o", f"{d}/grpc-go", ".")
    for step in (("mod", "init", "box"), get, ("mod", "tidy"), build):
        try:
            r = subprocess.run([go, *step], cwd=d, env=env, capture_output=True, text=True, timeout=600)
        except subprocess.TimeoutExpired:
            return None, f"go {step[0]} does not end"
        if r.returncode:
            return None, f"go {step[0]}: {r.stderr.strip()[-300:]}"
    return f"{d}/grpc-go", None


def grpc_go(e):
    binary, reason = os.environ.get("RF_GRPC_GO"), os.environ.get("RF_NO_GRPC_GO")
    need(binary, f"gRPC for Go cannot be built here: {reason}")
    with Net(e) as net:
        mount = ["-v", f"{binary}:/box:ro"]
        name = net.server("exec /box", *mount)
        net.listens(name, 50051)
        has(net.client(f"exec /box {name}:50051", *mount), "all as expected")


# A server of TCP and UDP that says what its peers are, and a client of the outside.
ECHO = """
import socket, threading
def tcp(family, at):
    l = socket.socket(family); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6: l.setsockopt(41, 26, 1)
    l.bind((at, 7)); l.listen(64)
    while True:
        c, peer = l.accept()
        def run(c=c):
            while data := c.recv(65536): c.sendall(data)
            c.close()
        threading.Thread(target=run, daemon=True).start()
def udp(family, at):
    u = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6: u.setsockopt(41, 26, 1)
    u.bind((at, 7))
    while True: data, peer = u.recvfrom(65536); u.sendto(data, peer)
for family, at in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
    for what in (tcp, udp): threading.Thread(target=what, args=(family, at)).start()
"""


def echoes(ip, port, datagrams=True, family=socket.AF_INET, halves=True):
    """Megabytes by TCP, several connections at one time, and datagrams come back as they were sent. Without `halves` no
    direction of a connection ends before the other one."""
    data = os.urandom(2 << 20)

    def send(c):
        c.sendall(data)
        if halves:
            c.shutdown(socket.SHUT_WR)

    def stream():
        with socket.create_connection((ip, port), timeout=60) as c:
            sent = threading.Thread(target=send, args=(c,))
            sent.start()
            back = b""
            while (halves or len(back) < len(data)) and (piece := c.recv(1 << 20)):
                back += piece
            got.append(back == data)
            sent.join()

    got = []
    for _ in range(2):
        threads = [threading.Thread(target=stream) for _ in range(5)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    check(got, [True] * 10, f"{ip} port {port}")
    if datagrams:
        with socket.socket(family, socket.SOCK_DGRAM) as u:
            u.settimeout(20)
            u.connect((ip, port))
            for size in (1, 500, 1400):
                u.send(data[:size])
                check(u.recv(65536), data[:size], f"{ip} port {port}")


def answers(ip, port):
    try:
        with socket.create_connection((ip, port), timeout=5) as c:
            c.sendall(b"x")
            return c.recv(1) == b"x"
    except OSError:
        return False


def published(e, how, **options):
    """A port of TCP and one of UDP, published by a container of an ordinary user."""
    host_image(e)
    ports = ["-p", "127.0.0.1:18080:7", "-p", "127.0.0.1:18080:7/udp"]
    name = e.background("--network", how, *ports, *USR, "host", PYTHON, "-c", ECHO)
    wait_for(lambda: answers("127.0.0.1", 18080), what="an answer on the published port")
    echoes("127.0.0.1", 18080, **options)
    e.ok("rm", "-f", name)


def rootless_published_by_rootlessport(e):
    published(e, "slirp4netns")


def rootless_published_by_slirp4netns(e):
    # With crun as well slirp4netns resets some connections that end one direction first, and no datagram comes back.
    published(e, "slirp4netns:port_handler=slirp4netns", halves=False, datagrams=False)


def docker_traffic_web(e):
    web(e)


def docker_traffic_redis(e):
    redis(e)


def docker_traffic_database(e):
    database(e)


def docker_traffic_iperf(e):
    iperf(e)


def docker_traffic_ssh(e):
    secure_shell(e)


def docker_traffic_git(e):
    git(e)


def docker_traffic_grpc_python(e):
    grpc_python(e)


def docker_traffic_grpc_go(e):
    grpc_go(e)


def podman_traffic_web(e):
    web(e)


def podman_traffic_iperf(e):
    iperf(e)


# Asks for an address by UDP and by TCP; /etc/resolv.conf names Docker's server.
ASK = """
import socket, struct, sys
def ask(name, tcp):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    query = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\\0" + struct.pack(">HH", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as s:
        s.settimeout(20); s.connect(("127.0.0.11", 53))
        if tcp:
            s.sendall(struct.pack(">H", len(query)) + query)
            length, answer = struct.unpack(">H", s.recv(2, socket.MSG_WAITALL))[0], b""
            answer = s.recv(length, socket.MSG_WAITALL)
        else:
            s.send(query); answer = s.recv(4096)
    return socket.inet_ntoa(answer[-4:]) if struct.unpack(">H", answer[6:8])[0] else "none"
for name in sys.argv[1:]: print(name, ask(name, False), ask(name, True))
"""


def upstream(address):
    """A name server outside that knows one address for every name, over UDP and TCP."""
    reply = lambda query: (
        query[:2] + struct.pack(">HHHHH", 0x8180, 1, 1, 0, 0) + query[12 : query.index(b"\0", 12) + 5]
        + b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + bytes([203, 0, 113, 7])
    )
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind((address, 53))
    listener = socket.create_server((address, 53))

    def by_udp():
        while True:
            query, peer = u.recvfrom(4096)
            u.sendto(reply(query), peer)

    def by_tcp():
        while True:
            with listener.accept()[0] as c:
                length = c.recv(2, socket.MSG_WAITALL)
                if len(length) == 2:
                    answer = reply(c.recv(struct.unpack(">H", length)[0], socket.MSG_WAITALL))
                    c.sendall(struct.pack(">H", len(answer)) + answer)

    for what in (by_udp, by_tcp):
        threading.Thread(target=what, daemon=True).start()


def docker_names_of_others(e):
    """Docker's name server answers for containers, and asks other servers from the container's own namespace."""
    with Net(e, "--subnet", "10.89.7.0/24", "--gateway", "10.89.7.1") as net:
        name = net.server("exec sleep 1000")
        upstream("10.89.7.1")
        address = e.ok("exec", name, "hostname", "-I").split()[0]
        out = net.client(f"exec {PYTHON} -c '{ASK}' {name} www.example.org", "--dns", "10.89.7.1")
        check(out, f"{name} {address} {address}\nwww.example.org 203.0.113.7 203.0.113.7\n")


def docker_ipv6(e):
    """Between containers, and by a port that is published over IPv6."""
    with Net(e, "--ipv6", "--subnet", "fd89:7::/64") as net:
        ports = ["-p", "[::1]:18070:7", "-p", "127.0.0.1:18070:7", "-p", "[::1]:18070:7/udp"]
        name = net.server(f"exec {PYTHON} -c '{ECHO}'", *ports)
        net.listens(name, 7)
        wait_for(lambda: answers("::1", 18070), what="an answer on the published port")
        echoes("::1", 18070, family=socket.AF_INET6)
        echoes("127.0.0.1", 18070, datagrams=False)
        shown = "{{range .NetworkSettings.Networks}}{{.GlobalIPv6Address}}{{end}}"
        address = e.ok("inspect", "-f", shown, name).strip()
        echoes(address, 7, family=socket.AF_INET6)
        script = f"import socket; s = socket.create_connection((\"{address}\", 7), 20); s.send(b\"x\")"
        script += "; print(s.recv(1))"
        check(net.client(f"{PYTHON} -c '{script}'"), "b'x'\n")

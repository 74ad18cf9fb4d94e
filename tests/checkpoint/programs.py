"""Real programs that are saved at a random moment, end, and go on, several times in a row."""

import glob, json, os, random, shutil, subprocess, time

from results import need_file, need_programs, need_root

RF = None  # the program under test
suite = None  # the module of the runner

NGINX = """
user root;
daemon off;
worker_processes 2;
error_log stderr;
pid /ctl/nginx.pid;
events {}
http {
    access_log off;
    keepalive_requests 1000000000; keepalive_timeout 1h;
    client_body_temp_path /ctl/b; proxy_temp_path /ctl/p; fastcgi_temp_path /ctl/f;
    uwsgi_temp_path /ctl/u; scgi_temp_path /ctl/s;
    server { listen 8080; location / { return 200 "$connection_requests\\n"; } }
}
"""

# Answers must count the requests of each connection.
KEEP_ALIVE = r"""
import itertools, socket, time

def connect():
    for _ in range(500):
        try:
            return socket.create_connection(("127.0.0.1", 8080))
        except ConnectionRefusedError:
            time.sleep(0.02)

connections = [connect() for _ in range(8)]
files = [c.makefile("rb") for c in connections]
for n in itertools.count(1):
    for c in connections:
        c.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
    for f in files:
        head = b"".join(iter(f.readline, b"\r\n"))
        length = [line for line in head.splitlines() if line.startswith(b"Content-Length: ")][0].split()[1]
        body = f.read(int(length))
        assert body == b"%d\n" % n, (n, head, body)
    print(n, flush=True)
    time.sleep(0.002)
"""

NODE = 'let n = 0; require("http").createServer((q, r) => r.end(String(++n))).listen(8080)'

JAVA = """
import com.sun.net.httpserver.*;
import java.net.*;
public class S {
    static int n = 0;
    public static void main(String[] args) throws Exception {
        HttpServer s = HttpServer.create(new InetSocketAddress(8080), 0);
        s.createContext("/", e -> {
            byte[] b = String.valueOf(++n).getBytes();
            e.sendResponseHeaders(200, b.length);
            e.getResponseBody().write(b);
            e.close();
        });
        s.start();
    }
}
"""

MAKE = r"""
mkdir -p /ctl/m && cd /ctl/m
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    printf 'int f%d(int x){int s=0;for(int i=0;i<x;i++)s+=i*%d;return s;}\n' $i $i > f$i.c
done
printf 'all: $(patsubst %%.c,%%.o,$(wildcard *.c))\n%%.o: %%.c\n\tgcc -O1 -c -o $@ $<\n' > Makefile
while :; do rm -f *.o; make -s -j2 || exit 1; echo made; done
"""

# A client in a transaction says how many rows it sees.
POSTGRESQL = r"""
PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -1):$PATH
dir=/tmp/postgresql
mkdir $dir && chown daemon $dir && cd $dir
as() { setpriv --reuid=daemon --regid=daemon --clear-groups env HOME=$dir "$@"; }
as initdb -D data -A trust -U test --no-locale -E UTF8 --no-sync > /ctl/init.log 2>&1 || { cat /ctl/init.log; exit 1; }
as pg_ctl -s -w -D data -l log -o "-k $dir -c listen_addresses= -c shared_buffers=16MB" start || { cat log; exit 1; }
rows() {
    echo "CREATE TABLE t (n int); BEGIN;"
    i=0
    until [ -e /ctl/commit ]; do
        i=$((i + 1))
        echo "INSERT INTO t VALUES ($i); SELECT count(*) FROM t;"
        sleep 0.01
    done
    echo "COMMIT; SELECT 'committed';"
}
rows | psql -qAt -v ON_ERROR_STOP=1 -h $dir -U test postgres
exec sleep 1000
"""

SHELL = "i=0; while :; do i=$((i+1)); /bin/true; echo $i; done"


STEPS = """
#include <unistd.h>
int n;
__attribute__((noinline)) void step(void) { __asm__ volatile("" ::: "memory"); n++; }
int main(void) { for (;;) { step(); usleep(1000); } }
"""
DEBUGGER = """
set pagination off
set confirm off
break step
commands
silent
printf "%d\\n", n
continue
end
run
"""


class Goes:
    """A program in a container, and rounds of saving and going on."""

    count = 0

    def __init__(self, *args, files=()):
        need_root()
        Goes.count += 1
        self.id = f"program-{Goes.count}"
        # The output that counts_on has seen last.
        self.counted = None
        self.box = suite.Box(self.id, *args)
        # Programs that make users of their own, and write where they like.
        capabilities = ["CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL"]
        sets = dict.fromkeys(("bounding", "effective", "permitted"), capabilities)
        RF.edit(self.box.bundle, lambda c: c["process"]["capabilities"].update(sets))
        for name, content in files:
            with open(f"{self.box.ctl}/{name}", "w") as f:
                f.write(content)
        self.box.run()

    def inside(self, *args):
        self.last = RF("exec", self.id, *args)
        return self.last.stdout.strip() if self.last.returncode == 0 else None

    def rounds(self, check, count=10, end=None):
        random.seed(count)
        for _ in range(count):
            time.sleep(random.random() / 20)
            image = self.box.checkpoint()
            suite.works("delete", self.id)
            self.box.restore(image)
            subprocess.run(["rm", "-rf", image], check=True)
            check()
        if end:
            end()
        suite.works("delete", "--force", self.id)


CHROMIUM = r"""
import http.server, os, subprocess, sys, threading
PAGE = b'''<script>
let n = 0;
const worker = new Worker(URL.createObjectURL(new Blob(["onmessage = e => postMessage(e.data + 1)"])));
worker.onmessage = async e => { n = e.data; await fetch("/tick?" + n); setTimeout(() => worker.postMessage(n), 5); };
worker.postMessage(n);
</script>'''
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        ticks = self.path.startswith("/tick?")
        if ticks: print(self.path[6:], flush=True)
        body = b"" if ticks or self.path != "/" else PAGE
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler)
threading.Thread(target=server.serve_forever).start()
os.makedirs("/tmp/home", exist_ok=True)
argv = "chromium --headless --disable-gpu --no-sandbox --remote-debugging-port=9222 --user-data-dir=/tmp/home"
env = {**os.environ, "HOME": "/tmp/home"}
subprocess.run([*argv.split(), "http://127.0.0.1:8000/"], env=env, stderr=open("/ctl/errors", "w"))
os._exit(1)
"""


def counts_up(goes, ask):
    """A server that counts its requests goes on with the next number."""
    RF.wait_for(lambda: ask() is not None)
    last = [int(ask())]

    def check():
        answer = ask()
        assert answer is not None, f"no answer: {goes.last}, output {suite.text(goes.box.out)[-2000:]!r}"
        suite.check(int(answer), last[0] + 1, "answer")
        last[0] += 1

    goes.rounds(check)


def counts_on(goes):
    """A program that prints numbers goes on without a gap."""

    def more():
        shown = suite.text(goes.box.out)
        assert "Traceback" not in shown, shown[-2000:]
        return len(suite.numbers(goes.box.out)) > 5

    RF.wait_for(more)
    numbers = suite.numbers(goes.box.out)
    if goes.counted not in (None, goes.box.out):
        suite.check(numbers[0], suite.numbers(goes.counted)[-1] + 1, "the first number")
    goes.counted = goes.box.out


def test_strace():
    """A tracer of a shell and of what that starts."""
    need_programs("strace")
    goes = Goes("strace", "-f", "-o", "/ctl/trace", "sh", "-c", SHELL)
    counts_on(goes)
    goes.rounds(lambda: counts_on(goes))
    trace = suite.text(goes.box.ctl + "/trace")
    assert "/bin/true" in trace, trace[-2000:]


def test_gdb():
    """A program that a debugger stops at a breakpoint, again and again."""
    need_programs("gdb", "gcc")
    dir = RF.dir("steps")
    with open(dir + "/steps.c", "w") as f:
        f.write(STEPS)
    subprocess.run(["gcc", "-g", "-O1", "-o", dir + "/steps", dir + "/steps.c"], check=True, timeout=60)
    wait = "until [ -e /ctl/steps ]; do sleep 0.05; done"
    gdb = "exec gdb -q -nx -batch -x /ctl/script /ctl/steps"
    goes = Goes("sh", "-c", f"{wait}; {gdb}", files=[("script", DEBUGGER)])
    shutil.copy(dir + "/steps", goes.box.ctl + "/part")
    os.rename(goes.box.ctl + "/part", goes.box.ctl + "/steps")
    counts_on(goes)
    goes.rounds(lambda: counts_on(goes))


def test_redis():
    need_programs("redis-server", "redis-cli")
    goes = Goes("redis-server", "--save", "", "--dir", "/tmp")
    counts_up(goes, lambda: goes.inside("redis-cli", "incr", "n"))


def test_node():
    need_programs("node", "curl")
    goes = Goes("node", "-e", NODE)
    counts_up(goes, lambda: goes.inside("curl", "-s", "127.0.0.1:8080"))


def test_java():
    need_programs("java", "javac", "curl")
    dir = RF.dir("java")
    with open(dir + "/S.java", "w") as f:
        f.write(JAVA)
    subprocess.run(["javac", "-d", dir, dir + "/S.java"], check=True, timeout=120)
    with open(dir + "/S.class", "rb") as f:
        program = f.read()
    goes = Goes("sh", "-c", "until [ -e /ctl/S.class ]; do sleep 0.05; done; exec java -cp /ctl S")
    with open(goes.box.ctl + "/part", "wb") as f:
        f.write(program)
    os.rename(goes.box.ctl + "/part", goes.box.ctl + "/S.class")
    counts_up(goes, lambda: goes.inside("curl", "-s", "127.0.0.1:8080"))


def test_make():
    """Processes come and go all the time, vfork(2) and pipes included."""
    need_programs("make", "gcc")
    goes = Goes("sh", "-c", MAKE)

    def goes_on():
        before = suite.text(goes.box.out).count("made")
        RF.wait_for(lambda: suite.text(goes.box.out).count("made") > before)
        suite.check(suite.text(goes.box.out).replace("made\n", ""), "", "what make says")

    goes_on()
    goes.rounds(goes_on)


def test_nginx():
    """Master and workers; a client's connections are kept, and each goes on counting its requests."""
    need_programs("nginx", "python3", "curl")
    command = "nginx -c /ctl/nginx.conf & exec python3 /ctl/client.py"
    files = [("nginx.conf", NGINX), ("client.py", KEEP_ALIVE)]
    goes = Goes("sh", "-c", f"until [ -e /ctl/client.py ]; do sleep 0.05; done; {command}", files=files)

    def goes_on():
        counts_on(goes)
        suite.check(goes.inside("curl", "-s", "127.0.0.1:8080"), "1", "a new connection")

    goes_on()
    goes.rounds(goes_on)


def test_chromium():
    """A page with a worker goes on counting, and the browser answers over its debugging port."""
    need_programs("chromium", "curl")
    goes = Goes("python3", "/ctl/server.py", files=[("server.py", CHROMIUM)])

    def goes_on():
        counts_on(goes)
        pages = json.loads(goes.inside("curl", "-s", "http://127.0.0.1:9222/json"))
        assert "http://127.0.0.1:8000/" in [page["url"] for page in pages], pages

    goes_on()
    goes.rounds(goes_on)


def test_postgresql():
    """A client's transaction goes on; others see its rows when it is committed."""
    need_programs("setpriv")
    # Debian has these beside the path.
    need_file((glob.glob("/usr/lib/postgresql/*/bin/initdb") or ["/usr/lib/postgresql/bin/initdb"])[-1])
    goes = Goes("sh", "-c", POSTGRESQL)
    psql = "$(ls -d /usr/lib/postgresql/*/bin | tail -1)/psql -qAt -h /tmp/postgresql -U test postgres"

    def ask(query):
        return goes.inside("sh", "-c", f"{psql} -c '{query}'")

    def goes_on():
        counts_on(goes)
        suite.check(ask("SELECT count(*) FROM t"), "0", f"rows for others: {goes.last}")

    def commits():
        open(goes.box.ctl + "/commit", "w").close()
        goes.box.says("committed")
        rows = suite.numbers(goes.box.out)[-1]
        suite.check(ask("SELECT count(*), max(n) FROM t"), f"{rows}|{rows}", "rows in the end")

    goes_on()
    goes.rounds(goes_on, end=commits)


def test_shell():
    goes = Goes("sh", "-c", SHELL)
    seen = []

    def goes_on():
        RF.wait_for(lambda: len(suite.numbers(goes.box.out)) > 3)
        seen.append(suite.numbers(goes.box.out))

    goes_on()
    goes.rounds(goes_on)
    for before, after in zip(seen, seen[1:]):
        assert after[0] > before[-1], (before[-1], after[0])
        suite.check(after, list(range(after[0], after[0] + len(after))))

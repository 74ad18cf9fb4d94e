"""docker-compose: services that find each other by name."""

import shutil, tempfile

from common import Failure, call, check, has, wait_for
from results import need_programs
from traffic import PYTHON, host_image

# The web service counts its visitors in the store, which keeps them in a volume.
WEB = """
import http.server, os, socket
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with socket.create_connection((os.environ["STORE"], 6379), 10) as c:
            c.sendall(b"INCR visits\\r\\n")
            visits = c.recv(100)[1:].strip()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"visit " + visits + b"\\n")
    def log_message(self, *_):
        print("page", self.path, flush=True)
http.server.ThreadingHTTPServer(("", 80), Page).serve_forever()
"""

SERVICES = """
version: "3.7"
x-host: &host
  image: host
  volumes: ["/usr:/usr:ro", "/etc/alternatives:/etc/alternatives:ro"]
services:
  web:
    <<: *host
    command: ["{python}", "/web.py"]
    volumes: ["/usr:/usr:ro", "/etc/alternatives:/etc/alternatives:ro", "./web.py:/web.py:ro"]
    environment: {{STORE: store}}
    depends_on: {{store: {{condition: service_healthy}}}}
    ports: ["127.0.0.1:18060:80"]
    networks: [front, back]
    stop_grace_period: 1s
  store:
    <<: *host
    command: [redis-server, --protected-mode, "no", --dir, /data, --save, "", --appendonly, "yes"]
    volumes: ["/usr:/usr:ro", "/etc/alternatives:/etc/alternatives:ro", "kept:/data"]
    healthcheck: {{test: [CMD, redis-cli, ping], interval: 1s, timeout: 20s, retries: 30}}
    networks: [back]
    restart: always
volumes: {{kept: {{}}}}
networks: {{front: {{}}, back: {{internal: true}}}}
"""


def page():
    r = call(["curl", "-sS", "-m", "20", "http://127.0.0.1:18060/a"])
    return r.out.strip() if r.status == 0 else r.err


def docker_compose(e):
    need_programs("docker-compose", "redis-server", "redis-cli", "curl")
    host_image(e)
    d = tempfile.mkdtemp(dir=e.stage.dir)
    with open(d + "/web.py", "w") as f:
        f.write(WEB)
    with open(d + "/docker-compose.yml", "w") as f:
        f.write(SERVICES.format(python=PYTHON))
    docker = e.base[e.base.index("-H") + 1]

    def compose(*args, timeout=120):
        r = call(["docker-compose", "-H", docker, "-p", "shop", *args], timeout=timeout, cwd=d)
        if r.status:
            raise Failure(f"docker-compose {' '.join(args)}: status {r.status}: {r.all[-1500:]}")
        return r.out

    try:
        compose("up", "-d")
        wait_for(lambda: page().startswith("visit"), what="an answer of the web service")
        before = int(page().removeprefix("visit "))
        check(page(), f"visit {before + 1}")
        has(compose("ps"), "shop_web_1", "Up (healthy)")
        has(compose("logs", "web"), "page /a")
        check(compose("exec", "-T", "store", "redis-cli", "get", "visits").strip(), str(before + 1))
        compose("up", "-d", "--scale", "store=2", "--no-recreate")
        compose("up", "-d", "--scale", "store=1", "--no-recreate")
        # The store ends, is started again, and has kept what it had.
        e("exec", "shop_store_1", "redis-cli", "shutdown")
        wait_for(lambda: page().startswith("visit"), what="an answer after the store's restart")
        assert int(page().removeprefix("visit ")) > before + 1
    finally:
        try:
            compose("down", "-v", "--remove-orphans")
        finally:
            shutil.rmtree(d)
    left = e.ok("ps", "-aq", "--filter", "label=com.docker.compose.project=shop")
    left += e.ok("network", "ls", "-q", "--filter", "name=shop_") + e.ok("volume", "ls", "-q", "--filter", "name=shop_")
    check(left, "")

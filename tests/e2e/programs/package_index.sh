# needs: python3 npm node
# places: do (npm has 400 packages of Debian)
# pip and npm install from an index of ours, over HTTP.
cd "$(mktemp -d)" || exit 1
export HOME=$PWD PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONFIG_FILE=/dev/null PIP_NO_CACHE_DIR=1
export npm_config_update_notifier=false
unset PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST npm_config_registry
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY
mkdir -p web/simple/e2e-numbers web/-/ wheel npm/package
python3 - <<'PY'
import hashlib, base64, zipfile, json
files = {
    "e2e_numbers.py": "def main():\n    print(sum(range(101)))\n",
    "e2e_numbers-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: e2e-numbers\nVersion: 1.2\n",
    "e2e_numbers-1.2.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: e2e\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "e2e_numbers-1.2.dist-info/entry_points.txt": "[console_scripts]\ne2e-numbers = e2e_numbers:main\n",
}
record = "".join(
    f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).rstrip(b'=').decode()},{len(t)}\n"
    for n, t in files.items()
)
name = "e2e_numbers-1.2-py3-none-any.whl"
with zipfile.ZipFile("web/simple/e2e-numbers/" + name, "w") as z:
    for n, t in files.items():
        z.writestr(n, t)
    z.writestr("e2e_numbers-1.2.dist-info/RECORD", record + "e2e_numbers-1.2.dist-info/RECORD,,\n")
open("web/simple/e2e-numbers/index.html", "w").write(f'<a href="{name}">{name}</a>')
PY
cat > npm/package/package.json <<'JSON'
{"name": "e2e-numbers", "version": "1.2.0", "main": "index.js", "bin": {"e2e-numbers": "index.js"}}
JSON
cat > npm/package/index.js <<'JS'
#!/usr/bin/env node
let sum = 0
for (let i = 0; i <= 100; i++) sum += i
console.log(sum)
JS
tar -C npm -czf web/-/e2e-numbers-1.2.0.tgz package
python3 - <<'PY' &
import base64, hashlib, http.server, json, os
class Index(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        if self.path != "/e2e-numbers":
            return super().do_GET()
        tar = open("-/e2e-numbers-1.2.0.tgz", "rb").read()
        version = {
            "name": "e2e-numbers", "version": "1.2.0", "bin": {"e2e-numbers": "index.js"},
            "dist": {
                "tarball": f"http://127.0.0.1:{self.server.server_port}/-/e2e-numbers-1.2.0.tgz",
                "integrity": "sha512-" + base64.b64encode(hashlib.sha512(tar).digest()).decode(),
            },
        }
        body = json.dumps(
            {"name": "e2e-numbers", "dist-tags": {"latest": "1.2.0"}, "versions": {"1.2.0": version}}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
os.chdir("web")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
open("../port.new", "w").write(str(server.server_port))
os.rename("../port.new", "../port")
server.serve_forever()
PY
server=$!
while ! [ -e port ]; do sleep 0.1; done
port=$(cat port)
python3 -m venv env || exit 1
env/bin/pip install -q --index-url "http://127.0.0.1:$port/simple" e2e-numbers 2>&1
env/bin/e2e-numbers
env/bin/pip install -q --index-url "http://127.0.0.1:$port/simple" e2e-missing > missing 2>&1; echo "pip: $?"
mkdir project && cd project || exit 1
npm init -y > /dev/null
npm install --no-audit --no-fund --loglevel=error --registry "http://127.0.0.1:$port/" e2e-numbers > log 2>&1 || cat log
node_modules/.bin/e2e-numbers
node -p 'require("./package-lock.json").packages["node_modules/e2e-numbers"].version'
kill $server
wait $server 2>/dev/null
npm view --fetch-retries 0 --registry "http://127.0.0.1:$port/" e2e-numbers > refused 2>&1
grep -o ECONNREFUSED refused | head -1

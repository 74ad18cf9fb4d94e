# needs: python3 curl ss
# A web server of Python's, clients of curl's, and what lists of sockets say of them.
cd "$(mktemp -d)" || exit 1
head -c 3000000 /dev/zero | tr '\0' 'x' > big
echo small > file
python3 - <<'PY' &
import http.server, socketserver, sys
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    address_family = 10
    daemon_threads = True
class Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = b"%d bytes" % len(body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
server = Server(("::", 0), Quiet)
open("port.new", "w").write(str(server.server_port))
import os
os.rename("port.new", "port")
server.serve_forever()
PY
server=$!
while ! [ -e port ]; do sleep 0.1; done
port=$(cat port)
for at in 127.0.0.1 '[::1]' localhost; do
    curl -sg "http://$at:$port/file"
    curl -sg "http://$at:$port/big" | cksum
    curl -sg --data-binary @big "http://$at:$port/"; echo
done
curl -sg "http://127.0.0.1:$port/file" "http://127.0.0.1:$port/file" "http://127.0.0.1:$port/nothing" \
    -o /dev/null -w '%{http_code} %{num_connects}\n'
seq 20 | xargs -P 8 -I{} curl -sg "http://127.0.0.1:$port/big?{}" | cksum
ss -Hltn 2>/dev/null | awk '{print $1, $4}' | grep ":$port\$" | sed "s/$port/PORT/"
kill $server
wait $server 2>/dev/null
curl -sg "http://127.0.0.1:$port/file"; echo "curl: $?"

# needs: chromium setpriv python3
# places: do (Chromium would take the root another 400 MB)
# Chromium with its own sandbox on: a page, what it fetches, a worker, WebAssembly, a picture and a PDF.
chmod 755 .
mkdir web home && chown 1000:1000 home
cat > web/index.html <<'HTML'
<html><head><title>none</title></head><body><p id=sum>none</p><p id=wasm>none</p><script>
fetch('/data.json').then(r => r.json()).then(d => {
  document.getElementById('sum').textContent = 'sum ' + d.reduce((x, y) => x + y);
  const w = new Worker(URL.createObjectURL(new Blob(["postMessage([1, 2, 3].map(x => x * x).join())"])));
  w.onmessage = e => { document.title = e.data; };
});
WebAssembly.instantiate(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 7, 1, 96, 2, 127, 127, 1, 127, 3, 2, 1, 0, 7, 5,
  1, 1, 97, 0, 0, 10, 9, 1, 7, 0, 32, 0, 32, 1, 106, 11])).then(m => {
  document.getElementById('wasm').textContent = 'wasm ' + m.instance.exports.a(40, 2);
});
</script></body></html>
HTML
echo '[1, 2, 3, 4]' > web/data.json
cat > server.py <<'PY'
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory="web")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
print(server.server_port, file=open("port.new", "w"))
import os
os.rename("port.new", "port")
server.serve_forever()
PY
python3 server.py > /dev/null 2>&1 &
server=$!
for _ in $(seq 100); do [ -e port ] && break; sleep 0.1; done
browser() {
    HOME=$PWD/home XDG_RUNTIME_DIR=$PWD/home timeout 120 setpriv --reuid 1000 --regid 1000 --clear-groups \
        chromium --headless --disable-gpu "$@" "http://127.0.0.1:$(cat port)/index.html" 2>> errors
}
browser --virtual-time-budget=5000 --dump-dom | grep -E "<title>|<p" | sed 's/<script>//'
echo "ended: $?"
cd home || exit 1
cp ../port .
browser --screenshot="$PWD/page.png" --window-size=800,600
browser --print-to-pdf="$PWD/page.pdf"
head -c 8 page.png | od -c | head -1
head -c 5 page.pdf
echo
grep -i -c "no usable sandbox\|zygote.*fail" errors ../errors
kill $server

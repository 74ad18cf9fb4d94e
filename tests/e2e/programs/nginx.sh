# needs: nginx ab curl
# nginx with workers, sendfile, a proxy, ranges and a reload; clients of ab's and curl's.
cd "$(mktemp -d)" || exit 1
chmod 755 .
free() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }
port=$(free) proxy=$(free)
mkdir -p html logs
head -c 3000000 /dev/zero | tr '\0' n > html/big
echo small > html/small
cat > nginx.conf <<CONF
worker_processes 2;
daemon off;
pid $PWD/pid;
error_log $PWD/error.log warn;
user root;
events { worker_connections 512; }
http {
    access_log $PWD/logs/access.log;
    sendfile on;
    keepalive_requests 100000;
    tcp_nopush on;
    client_body_temp_path $PWD/body;
    proxy_temp_path $PWD/proxy;
    fastcgi_temp_path $PWD/fastcgi;
    uwsgi_temp_path $PWD/uwsgi;
    scgi_temp_path $PWD/scgi;
    proxy_cache_path $PWD/cache keys_zone=cache:1m;
    upstream behind { server unix:$PWD/socket; keepalive 8; }
    server { listen 127.0.0.1:$port reuseport; listen unix:$PWD/socket; root $PWD/html; }
    server {
        listen 127.0.0.1:$proxy;
        location / {
            proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_cache cache; proxy_cache_valid 200 1m;
        }
    }
}
CONF
nginx -e error.log -p "$PWD" -c nginx.conf &
server=$!
until curl -sf "http://127.0.0.1:$port/small" > /dev/null; do sleep 0.1; done
for at in $port $proxy; do
    curl -s "http://127.0.0.1:$at/small"
    curl -s "http://127.0.0.1:$at/big" | cksum
    curl -s -r 100-199 "http://127.0.0.1:$at/big" | wc -c
    curl -s -o missing -w '%{http_code}\n' "http://127.0.0.1:$at/missing"
done
curl -s -I "http://127.0.0.1:$port/big" | tr -d '\r' | grep -i content-length
curl -s --limit-rate 2M "http://127.0.0.1:$port/big" | cksum
for at in $port $proxy; do
    ab -q -s 200 -n 3000 -c 30 "http://127.0.0.1:$at/small" 2>&1 | grep -E 'Complete|Failed'
    ab -q -s 200 -k -n 6000 -c 30 "http://127.0.0.1:$at/small" 2>&1 | grep -E 'Complete|Failed|Keep-Alive r'
    ab -q -s 200 -n 100 -c 5 "http://127.0.0.1:$at/big" 2>&1 | grep -E 'Complete|Failed'
done
old=$(cat /proc/$server/task/$server/children)
kill -HUP $server
for pid in $old; do while [ -e /proc/$pid ]; do sleep 0.1; done; done
ab -q -s 200 -k -n 1000 -c 10 "http://127.0.0.1:$port/small" 2>&1 | grep -E 'Complete|Failed'
kill -QUIT $server
wait $server
echo "ended: $?"

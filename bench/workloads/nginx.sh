# nginx over loopback: nanoseconds per request of 1 KB and 1 MB over connections that are kept, and of 1 KB over new
# ones.
set -eu
port=$((30000 + $$ % 10000))
head -c 1024 /dev/zero >1k
head -c 1048576 /dev/zero >1m
cat >conf <<END
daemon off; pid $PWD/pid; error_log $PWD/error; worker_processes 1; events {}
http { access_log off; client_body_temp_path $PWD/b; proxy_temp_path $PWD/p; fastcgi_temp_path $PWD/f;
  uwsgi_temp_path $PWD/u; scgi_temp_path $PWD/s; keepalive_requests 1000000;
  server { listen 127.0.0.1:$port; root $PWD; } }
END
chmod 755 .
nginx -c "$PWD/conf" -e "$PWD/error" &
server=$!
trap 'kill $server 2>/dev/null || :' EXIT
i=0
until ab -q -n 1 http://127.0.0.1:$port/1k >out 2>&1; do
    i=$((i + 1))
    [ $i -lt 200 ] || { cat error >&2; exit 1; }
    sleep 0.05
done
for row; do
    case $row in
    nginx_1k_keepalive) how="-k -n 20000" file=1k ;;
    nginx_1m) how="-k -n 1000" file=1m ;;
    nginx_1k_new) how="-n 5000" file=1k ;;
    esac
    # shellcheck disable=SC2086
    ab -q -c 10 $how "http://127.0.0.1:$port/$file" >out 2>&1
    awk -v row="$row" '/^Failed requests:/ { failed = $3 } /^Requests per second:/ { n = $4 }
        END { if (!n || failed) exit 1; print row, 1e9 / n }' out
done
kill $server
wait $server || :
trap - EXIT

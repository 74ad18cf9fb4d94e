# redis over a Unix socket and over TCP: SET and GET of 5 and 50 clients, and of 50 clients that send 16 at a time.
set -eu
port=$((20000 + $$ % 10000))
redis-server --port $port --bind 127.0.0.1 --unixsocket "$PWD/s" --save '' --appendonly no >log &
server=$!
trap 'kill $server 2>/dev/null || :' EXIT
i=0
until [ "$(redis-cli -s s ping 2>/dev/null)" = PONG ]; do
    i=$((i + 1))
    [ $i -lt 200 ] || { echo "redis-server does not answer" >&2; exit 1; }
    sleep 0.05
done
for row; do
    case $row in *_set_*) call=set ;; *) call=get ;; esac
    case $row in
    *_c5) how="-c 5 -n 20000" ;;
    *_c50) how="-c 50 -n 20000" ;;
    *_p16) how="-c 50 -P 16 -n 200000" ;;
    esac
    case $row in *_tcp_*) where="-p $port" ;; *) where="-s s" ;; esac
    # shellcheck disable=SC2086
    redis-benchmark $where -t $call $how --csv >out
    awk -F'"' -v row="$row" -v call="$call" '
        toupper(call) == $2 && $4 > 0 { print row, 1e9 / $4; found = 1 }
        END { exit !found }' out
done
redis-cli -s s shutdown nosave >/dev/null 2>&1 || :
wait $server
trap - EXIT

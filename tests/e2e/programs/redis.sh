# needs: redis-server redis-cli redis-benchmark
# Redis: pipelines, pub/sub, scripts, blocking calls, a snapshot by fork, an append-only file, and a replica.
cd "$(mktemp -d)" || exit 1
free() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }
port=$(free)
start() {
    redis-server --port "$1" --dir "$PWD" --daemonize no --save '' --dbfilename "$1.rdb" --unixsocket "$PWD/$1.sock" \
        --loglevel warning --logfile "$PWD/$1.log" $2 &
    while ! redis-cli -p "$1" ping 2> /dev/null | grep -q PONG; do sleep 0.1; done
}
start "$port" "--appendonly yes --appendfsync always"
first=$!
cli() { redis-cli -p "$port" "$@"; }
cli set greeting hello
seq 20000 | sed 's/.*/SET key:& value:&/' | redis-cli -p "$port" --pipe | tail -1
cli dbsize
cli eval 'local n = 0 for i = 1, 20000 do n = n + #redis.call("GET", "key:" .. i) end return n' 0
redis-cli -s "$PWD/$port.sock" get key:77
(cli blpop queue 20 | tail -1) & sleep 0.2
cli rpush queue job > /dev/null; wait $!
results() { tr '\r' '\n' | grep -c 'requests per second'; }
redis-benchmark -p "$port" -q -n 20000 -c 50 -P 8 -t set,get,lpush,lpop,incr,mset 2>&1 | results
redis-benchmark -s "$PWD/$port.sock" -q -n 20000 -c 20 -d 5000 -t set,get 2>&1 | results
cli bgsave > /dev/null
saving() { cli info persistence | tr -d '\r' | grep "$1"; }
until saving rdb_bgsave_in_progress:0 > /dev/null; do sleep 0.1; done
saving rdb_last_bgsave_status
other=$(free)
start "$other" "--replicaof 127.0.0.1 $port"
second=$!
cli set last word > /dev/null
while [ "$(redis-cli -p "$other" get last)" != word ]; do sleep 0.1; done
redis-cli -p "$other" get key:20000
redis-cli -p "$other" set x y 2>&1 | cut -d' ' -f1
kill -9 $first
wait $first 2> /dev/null
start "$port" "--appendonly yes --appendfsync always"
first=$!
cli mget greeting last key:1
cli shutdown nosave
redis-cli -p "$other" shutdown nosave
wait $first $second
echo "ended: $?"

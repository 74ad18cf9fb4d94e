# needs: pg_lsclusters setpriv
# PostgreSQL as another user: pgbench over TCP and a Unix socket, parallel queries, a crash, and a standby.
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
dir=$(mktemp -d /tmp/postgresql.XXXXXX) && cd "$dir" || exit 1
free() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }
port=$(free)
chown nobody "$dir"
as() { setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME="$dir" PATH="$bin:$PATH" "$@"; }
as initdb -D data -A trust -U e2e --no-locale -E UTF8 > init.log 2>&1 || { tail init.log; exit 1; }
as sh -c "cat >> data/postgresql.conf" <<CONF
port = $port
listen_addresses = '127.0.0.1'
unix_socket_directories = '$dir'
shared_buffers = 32MB
max_wal_senders = 4
min_parallel_table_scan_size = 0
parallel_setup_cost = 0
parallel_tuple_cost = 0
CONF
start() { as pg_ctl -s -w -t 60 -D data -l log start || { tail log; exit 1; }; }
sql() { as psql -qAt -h "$dir" -p "$port" -U e2e -d postgres "$@"; }
start
as pgbench -q -i -s 2 -h "$dir" -p "$port" -U e2e postgres > load.log 2>&1 || tail load.log
for at in "$dir" 127.0.0.1; do
    as pgbench -n -c 8 -j 4 -t 50 -h "$at" -p "$port" -U e2e postgres 2>&1 | grep -E 'actually|failed'
done
sql <<'SQL' | sed "s,PID [0-9]*,PID,"
SELECT count(*), sum(abalance) = (SELECT sum(tbalance) FROM pgbench_tellers) FROM pgbench_accounts;
SELECT count(*) FROM pgbench_history;
SET max_parallel_workers_per_gather = 4;
CREATE TABLE numbers AS SELECT g AS n, md5(g::text) AS t FROM generate_series(1, 100000) g;
SELECT count(DISTINCT t), sum(n) FROM numbers;
LISTEN news;
NOTIFY news, 'told';
SELECT pg_advisory_lock(7), pg_try_advisory_lock(7);
SQL
sql -c 'SELECT nonsense' 2>&1 | head -1
sql -c "COPY numbers TO STDOUT" | cksum
sql -c "INSERT INTO numbers VALUES (0, 'kept')"
kill -9 "$(head -1 data/postmaster.pid)"
while ! as pg_ctl -s -w -D data -l log start 2> /dev/null; do sleep 0.2; done
sql -c "SELECT count(*), max(t) FROM numbers WHERE n = 0"
as pg_basebackup -D copy -h 127.0.0.1 -p "$port" -U e2e -c fast -R
other=$(free)
as sh -c "echo port = $other >> copy/postgresql.conf"
as pg_ctl -s -w -t 60 -D copy -l copy.log start || tail copy.log
sql -c "INSERT INTO numbers VALUES (-1, 'sent')"
seen() { as psql -qAt -h "$dir" -p "$other" -U e2e -d postgres -c "SELECT t FROM numbers WHERE n = -1"; }
until [ "$(seen)" = sent ]; do sleep 0.1; done
echo "the standby follows"
as pg_ctl -s -w -D copy stop
as pg_ctl -s -w -D data stop
as pg_ctl -D data status; echo "status: $?"

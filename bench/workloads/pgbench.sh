# PostgreSQL over a Unix socket: 4 clients that read one line by its key (-S), and that do what TPC-B does, with every
# commit on disk.
set -eu
if [ "$(id -u)" = 0 ]; then # initdb and postgres refuse to be root
    chown 65534:65534 .
    exec setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$PWD" sh "$0" "$@"
fi
initdb -A trust -U bench --no-sync --no-locale -D d >log 2>&1 || { tail -n 3 log >&2; exit 1; }
postgres -D d -k "$PWD" -c listen_addresses= -c shared_buffers=64MB -c logging_collector=off >>log 2>&1 &
server=$!
trap 'kill -INT $server 2>/dev/null || :' EXIT
export PGHOST="$PWD" PGUSER=bench PGDATABASE=postgres
i=0
until psql -qc 'select 1' >/dev/null 2>&1; do
    i=$((i + 1))
    [ $i -lt 200 ] || { tail -n 3 log >&2; exit 1; }
    sleep 0.05
done
pgbench -i -q -s 1 >>log 2>&1 || { tail -n 3 log >&2; exit 1; }
for row; do
    case $row in *_select_*) how="-S" ;; *) how="-b tpcb-like" ;; esac
    # shellcheck disable=SC2086
    pgbench -n $how -c 4 -j 2 -T 2 >out 2>>log || { tail -n 3 log >&2; exit 1; }
    awk -v row="$row" '
        /^number of failed transactions: [^0]/ { exit 1 }
        /^tps = / && $3 > 0 { print row, 1e9 / $3; found = 1 }
        END { exit !found }' out
done
kill -INT $server
wait $server
trap - EXIT

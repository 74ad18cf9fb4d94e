# iperf3 over loopback: nanoseconds per 64 KiB.
set -eu
port=$((40000 + $$ % 10000))
for row; do
    iperf3 -s -1 -B 127.0.0.1 -p $port >server 2>&1 &
    i=0
    # It ends with 0 also when nobody listens yet.
    until iperf3 -c 127.0.0.1 -p $port -t 2 -J >out 2>&1 && grep -q sum_received out; do
        i=$((i + 1))
        [ $i -lt 100 ] || { cat server out >&2; exit 1; }
        sleep 0.05
    done
    wait
    awk -v row="$row" '
        /"sum_received"/ { sum = 1 }
        sum && /bits_per_second/ { sub(",", "", $2); print row, 65536 * 8e9 / $2; done = 1; exit }
        END { exit !done }' out
done

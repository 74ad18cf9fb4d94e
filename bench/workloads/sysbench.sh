# sysbench: nanoseconds per event. The mutex test does a fixed amount of work, the others what fits into a second.
set -eu
for row; do
    case $row in
    sysbench_threads) how="threads --threads=8 --time=1" ;;
    sysbench_mutex) how="mutex --threads=8 --mutex-locks=10000" ;;
    sysbench_memory) how="memory --threads=1 --time=1" ;;
    sysbench_cpu) how="cpu --threads=1 --time=1" ;;
    esac
    # shellcheck disable=SC2086
    sysbench $how run >out
    awk -v row="$row" '
        /total time:/ { sub("s", "", $3); t = $3 }
        /total number of events:/ { n = $5 }
        END { if (!n) exit 1; print row, t * 1e9 / n }' out
done

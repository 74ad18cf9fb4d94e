# stress-ng's operations per second. Mappings are 16 MiB, so that one operation is short.
set -eu
for row; do
    name=${row#stress_}
    case $name in mmap) how="--mmap-bytes 16m" ;; *) how= ;; esac
    # shellcheck disable=SC2086
    stress-ng --temp-path . "--$name" 1 $how --timeout 1s --metrics-brief --yaml out >log 2>&1 ||
        { tail -n 3 log >&2; exit 1; }
    awk -v row="$row" '
        /bogo-ops-per-second-real-time:/ && $2 > 0 { print row, 1e9 / $2; found = 1 }
        END { exit !found }' out
done

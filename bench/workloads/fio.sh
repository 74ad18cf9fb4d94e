# fio: random reads of 4 KiB of a file in the page cache, random writes into it, writes that are followed by fsync(2),
# and sequential reads of 1 MiB.
set -eu
head -c 64M /dev/zero >f
sync f
cat f >/dev/null
for row; do
    size=4k
    case $row in
    *_randread*) how="--rw=randread" ;;
    *_randwrite*) how="--rw=randwrite" ;;
    *_read_1m*) how="--rw=read" size=1m ;;
    *_write_fsync*) how="--rw=randwrite --fsync=1" ;;
    esac
    # shellcheck disable=SC2086
    fio --name=x --filename=f --size=64M --bs=$size --ioengine=psync --invalidate=0 --fallocate=none \
        --runtime=1 --time_based \
        --output-format=json --output=out $how
    python3 - "$row" <<'END'
import json, sys
job = json.load(open("out"))["jobs"][0]
side = job["write" if "write" in sys.argv[1] else "read"]
if job["error"] or not side["total_ios"]:
    sys.exit(f"fio: error {job['error']}")
print(sys.argv[1], 1e9 / side["iops"])
END
done

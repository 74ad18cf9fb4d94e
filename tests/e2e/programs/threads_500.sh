# needs: python3
ulimit -u unlimited 2>/dev/null
python3 - <<'E'
import threading
threading.stack_size(256 * 1024)
b = threading.Barrier(501); n = [0]; l = threading.Lock()
def f():
    b.wait()
    with l: n[0] += 1
    b.wait()
t = [threading.Thread(target=f) for _ in range(500)]
[x.start() for x in t]
print(open("/proc/self/status").read().split("Threads:")[1].split()[0])
b.wait(); b.wait(); [x.join() for x in t]; print(n[0]); print(threading.active_count())
E

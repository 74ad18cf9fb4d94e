# needs: python3
import asyncio, ctypes, hashlib, json, mmap, multiprocessing as mp, os, queue, random, select, shutil, signal, socket
import sqlite3, struct, subprocess, sys, tempfile, threading, time, zlib
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor


def sq(x):
    return x * x


def worker(q, r):
    for x in iter(q.get, None):
        r.put((x, sum(range(x))))


def bump(v):
    for _ in range(500):
        with v.get_lock():
            v.value += 1


def main():
    r = subprocess.run(["sh", "-c", "cat; echo err >&2; exit 3"], input=b"hello", capture_output=True)
    print(r.returncode, r.stdout, r.stderr)
    print(subprocess.check_output("echo $((6*7)) | tr 4 5", shell=True, text=True).strip())
    try:
        subprocess.run(["sleep", "10"], timeout=0.1)
    except subprocess.TimeoutExpired:
        print("timeout")
    try:
        subprocess.run(["/nonexistent"])
    except FileNotFoundError as e:
        print(e.errno)
    p = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    print(len(p.communicate(b"x" * 500000)[0]))
    p = subprocess.Popen(["sleep", "100"])
    p.terminate()
    print(p.wait())
    n = [0]
    lock = threading.Lock()

    def add():
        for _ in range(2000):
            with lock:
                n[0] += 1

    ts = [threading.Thread(target=add) for _ in range(20)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    print(n[0])
    q = queue.Queue()
    threading.Thread(target=lambda: [q.put(i) for i in range(100)]).start()
    print(sum(q.get() for _ in range(100)))
    e = threading.Event()
    print(e.wait(0.02))
    c = threading.Condition()
    threading.Timer(0.01, lambda: (c.acquire(), c.notify(), c.release()))
    with ThreadPoolExecutor(8) as ex:
        print(sum(ex.map(sq, range(200))))
    for method in ("fork", "spawn", "forkserver"):
        ctx = mp.get_context(method)
        with ctx.Pool(3) as pool:
            print(method, sum(pool.map(sq, range(100))))
    q, res = mp.Queue(), mp.Queue()
    ps = [mp.Process(target=worker, args=(q, res)) for _ in range(3)]
    [p.start() for p in ps]
    for x in range(50):
        q.put(x)
    for _ in ps:
        q.put(None)
    print(sum(res.get()[1] for _ in range(50)))
    [p.join() for p in ps]
    with ProcessPoolExecutor(2) as ex:
        print(sum(ex.map(sq, range(50))))
    v = mp.Value("i", 0)
    a = mp.Array("d", 10)
    ps = [mp.Process(target=bump, args=(v,)) for _ in range(3)]
    [p.start() for p in ps]
    [p.join() for p in ps]
    print(v.value, len(a))
    with mp.Manager() as m:
        d = m.dict()
        d["x"] = 5
        print(dict(d))
    from multiprocessing import shared_memory

    s = shared_memory.SharedMemory(create=True, size=100)
    s.buf[:3] = b"abc"
    t = shared_memory.SharedMemory(s.name)
    print(bytes(t.buf[:3]))
    t.close()
    s.close()
    s.unlink()

    async def go():
        async def f(i):
            await asyncio.sleep(0.001 * (i % 5))
            return i

        print(sum(await asyncio.gather(*(f(i) for i in range(200)))))
        p = await asyncio.create_subprocess_exec(
            "sh", "-c", "read x; echo got $x; exit 4", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        print(await p.communicate(b"line\n"), p.returncode)

        async def serve(r, w):
            w.write((await r.readline()).upper())
            await w.drain()
            w.close()

        srv = await asyncio.start_unix_server(serve, "sock")
        out = []

        async def client(i):
            r, w = await asyncio.open_unix_connection("sock")
            w.write(b"msg %d\n" % i)
            out.append(await r.readline())
            w.close()

        await asyncio.gather(*(client(i) for i in range(50)))
        print(len(out), sorted(out)[0])
        srv.close()
        try:
            await asyncio.wait_for(asyncio.sleep(5), 0.05)
        except asyncio.TimeoutError:
            print("async timeout")
        print(await asyncio.get_running_loop().run_in_executor(None, sq, 12))

    asyncio.run(go())
    db = sqlite3.connect("x.db")
    db.execute("pragma journal_mode=wal")
    db.execute("create table t(a integer primary key, b text)")
    with db:
        db.executemany("insert into t values(?,?)", ((i, "v%d" % i) for i in range(5000)))
    print(db.execute("select count(*), sum(a), max(b) from t").fetchone())
    d2 = sqlite3.connect("x.db")
    print(d2.execute("select b from t where a=4321").fetchone())
    try:
        db.execute("begin immediate")
        sqlite3.connect("x.db", timeout=0.1).execute("begin immediate")
    except sqlite3.OperationalError as e:
        print(e)
    db.rollback()
    d2.close()
    db.execute("vacuum")
    print(db.execute("pragma integrity_check").fetchone())
    libc = ctypes.CDLL(None)
    print(libc.abs(-5), libc.getpid() == os.getpid())
    CB = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
    arr = (ctypes.c_int * 5)(5, 1, 4, 2, 3)
    libc.qsort(arr, 5, 4, CB(lambda a, b: a[0] - b[0]))
    print(list(arr))
    with open("mm", "w+b") as f:
        f.truncate(100000)
        m = mmap.mmap(f.fileno(), 0)
        m[5:10] = b"hello"
        m.flush()
        f.seek(5)
        print(f.read(5), m.find(b"llo"))
        m.resize(200000)
        print(os.path.getsize("mm"))
        m.close()
    m = mmap.mmap(-1, 4096)
    pid = os.fork()
    if pid == 0:
        m[0] = 7
        os._exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), m[0])
    got = []
    signal.signal(signal.SIGALRM, lambda *a: got.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    signal.pause()
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(got[:1])  # periodic: one may come before the pause
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    print(signal.sigwait([signal.SIGUSR1]).name)
    a, b = socket.socketpair()
    a.send(b"x")
    print(b.recv(5))
    socket.send_fds(a, [b"f"], [0])
    print(len(socket.recv_fds(b, 10, 1)[1]))
    p = select.poll()
    p.register(b, select.POLLIN)
    print(p.poll(10))
    ep = select.epoll()
    ep.register(b, select.EPOLLIN)
    a.send(b"z")
    print(len(ep.poll(1)))
    mfd = os.memfd_create("x")
    os.write(mfd, b"abc")
    print(os.pread(mfd, 3, 0))
    print(os.getxattr("mm", "user.a") if not os.setxattr("mm", "user.a", b"1") else 0)
    print(len(os.urandom(16)), zlib.crc32(b"abc"), hashlib.sha256(b"x" * 1000000).hexdigest()[:16])
    print(sorted(os.listdir("/dev"))[:0], os.cpu_count() == len(os.sched_getaffinity(0)))
    print(os.get_terminal_size.__name__, sys.flags.isolated, time.get_clock_info("monotonic").monotonic)
    pid, fd = os.forkpty()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", "tty >/dev/null && echo on a tty; read x; echo $x"])
    os.write(fd, b"typed\n")
    out = b""
    try:
        while d := os.read(fd, 1000):
            out += d
    except OSError:
        pass
    os.waitpid(pid, 0)
    print(sorted(out.replace(b"\r", b"").split()))
    import venv, unittest, decimal, email, xml.dom.minidom, http.server, urllib.request, ssl, lzma, bz2

    print(lzma.decompress(lzma.compress(b"q" * 1000)) == b"q" * 1000)


main() if __name__ == "__main__" else None

"""Kinds of objects of kinds.py: namespaces that programs made."""

import ctypes, errno, fcntl, os, socket, struct, time

from base import DIR, libc, pause, same

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWTIME = 0x10000000, 0x20000000, 0x40000000, 0x80


def called(result, what):
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def unshare(flags):
    called(libc.unshare(flags), "unshare")


def in_user_namespace():
    """The caller becomes user 0 of a new user namespace, in which user 5 is the same outside."""
    r, w = os.pipe()
    done_r, done_w = os.pipe()
    me = os.getpid()
    helper = os.fork()
    if helper == 0:
        os.read(r, 1)
        for name, text in (("setgroups", "deny"), ("uid_map", "0 0 1\n5 5 2"), ("gid_map", "0 0 1")):
            with open(f"/proc/{me}/{name}", "w") as f:
                f.write(text)
        os.write(done_w, b"x")
        os._exit(0)
    unshare(CLONE_NEWUSER)
    os.write(w, b"x")
    os.read(done_r, 1)
    os.waitpid(helper, 0)


def seen_of_namespaces():
    """What a process sees of its namespaces."""
    links = {}
    for name in sorted(os.listdir("/proc/self/ns")):
        links[name] = os.readlink("/proc/self/ns/" + name)
    status = [line.strip() for line in open("/proc/self/status") if line.startswith(("Cap", "Uid", "NSpid", "Groups"))]
    maps = [open("/proc/self/" + name).read() for name in ("uid_map", "gid_map", "setgroups")]
    limits = [open("/proc/sys/user/" + name).read() for name in sorted(os.listdir("/proc/sys/user"))]
    ids = os.getpid(), os.getppid(), os.getuid(), os.getsid(0), os.getpgid(0)
    return links, status, maps, limits, ids, os.uname()[1], open("/proc/self/timens_offsets").read()


def kind_namespaces():
    """User, UTS, IPC, network, cgroup, time and PID namespaces, two levels deep: numbers, maps, names, clocks, init."""
    r, w = os.pipe()
    go_r, go_w = os.pipe()
    child = os.fork()
    if child == 0:
        in_user_namespace()
        unshare(CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWCGROUP | CLONE_NEWTIME | CLONE_NEWPID)
        with open("/proc/self/timens_offsets", "w") as f:
            f.write("monotonic 5000 7\nboottime 100 0\n")
        libc.sethostname(b"inner", 5)
        init = os.fork()
        if init == 0:
            unshare(CLONE_NEWUTS | CLONE_NEWPID)
            libc.sethostname(b"deeper", 6)
            deeper = os.fork()
            if deeper == 0:
                orphan = os.fork()
                if orphan == 0:
                    os.read(go_r, 1)
                    os._exit(7)
            before = seen_of_namespaces()
            os.write(w, b"x")
            os.read(go_r, 1)
            try:
                same(seen_of_namespaces(), before)
                if deeper:
                    same(os.waitpid(deeper, 0), (deeper, 0))
                    late = os.fork()
                    if late == 0:
                        os._exit(0)
                    # The namespace for children has lost its init.
                    raise AssertionError("a process in a namespace without init")
                same(os.getpid(), 1)
                same(os.waitpid(orphan, 0), (orphan, 7 << 8))
                os._exit(0)
            except OSError as error:
                os._exit(0 if error.errno == errno.ENOMEM and deeper else 3)
            except BaseException as error:
                print(error, flush=True)
                os._exit(2)
        os.close(w)
        os.read(go_r, 1)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(init, 0)[1]))
    os.close(w)
    same(os.read(r, 1) + os.read(r, 1), b"xx")
    before = os.readlink(f"/proc/{child}/ns/uts"), os.uname()[1]
    pause()
    same((os.readlink(f"/proc/{child}/ns/uts"), os.uname()[1]), before)
    os.write(go_w, b"xxxxxxxx")
    same(os.waitpid(child, 0)[1], 0, "the processes inside")


def kind_shifted_clock():
    """The clock of a time namespace, read through the vDSO, goes on."""
    r, w = os.pipe()
    child = os.fork()
    if child == 0:
        in_user_namespace()
        unshare(CLONE_NEWTIME)
        with open("/proc/self/timens_offsets", "w") as f:
            f.write("monotonic 100000 0\n")
        inner = os.fork()
        if inner == 0:
            outside = time.monotonic() - 100000
            os.write(w, struct.pack("d", outside))
            while not os.path.exists(DIR + "/go"):
                time.sleep(0.05)
            os.write(w, struct.pack("d", time.monotonic() - 100000))
            os._exit(0)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]))
    first = struct.unpack("d", os.read(r, 8))[0]
    same(abs(time.monotonic() - first) < 50, True, "before")
    pause()
    last = struct.unpack("d", os.read(r, 8))[0]
    same(abs(time.monotonic() - last) < 50, True, "after")
    same(os.waitpid(child, 0)[1], 0, "child")


def in_new_network(body):
    """Runs `body` in a process of a new network namespace; gives its ID."""
    child = os.fork()
    if child == 0:
        try:
            in_user_namespace()
            unshare(CLONE_NEWNET)
            body()
            os._exit(0)
        except BaseException as error:
            print(error, flush=True)
            os._exit(1)
    return child


def up(name):
    """Brings an interface up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", name, 0x1 | 0x40))


def kind_network_namespace():
    """A namespace with its own loopback: a connection in it, listeners, and a socket that another process has of it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    go_r, go_w = os.pipe()

    def body():
        up(b"lo")
        server = socket.create_server(("127.0.0.1", 99))
        client = socket.create_connection(("127.0.0.1", 99))
        peer, _ = server.accept()
        client.send(b"before")
        other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        other.bind(("127.0.0.1", 98))
        socket.send_fds(theirs, [b"x"], [other.fileno()])
        own = os.readlink("/proc/self/ns/net"), open("/proc/net/tcp").read().count("\n")
        os.write(go_w, b"r")
        while not os.path.exists(DIR + "/go"):
            time.sleep(0.01)
        same(peer.recv(100), b"before")
        peer.send(b"after")
        same(client.recv(100), b"after")
        same((os.readlink("/proc/self/ns/net"), open("/proc/net/tcp").read().count("\n")), own)
        again = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        again.sendto(b"datagram", ("127.0.0.1", 98))
        os.write(go_w, b"d")

    child = in_new_network(body)
    same(os.read(go_r, 1), b"r")
    _, fds, _, _ = socket.recv_fds(ours, 10, 1)
    pause()
    same(os.read(go_r, 1), b"d")
    same(os.read(fds[0], 100), b"datagram")
    same(os.waitpid(child, 0)[1], 0, "child")

"""Kinds of objects of kinds.py: namespaces, mounts, control groups and packet filters that programs made."""

import ctypes, errno, fcntl, mmap, os, select, signal, socket, stat, struct, subprocess, time

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


def kind_kept_ipc():
    """IPC namespaces that no process is in: one that a descriptor keeps, one that a mount keeps."""
    msgget, msgsnd, msgrcv = (getattr(libc, name) for name in ("msgget", "msgsnd", "msgrcv"))
    libc.shmat.restype = ctypes.c_void_p

    def made(text):
        """A namespace with a message, a segment, and a queue of POSIX, as a descriptor."""
        r, w = os.pipe()
        child = os.fork()
        if child == 0:
            unshare(CLONE_NEWIPC)
            queue = called(msgget(7, 0o1600), "msgget")
            called(msgsnd(queue, struct.pack("l", 3) + text, len(text), 0), "msgsnd")
            segment = called(libc.shmget(9, 4096, 0o1600), "shmget")
            ctypes.memmove(libc.shmat(segment, None, 0), text, len(text))
            posix = called(libc.mq_open(b"/kept", os.O_CREAT | os.O_RDWR, 0o600, None), "mq_open")
            called(libc.mq_send(posix, text, len(text), 1), "mq_send")
            os.write(w, b"x")
            signal.pause()
        os.read(r, 1)
        ns = os.open(f"/proc/{child}/ns/ipc", os.O_RDONLY)
        os.kill(child, signal.SIGKILL), os.waitpid(child, 0)
        return ns

    held, mounted = made(b"first"), made(b"other")
    unshare(CLONE_NEWNS)
    called(libc.mount(None, b"/", None, 0x44000, None), "private mounts")
    open("/dev/shm/ns", "w").close()
    called(libc.mount(b"/proc/self/fd/%d" % mounted, b"/dev/shm/ns", None, 4096, None), "mount")
    os.close(mounted)
    pause()
    for path, text in ((held, b"first"), (os.open("/dev/shm/ns", os.O_RDONLY), b"other")):
        called(libc.setns(path, CLONE_NEWIPC), "setns")
        got = ctypes.create_string_buffer(100)
        n = called(msgrcv(called(msgget(7, 0), "msgget"), got, 80, 3, 0o4000), "msgrcv")
        same(got.raw[8 : 8 + n], text)
        same(ctypes.string_at(libc.shmat(called(libc.shmget(9, 0, 0), "shmget"), None, 0), len(text)), text)
        posix = called(libc.mq_open(b"/kept", os.O_RDWR | os.O_NONBLOCK), "mq_open")
        large = ctypes.create_string_buffer(8192)
        n = called(libc.mq_receive(posix, large, 8192, None), "mq_receive")
        same(large.raw[:n], text)


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


def mount(source, target, fstype, flags=0, data=None):
    data = data.encode() if data is not None else None
    names = [name.encode() for name in (source, target, fstype)]
    called(libc.mount(*names, ctypes.c_ulong(flags), data), "mount " + target)


MS_RDONLY, MS_NOSUID, MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC = 1, 2, 32, 4096, 8192, 16384
MS_PRIVATE, MS_SLAVE, MS_SHARED = 1 << 18, 1 << 19, 1 << 20
MNT_DETACH = 2


def mounts_seen(below):
    """The lines of mountinfo about what is mounted below a directory, without numbers that may change."""
    lines = []
    for line in open("/proc/self/mountinfo"):
        words = line.split()
        if words[4].startswith(below):
            lines.append(" ".join(words[3:]))
    return lines


def in_mounts_of_its_own(body, users=True):
    """Runs `body` in a process with a mount namespace of its own and a file system at /mnt; gives its ID."""
    r, w = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if users:
                in_user_namespace()
            unshare(CLONE_NEWNS)
            if not users:
                mount("none", "/", "none", MS_REC | MS_PRIVATE)
            mount("mine", "/mnt", "tmpfs", MS_NOSUID, "size=2m,mode=755")
            body(lambda: os.write(w, b"r"))
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    os.close(w)
    return child, r


def waits_for_go():
    while not os.path.exists(DIR + "/go"):
        time.sleep(0.01)


def some_mounts():
    """Mounts of many kinds below /mnt."""
    for name in ("bind", "ro", "proc", "pts", "queues", "lower", "upper", "work", "merged", "shared", "slave", "two"):
        os.mkdir("/mnt/" + name)
    with open("/mnt/lower/below", "w") as f:
        f.write("from below")
    with open("/mnt/two/file", "w") as f:
        f.write("bound")
    mount("/mnt/two", "/mnt/bind", "none", MS_BIND)
    mount("ram", "/mnt/ro", "tmpfs", 0, "size=64k")
    with open("/mnt/ro/file", "w") as f:
        f.write("cannot be changed")
    mount("none", "/mnt/ro", "none", MS_REMOUNT | MS_BIND | MS_RDONLY)
    mount("pts", "/mnt/pts", "devpts", 0, "newinstance,ptmxmode=666")
    mount("over", "/mnt/merged", "overlay", 0, "lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work")
    with open("/mnt/merged/above", "w") as f:
        f.write("from above")
    os.mkdir("/mnt/merged/dir")
    mount("in", "/mnt/merged/dir", "tmpfs")
    mount("/mnt/two", "/mnt/shared", "none", MS_BIND)
    mount("none", "/mnt/shared", "none", MS_SHARED)
    mount("/mnt/shared", "/mnt/slave", "none", MS_BIND)
    mount("none", "/mnt/slave", "none", MS_SLAVE)


def check_mounts(before):
    same(mounts_seen("/mnt"), before, "mountinfo")
    same(open("/mnt/bind/file").read(), "bound")
    try:
        open("/mnt/ro/file", "w")
        raise AssertionError("the mount can be written")
    except OSError as error:
        same(error.errno, errno.EROFS)
    same(open("/mnt/ro/file").read(), "cannot be changed")
    same(sorted(os.listdir("/mnt/merged")), ["above", "below", "dir"])
    same((open("/mnt/merged/below").read(), open("/mnt/merged/above").read()), ("from below", "from above"))
    with open("/mnt/merged/below", "a") as f:
        f.write(", changed")
    same((open("/mnt/upper/below").read(), open("/mnt/lower/below").read()), ("from below, changed", "from below"))
    os.mkdir("/mnt/two/sub")
    mount("late", "/mnt/shared/sub", "tmpfs")
    same(len(mounts_seen("/mnt/slave")), 2, "an event for the slave")
    same(len(mounts_seen("/mnt/shared")), 2)
    called(libc.umount2(b"/mnt/shared/sub", 0), "umount")
    same(len(mounts_seen("/mnt/slave")), 1, "another event for the slave")


def kind_mount_namespace():
    """A mount namespace in a user namespace: tmpfs, bind, overlay, devpts; flags, propagation; open files."""

    def body(ready):
        some_mounts()
        inside = open("/mnt/merged/above", "r+")
        left = open("/mnt/ro/file")
        os.mkdir("/mnt/gone")
        mount("gone", "/mnt/gone", "tmpfs")
        with open("/mnt/gone/file", "w") as f:
            f.write("of an unmounted file system")
        lost = open("/mnt/gone/file")
        called(libc.umount2(b"/mnt/gone", MNT_DETACH), "umount")
        os.chdir("/mnt/merged/dir")
        before, cwd = mounts_seen("/mnt"), os.getcwd()
        ready()
        waits_for_go()
        same(os.getcwd(), cwd)
        said = inside.read(), left.read(), lost.read()
        same(said, ("from above", "cannot be changed", "of an unmounted file system"))
        check_mounts(before)

    child, r = in_mounts_of_its_own(body)
    same(os.read(r, 1), b"r")
    pause()
    same(os.waitpid(child, 0)[1], 0, "child")


def kind_mounts():
    """Mounts in the container's own mount namespace, a new root (pivot_root), and files of namespaces."""
    inside = os.path.realpath(DIR) == "/ctl"
    if not inside:
        unshare(CLONE_NEWNS)
        mount("none", "/", "none", MS_REC | MS_PRIVATE)
    mount("mine", "/mnt", "tmpfs", 0, "size=2m")
    some_mounts()
    os.mkdir("/mnt/procfs")
    mount("proc", "/mnt/procfs", "proc")
    mount("queues", "/mnt/queues", "mqueue")
    open("/mnt/uts", "w").close()
    open("/mnt/mnt", "w").close()
    mount("/proc/self/ns/uts", "/mnt/uts", "none", MS_BIND)
    r, w = os.pipe()
    child = os.fork()
    if child == 0:
        unshare(CLONE_NEWNS | CLONE_NEWUTS)
        libc.sethostname(b"other", 5)
        mount("none", "/", "none", MS_REC | MS_PRIVATE)
        os.mkdir("/mnt/a")
        mount("new", "/mnt/a", "tmpfs")
        os.mkdir("/mnt/a/old")
        with open("/mnt/a/only", "w") as f:
            f.write("here")
        os.chdir("/mnt/a")
        called(libc.syscall(155, b".", b"old"), "pivot_root")
        os.chroot(".")
        called(libc.umount2(b"/old", MNT_DETACH), "umount")
        os.write(w, b"r")
        signal.pause()
    same(os.read(r, 1), b"r")
    spaces = os.open(f"/proc/{child}/ns/mnt", os.O_RDONLY), os.open(f"/proc/{child}/ns/uts", os.O_RDONLY)
    if inside:
        # Linux 6.18 has numbers of each processor's own for what is younger, and may refuse it.
        mount(f"/proc/{child}/ns/mnt", "/mnt/mnt", "none", MS_BIND)
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in spaces]
    before = mounts_seen("/mnt")
    pause()
    same([os.readlink(f"/proc/self/fd/{fd}") for fd in spaces], links)
    same(os.readlink(f"/proc/{child}/ns/mnt"), links[0])
    check_mounts(before)
    same(open("/mnt/procfs/self/stat").read().split()[0], str(os.getpid()))
    visitor = os.fork()
    if visitor == 0:
        try:
            entered = os.open("/mnt/mnt", os.O_RDONLY) if inside else spaces[0]
            called(libc.setns(entered, 0), "setns")
            called(libc.setns(spaces[1], 0), "setns")
            same((sorted(os.listdir("/")), open("/only").read(), os.uname()[1]), (["old", "only"], "here", "other"))
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    same(os.waitpid(visitor, 0)[1], 0, "a process that enters")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def kind_detached_mounts():
    """Trees of open_tree(2) and fsmount(2) that are attached later."""
    open_tree, move_mount, fsopen, fsconfig, fsmount = 428, 429, 430, 431, 432

    def body(ready):
        for name in ("from", "to", "new"):
            os.mkdir("/mnt/" + name)
        mount("a", "/mnt/from", "tmpfs")
        with open("/mnt/from/file", "w") as f:
            f.write("in the tree")
        tree = called(libc.syscall(open_tree, -100, b"/mnt/from", 1), "open_tree")
        fs = called(libc.syscall(fsopen, b"tmpfs", 0), "fsopen")
        called(libc.syscall(fsconfig, fs, 6, None, None, 0), "fsconfig")
        made = called(libc.syscall(fsmount, fs, 0, 0), "fsmount")
        os.close(fs)
        fd = os.open("inside", os.O_CREAT | os.O_RDWR, dir_fd=made)
        os.write(fd, b"new")
        ready()
        waits_for_go()
        called(libc.syscall(move_mount, tree, b"", -100, b"/mnt/to", 4), "move_mount")
        called(libc.syscall(move_mount, made, b"", -100, b"/mnt/new", 4), "move_mount")
        same((open("/mnt/to/file").read(), open("/mnt/new/inside").read()), ("in the tree", "new"))
        with open("/mnt/to/file", "w") as f:
            f.write("the same")
        same(open("/mnt/from/file").read(), "the same")

    child, r = in_mounts_of_its_own(body)
    same(os.read(r, 1), b"r")
    pause()
    same(os.waitpid(child, 0)[1], 0, "child")


def of_groups(top):
    """What the files of control groups say, but for what counts time, and for what was removed."""
    said = {}
    for dir, _, names in sorted(os.walk(top)):
        for name in sorted(names):
            if name in ("cpu.stat", "cgroup.stat", "cgroup.kill"):
                continue
            with open(os.path.join(dir, name)) as f:
                said[os.path.join(dir, name)] = sorted(f.read().splitlines()), os.fstat(f.fileno()).st_uid
    return said


def kind_control_groups():
    """Groups with settings, members, owners and counters; a frozen group; a cgroup namespace; files of groups."""

    def put(path, text):
        with open("/mnt/" + path, "w") as f:
            f.write(text)

    mount("groups", "/mnt", "cgroup2")
    os.makedirs("/mnt/a/b")
    os.mkdir("/mnt/frozen")
    put("cgroup.subtree_control", "+pids +cpu")
    put("a/cgroup.subtree_control", "+pids")
    put("a/cpu.max", "50000 100000")
    put("a/cpu.weight", "42")
    put("a/b/pids.max", "3")
    put("a/b/cgroup.max.depth", "5")
    os.makedirs("/mnt/a/b/mode", 0o700)
    r, w = os.pipe()
    go_r, go_w = os.pipe()
    member = os.fork()
    if member == 0:
        put("a/b/cgroup.procs", "0")
        unshare(CLONE_NEWCGROUP)
        for _ in range(2):
            if os.fork() == 0:
                signal.pause()
        try:
            os.fork()
            os.write(w, b"no limit")
        except OSError:
            os.write(w, b"r")
        os.read(go_r, 1)
        try:
            same(open("/proc/self/cgroup").read(), "0::/\n")
            try:
                os.fork()
                raise AssertionError("the limit is gone")
            except OSError as error:
                same(error.errno, errno.EAGAIN)
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    same(os.read(r, 100), b"r")
    os.chown("/mnt/a/b/cgroup.procs", 7, 8)
    counts = mmap.mmap(-1, 4096)
    frozen = os.fork()
    if frozen == 0:
        while True:
            counts[0:8] = struct.pack("Q", struct.unpack("Q", counts[0:8])[0] + 1)
            time.sleep(0.001)
    put("frozen/cgroup.procs", str(frozen))
    put("frozen/cgroup.freeze", "1")
    while "frozen 1" not in open("/mnt/frozen/cgroup.events").read():
        time.sleep(0.01)
    counted = counts[0:8]
    # A process that has ended counts until it has been waited for.
    zombie = os.fork()
    if zombie == 0:
        os._exit(5)
    os.waitid(os.P_PID, zombie, os.WEXITED | os.WNOWAIT)
    events = os.open("/mnt/a/cgroup.events", os.O_RDONLY)
    before = of_groups("/mnt")
    pause()
    same(of_groups("/mnt"), before)
    same(counts[0:8], counted, "a frozen process")
    same(open(f"/proc/{member}/cgroup").read(), "0::/a/b\n")
    same(os.read(events, 100), b"populated 1\nfrozen 0\n")
    put("frozen/cgroup.freeze", "0")
    while counts[0:8] == counted:
        time.sleep(0.01)
    os.kill(frozen, signal.SIGKILL)
    os.waitpid(frozen, 0)
    os.waitpid(zombie, 0)
    os.rmdir("/mnt/frozen")
    os.write(go_w, b"x")
    same(os.waitpid(member, 0)[1], 0, "the member")
    put("a/cgroup.kill", "1")


NFT_RULES = """
table inet one {
    set ports { type inet_service; flags interval; elements = { 10-20, 99 } }
    set late { type ipv4_addr; flags timeout; elements = { 127.0.0.7 timeout 1h } }
    map marks { type inet_service : mark; elements = { 99 : 0x5, 98 : 0x6 } }
    counter named { packets 5 bytes 500 }
    chain later {
        counter accept
    }
    chain input {
        type filter hook input priority 0; policy accept;
        tcp dport vmap { 99 : jump later, 1 : drop }
        tcp dport @ports counter name named
        meta mark set tcp dport map @marks
        ct state established counter
        tcp dport { 20, 21-25 } counter
        tcp dport 77 jump {
            counter accept
        }
    }
}
table ip nat {
    chain out {
        type nat hook output priority -100;
        tcp dport 97 counter redirect to :99
    }
}
"""


TUNSETIFF, TUNSETPERSIST, TUNSETOWNER, TUNGETIFF = 0x400454CA, 0x400454CB, 0x400454CC, 0x800454D2
TUNGETVNETHDRSZ, TUNSETVNETHDRSZ = 0x800454D7, 0x400454D8
IFF_TUN, IFF_TAP, IFF_PERSIST, IFF_NO_PI, IFF_VNET_HDR = 1, 2, 0x800, 0x1000, 0x4000
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C


def datagram(text, port):
    """An IPv4 packet with a datagram from 10.77.0.2."""
    there, here = bytes([10, 77, 0, 2]), bytes([10, 77, 0, 1])
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(text), 1, 0, 64, 17, 0, there, here)
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    head = head[:10] + struct.pack("!H", ~total & 0xFFFF) + head[12:]
    return head + struct.pack("!HHHH", 9, port, 8 + len(text), 0) + text


def kind_tun():
    """An interface with a program at its other end, with what waits there, and one that no file has."""
    os.mknod("/dev/tun-node", stat.S_IFCHR | 0o600, os.makedev(10, 200))
    control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def attached(name, flags):
        fd = os.open("/dev/tun-node", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name, flags))
        return fd

    def address(request, text):
        fcntl.ioctl(control, request, struct.pack("16sHH4s16x", b"mytun", socket.AF_INET, 0, socket.inet_aton(text)))

    def comes(text):
        """Reads packets until one has this text."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            if select.select([tun], [], [], 1)[0] and text in os.read(tun, 2000):
                return True
        return False

    tun = attached(b"mytun", IFF_TUN | IFF_NO_PI)
    address(SIOCSIFADDR, "10.77.0.1"), address(SIOCSIFNETMASK, "255.255.255.0")
    fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH22x", b"mytun", 1))
    tap = attached(b"mytap", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR)
    fcntl.ioctl(tap, TUNSETVNETHDRSZ, struct.pack("i", 12))
    fcntl.ioctl(tap, TUNSETPERSIST, 1), fcntl.ioctl(tap, TUNSETOWNER, 5)
    os.close(tap)
    unused = os.open("/dev/tun-node", os.O_RDWR)
    sends = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sends.bind(("10.77.0.1", 77))
    sends.settimeout(10)
    sends.sendto(b"it waits", ("10.77.0.2", 9))
    known = fcntl.ioctl(tun, TUNGETIFF, bytes(40))
    names = socket.if_nameindex()
    hardware = open("/sys/class/net/mytap/address").read()
    pause()
    same(fcntl.ioctl(tun, TUNGETIFF, bytes(40)), known)
    same(socket.if_nameindex(), names)
    same(open("/sys/class/net/mytap/address").read(), hardware)
    same(comes(b"it waits"), True, "what was sent before")
    sends.sendto(b"it comes", ("10.77.0.2", 9))
    same(comes(b"it comes"), True, "what was sent afterwards")
    os.write(tun, datagram(b"answer", 77))
    same(sends.recv(10), b"answer")
    try:
        attached(b"mytun", IFF_TUN | IFF_NO_PI)
        raise AssertionError("two files have one interface")
    except OSError as error:
        same(error.errno, errno.EBUSY)
    tap = attached(b"mytap", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR)
    flags = struct.unpack_from("H", fcntl.ioctl(tap, TUNGETIFF, bytes(40)), 16)[0]
    same(flags & (IFF_TAP | IFF_PERSIST | IFF_VNET_HDR), IFF_TAP | IFF_PERSIST | IFF_VNET_HDR)
    same(struct.unpack("i", fcntl.ioctl(tap, TUNGETVNETHDRSZ, bytes(4)))[0], 12)
    fcntl.ioctl(unused, TUNSETIFF, struct.pack("16sH22x", b"more", IFF_TUN))
    os.close(tun)
    same("mytun" in [name for _, name in socket.if_nameindex()], False, "an interface without its file")


def kind_packet_filter():
    """Rules of nf_tables and of iptables-legacy with counters and handles, sets and maps, and a connection with NAT."""
    r, w = os.pipe()
    os.environ["XTABLES_LOCKFILE"] = "/tmp/xtables.lock"

    def out(*args, **kw):
        return subprocess.run(args, check=True, capture_output=True, text=True, **kw).stdout

    def rules():
        legacy = [out(name + "-legacy-save", "-c") for name in ("iptables", "ip6tables")]
        legacy = [line for text in legacy for line in text.splitlines() if not line.startswith("#")]
        listed = out("nft", "-a", "list", "ruleset").replace("expires 59m", "expires")
        return [line for line in listed.splitlines() if "timeout 1h" not in line], legacy

    def connections():
        lines = open("/proc/net/nf_conntrack").read().splitlines()
        return sorted(" ".join(line.split()[5:]) for line in lines if "tcp" in line)

    def body():
        up(b"lo")
        out("nft", "-f", "-", input=NFT_RULES)
        out("nft", "insert", "rule", "inet", "one", "input", "tcp", "dport", "5", "counter", "drop")
        out("iptables-legacy", "-A", "INPUT", "-p", "tcp", "--dport", "1", "-m", "comment", "--comment", "x")
        out("iptables-legacy", "-N", "mine")
        out("iptables-legacy", "-A", "OUTPUT", "-m", "conntrack", "--ctstate", "NEW", "-j", "mine")
        recent = ("iptables-legacy", "-A", "INPUT", "-p", "udp", "--dport", "96", "-m", "recent", "--name", "seen")
        out(*recent, "--rcheck", "--seconds", "3600", "--hitcount", "3", "-j", "DROP")
        out(*recent, "--set", "-j", "ACCEPT")
        late = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        late.bind(("127.0.0.1", 96))
        late.settimeout(10)

        def comes(text):
            late.sendto(text, ("127.0.0.1", 96))
            return late.recv(10)

        same((comes(b"one"), comes(b"two")), (b"one", b"two"))
        server = socket.create_server(("127.0.0.1", 99))
        client = socket.create_connection(("127.0.0.1", 97))
        peer, _ = server.accept()
        client.send(b"before")
        same(peer.recv(10), b"before")
        before, tracked = rules(), connections()
        os.write(w, b"r")
        waits_for_go()
        same(connections(), tracked, "connections")
        same(rules(), before, "rules")
        peer.send(b"after")
        same(client.recv(10), b"after")
        same(comes(b"three"), b"three")
        late.sendto(b"four", ("127.0.0.1", 96))
        late.settimeout(0.2)
        try:
            raise AssertionError(f"{late.recv(10)} of an address that was seen three times")
        except TimeoutError:
            pass
        again = socket.create_connection(("127.0.0.1", 97))
        server.accept()
        same(rules() == before, False, "counters")
        same("127.0.0.7" in out("nft", "list", "set", "inet", "one", "late"), True, "an element with a time-out")
        out("nft", "delete", "table", "inet", "one")

    child = in_new_network(body)
    same(os.read(r, 1), b"r")
    pause()
    same(os.waitpid(child, 0)[1], 0, "child")

"""Kinds of objects of kinds.py on the side of files and IPC."""

import ctypes, errno, fcntl, os, select, signal, socket, struct, threading, time

from base import DIR, call, libc, pause, same

F_SETSIG, F_GETSIG, F_GETOWN_EX, F_OWNER_PGRP = 10, 11, 16, 2


def next_signal(*signals):
    """The next of these signals that comes within ten seconds, as its number and band."""
    info = signal.sigtimedwait(signals, 10)
    return info and (info.si_signo, info.si_band)


def kind_signals_of_files():
    """O_ASYNC with owners of all kinds, and SIGURG of a socket with an owner."""
    chosen = signal.SIGRTMIN + 3
    signals = [chosen, signal.SIGIO, signal.SIGURG]
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)

    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)

    def sends(fd, owner):
        fcntl.fcntl(fd, fcntl.F_SETOWN, owner)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)

    r, w = os.pipe()
    sends(r, os.getpid())
    fcntl.fcntl(r, F_SETSIG, chosen)
    a, b = socket.socketpair()
    sends(a.fileno(), -os.getpgrp())
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    fcntl.fcntl(server, fcntl.F_SETOWN, os.getpid())
    # Socketpairs report room as they are made.
    while signal.sigtimedwait(signals, 0):
        pass
    pause()
    same(signal.sigtimedwait(signals, 0), None, "a signal without a reason")
    os.write(w, b"x")
    same(next_signal(*signals), (chosen, 0x41), "pipe")
    b.send(b"x")
    same(next_signal(*signals)[0], signal.SIGIO, "socket of the group")
    client.send(b"!", socket.MSG_OOB)
    same(next_signal(*signals)[0], signal.SIGURG, "urgent data")
    same(struct.unpack("ii", fcntl.fcntl(a, F_GETOWN_EX, bytes(8))), (F_OWNER_PGRP, os.getpgrp()))
    same(fcntl.fcntl(r, F_GETSIG), chosen)
    fcntl.fcntl(r, fcntl.F_SETFL, 0)
    os.write(w, b"x")
    same(signal.sigtimedwait(signals, 0.1), None, "after the end of O_ASYNC")


def opens(path, flags):
    """A child that opens a file, and ends with 0."""
    child = os.fork()
    if child == 0:
        os.close(os.open(path, flags))
        os._exit(0)
    return child


def kind_leases():
    """Leases that are broken after the checkpoint, and one that an open waits for in the middle."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
    for name in ("free", "waited-for"):
        open("/dev/shm/" + name, "w").close()
    free = os.open("/dev/shm/free", os.O_RDWR)
    fcntl.fcntl(free, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    waited = os.open("/dev/shm/waited-for", os.O_RDONLY)
    fcntl.fcntl(waited, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    writer = opens("/dev/shm/waited-for", os.O_WRONLY)
    same(next_signal(signal.SIGIO)[0], signal.SIGIO, "the writer")
    pause()
    same(fcntl.fcntl(free, fcntl.F_GETLEASE), fcntl.F_WRLCK)
    same(os.waitpid(writer, os.WNOHANG), (0, 0), "the writer before the lease ends")
    fcntl.fcntl(waited, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    same(os.waitpid(writer, 0)[1], 0, "the writer")
    reader = opens("/dev/shm/free", os.O_RDONLY)
    same(next_signal(signal.SIGIO)[0], signal.SIGIO, "the reader")
    fcntl.fcntl(free, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    same(os.waitpid(reader, 0)[1], 0, "the reader")


def kind_directory_signals():
    """F_NOTIFY, once and for good, of a directory in memory and of one of the host."""
    once, chosen = signal.SIGRTMIN + 1, signal.SIGRTMIN + 2
    signal.pthread_sigmask(signal.SIG_BLOCK, [once, chosen])
    os.makedirs("/dev/shm/seen", exist_ok=True), os.makedirs(DIR + "/seen", exist_ok=True)
    memory = os.open("/dev/shm/seen", os.O_RDONLY)
    host = os.open(DIR + "/seen", os.O_RDONLY)
    fcntl.fcntl(memory, F_SETSIG, once), fcntl.fcntl(host, F_SETSIG, chosen)
    fcntl.fcntl(memory, fcntl.F_NOTIFY, fcntl.DN_CREATE)
    fcntl.fcntl(host, fcntl.F_NOTIFY, fcntl.DN_DELETE | fcntl.DN_CREATE | fcntl.DN_MULTISHOT)
    pause()
    for name in ("a", "b"):
        open("/dev/shm/seen/" + name, "w").close()
    same(next_signal(once, chosen)[0], once)
    same(signal.sigtimedwait([once], 0.05), None, "a second signal")
    for n in range(2):
        open(DIR + "/seen/a", "w").close()
        same(next_signal(chosen)[0], chosen, "made")
        os.unlink(DIR + "/seen/a")
        same(next_signal(chosen)[0], chosen, "removed")


IPC_RMID, IPC_CREAT, SEM_UNDO, GETVAL, GETNCNT, SETVAL = 0, 0o1000, 0x1000, 12, 14, 16
libc.shmat.restype = ctypes.c_void_p


def attach(segment, flags=0):
    at = libc.shmat(segment, None, flags)
    return (ctypes.c_char * 8192).from_address(at)


def attachments(segment):
    """shm_nattch of IPC_STAT."""
    shown = ctypes.create_string_buffer(112)
    call("shmctl", segment, 2, shown)
    return struct.unpack_from("Q", shown, 88)[0]


def ended(child):
    same(os.waitpid(child, 0)[1], 0, "the child")


def kind_sysv_memory():
    """A segment in two processes, one attached for reading, and one that was removed while attached."""
    kept = call("shmget", 0x5EED, 8192, IPC_CREAT | 0o600)
    gone = call("shmget", 0, 5000, 0o600)
    a, reader, held = attach(kept), attach(kept, 0o10000), attach(gone)
    a[0:5], a[4096:4100], held[0:4] = b"first", b"next", b"held"
    call("shmctl", gone, IPC_RMID, None)
    r, w = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(r, 1)
        a[10:15] = b"child"
        os._exit(0 if reader[0:6] == b"second" else 1)
    pause()
    same((reader[0:5], reader[4096:4100], held[0:4]), (b"first", b"next", b"held"))
    same((attachments(kept), attachments(gone)), (4, 2))
    a[0:6] = b"second"
    os.write(w, b"x")
    ended(child)
    same(reader[10:15], b"child")
    same((attachments(kept), attachments(gone)), (2, 1))
    same(call("shmget", 0x5EED, 8192, 0), kept)
    again = attach(kept)
    same(again[0:6], b"second")
    call("shmdt", held)
    try:
        same(attachments(gone), "an error")
    except OSError as error:
        same(error.errno in (errno.EINVAL, errno.EIDRM), True)
    call("shmctl", kept, IPC_RMID, None)


def semop(semaphores, *operations):
    packed = b"".join(struct.pack("=Hhh", *operation) for operation in operations)
    call("semop", semaphores, packed, len(operations))


def kind_sysv_semaphores():
    """Values, adjustments of a process that ends later, processes that sleep, and one with a time-out."""
    set = call("semget", 0x5EED, 4, IPC_CREAT | 0o600)
    call("semctl", set, 0, SETVAL, 7)
    r, w = os.pipe()

    def child(work):
        pid = os.fork()
        if pid == 0:
            work()
            os._exit(0)
        return pid

    def adjusts():
        semop(set, (1, 5, SEM_UNDO), (0, -2, SEM_UNDO))
        os.write(w, b"x")
        signal.pause()

    def times_out():
        started = time.monotonic()
        packed, limit = struct.pack("=Hhh", 3, -1, 0), struct.pack("qq", 1, 500_000_000)
        same((libc.semtimedop(set, packed, 1, limit), ctypes.get_errno()), (-1, errno.EAGAIN))
        same(time.monotonic() - started > 1.4, True, "the time-out")

    adjusting = child(adjusts)
    os.read(r, 1)
    sleeping = child(lambda: semop(set, (2, -3, 0)))
    limited = child(times_out)
    while call("semctl", set, 2, GETNCNT) != 1 or call("semctl", set, 3, GETNCNT) != 1:
        time.sleep(0.01)
    pause()
    same([call("semctl", set, n, GETVAL) for n in range(4)], [5, 5, 0, 0])
    os.kill(adjusting, signal.SIGKILL)
    os.waitpid(adjusting, 0)
    same([call("semctl", set, n, GETVAL) for n in range(4)], [7, 0, 0, 0], "after the end")
    semop(set, (2, 4, 0))
    ended(sleeping)
    ended(limited)
    same(call("semctl", set, 2, GETVAL), 1)
    same(call("semget", 0x5EED, 4, 0), set)
    call("semctl", set, 0, IPC_RMID)


def kind_sysv_messages():
    """Messages by type, a receiver that waits, and a sender that waits for room."""
    queue, full = call("msgget", 0x5EED, IPC_CREAT | 0o600), call("msgget", 0, 0o600)

    def send(queue, kind, text):
        call("msgsnd", queue, struct.pack("q", kind) + text, ctypes.c_size_t(len(text)), 0)

    def receive(queue, kind, flags=0):
        got = ctypes.create_string_buffer(8 + 8192)
        length = call("msgrcv", queue, got, ctypes.c_size_t(8192), ctypes.c_long(kind), flags)
        return struct.unpack_from("q", got)[0], got.raw[8 : 8 + length]

    send(queue, 1, b"one"), send(queue, 2, b"two"), send(queue, 1, b"uno")
    for n in range(2):
        send(full, 1, bytes([n]) * 8192)
    children = []
    for work in (lambda: same(receive(queue, 9), (9, b"late")), lambda: send(full, 3, b"in the end")):
        pid = os.fork()
        if pid == 0:
            work()
            os._exit(0)
        children.append(pid)
    time.sleep(0.1)
    pause()
    same((receive(queue, 2), receive(queue, -5), receive(queue, 0)), ((2, b"two"), (1, b"one"), (1, b"uno")))
    same(receive(full, 0), (1, b"\0" * 8192))
    ended(children[1])
    same(receive(full, 3), (3, b"in the end"))
    send(queue, 9, b"late")
    ended(children[0])
    same(call("msgget", 0x5EED, 0), queue)
    call("msgctl", queue, IPC_RMID, None), call("msgctl", full, IPC_RMID, None)


def kind_message_queues():
    """POSIX message queues: with a name, without one, with a receiver that waits, and notifications of both sorts."""
    chosen = signal.SIGRTMIN + 4
    signal.pthread_sigmask(signal.SIG_BLOCK, [chosen])

    def opened(name):
        limits = struct.pack("8q", 0, 4, 64, 0, 0, 0, 0, 0)
        return call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, limits)

    def send(queue, text, priority=0):
        call("mq_send", queue, text, ctypes.c_size_t(len(text)), priority)

    def receive(queue):
        text, priority = ctypes.create_string_buffer(64), ctypes.c_uint()
        length = call("mq_receive", queue, text, ctypes.c_size_t(64), ctypes.byref(priority))
        return text.raw[:length], priority.value

    def notify(queue, how, value, number=0, function=None):
        at = ctypes.cast(function, ctypes.c_void_p).value if function else 0
        call("mq_notify", queue, struct.pack("QiiQQ32x", value, number, how, at or 0, 0))

    named, gone, waited, signals, threads = (opened(name) for name in (b"/a", b"/b", b"/c", b"/d", b"/e"))
    send(named, b"low", 1), send(named, b"high", 9), send(named, b"lower", 0)
    send(gone, b"no name", 3)
    call("mq_unlink", b"/b")
    child = os.fork()
    if child == 0:
        same(receive(waited), (b"late", 2))
        os._exit(0)
    notify(signals, 0, 77, chosen)
    told = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(told.append)
    notify(threads, 2, 88, function=function)
    time.sleep(0.1)
    pause()
    same([receive(named) for _ in range(3)], [(b"high", 9), (b"low", 1), (b"lower", 0)])
    same(receive(gone), (b"no name", 3))
    send(waited, b"late", 2)
    ended(child)
    send(signals, b"x")
    info = signal.sigtimedwait([chosen], 10)
    same((info.si_signo, info.si_code, info.si_pid), (chosen, -3, os.getpid()))
    send(threads, b"x")
    for _ in range(1000):
        if told:
            break
        time.sleep(0.01)
    same(told, [88])
    same(receive(opened(b"/d")), (b"x", 0))
    for name in (b"/a", b"/c", b"/d", b"/e"):
        call("mq_unlink", name)


def kind_removed_queues():
    """Queues that were opened on a mount, and removed there or by mq_unlink(3)."""
    os.makedirs("/dev/shm/mq", exist_ok=True)
    call("mount", b"mqueue", b"/dev/shm/mq", b"mqueue", 0, None)
    there, by_name = (os.open("/dev/shm/mq/" + name, os.O_CREAT | os.O_RDWR, 0o600) for name in ("x", "y"))
    for queue in (there, by_name):
        call("mq_send", queue, b"kept", 4, 3)
    os.unlink("/dev/shm/mq/x")
    call("mq_unlink", b"/y")
    pause()
    same(os.listdir("/dev/shm/mq"), [])
    for queue, name in ((there, "x"), (by_name, "y")):
        text = ctypes.create_string_buffer(8192)
        n = call("mq_receive", queue, text, 8192, None)
        same((text.raw[:n], os.fstat(queue).st_nlink), (b"kept", 0))
        same(os.readlink(f"/proc/self/fd/{queue}").startswith(f"/dev/shm/mq/{name}"), True)
    again = os.open("/dev/shm/mq/x", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    call("mq_send", again, b"new", 3, 0)


def named_events(data):
    """Events of inotify(7): watch, mask, cookie, name."""
    events = []
    while data:
        watch, mask, cookie, length = struct.unpack_from("iIII", data)
        events.append((watch, mask, cookie, data[16 : 16 + length].rstrip(b"\0").decode()))
        data = data[16 + length :]
    return events


def kind_inotify():
    """Watches of files in memory and on the host, one renamed and one without a name, and events that wait."""
    modify, moved_from, moved_to, create, delete, gone = 2, 0x40, 0x80, 0x100, 0x200, 0x8000
    for dir in ("/dev/shm/in", DIR + "/in"):
        os.mkdir(dir)
    fd = call("inotify_init1", os.O_NONBLOCK)

    def watch(path, mask):
        return call("inotify_add_watch", fd, path.encode(), mask)

    memory = watch("/dev/shm/in", create | delete | moved_from | moved_to)
    host = watch(DIR + "/in", create | delete)
    removed = watch("/etc", create)
    open(DIR + "/before", "w").close()
    renamed = watch(DIR + "/before", modify)
    os.rename(DIR + "/before", DIR + "/after")
    held = open("/dev/shm/held", "w")
    nameless = watch("/dev/shm/held", modify)
    os.unlink("/dev/shm/held")
    call("inotify_rm_watch", fd, removed)
    open("/dev/shm/in/a", "w").close()
    os.rename("/dev/shm/in/a", "/dev/shm/in/b")
    other = call("inotify_init1", 0)
    call("inotify_add_watch", other, b"/dev/shm/in", delete)
    got = []
    reader = threading.Thread(target=lambda: got.extend(named_events(os.read(other, 4096))), daemon=True)
    reader.start()
    time.sleep(0.05)
    pause()
    first = named_events(os.read(fd, 4096))
    cookie = first[2][2]
    moved = [(memory, moved_from, cookie, "a"), (memory, moved_to, cookie, "b")]
    same(first, [(removed, gone, 0, ""), (memory, create, 0, "a"), *moved])
    same(select.select([fd], [], [], 0)[0], [], "events of the restore")
    os.unlink("/dev/shm/in/b")
    open(DIR + "/in/x", "w").close()
    with open(DIR + "/after", "w") as f:
        f.write("x")
    held.write("x"), held.flush()
    want = [(memory, delete, 0, "b"), (host, create, 0, "x"), (renamed, modify, 0, ""), (nameless, modify, 0, "")]
    same(named_events(os.read(fd, 4096)), want)
    same(watch("/etc", create), nameless + 1, "the next number")
    reader.join(10)
    same([event[1:] for event in got], [(delete, 0, "b")])


def kind_fanotify():
    """A group with marks on a file, a mount and what is in a directory; events that wait; and one that is asked."""
    libc.fanotify_mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]
    modify, close_write, open_perm, on_child = 2, 8, 0x10000, 0x08000000
    os.mkdir("/dev/shm/dir")
    for path in ("/dev/shm/dir/f", DIR + "/file", "/dev/shm/asked"):
        open(path, "w").close()
    group = call("fanotify_init", 2, os.O_RDONLY)
    call("fanotify_mark", group, 1, modify | on_child, -100, b"/dev/shm/dir")
    call("fanotify_mark", group, 1, close_write, -100, (DIR + "/file").encode())
    asking = call("fanotify_init", 4, os.O_RDONLY)
    call("fanotify_mark", asking, 1, open_perm, -100, b"/dev/shm/asked")

    def change(path):
        with open(path, "a") as f:
            f.write("x")

    def events(fd):
        """Masks, names and processes."""
        data, found = os.read(fd, 4096), []
        for at in range(0, len(data), 24):
            mask, file, pid = struct.unpack_from("Qii", data, at + 8)
            found.append((mask, os.readlink(f"/proc/self/fd/{file}"), pid))
            os.close(file)
        return found

    child = os.fork()
    if child == 0:
        change("/dev/shm/dir/f")
        os._exit(0)
    ended(child)
    opener = opens("/dev/shm/asked", os.O_RDONLY)
    select.select([asking], [], [], 10)
    pause()
    same(events(group), [(modify, "/dev/shm/dir/f", child)])
    change("/dev/shm/dir/f"), change(DIR + "/file")
    here = os.getpid()
    same(events(group), [(modify, "/dev/shm/dir/f", here), (close_write, DIR + "/file", here)])
    mask, file, pid = struct.unpack_from("Qii", os.read(asking, 4096), 8)
    same((mask, pid), (open_perm, opener))
    os.write(asking, struct.pack("iI", file, 1))
    os.close(file)
    ended(opener)


def kind_io_contexts():
    """A context with finished operations, and one that a thread waits at."""
    setup, destroy, getevents, submit = 206, 207, 208, 209

    def context():
        at = ctypes.c_ulong()
        call("syscall", setup, 4, ctypes.byref(at))
        return at

    file = os.open("/dev/shm/aio", os.O_RDWR | os.O_CREAT)
    os.write(file, b"0123456789")
    buffer = ctypes.create_string_buffer(16)

    def read(context, data, offset):
        # struct iocb: data, key and flags, IOCB_CMD_PREAD and priority, descriptor, buffer, length, offset.
        at = struct.pack("QIIHhIQQqQII", data, 0, 0, 0, 0, file, ctypes.addressof(buffer), 4, offset, 0, 0, 0)
        request = ctypes.create_string_buffer(at, len(at))
        requests = (ctypes.c_void_p * 1)(ctypes.addressof(request))
        same(call("syscall", submit, context, ctypes.c_long(1), requests), 1)

    def events(context, least):
        got = ctypes.create_string_buffer(32 * 4)
        count = call("syscall", getevents, context, ctypes.c_long(least), ctypes.c_long(4), got, None)
        return [struct.unpack_from("QQqq", got, 32 * n)[::2] for n in range(count)]

    done, waited = context(), context()
    read(done, 11, 0), read(done, 22, 8)
    got = []
    waiter = threading.Thread(target=lambda: got.extend(events(waited, 1)), daemon=True)
    waiter.start()
    time.sleep(0.05)
    pause()
    same(events(done, 2), [(11, 4), (22, 2)])
    read(done, 33, 4)
    same((events(done, 1), buffer.raw[:4]), ([(33, 4)], b"4567"))
    read(waited, 44, 0)
    waiter.join(20)
    same(got, [(44, 4)])
    call("syscall", destroy, done)


def kind_keys():
    """Keys in the keyrings of a thread, a process, a session and a user; a session with a name."""
    add_key, keyctl, permit, link, unlink = 248, 250, 5, 8, 9
    thread, process, session, user = -1, -2, -3, -4
    read, describe, join, search, timeout = 11, 6, 1, 10, 15

    def add(kind, name, payload, ring):
        return call("syscall", add_key, kind, name, payload, ctypes.c_size_t(len(payload or b"")), ring)

    def control(operation, *args):
        return call("syscall", keyctl, operation, *args)

    def payload(key):
        got = ctypes.create_string_buffer(100)
        length = control(read, key, got, ctypes.c_size_t(100))
        return got.raw[:length]

    def found(ring, name):
        return control(search, ring, b"user", name, 0)

    named = control(join, b"of the test")
    control(permit, named, 0x3F3F0000)
    in_session = add(b"user", b"in session", b"session's", session)
    in_thread = add(b"user", b"in thread", b"thread's", thread)
    in_process = add(b"user", b"in process", b"process's", process)
    of_user = add(b"user", b"of user", b"user's", user)
    control(link, user, session)
    ring = add(b"keyring", b"ring", None, session)
    below = add(b"user", b"below", b"deep", ring)
    r, w = os.pipe()
    child = os.fork()
    if child == 0:
        # The session's keyring is the parent's, the others are not.
        os.read(r, 1)
        same(found(session, b"in session"), in_session)
        try:
            found(process, b"in process")
        except OSError as error:
            os._exit(0 if error.errno == errno.ENOKEY else 1)
        os._exit(1)
    pause()
    want = {
        in_session: b"session's",
        in_thread: b"thread's",
        in_process: b"process's",
        of_user: b"user's",
        below: b"deep",
    }
    same({key: payload(key) for key in want}, want)
    same((found(thread, b"in thread"), found(user, b"of user")), (in_thread, of_user))
    shown = ctypes.create_string_buffer(200)
    control(describe, ring, shown, ctypes.c_size_t(200))
    same(shown.value.startswith(b"keyring;"), True, shown.value)
    os.write(w, b"x")
    ended(child)
    same(control(join, b"of the test"), 0, "the session's keyring by its name")
    control(unlink, of_user, user)
    control(timeout, in_session, 1)
    time.sleep(1.1)
    try:
        same(payload(in_session), "an error")
    except OSError as error:
        same(error.errno in (errno.EKEYEXPIRED, errno.ENOKEY), True)


def kind_landlock():
    """A process under two layers of rules, for files in memory and on the host and for ports; an open ruleset."""
    create, add, restrict = 444, 445, 446
    read_file, write_file, bind_port = 4, 2, 1
    os.mkdir("/dev/shm/may"), os.mkdir(DIR + "/may")
    for path in ("/dev/shm/may/f", "/dev/shm/f", DIR + "/may/f", DIR + "/f"):
        open(path, "w").close()

    def ruleset(files, ports=0):
        attributes = struct.pack("QQ", files, ports)
        return call("syscall", create, attributes, ctypes.c_size_t(16), 0)

    def allow(rules, path, accesses):
        fd = os.open(path, os.O_PATH)
        call("syscall", add, rules, 1, struct.pack("=Qi", accesses, fd), 0)
        os.close(fd)

    def enforce(rules):
        call("prctl", 38, 1, 0, 0, 0)
        call("syscall", restrict, rules, 0)

    def may(path, flags):
        try:
            os.close(os.open(path, flags))
            return True
        except PermissionError:
            return False

    def works():
        paths = ("/dev/shm/may/f", "/dev/shm/f", DIR + "/may/f", DIR + "/f")
        same([may(path, os.O_WRONLY) for path in paths], [True, False, True, False], "writing")
        same([may(path, os.O_RDONLY) for path in paths], [True, False, False, False], "reading")
        free, used = socket.socket(), socket.socket()
        free.bind(("127.0.0.1", 7001))
        try:
            used.bind(("127.0.0.1", 7002))
            return "a port that no rule allows"
        except PermissionError:
            return None

    r, w = os.pipe()
    child = os.fork()
    if child == 0:
        first = ruleset(write_file, bind_port)
        allow(first, "/dev/shm/may", write_file), allow(first, DIR + "/may", write_file)
        call("syscall", add, first, 2, struct.pack("QQ", bind_port, 7001), 0)
        enforce(first)
        second = ruleset(read_file)
        allow(second, "/dev/shm/may", read_file)
        enforce(second)
        os.write(w, b"x")
        while not os.path.exists(DIR + "/go"):
            time.sleep(0.01)
        same(works(), None)
        os._exit(0)
    os.read(r, 1)
    unused = ruleset(write_file)
    allow(unused, "/dev/shm/may", write_file)
    pause()
    ended(child)
    other = os.fork()
    if other == 0:
        allow(unused, DIR + "/may", write_file)
        enforce(unused)
        paths = ("/dev/shm/may/f", "/dev/shm/f", DIR + "/may/f", DIR + "/f")
        same([may(path, os.O_WRONLY) for path in paths], [True, False, True, False], "another process")
        os._exit(0)
    ended(other)
    same(may("/dev/shm/f", os.O_WRONLY), True, "this process")


def kind_pidfds():
    """pidfds of a process have the same inode afterwards, and so have those that a message and a peer bring."""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    b.setsockopt(socket.SOL_SOCKET, 76, 1)
    b.setsockopt(socket.SOL_SOCKET, 83, 0)
    r, w = os.pipe()
    child = os.fork()
    if child == 0:
        a.send(b"from the child")
        os.read(r, 1)
        os._exit(3)
    fd = os.pidfd_open(child)
    os.set_blocking(fd, True)
    ino = lambda fd: os.fstat(fd).st_ino
    before = ino(fd)
    select.select([b], [], [])
    pause()
    same((ino(fd), ino(os.pidfd_open(child))), (before, before), "inode")
    same(ino(os.pidfd_open(os.getpid())) != before, True, "another process")
    data, control, _, _ = b.recvmsg(100, 100)
    same((data, [(c[0], c[1]) for c in control]), (b"from the child", [(socket.SOL_SOCKET, 4)]))
    same(ino(struct.unpack("i", control[0][2])[0]), before, "sender")
    peer = struct.unpack("i", a.getsockopt(socket.SOL_SOCKET, 77, 4))[0]
    same(ino(peer), ino(os.pidfd_open(os.getpid())), "peer")
    try:
        socket.send_fds(a, [b"x"], [0])
        same(True, False, "descriptors are taken")
    except PermissionError:
        pass
    same(select.select([fd], [], [], 0)[0], [], "alive")
    os.write(w, b"x")
    select.select([fd], [], [])
    same(os.waitpid(child, 0)[1], 3 << 8)


def kind_guard_pages():
    """Guard pages of private memory and of a mapped file are there afterwards, and what is around them."""
    size = 4096
    libc.mmap.restype = ctypes.c_void_p
    place = lambda at: ctypes.c_void_p(at)
    memory = libc.mmap(None, ctypes.c_size_t(4 * size), 3, 0x22, -1, ctypes.c_long(0))
    file = os.open("/etc/passwd", os.O_RDONLY)
    text = libc.mmap(None, ctypes.c_size_t(size), 1, 2, file, ctypes.c_long(0))
    ctypes.memset(memory, 0x5A, 4 * size)
    for at, pages in ((memory + size, 2), (text, 1)):
        same(libc.madvise(place(at), ctypes.c_size_t(pages * size), 102), 0, "MADV_GUARD_INSTALL")

    def dies(at):
        child = os.fork()
        if child == 0:
            ctypes.string_at(at, 1)
            os._exit(0)
        return os.waitpid(child, 0)[1] & 0x7F == signal.SIGSEGV

    pause()
    same([dies(memory + at) for at in (0, size, 3 * size - 1, 3 * size)], [False, True, True, False])
    same(dies(text), True, "file")
    same(libc.madvise(place(memory + size), ctypes.c_size_t(size), 103), 0, "MADV_GUARD_REMOVE")
    same(libc.madvise(place(text), ctypes.c_size_t(size), 103), 0, "MADV_GUARD_REMOVE")
    same(ctypes.string_at(memory, 2 * size), b"\x5a" * size + b"\0" * size)
    same(ctypes.string_at(memory + 3 * size, size), b"\x5a" * size)
    same(dies(memory + 2 * size), True)
    same(ctypes.string_at(text, 5), b"root:")

"""Kinds of objects of kinds.py on the side of files and IPC."""

import fcntl, os, signal, socket, struct

from base import DIR, pause, same

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

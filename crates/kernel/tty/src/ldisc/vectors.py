#!/usr/bin/env python3
"""Records what Linux's line discipline does with random settings and input, for tests.rs.

usage: vectors.py SEED COUNT > vectors.txt
A line: iflag oflag cflag lflag cc written-by-the-slave typed seen-by-the-master read-size reads (bytes in hex)
"""

import fcntl, os, random, select, sys, termios, time

random.seed(int(sys.argv[1]))
KEYS = [
    b"a",
    b"b",
    b"Z",
    b"_",
    b" ",
    b"\t",
    b"\n",
    b"\r",
    b"\x7f",
    b"\x15",
    b"\x17",
    b"\x12",
    b"\x16",
    b"\x04",
    b"\x01",
    b"\x1b",
    b".",
    b"\xc3\xa9",
    b"a",
    b"b",
    b"c",
    b"\x7f",
    b"\xff",
    b"\x08",
    b"A",
]
IUTF8 = 0o40000


def drain(fd):
    out = b""
    while select.select([fd], [], [], 0.02)[0]:
        out += os.read(fd, 4096)
    return out


for k in range(int(sys.argv[2])):
    m, s = os.openpty()
    fcntl.fcntl(s, fcntl.F_SETFL, os.O_NONBLOCK)
    t = termios.tcgetattr(s)

    def toggle(i, bits, p):
        for b in bits:
            if random.random() < p:
                t[i] ^= b

    toggle(0, [termios.ICRNL, termios.INLCR, termios.IGNCR, termios.ISTRIP, termios.IUCLC, IUTF8, termios.PARMRK], 0.12)
    toggle(
        1,
        [termios.ONLCR, termios.OCRNL, termios.ONOCR, termios.ONLRET, termios.OLCUC, termios.XTABS, termios.OPOST],
        0.15,
    )
    toggle(
        3,
        [
            termios.ECHO,
            termios.ECHOE,
            termios.ECHOK,
            termios.ECHOCTL,
            termios.ECHOKE,
            termios.ECHONL,
            termios.ECHOPRT,
            termios.IEXTEN,
            termios.ICANON,
        ],
        0.15,
    )
    if random.random() < 0.2:
        t[6][termios.VEOL] = b"."
    if random.random() < 0.2:
        t[6][termios.VEOL2] = b"_"
    termios.tcsetattr(s, termios.TCSANOW, t)
    typed = b"".join(random.choice(KEYS) for _ in range(random.randint(1, 40)))
    printed = b"".join(random.choice([b"x", b"\t", b"\n", b"\r", b"\x08", b"Y"]) for _ in range(random.randint(0, 6)))
    if printed:
        os.write(s, printed)
    os.write(m, typed)
    seen = drain(m)
    size = random.choice([1, 3, 100])
    reads = []
    while len(reads) < 200:
        try:
            reads.append(os.read(s, size))
        except BlockingIOError:
            break
    cc = bytes(x[0] if isinstance(x, bytes) else x for x in t[6][:19])
    row = [
        str(t[0]),
        str(t[1]),
        str(t[2]),
        str(t[3]),
        cc.hex(),
        printed.hex() or "-",
        typed.hex(),
        seen.hex() or "-",
        str(size),
        ",".join("=" + r.hex() for r in reads) or "-",
    ]
    print(" ".join(row))
    os.close(m)
    os.close(s)

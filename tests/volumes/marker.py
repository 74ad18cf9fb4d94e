"""fanotify(7): marker.py DIR FILE prints what is changed in DIR and in FILE, a line for each event."""

import ctypes, os, struct, sys

MODIFY, CLOSE_WRITE, ON_CHILD = 2, 8, 0x8000000
NAMES = {MODIFY: "MODIFY", CLOSE_WRITE: "CLOSE_WRITE", 0x4000: "OVERFLOW"}
libc = ctypes.CDLL(None, use_errno=True)


def call(result):
    if result < 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    return result


group = call(libc.fanotify_init(0, os.O_RDONLY))
for path, mask in ((sys.argv[1], MODIFY | CLOSE_WRITE | ON_CHILD), (sys.argv[2], MODIFY | CLOSE_WRITE)):
    call(libc.fanotify_mark(group, 1, ctypes.c_uint64(mask), -100, path.encode()))
print("ready", flush=True)
while True:
    try:
        data = os.read(group, 4096)
    except FileNotFoundError:
        print("gone", flush=True)
        continue
    while data:
        size, _, _, _, mask, fd, pid = struct.unpack_from("=IBBHQii", data)
        data = data[size:]
        names = "|".join(name for bit, name in NAMES.items() if mask & bit)
        print(names, os.readlink(f"/proc/self/fd/{fd}"), os.pread(fd, 100, 0).decode().strip(), flush=True)
        os.close(fd)

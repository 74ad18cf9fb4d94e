"""Says what inotify(7) reports of paths: watcher.py PATH... prints "ready" and then a line for each event.

A line has the place of the watch in the arguments, the events, a cookie (counted from 1), the name and the time.
"""

import ctypes, os, struct, sys, time

NAMES = "ACCESS MODIFY ATTRIB CLOSE_WRITE CLOSE_NOWRITE OPEN MOVED_FROM MOVED_TO CREATE DELETE DELETE_SELF MOVE_SELF"
BITS = {1 << at: name for at, name in enumerate(NAMES.split())}
BITS.update({1 << 14: "Q_OVERFLOW", 1 << 15: "IGNORED", 1 << 30: "ISDIR"})
# All but what others do by reading.
MASK = 0xFFF & ~0x31

libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(0)
watches = {}
for path in sys.argv[1:]:
    wd = libc.inotify_add_watch(fd, path.encode(), MASK)
    assert wd > 0, os.strerror(ctypes.get_errno())
    watches[wd] = len(watches)
print("ready", flush=True)
cookies = {0: 0}
while True:
    data = os.read(fd, 65536)
    now, at = time.time(), 0
    while at < len(data):
        wd, mask, cookie, length = struct.unpack_from("iIII", data, at)
        name = data[at + 16 : at + 16 + length].rstrip(b"\0").decode()
        at += 16 + length
        events = "|".join(text for bit, text in BITS.items() if mask & bit)
        cookies.setdefault(cookie, len(cookies))
        print(watches.get(wd, -1), events, cookies[cookie], name or "-", now, flush=True)

# needs: python3 mount unshare
# Random operations on overlays: every answer and every listing must be Linux's. One overlay, one on top of another,
# and one in a user namespace.
import ctypes, errno, os, random, stat, subprocess, sys

NAMES = ["a", "b", "c", "d"]
libc = ctypes.CDLL(None, use_errno=True)


def rename2(old, new, flags):
    if libc.syscall(316, -100, old.encode(), -100, new.encode(), flags):
        raise OSError(ctypes.get_errno(), "")


def append(path, text):
    fd = os.open(path, os.O_APPEND | os.O_WRONLY)
    os.write(fd, text.encode())
    os.close(fd)


def remove_tree(top):
    for place, dirs, files in os.walk(top, topdown=False):
        for name in files + dirs:
            path = f"{place}/{name}"
            os.rmdir(path) if stat.S_ISDIR(os.lstat(path).st_mode) else os.unlink(path)
    os.rmdir(top)


def read(path):
    with open(path, "rb") as f:
        return f.read()


FDS = []
OPERATIONS = [
    ("mkdir", lambda a, b: os.mkdir(a)),
    ("rmdir", lambda a, b: os.rmdir(a)),
    ("unlink", lambda a, b: os.unlink(a)),
    ("creat", lambda a, b: os.close(os.open(a, os.O_CREAT | os.O_WRONLY, 0o644))),
    ("excl", lambda a, b: os.close(os.open(a, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))),
    ("append", append),
    ("truncate", lambda a, b: os.truncate(a, 3)),
    ("chmod", lambda a, b: os.chmod(a, 0o700)),
    ("link", lambda a, b: os.link(a, b, follow_symlinks=False)),
    ("symlink", lambda a, b: os.symlink("t", a)),
    ("rename", os.rename),
    ("rename", os.rename),
    ("exchange", lambda a, b: rename2(a, b, 2)),
    ("noreplace", lambda a, b: rename2(a, b, 1)),
    ("list", lambda a, b: sorted(os.listdir(a))),
    ("read", lambda a, b: read(a)),
    ("stat", lambda a, b: (os.lstat(a).st_nlink, oct(os.lstat(a).st_mode))),
    ("open", lambda a, b: FDS.append(os.open(a, os.O_RDONLY | os.O_NOFOLLOW))),
    ("setxattr", lambda a, b: os.setxattr(a, "user.q", b.encode(), follow_symlinks=False)),
    ("listxattr", lambda a, b: os.listxattr(a, follow_symlinks=False)),
    ("remove", lambda a, b: remove_tree(a)),
]


def answer(f, *args):
    try:
        return f(*args)
    except OSError as e:
        return errno.errorcode.get(e.errno, e.errno)


def show(top):
    for place, dirs, files in os.walk(top):
        dirs.sort()
        kinds = sorted((name, stat.S_IFMT(os.lstat(f"{place}/{name}").st_mode)) for name in files)
        print(" ", place, dirs, kinds)


def main(seed, steps, kind):
    rand = random.Random(seed)

    def path(top):
        return top + "/" + "/".join(rand.choice(NAMES) for _ in range(rand.randint(1, 3)))

    os.makedirs("t", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "t"], check=True)
    os.chdir("t")
    for name in ["l", "l2", "u", "w", "m", "u2", "w2", "m2"]:
        os.mkdir(name)
    for top in ["l2", "l"]:
        for _ in range(14):
            place, what = path(top), rand.random()
            if what < 0.5:
                answer(os.makedirs, place)
            elif what < 0.8:
                answer(lambda: os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644)))
            elif what < 0.9:
                answer(os.symlink, "x", place)
            else:
                answer(os.link, rand.choice([f"{top}/a", f"{top}/b", f"{top}/a/a"]), place)
    options = "lowerdir=l:l2,upperdir=u,workdir=w" + (",userxattr" if kind == "user" else "")
    subprocess.run(["mount", "-t", "overlay", "o", "-o", options, "m"], check=True)
    top = "m"
    if kind == "nested":
        top, options = "m2", "lowerdir=m,upperdir=u2,workdir=w2"
        subprocess.run(["mount", "-t", "overlay", "o", "-o", options, "m2"], check=True)
    for step in range(steps):
        (name, f), a, b = rand.choice(OPERATIONS), path(top), path(top)
        print(step, name, a, b, answer(f, a, b))
        if step % 20 == 0:
            show(top)
    for fd in FDS:
        info = os.fstat(fd)
        print(oct(info.st_mode), info.st_nlink, os.pread(fd, 100, 0) if stat.S_ISREG(info.st_mode) else "")
    show("u")
    show(top)


if len(sys.argv) > 1:
    main(int(sys.argv[1]), 1000, sys.argv[2])
else:
    for seed, kind in enumerate(["plain", "plain", "plain", "nested", "nested", "user", "user"]):
        print("--", kind, seed, flush=True)
        enter = ["unshare", "-Urm" if kind == "user" else "-m"]
        subprocess.run([*enter, sys.executable, __file__, str(seed), kind], check=True)

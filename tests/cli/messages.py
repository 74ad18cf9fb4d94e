"""What the command line says: mistakes, and what to do about them."""

import json, os, re, subprocess

from expect import check, one_line
from flags import in_background
from results import need_root

RF = None  # the program under test


def test_what_was_meant():
    one_line(RF("craete", "x"), 2, "craete", "did you mean create")
    one_line(RF("do", "--volum", "/x", "true"), 2, "did you mean --volume?")
    one_line(RF("--netwrk=none", "do", "true"), 2, "did you mean --network?")
    one_line(RF("do", "--network=none", "true"), 2, "--network is a global flag", "before the command")
    one_line(RF("exec", "--debug", "x", "true"), 2, "--debug is a global flag")
    one_line(RF("do", "--timeout", "1x", "true"), 2, "see ringfence do --help")
    one_line(RF("--netwrk=none", "list"), 2, "see ringfence list --help")
    one_line(RF("do", "--hide", "/there/is/none", "true"), 2, "--hide /there/is/none", "nothing to hide")
    for flag, value in [
        ("hide", "a"),
        ("cwd", "a"),
        ("user", "nosuch"),
        ("env", "=a"),
        ("name", "a/b"),
        ("hostname", "a/b"),
    ]:
        one_line(RF("do", f"--{flag}", value, "true"), 2, f"--{flag}", value)
    one_line(RF("--overlay2=none", "do", "true"), 2, "never writes to the host's files")
    one_line(RF("kill", "-9", "x"), 2, "ringfence kill ID 9")
    one_line(RF("exec", "-it", "x", "true"), 2, "--tty")
    one_line(RF("run", "--rm", "x"), 2, "goes with its end")
    one_line(RF("debug", "--profile", "x.png", "x"), 2, "SVG", ".folded")
    one_line(RF("do", "/etc"), 126, "/etc", "is a directory")
    one_line(RF("do", "--diff", "there-is-no-such-command"), 127, "not found")


def test_examples():
    for command in ("do", "create", "run", "exec", "spec", "list", "ps", "kill", "delete", "update", "events"):
        assert "Examples:\n  ringfence " in RF(command, "--help").stdout, command


def test_policy_of_a_network():
    for entry in ("all", "any", "all:443"):
        one_line(RF("do", "--allow-net", entry, "true"), 2, "every address is *")


def test_state_directory_of_root():
    """The path is in the message."""
    need_root()
    dir = RF.dir("closed")
    os.chmod(dir, 0o700)
    command = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", RF.binary, "--root", dir, "list"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")
    one_line(result, 128, dir, "ermission denied", "--root")


def test_no_user_namespaces():
    """In a user namespace that may have no more of its own."""
    need_root()
    script = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$0" --rootless do true'
    result = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", script, RF.binary], capture_output=True, text=True, timeout=60, cwd="/"
    )
    one_line(result, 128, "user.max_user_namespaces, which is 0")


def test_without_a_terminal():
    in_background("x", "sleep", "100")
    try:
        one_line(RF("exec", "--tty", "x", "true"), 255, "--tty", "--console-socket")
    finally:
        RF("delete", "--force", "x")


def test_rootless_specification_runs():
    need_root()
    user = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]
    dir = RF.dir("rootless")
    os.chmod(dir, 0o777)
    for args in (["spec", "--rootless", "--", "true"], ["--root", dir + "/state", "run", "x"]):
        if args[0] != "spec":
            RF.edit(dir, lambda c: c["root"].update(path=RF.rootfs or "/"))
            os.chmod(dir + "/config.json", 0o644)
        result = subprocess.run([*user, RF.binary, *args], capture_output=True, text=True, timeout=60, cwd=dir)
        check((result.returncode, result.stderr), (0, ""), args)


def test_update_of_nothing():
    one_line(RF("update", "x"), 2, "--memory", "--resources")


def test_interval_in_seconds():
    one_line(RF("events", "--interval", "5", "nobody"), 128, "does not exist")
    one_line(RF("events", "--interval", "0", "nobody"), 2, "--interval")


def test_flags_for_docker():
    file = RF.dir("docker") + "/daemon.json"

    def add(*flags):
        command = [RF.binary, "install", "--config-file", file, "--", *flags]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    one_line(add("--nosuchflag"), 2, "--nosuchflag")
    one_line(add("--network=x"), 2, "--network")
    one_line(add("--debug", "list"), 2)
    assert not os.path.exists(file)
    check(add("--debug", "--debug-log", "/var/log/x/", "--dcache=5").returncode, 0)
    args = json.load(open(file))["runtimes"]["ringfence"]["runtimeArgs"]
    check(args, ["--debug", "--debug-log", "/var/log/x/", "--dcache=5"])


def test_forwarding_ends_with_the_container():
    in_background("x", "sleep", "100")
    p = RF.start("port-forward", "x", "0:80", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert RF.line(p).startswith("forwarding 127.0.0.1:")
        check(RF("delete", "--force", "x").returncode, 0)
        check(p.wait(20), 128)
        check(p.stderr.read(), "ringfence: container not running: it has ended\n")
    finally:
        RF("delete", "--force", "x")
        p.kill()
        p.wait()


def test_overlay_diff_as_json():
    dir = RF.bundle("sh", "-c", "mkdir /new; printf x >\"/new/a\\\\b\"; printf x >$(printf '/new/\\377'); sleep 100")
    RF.edit(dir, lambda c: c["root"].update(readonly=False))
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    argv = RF.argv(["--overlay2=root:memory", "run", "--detach", "--bundle", dir, "x"])
    check(subprocess.run(argv, timeout=60, **quiet).returncode, 0)
    try:
        RF.wait_for(lambda: RF("overlay", "diff", "x").stdout.count("/new/") == 2)
        for how in (["--json"], ["--format", "json"]):
            listed = json.loads(RF("overlay", "diff", *how, "x").stdout)
            assert {"change": "added", "path": "/new/a\\b"} in listed, listed
            assert {"change": "added", "path": "/new/\\xff", "escaped": True} in listed, listed
    finally:
        RF("delete", "--force", "x")


def test_hints_about_mounts():
    """They have no effect, and it is said so once for each mount."""
    dir = RF.bundle("true")
    hints = {f"dev.gvisor.spec.mount.{key}": "x" for key in ("cache.share", "cache.type", "a.source")}
    RF.edit(dir, lambda config: config.setdefault("annotations", {}).update(hints))
    result = RF("run", "--bundle", dir, "x")
    lines = [line for line in result.stderr.splitlines() if "dev.gvisor.spec.mount." in line]
    check((result.returncode, len(lines)), (0, 2), result.stderr)
    assert all("is without effect" in line for line in lines), lines


def test_failing_starts_say_one_thing():
    """Under a limit on processes that is just too low there is the error and no warning beside."""
    need_root()
    for limit in range(2, 24):
        script = f'ulimit -u {limit}; exec "$0" --rootless do true'
        user = ["setpriv", "--reuid=64124", "--regid=64124", "--clear-groups"]
        result = subprocess.run(
            [*user, "sh", "-c", script, RF.binary], capture_output=True, text=True, timeout=60, cwd="/"
        )
        if result.returncode:
            assert len(re.findall("^", result.stderr, re.M)) <= 2 and "no new stub" not in result.stderr, result.stderr

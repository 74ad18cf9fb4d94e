"""Flags and commands, those of runsc too: each does what it says, is without effect and says so, or is refused."""

import csv, io, json, os, re, signal, subprocess, time

from expect import check, one_line
from results import need_root
from ringfence import ROOT

RF = None  # the program under test


def with_container(*command):
    """Decorates a test of a container named x that runs a command in the background."""

    def decorate(test):
        def run():
            in_background("x", *command)
            try:
                test()
            finally:
                RF("delete", "--force", "x")

        return run

    return decorate


def in_background(name, *command):
    dir = RF.bundle(*command)
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    check(subprocess.run(RF.argv(["run", "--detach", "--bundle", dir, name]), timeout=60, **quiet).returncode, 0)


def succeeds(*args, **kw):
    result = RF(*args, **kw)
    check((result.returncode, result.stderr), (0, ""), f"{args}")
    return result.stdout


# --- global flags -----------------------------------------------------------------------------------------------------


def test_flags_without_effect():
    for flag in (
        "--allow-flag-override",
        "--dcache=100",
        "--gso=false",
        "--qdisc=fifo",
        "--strace-log-size=100",
        "--watchdog-action=panic",
    ):
        result = RF(flag, "list", "-q")
        check((result.returncode, result.stdout, len(result.stderr.splitlines())), (0, "", 1), result.stderr)
        assert flag.split("=")[0] + " is without effect: " in result.stderr, result.stderr
    check(RF("--dcache", "100", "list", "-q").returncode, 0)
    # What is so anyway.
    for flag in (
        "--dcache=-1",
        "--gso",
        "--qdisc=none",
        "--allow-suid",
        "--reproduce-nat=false",
        "--oci-seccomp",
        "--fdlimit=-1",
    ):
        check(succeeds(flag, "list", "-q"), "")


def test_flags_that_are_refused():
    for flag, why in (
        ("--reproduce-nat", "iptables"),
        ("--reproduce-nftables", "nft"),
        ("--allow-suid=false", "noNewPrivileges"),
        ("--character-device-policy=x", "no device of the host"),
        ("--host-uds=some", "none, open, create or all"),
        ("--fdlimit=100", "10000"),
        ("--gso=perhaps", "true or false"),
        ("--debug-log-format=xml", "json"),
        ("--log-fd=63", "not open"),
    ):
        one_line(RF(flag, "list"), 2, flag.split("=")[0], why)
    for args, why in (
        (["do", "--ip", "10.0.0.1", "true"], "--network=host"),
        (["do", "--force-overlay=false", "true"], "--volume"),
        (["do", "--uid-map", "0 0", "--gid-map", "0 0 1", "true"], "INSIDE HERE COUNT"),
        (["run", "--exec-fd", "3", "x"], "--pass-fd"),
        (["exec", "--exec-fd", "3", "x", "true"], "--pass-fd"),
        (["debug", "--stacks", "x"], "--profile"),
        (["debug", "--mount", "tmpfs:a:b", "x"], "mount"),
        (["tar", "x"], "overlay export"),
        (["statefile"], "use checkpoint and restore"),
    ):
        one_line(RF(*args), 2, why)


def test_strace_of_some_calls():
    log = RF.dir("log") + "/log"
    check(RF("--strace", "--strace-syscalls=getcwd,uname", "--debug-log", log, "do", "pwd").returncode, 0)
    lines = [line.split("] ")[-1] for line in open(log).read().splitlines() if "(" in line]
    assert lines and all(line.startswith(("getcwd(", "uname(")) for line in lines), lines
    one_line(RF("--strace", "--strace-syscalls", "getcwd,nosuch", "do", "pwd"), 128, '"nosuch"')


def test_log_of_a_sandbox():
    log = RF.dir("log") + "/log"
    check(RF("--debug", "--debug-log", log, "--debug-log-format=json", "do", "true").returncode, 0)
    lines = [json.loads(line) for line in open(log).read().splitlines()]
    assert any(line["level"] == "debug" and "starting" in line["msg"] for line in lines), lines
    for commands, there in (("run,exec", False), ("do", True), ("!do", False), ("!run", True)):
        path = f"{log}.{commands.strip('!')}.{there}"
        check(RF("--debug", "--debug-command", commands, "--debug-log", path, "do", "true").returncode, 0)
        check("starting" in open(path).read(), there, commands)


REFUSED = "import socket; socket.socket().connect_ex(('127.0.0.1', 9))"


def test_refused_connections_in_the_log():
    """What a policy refuses goes where the command line logs, in that form, or to the file for panics."""
    log, panics = RF.dir("log") + "/log.json", RF.dir("log") + "/panics"
    command = ["do", "--allow-net", "192.0.2.1", "python3", "-c", REFUSED]
    succeeds("--log", log, "--log-format=json", *command)
    lines = [json.loads(line) for line in open(log).read().splitlines()]
    assert any("127.0.0.1:9/tcp is refused" in line["msg"] for line in lines), lines
    succeeds("--panic-log", panics, *command)
    assert "127.0.0.1:9/tcp is refused" in open(panics).read()


def test_log_descriptor():
    path = RF.dir("log") + "/log"
    with open(path, "w") as f:
        RF(f"--log-fd={f.fileno()}", "--log-format=json", "state", "nobody", pass_fds=[f.fileno()])
        RF("--log-fd", str(f.fileno()), "--log-format=json", "frobnicate", pass_fds=[f.fileno()])
    lines = [json.loads(line)["msg"] for line in open(path).read().splitlines()]
    assert len(lines) == 2 and "nobody" in lines[0] and "frobnicate" in lines[1], lines


def test_seccomp_of_the_configuration():
    dir = RF.bundle("sh", "-c", "umask 022; mkdir /dev/shm/x && echo made")

    def edit(c):
        rule = {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}
        c["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]}

    RF.edit(dir, edit)
    check(RF("run", "--bundle", dir, "x").stdout, "")
    check(RF("--oci-seccomp", "run", "--bundle", dir, "x").stdout, "")
    result = RF("--oci-seccomp=false", "run", "--bundle", dir, "x")
    check((result.returncode, result.stdout), (0, "made\n"))
    assert "runs without the filter of its configuration" in result.stderr, result.stderr


def test_limit_on_descriptors():
    p = RF.start("--fdlimit=20000", "do", "sh", "-c", "ulimit -Hn; exec sleep 30", stdout=subprocess.PIPE)
    try:
        with subprocess.Popen(["sh", "-c", "ulimit -Hn"], stdout=subprocess.PIPE, text=True) as shell:
            check(RF.line(p), shell.stdout.read())
        limits = {open(f"/proc/{pid}/limits").read().split("Max open files")[1].split()[1] for pid in RF.processes()}
        assert "20000" in limits, limits
    finally:
        p.terminate()
        p.wait()


# --- descriptors ------------------------------------------------------------------------------------------------------


@with_container("sleep", "100")
def test_descriptors_by_number():
    with open(RF.dir("fd") + "/file", "w+") as f:
        f.write("text\n")
        f.flush()
        fd = f.fileno()
        again = f"/proc/self/fd/{fd}"
        dir = RF.bundle("sh", "-c", "cat <&3")
        for args in (
            ["run", "--bundle", dir, "--pass-fd", f"{fd}:3", "y"],
            ["exec", "--pass-fd", f"{fd}:3", "x", "cat"],
        ):
            f.seek(0)
            command = [*args, "/proc/self/fd/3"] if args[0] == "exec" else args
            check(succeeds(*command, pass_fds=[fd]), "text\n", f"{again}")
        one_line(RF("run", "--bundle", dir, "--pass-fd", f"{fd}:7", "y", pass_fds=[fd]), 128, "use 3")
    one_line(RF("run", "--bundle", dir, "--pass-fd", "63:3", "y"), 128, "--pass-fd 63:3")
    one_line(RF("run", "--bundle", dir, "--pass-fd", "3", "y"), 2, "HERE:INSIDE")


# --- commands on containers -------------------------------------------------------------------------------------------


def test_delete_several():
    for name in ("a", "b"):
        in_background(name, "sleep", "100")
    one_line(RF("delete", "a", "nobody", "b"), 128, "a that is not stopped", "nobody", "b that is not stopped")
    check(succeeds("delete", "--force", "a", "nobody", "b"), "")
    check(succeeds("list", "-q"), "")


@with_container("sleep", "100")
def test_list_of_sandboxes():
    dir = RF.bundle("sleep", "100")
    names = {"container-type": "container", "sandbox-id": "x"}
    RF.edit(dir, lambda c: c.update(annotations={f"io.kubernetes.cri.{k}": v for k, v in names.items()}))
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    check(subprocess.run(RF.argv(["run", "--detach", "--bundle", dir, "y"]), timeout=60, **quiet).returncode, 0)
    try:
        check(succeeds("list", "-q"), "x\ny\n")
        check(succeeds("list", "-q", "--sandbox"), "x\n")
    finally:
        RF("delete", "--force", "y")


def processes(name):
    """The ids inside of a container's processes, by their command lines."""
    lines = [line.split() for line in succeeds("ps", name).splitlines()[1:]]
    return {" ".join(words[7:]): int(words[1]) for words in lines}


@with_container("sh", "-c", "sh -c 'sleep 50 & exec sleep 60'; sleep 70; exit 3")
def test_one_process():
    RF.wait_for(lambda: {"sleep 50", "sleep 60"} <= set(processes("x")))
    pids = processes("x")
    waiters = [
        RF.start("wait", "x", flag, str(pids["sleep 60"]), stdout=subprocess.PIPE) for flag in ("--pid", "--rootpid")
    ]
    one_line(RF("wait", "--pid", "4000", "x"), 128, "4000")
    one_line(RF("kill", "--pgid", "4000", "x", "TERM"), 128, "no such process")
    # recvmsg(2): they wait for the answer.
    waits = lambda p: open(f"/proc/{p.pid}/syscall").read().split()[0] == "47"
    RF.wait_for(lambda: all(waits(p) for p in waiters))
    check(succeeds("kill", "--pid", str(pids["sleep 60"]), "x", "HUP"), "")
    for waiter in waiters:
        check(json.loads(RF.line(waiter)), {"id": "x", "exitStatus": 128 + signal.SIGHUP})
        check(waiter.wait(20), 0)


GROUPS = """
import os, time
for name in "ab":
    if not os.fork():
        os.setpgid(0, 0)
        os.fork()
        os.execlp("sleep", "sleep", {"a": "50", "b": "60"}[name])
time.sleep(100)
"""


@with_container("python3", "-c", GROUPS)
def test_kill_of_a_process_group():
    def sleepers():
        lines = [line.split() for line in succeeds("ps", "x").splitlines()[1:]]
        return {seconds: [int(w[1]) for w in lines if w[7:] == ["sleep", seconds]] for seconds in ("50", "60")}

    RF.wait_for(lambda: all(len(pids) == 2 for pids in sleepers().values()))
    check(succeeds("kill", "--pgid", str(min(sleepers()["50"])), "x", "KILL"), "")
    RF.wait_for(lambda: len(sleepers()["60"]) == 2 and processes("x").get("sleep 50") is None)


@with_container("sleep", "100")
def test_debug_actions():
    one_line(RF("debug", "x"), 2, "--ps", "--signal")
    one_line(RF("debug", "--signal", "NONE", "x"), 128, "NONE")
    check(succeeds("debug", "--signal", "KILL", "x"), "")
    RF.wait_for(lambda: json.loads(RF("state", "x").stdout)["status"] == "stopped")


MISSING = """
import ctypes, fcntl, os, socket, time
libc = ctypes.CDLL(None)
def refused(call, *args):
    try:
        call(*args)
    except OSError:
        return
    raise AssertionError(args)
libc.syscall(323, 0)
libc.prctl(9999, 0, 0, 0, 0)
s = socket.socket()
for i in range(3):
    refused(s.setsockopt, 1, 9999, 1)
refused(fcntl.ioctl, s.fileno(), 0x12345678)
refused(fcntl.fcntl, s.fileno(), 9999)
refused(socket.socket, 40, 1)
refused(open, "/proc/self/nosuch")
refused(os.stat, "/sys/kernel/nosuch")
# Parts of calls, which are there otherwise: asked for by a bit, a value, the whole call; and files that never change.
libc.memfd_create(b"x", 4)
libc.syscall(312, os.getpid(), os.getpid(), 7, 0, 0)
os.sched_setaffinity(0, {0})
libc.personality(0x100000)
libc.personality(0xffffffff)
open("/proc/softirqs").read()
libc.pkey_alloc(0, 0)
# What is there, and what every program asks, is no news.
libc.memfd_create(b"x", 1)
open("/proc/stat").read()
os.isatty(s.fileno())
os.stat("/proc/self/status")
refused(os.stat, "/proc/999999")
print("done", flush=True)
time.sleep(100)
"""


@with_container("python3", "-c", MISSING)
def test_coverage():
    def report():
        return json.loads(succeeds("debug", "--coverage", "x"))

    RF.wait_for(lambda: "/sys" in str(report()) or "sysfs" in str(report()))
    found = report()
    check((found["container"], found["host"]), ("x", os.uname().release))
    missing = {kind: {e["what"]: e["count"] for e in entries} for kind, entries in found["missing"].items()}
    check(missing["system calls"]["userfaultfd (323)"], 1)
    check(missing["prctl options"], {"9999 (0x0)": 1})
    check(missing["socket options"], {"setsockopt level 1, option 9999": 3})
    check(missing["ioctls"]["0x12345678 of a socket"], 1)
    check(missing["fcntl commands"], {"9999 (0x0)": 1})
    check(missing["sockets"]["family 40, type 1, protocol 0"], 1)
    files = missing["files"]
    assert [name for name in files if name.startswith("proc: nosuch ")], files
    assert [name for name in files if name.startswith("sysfs: nosuch in directory kernel")], files
    assert not [name for name in files if "999999" in name or ": status " in name], files
    assert "0x5401" not in str(missing["ioctls"]), missing["ioctls"]
    parts = missing["parts of system calls"]
    for part, count in (
        ("memfd_create: MFD_HUGETLB", 1),
        ("kcmp: type 0x7: EINVAL", 1),
        ("sched_setaffinity", 1),
        ("personality: MMAP_PAGE_ZERO", 1),
        ("pkey_alloc", 1),
    ):
        check(parts.get(part), count, parts)
    check(sum("memfd" in part or "personality" in part for part in parts), 2, parts)
    check(missing["constant files"], {"proc: softirqs": 1})
    path = RF.dir("coverage") + "/report.json"
    check(succeeds("debug", "--coverage", "--out", path, "x"), "")
    check(json.load(open(path))["missing"]["prctl options"], [{"what": "9999 (0x0)", "count": 1}])
    one_line(RF("debug", "--out", path, "x"), 2, "--coverage")
    one_line(RF("debug", "--coverage", "nosuch"), 128, "nosuch")


def test_coverage_of_a_command():
    """`do` writes the same report at its end."""
    path = RF.dir("coverage") + "/report.json"
    check(RF("do", "--coverage", path, "sh", "-c", "cat /proc/nosuch; exit 3").returncode, 3)
    report = json.load(open(path))
    assert report["host"] == os.uname().release and report["container"].startswith("do-"), report
    assert {"what": "proc: nosuch in directory /", "count": 1} in report["missing"]["files"], report
    # Also beside a list of changes, and a session.
    diff = RF.dir("coverage") + "/diff"
    session = RF.dir("coverage") + "/session.json"
    with open(session, "w") as f:
        points, sinks = [{"name": "container/start"}], [{"name": "null"}]
        json.dump({"trace_session": {"name": "Default", "points": points, "sinks": sinks}}, f)
    flags = ["--pod-init-config", session, "do", f"--diff={diff}", "--coverage", path, "--name", "named"]
    succeeds(*flags, "sh", "-c", "cat /proc/nosuch2 2>/dev/null; echo x >/tmp/new")
    report = json.load(open(path))
    assert "nosuch2" in str(report) and report["container"] == "named" and "/tmp/new" in open(diff).read(), report
    # What does not run leaves nothing.
    new = RF.dir("coverage") + "/new.json"
    assert RF("do", "--coverage", new, "nosuch-program").returncode != 0
    assert not os.path.exists(new)
    one_line(RF("do", "--coverage", "/nosuch/x", "true"), 128, "--coverage /nosuch/x", "No such file")


BUSY = """
cat /proc/schedstat
for i in $(seq 0 $(nproc)) last; do (while :; do :; done) & all="$all $!"; done
sleep 1; cat /proc/schedstat; kill $all; wait; cat /proc/schedstat
"""


def test_schedstat():
    """Figures as with kernel.sched_schedstats=0. Not every host has the file to compare with."""
    text = succeeds("do", "sh", "-c", BUSY)
    looks = []
    for look in text.split("version 17\n")[1:]:
        first, *cpus = look.splitlines()
        assert re.fullmatch(r"timestamp \d+", first), text
        check([cpu.split()[0] for cpu in cpus], [f"cpu{i}" for i in range(os.cpu_count())])
        assert all(cpu.split()[1:7] == ["0"] * 6 for cpu in cpus), text
        sums = [sum(int(cpu.split()[i]) for cpu in cpus) for i in (7, 8, 9)]
        looks.append([int(first.split()[1]), *sums])
    check(len(looks), 3, text)
    before, busy, after = looks
    # Ticks of a millisecond; more programs than processors ran for a second, and waited for each other.
    assert busy[0] - before[0] >= 900 and busy[1] - before[1] > 100_000_000, looks
    assert busy[2] - before[2] > 10_000_000 and busy[3] > before[3], looks
    # What has ended counts on.
    assert all(a >= b for a, b in zip(after, busy)), looks


def crashed(signo, *flags, background=False):
    """Ends the kernel of a container by a signal; what the command line says, and the report."""
    state = RF.dir("crash")
    command = ["--root", state, *flags]
    if background:
        argv = RF.argv([*command, "run", "--detach", "--bundle", RF.bundle("sleep", "50"), "x"])
        quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        check(subprocess.run(argv, timeout=60, **quiet).returncode, 0)
    else:
        # The program says when it runs.
        do = RF.argv([*command, "do", "sh", "-c", "echo here; exec sleep 50"])
        child = subprocess.Popen(do, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        check(child.stdout.readline(), "here\n")
        time.sleep(0.5)
    (sentry,) = RF.processes("boot")
    os.kill(sentry, signo)
    if background:
        RF.wait_for(lambda: json.loads(RF(*command, "state", "x").stdout)["status"] == "stopped")
        result = RF(*command, "delete", "x")
        check(result.returncode, 0)
        said = result.stderr
    else:
        said = child.communicate(timeout=60)[1]
        check(child.returncode, 137 if signo == signal.SIGKILL else 128)
    path = said.strip().split(" ")[-1]
    return said, path, open(path).read() if os.path.isabs(path) else None


def test_report_of_a_crash():
    said, path, report = crashed(signal.SIGSEGV)
    assert "the sentry ended with status 139; the report is in /" in said, said
    assert "@crashes/ringfence-crash-" in path and os.stat(path).st_mode & 0o777 == 0o600, path
    for text in ("Ringfence crash report\n", "\ncause: signal 11 (SIGSEGV)", "sent by another process\n", "\n  rip 0x"):
        assert text in report, report
    # The main thread died, whose functions a release build puts into each other.
    assert re.search(r"\n  ringfence\+0x[0-9a-f]+  main\n", report), report
    assert f"host: {os.uname().release} " in report and "\nplatform: " in report, report
    # Its last calls, the last one first: numbers of arguments, results where there are some.
    (calls,) = re.findall(r"\n +\d+ +\d+ +\d+ sleep\n((?:      \w+\(.*\n)*)", report)
    first, *others = calls.splitlines()
    assert re.fullmatch(r"      clock_nanosleep\(0x0, 0x0, 0x[0-9a-f]+, 0x[0-9a-f]+\) = not finished", first), first
    check(len(others), 3, calls)
    for call in others:
        assert re.fullmatch(r"      \w+\((0x[0-9a-f]+(, )?)*\) = (0x[0-9a-f]+|-1 E[A-Z]+)", call), call


def test_report_of_an_abort_and_of_a_forbidden_call():
    report = crashed(signal.SIGABRT)[2]
    assert "cause: signal 6 (SIGABRT)" in report, report
    # As a call that the filter does not allow.
    report = crashed(signal.SIGSYS)[2]
    assert "ended by signal 31 (SIGSYS): a host call that the sentry's filter does not allow" in report, report
    # A container that is killed has not crashed.
    said, _, report = crashed(signal.SIGKILL)
    assert report is None and "report" not in said, said


def test_report_of_a_crash_in_the_background():
    said, _, report = crashed(signal.SIGSEGV, background=True)
    assert "the kernel of container x has died: the report is in /" in said, said
    assert "container: x\n" in report and "  main\n" in report, report
    # Beside the log, where there is one.
    log = RF.dir("logs") + "/"
    _, path, report = crashed(signal.SIGBUS, "--debug-log", log)
    assert os.path.dirname(path) == os.path.normpath(log) and "(SIGBUS)" in report, path


@with_container("sleep", "100")
def test_usage():
    usage = json.loads(succeeds("usage", "x"))
    check(usage["total"], usage["kernel"] + usage["processes"] + usage["init"])
    assert usage["id"] == "x" and 1 << 20 < usage["kernel"] < 1 << 30 and usage["processes"] > 0, usage


# --- commands about this program --------------------------------------------------------------------------------------


def test_commands_about_the_program():
    check(succeeds("version"), succeeds("--version"))
    listed = succeeds("flags")
    assert "--overlay2 SPEC\n" in listed and "--dcache N\n    of runsc" in listed, listed
    assert "fsgsbase" in succeeds("cpu-features").strip().split(",")
    one_line(RF("cpu-features", "x"), 2, "x")


def test_syscalls():
    """The same calls in all forms; partial and missing ones, and those that only fail, are told apart."""
    listed = json.loads(succeeds("syscalls", "--format=json"))["linux"]["amd64"]["syscalls"]
    assert all(call["num"] == int(number) for number, call in listed.items())
    named = {call["name"]: call for call in listed.values()}
    assert len(named) == len(listed) > 370, (len(named), len(listed))
    check((named["read"]["num"], named["read"]["support"], named["read"]["note"]), (0, "full", ""))
    assert named["mmap"]["support"] == "partial" and "MAP_HUGETLB" in named["mmap"]["note"], named["mmap"]
    check((named["userfaultfd"]["support"], named["userfaultfd"]["note"]), ("unimplemented", "ENOSYS"))
    check(named["swapon"]["support"], "error")
    check({call["support"] for call in listed.values()}, {"full", "partial", "unimplemented", "error"})
    # The page is made from the same table.
    for line in open(ROOT + "/docs/compatibility.md"):
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and cells[0].isdigit() and cells[2] in ("full", "partial", "absent"):
            support = "error" if cells[2] == "absent" else cells[2]
            check([listed[cells[0]][key] for key in ("name", "support", "note")], [cells[1], support, cells[3]])
    rows = list(csv.DictReader(io.StringIO(succeeds("syscalls", "--format", "csv", "--os", "linux", "--arch=amd64"))))
    check(
        {row["Num"]: [row["OS"], row["Arch"], row["Name"], row["Support"], row["Note"]] for row in rows},
        {n: ["linux", "amd64", call["name"], call["support"], call["note"]] for n, call in listed.items()},
    )
    lines = succeeds("syscalls").splitlines()
    check((len(lines), lines[0].split()), (len(listed) + 1, ["NUM", "NAME", "SUPPORT", "NOTE"]))
    check(lines[1].split(), ["0", "read", "full"])
    dir = RF.dir("syscalls")
    check(succeeds("syscalls", "--out", dir + "/list"), "")
    check(open(dir + "/list").read().splitlines(), lines)
    one_line(RF("syscalls", "--out", dir + "/no/list"), 128, dir + "/no/list", "No such file")
    one_line(RF("syscalls", "--os=plan9"), 2, "plan9", "linux")
    one_line(RF("syscalls", "--format=xml"), 2, "xml", "csv")


def test_completions_and_manual_pages():
    for shell, check_it in (("bash", ["bash", "-n"]), ("zsh", None), ("fish", None)):
        script = succeeds("completions", shell)
        assert "port-forward" in script and "overlay2" in script, shell
        if check_it:
            check(subprocess.run(check_it, input=script, text=True, capture_output=True).stderr, "")
    words = "COMP_WORDS=(ringfence port); COMP_CWORD=1; _ringfence ringfence port ringfence; echo ${COMPREPLY[@]}"
    script = succeeds("completions", "bash") + words
    check(subprocess.run(["bash"], input=script, text=True, capture_output=True).stdout, "port-forward\n")
    dir = RF.dir("man") + "/man1"
    check(succeeds("man", dir), "")
    assert {"ringfence.1", "ringfence-do.1", "ringfence-overlay-diff.1"} <= set(os.listdir(dir)), os.listdir(dir)
    page = open(dir + "/ringfence-do.1").read()
    assert "\\-\\-volume" in page and ".TH" in page and "Examples" in page, page[:200]


def test_installed_files():
    """What `make install` does with what is built: no symbols among the programs."""
    built, prefix = RF.dir("built"), RF.dir("prefix")
    os.symlink(RF.binary, built + "/ringfence")
    for name in ("ringfence.debug", "containerd-shim-ringfence-v1", "containerd-shim-ringfence-v1.debug"):
        open(f"{built}/{name}", "w").close()
    check(subprocess.run([ROOT + "/tools/install-files", built, prefix], capture_output=True, text=True).stderr, "")
    check(sorted(os.listdir(prefix + "/bin")), ["containerd-shim-ringfence-v1", "ringfence"])
    check(len(os.listdir(prefix + "/lib/debug")), 2)
    for path in (
        "man/man1/ringfence-run.1",
        "bash-completion/completions/ringfence",
        "zsh/site-functions/_ringfence",
        "fish/vendor_completions.d/ringfence.fish",
    ):
        assert os.path.getsize(f"{prefix}/share/{path}") > 500, path


# --- do ---------------------------------------------------------------------------------------------------------------


def test_do_diff():
    dir = RF.dir("changed")
    for name in ("kept", "removed", "written"):
        with open(f"{dir}/{name}", "w") as f:
            f.write("text")
    volume = RF.dir("volume")
    script = f"cd {dir}; rm removed; echo more >>written; mkdir -p new; echo x >new/file; touch {volume}/y; exit 3"
    flags = ["--volume", volume]
    wanted = {f"C {dir}", f"D {dir}/removed", f"C {dir}/written", f"A {dir}/new", f"A {dir}/new/file"}
    result = RF("do", "--diff", *flags, "sh", "-c", script)
    check((result.returncode, result.stdout), (3, ""))
    below = lambda lines: {line for line in lines if line[2:].startswith(dir)}
    check(below(result.stderr.splitlines()), wanted)
    check(open(dir + "/written").read(), "text")
    file = RF.dir("diff") + "/diff"
    result = RF("do", f"--diff={file}", *flags, "sh", "-c", script)
    check((result.returncode, result.stdout, result.stderr), (3, "", ""))
    check(below(open(file).read().splitlines()), wanted)
    one_line(RF("do", "--diff=/nonexistent/file", "true"), 128, "--diff /nonexistent/file")
    # Nothing tells what has changed when the sandbox is killed.
    result = RF("do", "--diff", "sh", "-c", "kill -9 -1; echo there", timeout=60)
    check(result.stdout, "there\n")


def test_do_diff_of_many():
    """More than a pipe holds."""
    result = RF("do", "--diff", "sh", "-c", "mkdir /new && cd /new && seq -f name%g 5000 | xargs touch")
    check(result.returncode, 0, result.stderr[:500])
    check(len([line for line in result.stderr.splitlines() if line.startswith("A /new/name")]), 5000)


def test_do_limits():
    """The limits hold, and are the command's: the kernel inside says so, too."""
    check(
        RF("do", "--pids", "5", "sh", "-c", "for i in 1 2 3 4 5 6; do sleep 1 & done 2>/dev/null").returncode != 0, True
    )
    check(RF("do", "--pids", "50", "sh", "-c", "for i in 1 2 3 4 5 6; do sleep 0 & done; wait").returncode, 0)
    one_line(RF("do", "--pids", "0", "true"), 2, "--pids")
    one_line(RF("do", "--memory", "much", "true"), 2, "--memory")
    one_line(RF("do", "--cpus", "0", "true"), 2, "--cpus")
    one_line(RF("do", "--cpus", "-1", "true"), 2, "0.01")
    check(RF("do", "--memory", "-1", "true").returncode, 0)
    check(RF("do", "--timeout", "20", "true").returncode, 0)
    need_root()
    grow = "print(len(b'x' * (200 << 20)))"
    result = RF("do", "--memory", "100m", "python3", "-c", grow)
    check((result.returncode, result.stdout), (137, ""), result.stderr)
    assert "memory ran out: --memory is too little" in result.stderr, result.stderr
    result = RF("do", "--memory", "600m", "python3", "-c", grow)
    check((result.returncode, result.stdout), (0, f"{200 << 20}\n"), result.stderr)
    # Files in memory are not available.
    filled = "head -c 150M /dev/zero >/dev/shm/x; awk '/^MemAvailable/ {print $2}' /proc/meminfo"
    available = int(succeeds("do", "--quiet", "--memory", "400m", "sh", "-c", filled))
    assert 0 < available < 251 << 10, available
    # The quota changes no number of processors, and is told where programs look for it.
    seen = "import os; print(os.cpu_count(), os.sysconf('SC_NPROCESSORS_CONF'), len(os.sched_getaffinity(0)))"
    shown = f"{os.cpu_count()} {os.sysconf('SC_NPROCESSORS_CONF')} {len(os.sched_getaffinity(0))}\n"
    for cpus in ("0.5", "1", "1.5"):
        check(succeeds("do", "--quiet", "--cpus", cpus, "python3", "-c", seen), shown)
    check(succeeds("do", "--quiet", "--cpus", "1.5", "cat", "/sys/fs/cgroup/cpu.max"), "150000 100000\n")
    # Two busy threads for a while: a tenth of a processor is a tenth of the time, roughly.
    spin = "import os, time\npid = os.fork()\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass\n"
    spin += (
        "if pid:\n    os.wait()\n    t = os.times()\n    print(t.user + t.system + t.children_user + t.children_system)"
    )
    result = RF("do", "--cpus", "0.2", "python3", "-c", spin)
    check(result.returncode, 0, result.stderr)
    assert float(result.stdout) < 2, result.stdout


def test_do_maps_of_ids():
    need_root()
    maps = ["--uid-map", "0 100000 65536", "--gid-map", "0,200000,65536"]
    script = "echo $(cat /proc/self/uid_map /proc/self/gid_map); exec sleep 30"
    p = RF.start("do", *maps, "sh", "-c", script, stdout=subprocess.PIPE, cwd="/")
    try:
        check(RF.line(p), "0 100000 65536 0 200000 65536\n")
        owners = {os.stat(f"/proc/{pid}").st_uid for pid in RF.processes()}
        assert {open(f"/proc/{pid}/uid_map").read().split()[1] for pid in RF.processes()} == {"0", "100000"}, owners
    finally:
        p.terminate()
        p.wait()
    one_line(RF("do", "--uid-map", "0 0 1", "true"), 2, "--gid-map")


def test_do_quiet():
    command = ["--allow-net", "192.0.2.1", "python3", "-c", REFUSED]
    assert "refused" in RF("do", *command).stderr
    env = {**os.environ, "BAD": "a\udcff"}
    assert "BAD" in RF("do", "true", env=env).stderr
    check(succeeds("do", "--quiet", "true", env=env), "")
    check(succeeds("do", "--force-overlay", "true"), "")

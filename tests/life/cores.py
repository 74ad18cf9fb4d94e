"""Core files of the sandbox's own kernel and of processes inside, and reports of crashes."""

import os, re, resource, signal, subprocess, time

from results import need_programs, need_root

RF = None  # the program under test
life = None  # the module of the runner


def gdb(program, core, *commands):
    argv = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load safe-path /"]
    for command in commands:
        argv += ["-ex", command]
    p = subprocess.run(argv + [program, core], capture_output=True, text=True, timeout=300, errors="replace")
    return p.stdout + p.stderr


def held(core):
    """What a core file holds, by readelf."""
    return subprocess.run(["readelf", "-lnW", core], capture_output=True, text=True, timeout=60).stdout


SECRET = """
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
char *volatile shared; volatile char secret[32];
volatile int going;
static void *sleeps(void *name) { sleep(100000); return name; }
static void *spins(void *name) { for (;;) going++; return name; }
__attribute__((noinline)) int waits_here(int depth) {
    if (depth > 0) return waits_here(depth - 1) + 1;
    puts("up"); fflush(stdout);
    for (int i = 0;; i++) { usleep(10000); if (i % 10 == 0) { puts("on"); fflush(stdout); } }
}
int main(int argc, char **argv) {
    pthread_t a, b;
    if (argc > 1) {
        pid_t child = fork();
        if (child == 0) for (;;) going++;
        ptrace(PTRACE_ATTACH, child, 0, 0); waitpid(child, 0, 0);
        printf("traced %d\\n", child); fflush(stdout);
        for (;;) pause();
    }
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 24; i++) { secret[i] = "mhrdug"[i % 6] + 1; shared[i] = secret[i]; }
    pthread_create(&a, 0, sleeps, 0); pthread_create(&b, 0, spins, 0);
    return waits_here(3);
}
"""
WORD = b"nisevh" * 4  # what `secret` holds when it runs; the program's file does not


def program(dir):
    need_programs("gcc", "gdb", "readelf")
    with open(dir + "/secret.c", "w") as f:
        f.write(SECRET)
    subprocess.run(["gcc", "-O1", "-g", "-pthread", "-o", dir + "/secret", "-static", dir + "/secret.c"], check=True)
    return {"destination": "/prog", "type": "bind", "source": dir, "options": ["bind", "ro"]}


def runs(id, dir, prefix=()):
    mount = program(dir)
    out, _ = life.create(id, *prefix, "/prog/secret", edit=lambda c: c["mounts"].append(mount))
    life.works("start", id)
    RF.wait_for(lambda: "up" in life.text(out))
    return out


def goes_on(out):
    before = life.text(out).count("on\n")
    RF.wait_for(lambda: life.text(out).count("on\n") > before + 1)


def test_core_of_the_sentry():
    """gdb reads it, guest memory is left out unless asked for, and the sandbox goes on."""
    need_root()
    dir = RF.dir("cores")
    out = runs("a", dir)
    core = dir + "/core"
    told = life.works("debug", "--core", core, "a")
    stopped = r"\d+ threads, \d+ MiB of memory; the sandbox was stopped for \d\.\d\d s\n"
    assert re.fullmatch(f"{core}: {stopped}", told), told
    life.check(os.stat(core).st_mode & 0o777, 0o600)
    goes_on(out)
    text = gdb(RF.binary, core, "thread apply all bt 30")
    assert "warning: core file may not match" not in text, text
    threads = int(told.split(": ")[1].split(" ")[0])
    life.check(len(re.findall(r"^Thread \d+ \(", text, re.M)), threads, text)
    # From the first function on: the first thread's, and those of the others.
    assert re.search(r"\bmain \(\)", text) and text.count("start_thread") == threads - 1, text
    assert WORD not in open(core, "rb").read()
    for note in ("NT_PRSTATUS", "NT_PRPSINFO", "NT_AUXV", "NT_FILE", "NT_FPREGSET", "NT_X86_XSTATE"):
        assert note in held(core), note
    # Shared memory that the sentry has touched comes when asked for.
    life.works("debug", "--core", core + "2", "--core-with-guest-memory", "a")
    shared = sum(int(size, 16) for size in re.findall(r"LOAD\s+\S+ \S+ \S+ (\S+)", held(core + "2")))
    private = sum(int(size, 16) for size in re.findall(r"LOAD\s+\S+ \S+ \S+ (\S+)", held(core)))
    assert shared > private, (shared, private)
    goes_on(out)
    life.works("delete", "--force", "a")


def test_core_of_the_sentry_refused():
    """What does not work says why and leaves no file."""
    need_root()
    need_programs("strace")
    dir = RF.dir("cores")
    life.fails(RF("debug", "--core", dir + "/x", "a"), "container does not exist")
    out = runs("a", dir)
    os.mkfifo(dir + "/fifo")
    before = sorted(os.listdir(dir))
    life.fails(RF("debug", "--core", dir + "/no/x", "a"), dir + "/no/x", "No such file")
    life.fails(RF("debug", "--core", dir + "/fifo", "a"), dir + "/fifo")
    life.fails(RF("debug", "--core", "/dev/null", "a"), "/dev/null", "not a regular file")
    life.check(RF("debug", "--core-with-guest-memory", "a").returncode, 2)
    # Another tracer is there.
    (sentry,) = RF.processes("boot")
    p = subprocess.Popen(["strace", "-f", "-o", "/dev/null", "-p", str(sentry)], stderr=subprocess.DEVNULL)
    tracer = lambda: f"TracerPid:\t{p.pid}\n" in life.text(f"/proc/{sentry}/status")
    RF.wait_for(tracer)
    life.fails(RF("debug", "--core", dir + "/x", "a"), dir + "/x", "refused", "debugger")
    p.send_signal(signal.SIGINT)
    p.wait(20)
    # A limit on the length of files stands for a disk that is full.
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    full = lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN), limit())
    argv = RF.argv(["debug", "--core", dir + "/x", "a"])
    life.fails(subprocess.run(argv, capture_output=True, text=True, timeout=60, preexec_fn=full), "too large")
    life.check(sorted(os.listdir(dir)), before)
    goes_on(out)
    life.works("delete", "--force", "a")


def test_core_of_the_sentry_killed():
    """The sandbox goes on when the command that has stopped it is killed."""
    need_root()
    dir = RF.dir("cores")
    out = runs("a", dir)
    for i in range(12):
        p = RF.start("debug", "--core", dir + f"/x{i}", "a", stdout=subprocess.DEVNULL)
        time.sleep(i * 0.02)  # any moment will do
        p.kill()
        p.wait(20)
        goes_on(out)
    life.works("delete", "--force", "a")


def guest_core(dir, pid, name):
    told = life.works("debug", "--guest-core", str(pid), "--output", f"{dir}/{name}", "a")
    life.check(told, f"{dir}/{name}: 3 threads\n")
    text = gdb(dir + "/secret", f"{dir}/{name}", "thread apply all bt", "print secret", "x/s shared")
    assert len(re.findall(r"waits_here \(depth=", text)) == 4, text
    assert "sleeps (" in text and "spins (" in text and text.count(WORD.decode()) == 2, text
    return text


def test_core_of_a_process():
    """As gcore writes it: all threads, all memory, and the process goes on."""
    dir = RF.dir("cores")
    out = runs("a", dir)
    guest_core(dir, 1, "core")
    life.check(os.stat(dir + "/core").st_mode & 0o777, 0o600)
    goes_on(out)
    # Sleeps go on with what is left of them, as on Linux.
    for i in range(5):
        guest_core(dir, 1, f"again{i}")
    goes_on(out)
    # Nothing of it is seen inside: its directory has no core file, and the sleep was not cut short.
    life.check(life.works("exec", "a", "sh", "-c", "ls /core* 2>/dev/null; ls /proc/1/task | wc -l").strip(), "3")
    life.fails(RF("debug", "--guest-core", "999", "--output", dir + "/x", "a"), "no process 999")
    life.fails(RF("debug", "--guest-core", "1", "--output", "/dev/null", "a"), "not a regular file")
    life.check(RF("debug", "--guest-core", "1", "a").returncode, 2)
    life.works("pause", "a")
    life.fails(RF("debug", "--guest-core", "1", "--output", dir + "/x", "a"), "resume it first")
    life.works("resume", "a")
    assert not os.path.exists(dir + "/x")
    goes_on(out)
    life.works("delete", "--force", "a")


def test_core_of_a_traced_process():
    """Its tracer has stopped it."""
    dir = RF.dir("cores")
    mount = program(dir)
    out, _ = life.create("a", "/prog/secret", "traced", edit=lambda c: c["mounts"].append(mount))
    life.works("start", "a")
    RF.wait_for(lambda: "traced" in life.text(out))
    pid = life.text(out).split()[1]
    life.check(life.works("debug", "--guest-core", pid, "--output", dir + "/core", "a"), f"{dir}/core: 1 threads\n")
    assert "main (" in gdb(dir + "/secret", dir + "/core", "bt")
    assert "State:\tt" in life.works("exec", "a", "cat", f"/proc/{pid}/status")
    life.works("delete", "--force", "a")


def test_core_of_a_stopped_process():
    dir = RF.dir("cores")
    mount = program(dir)
    script = "/prog/secret & p=$!; echo pid $p; wait $p; wait $p; wait $p"
    out, _ = life.create("a", "sh", "-c", script, edit=lambda c: c["mounts"].append(mount))
    life.works("start", "a")
    RF.wait_for(lambda: "up" in life.text(out))
    pid = int(re.search(r"pid (\d+)", life.text(out))[1])
    life.works("exec", "a", "kill", "-STOP", str(pid))
    RF.wait_for(lambda: "State:\tT" in life.works("exec", "a", "cat", f"/proc/{pid}/status"))
    guest_core(dir, pid, "stopped")
    assert "State:\tT" in life.works("exec", "a", "cat", f"/proc/{pid}/status")
    life.works("exec", "a", "kill", "-CONT", str(pid))
    goes_on(out)
    # It dies as ever. The container ends with it, and may take the kill program along
    # before that has exited by itself.
    killed = RF("exec", "a", "kill", "-KILL", str(pid))
    assert killed.returncode in (0, 128 + signal.SIGKILL), killed
    RF.wait_for(lambda: life.status("a") == "stopped")
    life.works("delete", "--force", "a")

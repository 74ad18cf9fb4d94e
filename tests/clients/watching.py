"""Trace sessions, policies and metrics of containers of Docker, containerd and CRI, on both platforms."""

import contextlib, glob, json, os, re, shutil, signal, socket, subprocess

from common import WRITE_BACK, Failure, call, check, has, leftovers, need_ours, wait_for
from results import need_programs
from shim import IMAGE, STATE, number, remove

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXAMPLE = os.path.join(os.path.dirname(TESTS), "docs/examples/watching.yaml")
PLATFORMS = ("systrap", "ptrace")
PODS = "/run/containerd/ringfence/k8s.io"
CONTEXT = ["time", "container_id", "group_id", "process_name"]
FOREVER = "while :; do sleep 0.1; done"
SECRET = "/data/secret"


def runtimes(directory):
    """Global flags by names of runtimes, which Docker and CRI know."""
    found = {}
    for platform in PLATFORMS:
        found[f"watched-{platform}"] = {"platform": platform, "pod-init-config": f"{directory}/session.json"}
        found[f"ruled-{platform}"] = {
            "platform": platform,
            "policy": f"{directory}/policy.yaml",
            "policy-log": f"{directory}/logs/%ID%-%TIMESTAMP%.log",
            "policy-key": f"{directory}/operator",
        }
    found["ruled-overlay"] = found["ruled-systrap"] | {"overlay2": "root:self,commit"}
    return found


def prepare(stage):
    """The directory of sessions and policies."""
    os.makedirs(f"{stage.watch}/logs")
    call([stage.runtime, "policy", "keygen", f"{stage.watch}/operator"])


def install_in_docker(stage, file):
    """As docs/watching.md and docs/policies.md have it."""
    for name, flags in runtimes(stage.watch).items():
        flags = [part for key, value in flags.items() for part in (f"--{key}", value)]
        r = call([stage.binary, "install", "--config-file", file, "--runtime", name, "--", *stage.flags, *flags])
        check(r.status, 0, r.all)


def config_of_cri(stage, plugin):
    """The same for CRI: a file of the shim's settings for each runtime."""
    text = ""
    for name, flags in runtimes(stage.watch).items():
        file = f"{stage.dir}/{name}.toml"
        with open(file, "w") as f:
            f.write("[ringfence_config]\n" + "".join(f'{key} = "{value}"\n' for key, value in flags.items()))
        text += f"""
[{plugin}.containerd.runtimes.{name}]
runtime_type = "io.containerd.ringfence.v1"
[{plugin}.containerd.runtimes.{name}.options]
TypeUrl = "runtimeoptions.v1.Options"
ConfigPath = "{file}"
"""
    return text


# --- sessions ---------------------------------------------------------------------------------------------------------


def write_session(path, *sinks, points=("container/start", "sentry/execve", "sentry/exit_notify_parent"), name=None):
    points = [{"name": point, "context_fields": CONTEXT} for point in points]
    session = {"points": points, "sinks": list(sinks), **({"name": name} if name else {})}
    with open(path, "w") as f:
        json.dump({"trace_session": session}, f)
    return path


def file_sink(path):
    return {"name": "file", "config": {"path": path}}


def told(path):
    """What a file sink or a consumer has written so far: (type, message), none of them dropped."""
    with open(path) as f:
        lines = [json.loads(line) for line in f.read().splitlines(keepends=True) if line.endswith("\n")]
    lines = [line for line in lines if "type" in line]
    check([line["dropped"] for line in lines if line["dropped"]], [], "dropped")
    return [(line["type"].removeprefix("MESSAGE_"), line["message"]) for line in lines]


def about(events, id):
    """The events of one container."""
    return [(kind, m) for kind, m in events if m["context_data"]["container_id"] == id]


def programs(events):
    return [m["argv"] for kind, m in events if kind == "SENTRY_EXEC"]


@contextlib.contextmanager
def consumer(stage, *options):
    """The consumer of tests/trace: its socket, and the file that it writes."""
    need_programs("protoc")
    path, out = f"{stage.watch}/sock", f"{stage.watch}/consumed"
    with open(out, "w") as f:
        process = subprocess.Popen([f"{TESTS}/trace/consumer.py", path, *options], stdin=subprocess.DEVNULL, stdout=f)
    try:
        wait_for(lambda: "listening" in open(out).read(), what="the consumer")
        yield path, out
    finally:
        process.kill()
        process.wait()
        for name in (path, out):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


SCRIPT = "/bin/ls /data; exec /bin/true"  # by path: busybox does others by itself


def check_first_program(events, id):
    """Container start, and every program of SCRIPT in order: nothing before, nothing missed."""
    check([kind for kind, _ in events][:2], ["CONTAINER_START", "SENTRY_EXEC"])
    check((events[0][1]["id"], events[0][1]["args"]), (id, ["sh", "-c", SCRIPT]))
    check(programs(events), [["sh", "-c", SCRIPT], ["/bin/ls", "/data"], ["/bin/true"]])
    check([kind for kind, _ in events].count("SENTRY_EXIT_NOTIFY_PARENT"), 2)
    check({m["context_data"]["container_id"] for _, m in events}, {id})


class Tool:
    """The command line on the state directory that a client has chosen."""

    def __init__(self, stage, root):
        self.stage, self.root = stage, root

    def argv(self, *args):
        return [self.stage.runtime, "--root", self.root, *args]

    def __call__(self, *args, **kw):
        return call(self.argv(*args), **kw)

    def ok(self, *args):
        r = self(*args)
        check((r.status, r.err), (0, ""), f"{args}")
        return r.out

    def watched(self, id, act, wanted):
        """What `trace watch` tells first of programs that match, while `act` makes them."""
        args = ["trace", "watch", "--json", "--point", "sentry/execve", "--filter", f"argv={wanted}", id]
        out = f"{self.stage.watch}/watched"
        with open(out, "w") as f:
            process = subprocess.Popen(self.argv(*args), stdin=subprocess.DEVNULL, stdout=f, stderr=f)
        try:
            wait_for(lambda: "watch " in self.ok("trace", "list", id), what="the session of watch")
            act()
            wait_for(lambda: "\n" in open(out).read(), what="a line of watch")
            process.send_signal(signal.SIGINT)
            check(process.wait(20), 0, "watch after SIGINT")
        finally:
            process.kill()
            process.wait()
        wait_for(lambda: "watch " not in self.ok("trace", "list", id), what="the end of the session")
        with open(out) as f:
            line = f.readline()
        os.unlink(out)
        return json.loads(line)["message"]

    def live_session(self, id, act, wanted):
        """A session that is created, listed and deleted while a container runs."""
        log = f"{self.stage.watch}/live.jsonl"
        config = write_session(f"{self.stage.watch}/live.json", file_sink(log), name="live", points=["sentry/execve"])
        has(self.ok("trace", "create", "--config", config, id), "created")
        listed = self.ok("trace", "list", id)
        has(listed, '"live"', "Sink: file, sent: ")
        act()
        has(self.ok("trace", "delete", "--name", "live", id), "deleted")
        assert '"live"' not in self.ok("trace", "list", id)
        wait_for(lambda: wanted in programs(told(log)), what="the program's event in the file")
        (found,) = {m["context_data"]["container_id"] for _, m in told(log)}
        os.unlink(log)
        return found


def id_of(e, name):
    return e.ok("inspect", "--format", "{{.Id}}", name).strip()


def tool_of_docker(e):
    """Docker has one directory below its exec-root, whatever the runtime."""
    return Tool(e.stage, f"{e.stage.dir}/docker-exec/runtime-runc/moby")


def nothing_left(e, tool):
    wait_for(lambda: not leftovers(e.stage), what="an end without processes and state")
    check([name for name in os.listdir(tool.root) if name != WRITE_BACK], [])
    left = sorted(name for name in os.listdir(e.stage.watch) if name not in ("operator", "operator.pub", "logs"))
    check([name for name in left if not name.endswith((".json", ".yaml", ".jsonl"))], [], "files")


def docker_trace_session(e):
    """From the first instruction on, into a file and to a consumer; the ID is Docker's."""
    need_ours(e)
    for platform in PLATFORMS:
        with consumer(e.stage) as (sock, out):
            remote = {"name": "remote", "config": {"endpoint": sock}}
            write_session(f"{e.stage.watch}/session.json", file_sink(f"{e.stage.watch}/%ID%.jsonl"), remote)
            name = e.background("--runtime", f"watched-{platform}", "img", "sh", "-c", SCRIPT)
            check(e.ok("wait", name).strip(), "0")
            id = id_of(e, name)
            log = f"{e.stage.watch}/{id}.jsonl"
            for file in (log, out):
                wait_for(lambda: [kind for kind, _ in told(file)].count("SENTRY_EXIT_NOTIFY_PARENT") == 2)
                check_first_program(told(file), id)
            e.ok("rm", name)
        os.unlink(log)
        nothing_left(e, tool_of_docker(e))


def docker_trace_live(e):
    need_ours(e)
    write_session(f"{e.stage.watch}/session.json", {"name": "null"})
    for runtime in ("rf", "watched-ptrace"):
        name = e.background("--runtime", runtime, "img", "sh", "-c", FOREVER)
        id, tool = id_of(e, name), tool_of_docker(e)
        act = lambda: e.ok("exec", name, "echo", "seen")
        check(tool.live_session(id, act, ["echo", "seen"]), id)
        check(tool.watched(id, act, "echo")["argv"], ["echo", "seen"])
        assert any(p["args"][:2] == ["sh", "-c"] for p in json.loads(tool.ok("trace", "procfs", id)))
        e.ok("rm", "-f", name)
        nothing_left(e, tool)


def docker_trace_killed(e):
    """`docker rm -f` while a session has a consumer, a file and one that watches."""
    need_ours(e)
    for platform in PLATFORMS:
        log = f"{e.stage.watch}/killed.jsonl"
        with consumer(e.stage) as (sock, out):
            write_session(
                f"{e.stage.watch}/session.json", file_sink(log), {"name": "remote", "config": {"endpoint": sock}}
            )
            name = e.background("--runtime", f"watched-{platform}", "img", "sh", "-c", FOREVER)
            tool = tool_of_docker(e)
            watch = subprocess.Popen(
                tool.argv("trace", "watch", id_of(e, name)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
            wait_for(lambda: len(programs(told(log))) > 3 and len(programs(told(out))) > 3, what="programs")
            e.ok("rm", "-f", name)
            check(watch.wait(20), 0, "watch")
            wait_for(lambda: not leftovers(e.stage), what="an end without processes and state")
        os.unlink(log)
        nothing_left(e, tool)


def docker_trace_slow_consumer(e):
    """A consumer that reads nothing holds up neither a program nor the end of its container."""
    need_ours(e)
    points = [f"syscall/{call}/{when}" for call in ("openat", "close", "dup2") for when in ("enter", "exit")]
    script = "i=0; while [ $i -lt 20000 ]; do : </dev/null; i=$((i+1)); done; echo done"
    for platform in PLATFORMS:
        with consumer(e.stage, "--slow", "600") as (sock, _):
            remote = {"name": "remote", "config": {"endpoint": sock}}
            write_session(f"{e.stage.watch}/session.json", remote, points=points)
            r = e.run("--runtime", f"watched-{platform}", "img", "sh", "-c", script)
            check((r.out, r.status), ("done\n", 0), r.err)
            wait_for(lambda: not leftovers(e.stage), what="an end without processes and state")
        nothing_left(e, tool_of_docker(e))


def docker_trace_refused(e):
    """A session that cannot begin: the container does not start, and the client says why."""
    need_ours(e)
    for text, part in (
        (json.dumps({"trace_session": {"points": [{"name": "sentry/nosuch"}], "sinks": []}}), "sentry/nosuch"),
        (
            json.dumps({"trace_session": {"points": [{"name": "sentry/execve"}], "sinks": [file_sink("/no/log")]}}),
            "/no/log",
        ),
        ("{", "session.json"),
    ):
        open(f"{e.stage.watch}/session.json", "w").write(text)
        name = e.name()
        r = e("run", "--name", name, "--runtime", "watched-systrap", "img", "echo", "ran")
        check(r.status, 125, r.all)
        has(r.err, part)
        check(r.out, "")
        e.ok("rm", name)
    nothing_left(e, tool_of_docker(e))


# --- policies ---------------------------------------------------------------------------------------------------------


def write_policy(stage, *rules):
    with open(f"{stage.watch}/policy.yaml", "w") as f:
        json.dump({"rules": list(rules)}, f)
    return f.name


def rule(action, point="file/open", path=SECRET, **fields):
    return {"point": point, "path": path, "action": action, **fields}


def decisions(stage, id):
    """The decisions about a sandbox, from its log, which must be whole and signed."""
    (log,) = glob.glob(f"{stage.watch}/logs/{id}-*.log")
    wait_for(lambda: '"end"' in open(log).read().splitlines()[-1], what="the end of the log")
    r = call([stage.runtime, "policy", "verify", "--key", f"{stage.watch}/operator.pub", log])
    check((r.status, r.err), (0, ""), "policy verify")
    has(r.out, "none changed or missing", "signed by the given key")
    lines = [json.loads(line) for line in open(log)]
    check(lines[0]["start"]["sandbox"], id)
    os.unlink(log)
    return [line["decision"] for line in lines if "decision" in line]


def check_examples(found, id):
    """That each rule of the example has found what the intruder did."""
    by_rule, dropped = {}, [d["path"] for d in found if d["rule_name"] == "dropped-program"]
    # The second one was of the image, and ran before it was changed.
    check(dropped, ["/tmp/dropped", "/usr/bin/changed"], "programs that were not in the image")
    for d in found:
        by_rule.setdefault(d["rule_name"], set()).add(d.get("path") or d.get("address") or str(d["uid"]))
        check(d["container"], id)
    for name, what in {
        "shell-of-a-server": "/bin/bash",
        "change-below-etc": "/etc/ringfence-test",
        "passwords": "/etc/shadow",
        "new-address": "192.0.2.1:53",
        "became-root": "1000",
    }.items():
        if what not in by_rule.get(name, ()):
            raise Failure(f"{name} has not found {what}: {by_rule}")


def docker_example_rules(e):
    need_ours(e)
    need_programs("cc")
    for kind in (*PLATFORMS, "overlay"):
        shutil.copy(EXAMPLE, f"{e.stage.watch}/policy.yaml")
        name = e.background("--runtime", f"ruled-{kind}", "img", "/usr/sbin/nginx")
        check((e.ok("wait", name).strip(), e.ok("logs", name)), ("0", "done\n"))
        id = id_of(e, name)
        check_examples(decisions(e.stage, id), id)
        e.ok("rm", name)


def docker_layer_of_an_earlier_start(e):
    """What a container has written before `docker stop` was not in the image either."""
    need_ours(e)
    for kind in (*PLATFORMS, "overlay"):
        drop = "cp /bin/busybox /tmp/dropped; cp /bin/busybox /usr/bin/changed"
        script = f"[ -e /tmp/dropped ] || {{ {drop}; exit; }}; /tmp/dropped true; /usr/bin/changed true; /bin/bash -c :"
        write_policy(e.stage, {"point": "file/exec", "new_in_layer": True, "action": "log"})
        name = e.background("--runtime", f"ruled-{kind}", "img", "sh", "-c", script)
        e.ok("wait", name)
        id = id_of(e, name)
        check(decisions(e.stage, id), [])
        e.ok("start", name)
        e.ok("wait", name)
        check([d["path"] for d in decisions(e.stage, id)], ["/tmp/dropped", "/usr/bin/changed"])
        e.ok("rm", name)


# What a policy does, a command, and what Linux tells of its end: status, output.
ENDS = [
    (rule("deny"), ["cat", SECRET], 1, "Permission denied"),
    (rule("deny", errno="EPERM"), ["cat", SECRET], 1, "Operation not permitted"),
    (rule("kill-process"), ["sh", "-c", f"cat {SECRET}; exit $?"], 137, ""),
    (rule("kill-process"), ["sh", "-c", f"read x <{SECRET}"], 137, ""),
    (rule("kill-container"), ["sh", "-c", f"(cat {SECRET}); echo on; sleep 100"], 137, ""),
]


def docker_policy(e):
    """A client sees the status that Linux would give."""
    need_ours(e)
    for platform in PLATFORMS:
        for refused, command, status, said in ENDS:
            write_policy(e.stage, refused)
            name = e.name()
            r = e("run", "--name", name, "--runtime", f"ruled-{platform}", "img", *command)
            check((r.status, r.out), (status, ""), r.err)
            has(r.err, said)
            check(e.state(name, "ExitCode"), str(status))
            check(e.state(name, "OOMKilled"), "false")
            found = decisions(e.stage, id_of(e, name))
            check({d["action"] for d in found}, {refused["action"]})
            e.ok("rm", name)
        # The first program itself: as if it were not executable.
        for errno, status, text in (("EACCES", 126, "permission denied"), ("EPERM", 125, "operation not permitted")):
            write_policy(e.stage, rule("deny", point="file/exec", path="/bin/bash", errno=errno))
            name = e.name()
            r = e("run", "--name", name, "--runtime", f"ruled-{platform}", "img", "/bin/bash", "-c", "echo ran")
            has(r.err.lower(), text)
            check((r.status, r.out), (status, ""), r.err)
            for log in glob.glob(f"{e.stage.watch}/logs/*"):
                os.unlink(log)
            e.ok("rm", name)
        nothing_left(e, tool_of_docker(e))


def docker_policy_exec(e):
    """`docker exec` is under the policy, too."""
    need_ours(e)
    for platform in PLATFORMS:
        write_policy(e.stage, rule("deny"), rule("deny", point="file/exec", path="/bin/bash"))
        name = e.background("--runtime", f"ruled-{platform}", "img", "sh", "-c", FOREVER)
        r = e("exec", name, "cat", SECRET)
        check((r.status, r.out), (1, ""), r.err)
        has(r.err, "Permission denied")
        r = e("exec", name, "/bin/bash", "-c", "echo ran")
        check(r.status, 126, r.all)
        check(e("exec", name, "echo", "on").out, "on\n")
        e.ok("rm", "-f", name)
        for log in glob.glob(f"{e.stage.watch}/logs/*"):
            os.unlink(log)


def docker_policy_live(e):
    """load, show, reload and unload in a container that runs; its log is whole after `docker rm -f`."""
    need_ours(e)
    write_session(f"{e.stage.watch}/session.json", {"name": "null"})
    for runtime in ("rf", "watched-ptrace"):
        name = e.background("--runtime", runtime, "img", "sh", "-c", FOREVER)
        id, tool = id_of(e, name), tool_of_docker(e)
        read = lambda: e("exec", name, "cat", SECRET).status
        check(read(), 0)
        log = f"{e.stage.watch}/logs/%ID%-%TIMESTAMP%.log"
        file = write_policy(e.stage, rule("deny"))
        key = f"{e.stage.watch}/operator"
        tool.ok("policy", "load", "--log", log, "--key", key, file, id)
        check(read(), 1)
        has(tool.ok("policy", "show", id), '"policy"', f"File: {file}", "Rules: 1", "Decisions: deny 1")
        write_policy(e.stage)
        has(tool.ok("policy", "reload", id), ".log.2")
        check(read(), 0)
        check([d["action"] for d in decisions(e.stage, id)], ["deny"])
        tool.ok("policy", "unload", id)
        check(tool.ok("policy", "show", id), "POLICIES (0)\n")
        (second,) = glob.glob(f"{e.stage.watch}/logs/{id}-*.log.2")
        os.unlink(second)
        write_policy(e.stage, rule("deny"))
        tool.ok("policy", "load", "--log", log, "--key", key, file, id)
        check(read(), 1)
        e.ok("rm", "-f", name)
        check([d["action"] for d in decisions(e.stage, id)], ["deny"])
        nothing_left(e, tool)


def docker_policy_freeze(e):
    """A container that a policy has frozen can be looked at, goes on, and is removed while it is frozen."""
    need_ours(e)
    for platform in PLATFORMS:
        write_policy(e.stage, rule("freeze"))
        tool = tool_of_docker(e)
        script = f"while :; do cat {SECRET} >/dev/null; echo on; sleep 0.1; done"
        name = e.background("--runtime", f"ruled-{platform}", "img", "sh", "-c", script)
        id = id_of(e, name)
        for times in (1, 2):
            wait_for(lambda: f"freeze {times}" in tool.ok("policy", "show", id), what="a frozen container")
            check(e.state(name, "Status"), "running")
            has(tool.ok("debug", "--ps", id), "cat")
            if times == 1:
                tool.ok("resume", id)
        has(e("logs", name).err, "not permitted")
        e.ok("rm", "-f", name)
        check([d["action"] for d in decisions(e.stage, id)], ["freeze"] * 2)
        nothing_left(e, tool)


# --- Podman -----------------------------------------------------------------------------------------------------------


def podman_watched(e):
    """Podman gives flags to the runtime; its containers are in the runtime's usual state directory."""
    need_ours(e)
    need_programs("cc")
    tool = Tool(e.stage, "/run/ringfence")
    for name, flags in runtimes(e.stage.watch).items():
        client = type(e)([*e.base, *(f"--runtime-flag={key}={value}" for key, value in flags.items())], e.runtime)
        client.stage, client.names = e.stage, e.names
        log = f"{e.stage.watch}/podman.jsonl"
        write_session(f"{e.stage.watch}/session.json", file_sink(log))
        shutil.copy(EXAMPLE, f"{e.stage.watch}/policy.yaml")
        command = ["sh", "-c", SCRIPT] if name.startswith("watched") else ["/usr/sbin/nginx"]
        container = client.background("img", *command)
        check(client.ok("wait", container).strip(), "0")
        id = client.ok("inspect", "--format", "{{.Id}}", container).strip()
        if name.startswith("watched"):
            wait_for(lambda: [kind for kind, _ in told(log)].count("SENTRY_EXIT_NOTIFY_PARENT") == 2)
            check_first_program(told(log), id)
            os.unlink(log)
        else:
            check_examples(decisions(e.stage, id), id)
        client.ok("rm", container)
        container = client.background("img", "sh", "-c", FOREVER)
        id = client.ok("inspect", "--format", "{{.Id}}", container).strip()
        act = lambda: client.ok("exec", container, "echo", "seen")
        check(tool.live_session(id, act, ["echo", "seen"]), id)
        clean(tool.ok("export-metrics", id))
        client.ok("rm", "-f", container)
        e.names = client.names
        for log in glob.glob(f"{e.stage.watch}/logs/*") + glob.glob(f"{e.stage.watch}/podman.jsonl"):
            os.unlink(log)
        wait_for(lambda: not leftovers(e.stage), what="an end without processes and state")


# --- metrics ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def metric_server(tool):
    """A metric server; gives a function that collects its figures, which promtool has nothing to say about."""
    need_programs("promtool")
    address = f"{tool.stage.watch}/metrics.sock"
    server = subprocess.Popen(
        tool.argv("metric-server", "--allow-unknown-root", address),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )

    def scrape():
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(address)
            s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            answer = b""
            while more := s.recv(65536):
                answer += more
        head, text = answer.decode().split("\r\n\r\n", 1)
        has(head, " 200 OK")
        clean(text)
        return series(text)

    try:
        check(server.stdout.readline(), f"listening on {address}\n")
        yield scrape
        server.terminate()
        check(server.wait(60), 0, "metric-server")
    finally:
        server.kill()
        server.wait()


def clean(text):
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    check((checked.returncode, checked.stdout + checked.stderr), (0, ""), "promtool")


def series(text):
    """[(name without prefix, labels, value)]"""
    found = []
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"runsc_(\w+?)(?:\{(.*)\})? (\S+)", line).groups()
            found.append((name, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")), float(value)))
    return found


def docker_metric_server(e):
    """One server for the containers of a runtime, those that come and go among them."""
    need_ours(e)
    write_session(f"{e.stage.watch}/session.json", {"name": "null"})
    tool = tool_of_docker(e)
    for runtime in ("rf", "watched-ptrace"):
        with metric_server(tool) as scrape:
            names = [e.background("--runtime", runtime, "img", "sh", "-c", FOREVER) for _ in range(2)]
            ids = [id_of(e, name) for name in names]
            all = scrape()
            check({l["sandbox"] for name, l, _ in all if name == "sandbox_running"}, set(ids))
            check({l["container"] for name, l, v in all if name == "syscalls_total" and v > 0}, set(ids))
            assert not any("pod_name" in l for _, l, _ in all)
            clean(tool.ok("export-metrics", ids[0]))
            e.ok("rm", "-f", names[0])
            check({l["sandbox"] for name, l, _ in scrape() if name == "sandbox_presence"}, {ids[1]})
            e.ok("rm", "-f", names[1])
            (running,) = [v for name, _, v in scrape() if name == "num_sandboxes_running"]
            check(running, 0)
        nothing_left(e, tool)


# --- containerd's shim ------------------------------------------------------------------------------------------------


def shim_trace_and_policy(c):
    """ctr names the file of settings."""
    stage = c.stage
    for platform in PLATFORMS:
        log = f"{stage.watch}/ctr.jsonl"
        write_session(f"{stage.watch}/session.json", file_sink(log))
        flags = ["--runtime-config-path", f"{stage.dir}/watched-{platform}.toml"]
        name = c.name()
        check(c(*c.run_args("--rm", *flags, IMAGE, name, "sh", "-c", SCRIPT)).status, 0)
        wait_for(lambda: [kind for kind, _ in told(log)].count("SENTRY_EXIT_NOTIFY_PARENT") == 2)
        check_first_program(told(log), name)
        os.unlink(log)
        flags = ["--runtime-config-path", f"{stage.dir}/ruled-{platform}.toml"]
        for refused, command, status, said in ENDS:
            write_policy(stage, refused)
            name = c.name()
            r = c(*c.run_args("--rm", *flags, IMAGE, name, *command))
            check((r.status, r.out), (status, ""), r.err)
            has(r.err, said)
            check({d["action"] for d in decisions(stage, name)}, {refused["action"]})
        name, tool = c.name(), Tool(stage, STATE)
        write_policy(stage)
        c.ok(*c.run_args("-d", *flags, IMAGE, name, "sh", "-c", FOREVER))
        act = lambda: c.ok("task", "exec", "--exec-id", "seen", name, "echo", "seen")
        check(tool.live_session(name, act, ["echo", "seen"]), name)
        remove(c, name)
        check(decisions(stage, name), [])


# --- pods -------------------------------------------------------------------------------------------------------------


def cri_trace_session(c):
    """A session begins with the pod and covers its containers, whose IDs are those of CRI."""
    for platform in PLATFORMS:
        log = f"{c.stage.watch}/pod.jsonl"
        with consumer(c.stage) as (sock, out):
            write_session(
                f"{c.stage.watch}/session.json", file_sink(log), {"name": "remote", "config": {"endpoint": sock}}
            )
            pod = c.pod(handler=f"watched-{platform}")
            stays = pod.run("sh", "-c", FOREVER)
            ends = pod.run("sh", "-c", SCRIPT)
            pod.wait(ends)
            for file in (log, out):
                wait_for(
                    lambda: [k for k, _ in about(told(file), ends)].count("SENTRY_EXIT_NOTIFY_PARENT") == 2,
                    what="the end of the programs",
                )
                check_first_program(about(told(file), ends), ends)
                check([k for k, _ in about(told(file), pod.id)], ["CONTAINER_START", "SENTRY_EXEC"])
                check([k for k, _ in about(told(file), stays)][:2], ["CONTAINER_START", "SENTRY_EXEC"])
            # One container of the pod by its ID.
            tool = Tool(c.stage, PODS)
            act = lambda: [pod.exec(stays, "echo", "seen"), pod.exec(other, "echo", "other")]
            other = pod.run("sh", "-c", FOREVER)
            check(tool.live_session(stays, act, ["echo", "seen"]), stays)
            act = lambda: [pod.exec(other, "echo", "other"), pod.exec(stays, "echo", "seen")]
            check(tool.watched(stays, act, "echo")["argv"], ["echo", "seen"])
            pod.remove()
        os.unlink(log)
        wait_for(lambda: not leftovers(c.stage), what="an end without processes and state")


def cri_example_rules(c):
    need_programs("cc")
    for kind in (*PLATFORMS, "overlay"):
        shutil.copy(EXAMPLE, f"{c.stage.watch}/policy.yaml")
        pod = c.pod(handler=f"ruled-{kind}")
        container = pod.run("/usr/sbin/nginx")
        check(pod.wait(container), (0, "Completed"))
        pod.remove()
        check_examples(decisions(c.stage, pod.id), container)


def cri_policy(c):
    """What a policy does to one container of a pod; the others stay."""
    for platform in PLATFORMS:
        for refused, command, status, said in ENDS:
            write_policy(c.stage, refused)
            pod = c.pod(handler=f"ruled-{platform}")
            stays = pod.run("sh", "-c", FOREVER)
            container = pod.run(*command)
            check(pod.wait(container), (status, "Error"))
            has("\n".join(pod.log(2)), said)
            check(pod.exec(stays, "echo", "on"), ("on\n", 0))
            pod.remove()
            found = decisions(c.stage, pod.id)
            check({(d["action"], d["container"]) for d in found}, {(refused["action"], container)})
        # A policy of one container, by its ID.
        write_policy(c.stage)
        pod = c.pod(handler=f"ruled-{platform}")
        one, other = (pod.run("sh", "-c", FOREVER) for _ in range(2))
        tool = Tool(c.stage, PODS)
        tool.ok("policy", "load", "--name", "one", write_policy(c.stage, rule("deny")), one)
        has(tool.ok("policy", "show", pod.id), '"one"', f"Container: {one}")
        check([pod.exec(container, "cat", SECRET)[1] for container in (one, other)], [1, 0])
        tool.ok("policy", "unload", "--name", "one", one)
        check(pod.exec(one, "cat", SECRET)[1], 0)
        pod.remove()
        check(decisions(c.stage, pod.id), [])
        wait_for(lambda: not leftovers(c.stage), what="an end without processes and state")


def cri_metrics(c):
    """Labels as Kubernetes names its pods."""
    write_session(f"{c.stage.watch}/session.json", {"name": "null"})
    for handler in ("ringfence", "watched-ptrace"):
        with metric_server(Tool(c.stage, PODS)) as scrape:
            pod = c.pod(handler=handler)
            containers = [pod.run("sh", "-c", FOREVER) for _ in range(2)]

            def calls():
                return [l for name, l, v in scrape() if name == "syscalls_total" and v > 0]

            # A program has been started before it has made a call.
            want = {pod.id, *containers}
            wait_for(lambda: {l["container"] for l in calls()} == want, what=f"calls of {want}")
            labels = calls()
            check({(l["sandbox"], l["pod_name"], l["namespace"]) for l in labels}, {(pod.id, pod.name, "default")})
            c("StopContainer", number(1, containers[0]))
            running = {l["container"]: v for name, l, v in scrape() if name == "container_running"}
            check((running.get(containers[0], 0), running[containers[1]]), (0, 1))
            pod.remove()

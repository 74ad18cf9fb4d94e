"""Sandboxes with several containers: saved in one image, ended, and put together again, container by container."""

import json, os, re, shutil, subprocess, time

RF = None  # the program under test
suite = None  # the module of the runner

KIND = "io.kubernetes.cri.container-type"
SANDBOX = "io.kubernetes.cri.sandbox-id"
NAME = "io.kubernetes.cri.container-name"
PAUSE = "import signal\nprint('paused', flush=True)\nwhile True: signal.pause()\n"
# Counts for its peer, and has a child that must stay its child.
SERVER = r"""
import os, socket, time
open("/tmp/mine", "w").write("server")
child = os.fork()
if child == 0:
    while True: time.sleep(1)
s = socket.create_server(("127.0.0.1", 7000))
c, _ = s.accept()
n = 0
while c.recv(1):
    n += 1
    assert open("/tmp/mine").read() == "server" and os.waitpid(child, os.WNOHANG) == (0, 0)
    c.sendall(b"%9d" % n)
while True: time.sleep(1)
"""
CLIENT = r"""
import os, socket, time
assert not os.path.exists("/tmp/mine")
while True:
    try:
        s = socket.create_connection(("127.0.0.1", 7000))
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
assert os.getpid() == 1
while True:
    s.sendall(b"x")
    print(int(s.recv(9, socket.MSG_WAITALL)), flush=True)
    time.sleep(0.01)
"""


def boxes(sandbox, names=(None, None), server=SERVER):
    """A pod's containers, none of which is there: its own, a server and a client."""
    programs = [(sandbox, PAUSE), (sandbox + "-server", server), (sandbox + "-client", CLIENT)]
    made = [suite.Box(id, "python3", "-c", script) for id, script in programs]
    for box, name in zip(made, (None, *names)):
        box.annotations = {KIND: "container", SANDBOX: sandbox} if box.id != sandbox else {KIND: "sandbox"}
        if name:
            box.annotations[NAME] = name
        RF.edit(box.bundle, lambda c, box=box: c.update(annotations=box.annotations))
    return made


def numbers(box):
    shown = suite.text(box.out)
    assert "Traceback" not in shown, shown
    return [int(n) for n in re.findall(r"^\d+$", shown[: shown.rfind("\n") + 1], re.M)]


def counts(box, more=5):
    """It goes on; its numbers, which follow on each other."""
    before = len(numbers(box))
    RF.wait_for(lambda: len(numbers(box)) >= before + more)
    got = numbers(box)
    suite.check(got, list(range(got[0], got[0] + len(got))))
    return got


def end(*all):
    for box in reversed(all):
        suite.works("delete", "--force", box.id)


def refused(box, image, id, *words):
    """Another container of the same configuration cannot be restored."""
    bundle = box.bundle + "-refused"
    shutil.copytree(box.bundle, bundle)
    RF.edit(bundle, lambda c: c["linux"].update(cgroupsPath=c["linux"]["cgroupsPath"] + "-refused"))
    suite.fails(RF("restore", "--bundle", bundle, "--image-path", image, "--detach", id), *words)
    shutil.rmtree(bundle)


def test_two_pods():
    pods = [boxes("pod-a"), boxes("pod-b", server=SERVER.replace("while c.recv", "os.sched_yield()\nwhile c.recv"))]
    for pod in pods:
        for box in pod:
            box.run()
    for pod in pods:
        counts(pod[2])
    images = [pod[0].checkpoint() for pod in pods]
    for pod, image in zip(pods, images):
        for box in pod:
            RF.wait_for(lambda box=box: suite.status(box.id) == "stopped")
        last = numbers(pod[2])[-1]
        end(*pod)
        for box in pod:
            box.restore(image)
        assert counts(pod[2])[0] in (last + 1, last + 2), (last, numbers(pod[2]))
    for pod in pods:
        sandbox, server, client = pod
        # Each is in its own namespaces, and has its own files.
        suite.check(suite.works("exec", server.id, "cat", "/tmp/mine"), "server")
        assert RF("exec", client.id, "cat", "/tmp/mine").returncode != 0
        inside = suite.works("exec", server.id, "sh", "-c", "ls /proc | grep -c '^[0-9]*$'")
        assert int(inside) >= 4, inside
        suite.check(len(json.loads(suite.works("ps", "--format", "json", client.id))), 1)
        suite.check(len(json.loads(suite.works("ps", "--format", "json", server.id))), 2)
    # One container ends by itself, the others go on.
    suite.works("kill", pods[0][2].id, "KILL")
    RF.wait_for(lambda: suite.status(pods[0][2].id) == "stopped")
    suite.check(suite.status(pods[0][1].id), "running")
    # And what was restored is saved again, without the one that has ended.
    image = pods[0][0].checkpoint()
    end(*pods[0])
    for box in pods[0][:2]:
        box.restore(image)
    suite.check(suite.works("exec", pods[0][1].id, "cat", "/tmp/mine"), "server")
    end(*pods[0][:2])
    end(*pods[1])


def test_pod_by_names_of_containers():
    """Kubernetes gives new IDs: containers are found by their names, and one image makes several pods."""
    pod = boxes("named", names=("server", "client"))
    for box in pod:
        box.run()
    counts(pod[2])
    image = pod[0].checkpoint("--leave-running")
    last = numbers(pod[2])[-1]
    twins = boxes("twin", names=("server", "client"))
    # In any order.
    for box in (twins[0], twins[2]):
        box.restore(image)
    argv = RF.argv(["wait", "--restore", "twin"])
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as waits:
        time.sleep(0.1)
        suite.check(waits.poll(), None)
        twins[1].restore(image)
        suite.check(waits.wait(60), 0)
    assert counts(twins[2])[0] <= last + 2
    counts(pod[2])
    end(*pod)
    end(*twins)


def test_pod_with_one_pid_namespace():
    """Containers that see each other's processes, with a host name of their own, stay what they are."""
    script = (
        "import os, socket, time\n"
        "seen = lambda: sorted(int(n) for n in os.listdir('/proc') if n.isdigit())\n"
        "before = seen(), os.getpid(), socket.gethostname()\nprint('up', flush=True)\n"
        "while not os.path.exists('/ctl/go'): time.sleep(0.01)\n"
        "assert before == (seen(), os.getpid(), socket.gethostname()), before\nprint('same', *before, flush=True)\n"
        "os.kill(1, 0)\nassert before[0][0] == 1 and len(before[0]) == 2 and before[2] == 'other', before\n"
        "print('ok', flush=True)\nwhile True: time.sleep(1)\n"
    )
    sandbox, member = suite.Box("shares", "python3", "-c", PAUSE), suite.Box("shares-2", "python3", "-c", script)
    RF.edit(sandbox.bundle, lambda c: c.update(annotations={KIND: "sandbox"}, hostname="one"))

    def run(box, image=None):
        if box is member:
            pid = json.loads(suite.works("state", "shares"))["pid"]

            def edit(c):
                c.update(annotations={KIND: "container", SANDBOX: "shares"}, hostname="other")
                others = [n for n in c["linux"]["namespaces"] if n["type"] != "pid"]
                c["linux"]["namespaces"] = [*others, {"type": "pid", "path": f"/proc/{pid}/ns/pid"}]

            RF.edit(box.bundle, edit)
        return box.restore(image) if image else box.run()

    run(sandbox)
    run(member).says("up")
    image = sandbox.checkpoint()
    end(sandbox, member)
    run(sandbox, image)
    run(member, image)
    member.go()
    member.says("ok")
    # With a namespace of its own it is not what it was.
    end(sandbox, member)
    run(sandbox, image)
    RF.edit(member.bundle, lambda c: next(n for n in c["linux"]["namespaces"] if n["type"] == "pid").pop("path"))
    refused(member, image, "shares-2", "do not share pid namespaces")
    end(sandbox)


def test_pod_that_waits():
    """What is said while containers are missing, and what ends a sandbox that waits."""
    pod = boxes("waits")
    for box in pod:
        box.run()
    counts(pod[2])
    fails, empty = suite.fails, RF.dir("empty") + "/image"
    fails(RF("checkpoint", "--image-path", empty, pod[1].id), "container in sandbox", "waits")
    fails(RF("clone", "waits", "more"), "several containers")
    suite.works("pause", pod[1].id)
    fails(RF("checkpoint", "--image-path", empty, "waits"), "is paused", "waits-server")
    suite.works("resume", pod[1].id)
    assert not os.path.exists(empty)
    image, other = pod[0].checkpoint("--leave-running"), pod[0].checkpoint("--leave-running")
    refused(pod[1], image, "more", "waits for no container")
    end(*pod)

    pod[0].restore(image)
    fails(RF("checkpoint", "--image-path", empty, "waits"), "waits-server, waits-client")
    fails(RF("exec", "waits", "true"), "not running")
    refused(pod[1], other, "waits-server", "image that its sandbox is restored from")
    refused(pod[1], image, "stranger", "no container stranger", "waits-server, waits-client")
    pod[1].restore(image)
    # One that waits can go, and come again.
    suite.works("kill", "waits-server", "KILL")
    RF.wait_for(lambda: suite.status("waits-server") == "stopped")
    suite.works("delete", "waits-server")
    pod[2].restore(image)
    suite.check(numbers(pod[2]), [])
    pod[1].restore(image)
    counts(pod[2])
    end(*pod)

    # The sandbox ends while it waits.
    pod[0].restore(image)
    pod[1].restore(image)
    suite.works("kill", "waits", "TERM")
    for box in pod[:2]:
        RF.wait_for(lambda box=box: suite.status(box.id) == "stopped")
    end(*pod[:2])

    # A container that does not fit ends all of them.
    pod[0].restore(image)
    pod[1].restore(image)
    RF.edit(pod[2].bundle, lambda c: c["mounts"].remove(next(m for m in c["mounts"] if m["destination"] == "/tmp")))
    refused(pod[2], image, pod[2].id, "/tmp")
    for box in pod[:2]:
        RF.wait_for(lambda box=box: suite.status(box.id) == "stopped")
    end(*pod[:2])
    RF.wait_for(lambda: not RF.processes())

"""Commands of the documents: every block with a command runs, or stands in ELSEWHERE with the reason why not."""

import os, re, shutil, subprocess, textwrap

from expect import check
from results import need_programs, need_root

RF = None  # the program under test
DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs")
PAGES = ("checkpoints", "policies", "watching", "gofer-protocol", "runbooks/profile-a-container")

# Blocks that do not run here, by their beginning.
ELSEWHERE = {
    "ringfence do --snapshot warm python3 server.py": "programs of the reader's; tests/checkpoint has snapshots",
    "ringfence do --allow-net pypi.org": "needs the internet; tests/checkpoint has sessions",
    "mkdir -p /var/log/ruled": "Docker; tests/clients",
    "id=$(docker inspect": "Docker; tests/clients",
    "ringfence --root /run/docker": "Docker; tests/clients",
    "ringfence --root /run/containerd": "Kubernetes; tests/clients",
    "ringfence install --runtime": "Docker; tests/clients",
    "podman ": "Podman; tests/clients",
    "[plugins.": "settings of containerd; tests/clients",
    "[ringfence_config]": "settings of containerd; tests/clients",
    "$ ringfence policy check": "test_policies_of_the_page",
    "ringfence debug --profile FILE.svg": "a synopsis",
}


def blocks(page):
    """The blocks of a page with a command of ringfence, indented or between fences."""
    with open(f"{DOCS}/{page}.md") as file:
        text = file.read()
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.S | re.M)
    indented = re.findall(r"(?:^    .*\n|^\n(?=    ))+", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
    found = [block.strip("\n") for block in fenced + [textwrap.dedent(block) for block in indented]]
    return [block for block in found if "ringfence" in block]


def commands(block):
    """A block as a script: of one with prompts, the lines behind these; none of its output."""
    if block.startswith("$ "):
        return "\n".join(line[2:] for line in block.splitlines() if line.startswith("$ "))
    return re.split(r"\n\n\d\d:\d\d:", block)[0]


class Reader:
    """Follows a page in a directory of its own."""

    def __init__(self, page):
        self.dir = RF.dir("page")
        self.left = [block for block in blocks(page) if not block.startswith(tuple(ELSEWHERE))]
        os.mkdir(self.dir + "/bin")
        with open(self.dir + "/bin/ringfence", "w") as file:
            line = " ".join(f"'{arg}'" for arg in RF.argv([]))
            file.write(f'#!/bin/sh\nexec {line} "$@"\n')
        os.chmod(self.dir + "/bin/ringfence", 0o755)
        os.symlink(os.path.abspath(DOCS), self.dir + "/docs")

    def follow(self, beginning, *changes, rest="", status=0):
        """Runs the next block, which begins so, with other numbers and places; what it wrote."""
        block = self.left.pop(0)
        assert block.startswith(beginning), f"the page has {block!r} where {beginning!r} was"
        script = commands(block)
        for old, new in [("/tmp/", self.dir + "/"), ("/run/my-gofer", self.dir + "/my-gofer"), *changes]:
            script = script.replace(old, new)
        env = {**os.environ, "PATH": f"{self.dir}/bin:{os.environ['PATH']}"}
        command = ["bash", "-e", "-o", "pipefail", "-c", script + "\n" + rest]
        with open(self.dir + "/out", "w+") as out:
            done = subprocess.run(
                command, cwd=self.dir, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=120
            )
            out.seek(0)
            text = out.read()
        check(done.returncode, status, f"{script}\n{text}")
        return text

    def end(self):
        check(self.left, [], "blocks that no test follows")


def bundle(dir, annotations):
    """A bundle like that of the page, which has a root."""
    os.makedirs(dir)
    shutil.copy(RF.bundle("sleep", "1000") + "/config.json", dir)
    RF.edit(dir, lambda c: c.update(annotations=annotations))


def test_reasons_are_needed():
    """What does not run is there."""
    all_blocks = [block for page in PAGES for block in blocks(page)]
    for beginning in ELSEWHERE:
        assert any(block.startswith(beginning) for block in all_blocks), beginning


def test_checkpoints():
    need_root()
    page = Reader("checkpoints")
    try:
        # The page's root is an image that the reader has: here it is the host's.
        root = """
            cat config.json | python3 -c '
import json, sys; c = json.load(sys.stdin); c["root"]["path"] = "/"; json.dump(c, open("config.json", "w"))'
        """
        page.follow("mkdir -p /tmp/bundle", ("# config.json\n", "\n" + textwrap.dedent(root)))
        page.follow(
            "ringfence pool serve",
            (
                "--size 10 warm &",
                "--size 1 warm >/dev/null 2>&1 & until ringfence pool list | grep -q warm; do sleep 0.1; done",
            ),
            ("--detach box", "--detach warmed"),
            ("--count 5 box", "--count 1 box"),
            rest="kill %1; wait",
        )
        for name in ("box", "warmed", "try-1"):
            RF("delete", "--force", name)
        kind, of = "io.kubernetes.cri.container-type", "io.kubernetes.cri.sandbox-id"
        bundle(page.dir + "/pod", {kind: "sandbox"})
        for name in ("web", "db"):
            bundle(page.dir + "/" + name, {kind: "container", of: "pod"})
        for name in ("pod", "web", "db"):
            quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            command = RF.argv(["run", "--detach", "--bundle", f"{page.dir}/{name}", name])
            check(subprocess.run(command, timeout=60, **quiet).returncode, 0, name)
        again = "for name in web db pod; do ringfence delete --force $name; done"
        page.follow("ringfence checkpoint", ("/image", "/pods"), ("/pods pod\n", f"/pods pod\n{again}\n"))
        page.end()
    finally:
        for name in ("box", "warmed", "try-1", "web", "db", "pod"):
            RF("delete", "--force", name)


def test_policies():
    page = Reader("policies")
    with open(f"{DOCS}/policies.md") as file:
        rules = re.search("```yaml\n(.*?)```", file.read(), re.S)[1]
    with open(page.dir + "/policy.yaml", "w") as file:
        file.write(rules)
    said = page.follow("$ ringfence policy keygen operator\n$ ringfence --policy", status=1)
    assert "cat: /etc/shadow: Permission denied" in said, said
    os.remove(page.dir + "/operator")
    key = page.dir + "/operator.pub"
    os.rename(key, key + ".kept")
    said = page.follow(
        "$ ringfence policy keygen operator\noperator signs",
        ("--key operator.pub", "--key operator.pub.kept"),
    )
    assert "signed by the given key" in said, said
    page.end()


def test_watching():
    need_programs("jq")
    page = Reader("watching")
    command = RF.start("do", "--name", "box", "sh", "-c", "while :; do id; sleep 0.1; done", stdout=subprocess.DEVNULL)
    try:
        # Its command is the one that was started: it does not end.
        assert "do --name box" in page.left.pop(0)
        RF.wait_for(lambda: RF("trace", "list", "box").returncode == 0)
        some = ("trace watch", "trace watch --point sentry/execve")
        for beginning, wanted in (
            ("ringfence trace watch box", "sentry_exec argv=[id]"),
            ("ringfence trace watch --point", "bin/id"),
        ):
            cut = [(" box", " box | head -2")] if beginning.endswith("box") else [("jq -c", "head -2 | jq -c")]
            said = page.follow(beginning, some, *cut)
            assert wanted in said, said
    finally:
        command.terminate()
        command.wait()
    said = page.follow("cat >session.json", ("/var/log/box", page.dir + "/box"))
    assert "/bin/id" in said, said
    said = page.follow("ringfence --policy docs/examples/watching.yaml")
    assert '"passwords"' in said, said
    page.end()


def test_gofer_protocol():
    page = Reader("gofer-protocol")
    subprocess.run(["tar", "-cf", page.dir + "/FILE.tar", "-C", "/etc", "passwd"], check=True)
    check(page.follow("docs/examples/gofer/archive.py", rest="kill %1").strip(), "passwd")
    page.end()


def test_profile():
    need_root()
    page = Reader("runbooks/profile-a-container")
    command = RF.start("do", "--name", "web", "sh", "-c", "while :; do :; done", stdout=subprocess.DEVNULL)
    try:
        RF.wait_for(lambda: RF("trace", "list", "web").returncode == 0)
        said = page.follow("ringfence debug --profile before.txt", ("--duration 10s", "--duration 200ms"))
        assert re.search(r"^\d+ guest$", said, re.M), said
        page.end()
    finally:
        command.terminate()
        command.wait()

"""ringfence policy: files of rules, cases, logs of decisions and keys."""

import hashlib, json, os, re, subprocess

from expect import check, one_line

RF = None  # the program under test
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/policies.md")


def written(name, text):
    path = os.path.join(RF.dir("policies"), name)
    with open(path, "w") as file:
        file.write(text)
    return path


def test_policies_of_the_page():
    """What the page shows is accepted, and its cases hold."""
    rules, cases, *more = re.findall("```yaml\n(.*?)```", open(PAGE).read(), re.S)
    policy, cases = written("policy.yaml", rules), written("cases.yaml", cases)
    checked = RF("policy", "check", policy)
    check((checked.returncode, checked.stderr, len(checked.stdout.splitlines())), (0, "", 5))
    tested = RF("policy", "test", policy, cases)
    check((tested.returncode, tested.stderr), (0, ""), tested.stdout)
    assert tested.stdout.strip() in open(PAGE).read(), tested.stdout
    for block in more:
        checked = RF("policy", "check", written("more.yaml", block))
        check((checked.returncode, checked.stderr), (0, ""), block)


def test_policy_with_mistakes():
    rules = "  - {point: file/opn, action: deny}\n  - {point: net/bind, path: /x, action: dny}\n"
    policy = written("p.yaml", "rules:\n" + rules)
    result = RF("policy", "check", policy)
    check((result.returncode, result.stdout), (1, ""))
    first, second, third, last = result.stderr.splitlines()
    assert f"{policy}:2:13: rule 1: " in first and "did you mean file/open?" in first, first
    assert f"{policy}:3:13: rule 2: " in second and "as address" in second, second
    assert f"{policy}:3:41: rule 2: " in third and "did you mean deny?" in third, third
    check(last, f"ringfence: {policy}: 3 mistakes")
    one_line(RF("policy", "check", policy + "x"), 128, policy + "x", "No such file")
    one_line(RF("policy", "chekc", policy), 2, "did you mean check ")


def test_policy_rules_that_never_match():
    rules = [{"point": "file/open", "path": "/etc/", "action": "log"}]
    rules.append({"name": "late", "point": "file/open", "path": "/etc/passwd", "action": "deny"})
    result = RF("policy", "check", written("p.json", json.dumps({"rules": rules}, indent="\t")))
    check(result.returncode, 0)
    assert 'rule 2 "late" (line 8) never matches: rule 1 (line 3)' in result.stderr, result.stderr


def test_policy_cases_that_differ():
    policy = written("p.yaml", "default: log\nrules:\n  - {point: file/open, path: /a, action: deny}\n")
    list = "  - {point: file/open, path: /a, expect: deny}\n  - {point: file/read, expect: allow}\n"
    cases = written("c.yaml", "cases:\n" + list)
    result = RF("policy", "test", policy, cases)
    check((result.returncode, result.stderr), (1, f"ringfence: {cases}: 1 of 2 cases differ\n"))
    lines = result.stdout.splitlines()
    check(lines[0], "ok      line 2: file/open: deny EACCES by rule 1 (line 3)")
    check(lines[1], "FAILED  line 3: file/read: log by the default; expected allow")


def test_policy_schema():
    result = RF("policy", "schema")
    check(result.returncode, 0)
    schema = json.loads(result.stdout)
    assert "point" in schema["$defs"]["Rule"]["required"], schema


def signed_log(key, path, decisions, change=None):
    """A log as another program would write it, signed by openssl."""
    lines, previous = [], "0" * 64

    def add(**line):
        nonlocal previous
        text = json.dumps({"number": len(lines), "previous": previous, **line}, separators=(",", ":"))
        lines.append(text)
        previous = hashlib.sha256(text.encode()).hexdigest()

    add(start={"version": 1, "sandbox": "box", "policy_sha256": "0" * 64, "time_ns": 1})
    for name in decisions:
        add(decision={"point": "file/open", "path": name, "action": "deny"})
    signed = written("signed", f"ringfence decision log 1\n{len(lines)}\n7\n{previous}\n")
    sign = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", signed]
    signature = subprocess.run(sign, capture_output=True, check=True).stdout.hex()
    der = subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-outform", "DER"], capture_output=True, check=True)
    add(end={"time_ns": 7, "signature": {"key": hashlib.sha256(der.stdout).hexdigest(), "ed25519": signature}})
    if change:
        change(lines)
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")


def test_policy_logs():
    dir = RF.dir("logs")
    key, log = dir + "/key", dir + "/log"
    made = RF("policy", "keygen", key)
    check((made.returncode, os.stat(key).st_mode & 0o777), (0, 0o600), made.stderr)
    pkey = ["openssl", "pkey", "-in", key, "-pubout"]
    public = subprocess.run(pkey, capture_output=True, text=True, check=True).stdout
    check(open(key + ".pub").read(), public)
    one_line(RF("policy", "keygen", key), 128, "there already")
    check(open(key + ".pub").read(), public)

    signed_log(key, log, ["/a", "/b", "/c"])
    result = RF("policy", "verify", "--key", key + ".pub", log)
    check((result.returncode, result.stderr), (0, ""))
    assert "5 lines, 3 decisions" in result.stdout and "signed by the given key" in result.stdout, result.stdout
    result = RF("policy", "verify", log)
    assert result.returncode == 0 and "not checked" in result.stdout, result

    def verify(*words, key=key + ".pub"):
        one_line(RF("policy", "verify", "--key", key, log), 1, *words)

    for change, words in (
        (lambda lines: lines.pop(2), ["line 3", "number 3 instead of 2"]),
        (lambda lines: lines.pop(), ["no end behind its 4 lines"]),
        (lambda lines: lines.append(lines[1]), ["line 6", "behind the end"]),
        (lambda lines: lines.__setitem__(2, lines[2].replace("/b", "/x")), ["line 4", "behind line 3"]),
        (lambda lines: lines.__setitem__(4, lines[4].replace('"time_ns":7', '"time_ns":8')), ["signature is wrong"]),
    ):
        signed_log(key, log, ["/a", "/b", "/c"], change)
        verify(*words)
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", dir + "/other"], check=True, timeout=60)
    signed_log(dir + "/other", log, ["/a"])
    verify("not by the given key")
    one_line(RF("policy", "verify", "--key", key, log), 128, "private key", "-pubout")

"""PostgreSQL, SQLite, git, npm and apt beside one another on one volume: they say of their data what they say on the
host.

ROUNDS=N in the environment makes them work longer."""

import os, shutil, subprocess

from results import need_file, need_programs, need_root

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "together.sh")
ROUNDS = os.environ.get("ROUNDS", "1")


class Together:
    def __init__(self, rf):
        self.rf = rf

    def volume(self, name):
        place = self.rf.dir(name)
        # PostgreSQL works as another user.
        os.chmod(place, 0o755)
        return place

    def test_programs_together(self):
        need_root()
        need_programs("sqlite3", "git", "npm", "node", "apt-get", "dpkg-deb", "setpriv", "pg_lsclusters")
        need_file("/usr/lib/postgresql")
        inside, outside = self.volume("together-inside"), self.volume("together")
        command = ["sh", SCRIPT, outside, ROUNDS]
        native = subprocess.run(command, capture_output=True, text=True, timeout=100 + 60 * int(ROUNDS))
        assert native.returncode == 0 and native.stdout.count("postgresql:\nt\nt\n") == 1, native.stdout + native.stderr
        process = self.rf.start(
            "do", f"--volume={inside}:{inside}", "sh", SCRIPT, inside, ROUNDS, stdout=subprocess.PIPE
        )
        shown = process.communicate(timeout=200 + 120 * int(ROUNDS))[0]
        assert shown == native.stdout, shown
        shutil.rmtree(inside)
        shutil.rmtree(outside)

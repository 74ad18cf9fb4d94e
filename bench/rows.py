"""The rows of bench/run that are programs: what each does, where, what it needs, and what the figures are aimed at."""

from dataclasses import dataclass, field, replace

# What the rows are aimed at, as multiples of native time.
AIM = {
    "getpid": 0.05,
    "getppid": 0.05,
    "clock_gettime": 1,
    "fstat": 0.7,
    "stat_tmp": 0.8,
    "stat_rootfs": 0.8,
    "pread_1": 0.6,
    "pread_4k": 0.8,
    "pread_4k_rootfs": 0.9,
    "pread_64k": 1.2,
    "pread_1m": 1.2,
    "pwrite_4k": 0.6,
    "open_close": 1,
    "create_unlink": 0.2,
    "pipe_same_thread": 1,
    "pipe_ping_pong": 1.2,
    "mmap_16_pages": 1.2,
    "mprotect": 1.3,
    "brk_64k": 1.2,
    "signal_self": 2,
    "thread": 1.5,
    "fork_wait": 1.2,
    "vfork_exec_wait": 1.4,
    "unix_64": 0.8,
    "epoll_idle": 1.3,
    "sh_500_true": 1.5,
    "make_c": 1.15,
    "make_c_bind": 1.2,
    "python_import": 1.3,
    "python_compileall": 1.1,
    "ruby_start": 1.4,
    "node_start": 1.2,
    "git_commit": 1.1,
    "git_status_log": 1.3,
    "tar_create": 1.3,
    "find_stat": 1.3,
    "sqlite_sync_bind": 1.3,
    "ffmpeg_x264": 1,
    "fsstress": 0.5,
    "redis_unix_set_c5": 1.3,
    "redis_unix_get_c5": 1.3,
    "redis_unix_set_c50": 1.3,
    "redis_unix_get_c50": 1.3,
    "redis_unix_set_p16": 1.3,
    "redis_unix_get_p16": 1.3,
    "pgbench_unix_select_bind": 1.5,
    "pgbench_unix_tpcb_bind": 1.3,
    "fio_randread": 1.1,
    "fio_randread_bind": 1.3,
    "fio_read_1m": 1.2,
    "fio_read_1m_bind": 1.2,
    "fio_randwrite_bind": 1.3,
    "fio_write_fsync_bind": 1.1,
    "stress_switch": 1.5,
    "stress_pipe": 1.5,
    "stress_futex": 1.1,
    "stress_fork": 1.4,
    "stress_mmap": 1.1,
    "stress_malloc": 1.1,
    "sysbench_threads": 1.1,
    "sysbench_mutex": 1,
    "sysbench_memory": 1,
    "sysbench_cpu": 1,
    "tcp_64": 0.6,
    "tcp_connect": 0.7,
    "redis_tcp_set_c50": 1.3,
    "redis_tcp_get_c50": 1.3,
    "redis_tcp_get_p16": 1.3,
    "nginx_1k_keepalive": 1.3,
    "nginx_1m": 1.5,
    "nginx_1k_new": 1.5,
    "iperf3_loopback": 1,
}


@dataclass
class Program:
    """Shell text: `prep` runs first, `run` is timed inside by date, in an empty directory of the root or of a bind
    mount. With `cold`, `prep` runs natively before the container starts, which so knows nothing of the files."""

    run: str
    prep: str = ""
    needs: dict = field(default_factory=dict)  # program -> Debian package
    bind: bool = False
    cold: bool = False


@dataclass
class Workload:
    """bench/workloads/SCRIPT, called with the rows wanted; it prints a row and nanoseconds per operation on each
    line."""

    script: str
    rows: list
    needs: dict
    bind: bool = False


# 5,000 small files, made by the shell itself.
FILES = "mkdir t; cd t; for i in $(seq 50); do mkdir d$i; for k in $(seq 100); do echo $i $k >d$i/f$k; done; done"
LUA = r"""cp "$SRC"/lua/*.[ch] .; rm -f lua.c luac.c onelua.c ltests.c
printf 'O := $(patsubst %%.c,%%.o,$(wildcard *.c))\nall: $(O)\n%%.o: %%.c\n\tgcc -O1 -c $<\n' >Makefile"""
COMMIT = "git -c user.name=n -c user.email=e -c gc.auto=0 commit -qm m"
MODULES = (
    "json,re,os,sys,subprocess,threading,asyncio,sqlite3,ctypes,email,http.client,urllib.request,xml.dom.minidom,"
    "unittest,decimal,csv,zipfile,tarfile,tempfile,logging"
)
LIBRARIES = "json set time date optparse fileutils erb uri yaml net/http tempfile digest logger open3 pstore csv"
GCC = {"gcc": "gcc", "make": "make"}


def sqlite(n):
    return (
        f'(for i in $(seq {n}); do echo "insert into t values($i);"; done) | sqlite3 x.db; [ "$(sqlite3 x.db '
        f'"select count(*) from t")" = {n} ]'
    )


PROGRAMS = {
    "sh_500_true": Program("i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done"),
    "make_c": Program("make -s -j2", LUA, GCC),
    "make_c_bind": Program("make -s -j2", LUA, GCC, bind=True),
    "python_import": Program(f"for i in 1 2 3 4 5 6 7 8 9 10; do python3 -c 'import {MODULES}'; done"),
    "python_compileall": Program(
        "python3 -m compileall -q p",
        """mkdir p
        python3 -c 'import os,asyncio,email; print(*(os.path.dirname(m.__file__) for m in (asyncio, email)))' |
        xargs -I% sh -c 'cp -r % p'
        find p -name __pycache__ | xargs rm -rf""",
    ),
    "ruby_start": Program("for i in 1 2 3 4 5 6 7 8 9 10; do ruby -e 1; done", needs={"ruby": "ruby"}),
    "ruby_require": Program(
        f"for i in 1 2 3 4 5; do ruby -e '%w[{LIBRARIES}].each {{ |l| require l }}'; done", needs={"ruby": "ruby"}
    ),
    "node_start": Program("for i in 1 2 3 4 5; do node -e 1; done", needs={"node": "nodejs"}),
    "git_commit": Program(
        f"git init -q .; git add .; {COMMIT}",
        FILES,
        {"git": "git"},
    ),
    "git_status_log": Program(
        "for i in 1 2 3 4 5; do git status; git log; done",
        f"{FILES}; git init -q .; git add .; {COMMIT}",
        {"git": "git"},
    ),
    "tar_create": Program("tar -cf x.tar t", FILES + "; cd .."),
    "tar_extract": Program("tar -xf x.tar", FILES + "; cd ..; tar -cf x.tar t; rm -r t"),
    "rm_tree": Program("rm -r t", FILES + "; cd .."),
    "find_stat": Program("for i in 1 2 3 4 5; do find t -type f -size -1; done", FILES + "; cd .."),
    "sqlite_sync": Program(sqlite(500), "sqlite3 x.db 'create table t(a)'", {"sqlite3": "sqlite3"}),
    "sqlite_sync_bind": Program(sqlite(500), "sqlite3 x.db 'create table t(a)'", {"sqlite3": "sqlite3"}, bind=True),
    "ffmpeg_x264": Program(
        "ffmpeg -nostdin -v error -f lavfi -i testsrc2=size=1280x720:rate=30:duration=2 -c:v libx264 -y o.mp4; [ -s "
        "o.mp4 ]",
        needs={"ffmpeg": "ffmpeg"},
    ),
    # The seed makes the work the same everywhere; three rounds, as ten take a slow disk a minute. FSSTRESS names the
    # program: it is the Linux Test Project's.
    "fsstress": Program('"$FSSTRESS" -d . -n 500 -p 20 -l 3 -s 1'),
}

# Files of the host that the container has not seen: each is looked for once.
PROGRAMS["find_cold"] = Program("find t -type f -size -1", FILES, cold=True)
# Ways to work with many files, in a directory that is shared with the host.
SHARED = ["git_commit", "git_status_log", "tar_create", "tar_extract", "rm_tree", "find_stat", "find_cold"]
PROGRAMS |= {f"{row}_bind": replace(PROGRAMS[row], bind=True) for row in SHARED}

WORKLOADS = [
    Workload(
        "redis",
        [
            "redis_unix_set_c5",
            "redis_unix_get_c5",
            "redis_unix_set_c50",
            "redis_unix_get_c50",
            "redis_unix_set_p16",
            "redis_unix_get_p16",
            "redis_tcp_set_c50",
            "redis_tcp_get_c50",
            "redis_tcp_get_p16",
        ],
        {"redis-server": "redis-server", "redis-benchmark": "redis-tools"},
    ),
    Workload(
        "nginx", ["nginx_1k_keepalive", "nginx_1m", "nginx_1k_new"], {"nginx": "nginx-light", "ab": "apache2-utils"}
    ),
    Workload("iperf3", ["iperf3_loopback"], {"iperf3": "iperf3"}),
    Workload(
        "pgbench",
        ["pgbench_unix_select_bind", "pgbench_unix_tpcb_bind"],
        {"postgres": "postgresql", "pgbench": "postgresql"},
        True,
    ),
    Workload("fio", ["fio_randread", "fio_randwrite", "fio_read_1m"], {"fio": "fio"}),
    Workload(
        "fio",
        ["fio_randread_bind", "fio_randwrite_bind", "fio_read_1m_bind", "fio_write_fsync_bind"],
        {"fio": "fio"},
        True,
    ),
    Workload(
        "stress-ng",
        ["stress_switch", "stress_pipe", "stress_futex", "stress_fork", "stress_mmap", "stress_malloc"],
        {"stress-ng": "stress-ng"},
    ),
    Workload(
        "sysbench", ["sysbench_threads", "sysbench_mutex", "sysbench_memory", "sysbench_cpu"], {"sysbench": "sysbench"}
    ),
]

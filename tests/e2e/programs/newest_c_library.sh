# needs: bash python3 perl git gawk bc file sqlite3 zstd xz make patch
# places: trixie (the newest C library makes its system calls by other instructions)
# again: no (a program that dies now and then is what this is about)
# Everyday programs, each many times, from a shell with children, substitutions, pipes and signals.
set -u
exec 2>&1
d=$(mktemp -d) && cd "$d" || exit 1
seq 2000 >numbers; cp /etc/passwd words; mkdir -p tree/a/b tree/c; for i in 1 2 3; do seq $((i * 50)) >tree/a/$i; done
cat >storm.pl <<'P'
use Time::HiRes qw(setitimer ITIMER_REAL time);
pipe R, W;
$SIG{ALRM} = sub { $n++ };
setitimer(ITIMER_REAL, 2e-4, 2e-4);
$end = time + 1.5;
while (time < $end || $n < 100) { syswrite W, "x"; sysread R, $b, 1 }
setitimer(ITIMER_REAL, 0, 0);
print "calm\n";
P
failed=0 ran=0
# many COUNT COMMAND: the same output and status each time.
many() {
    count=$1; shift
    first=$(bash -c "$1" 2>&1; echo "status $?")
    i=1
    while [ $i -lt "$count" ]; do
        again=$(bash -c "$1" 2>&1; echo "status $?")
        [ "$again" = "$first" ] || { echo "run $i of: $1"; echo "$again" | head -3; failed=$((failed + 1)); }
        i=$((i + 1))
    done
    ran=$((ran + 1))
    echo "$1: $(echo "$first" | cksum)"
}
many 3 'for i in $(seq 400); do x=$(true); done; echo fine'
many 2 'n=0; for i in $(seq 150); do x=$(echo $i | cat); [ "$x" = $i ] && n=$((n + 1)); done; echo $n'
many 2 'trap "n=\$((n + 1))" USR1; n=0; for i in $(seq 100); do kill -USR1 $$; x=$(echo $i); done; echo $n'
many 2 'for i in $(seq 60); do sleep 0 & done; wait; echo all'
many 2 'for i in $(seq 40); do (exit $((i % 3))); echo $?; done'
many 2 'coproc cat; for i in $(seq 50); do echo $i >&"${COPROC[1]}"; read -r x <&"${COPROC[0]}"; echo $x; done'
many 15 'cat numbers | head -100 | tail -5'
many 15 'sort -n numbers | uniq -c | wc -l'
many 15 'grep -c 7 numbers; grep -rn 50 tree | sort'
many 15 'sed "s/1/x/g;5q" numbers'
many 15 'gawk "{ s += \$1 } END { print s }" numbers'
many 15 'find tree -type f | sort | xargs wc -l'
many 15 'ls -l tree | wc -l; stat -c %s numbers'
many 15 'cut -d: -f1 words | tr a-z A-Z | paste -s'
many 15 'md5sum numbers; sha256sum numbers; cksum numbers; b2sum numbers'
many 15 'od -An -tx1 numbers | head -3; base64 numbers | tail -1'
many 15 'diff tree/a/1 tree/a/2 | wc -l; cmp tree/a/1 tree/a/2'
many 15 'tar cf - tree --sort=name --mtime=@0 | tar tf -'
many 15 'gzip -c numbers | gunzip | cksum'
many 6 'xz -0 -c numbers | xz -dc | cksum'
many 6 'zstd -q -c numbers | zstd -dcq | cksum'
many 15 'echo "2^100" | bc; expr 6 \* 7; factor 1234567890'
many 15 'date -u -d @0 +%F; printf "%05d\n" 42; seq -s, 10'
many 15 'file -b numbers; head -c 100 /dev/zero | tr "\0" x | fold -w 20'
many 15 'env -i A=1 env; printenv HOME; nice; id -u; uname -s; pwd | wc -l'
many 15 'timeout 5 true; timeout 0.05 sleep 5; echo $?'
many 15 'mkdir -p x/y; cp -r tree x; mv x/tree x/y; ln -s y x/l; readlink x/l; du -a x | wc -l; rm -r x'
many 15 'tee a b <numbers | wc -l; comm -12 a b 2>/dev/null | wc -l; split -l 700 a s.; ls s.*; rm a b s.*'
many 15 'mktemp -u xXXX | wc -c; basename /a/b; dirname /a/b; realpath /; test -d /; echo $?; truncate -s 5 t; rm t'
many 15 'shuf -i 1-100 | sort -n | cksum; nl numbers | tail -1; tac numbers | head -1; rev numbers | sort | head -2'
many 5 'perl -e "print map { \$_ ** 2, qq(\n) } 1 .. 20"'
# Signals that arrive right behind a call.
many 4 'perl storm.pl'
many 4 'perl -e "for (1 .. 20) { my \$p = open my \$f, q(-|), q(echo hi); print scalar <\$f>; close \$f }"'
many 5 'python3 -S -c "import os; print([os.waitpid(os.fork() or os._exit(i), 0)[1] for i in range(12)])"'
many 4 'python3 -S -c "print(sum(i * i for i in range(10000)))"'
many 5 'sqlite3 :memory: "create table t(a); insert into t values (1), (2); select sum(a) from t"'
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=b
many 3 'git init -q g; cd g; git commit -qm x --allow-empty; git log --format=%s; rm -r ../g'
many 4 'printf "all:\n\t@echo made \$@\n" >m; make -s -f m; rm m'
many 4 'cp tree/a/1 p; diff -u p tree/a/2 >p.diff; patch -s p p.diff; cmp p tree/a/2; echo $?; rm p p.diff'
many 6 'ps -o comm= -p $$; pgrep -c bash >/dev/null; free -V | wc -l; kill -l | wc -l'
many 6 'mkfifo f; seq 3 >f & cat f; wait; rm f'
many 6 'flock numbers true; echo $?; setsid -w true; echo $?; nohup true; logger -s --no-act hi 2>/dev/null; echo done'
cd /; rm -r "$d"
echo "$ran programs, $failed failed"
[ $failed = 0 ]

set -e
echo one | cat | tr a-z A-Z
cat <<E
here $((2 + 3)) $(echo sub)
E
cat <<'E'
raw $HOME
E
seq 1000 | grep 7 | wc -l | tr -d ' '
(exit 3) || echo "status $?"
trap 'echo trapped' EXIT
trap 'echo usr1' USR1
kill -USR1 $$
sh -c 'kill -TERM $$; echo no' || echo "killed $?"
false && echo no || echo or
x=$(printf 'a\nb\nc\n' | while read l; do printf '%s.' "$l"; done); echo "$x"
sleep 0.05 & p=$!; wait $p; echo "waited $?"
(sleep 5; echo no) & p=$!; { kill $p; wait $p; } 2>/dev/null || echo "wait $?"
echo to-err >&2
exec 3>f; echo three >&3; exec 3>&-; cat f
mkfifo q; (echo through fifo >q) & cat q
ulimit -n 64; ulimit -n
umask 077; : >g; ls -l g | cut -c1-10
i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done; echo "$i programs"
yes | head -n 3
test -t 0 || echo no terminal
cd /; pwd

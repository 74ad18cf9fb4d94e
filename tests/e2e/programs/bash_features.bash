set -o pipefail
declare -A m=([a]=1 [b]=2); for k in $(printf '%s\n' "${!m[@]}" | sort); do echo "$k=${m[$k]}"; done
diff <(seq 5) <(seq 1 2 9) | head -3
coproc { while read l; do echo "got $l"; done; }
echo hello >&"${COPROC[1]}"; read -u "${COPROC[0]}" r; echo "$r"
exec {fd}>&"${COPROC[1]}"; exec {fd}>&-; kill $COPROC_PID; wait $COPROC_PID 2>/dev/null; echo "coproc $?"
false | true; echo "pipefail $?"
trap 'echo "int"' INT; kill -INT $$; 
trap 'echo child' CHLD; sleep 0.01 & wait $!; trap - CHLD
set -m; sleep 30 & jobs -l | sed -E 's/ +[0-9]{2,} / PID /'; kill %1; wait %1; echo "job $?"; set +m
bash -c '(sleep 0.02; kill -STOP $BASHPID; exit 5) & p=$!; while ! grep -q "^State:.T" /proc/$p/status; do sleep 0.01; done; kill -CONT $p; wait $p; echo resumed $?'
read -t 0.05 x < <(sleep 1); echo "timeout $(( $? > 128 ))"
printf '%s\n' {a..e}{1..2} | paste -sd,
mapfile -t lines < <(seq 3); echo "${#lines[@]}"
echo $BASHPID | grep -qx '[0-9]*' && echo pid
time_out=$( { TIMEFORMAT=%R; time sleep 0.01; } 2>&1 ); [[ $time_out =~ ^0\. ]] && echo timed
p=(); for i in $(seq 60); do (exit $((i % 7))) & p+=($!); done; s=0; for j in "${p[@]}"; do wait $j; s=$((s + $?)); done; echo "sum $s"
f() { local x=$1; (( x > 0 )) && f $((x - 1)) || echo deep; }; f 300
timeout 0.1 sleep 5; echo "timeout $?"
exec 5<>/tmp/rw.$$; echo line >&5; exec 5<&-; cat /tmp/rw.$$; rm /tmp/rw.$$
kill -l 9
bash -c 'exit 300'; echo $?

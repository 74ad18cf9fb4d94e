mkfifo gate; exec 3<>gate; i=0; while [ $i -lt 300 ]; do (read x <&3; exit $((i % 5))) & i=$((i+1)); done
set -- /proc/[0-9]*; test $# -ge 300 && echo many
i=0; while [ $i -lt 300 ]; do echo go >&3; i=$((i+1)); done; wait; echo done; jobs | wc -l

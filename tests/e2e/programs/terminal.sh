# needs: script
set -e
script -qec 'tty | cut -c1-9; stty -a | grep -o "isig icanon"; stty size >/dev/null && echo size
    test -t 0 && test -t 1 && echo terminal
    bash -ic "sleep 100 & jobs; kill %1" 2>/dev/null | grep -o Running' /dev/null </dev/null | tr -d '\r'
script -qec 'exit 7' /dev/null </dev/null || echo "exit $?"
(sleep 0.3; printf '\003') |
    timeout 20 script -qec 'trap "echo int; exit 0" INT; while :; do sleep 0.05; done' /dev/null |
    grep -o int | head -1

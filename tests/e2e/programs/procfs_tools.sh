# needs: ps
set -e
sleep 50 & p=$!; ps -o comm= -p $p; ps -ef | grep -c '[s]leep 50'; pgrep -x sleep >/dev/null && echo pgrep
ps -eo pid,ppid,stat,args | awk -v p=$p '$1==p{print $4,$5}'
top -bn1 | head -1 | cut -c1-3; free | head -1 | awk '{print $1}'; uptime | grep -c load; vmstat | wc -l
kill $p; wait $p 2>/dev/null || echo $?
cat /proc/self/comm; tr '\0' ' ' </proc/self/cmdline; echo; readlink /proc/self/exe | sed 's|.*/||'
grep -c processor /proc/cpuinfo | awk '{print ($1>0)}'; test -d /proc/$$/fd && ls /proc/$$/fd | head -3
pidof nonesuch || echo none; pstree -V >/dev/null 2>&1; w >/dev/null 2>&1 || true; ps aux | head -1

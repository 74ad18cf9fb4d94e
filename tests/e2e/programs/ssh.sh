# needs: sshd ssh ssh-keygen sftp scp git
# A server of OpenSSH and its clients: commands, terminals, files, forwarded ports and agents, and git.
cd "$(mktemp -d)" || exit 1
work=$PWD
umask 077
mkdir -p /run/sshd && chmod 755 /run/sshd
ssh-keygen -q -t ed25519 -N '' -f host_key
ssh-keygen -q -t ed25519 -N '' -f key
cp key.pub authorized
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
cat > sshd_config <<CONFIG
Port $port
ListenAddress 127.0.0.1
HostKey $work/host_key
AuthorizedKeysFile $work/authorized
StrictModes no
UsePAM no
PidFile $work/pid
PermitRootLogin prohibit-password
AcceptEnv E2E_*
PrintMotd no
Subsystem sftp internal-sftp
CONFIG
/usr/sbin/sshd -f sshd_config -E log || { cat log; exit 1; }
while ! [ -s pid ]; do sleep 0.1; done
cat > config <<CONFIG
Host box
    HostName 127.0.0.1
    Port $port
    User root
    IdentityFile $work/key
    IdentitiesOnly yes
    UserKnownHostsFile $work/known
    StrictHostKeyChecking accept-new
    SendEnv E2E_*
    LogLevel ERROR
CONFIG
box() { ssh -F config "$@"; }

echo "== commands"
box box 'id -un; echo "$SHELL_NOT_SET" | wc -c; echo to-stderr >&2; exit 7' 2>&1; echo "status $?"
E2E_WORD=passed box box 'echo $E2E_WORD'
head -c 5000000 /dev/zero | tr '\0' s > big
box box cksum < big
box box "cat $work/big" | cksum
box -tt box 'tty >/dev/null && stty size && echo a terminal' < /dev/null | tr -d '\r' | tail -1
seq 6 | xargs -P 3 -I{} ssh -F config box 'echo session {}' | sort
box -o PasswordAuthentication=no -o IdentityFile=$work/host_key box true 2>&1 | sed 's/.*: //'

echo "== files"
scp -q -F config big box:$work/copied && cmp big copied && echo copied
printf '%s\n' "mkdir $work/there" "put big $work/there/big" "rename $work/there/big $work/there/large" \
    "chmod 640 $work/there/large" "ls $work/there" | sftp -q -F config -b - box | sed "s,$work,WORK,g"
stat -c '%a %s' there/large

echo "== forwarding"
python3 - ready <<'PY' &
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
open(sys.argv[1] + ".new", "w").write(str(server.getsockname()[1]))
import os
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    peer, _ = server.accept()
    data = b""
    while part := peer.recv(65536):
        data += part
    peer.sendall(b"%d bytes" % len(data))
    peer.close()
PY
echo_server=$!
while ! [ -e ready ]; do sleep 0.1; done
free() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }
local=$(free) remote=$(free) socks=$(free)
box -M -S control -f -N -L "$local:127.0.0.1:$(cat ready)" -R "$remote:127.0.0.1:$(cat ready)" -D "127.0.0.1:$socks" \
    -o ExitOnForwardFailure=yes box
python3 - $local $remote <<'PY'
import socket, sys
for port in map(int, sys.argv[1:]):
    peer = socket.create_connection(("127.0.0.1", port))
    peer.sendall(b"f" * 300000)
    peer.shutdown(socket.SHUT_WR)
    print(peer.recv(100).decode())
PY
python3 - $socks "$(cat ready)" <<'PY'
import socket, struct, sys
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
peer.sendall(b"\5\1\0")
assert peer.recv(2) == b"\5\0"
peer.sendall(b"\5\1\0\1" + socket.inet_aton("127.0.0.1") + struct.pack("!H", int(sys.argv[2])))
assert peer.recv(10)[:2] == b"\5\0"
peer.sendall(b"through a proxy")
peer.shutdown(socket.SHUT_WR)
print(peer.recv(100).decode())
PY
ssh -F config -S control box 'echo over the same connection'
ssh -F config -S control -O exit box 2>&1
kill $echo_server
wait $echo_server 2>/dev/null

echo "== agent"
eval "$(ssh-agent)" > /dev/null
ssh-add -q key && ssh-add -l | wc -l
box -A box 'ssh-add -l | wc -l'
kill "$SSH_AGENT_PID"

echo "== git"
git init -q --bare repo.git
git init -q tree && cd tree || exit 1
git config user.email e2e@localhost && git config user.name e2e
seq 20000 > numbers && git add . && git -c commit.gpgsign=false commit -qm numbers
export GIT_SSH_COMMAND="ssh -F $work/config"
git push -q box:$work/repo.git HEAD:refs/heads/main && git ls-remote box:$work/repo.git | cut -f2
cd .. && git clone -q -b main box:$work/repo.git again && cksum < again/numbers
kill "$(cat pid)"
while [ -e pid ]; do sleep 0.1; done
box box true 2>&1 | sed "s/$port/PORT/"

#!/bin/sh
# together.sh DIR ROUNDS: PostgreSQL, SQLite, git, npm and apt work beside one another below DIR. Each says what became
# of its data; what it says does not depend on time.
dir=$1 rounds=$2
cd "$dir" || exit 1
dir=$PWD HOME=$PWD/home
export HOME npm_config_update_notifier=false
mkdir -p "$HOME"

postgresql() {
    bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
    mkdir pg && chown nobody pg && cd pg || return
    as() { setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME="$dir/pg" PATH="$bin:$PATH" "$@"; }
    as initdb -D data -A trust -U t --no-locale -E UTF8 > init.log 2>&1 || { cat init.log; return; }
    # A socket's path is short, a volume's may be long.
    sock=$(as mktemp -d /tmp/pg.XXXXXX)
    as sh -c "cat >> data/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$sock'
shared_buffers = 16MB
checkpoint_timeout = 30s
CONF
    start() { as pg_ctl -s -w -t 60 -D data -l log start || cat log; }
    start
    as pgbench -q -i -h "$sock" -U t postgres > load.log 2>&1 || cat load.log
    for round in $(seq "$rounds"); do
        as pgbench -n -c 4 -j 2 -t 25 -h "$sock" -U t postgres 2>&1 | grep -E 'failed|error' | grep -v ': 0 '
        as psql -qAt -h "$sock" -U t postgres -c CHECKPOINT -c 'VACUUM'
        as pg_ctl -s -w -m fast -D data stop
        start
    done
    as psql -qAt -h "$sock" -U t postgres <<SQL
SELECT count(*) = 100 * $rounds FROM pgbench_history;
SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history);
SQL
    as pg_ctl -s -w -m fast -D data stop
    as pg_checksums --check -D data 2>&1 | grep -i 'bad'
    rm -rf "$sock"
}

sqlite() {
    mkdir sqlite && cd sqlite || return
    sql() { sqlite3 -cmd '.timeout 60000' "$@"; }
    for mode in delete wal truncate; do
        sql $mode.db "PRAGMA journal_mode = $mode; CREATE TABLE t(n); INSERT INTO t VALUES (0)"
        for round in $(seq "$rounds"); do
            for writer in 1 2 3; do
                (for i in 1 2 3 4 5; do sql $mode.db "UPDATE t SET n = n + 1"; done) &
            done
            sql $mode.db "PRAGMA integrity_check" | grep -v '^ok$'
            wait
        done
        sql $mode.db "SELECT n = 15 * $rounds FROM t; PRAGMA integrity_check"
    done
}

repository() {
    mkdir git && cd git || return
    git init -q -b main . && git config user.name n && git config user.email e && git config gc.auto 0
    (while ! [ -e ../git.done ]; do
        git status --short > /dev/null || echo "status: $?"
        git ls-files > /dev/null || echo "ls-files: $?"
        git log --oneline -3 > /dev/null 2>&1
    done) &
    for round in $(seq "$rounds"); do
        for i in 1 2 3 4 5 6 7 8; do
            seq $((round * i)) > file.$i
            git --no-optional-locks status --short > /dev/null
            # The reader refreshes the index at times, and then has its lock.
            until git add file.$i 2> add.err; do grep -v 'index.lock\|Another git\|^$' add.err | grep fatal; done
            until git commit -q --allow-empty -m "$round.$i" 2> add.err; do :; done
        done
        git gc -q
    done
    touch ../git.done
    wait
    git fsck --strict 2>&1 | grep -v '^dangling\|^Checking'
    git rev-list --count HEAD | grep -qx $((8 * rounds)) && echo "all commits"
    git status --short | grep -v add.err
}

npm_packages() {
    mkdir npm && cd npm || return
    for name in one two; do
        mkdir -p $name/package
        echo "{\"name\": \"$name\", \"version\": \"1.0.0\", \"main\": \"index.js\"}" > $name/package/package.json
        echo "module.exports = '$name'" > $name/package/index.js
        tar -C $name -czf $name.tgz package
    done
    mkdir project && cd project && npm init -y > /dev/null
    for round in $(seq "$rounds"); do
        npm install --offline --no-audit --no-fund --loglevel=error ../one.tgz ../two.tgz > log 2>&1 || cat log
        node -e 'console.log(require("one") + require("two"))' | grep -v '^onetwo$'
        npm uninstall --offline --no-audit --no-fund --loglevel=error one two > log 2>&1 || cat log
        [ -e node_modules/one ] && echo "one is still there"
    done
    npm install --offline --no-audit --no-fund --loglevel=error ../one.tgz > log 2>&1 || cat log
    node -p 'require("one") + Object.keys(require("./package-lock.json").packages).length'
}

packages() {
    mkdir -p apt/pool apt/root/var/lib/dpkg/info apt/root/var/lib/dpkg/updates apt/lists/partial
    mkdir -p apt/cache/archives/partial && cd apt || return
    touch root/var/lib/dpkg/status root/var/lib/dpkg/available empty
    for name in one two; do
        mkdir -p $name/DEBIAN $name/usr/share/$name
        printf 'Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: m <m@example.org>\nDescription: d\n' $name \
            > $name/DEBIAN/control
        seq 1000 > $name/usr/share/$name/numbers
        dpkg-deb -b --root-owner-group $name pool/${name}_1_all.deb > /dev/null
        {
            cat $name/DEBIAN/control
            echo "Filename: ./${name}_1_all.deb"
            echo "Size: $(stat -c %s pool/${name}_1_all.deb)"
            echo "SHA256: $(sha256sum < pool/${name}_1_all.deb | cut -d' ' -f1)"
            echo
        } >> pool/Packages
    done
    echo "deb [trusted=yes] file:$PWD/pool ./" > sources.list
    get() {
        apt-get -qq -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=/dev/null \
            -o Dir::Etc::main=/dev/null -o Dir::Etc::parts=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
            -o Dir::State::lists="$PWD/lists" -o Dir::State::status="$PWD/root/var/lib/dpkg/status" \
            -o Dir::State::extended_states="$PWD/extended" -o Dir::Cache="$PWD/cache" -o Dir::Log="$PWD" \
            -o APT::Sandbox::User=root -o DPkg::Options::=--root="$PWD/root" -o DPkg::Options::=--log=/dev/null \
            -o Dpkg::Use-Pty=0 "$@" > log 2>&1 || { echo "apt-get $1: $?"; cat log; }
    }
    for round in $(seq "$rounds"); do
        get update
        get install -y one two
        cksum < root/usr/share/one/numbers | grep -vx "$(cksum < two/usr/share/two/numbers)"
        get purge -y one two
        [ -e root/usr/share/one ] && echo "one is still there"
    done
    get install -y two
    dpkg-query --admindir=root/var/lib/dpkg -W -f '${Package} ${Status}\n'
}

for part in postgresql sqlite repository npm_packages packages; do
    $part > "$dir/$part.out" 2>&1 &
done
wait
for part in postgresql sqlite repository npm_packages packages; do
    echo "$part:"
    cat "$dir/$part.out"
done

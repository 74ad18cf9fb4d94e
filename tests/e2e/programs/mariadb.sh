# needs: mariadbd mariadb mariadb-install-db
# MariaDB: InnoDB over TCP and a Unix socket, transactions that wait for each other, and a crash.
cd "$(mktemp -d)" || exit 1
chmod 755 .
data=$PWD/data
mariadb-install-db --no-defaults --auth-root-authentication-method=normal --skip-test-db --user=root --datadir="$data" \
    > install.log 2>&1 || { tail -20 install.log; exit 1; }
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
start() {
    mariadbd --no-defaults --user=root --datadir="$data" --socket="$PWD/socket" --port="$port" \
        --bind-address=127.0.0.1 --innodb-buffer-pool-size=32M \
        --innodb-flush-log-at-trx-commit=1 --log-error="$PWD/log" 2>> early &
    server=$!
    for _ in $(seq 300); do
        mariadb-admin --no-defaults --socket="$PWD/socket" -u root ping > /dev/null 2>&1 && return
        sleep 0.1
    done
    tail -20 log
    exit 1
}
sql() { mariadb --no-defaults -N -B --socket="$PWD/socket" -u root "$@"; }
start
sql <<'SQL'
CREATE DATABASE e2e;
USE e2e;
CREATE TABLE account (id INT PRIMARY KEY, amount INT NOT NULL) ENGINE=InnoDB;
INSERT INTO account SELECT seq, 1000 FROM seq_1_to_100;
CREATE TABLE text (id INT PRIMARY KEY AUTO_INCREMENT, body TEXT, FULLTEXT (body)) ENGINE=InnoDB;
INSERT INTO text (body) SELECT CONCAT('word', seq, ' and ', REPEAT('padding ', 50)) FROM seq_1_to_2000;
SELECT COUNT(*), SUM(LENGTH(body)) FROM text;
CREATE USER tcp@'127.0.0.1' IDENTIFIED BY 'secret';
GRANT ALL ON e2e.* TO tcp@'127.0.0.1';
SQL
# While MariaDB's own thread writes the words of new rows to their tables, a search can miss them, natively as well
# (1 of 400 on a busy machine).
for _ in $(seq 50); do
    found=$(sql e2e -e "SELECT COUNT(*) FROM text WHERE MATCH (body) AGAINST ('word77')")
    [ "$found" = 0 ] || break
    sleep 0.1
done
echo "found: $found"
tcp() { mariadb --no-defaults -N -B -h 127.0.0.1 -P "$port" -u tcp -psecret e2e "$@"; }
for worker in 1 2 3 4; do
    for i in $(seq 50); do
        echo "START TRANSACTION;
UPDATE account SET amount = amount - 1 WHERE id = 1;
UPDATE account SET amount = amount + 1 WHERE id = $((worker * 10 + i % 10));
COMMIT;"
    done | tcp &
    workers="$workers $!"
done
wait $workers
tcp -e 'SELECT SUM(amount), MIN(amount) FROM account'
tcp -e 'SELECT nonsense' 2>&1
tcp -e 'INSERT INTO account VALUES (1000, 7)'
kill -9 $server
wait $server 2>/dev/null
start
tcp -e 'SELECT COUNT(*), SUM(amount) FROM account; CHECK TABLE account, text'
mariadb-dump --no-defaults --socket="$PWD/socket" -u root --skip-dump-date --skip-comments e2e account | cksum
mariadb-admin --no-defaults --socket="$PWD/socket" -u root shutdown
wait $server
echo "ended: $?"

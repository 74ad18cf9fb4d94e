# needs: sqlite3
set -e
(echo 'create table t(a,b); begin;'; seq 5000 | sed 's/.*/insert into t values(&,"v&");/'
 echo 'commit; create index i on t(a); select count(*),sum(a) from t; pragma integrity_check;') | sqlite3 x.db
for i in 1 2 3 4; do
    (for k in 1 2 3 4 5; do sqlite3 -cmd '.timeout 20000' x.db "insert into t values(-$i, 'w');"; done) &
done
wait; sqlite3 x.db 'select count(*) from t where a < 0'
sqlite3 x.db .dump | tail -1; sqlite3 x.db 'vacuum'; sqlite3 :memory: 'select 6*7'

set -e
mkdir t; cd t
for d in $(seq 100); do mkdir d$d; (cd d$d; seq -f 'f%g' 100 | xargs touch); done
find . -type f | wc -l
find . -name 'f7*' | sort | md5sum
find . -type f -print0 | xargs -0 ls -d | wc -l
find . -type f | xargs -n 500 -P 4 sh -c 'for i; do echo "$i" > "$i"; done' sh
find . -type f -size +0 | wc -l
find . -type f -print0 | sort -z | xargs -0 cat | md5sum
grep -rl 'd9/f1' . | sort | wc -l
find . -type d -empty | wc -l
find . -name 'f1*' -delete; find . -type f | wc -l
find . -newer d1 -type d | wc -l >/dev/null
find . -type f -exec md5sum {} + | sort | md5sum
du -a . | wc -l
cd ..; cp -r t u; diff -rq t u && echo same; rm -rf t; ls

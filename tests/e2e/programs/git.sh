# needs: git
set -e
export GIT_AUTHOR_DATE='1000000000 +0000' GIT_COMMITTER_DATE='1000000000 +0000'
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_PAGER=cat
git init -q -b main r; cd r; git config user.name n; git config user.email e@x; git config gc.auto 0
for i in $(seq 400); do echo "$i" >f$i; done; mkdir d; seq 5000 >d/big; git add .; git commit -qm first
git log --oneline --stat | tail -1; git rev-parse HEAD
for i in 1 2 3 4 5; do echo change >>f$i; git commit -qam "c$i"; done; git rev-parse HEAD
git log --format='%s %h' | head -3
git checkout -qb side HEAD~2; echo s >side; git add side; git commit -qm side
git checkout -q main; git merge -q --no-edit side
git log --graph --oneline | head -5; git diff --stat HEAD~3 | tail -1
git status --short | wc -l; git gc -q; git fsck 2>&1 | wc -l; git count-objects -v | grep in-pack
git clone -q . ../c; cd ../c; git rev-parse HEAD; git log --oneline | wc -l
git stash list; echo x >f1; git stash -q; git stash pop -q; git diff --shortstat; git grep -c change | wc -l
git blame -s f1 | head -2; git archive HEAD | tar -t | wc -l
git bundle create ../b HEAD 2>/dev/null; git bundle verify -q ../b >/dev/null 2>&1 && echo bundle
git worktree add -q ../w HEAD~1 2>/dev/null; ls ../w | wc -l; git tag v1; git describe --tags
git rebase -q HEAD~1 2>/dev/null || true; git reflog | wc -l | awk '{print ($1>0)}'

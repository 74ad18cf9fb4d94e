# needs: mount unshare tar git find diff
# Programs on overlays: as root, and as root of a user namespace.
set -e
cat > go <<'F'
set -e
mount -t tmpfs none "$1"; cd "$1"
mkdir l0 l1 u w m
(cd l0; git init -q r; cd r; git config user.email a@b; git config user.name n
 mkdir -p src/deep/er; for i in 1 2 3 4 5; do echo file $i > src/$i; cp src/$i src/deep/er/; done
 git add .; git commit -qm one)
cp -a l0 whole
mount -t overlay o -o "lowerdir=l1:l0,upperdir=u,workdir=w,$2" m
diff -r m l0 && echo same
cd m/r
git status --short; git rm -q src/1; git mv src/2 src/two; echo more >> src/3; git add .; git commit -qm two
git log --format=%s; git status --short; git gc -q; git fsck
sed -i s/file/line/ src/deep/er/*; cat src/deep/er/5
mv src/deep src/moved; find src | sort
git checkout -q .; git clean -qfd; git status --short; find src | sort
cd ../..
tar -C m -cf all.tar .; mkdir out; tar -C out -xf all.tar; diff -r out m && echo copied
rm -r m/r/src; ls m/r; mkdir m/r/src; ls m/r/src
diff -r l0 whole && echo untouched
umount m
mount -t overlay o -o "lowerdir=u:l0,$2" m; ls m/r m/r/src
F
echo "-- root"; mkdir a; unshare -m sh go a xino=off
echo "-- user"; mkdir b; unshare -Urm sh go b userxattr

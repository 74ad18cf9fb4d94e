# needs: dockerd docker containerd runc busybox ip iptables
# Docker with containerd and runc: build, run, networks, names, published ports, exec, copies and the end.
[ "$1" ] || exec unshare --net --mount sh "$0" begun
set -e
for d in /run /var/lib/docker /var/lib/containerd; do mkdir -p $d; mount -t tmpfs none $d; done
mount -t sysfs sys /sys; mount -t cgroup2 none /sys/fs/cgroup
ip link set dev lo up
mkdir -p h image c; export HOME=$PWD/h DOCKER_BUILDKIT=0
export DOCKER_HOST=unix:///run/docker.sock
dockerd --storage-driver overlay2 -H $DOCKER_HOST --exec-opt native.cgroupdriver=cgroupfs > log 2>&1 &
daemon=$!
trap 'docker rm -fv $(docker ps -aq) > /dev/null 2>&1; kill $daemon; wait $daemon; rmdir /sys/fs/cgroup/docker' EXIT
for _ in $(seq 300); do docker version > /dev/null 2>&1 && break; sleep 0.1; done
cp "$(which busybox)" image/busybox
cat > image/Dockerfile <<'FILE'
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
RUN mkdir /www && echo built > /www/page && adduser -D -H -u 1000 user 2>/dev/null; chown 1000:1000 /www/page
FROM scratch
COPY --from=0 / /
RUN rm /bin/vi && ln /www/page /www/second
USER 1000
CMD ["sh", "-c", "id -u; cat /www/second"]
FILE
echo "-- build"
docker build -q -t image image 2> errors | cut -c1-7
docker run --rm image
docker history -q image | grep -c .
echo "-- two containers and their names"
docker network create net > /dev/null
docker run -d --name web --network net -p 8088:80 -u 0 image httpd -f -p 80 -h /www > /dev/null
fetch() { for _ in $(seq 50); do "$@" && return; sleep 0.1; done; echo "nothing"; }
fetch docker run --rm --network net image wget -q -O - http://web/page
fetch busybox wget -q -O - http://127.0.0.1:8088/page
docker exec web sh -c 'hostname | wc -c; cat /proc/1/comm; ls -l /www/second' | tr -s ' ' | cut -d' ' -f1-5
echo "-- files"
echo copied > c/file; docker cp c/file web:/www/ > /dev/null 2>&1; docker exec web cat /www/file
docker cp web:/www/page c/ > /dev/null 2>&1; cat c/page
docker diff web | sort | head -3
docker commit web second > /dev/null; docker run --rm second cat /www/file
echo "-- options and the end"
docker run --rm --read-only image touch /www/x 2>&1 || echo $?
docker run --rm --tmpfs /t -u 0 image sh -c 'touch /t/x && echo written'
docker run --rm image sh -c 'exit 7' || echo $?
docker run -d --name ends image sleep 1000 > /dev/null; docker pause ends > /dev/null
docker inspect -f '{{.State.Status}}' ends; docker unpause ends > /dev/null
docker kill -s TERM ends > /dev/null || true; docker rm -f ends web > /dev/null; docker ps -aq | grep -c . || true
kill $daemon; wait $daemon || echo "$?"
rmdir /sys/fs/cgroup/docker 2> /dev/null || true
trap - EXIT

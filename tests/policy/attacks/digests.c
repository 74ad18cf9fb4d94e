/* A rule allows programs by their digests. The file has the content of one that is allowed, and soon another one. */
#include "attack.h"

static char good[4 << 20], bad[4 << 20];
static char *words[] = {"x", NULL};

static size_t content(const char *path, char *to)
{
	int fd = open(path, O_RDONLY);
	ssize_t length = 0, n;
	while ((n = read(fd, to + length, 65536)) > 0)
		length += n;
	close(fd);
	return length;
}

static int status_of(const char *path)
{
	int status = IN_CHILD(execv(path, words); _exit(99));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void put(const char *path, const char *data, size_t length)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0755);
	write(fd, data, length), close(fd);
}

int main(void)
{
	size_t length = content("/v/hidden/good", good), other = content("/v/hidden/prog", bad);
	int count = 0, rounds = 0, fd;
	/* Of one length: nothing but the times tells them apart. */
	length = other > length ? other : length;
	breach("plain", status_of("/v/hidden/prog") == 42);
	for (double end = now() + 3; now() < end; rounds++) {
		unlink("/tmp/x"), put("/tmp/x", good, length);
		if (status_of("/tmp/x") != 0 && rounds == 0)
			printf("the program is not allowed\n");
		put("/tmp/x", bad, length);
		count += status_of("/tmp/x") == 42;
	}
	breach("overwritten", count);
	printf("rounds %d\n", rounds);
	/* File systems whose content is that of other files. */
	unshare(CLONE_NEWNS), mkdir("/tmp/t", 0755), mount("t", "/tmp/t", "tmpfs", 0, NULL);
	mkdir("/tmp/t/l", 0755), mkdir("/tmp/t/m", 0755), mkdir("/tmp/t/o", 0755), put("/tmp/t/l/x", good, length);
	breach("no-good", status_of("/tmp/t/l/x") != 0);
	if (mount("o", "/tmp/t/o", "overlay", 0, "lowerdir=/tmp/t/l:/tmp/t/m"))
		perror("overlay");
	breach("overlay", status_of("/tmp/t/o/x") == 0);
	/* One that is open for writing, mapped by a program like a library. */
	unlink("/tmp/x"), put("/tmp/x", good, length), fd = open("/tmp/x", O_RDWR);
	breach("mapped", mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED);
	close(fd);
	return 0;
}

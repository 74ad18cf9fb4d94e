/* What the attacks share. Each way to get at what is protected is tried; a line "breach NAME" for each that works. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECRET "/v/hidden/secret"
#define PUBLIC "/v/hidden/public"

/* The first bytes of the protected file. */
static int is_secret(const char *text)
{
	return !memcmp(text, "SECRET", 6);
}

static void breach(const char *name, int count)
{
	if (count)
		printf("breach %s %d\n", name, count);
	fflush(stdout);
}

/* Whether a descriptor gives the secret by read(2). */
static int reads_secret(int fd)
{
	char text[8] = "";
	if (fd < 0)
		return 0;
	int found = pread(fd, text, 6, 0) == 6 && is_secret(text);
	close(fd);
	return found;
}

static void try_fd(const char *name, int fd)
{
	breach(name, reads_secret(fd));
}

#define IN_CHILD(body)                     \
	({                                 \
		int status = 0;            \
		fflush(stdout);            \
		pid_t pid = fork();        \
		if (pid == 0) {            \
			body;              \
			fflush(stdout);    \
			_exit(0);          \
		}                          \
		waitpid(pid, &status, 0);  \
		status;                    \
	})

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* Ways to signal another process, and to look into it. */
#include "attack.h"

#define F_SETSIG 10

static pid_t victim(void)
{
	pid_t pid = fork();
	if (pid == 0)
		for (;;)
			pause();
	return pid;
}

static void killed(const char *name, pid_t pid)
{
	int status = 0;
	for (int i = 0; i < 50 && !waitpid(pid, &status, WNOHANG); i++)
		usleep(10000);
	breach(name, WIFSIGNALED(status));
	if (!WIFSIGNALED(status))
		/* For the kernel to end it: nothing of the policy's. */
		printf("alive %s\n", name);
}

int main(void)
{
	char path[64], text[4096];
	int p[2], fd;
	pid_t pid = victim();
	breach("kill", !kill(pid, 0));
	breach("tgkill", !syscall(SYS_tgkill, pid, pid, 0));
	breach("sigqueue", !sigqueue(pid, 0, (union sigval){0}));
	breach("pidfd", !syscall(SYS_pidfd_send_signal, syscall(SYS_pidfd_open, pid, 0), 0, NULL, 0));
	/* The kernel signals the owner of a file. */
	pipe(p), fcntl(p[0], F_SETOWN, pid), fcntl(p[0], F_SETSIG, SIGKILL), fcntl(p[0], F_SETFL, O_ASYNC);
	write(p[1], "x", 1), killed("owner", pid);
	pid = victim();
	struct { int kind, id; } owner = {1, pid};
	pipe(p), fcntl(p[0], 15 /* F_SETOWN_EX */, &owner), fcntl(p[0], F_SETSIG, SIGKILL), fcntl(p[0], F_SETFL, O_ASYNC);
	write(p[1], "x", 1), killed("owner-ex", pid);
	/* Its own signals are its own affair. */
	signal(SIGURG, SIG_IGN), pipe(p);
	if (fcntl(p[0], F_SETOWN, getpid()))
		perror("F_SETOWN");
	pid = victim();
	snprintf(path, sizeof path, "/proc/%d/environ", pid), fd = open(path, O_RDONLY);
	breach("environ", read(fd, text, sizeof text) > 0);
	snprintf(path, sizeof path, "/proc/%d/mem", pid);
	breach("mem", open(path, O_RDONLY) >= 0);
	pid = fork();
	if (pid == 0) {
		if (!ptrace(PTRACE_TRACEME, 0, 0, 0))
			raise(SIGSTOP);
		_exit(0);
	}
	int status;
	waitpid(pid, &status, WUNTRACED);
	breach("traceme", WIFSTOPPED(status));
	return 0;
}

/* Ways to run a protected program, whose status is 42, and to gain root. */
#include "attack.h"

#define PROGRAM "/v/hidden/prog"

static char *words[] = {"x", NULL};

static void ran(const char *name, int status)
{
	breach(name, WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

static void script(const char *path, const char *first)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755);
	dprintf(fd, "#!%s\n", first);
	close(fd);
}

#define AS_USER(name, body)                                                                     \
	IN_CHILD(if (!syscall(SYS_setresuid, 1000, 1000, 0)) {                                  \
		body;                                                                           \
		int e = geteuid();                                                              \
		breach(name, e == 0);                                                           \
	} else perror("setresuid"))

int main(int argc, char **argv)
{
	char path[64];
	int fd;
	if (argc > 1) {
		breach("set-user-id", geteuid() == 0);
		return 0;
	}
	ran("execve", IN_CHILD(execv(PROGRAM, words)));
	ran("execve-dots", IN_CHILD(execv("/v/hidden/../hidden/prog", words)));
	IN_CHILD(chdir("/v/hidden"); ran("execve-relative", IN_CHILD(execv("./prog", words))));
	fd = open(PROGRAM, O_PATH);
	ran("execveat-empty", IN_CHILD(syscall(SYS_execveat, fd, "", words, NULL, AT_EMPTY_PATH)));
	ran("fexecve", IN_CHILD(fexecve(open(PROGRAM, O_RDONLY), words, words)));
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	ran("execve-proc", IN_CHILD(execv(path, words)));
	ran("execve-root", IN_CHILD(execv("/proc/self/root/v/hidden/prog", words)));
	fd = open("/v/hidden", O_PATH);
	ran("execveat", IN_CHILD(syscall(SYS_execveat, fd, "prog", words, NULL, 0)));
	symlink(PROGRAM, "/v/run"), ran("symlink", IN_CHILD(execv("/v/run", words)));
	link(PROGRAM, "/v/run2"), ran("link", IN_CHILD(execv("/v/run2", words)));
	script("/v/script", PROGRAM), ran("script", IN_CHILD(execv("/v/script", words)));
	script("/v/script2", "/v/script"), ran("script-chain", IN_CHILD(execv("/v/script2", words)));
	ran("loader", IN_CHILD(execl("/lib64/ld-linux-x86-64.so.2", "ld", "/v/hidden/dynamic", NULL)));
	ran("dynamic", IN_CHILD(execl("/v/hidden/dynamic", "dynamic", NULL)));
	ran("vfork", ({ int s; pid_t p = vfork(); if (!p) { execv(PROGRAM, words); _exit(0); } waitpid(p, &s, 0); s; }));
	ran("chroot", IN_CHILD(chroot("/v"); execv("/hidden/prog", words)));
	ran("thread", IN_CHILD(pthread_t t; pthread_create(&t, NULL, (void *(*)(void *))({ void *f(void *x) { execv(PROGRAM, words); return 0; } f; }), NULL); pthread_join(t, NULL)));
	IN_CHILD(unshare(CLONE_NEWNS); mkdir("/tmp/x", 0755); mount("/v/hidden", "/tmp/x", NULL, MS_BIND, NULL);
		 ran("bind", IN_CHILD(execv("/tmp/x/prog", words))));
	/* An interpreter that is protected: of ELF. */
	ran("elf-interpreter", IN_CHILD(execl("/v/interpreted", "x", NULL)));
	AS_USER("setuid", syscall(SYS_setuid, 0));
	AS_USER("setreuid", syscall(SYS_setreuid, -1, 0));
	AS_USER("setresuid", syscall(SYS_setresuid, -1, 0, -1));
	AS_USER("setresuid-all", syscall(SYS_setresuid, 0, 0, 0));
	AS_USER("seteuid-thread", seteuid(0));
	IN_CHILD(if (!syscall(SYS_setresuid, 1000, 1000, 0)) { syscall(SYS_setfsuid, 0); breach("setfsuid", syscall(SYS_setfsuid, -1) == 0); });
	IN_CHILD(if (!syscall(SYS_setresuid, 1000, 1000, 1000)) { execl("/v/setuid", "setuid", "-", NULL); });
	IN_CHILD(if (!syscall(SYS_setresgid, 1000, 1000, 0)) { syscall(SYS_setgid, 0); syscall(SYS_setresgid, -1, 0, -1); syscall(SYS_setregid, -1, 0); breach("setgid", getegid() == 0); });
	return 0;
}

/* Mounts that come and go: files of a mount that hangs nowhere, and files that pass for others. */
#include "attack.h"

#define ALLOWED "/usr/sbin/allowed"

static char *words[] = {"x", NULL};
static char stack[65536];
static int dir;

static void copy(int to, const char *path)
{
	char data[65536];
	int in = open("/v/hidden/prog", O_RDONLY), out = openat(to, path, O_WRONLY | O_CREAT, 0755);
	for (ssize_t n; (n = read(in, data, sizeof data)) > 0;)
		write(out, data, n);
	close(in), close(out);
}

static void ran(const char *name, int status)
{
	breach(name, WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

static void run_at(const char *name, int fd, const char *path)
{
	int status = IN_CHILD(syscall(SYS_execveat, fd, path, words, words, *path ? 0 : AT_EMPTY_PATH));
	ran(name, status);
}

/* A mount namespace of its own ends with this child; the descriptor stays. */
static int namespace(void *flags)
{
	unshare(CLONE_NEWNS);
	dir = open("/v/hidden", (long)flags | O_DIRECTORY);
	return 0;
}

static void from_ended_namespace(const char *name, long flags)
{
	char what[64];
	pid_t pid = clone(namespace, stack + sizeof stack, CLONE_VM | CLONE_FILES | SIGCHLD, (void *)flags);
	waitpid(pid, NULL, 0);
	snprintf(what, sizeof what, "%s-open", name), try_fd(what, openat(dir, "secret", O_RDONLY));
	snprintf(what, sizeof what, "%s-dots", name), try_fd(what, openat(dir, "../hidden/secret", O_RDONLY));
	snprintf(what, sizeof what, "%s-exec", name), run_at(what, dir, "prog");
	snprintf(what, sizeof what, "%s-relative", name);
	IN_CHILD(fchdir(dir); try_fd(what, open("secret", O_RDONLY)));
}

/* A file system that is not mounted anywhere, in which everything has the names that the rules allow. */
static void from_new_file_system(void)
{
	int config = syscall(SYS_fsopen, "tmpfs", 0);
	syscall(SYS_fsconfig, config, 6 /* FSCONFIG_CMD_CREATE */, NULL, NULL, 0);
	int top = syscall(SYS_fsmount, config, 0, 0);
	if (top < 0)
		perror("fsmount");
	mkdirat(top, "usr", 0755), mkdirat(top, "usr/sbin", 0755), copy(top, "usr/sbin/allowed");
	run_at("fsmount", openat(top, "usr/sbin/allowed", O_PATH), "");
	run_at("fsmount-relative", top, "usr/sbin/allowed");
}

/* Such a file system as the root of a mount namespace. */
static void from_new_root(void)
{
	unshare(CLONE_NEWNS);
	mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	mkdir("/tmp/root", 0755), mount("t", "/tmp/root", "tmpfs", 0, NULL), chdir("/tmp/root");
	int top = open(".", O_RDONLY);
	mkdir("usr", 0755), mkdir("usr/sbin", 0755), mkdir("old", 0755), copy(top, "usr/sbin/allowed");
	if (syscall(SYS_pivot_root, ".", "old"))
		perror("pivot_root");
	chdir("/");
	ran("pivot-root", IN_CHILD(execv(ALLOWED, words)));
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "forge")) {
		from_new_file_system();
		IN_CHILD(from_new_root());
		return 0;
	}
	from_ended_namespace("ended", O_RDONLY);
	from_ended_namespace("ended-path", O_PATH);
	/* One that is taken away, with what the rules protect below it. */
	IN_CHILD(unshare(CLONE_NEWNS); dir = open("/v/hidden", O_RDONLY | O_DIRECTORY); umount2("/v", MNT_DETACH);
		 try_fd("detached", openat(dir, "secret", O_RDONLY)); run_at("detached-exec", dir, "prog"));
	/* The root of the first process. */
	chroot("/v");
	try_fd("chroot-first", open("/hidden/secret", O_RDONLY));
	return 0;
}

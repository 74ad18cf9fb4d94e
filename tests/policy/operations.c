/* One operation for each word of the command line; a line for each: its name, and "ok" or the error. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
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
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define DIR "/tmp/w/"

static char buffer[16];
static struct iovec vector = {buffer, 4};
static struct sockaddr_in address = {.sin_family = AF_INET};
static char *program;

/* A file with four bytes. */
static const char *file(const char *path)
{
	/* Not by an open, which may be what is refused. */
	mknod(path, S_IFREG | 0755, 0);
	int fd = open(path, O_RDWR);
	write(fd, "text", 4);
	close(fd);
	return path;
}

static int fd_of(const char *path)
{
	return open(path, O_RDWR);
}

static struct sockaddr *at(int port)
{
	address.sin_port = htons(port);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return (struct sockaddr *)&address;
}

static int stream(void)
{
	return socket(AF_INET, SOCK_STREAM, 0);
}

/* What a child's operation comes to. */
#define IN_CHILD(operation)                                          \
	({                                                           \
		int status = 0;                                      \
		pid_t pid = fork();                                  \
		if (pid == 0)                                        \
			_exit((operation) < 0 ? errno : 0);          \
		waitpid(pid, &status, 0);                            \
		errno = WIFEXITED(status) ? WEXITSTATUS(status) : EIO; \
		errno ? -1 : 0;                                      \
	})

/* In a child that is a copy of the program with another name. */
static int as(const char *name, const char *operation)
{
	int status, pid = fork();
	if (pid == 0) {
		char *words[] = {(char *)name, "-", (char *)operation, NULL};
		execv(name, words);
		_exit(errno);
	}
	waitpid(pid, &status, 0);
	errno = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
	return errno ? -1 : 0;
}

static void copy(const char *to)
{
	char data[65536];
	int from = open(program, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
	for (ssize_t n; (n = read(from, data, sizeof data)) > 0;)
		if (write(out, data, n) != n)
			perror(to);
	close(from), close(out);
}

static int listening(int port)
{
	int s = stream(), one = 1;
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(s, at(port), sizeof address) || listen(s, 5))
		perror("listening");
	return s;
}

static int accepted(int port)
{
	int s = listening(port), other = stream();
	connect(other, at(port), sizeof address);
	return accept(s, NULL, NULL);
}

static int to_unix(const char *path)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int s = socket(AF_UNIX, SOCK_STREAM, 0), other = socket(AF_UNIX, SOCK_STREAM, 0);
	strcpy(un.sun_path, path);
	unlink(path);
	if (bind(s, (void *)&un, sizeof un) || listen(s, 1))
		return -1;
	return connect(other, (void *)&un, sizeof un);
}

static int nothing(void *unused)
{
	return 0;
}

static int thread_of(void)
{
	static char stack[65536];
	int pid = clone(nothing, stack + sizeof stack, SIGCHLD, NULL);
	if (pid > 0)
		waitpid(pid, NULL, __WALL);
	return pid;
}

static int signalled(void)
{
	int status, pid = fork();
	if (pid == 0) {
		usleep(300000);
		_exit(0);
	}
	int result = kill(pid, SIGUSR1), error = errno;
	waitpid(pid, &status, 0);
	errno = error;
	return result;
}

#define OPERATIONS                                                                                \
	OP("open", open(file(DIR "open"), O_RDONLY))                                              \
	OP("openat2", ({                                                                          \
		   file(DIR "open");                                                              \
		   struct { unsigned long long flags, mode, resolve; } how = {O_RDONLY, 0, 0};    \
		   syscall(SYS_openat2, AT_FDCWD, DIR "open", &how, sizeof how);                  \
	   }))                                                                                    \
	OP("open-beside", open(file(DIR "open-beside"), O_RDONLY))                                \
	OP("open-to-write", open(file(DIR "open-to-write"), O_WRONLY))                            \
	OP("open-to-read", open(file(DIR "open-to-write"), O_RDONLY))                             \
	OP("create", open(DIR "create", O_WRONLY | O_CREAT, 0600))                                \
	OP("mkdir", mkdir(DIR "create-dir", 0700))                                                \
	OP("mknod", mknod(DIR "create-fifo", S_IFIFO | 0600, 0))                                  \
	OP("symlink", symlink("x", DIR "create-link"))                                            \
	OP("unlink", unlink(file(DIR "remove")))                                                  \
	OP("rmdir", (mkdir(DIR "remove-dir", 0700), rmdir(DIR "remove-dir")))                     \
	OP("rename-from", rename(file(DIR "rename"), DIR "renamed"))                              \
	OP("rename-to", rename(file(DIR "other"), DIR "rename-to"))                               \
	OP("link", link(file(DIR "link"), DIR "linked"))                                          \
	OP("chmod", chmod(file(DIR "attr"), 0600))                                                \
	OP("fchmod", fchmod(fd_of(DIR "attr"), 0600))                                             \
	OP("chown", chown(DIR "attr", 0, 0))                                                      \
	OP("utime", utimensat(AT_FDCWD, DIR "attr", NULL, 0))                                     \
	OP("futimens", futimens(fd_of(DIR "attr"), NULL))                                         \
	OP("setxattr", setxattr(DIR "attr", "user.a", "b", 1, 0))                                 \
	OP("removexattr", (setxattr(DIR "attr-2", "user.a", "b", 1, 0), removexattr(DIR "attr-2", "user.a"))) \
	OP("truncate", truncate(file(DIR "truncate"), 1))                                         \
	OP("ftruncate", ftruncate(fd_of(DIR "truncate"), 1))                                      \
	OP("open-truncate", open(DIR "truncate", O_WRONLY | O_TRUNC))                             \
	OP("fallocate", fallocate(fd_of(DIR "write"), 0, 0, 100))                                 \
	OP("exec", (copy(DIR "exec"), as(DIR "exec", "nothing")))                                 \
	OP("exec-arguments", ({ char *words[] = {program, "-", "nothing", "secret-word", NULL}; IN_CHILD(execv(program, words)); })) \
	OP("map-exec", mmap(NULL, 4, PROT_EXEC | PROT_READ, MAP_PRIVATE, fd_of(file(DIR "map")), 0) == MAP_FAILED ? -1 : 0) \
	OP("map-shared", mmap(NULL, 4, PROT_WRITE | PROT_READ, MAP_SHARED, fd_of(DIR "map"), 0) == MAP_FAILED ? -1 : 0) \
	OP("map-mprotect", mprotect(mmap(NULL, 4, PROT_READ, MAP_PRIVATE, fd_of(DIR "map"), 0), 4, PROT_READ | PROT_EXEC)) \
	OP("read", read(fd_of(file(DIR "read")), buffer, 4))                                      \
	OP("pread", pread(fd_of(DIR "read"), buffer, 4, 0))                                       \
	OP("readv", readv(fd_of(DIR "read"), &vector, 1))                                         \
	OP("preadv2", preadv2(fd_of(DIR "read"), &vector, 1, 0, 0))                               \
	OP("sendfile", sendfile(fd_of(file(DIR "plain")), fd_of(DIR "read"), NULL, 4))            \
	OP("splice", ({ int p[2]; pipe(p); splice(fd_of(DIR "read"), NULL, p[1], NULL, 4, 0); })) \
	OP("copy_file_range", copy_file_range(fd_of(DIR "read"), NULL, fd_of(DIR "plain"), NULL, 4, 0)) \
	OP("write", write(fd_of(file(DIR "write")), "text", 4))                                   \
	OP("pwrite", pwrite(fd_of(DIR "write"), "text", 4, 0))                                    \
	OP("writev", writev(fd_of(DIR "write"), &vector, 1))                                      \
	OP("pwritev2", pwritev2(fd_of(DIR "write"), &vector, 1, 0, 0))                            \
	OP("sendfile-to", sendfile(fd_of(DIR "write"), fd_of(DIR "plain"), NULL, 4))              \
	OP("splice-to", ({ int p[2]; pipe(p); write(p[1], "text", 4); splice(p[0], NULL, fd_of(DIR "write"), NULL, 4, 0); })) \
	OP("copy-to", copy_file_range(fd_of(DIR "plain"), NULL, fd_of(DIR "write"), NULL, 4, 0))  \
	OP("punch", fallocate(fd_of(DIR "write"), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4)) \
	OP("aio-to", ({                                                                           \
		   aio_context_t context = 0;                                                     \
		   struct iocb block = {.aio_fildes = fd_of(DIR "write"), .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_buf = (size_t)"text", .aio_nbytes = 4}, *blocks = &block; \
		   struct io_event event = {0};                                                   \
		   syscall(SYS_io_setup, 1, &context);                                            \
		   long n = syscall(SYS_io_submit, context, 1, &blocks);                          \
		   if (n == 1) {                                                                  \
			   syscall(SYS_io_getevents, context, 1, 1, &event, NULL);                \
			   n = (int)event.res;                                                    \
			   errno = -n;                                                            \
		   }                                                                              \
		   n;                                                                             \
	   }))                                                                                    \
	OP("chdir", IN_CHILD(chdir(DIR "chdir")))                                                 \
	OP("fchdir", IN_CHILD(fchdir(open(DIR "chdir", O_RDONLY))))                               \
	OP("chroot", IN_CHILD(chroot(DIR "chroot")))                                              \
	OP("mount", as(DIR "no-mount", "=mount"))                                                 \
	OP("umount", as(DIR "no-mount", "=umount"))                                               \
	OP("=mount", mount(DIR "plain-dir", DIR "mount", NULL, MS_BIND, NULL))                    \
	OP("=umount", umount(DIR "mount-2"))                                                      \
	OP("socket", socket(AF_INET, SOCK_DGRAM, 0))                                              \
	OP("socket-beside", stream())                                                             \
	OP("bind", bind(stream(), at(7001), sizeof address))                                      \
	OP("listen", ({ int s = stream(); bind(s, at(7002), sizeof address); listen(s, 1); }))    \
	OP("connect", ({ listening(7003); connect(stream(), at(7003), sizeof address); }))        \
	OP("connect-beside", ({ listening(7004); connect(stream(), at(7004), sizeof address); })) \
	OP("connect-unix", to_unix(DIR "socket"))                                                 \
	OP("accept", accepted(7005))                                                              \
	OP("fork", as(DIR "no-clone", "clone"))                                                   \
	OP("setuid", IN_CHILD(seteuid(1000) || seteuid(0) ? -1 : 0))                              \
	OP("setgid", IN_CHILD(setegid(1000) || setegid(0) ? -1 : 0))                              \
	OP("setgroups", IN_CHILD(({ gid_t group = 0; syscall(SYS_setgroups, 1, &group); })))      \
	OP("kill", as(DIR "no-signal", "signal"))                                                 \
	OP("ptrace", as(DIR "no-ptrace", "attach"))                                               \
	OP("vm_readv", as(DIR "no-ptrace", "vm"))                                                 \
	OP("getppid-many", ({                                                                     \
		   /* Code that makes a call often is changed so that it need not reach the kernel. */ \
		   long n = -1;                                                                   \
		   for (int i = 0; i < 5000 && n < 0; i++)                                        \
			   n = syscall(SYS_getppid);                                              \
		   n;                                                                             \
	   }))                                                                                    \
	OP("uname", ({ struct utsname name; uname(&name); }))                                     \
	OP("sched_yield", sched_yield())                                                          \
	OP("getpriority", syscall(SYS_getpriority, 1, 0))                                         \
	OP("clone", thread_of())                                                                  \
	OP("nothing", 0)                                                                          \
	OP("signal", signalled())                                                                 \
	OP("attach", ({                                                                           \
		   pid_t pid = fork();                                                            \
		   if (pid == 0)                                                                  \
			   for (;;)                                                               \
				   pause();                                                       \
		   int result = ptrace(PTRACE_SEIZE, pid, 0, 0), error = errno;                   \
		   kill(pid, SIGKILL);                                                            \
		   errno = error;                                                                 \
		   result;                                                                        \
	   }))                                                                                    \
	OP("vm", ({                                                                               \
		   pid_t pid = fork();                                                            \
		   if (pid == 0)                                                                  \
			   for (;;)                                                               \
				   pause();                                                       \
		   ssize_t result = process_vm_readv(pid, &vector, 1, &vector, 1, 0), error = errno; \
		   kill(pid, SIGKILL);                                                            \
		   errno = error;                                                                 \
		   result;                                                                        \
	   }))

static int run(const char *name)
{
	errno = 0;
#define OP(word, operation)           \
	if (!strcmp(name, word))      \
		return (operation) < 0 ? -1 : 0;
	OPERATIONS
#undef OP
	errno = 200;
	return -1;
}

int main(int argc, char **argv)
{
	static const char *all[] = {
#define OP(word, operation) word,
		OPERATIONS
#undef OP
	};
	signal(SIGUSR1, SIG_DFL);
	program = argv[0];
	/* For this very process: the result is its status. */
	if (argc >= 3 && !strcmp(argv[1], "-"))
		return run(argv[2]) ? errno : 0;
	umask(0);
	mkdir("/tmp/w", 0755);
	for (const char **dir = (const char *[]){"chdir", "chroot", "mount", "mount-2", "plain-dir", NULL}; *dir; dir++) {
		char path[64];
		snprintf(path, sizeof path, DIR "%s", *dir);
		mkdir(path, 0755);
	}
	file(DIR "plain"), file(DIR "attr-2"), file(DIR "write"), file(DIR "read");
	if (mount(DIR "plain-dir", DIR "mount-2", NULL, MS_BIND, NULL))
		perror("mount-2");
	copy(DIR "no-clone"), copy(DIR "no-signal"), copy(DIR "no-ptrace"), copy(DIR "no-mount");
	for (int i = 0; i < (argc > 1 ? argc - 1 : (int)(sizeof all / sizeof *all)); i++) {
		const char *name = argc > 1 ? argv[i + 1] : all[i];
		if (*name == '=')
			continue; /* For a copy. */
		printf("%s %s\n", name, run(name) ? (errno == EDQUOT ? "refused" : strerror(errno)) : "ok");
		fflush(stdout);
	}
	return 0;
}

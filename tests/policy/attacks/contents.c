/* A program that may open the protected file hands it to one that may not, and the latter tries all calls.
 * As "give" it is run under the name that the policy allows. */
#include "attack.h"

static char text[64];

static int got(ssize_t n)
{
	int found = n >= 6 && is_secret(text);
	memset(text, 0, sizeof text);
	return found;
}

static void send_fd(int socket, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = "";
	struct iovec vector = {"x", 1};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	*header = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	sendmsg(socket, &message, 0);
}

static int receive_fd(int socket)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec vector = {&byte, 1};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	int fd = -1;
	if (recvmsg(socket, &message, 0) > 0 && CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

static void from_mapping(const char *name, char *at)
{
	if (at != MAP_FAILED) {
		memcpy(text, at, 6);
		breach(name, got(6));
	}
}

/* All ways to read from a descriptor. */
static void all(const char *how, int fd)
{
	struct iovec vector = {text, 6};
	char name[64], path[64];
	int p[2], memory = memfd_create("m", 0), plain = open("/tmp/plain", O_RDWR | O_CREAT | O_TRUNC, 0600), pair[2];
	loff_t zero = 0;
	off_t start = 0;
#define TRY(what, count)                                        \
	lseek(fd, 0, SEEK_SET), start = zero = 0;               \
	snprintf(name, sizeof name, "%s-%s", how, what);        \
	breach(name, got(count));
	if (fd < 0)
		return;
	TRY("read", read(fd, text, 6));
	TRY("pread", pread(fd, text, 6, 0));
	TRY("readv", readv(fd, &vector, 1));
	TRY("preadv", preadv(fd, &vector, 1, 0));
	TRY("preadv2", preadv2(fd, &vector, 1, 0, RWF_HIPRI));
	TRY("preadv2-at", preadv2(fd, &vector, 1, -1, 0));
	TRY("sendfile", (sendfile(memory, fd, &start, 6), pread(memory, text, 6, 0)));
	TRY("sendfile-plain", (sendfile(plain, fd, NULL, 6), pread(plain, text, 6, 0)));
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair), ftruncate(memory, 0), lseek(memory, 0, SEEK_SET), ftruncate(plain, 0);
	TRY("sendfile-socket", (sendfile(pair[0], fd, NULL, 6), recv(pair[1], text, 6, MSG_DONTWAIT)));
	pipe2(p, O_NONBLOCK);
	TRY("splice", (splice(fd, &zero, p[1], NULL, 6, 0), read(p[0], text, 6)));
	TRY("copy_file_range", (copy_file_range(fd, &zero, plain, NULL, 6, 0), pread(plain, text, 6, 0)));
	aio_context_t context = 0;
	syscall(SYS_io_setup, 1, &context);
	struct iocb block = {.aio_fildes = fd, .aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (size_t)text, .aio_nbytes = 6}, *blocks = &block;
	struct io_event event = {0};
	struct timespec second = {1};
	if (syscall(SYS_io_submit, context, 1, &blocks) == 1)
		syscall(SYS_io_getevents, context, 1, 1, &event, &second);
	TRY("aio", event.res);
	ioctl(plain, 0x40049409 /* FICLONE */, fd);
	TRY("clone-range", pread(plain, text, 6, 0));
	snprintf(name, sizeof name, "%s-mmap", how);
	from_mapping(name, mmap(NULL, 6, PROT_READ, MAP_PRIVATE, fd, 0));
	snprintf(name, sizeof name, "%s-mmap-shared", how);
	from_mapping(name, mmap(NULL, 6, PROT_READ, MAP_SHARED, fd, 0));
	snprintf(name, sizeof name, "%s-mmap-exec", how);
	from_mapping(name, mmap(NULL, 6, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0));
	snprintf(name, sizeof name, "%s-mmap-populate", how);
	from_mapping(name, mmap(NULL, 6, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0));
	char *map = mmap(NULL, 6, PROT_NONE, MAP_PRIVATE, fd, 0);
	snprintf(name, sizeof name, "%s-mprotect", how);
	if (map != MAP_FAILED && !mprotect(map, 6, PROT_READ))
		from_mapping(name, map);
	if (map != MAP_FAILED) {
		snprintf(name, sizeof name, "%s-mremap", how);
		mprotect(map, 6, PROT_READ);
		map = mremap(map, 4096, 8192, MREMAP_MAYMOVE);
		if (map != MAP_FAILED) {
			TRY("mremap", (write(pair[0], map, 6), recv(pair[1], text, 6, MSG_DONTWAIT)));
		}
	}
	int loop = open("/dev/loop0", O_RDWR);
	if (loop >= 0 && !ioctl(loop, 0x4c00 /* LOOP_SET_FD */, fd)) {
		TRY("loop", pread(loop, text, 6, 0));
		ioctl(loop, 0x4c01 /* LOOP_CLR_FD */);
	}
	close(loop);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	snprintf(name, sizeof name, "%s-reopen", how);
	try_fd(name, open(path, O_RDONLY));
	TRY("dup", pread(dup(fd), text, 6, 0));
	close(memory), close(plain), close(pair[0]), close(pair[1]), close(p[0]), close(p[1]);
}

static void *hold(const char *name)
{
	int fd = open(name, O_RDONLY);
	void *at = malloc(4096);
	read(fd, at, 6);
	return at;
}

int main(int argc, char **argv)
{
	int pair[2], fd, status;
	char number[16], at[32];
	if (argc > 1 && !strcmp(argv[1], "give")) {
		/* Allowed. */
		fd = open(SECRET, O_RDONLY);
		if (fd < 0)
			perror("the allowed program");
		if (!strcmp(argv[2], "exec")) {
			snprintf(number, sizeof number, "%d", fd);
			execl("/v/contents", "contents", "take", number, argv[3], NULL);
		}
		int to = atoi(argv[3]);
		if (!strcmp(argv[2], "send"))
			send_fd(to, fd);
		if (!strcmp(argv[2], "hold")) {
			struct { int fd; void *at; } told = {fd, hold(SECRET)};
			write(to, &told, sizeof told);
			for (;;)
				pause();
		}
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "take")) {
		all("inherited", atoi(argv[2]));
		if (argc > 3) {
			/* Without a name. */
			rename(SECRET, "/v/kept"), unlink("/v/kept"), unlink(SECRET);
			all("removed", atoi(argv[2]));
		}
		return 0;
	}
	IN_CHILD(execl("/v/allowed", "allowed", "give", "exec", NULL));
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	snprintf(number, sizeof number, "%d", pair[0]);
	IN_CHILD(execl("/v/allowed", "allowed", "give", "send", number, NULL));
	all("passed", receive_fd(pair[1]));
	pid_t pid = fork();
	if (pid == 0)
		_exit(execl("/v/allowed", "allowed", "give", "hold", number, NULL));
	struct { int fd; void *at; } told;
	read(pair[1], &told, sizeof told);
	int pidfd = syscall(SYS_pidfd_open, pid, 0);
	all("pidfd", syscall(SYS_pidfd_getfd, pidfd, told.fd, 0));
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, told.fd);
	try_fd("proc-fd", open(path, O_RDONLY));
	snprintf(path, sizeof path, "/proc/%d/root/v/hidden/secret", pid);
	try_fd("proc-root", open(path, O_RDONLY));
	struct iovec local = {text, 6}, remote = {told.at, 6};
	breach("process_vm_readv", got(process_vm_readv(pid, &local, 1, &remote, 1, 0)));
	snprintf(path, sizeof path, "/proc/%d/mem", pid);
	fd = open(path, O_RDONLY);
	breach("proc-mem", got(pread(fd, text, 6, (off_t)told.at)));
	if (!ptrace(PTRACE_SEIZE, pid, 0, 0) && !ptrace(PTRACE_INTERRUPT, pid, 0, 0)) {
		waitpid(pid, &status, 0);
		errno = 0;
		long word = ptrace(PTRACE_PEEKDATA, pid, told.at, 0);
		memcpy(text, &word, sizeof word);
		breach("ptrace", got(8));
	}
	kill(pid, SIGKILL);
	IN_CHILD(execl("/v/allowed", "allowed", "give", "exec", "remove", NULL));
	return 0;
}

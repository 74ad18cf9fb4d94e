/* Other names of what is protected: links, renames, mounts, roots, /proc, handles. */
#include "attack.h"

static const char *name = SECRET;

/* Two processes: one moves names around, the other opens. */
static void moving(const char *what, void (*move)(void), const char *path, double seconds)
{
	int count = 0;
	pid_t pid = fork();
	if (pid == 0)
		for (;;)
			move();
	for (double end = now() + seconds; now() < end;)
		count += reads_secret(open(path, O_RDONLY));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	breach(what, count);
}

static void exchange_directories(void)
{
	syscall(SYS_renameat2, AT_FDCWD, "/v/hidden", AT_FDCWD, "/v/shown", 2);
}

static void exchange_files(void)
{
	syscall(SYS_renameat2, AT_FDCWD, SECRET, AT_FDCWD, PUBLIC, 2);
}

static void exchange_links(void)
{
	syscall(SYS_renameat2, AT_FDCWD, "/v/to-public", AT_FDCWD, "/v/to-secret", 2);
}

static void move_away(void)
{
	rename("/v/hidden", "/v/away");
	rename("/v/away", "/v/hidden");
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	int fd, dir;
	unsigned long long how[3] = {O_RDONLY, 0, 0};
	try_fd("plain", open(name, O_RDONLY));
	try_fd("write", open(name, O_RDWR));
	try_fd("dots", open("/v/hidden/../hidden/./secret", O_RDONLY));
	try_fd("slashes", open("//v///hidden//secret", O_RDONLY));
	chdir("/v/hidden");
	try_fd("relative", open("secret", O_RDONLY));
	try_fd("proc-cwd", open("/proc/self/cwd/secret", O_RDONLY));
	try_fd("thread-cwd", open("/proc/thread-self/cwd/secret", O_RDONLY));
	try_fd("proc-root", open("/proc/self/root/v/hidden/secret", O_RDONLY));
	try_fd("proc-1-root", open("/proc/1/root/v/hidden/secret", O_RDONLY));
	chdir("/");
	dir = open("/v/hidden", O_RDONLY | O_DIRECTORY);
	try_fd("openat", openat(dir, "secret", O_RDONLY));
	for (int flags = 0; flags < 64; flags++) {
		how[2] = flags;
		try_fd("openat2", syscall(SYS_openat2, dir, "secret", how, sizeof how));
	}
	char link_path[64];
	fd = open(name, O_PATH);
	snprintf(link_path, sizeof link_path, "/proc/self/fd/%d", fd);
	try_fd("o-path", open(link_path, O_RDONLY));
	try_fd("empty-path", syscall(SYS_openat2, fd, "", how, sizeof how));
	unlink("/v/l1"), linkat(fd, "", AT_FDCWD, "/v/l1", AT_EMPTY_PATH);
	try_fd("link-empty-path", open("/v/l1", O_RDONLY));
	unlink("/v/l2"), linkat(AT_FDCWD, link_path, AT_FDCWD, "/v/l2", AT_SYMLINK_FOLLOW);
	try_fd("link-proc", open("/v/l2", O_RDONLY));
	unlink("/v/l3"), link(name, "/v/l3");
	try_fd("link", open("/v/l3", O_RDONLY));
	unlink("/v/l4"), symlink(name, "/v/l4");
	try_fd("symlink", open("/v/l4", O_RDONLY));
	unlink("/v/l5"), symlink("hidden", "/v/l5");
	try_fd("symlink-directory", open("/v/l5/secret", O_RDONLY));
	snprintf(link_path, sizeof link_path, "/proc/self/fd/%d/secret", dir);
	try_fd("proc-directory", open(link_path, O_RDONLY));
	struct { struct file_handle handle; char bytes[128]; } handle = {.handle.handle_bytes = 128};
	int mount_id;
	if (!name_to_handle_at(AT_FDCWD, name, &handle.handle, &mount_id, 0))
		try_fd("handle", open_by_handle_at(dir, &handle.handle, O_RDONLY));
	rename(name, "/v/moved"), try_fd("rename", open("/v/moved", O_RDONLY)), rename("/v/moved", name);
	rename("/v/hidden", "/v/h2"), try_fd("rename-directory", open("/v/h2/secret", O_RDONLY)), rename("/v/h2", "/v/hidden");
	IN_CHILD(chroot("/v"); try_fd("chroot", open("/hidden/secret", O_RDONLY)));
	IN_CHILD(chroot("/v/hidden"); chdir("/"); try_fd("chroot-relative", open("secret", O_RDONLY)));
	IN_CHILD(chdir("/v/hidden"); chroot("/tmp"); try_fd("chroot-outside", open("secret", O_RDONLY)));
	IN_CHILD(chroot("/tmp"); try_fd("chroot-openat", openat(dir, "secret", O_RDONLY)));
	mkdir("/tmp/m", 0755), mkdir("/tmp/m2", 0755), mkdir("/tmp/new", 0755), close(open("/tmp/f", O_CREAT | O_RDWR, 0600));
	IN_CHILD(unshare(CLONE_NEWNS); mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
		 mount("/v/hidden", "/tmp/m", NULL, MS_BIND, NULL); try_fd("bind-directory", open("/tmp/m/secret", O_RDONLY)));
	IN_CHILD(unshare(CLONE_NEWNS); mount("/v", "/tmp/m", NULL, MS_BIND | MS_REC, NULL);
		 try_fd("bind-parent", open("/tmp/m/hidden/secret", O_RDONLY)));
	IN_CHILD(unshare(CLONE_NEWNS); mount(name, "/tmp/f", NULL, MS_BIND, NULL); try_fd("bind-file", open("/tmp/f", O_RDONLY)));
	IN_CHILD(unshare(CLONE_NEWNS); mount("/v", "/tmp/m2", NULL, MS_MOVE, NULL);
		 try_fd("move-mount", open("/tmp/m2/hidden/secret", O_RDONLY)));
	IN_CHILD(unshare(CLONE_NEWNS); int tree = syscall(SYS_open_tree, AT_FDCWD, "/v/hidden", 1 /* OPEN_TREE_CLONE */);
		 try_fd("open-tree", openat(tree, "secret", O_RDONLY));
		 syscall(SYS_move_mount, tree, "", AT_FDCWD, "/tmp/m", 4); try_fd("open-tree-mount", open("/tmp/m/secret", O_RDONLY)));
	IN_CHILD(unshare(CLONE_NEWNS); mount("tmpfs", "/tmp/new", "tmpfs", 0, NULL); mkdir("/tmp/new/old", 0755);
		 chdir("/tmp/new"); syscall(SYS_pivot_root, ".", "old"); chdir("/");
		 try_fd("pivot-root", open("/old/v/hidden/secret", O_RDONLY)));
	IN_CHILD(unshare(CLONE_NEWUSER | CLONE_NEWNS); mount("/v/hidden", "/tmp/m", NULL, MS_BIND | MS_REC, NULL);
		 try_fd("user-namespace", open("/tmp/m/secret", O_RDONLY)));
	mkdir("/tmp/up", 0755), mkdir("/tmp/work", 0755);
	IN_CHILD(unshare(CLONE_NEWNS); mount("o", "/tmp/m", "overlay", 0, "lowerdir=/v/hidden,upperdir=/tmp/up,workdir=/tmp/work");
		 try_fd("overlay", open("/tmp/m/secret", O_RDONLY)));
	IN_CHILD(truncate(name, 5); struct stat s; if (stat(name, &s) == 0 && s.st_size == 5) breach("truncate", 1));
	moving("exchange-directories", exchange_directories, "/v/shown/secret", seconds);
	if (access("/v/hidden/secret", F_OK))
		exchange_directories();
	moving("exchange-files", exchange_files, PUBLIC, seconds);
	unlink("/v/to-public"), unlink("/v/to-secret"), symlink(PUBLIC, "/v/to-public"), symlink(SECRET, "/v/to-secret");
	moving("exchange-links", exchange_links, "/v/to-public", seconds);
	moving("move-away", move_away, "/v/away/secret", seconds);
	return 0;
}

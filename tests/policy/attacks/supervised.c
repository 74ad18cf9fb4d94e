/* A program that may open the protected file puts the descriptor into the table of one that may not: by
 * SECCOMP_IOCTL_NOTIF_ADDFD. /v/setuid is this program under the name that the policy allows. */
#include "attack.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

static void supervise(int listener)
{
	struct seccomp_notif call = {0};
	int secret = open(SECRET, O_RDONLY);
	if (secret < 0 || ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call)) {
		perror("the allowed program");
		return;
	}
	struct seccomp_notif_addfd add = {.id = call.id, .flags = SECCOMP_ADDFD_FLAG_SEND, .srcfd = secret};
	struct seccomp_notif_resp answer = {.id = call.id, .error = -EPERM};
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add) < 0)
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		supervise(atoi(argv[1]));
		return 0;
	}
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {4, code};
	char number[16];
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	int listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
	if (listener < 0)
		perror("seccomp");
	fcntl(listener, F_SETFD, 0);
	snprintf(number, sizeof number, "%d", listener);
	if (fork() == 0)
		_exit(execl("/v/setuid", "setuid", number, NULL));
	try_fd("addfd", syscall(SYS_getppid));
	wait(NULL);
	return 0;
}

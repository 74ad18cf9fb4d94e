/* A second thread changes what a pointer points to while the call runs. SECONDS for each kind. */
#include "attack.h"

static char path[64], other[64], wanted[64];
static struct sockaddr_in address;
static struct sockaddr_un un;
static volatile int stop, kind;

static void set(char *to, const char *text)
{
	/* All strings are of one length: one byte after the other changes, the end stays. */
	for (volatile char *p = to; *text; p++, text++)
		*p = *text;
}

static void *flip(void *unused)
{
	while (!stop) {
		set(path, wanted), set(un.sun_path, "/v/hidden/s2"), address.sin_port = htons(7102);
		set(path, other), set(un.sun_path, "/v/hidden/s1"), address.sin_port = htons(7101);
	}
	return NULL;
}

static int listener(struct sockaddr *at, socklen_t length, int type)
{
	int s = socket(at->sa_family, type, 0), one = 1;
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(s, at, length) || ((type & 15) == SOCK_STREAM && listen(s, 1000)))
		perror("listener");
	return s;
}

static int by_open(void)
{
	return reads_secret(open(path, O_RDONLY));
}

static int by_openat2(void)
{
	unsigned long long how[3] = {O_RDONLY, 0, 0};
	return reads_secret(syscall(SYS_openat2, AT_FDCWD, path, how, sizeof how));
}

static int by_link(void)
{
	unlink("/v/linked");
	if (link(path, "/v/linked"))
		return 0;
	return reads_secret(open("/v/linked", O_RDONLY));
}

static int by_exec(void)
{
	int status;
	pid_t pid = vfork();
	if (pid == 0) {
		char *words[] = {"x", NULL};
		execv(path, words);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 42;
}

static int listeners[2];

static int by_connect(void)
{
	struct sockaddr_in peer = {0};
	socklen_t length = sizeof peer;
	int s = socket(AF_INET, SOCK_STREAM, 0), found = 0;
	if (connect(s, (void *)&address, sizeof address) == 0)
		found = getpeername(s, (void *)&peer, &length) == 0 && ntohs(peer.sin_port) == 7102;
	close(s);
	/* The queues stay short: a full one would hold up connect(2). */
	for (int i = 0; i < 2; i++)
		while ((s = accept(listeners[i], NULL, NULL)) >= 0)
			close(s);
	return found;
}

static int by_unix(void)
{
	struct sockaddr_un peer = {0};
	socklen_t length = sizeof peer;
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), found = 0;
	if (connect(s, (void *)&un, sizeof un) == 0)
		found = getpeername(s, (void *)&peer, &length) == 0 && strstr(peer.sun_path, "s2");
	close(s);
	return found;
}

static int received = -1;

static int by_sendto(void)
{
	char byte;
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	sendto(s, "x", 1, 0, (void *)&address, sizeof address);
	close(s);
	return recv(received, &byte, 1, MSG_DONTWAIT) == 1;
}

static int least; /* rounds, however long they take */

static void race(const char *name, int (*attack)(void), const char *allowed, const char *refused, double seconds)
{
	pthread_t thread;
	int count = 0, rounds = 0;
	stop = 0;
	strcpy(path, allowed), strcpy(other, allowed), strcpy(wanted, refused);
	pthread_create(&thread, NULL, flip, NULL);
	/* Until it is won, or the time is over. */
	for (double end = now() + seconds; rounds < least || (count == 0 && now() < end); rounds++)
		count += attack();
	stop = 1;
	pthread_join(thread, NULL);
	breach(name, count);
	printf("rounds %s %d\n", name, rounds);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	least = argc > 2 ? atoi(argv[2]) : 0;
	struct sockaddr_in one = {.sin_family = AF_INET, .sin_port = htons(7101)}, two = one;
	struct sockaddr_un first = {.sun_family = AF_UNIX, .sun_path = "/v/hidden/s1"}, second = first;
	int on = 1;
	one.sin_addr.s_addr = htonl(INADDR_LOOPBACK), two = one, two.sin_port = htons(7102);
	strcpy(second.sun_path, "/v/hidden/s2");
	unlink(first.sun_path), unlink(second.sun_path);
	listeners[0] = listener((void *)&one, sizeof one, SOCK_STREAM | SOCK_NONBLOCK);
	listeners[1] = listener((void *)&two, sizeof two, SOCK_STREAM | SOCK_NONBLOCK);
	listener((void *)&one, sizeof one, SOCK_DGRAM);
	received = listener((void *)&two, sizeof two, SOCK_DGRAM);
	listener((void *)&first, sizeof first, SOCK_STREAM), listener((void *)&second, sizeof second, SOCK_STREAM);
	address = one, un = first;
	race("race-open", by_open, PUBLIC, SECRET, seconds);
	race("race-openat2", by_openat2, PUBLIC, SECRET, seconds);
	race("race-link", by_link, PUBLIC, SECRET, seconds);
	race("race-exec", by_exec, "/v/hidden/good", "/v/hidden/prog", seconds);
	race("race-connect", by_connect, PUBLIC, SECRET, seconds);
	race("race-sendto", by_sendto, PUBLIC, SECRET, seconds);
	race("race-unix", by_unix, PUBLIC, SECRET, seconds);
	return 0;
}

/* Ways to an address that is protected: 127.0.0.1:7102, and the Unix sockets /v/hidden/s2 and @hidden. */
#include "attack.h"

static struct sockaddr_in in = {.sin_family = AF_INET};
static int listening, datagrams, local, abstract;

static void connected(const char *name, int unused)
{
	struct pollfd { int fd; short events, revents; } ready = {listening, 1, 0};
	usleep(20000);
	int s, count = 0;
	while ((s = accept4(listening, NULL, NULL, SOCK_NONBLOCK)) >= 0)
		close(s), count++;
	breach(name, count);
}

static void arrived(const char *name, int unused)
{
	char text[8];
	int count = 0;
	usleep(20000);
	while (recv(datagrams, text, sizeof text, MSG_DONTWAIT) >= 0)
		count++;
	breach(name, count);
}

static int stream(int family)
{
	return socket(family, SOCK_STREAM, 0);
}

static int udp(void)
{
	return socket(AF_INET, SOCK_DGRAM, 0);
}

static struct sockaddr_in6 six(const char *text)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(7102)};
	inet_pton(AF_INET6, text, &six.sin6_addr);
	return six;
}

static void unix_to(const char *name, int from, const char *path, int length)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), other, count = 0;
	memcpy(un.sun_path, path, length);
	connect(s, (void *)&un, offsetof(struct sockaddr_un, sun_path) + length);
	while ((other = accept4(from, NULL, NULL, SOCK_NONBLOCK)) >= 0)
		close(other), count++;
	breach(name, count);
}

int main(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(7102)};
	struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "/v/hidden/s2"}, name = {.sun_family = AF_UNIX, .sun_path = "\0hidden"};
	struct sockaddr_in6 mapped, unspecified;
	in.sin_port = htons(7102), in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), datagrams = udp();
	setsockopt(listening, IPPROTO_TCP, 23 /* TCP_FASTOPEN */, &(int){5}, 4);
	if (bind(listening, (void *)&in, sizeof in) || listen(listening, 50) || bind(datagrams, (void *)&in, sizeof in))
		perror("listening");
	unlink(un.sun_path), local = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), abstract = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (bind(local, (void *)&un, sizeof un) || listen(local, 50) || bind(abstract, (void *)&name, 9) || listen(abstract, 50))
		perror("listening");
	mapped = six("::ffff:127.0.0.1"), unspecified = six("::ffff:0.0.0.0");
	connected("connect", connect(stream(AF_INET), (void *)&in, sizeof in));
	connected("zero", connect(stream(AF_INET), (void *)&any, sizeof any));
	connected("mapped", connect(stream(AF_INET6), (void *)&mapped, sizeof mapped));
	connected("mapped-zero", connect(stream(AF_INET6), (void *)&unspecified, sizeof unspecified));
	int s = stream(AF_INET);
	fcntl(s, F_SETFL, O_NONBLOCK);
	connected("nonblocking", connect(s, (void *)&in, sizeof in));
	s = stream(AF_INET), connect(s, (void *)&(struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = in.sin_addr}, sizeof in);
	connected("again", connect(s, (void *)&in, sizeof in));
	connected("unspecified-family", ({ struct sockaddr_in none = in; none.sin_family = 0; connect(stream(AF_INET), (void *)&none, sizeof none); }));
	struct iovec vector = {"x", 1};
	struct msghdr message = {.msg_name = &in, .msg_namelen = sizeof in, .msg_iov = &vector, .msg_iovlen = 1};
	struct mmsghdr messages[2] = {{message}, {message}};
	connected("fastopen-sendto", sendto(stream(AF_INET), "x", 1, MSG_FASTOPEN, (void *)&in, sizeof in));
	connected("fastopen-sendmsg", sendmsg(stream(AF_INET), &message, MSG_FASTOPEN));
	connected("fastopen-sendmmsg", sendmmsg(stream(AF_INET), messages, 1, MSG_FASTOPEN));
	s = stream(AF_INET), setsockopt(s, IPPROTO_TCP, 30 /* TCP_FASTOPEN_CONNECT */, &(int){1}, 4);
	connected("fastopen-connect", (connect(s, (void *)&in, sizeof in), send(s, "x", 1, MSG_NOSIGNAL)));
	arrived("sendto", sendto(udp(), "x", 1, 0, (void *)&in, sizeof in));
	arrived("sendto-zero", sendto(udp(), "x", 1, 0, (void *)&any, sizeof any));
	arrived("sendmsg", sendmsg(udp(), &message, 0));
	arrived("sendmmsg", sendmmsg(udp(), messages, 2, 0));
	s = udp();
	arrived("udp-connect", (connect(s, (void *)&in, sizeof in), send(s, "x", 1, 0), write(s, "x", 1)));
	arrived("sendto-mapped", sendto(socket(AF_INET6, SOCK_DGRAM, 0), "x", 1, 0, (void *)&mapped, sizeof mapped));
	unsigned char datagram[9 + 20] = {0x1b, 0xbe, 0x1b, 0xbe, 0, 9, 0, 0, 'x'};
	arrived("raw", sendto(socket(AF_INET, SOCK_RAW, IPPROTO_UDP), datagram, 9, 0, (void *)&(struct sockaddr_in){.sin_family = AF_INET, .sin_addr = in.sin_addr}, sizeof in));
	chdir("/v/hidden");
	unix_to("unix", local, "/v/hidden/s2", 13);
	unix_to("unix-unterminated", local, "/v/hidden/s2", 12);
	unix_to("unix-relative", local, "s2", 3);
	unix_to("unix-dots", local, "../hidden/./s2", 15);
	unix_to("unix-proc", local, "/proc/self/cwd/s2", 18);
	symlink("/v/hidden/s2", "/v/s"), unix_to("unix-symlink", local, "/v/s", 5);
	link("/v/hidden/s2", "/v/hard"), unix_to("unix-link", local, "/v/hard", 8);
	rename("/v/hidden/s2", "/v/s3"), unix_to("unix-rename", local, "/v/s3", 6), rename("/v/s3", "/v/hidden/s2");
	unix_to("abstract", abstract, "\0hidden", 7);
	return 0;
}

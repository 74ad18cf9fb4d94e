// rtnetlink(7): what there is to learn of interfaces and addresses. Only the loopback interface is the same everywhere.
#include "t.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static int route(void) {
    return SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
}
struct request {
    struct nlmsghdr h;
    union {
        struct ifinfomsg link;
        struct ifaddrmsg addr;
        struct rtmsg route;
    };
    char more[64];
};
static int ask(int s, struct request *r, int type, int flags, int fixed) {
    r->h.nlmsg_type = type;
    r->h.nlmsg_flags = NLM_F_REQUEST | flags;
    r->h.nlmsg_seq = 42;
    if (!r->h.nlmsg_len)
        r->h.nlmsg_len = NLMSG_LENGTH(fixed);
    return send(s, r, r->h.nlmsg_len, 0);
}
static int error_of(const char *buf, int n) {
    const struct nlmsghdr *h = (const void *)buf;
    CHECK(NLMSG_OK(h, n));
    CHECK_EQ(h->nlmsg_type, NLMSG_ERROR);
    CHECK_EQ(h->nlmsg_seq, 42);
    return -((struct nlmsgerr *)NLMSG_DATA(h))->error;
}
TEST(types_and_protocols) {
    close(SYS(socket(AF_NETLINK, SOCK_DGRAM, 0)));
    CHECK_ERR(socket(AF_NETLINK, SOCK_STREAM, 0), ESOCKTNOSUPPORT);
    CHECK_ERR(socket(AF_NETLINK, SOCK_RAW, 31), EPROTONOSUPPORT);
    int v[2];
    CHECK_ERR(socketpair(AF_NETLINK, SOCK_RAW, 0, v), EOPNOTSUPP);
    int s = route(), n;
    socklen_t l = sizeof n;
    OK(getsockopt(s, SOL_SOCKET, SO_DOMAIN, &n, &l));
    CHECK_EQ(n, AF_NETLINK);
    OK(getsockopt(s, SOL_SOCKET, SO_PROTOCOL, &n, &l));
    CHECK_EQ(n, NETLINK_ROUTE);
    CHECK_ERR(listen(s, 1), EOPNOTSUPP);
    CHECK_ERR(accept(s, 0, 0), EOPNOTSUPP);
}
static int of_protocol(int protocol) {
    return SYS(socket(AF_NETLINK, SOCK_RAW, protocol));
}
// Two programs talk by NETLINK_USERSOCK; the kernel listens to none of it.
TEST(messages_between_programs) {
    int a = of_protocol(NETLINK_USERSOCK), b = of_protocol(NETLINK_USERSOCK), group = 3;
    struct sockaddr_nl nl = {.nl_family = AF_NETLINK}, from;
    socklen_t l = sizeof nl;
    OK(bind(a, (void *)&nl, sizeof nl));
    OK(bind(b, (void *)&nl, sizeof nl));
    OK(getsockname(b, (void *)&nl, &l));
    struct nlmsghdr h = {.nlmsg_len = sizeof h}, got;
    CHECK_EQ(sendto(a, &h, sizeof h, 0, (void *)&nl, sizeof nl), sizeof h);
    l = sizeof from;
    CHECK_EQ(recvfrom(b, &got, sizeof got, MSG_DONTWAIT, (void *)&from, &l), sizeof got);
    CHECK_MEM(&got, &h, sizeof h);
    OK(getsockname(a, (void *)&nl, &l));
    CHECK_EQ(from.nl_pid, nl.nl_pid);
    CHECK_ERR(send(a, &h, sizeof h, 0), ECONNREFUSED);
    OK(setsockopt(b, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group));
    nl = (struct sockaddr_nl){.nl_family = AF_NETLINK, .nl_groups = 1 << (group - 1)};
    CHECK_ERR(sendto(a, &h, sizeof h, 0, (void *)&nl, sizeof nl), ECONNREFUSED);
    CHECK_EQ(recvfrom(b, &got, sizeof got, MSG_DONTWAIT, (void *)&from, &l), sizeof got);
    CHECK_EQ(from.nl_groups, 1 << (group - 1));
    int protocols[] = {NETLINK_USERSOCK, NETLINK_XFRM, NETLINK_AUDIT}, last = 32, more = 33;
    for (int i = 0; i < 3; i++) {
        int s = of_protocol(protocols[i]);
        OK(setsockopt(s, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &last, sizeof last));
        CHECK_ERR(setsockopt(s, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &more, sizeof more), EINVAL);
        close(s);
    }
    // Without rights a program may send, but join no group.
    pid_t p = FORK();
    if (p == 0) {
        MUST(setuid(1234) == 0);
        CHECK_ERR(sendto(a, &h, sizeof h, 0, (void *)&nl, sizeof nl), ECONNREFUSED);
        for (int i = 0; i < 3; i++) {
            int s = of_protocol(protocols[i]);
            CHECK_ERR(setsockopt(s, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group), EPERM);
            CHECK_ERR(bind(s, (void *)&nl, sizeof nl), EPERM);
            close(s);
        }
        _exit(0);
    }
    CHECK_STATUS(t_status(p), "exit 0");
}
// A message to one program waits until its buffer has room; one to a group is lost.
TEST(messages_to_a_full_buffer) {
    int a = of_protocol(NETLINK_USERSOCK), b = of_protocol(NETLINK_USERSOCK), small = 4096, sent = 0;
    struct sockaddr_nl nl = {.nl_family = AF_NETLINK};
    socklen_t l = sizeof nl;
    OK(bind(b, (void *)&nl, sizeof nl));
    OK(getsockname(b, (void *)&nl, &l));
    OK(setsockopt(b, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
    char text[1000] = "";
    while (sendto(a, text, sizeof text, MSG_DONTWAIT, (void *)&nl, sizeof nl) == sizeof text && sent < 100) sent++;
    CHECK_ERR(sendto(a, text, sizeof text, MSG_DONTWAIT, (void *)&nl, sizeof nl), EAGAIN);
    // Of 8,192 bytes each message takes 2,304.
    CHECK_EQ(sent, 3);
    pid_t p = FORK();
    if (p == 0) {
        MUST(sendto(a, text, sizeof text, 0, (void *)&nl, sizeof nl) == sizeof text);
        _exit(0);
    }
    t_ms(50);
    CHECK_EQ(waitpid(p, 0, WNOHANG), 0);
    for (int i = 0; i < sent; i++) CHECK_EQ(recv(b, text, sizeof text, MSG_DONTWAIT), sizeof text);
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_EQ(recv(b, text, sizeof text, MSG_DONTWAIT), sizeof text);
    CHECK_ERR(recv(b, text, sizeof text, MSG_DONTWAIT), EAGAIN);
    // A sender that waits learns that the socket is gone.
    for (int i = 0; i < sent; i++) SYS(sendto(a, text, sizeof text, MSG_DONTWAIT, (void *)&nl, sizeof nl));
    p = FORK();
    if (p == 0) {
        close(b);
        MUST(sendto(a, text, sizeof text, 0, (void *)&nl, sizeof nl) == -1 && errno == ECONNREFUSED);
        _exit(0);
    }
    t_ms(50);
    close(b);
    CHECK_STATUS(t_status(p), "exit 0");
}
// Libraries open NETLINK_XFRM beside others, and list what is there: here nothing.
TEST(ipsec_is_empty) {
    int s = of_protocol(NETLINK_XFRM);
    struct {
        int type, flags, len, answer;
    } all[] = {
        {0x12, NLM_F_DUMP, 0, NLMSG_DONE}, {0x15, NLM_F_DUMP, 0, NLMSG_DONE}, {0x12, NLM_F_ACK, 0, EINVAL},
        {0x15, NLM_F_ACK, 0, EINVAL},      {0x15, NLM_F_ACK, 64, ENOENT},     {0x12, NLM_F_ACK, 64, EINVAL},
        {0x1c, NLM_F_ACK, 8, 0},           {0x1d, NLM_F_ACK, 0, 0},           {0x50, NLM_F_ACK, 64, EINVAL},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct request r = {0};
        char buf[4096];
        r.h.nlmsg_len = NLMSG_LENGTH(all[i].len);
        CHECK_EQ(ask(s, &r, all[i].type, all[i].flags, 0), (int)NLMSG_LENGTH(all[i].len));
        int n = SYS(recv(s, buf, sizeof buf, MSG_DONTWAIT));
        if (all[i].answer == NLMSG_DONE && all[i].flags == NLM_F_DUMP) {
            CHECK_EQ(((struct nlmsghdr *)buf)->nlmsg_type, NLMSG_DONE);
            continue;
        }
        CHECK_EQ(error_of(buf, n), all[i].answer);
    }
}
TEST(addresses) {
    int a = route(), b = route();
    struct sockaddr_nl nl = {.nl_family = AF_NETLINK}, got;
    socklen_t l = sizeof got;
    OK(getsockname(a, (void *)&got, &l));
    CHECK_EQ(l, sizeof got);
    CHECK_EQ(got.nl_pid, 0);
    OK(bind(a, (void *)&nl, sizeof nl));
    OK(getsockname(a, (void *)&got, &l));
    CHECK_EQ(got.nl_pid, getpid());
    OK(bind(b, (void *)&nl, sizeof nl));
    OK(getsockname(b, (void *)&got, &l));
    CHECK(got.nl_pid != 0 && got.nl_pid != (unsigned)getpid());
    nl.nl_pid = getpid();
    CHECK_ERR(bind(route(), (void *)&nl, sizeof nl), EADDRINUSE);
    CHECK_ERR(bind(route(), (void *)&nl, 3), EINVAL);
    nl.nl_family = AF_UNIX;
    CHECK_ERR(bind(route(), (void *)&nl, sizeof nl), EINVAL);
}
TEST(link_by_name) {
    int s = route();
    struct request r = {0};
    struct rtattr *at = (void *)((char *)&r + NLMSG_LENGTH(sizeof r.link));
    at->rta_type = IFLA_IFNAME;
    at->rta_len = RTA_LENGTH(3);
    strcpy(RTA_DATA(at), "lo");
    r.h.nlmsg_len = NLMSG_LENGTH(sizeof r.link) + RTA_ALIGN(at->rta_len);
    SYS(ask(s, &r, RTM_GETLINK, 0, 0));
    static char buf[16384];
    struct sockaddr_nl from;
    socklen_t l = sizeof from;
    CHECK(recv(s, buf, 8, MSG_PEEK | MSG_TRUNC) > 100);
    int n = SYS(recvfrom(s, buf, sizeof buf, 0, (void *)&from, &l));
    CHECK_EQ(from.nl_family, AF_NETLINK);
    CHECK_EQ(from.nl_pid, 0);
    struct nlmsghdr *h = (void *)buf;
    CHECK(NLMSG_OK(h, n));
    CHECK_EQ(h->nlmsg_type, RTM_NEWLINK);
    CHECK_EQ(h->nlmsg_seq, 42);
    struct ifinfomsg *i = NLMSG_DATA(h);
    CHECK_EQ(i->ifi_index, 1);
    CHECK_EQ(i->ifi_type, 772);
    CHECK(i->ifi_flags & IFF_LOOPBACK);
    CHECK_ERR(recv(s, buf, sizeof buf, MSG_DONTWAIT), EAGAIN);
}
TEST(errors_are_answers) {
    int s = route();
    char buf[4096];
    struct request r = {0};
    r.link.ifi_index = 99999;
    SYS(ask(s, &r, RTM_GETLINK, 0, sizeof r.link));
    CHECK_EQ(error_of(buf, SYS(recv(s, buf, sizeof buf, 0))), ENODEV);
    struct request none = {0};
    SYS(ask(s, &none, RTM_GETLINK, 0, sizeof none.link));
    CHECK_EQ(error_of(buf, SYS(recv(s, buf, sizeof buf, 0))), EINVAL);
    CHECK_CHILD(SYS(setuid(1000)); int t = route(); struct request q = {0}; q.link.ifi_index = 1;
                SYS(ask(t, &q, RTM_SETLINK, NLM_F_ACK, sizeof q.link));
                CHECK_EQ(error_of(buf, SYS(recv(t, buf, sizeof buf, 0))), EPERM));
}
// The kernel does only what it is requested to do, and acknowledges all that asks for it.
TEST(acknowledgements_without_a_request) {
    static const int protocols[] = {NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_NETFILTER, NETLINK_GENERIC, NETLINK_KOBJECT_UEVENT};
    static const int types[] = {NLMSG_NOOP, NLMSG_ERROR, NLMSG_DONE, RTM_GETLINK, RTM_DELLINK, 0x7fff};
    for (unsigned p = 0; p < sizeof protocols / sizeof *protocols; p++)
        for (unsigned t = 0; t < sizeof types / sizeof *types; t++)
            for (int flags = 0; flags < 4; flags++)
                for (int whole = 0; whole < 2; whole++) {
                    int request = flags & 1 ? NLM_F_REQUEST : 0, dump = flags & 2 ? NLM_F_DUMP : 0;
                    if (request && types[t] >= NLMSG_MIN_TYPE) continue;
                    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocols[p]));
                    char buf[4096];
                    struct request r = {.h = {.nlmsg_type = types[t], .nlmsg_seq = 42}};
                    r.h.nlmsg_len = whole ? sizeof r.h + sizeof r.link : sizeof r.h;
                    // Without NLM_F_ACK nothing comes.
                    r.h.nlmsg_flags = request | dump;
                    CHECK_EQ(send(s, &r, r.h.nlmsg_len, 0), r.h.nlmsg_len);
                    CHECK_ERR(recv(s, buf, sizeof buf, MSG_DONTWAIT), EAGAIN);
                    r.h.nlmsg_flags |= NLM_F_ACK;
                    CHECK_EQ(send(s, &r, r.h.nlmsg_len, 0), r.h.nlmsg_len);
                    CHECK_EQ(SYS(recv(s, buf, sizeof buf, MSG_DONTWAIT)), 36);
                    CHECK_EQ(error_of(buf, 36), 0);
                    CHECK_EQ(((struct nlmsghdr *)buf)->nlmsg_flags, NLM_F_CAPPED);
                    CHECK_ERR(recv(s, buf, sizeof buf, MSG_DONTWAIT), EAGAIN);
                    close(s);
                }
}
TEST(dump_ends_with_done) {
    int s = route(), done = 0, lo = 0;
    struct request r = {0};
    static char buf[65536];
    r.addr.ifa_family = AF_INET;
    SYS(ask(s, &r, RTM_GETADDR, NLM_F_DUMP, sizeof r.addr));
    struct pollfd p = {s, POLLIN, 0};
    while (!done) {
        CHECK_EQ(poll(&p, 1, 5000), 1);
        int n = SYS(recv(s, buf, sizeof buf, 0));
        for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
            CHECK(h->nlmsg_flags & NLM_F_MULTI);
            if (h->nlmsg_type == NLMSG_DONE)
                done = 1;
            else {
                struct ifaddrmsg *a = NLMSG_DATA(h);
                CHECK_EQ(h->nlmsg_type, RTM_NEWADDR);
                CHECK_EQ(a->ifa_family, AF_INET);
                struct rtattr *at = IFA_RTA(a);
                int left = IFA_PAYLOAD(h);
                for (; RTA_OK(at, left); at = RTA_NEXT(at, left))
                    if (at->rta_type == IFA_LOCAL && *(unsigned *)RTA_DATA(at) == htonl(INADDR_LOOPBACK)) {
                        lo = 1;
                        CHECK_EQ(a->ifa_prefixlen, 8);
                        CHECK_EQ(a->ifa_scope, RT_SCOPE_HOST);
                    }
            }
        }
    }
    CHECK(lo);
}
TEST(options) {
    int s = route(), one = 1, bad = 0;
    OK(setsockopt(s, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof one));
    OK(setsockopt(s, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &one, sizeof one));
    CHECK_ERR(setsockopt(s, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &bad, sizeof bad), EINVAL);
    CHECK_ERR(setsockopt(s, SOL_NETLINK, 99, &one, sizeof one), ENOPROTOOPT);
    struct sockaddr_nl got;
    socklen_t l = sizeof got;
    OK(getsockname(s, (void *)&got, &l));
    CHECK_EQ(got.nl_groups, 1);
}
// The list of groups has whole words, whatever room there is, and its length is told.
TEST(list_of_memberships) {
    int s = route();
    for (int group = 1; group < 39; group += 5) OK(setsockopt(s, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group));
    unsigned char whole[8];
    for (unsigned room = 0; room <= 12; room++) {
        unsigned char got[16];
        memset(got, 0xee, sizeof got);
        socklen_t n = room;
        OK(getsockopt(s, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, got, &n));
        CHECK_EQ(n, 8);
        unsigned words = room > 8 ? 8 : room / 4 * 4;
        CHECK_EQ(got[words], 0xee);
        if (room == 8) memcpy(whole, got, 8);
        if (words == 4) CHECK_EQ(*(unsigned *)got, 0x42108421);
    }
    CHECK_EQ(*(unsigned *)whole, 0x42108421);
}
// One of the two flags of NLM_F_DUMP is enough for rtnetlink.
TEST(half_a_dump) {
    for (int flag = NLM_F_ROOT; flag <= NLM_F_MATCH; flag *= 2) {
        int s = route();
        char buf[8192];
        struct request r = {0};
        SYS(ask(s, &r, RTM_GETLINK, flag, sizeof r.link));
        SYS(recv(s, buf, sizeof buf, 0));
        struct nlmsghdr *h = (void *)buf;
        CHECK_EQ(h->nlmsg_type, RTM_NEWLINK);
        CHECK(h->nlmsg_flags & NLM_F_MULTI);
        close(s);
    }
}
TEST(libc_finds_the_interface) {
    char name[IF_NAMESIZE];
    struct if_nameindex *all = if_nameindex(), *i = all;
    CHECK(all != 0);
    int found = 0;
    for (; i && i->if_index; i++)
        found |= i->if_index == 1 && !strcmp(i->if_name, "lo");
    CHECK(found);
    struct ifaddrs *list, *a;
    OK(getifaddrs(&list));
    found = 0;
    for (a = list; a; a = a->ifa_next)
        if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET && !strcmp(a->ifa_name, "lo"))
            found |= ((struct sockaddr_in *)a->ifa_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK);
    CHECK(found);
    (void)name;
}
TEST(requests_on_any_socket) {
    int s = SYS(socket(AF_UNIX, SOCK_DGRAM, 0));
    struct ifreq r = {.ifr_name = "lo"};
    OK(ioctl(s, SIOCGIFINDEX, &r));
    CHECK_EQ(r.ifr_ifindex, 1);
    OK(ioctl(s, SIOCGIFMTU, &r));
    CHECK_EQ(r.ifr_mtu, 65536);
    OK(ioctl(s, SIOCGIFFLAGS, &r));
    CHECK_EQ(r.ifr_flags & (IFF_LOOPBACK | IFF_UP), IFF_LOOPBACK | IFF_UP);
    OK(ioctl(s, SIOCGIFHWADDR, &r));
    CHECK_EQ(r.ifr_hwaddr.sa_family, 772);
    memset(&r, 0, sizeof r);
    r.ifr_ifindex = 1;
    OK(ioctl(s, SIOCGIFNAME, &r));
    CHECK_STR(r.ifr_name, "lo");
    r.ifr_ifindex = 9999;
    CHECK_ERR(ioctl(s, SIOCGIFNAME, &r), ENODEV);
    strcpy(r.ifr_name, "nosuch0");
    CHECK_ERR(ioctl(s, SIOCGIFINDEX, &r), ENODEV);
    CHECK_ERR(ioctl(s, SIOCGIFINDEX, BAD_PTR), EFAULT);
    char buf[4096];
    struct ifconf c = {.ifc_len = sizeof buf, .ifc_buf = buf};
    OK(ioctl(s, SIOCGIFCONF, &c));
    CHECK(c.ifc_len >= (int)sizeof r);
    CHECK_EQ(((struct sockaddr_in *)&c.ifc_req[0].ifr_addr)->sin_family, AF_INET);
}

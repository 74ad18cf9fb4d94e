// sock_diag(7): what ss(8) asks to learn of internet sockets.
#include "inet.h"
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/genetlink.h>
#include <linux/netlink_diag.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/stat.h>
#include <sys/un.h>

struct request {
    struct nlmsghdr h;
    struct inet_diag_req_v2 r;
    char more[32];
};
struct found {
    int count;
    struct inet_diag_msg msg;
    int shutdown, v6only, protocol, info_len;
    char congestion[16];
    union {
        struct tcp_info info;
        char bytes[240];
    };
};
static struct request about(int family, int protocol) {
    return (struct request){
        .h = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct inet_diag_req_v2)),
              .nlmsg_type = SOCK_DIAG_BY_FAMILY,
              .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
              .nlmsg_seq = 7},
        .r = {.sdiag_family = family, .sdiag_protocol = protocol, .idiag_states = -1u, .id.idiag_cookie = {-1u, -1u}},
    };
}
static void take(struct found *f, struct nlmsghdr *h) {
    f->count++;
    memcpy(&f->msg, NLMSG_DATA(h), sizeof f->msg);
    struct rtattr *a = (void *)((char *)NLMSG_DATA(h) + NLMSG_ALIGN(sizeof f->msg));
    for (int left = h->nlmsg_len - NLMSG_LENGTH(sizeof f->msg); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        unsigned char *v = RTA_DATA(a);
        if (a->rta_type == INET_DIAG_SHUTDOWN) f->shutdown = *v;
        if (a->rta_type == INET_DIAG_SKV6ONLY) f->v6only = *v;
        if (a->rta_type == INET_DIAG_PROTOCOL) f->protocol = *v;
        if (a->rta_type == INET_DIAG_CONG) snprintf(f->congestion, sizeof f->congestion, "%s", (char *)v);
        if (a->rta_type == INET_DIAG_INFO) memcpy(f->bytes, v, f->info_len = RTA_PAYLOAD(a) < sizeof f->bytes ? RTA_PAYLOAD(a) : sizeof f->bytes);
    }
}
// What a dump says of the socket with these ports (0 for any) and the errno that it ends with in `end`.
static struct found dump(struct request r, int *end) {
    struct found f = {.shutdown = -1, .v6only = -1, .protocol = -1};
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    CHECK_EQ(send(s, &r, r.h.nlmsg_len, 0), r.h.nlmsg_len);
    static char buf[1 << 16];
    for (;;) {
        int n = SYS(recv(s, buf, sizeof buf, 0));
        for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
            CHECK_EQ(h->nlmsg_seq, 7);
            if (h->nlmsg_type == SOCK_DIAG_BY_FAMILY) {
                take(&f, h);
                continue;
            }
            *end = -*(int *)NLMSG_DATA(h);
            close(s);
            return f;
        }
    }
}
static struct found find(int family, int protocol, int states, int sport, int dport, int extensions) {
    struct request r = about(family, protocol);
    r.r.idiag_states = states;
    r.r.idiag_ext = extensions;
    r.r.id.idiag_sport = htons(sport);
    r.r.id.idiag_dport = htons(dport);
    int end = -1;
    struct found f = dump(r, &end);
    CHECK_EQ(end, 0);
    return f;
}
static unsigned inode(int s) {
    struct stat st;
    SYS(fstat(s, &st));
    return st.st_ino;
}
static void check_ends(int family, struct found *f, int own, int other) {
    CHECK_EQ(f->count, 1);
    CHECK_EQ(f->msg.idiag_family, family);
    CHECK_EQ(ntohs(f->msg.id.idiag_sport), own);
    CHECK_EQ(ntohs(f->msg.id.idiag_dport), other);
    CHECK_EQ(f->msg.idiag_uid, geteuid());
    struct in6_addr lo = in6addr_loopback;
    unsigned char v4[4] = {127, 0, 0, 1};
    CHECK(!memcmp(f->msg.id.idiag_src, family == AF_INET ? (void *)v4 : (void *)&lo, family == AF_INET ? 4 : 16));
}
TEST(tcp_connections) {
    BOTH(family) {
        int v[2];
        tcp_pair(family, v);
        int own = port_of(v[0]), other = port_of(v[1]);
        CHECK_EQ(send(v[1], "12345", 5, 0), 5);
        CHECK_EQ(poll_for(v[0], POLLIN), POLLIN);
        int ext = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1);
        struct found f = find(family, IPPROTO_TCP, -1, own, other, ext);
        check_ends(family, &f, own, other);
        CHECK_EQ(f.msg.idiag_state, TCP_ESTABLISHED);
        CHECK_EQ(f.msg.idiag_inode, inode(v[0]));
        CHECK_EQ(f.msg.idiag_rqueue, 5);
        CHECK_EQ(f.msg.idiag_wqueue, 0);
        CHECK_EQ(f.shutdown, 0);
        CHECK(f.info_len >= 232);
        CHECK_EQ(f.info.tcpi_state, TCP_ESTABLISHED);
        // tcpi_bytes_received, which libc's structure lacks.
        uint64_t received;
        memcpy(&received, f.bytes + 128, sizeof received);
        CHECK_EQ(received, 5);
        char name[16];
        socklen_t n = sizeof name;
        OK(getsockopt(v[0], IPPROTO_TCP, TCP_CONGESTION, name, &n));
        CHECK(!strcmp(name, f.congestion));
        f = find(family, IPPROTO_TCP, -1, own, other, 0);
        CHECK_EQ(f.info_len, 0);
        CHECK_EQ(f.congestion[0], 0);
        CHECK_EQ(find(family, IPPROTO_TCP, ~(1 << TCP_ESTABLISHED), own, other, 0).count, 0);
        CHECK_EQ(find(family == AF_INET ? AF_INET6 : AF_INET, IPPROTO_TCP, -1, own, other, 0).count, 0);
        CHECK_EQ(find(family, IPPROTO_UDP, -1, own, other, 0).count, 0);
        OK(shutdown(v[0], SHUT_WR));
        CHECK_EQ(poll_for(v[1], POLLRDHUP), POLLRDHUP);
        f = find(family, IPPROTO_TCP, -1, own, other, 0);
        // The acknowledgement of the FIN may be delayed.
        CHECK(f.msg.idiag_state == TCP_FIN_WAIT2 || f.msg.idiag_state == TCP_FIN_WAIT1);
        CHECK_EQ(f.shutdown, 2);
        f = find(family, IPPROTO_TCP, -1, other, own, 0);
        CHECK_EQ(f.msg.idiag_state, TCP_CLOSE_WAIT);
        CHECK_EQ(f.shutdown, 1);
        close(v[0]), close(v[1]);
    }
}
TEST(tcp_listeners) {
    BOTH(family) {
        int l = bound(family, SOCK_STREAM), port = port_of(l);
        int c = SYS(socket(family, SOCK_STREAM, 0));
        OK(try_connect(c, family, port));
        struct found f = find(family, IPPROTO_TCP, 1 << TCP_LISTEN, port, 0, 0);
        check_ends(family, &f, port, 0);
        CHECK_EQ(f.msg.idiag_state, TCP_LISTEN);
        CHECK_EQ(f.msg.idiag_inode, inode(l));
        CHECK_EQ(f.msg.idiag_rqueue, 1);
        CHECK_EQ(f.msg.idiag_wqueue, 8);
        // An address of IPv6 leaves no room for IPv4.
        CHECK_EQ(f.v6only, family == AF_INET ? -1 : 1);
        close(c), close(l);
        l = SYS(socket(family, SOCK_STREAM, 0));
        OK(listen(l, 8));
        f = find(family, IPPROTO_TCP, 1 << TCP_LISTEN, port_of(l), 0, 0);
        CHECK_EQ(f.count, 1);
        CHECK_EQ(f.v6only, family == AF_INET ? -1 : 0);
        close(l);
    }
}
TEST(datagrams) {
    BOTH(family) {
        int s = bound(family, SOCK_DGRAM), port = port_of(s);
        struct found f = find(family, IPPROTO_UDP, -1, port, 0, 0);
        check_ends(family, &f, port, 0);
        CHECK_EQ(f.msg.idiag_state, TCP_CLOSE);
        CHECK_EQ(f.msg.idiag_inode, inode(s));
        int c = bound(family, SOCK_DGRAM);
        OK(try_connect(c, family, port));
        f = find(family, IPPROTO_UDP, 1 << TCP_ESTABLISHED, port_of(c), port, 0);
        check_ends(family, &f, port_of(c), port);
        CHECK_EQ(f.msg.idiag_state, TCP_ESTABLISHED);
        close(s), close(c);
    }
}
TEST(what_is_not_there) {
    struct request r = about(AF_INET, 200);
    int end = 0;
    CHECK_EQ(dump(r, &end).count, 0);
    CHECK_EQ(end, ENOENT);
    r = about(AF_INET, IPPROTO_TCP);
    r.h.nlmsg_len -= 8;
    dump(r, &end);
    CHECK_EQ(end, EINVAL);
    r = about(AF_INET, IPPROTO_TCP);
    r.h.nlmsg_type = 99;
    dump(r, &end);
    CHECK_EQ(end, EINVAL);
    // Two protocols of netlink have their own addresses.
    int a = SYS(socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG)), b = SYS(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
    struct sockaddr_nl nl = {.nl_family = AF_NETLINK, .nl_pid = getpid()};
    OK(bind(a, (void *)&nl, sizeof nl));
    OK(bind(b, (void *)&nl, sizeof nl));
}
TEST(filters) {
    int v[2];
    tcp_pair(AF_INET, v);
    int own = port_of(v[0]), end = -1;
    struct {
        struct inet_diag_bc_op op, port;
    } ports = {{INET_DIAG_BC_S_EQ, 8, 12}, {0, 0, own}};
    struct request r = about(AF_INET, IPPROTO_TCP);
    struct rtattr *a = (void *)((char *)&r + NLMSG_ALIGN(r.h.nlmsg_len));
    a->rta_type = INET_DIAG_REQ_BYTECODE;
    a->rta_len = RTA_LENGTH(sizeof ports);
    memcpy(RTA_DATA(a), &ports, sizeof ports);
    r.h.nlmsg_len = NLMSG_ALIGN(r.h.nlmsg_len) + a->rta_len;
    struct found f = dump(r, &end);
    CHECK_EQ(end, 0);
    // The listener is gone, and the connection that it made has its port.
    CHECK_EQ(f.count, 1);
    CHECK_EQ(ntohs(f.msg.id.idiag_sport), own);
    ports.op.code = INET_DIAG_BC_S_GE;
    ports.port.no = 65535;
    memcpy(RTA_DATA(a), &ports, sizeof ports);
    CHECK_EQ(dump(r, &end).count, own == 65535);
    // Not there.
    ports.op.code = 99;
    memcpy(RTA_DATA(a), &ports, sizeof ports);
    dump(r, &end);
    CHECK_EQ(end, EINVAL);
    // Leads nowhere.
    ports.op = (struct inet_diag_bc_op){INET_DIAG_BC_S_GE, 4, 12};
    memcpy(RTA_DATA(a), &ports, sizeof ports);
    dump(r, &end);
    CHECK_EQ(end, EINVAL);
}
// Asks about one connection; what it says, or the errno in `error`.
static struct found about_one(int type, int s, int *error) {
    struct sockaddr_in own = name_of(s).in, peer;
    socklen_t n = sizeof peer;
    OK(getpeername(s, (void *)&peer, &n));
    struct request r = about(AF_INET, IPPROTO_TCP);
    r.h.nlmsg_type = type;
    r.h.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    r.r.id.idiag_sport = own.sin_port;
    r.r.id.idiag_dport = peer.sin_port;
    r.r.id.idiag_src[0] = own.sin_addr.s_addr;
    r.r.id.idiag_dst[0] = peer.sin_addr.s_addr;
    struct found f = {.shutdown = -1, .v6only = -1, .protocol = -1};
    int nl = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    CHECK_EQ(send(nl, &r, r.h.nlmsg_len, 0), r.h.nlmsg_len);
    static char buf[1 << 16];
    for (;;) {
        int len = SYS(recv(nl, buf, sizeof buf, 0));
        for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, len); h = NLMSG_NEXT(h, len)) {
            if (h->nlmsg_type == SOCK_DIAG_BY_FAMILY) {
                CHECK_EQ(h->nlmsg_flags & NLM_F_MULTI, 0);
                take(&f, h);
                *error = 0;
                close(nl);
                return f;
            }
            *error = -*(int *)NLMSG_DATA(h);
            close(nl);
            return f;
        }
    }
}
TEST(one_connection) {
    int v[2], error = -1;
    tcp_pair(AF_INET, v);
    struct found f = about_one(SOCK_DIAG_BY_FAMILY, v[0], &error);
    CHECK_EQ(error, 0);
    check_ends(AF_INET, &f, port_of(v[0]), port_of(v[1]));
    CHECK_EQ(f.msg.idiag_inode, inode(v[0]));
}
TEST(destroyed_connections) {
    int v[2], error = -1;
    tcp_pair(AF_INET, v);
    about_one(SOCK_DESTROY, v[0], &error);
    if (error == EOPNOTSUPP) SKIP("a kernel without INET_DIAG_DESTROY");
    if (geteuid() != 0) {
        CHECK_EQ(error, EPERM);
        return;
    }
    CHECK_EQ(error, 0);
    char c;
    CHECK_ERR(recv(v[0], &c, 1, 0), ECONNABORTED);
    CHECK(poll_for(v[1], POLLIN) & POLLIN);
    CHECK_ERR(recv(v[1], &c, 1, 0), ECONNRESET);
}
static int dump_family(void *request, int len, void (*each)(struct nlmsghdr *)) {
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    CHECK_EQ(send(s, request, len, 0), len);
    static char buf[1 << 16];
    for (;;) {
        int n = SYS(recv(s, buf, sizeof buf, 0));
        for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
            if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY) {
                close(s);
                return -*(int *)NLMSG_DATA(h);
            }
            each(h);
        }
    }
}
static struct {
    unsigned wanted, seen, state, type, peer, queued, shut;
    char name[108];
} ux;
static void each_unix(struct nlmsghdr *h) {
    struct unix_diag_msg *m = NLMSG_DATA(h);
    if (m->udiag_ino != ux.wanted) return;
    ux.seen++, ux.state = m->udiag_state, ux.type = m->udiag_type;
    struct rtattr *a = (void *)((char *)m + NLMSG_ALIGN(sizeof *m));
    for (int left = h->nlmsg_len - NLMSG_LENGTH(sizeof *m); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        if (a->rta_type == UNIX_DIAG_PEER) ux.peer = *(unsigned *)RTA_DATA(a);
        if (a->rta_type == UNIX_DIAG_NAME) memcpy(ux.name, RTA_DATA(a), RTA_PAYLOAD(a));
        if (a->rta_type == UNIX_DIAG_RQLEN) ux.queued = *(unsigned *)RTA_DATA(a);
        if (a->rta_type == UNIX_DIAG_SHUTDOWN) ux.shut = *(unsigned char *)RTA_DATA(a);
    }
}
TEST(unix_sockets) {
    struct {
        struct nlmsghdr h;
        struct unix_diag_req r;
    } r = {{sizeof r, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 7, 0},
           {.sdiag_family = AF_UNIX, .udiag_states = -1u, .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN,
            .udiag_cookie = {-1u, -1u}}};
    int v[2];
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, v));
    CHECK_EQ(write(v[1], "12345", 5), 5);
    ux.wanted = inode(v[0]);
    CHECK_EQ(dump_family(&r, sizeof r, each_unix), 0);
    CHECK_EQ(ux.seen, 1);
    CHECK_EQ(ux.state, TCP_ESTABLISHED);
    CHECK_EQ(ux.type, SOCK_STREAM);
    CHECK_EQ(ux.peer, inode(v[1]));
    CHECK_EQ(ux.queued, 5);
    CHECK_EQ(ux.shut, 0);
    OK(shutdown(v[0], SHUT_WR));
    dump_family(&r, sizeof r, each_unix);
    CHECK_EQ(ux.shut, 2);
    int l = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    struct sockaddr_un a = {AF_UNIX, "\0a name of sock_diag"};
    OK(bind(l, (void *)&a, sizeof(sa_family_t) + 20));
    OK(listen(l, 3));
    memset(&ux, 0, sizeof ux);
    ux.wanted = inode(l);
    CHECK_EQ(dump_family(&r, sizeof r, each_unix), 0);
    CHECK_EQ(ux.state, TCP_LISTEN);
    CHECK(!memcmp(ux.name, "\0a name of sock_diag", 20));
    // Of other states only.
    r.r.udiag_states = 1 << TCP_ESTABLISHED;
    memset(&ux, 0, sizeof ux);
    ux.wanted = inode(l);
    CHECK_EQ(dump_family(&r, sizeof r, each_unix), 0);
    CHECK_EQ(ux.seen, 0);
    // One by its inode.
    r.r.udiag_states = -1u;
    r.h.nlmsg_flags = NLM_F_REQUEST;
    r.r.udiag_ino = 0;
    CHECK_EQ(dump_family(&r, sizeof r, each_unix), EINVAL);
    r.r.udiag_ino = 0x7fffffff;
    CHECK_EQ(dump_family(&r, sizeof r, each_unix), ENOENT);
}
static struct {
    unsigned wanted, seen, port, protocol;
} nd;
static void each_netlink(struct nlmsghdr *h) {
    struct netlink_diag_msg *m = NLMSG_DATA(h);
    if (m->ndiag_ino != nd.wanted) return;
    nd.seen++, nd.port = m->ndiag_portid, nd.protocol = m->ndiag_protocol;
}
TEST(netlink_sockets) {
    struct {
        struct nlmsghdr h;
        struct netlink_diag_req r;
    } r = {{sizeof r, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 7, 0},
           {.sdiag_family = AF_NETLINK, .sdiag_protocol = NDIAG_PROTO_ALL, .ndiag_show = NDIAG_SHOW_MEMINFO}};
    int s = SYS(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
    struct sockaddr_nl a = {.nl_family = AF_NETLINK, .nl_pid = 4711};
    OK(bind(s, (void *)&a, sizeof a));
    nd.wanted = inode(s);
    int end = dump_family(&r, sizeof r, each_netlink);
    if (end == ENOENT) SKIP("a kernel without netlink_diag");
    CHECK_EQ(end, 0);
    CHECK_EQ(nd.seen, 1);
    CHECK_EQ(nd.port, 4711);
    CHECK_EQ(nd.protocol, NETLINK_ROUTE);
}
// The controller of generic netlink.
static int family(const char *name, int *id) {
    struct {
        struct nlmsghdr h;
        struct genlmsghdr g;
        struct rtattr a;
        char name[16];
    } r = {{sizeof r, GENL_ID_CTRL, NLM_F_REQUEST, 7, 0}, {CTRL_CMD_GETFAMILY, 1, 0}, {RTA_LENGTH(strlen(name) + 1), CTRL_ATTR_FAMILY_NAME}, ""};
    strcpy(r.name, name);
    r.h.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN) + RTA_ALIGN(r.a.rta_len);
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC));
    CHECK_EQ(send(s, &r, r.h.nlmsg_len, 0), r.h.nlmsg_len);
    char buf[8192];
    int n = SYS(recv(s, buf, sizeof buf, 0));
    close(s);
    struct nlmsghdr *h = (void *)buf;
    MUST(NLMSG_OK(h, n));
    if (h->nlmsg_type == NLMSG_ERROR) return -*(int *)NLMSG_DATA(h);
    CHECK_EQ(h->nlmsg_type, GENL_ID_CTRL);
    struct genlmsghdr *g = NLMSG_DATA(h);
    CHECK_EQ(g->cmd, CTRL_CMD_NEWFAMILY);
    struct rtattr *a = (void *)((char *)g + GENL_HDRLEN);
    for (int left = h->nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN); RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == CTRL_ATTR_FAMILY_ID) *id = *(unsigned short *)RTA_DATA(a);
    return 0;
}
TEST(generic_families) {
    int id = 0;
    CHECK_EQ(family("nlctrl", &id), 0);
    CHECK_EQ(id, GENL_ID_CTRL);
    CHECK_EQ(family("no_such", &id), ENOENT);
}

// Netfilter: iptables-legacy's options of raw sockets, rules over the loopback interface, and forwarding between two tunnels.
#include "inet.h"
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <sys/sysmacros.h>

// Runs a command line of iptables-legacy; skips when it is not installed.
__attribute__((format(printf, 1, 2))) static int ipt(const char *format, ...) {
    char text[512] = "iptables-legacy -w ";
    va_list ap;
    va_start(ap, format);
    vsnprintf(text + strlen(text), sizeof text - strlen(text), format, ap);
    va_end(ap);
    return system(text);
}
static void begin(void) {
    if (geteuid() != 0) SKIP("not root");
    if (system("iptables-legacy -V > /dev/null 2>&1") != 0) SKIP("no iptables-legacy");
}
// All tables as new namespaces have them.
static void end(void) {
    CHECK_EQ(system("for t in filter nat mangle raw; do iptables-legacy -w -t $t -F && iptables-legacy -w -t $t -X; done"), 0);
}
// The answer of a command, without its newline.
static const char *answer(const char *command) {
    static char text[8192];
    FILE *f = popen(command, "r");
    size_t n = fread(text, 1, sizeof text - 1, f);
    pclose(f);
    while (n && text[n - 1] == '\n') n--;
    text[n] = 0;
    return text;
}
static int udp(int port) {
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    union addr a = loopback(AF_INET, port);
    OK(bind(s, &a.any, sizeof a.in));
    return s;
}
static int send_to(int s, int port) {
    union addr a = loopback(AF_INET, port);
    return sendto(s, "hello", 5, 0, &a.any, sizeof a.in);
}
// The port that a datagram comes from, -1 when none comes.
static int from(int s) {
    char b[64];
    union addr a = {0};
    socklen_t n = sizeof a;
    if (recvfrom(s, b, sizeof b, MSG_DONTWAIT, &a.any, &n) < 0) return -1;
    return ntohs(a.in.sin_port);
}

// --- The interface.

static int raw(void) { return SYS(socket(AF_INET, SOCK_RAW, IPPROTO_RAW)); }
static int get_info(int s, const char *name, struct ipt_getinfo *info) {
    memset(info, 0, sizeof *info);
    strcpy(info->name, name);
    socklen_t n = sizeof *info;
    return getsockopt(s, SOL_IP, IPT_SO_GET_INFO, info, &n);
}
TEST(nf_privileges) {
    if (geteuid() != 0) SKIP("not root");
    int s = raw();
    CHECK_CHILD({
        struct ipt_getinfo info;
        SYS(setresuid(1000, 1000, 1000));
        CHECK_ERR(get_info(s, "filter", &info), EPERM);
        CHECK_ERR(setsockopt(s, SOL_IP, IPT_SO_SET_REPLACE, &info, sizeof info), EPERM);
        int udp = SYS(socket(AF_INET, SOCK_DGRAM, 0));
        CHECK_ERR(get_info(udp, "filter", &info), EPERM);
    });
}
TEST(nf_new_tables) {
    if (geteuid() != 0) SKIP("not root");
    int s = raw();
    struct ipt_getinfo info;
    static const struct {
        const char *name;
        unsigned hooks, chains;
    } tables[] = {{"filter", 0xe, 3}, {"nat", 0x1b, 4}, {"mangle", 0x1f, 5}, {"raw", 9, 2}};
    for (int i = 0; i < 4; i++) {
        OK(get_info(s, tables[i].name, &info));
        CHECK_EQ(info.valid_hooks, tables[i].hooks);
        CHECK_EQ(info.num_entries, tables[i].chains + 1);
        CHECK_EQ(info.size, tables[i].chains * 152 + 176);
        struct ipt_get_entries *all = calloc(1, sizeof *all + info.size);
        strcpy(all->name, tables[i].name);
        all->size = info.size;
        socklen_t n = sizeof *all + info.size;
        OK(getsockopt(s, SOL_IP, IPT_SO_GET_ENTRIES, all, &n));
        CHECK_EQ(all->entrytable->next_offset, 152);
        CHECK_EQ(all->entrytable->target_offset, 112);
        n--;
        CHECK_ERR(getsockopt(s, SOL_IP, IPT_SO_GET_ENTRIES, all, &n), EINVAL);
        all->size -= 8;
        n -= 7;
        CHECK_ERR(getsockopt(s, SOL_IP, IPT_SO_GET_ENTRIES, all, &n), EAGAIN);
        free(all);
    }
    CHECK_ERR(get_info(s, "none", &info), ENOENT);
    socklen_t n = sizeof info - 1;
    CHECK_ERR(getsockopt(s, SOL_IP, IPT_SO_GET_INFO, &info, &n), EINVAL);
}
TEST(nf_revisions) {
    if (geteuid() != 0) SKIP("not root");
    int s = raw();
    struct xt_get_revision r = {.name = "conntrack", .revision = 3};
    socklen_t n = sizeof r;
    CHECK(getsockopt(s, SOL_IP, IPT_SO_GET_REVISION_MATCH, &r, &n) >= 0);
    r.revision = 9;
    CHECK_ERR(getsockopt(s, SOL_IP, IPT_SO_GET_REVISION_MATCH, &r, &n), EPROTONOSUPPORT);
    strcpy(r.name, "nothing");
    CHECK_ERR(getsockopt(s, SOL_IP, IPT_SO_GET_REVISION_MATCH, &r, &n), ENOENT);
    CHECK_ERR(getsockopt(s, SOL_IP, IPT_SO_GET_REVISION_TARGET, &r, &n), ENOENT);
    n--;
    CHECK_ERR(getsockopt(s, SOL_IP, IPT_SO_GET_REVISION_TARGET, &r, &n), EINVAL);
}

// A table raw that is made by hand: policies of two points, a chain, the end.
struct rule {
    struct ipt_entry entry;
    struct xt_standard_target target;
};
struct tail {
    struct ipt_entry entry;
    struct xt_error_target target;
};
struct made {
    struct ipt_replace replace;
    struct rule policies[2];
    struct tail head;
    struct rule chain[2];
    struct tail end;
};
#define AT(member) (offsetof(struct made, member) - offsetof(struct made, policies))
static struct rule plain(int verdict) {
    struct rule r = {.entry = {.target_offset = sizeof r.entry, .next_offset = sizeof r}};
    r.target.target.u.target_size = sizeof r.target;
    r.target.verdict = verdict;
    return r;
}
static struct tail error(const char *name) {
    struct tail t = {.entry = {.target_offset = sizeof t.entry, .next_offset = sizeof t}};
    t.target.target.u.target_size = sizeof t.target;
    strcpy(t.target.target.u.user.name, "ERROR");
    strcpy(t.target.errorname, name);
    return t;
}
static struct made make(struct xt_counters *old) {
    struct made m = {
        .replace = {.name = "raw", .valid_hooks = 9, .num_entries = 6, .size = sizeof m - offsetof(struct made, policies)},
        .policies = {plain(-NF_ACCEPT - 1), plain(-NF_ACCEPT - 1)},
        .head = error("chain"),
        .chain = {plain(XT_RETURN), plain(XT_RETURN)},
        .end = error("ERROR"),
    };
    m.replace.num_counters = 3;
    m.replace.counters = old;
    m.replace.hook_entry[3] = m.replace.underflow[3] = AT(policies[1]);
    return m;
}
static int put(int s, struct made *m) { return setsockopt(s, SOL_IP, IPT_SO_SET_REPLACE, m, sizeof *m); }
TEST(nf_bad_tables) {
    begin();
    end();
    int s = raw();
    struct xt_counters old[16];
    struct ipt_getinfo info;
    OK(get_info(s, "raw", &info));
    struct made m = make(old);
    CHECK_ERR(setsockopt(s, SOL_IP, IPT_SO_SET_REPLACE, &m, sizeof m.replace - 1), EINVAL);
    CHECK_ERR(setsockopt(s, SOL_IP, IPT_SO_SET_REPLACE, &m, sizeof m - 1), EINVAL);
    m.replace.num_counters = 0;
    CHECK_ERR(put(s, &m), EINVAL);
    m.replace.num_counters = 4;
    CHECK_ERR(put(s, &m), EAGAIN);
    m = make(old), m.replace.num_entries = 5;
    CHECK_ERR(put(s, &m), EINVAL);
    m = make(old), m.replace.hook_entry[3] += 8;
    CHECK_ERR(put(s, &m), EINVAL);
    m = make(old), m.replace.underflow[0] = AT(head);
    CHECK_ERR(put(s, &m), EINVAL);
    m = make(old), m.replace.valid_hooks = 8;
    CHECK_ERR(put(s, &m), EINVAL);
    m = make(old), strcpy(m.replace.name, "none");
    CHECK_ERR(put(s, &m), ENOENT);
    m = make(old), m.policies[0].entry.next_offset = 0;
    CHECK_ERR(put(s, &m), EINVAL);
    m = make(old), m.policies[0].entry.next_offset = 65528;
    CHECK_ERR(put(s, &m), EINVAL);
    m = make(old), m.policies[0].entry.target_offset = 8;
    CHECK_ERR(put(s, &m), EINVAL);
    m = make(old), m.chain[0].entry.target_offset = 150;
    CHECK_ERR(put(s, &m), EINVAL);
    m = make(old), m.chain[0].target.target.u.target_size = 4000;
    CHECK_ERR(put(s, &m), EINVAL);
    m = make(old), m.chain[0].entry.ip.flags = 0x80;
    CHECK_ERR(put(s, &m), EINVAL);
    // Verdicts that are none, in a chain that nobody jumps to.
    static const int none[] = {0, -3, -6, -9, INT_MIN};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        m = make(old), m.chain[0].target.verdict = none[i];
        CHECK_ERR(put(s, &m), EINVAL);
    }
    m = make(old), strcpy(m.chain[0].target.target.u.user.name, "NOTHING");
    CHECK_ERR(put(s, &m), ENOENT);
    OK(get_info(s, "raw", &info));
    CHECK_EQ(info.num_entries, 3);
    m = make(old);
    OK(put(s, &m));
    OK(get_info(s, "raw", &info));
    CHECK_EQ(info.num_entries, 6);
    end();
}
TEST(nf_loops) {
    begin();
    end();
    int s = raw();
    struct xt_counters old[16];
    struct ipt_getinfo info;
    OK(get_info(s, "raw", &info));
    // The policy's place holds a jump; the policy is after it. The chain jumps to itself.
    struct {
        struct ipt_replace replace;
        struct rule jump, policies[2];
        struct tail head;
        struct rule chain[2];
        struct tail end;
    } m = {.replace = {.name = "raw", .valid_hooks = 9, .num_entries = 7, .num_counters = 3, .counters = old}};
#define PLACE(member) (offsetof(typeof(m), member) - offsetof(typeof(m), jump))
    m.replace.size = sizeof m - offsetof(typeof(m), jump);
    m.jump = plain(PLACE(chain[0]));
    m.policies[0] = m.policies[1] = plain(-NF_ACCEPT - 1);
    m.head = error("chain"), m.end = error("ERROR");
    m.chain[0] = plain(PLACE(chain[0]));
    m.chain[1] = plain(XT_RETURN);
    m.replace.underflow[0] = PLACE(policies[0]);
    m.replace.hook_entry[3] = m.replace.underflow[3] = PLACE(policies[1]);
    CHECK_ERR(setsockopt(s, SOL_IP, IPT_SO_SET_REPLACE, &m, sizeof m), ELOOP);
    // The chain has no end: it runs into the table's.
    m.chain[0] = plain(XT_RETURN);
    m.chain[0].entry.ip.proto = IPPROTO_TCP;
    m.chain[1] = plain(XT_RETURN);
    m.chain[1].entry.ip.proto = IPPROTO_TCP;
    CHECK_ERR(setsockopt(s, SOL_IP, IPT_SO_SET_REPLACE, &m, sizeof m), ELOOP);
    m.chain[1] = plain(XT_RETURN);
    OK(setsockopt(s, SOL_IP, IPT_SO_SET_REPLACE, &m, sizeof m));
    end();
}

// --- Rules.

TEST(nf_drop_and_reject) {
    begin();
    end();
    int a = udp(0), b = udp(0), port = port_of(b);
    CHECK_EQ(ipt("-A OUTPUT -p udp --dport %d -j DROP", port), 0);
    CHECK_ERR(send_to(a, port), EPERM);
    CHECK_EQ(ipt("-R OUTPUT 1 -p udp --dport %d -j REJECT", port), 0);
    CHECK_ERR(send_to(a, port), EPERM);
    CHECK_EQ(ipt("-F OUTPUT"), 0);
    CHECK_EQ(ipt("-A INPUT -p udp --dport %d -j DROP", port), 0);
    CHECK_EQ(send_to(a, port), 5);
    CHECK_EQ(from(b), -1);
    CHECK_EQ(ipt("-R INPUT 1 -p udp --dport %d -j REJECT", port), 0);
    union addr to = loopback(AF_INET, port);
    OK(connect(a, &to.any, sizeof to.in));
    CHECK_EQ(send(a, "x", 1, 0), 1);
    CHECK_ERR(recv(a, &to, sizeof to, 0), ECONNREFUSED);
    CHECK_EQ(ipt("-R INPUT 1 -p udp --dport %d -j REJECT --reject-with icmp-host-prohibited", port), 0);
    CHECK_EQ(send(a, "x", 1, 0), 1);
    CHECK_ERR(recv(a, &to, sizeof to, 0), EHOSTUNREACH);
    // TCP.
    int l = bound(AF_INET, SOCK_STREAM), s = SYS(socket(AF_INET, SOCK_STREAM, 0));
    CHECK_EQ(ipt("-A INPUT -p tcp --dport %d -j REJECT --reject-with tcp-reset", port_of(l)), 0);
    CHECK_ERR(try_connect(s, AF_INET, port_of(l)), ECONNREFUSED);
    CHECK_EQ(ipt("-D INPUT 2"), 0);
    OK(try_connect(s, AF_INET, port_of(l)));
    end();
}
TEST(nf_counters_and_chains) {
    begin();
    end();
    int a = udp(0), b = udp(0), port = port_of(b);
    CHECK_EQ(ipt("-N mine"), 0);
    CHECK_EQ(ipt("-N other"), 0);
    CHECK_EQ(ipt("-A OUTPUT -o lo -p udp -j mine"), 0);
    CHECK_EQ(ipt("-A mine -p udp -m udp --dport %d -m comment --comment 'two words' -g other", port), 0);
    CHECK_EQ(ipt("-A other -s 127.0.0.0/8 ! -d 10.0.0.0/8 -m length --length 33 -j RETURN"), 0);
    CHECK_EQ(ipt("-A mine -j DROP"), 0);
    CHECK_EQ(ipt("-A OUTPUT -o lo -p udp -m multiport --dports 1,2:3,%d -j ACCEPT", port), 0);
    CHECK_EQ(send_to(a, port), 5);
    CHECK_EQ(send_to(a, port), 5);
    CHECK_EQ(from(b), port_of(a));
    char want[1024];
    snprintf(want, sizeof want,
             "-P OUTPUT ACCEPT -c 0 0\n"
             "-A OUTPUT -o lo -p udp -c 2 66 -j mine\n"
             "-A OUTPUT -o lo -p udp -m multiport --dports 1,2:3,%d -c 2 66 -j ACCEPT", port);
    CHECK_STR(answer("iptables-legacy -w -v -S OUTPUT"), want);
    CHECK_STR(answer("iptables-legacy -w -v -S other"),
              "-N other\n-A other -s 127.0.0.0/8 ! -d 10.0.0.0/8 -m length --length 33 -c 2 66 -j RETURN");
    CHECK_EQ(ipt("-Z"), 0);
    CHECK_STR(answer("iptables-legacy -w -v -S OUTPUT | sed -n 2p"), "-A OUTPUT -o lo -p udp -c 0 0 -j mine");
    // What was saved can be restored.
    CHECK_EQ(system("iptables-legacy-save -t filter | grep -v '^#' | sed 's/[[][0-9:]*[]]//' > one; iptables-legacy-restore < one; "
                    "iptables-legacy-save -t filter | grep -v '^#' | sed 's/[[][0-9:]*[]]//' | cmp - one"),
             0);
    // A packet may not go round.
    CHECK(ipt("-A other -j mine 2>/dev/null") != 0);
    end();
}
TEST(nf_redirect) {
    begin();
    end();
    int l = bound(AF_INET, SOCK_STREAM), port = port_of(l);
    CHECK_EQ(ipt("-t nat -A OUTPUT -p tcp --dport 79 -j REDIRECT --to-ports %d", port), 0);
    CHECK_EQ(ipt("-t nat -A OUTPUT -p tcp -d 127.0.0.9 --dport 80 -j DNAT --to-destination 127.0.0.1:%d", port), 0);
    for (int i = 0; i < 2; i++) {
        int s = SYS(socket(AF_INET, SOCK_STREAM, 0));
        union addr to = loopback(AF_INET, 79 + i), was = {0};
        if (i) to.in.sin_addr.s_addr = htonl(0x7f000009);
        OK(connect(s, &to.any, sizeof to.in));
        int got = SYS(accept(l, 0, 0));
        socklen_t n = sizeof was.in;
        OK(getsockopt(got, SOL_IP, SO_ORIGINAL_DST, &was, &n));
        CHECK_EQ(was.in.sin_addr.s_addr, to.in.sin_addr.s_addr);
        CHECK_EQ(ntohs(was.in.sin_port), 79 + i);
        n = sizeof was.in;
        OK(getpeername(s, &was.any, &n));
        CHECK_EQ(ntohs(was.in.sin_port), 79 + i);
        char b[8];
        CHECK_EQ(write(s, "ping", 4), 4);
        CHECK_EQ(read(got, b, 8), 4);
        CHECK_EQ(write(got, "pong", 4), 4);
        CHECK_EQ(read(s, b, 8), 4);
        n = 8;
        CHECK_ERR(getsockopt(got, SOL_IP, SO_ORIGINAL_DST, &was, &n), EINVAL);
        close(s);
        close(got);
    }
    int u = udp(0);
    union addr was;
    socklen_t n = sizeof was.in;
    CHECK_ERR(getsockopt(u, SOL_IP, SO_ORIGINAL_DST, &was, &n), ENOPROTOOPT);
    end();
}
TEST(nf_udp_redirect_and_errors) {
    begin();
    end();
    int a = udp(0), b = udp(0), port = port_of(b);
    CHECK_EQ(ipt("-t nat -A OUTPUT -p udp --dport 79 -j REDIRECT --to-ports %d", port), 0);
    CHECK_EQ(send_to(a, 79), 5);
    CHECK_EQ(from(b), port_of(a));
    CHECK_EQ(send_to(b, port_of(a)), 5);
    CHECK_EQ(from(a), 79);
    // The error of a port that is closed now names the port that the sender meant.
    close(b);
    union addr to = loopback(AF_INET, 79);
    OK(connect(a, &to.any, sizeof to.in));
    CHECK_EQ(send(a, "x", 1, 0), 1);
    CHECK_ERR(recv(a, &to, sizeof to, 0), ECONNREFUSED);
    end();
}
TEST(nf_states) {
    begin();
    end();
    int a = udp(0), b = udp(0), from_port = port_of(a), port = port_of(b);
    CHECK_EQ(ipt("-A OUTPUT -p udp -m conntrack --ctstate NEW"), 0);
    CHECK_EQ(ipt("-A OUTPUT -p udp -m state --state ESTABLISHED"), 0);
    CHECK_EQ(ipt("-A INPUT -p icmp -m conntrack --ctstate RELATED"), 0);
    CHECK_EQ(ipt("-A INPUT -p udp -m conntrack --ctorigdstport %d --ctdir REPLY", port), 0);
    CHECK_EQ(ipt("-A INPUT -m conntrack --ctstate INVALID"), 0);
    CHECK_EQ(send_to(a, port), 5);
    CHECK_EQ(send_to(a, port), 5);
    CHECK_EQ(send_to(b, from_port), 5);
    CHECK_EQ(send_to(a, port), 5);
    char want[256];
    snprintf(want, sizeof want,
             "src=127.0.0.1 dst=127.0.0.1 sport=%d dport=%d src=127.0.0.1 dst=127.0.0.1 sport=%d dport=%d mark=0 zone=0 use=2",
             from_port, port, port, from_port);
    char command[256];
    snprintf(command, sizeof command, "sed -n 's/^ipv4     2 udp      17 [0-9]* \\(.*dport=%d .*\\)/\\1/p' /proc/net/nf_conntrack", port);
    if (access("/proc/net/nf_conntrack", R_OK) == 0) CHECK_STR(answer(command), want);
    close(b);
    CHECK_EQ(send_to(a, port), 5);
    CHECK_STR(answer("iptables-legacy -w -v -S OUTPUT | sed 's/.*-c //'"), "6 226\n2 66\n3 99");
    end();
}
TEST(nf_owner_and_mark) {
    begin();
    end();
    int b = udp(0), port = port_of(b);
    CHECK_EQ(ipt("-A OUTPUT -p udp -m owner --uid-owner 1234 -j DROP"), 0);
    CHECK_EQ(ipt("-A OUTPUT -p udp -m owner --gid-owner 1000-2000 -j DROP"), 0);
    CHECK_EQ(ipt("-A INPUT -p udp -m mark --mark 0x10/0xf0 -j DROP"), 0);
    CHECK_EQ(ipt("-t mangle -A OUTPUT -p udp -m mark --mark 3 -j MARK --set-xmark 0x10/0x0"), 0);
    CHECK_EQ(send_to(udp(0), port), 5);
    CHECK(from(b) > 0);
    CHECK_CHILD({
        SYS(setresuid(1234, 1234, 1234));
        CHECK_ERR(send_to(udp(0), port), EPERM);
    });
    CHECK_CHILD({
        SYS(setresgid(1234, 1234, 1234));
        CHECK_ERR(send_to(udp(0), port), EPERM);
    });
    CHECK_EQ(from(b), -1);
    int s = udp(0), mark = 3;
    OK(setsockopt(s, SOL_SOCKET, SO_MARK, &mark, sizeof mark));
    CHECK_EQ(send_to(s, port), 5);
    CHECK_EQ(from(b), -1);
    mark = 0x20;
    OK(setsockopt(s, SOL_SOCKET, SO_MARK, &mark, sizeof mark));
    CHECK_EQ(send_to(s, port), 5);
    CHECK_EQ(from(b), port_of(s));
    end();
}
TEST(nf_other_matches) {
    begin();
    end();
    int a = udp(0), b = udp(0), port = port_of(b);
    static const char *const yes[] = {
        "-m addrtype --dst-type LOCAL", "-m addrtype ! --src-type BROADCAST", "-m pkttype --pkt-type unicast",
        "-m iprange --dst-range 127.0.0.0-127.0.0.9", "-m ttl --ttl-eq 64", "-m tos --tos 0", "-m dscp ! --dscp 5",
        "-m length --length 33:40", "-m limit --limit 9/min --limit-burst 2", "-m statistic --mode nth --every 1 --packet 0",
        "-i l+", "-m conntrack ! --ctstate INVALID,RELATED", "-m conntrack --ctproto udp", "-m connmark --mark 0",
    };
    static const char *const no[] = {
        "-m addrtype --dst-type MULTICAST", "-m pkttype --pkt-type broadcast", "-m iprange ! --dst-range 127.0.0.0-127.0.0.9",
        "-m ttl --ttl-lt 64", "-m dscp --dscp 5", "-m length --length 34", "-m statistic --mode random --probability 0",
        "-i eth+", "-m conntrack --ctstate INVALID", "-m conntrack --ctstatus SEEN_REPLY", "-m connmark --mark 1", "-s 127.0.0.2",
    };
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        if (ipt("-A INPUT -p udp %s", yes[i])) CHECK_STR(yes[i], "");
    }
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        if (ipt("-A INPUT -p udp %s", no[i])) CHECK_STR(no[i], "");
    }
    CHECK_EQ(send_to(a, port), 5);
    char got[64], want[64];
    snprintf(got, sizeof got, "%s", answer("iptables-legacy -w -v -S INPUT | grep -c -- '^-A.*-c 1 33'"));
    snprintf(want, sizeof want, "%zu", sizeof yes / sizeof *yes);
    CHECK_STR(got, want);
    if (strcmp(got, want)) CHECK_STR(answer("iptables-legacy -w -v -S INPUT | grep -v -- '-c 1 33' | head -3"), "");
    end();
}
TEST(nf_mangle_and_raw) {
    begin();
    end();
    int a = udp(0), b = udp(0), port = port_of(b), on = 1;
    OK(setsockopt(b, SOL_IP, IP_RECVTTL, &on, sizeof on));
    OK(setsockopt(b, SOL_IP, IP_RECVTOS, &on, sizeof on));
    CHECK_EQ(ipt("-t mangle -A OUTPUT -p udp --dport %d -j TTL --ttl-set 9", port), 0);
    CHECK_EQ(ipt("-t mangle -A POSTROUTING -p udp --dport %d -j TOS --set-tos 0x10", port), 0);
    CHECK_EQ(ipt("-t raw -A OUTPUT -p udp --dport %d -j CT --notrack", port), 0);
    CHECK_EQ(ipt("-A INPUT -p udp --dport %d -m conntrack --ctstate UNTRACKED -j ACCEPT", port), 0);
    CHECK_EQ(ipt("-A INPUT -p udp --dport %d -j DROP", port), 0);
    CHECK_EQ(send_to(a, port), 5);
    char data[8], control[128];
    struct iovec v = {data, 8};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK_EQ(recvmsg(b, &m, MSG_DONTWAIT), 5);
    int ttl = 0, tos = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_type == IP_TTL) ttl = *(int *)CMSG_DATA(c);
        if (c->cmsg_type == IP_TOS) tos = *CMSG_DATA(c);
    }
    CHECK_EQ(ttl, 9);
    CHECK_EQ(tos, 0x10);
    end();
}

TEST(nf_ipv6) {
    begin();
    CHECK_EQ(system("ip6tables-legacy -w -F; ip6tables-legacy -w -t nat -F"), 0);
    int l = bound(AF_INET6, SOCK_STREAM), u = bound(AF_INET6, SOCK_DGRAM), s = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    char command[512];
    snprintf(command, sizeof command,
             "ip6tables-legacy -w -A INPUT -p udp -m udp --dport %d -m hl --hl-eq 64 -j REJECT && "
             "ip6tables-legacy -w -A OUTPUT -p ipv6-icmp -m icmp6 --icmpv6-type port-unreachable -j ACCEPT && "
             "ip6tables-legacy -w -A OUTPUT -p tcp ! -d ::1 -m conntrack --ctstate NEW -j DROP && "
             "ip6tables-legacy -w -t nat -A OUTPUT -p tcp -d ::1 --dport 79 -j REDIRECT --to-ports %d", port_of(u), port_of(l));
    CHECK_EQ(system(command), 0);
    OK(try_connect(s, AF_INET6, port_of(u)));
    CHECK_EQ(send(s, "x", 1, 0), 1);
    CHECK_ERR(recv(s, command, sizeof command, 0), ECONNREFUSED);
    CHECK_STR(answer("ip6tables-legacy -w -v -S OUTPUT | sed -n '2s/.*-c //p'"), "1 97 -j ACCEPT");
    int c = SYS(socket(AF_INET6, SOCK_STREAM, 0));
    OK(try_connect(c, AF_INET6, 79));
    int got = SYS(accept(l, 0, 0));
    union addr was = {0};
    socklen_t n = sizeof was.in6;
    OK(getsockopt(got, SOL_IPV6, 80, &was, &n));
    CHECK_EQ(ntohs(was.in6.sin6_port), 79);
    CHECK_MEM(&was.in6.sin6_addr, &in6addr_loopback, 16);
    if (access("/proc/net/nf_conntrack", R_OK) == 0) {
        CHECK_STR(answer("sed -n 's/^ipv6     10 tcp      6 43[0-9]* \\(.*\\) sport=[0-9]* dport=79 src.*/\\1/p' /proc/net/nf_conntrack"),
                  "ESTABLISHED src=0000:0000:0000:0000:0000:0000:0000:0001 dst=0000:0000:0000:0000:0000:0000:0000:0001");
    }
    CHECK_EQ(system("ip6tables-legacy-save > one && ip6tables-legacy-restore one"), 0);
    CHECK_EQ(system("ip6tables-legacy -w -F; ip6tables-legacy -w -t nat -F"), 0);
}
TEST(nf_ping) {
    begin();
    end();
    int s = SYS(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    CHECK_EQ(ipt("-t nat -A OUTPUT -d 127.0.0.77 -j DNAT --to-destination 127.0.0.1"), 0);
    CHECK_EQ(ipt("-A INPUT -p icmp --icmp-type echo-reply -m conntrack --ctstate ESTABLISHED"), 0);
    unsigned char echo[12] = {8, 0, 0, 0, 0x12, 0x34, 0, 1, 'p', 'i', 'n', 'g'}, b[64];
    union addr to = loopback(AF_INET, 0);
    to.in.sin_addr.s_addr = htonl(0x7f00004d);
    unsigned v = 0;
    for (int i = 0; i < 12; i += 2) v += echo[i] << 8 | echo[i + 1];
    v = ~((v & 0xffff) + (v >> 16));
    echo[2] = v >> 8, echo[3] = v;
    CHECK_EQ(sendto(s, echo, 12, 0, &to.any, sizeof to.in), 12);
    do MUST(poll_for(s, POLLIN) & POLLIN && read(s, b, sizeof b) == 32);
    while (b[20] != 0);
    CHECK_MEM(b + 12, "\x7f\0\0\x4d\x7f\0\0\1", 8);
    CHECK_MEM(b + 24, "\x12\x34\0\1ping", 8);
    CHECK_STR(answer("iptables-legacy -w -v -S INPUT | sed -n '2s/.*-c //p'"), "1 32");
    end();
}

// Which of several chains of one priority sees a packet first: each drops it and counts it.
TEST(nf_equal_priorities) {
    if (geteuid() != 0) SKIP("not root");
    if (system("iptables-legacy -V > /dev/null 2>&1 && nft -v > /dev/null") != 0) SKIP("no iptables-legacy and nft");
    FILE *f = fopen("order", "w");
    fputs("ip link set lo up\n"
          "base() { nft add table ip $1; nft \"add chain ip $1 $2 { type filter hook output priority 0; }\"; nft add rule ip $1 $2 counter drop; }\n"
          "counts() { for c in 't a' 't b' 's c' 'u d'; do nft list chain ip $c 2> /dev/null | sed -n 's/.*packets \\([0-9]*\\).*/\\1/p'; done\n"
          "  [ $legacy = 0 ] || iptables-legacy -w -nvxL OUTPUT | awk 'END {print \"i\" $1}'; }\n"
          "try() { bash -c 'echo > /dev/udp/127.0.0.1/9' 2> /dev/null; echo $(counts); }; legacy=0\n"
          // Chains of one transaction; then one of another table; the other program's; and a last one.
          "printf 'table ip t {\\n chain a {\\n type filter hook output priority 0;\\n counter drop;\\n }\\n"
          " chain b {\\n type filter hook output priority 0;\\n counter drop;\\n }\\n}\\n' | nft -f -\n"
          "try; base s c; try; iptables-legacy -w -A OUTPUT -j DROP; legacy=1; try; base u d; try\n"
          // A chain goes and comes again, and a table that sleeps and wakes: both are the newest then.
          "nft flush chain ip t a; nft delete chain ip t a; base t a; try\n"
          "nft 'add table ip s { flags dormant; }'; try; nft 'add table ip s'; try\n",
          f);
    fclose(f);
    CHECK_STR(answer("unshare -n sh order"), "0 1\n0 1 1\n0 1 1 i1\n0 1 1 1 i1\n1 1 1 1 i1\n2 1 1 1 i1\n2 1 2 1 i1");
}

TEST(nf_recent) {
    begin();
    end();
    int a = udp(0), b = udp(0), port = port_of(b);
    CHECK_EQ(ipt("-A INPUT -p udp -m recent --name seen --rcheck --seconds 60 --hitcount 2 -j DROP"), 0);
    CHECK_EQ(ipt("-A INPUT -p udp -m recent --name seen --set -j ACCEPT"), 0);
    for (int i = 0; i < 4; i++) CHECK_EQ(send_to(a, port), 5);
    CHECK_EQ(from(b), port_of(a));
    CHECK_EQ(from(b), port_of(a));
    CHECK_EQ(from(b), -1);
    CHECK_EQ(ipt("-I INPUT -p udp -m recent --name seen --remove"), 0);
    CHECK_EQ(send_to(a, port), 5);
    CHECK_EQ(from(b), port_of(a));
    end();
}

// --- A router: two tunnels whose other ends are the test.

static int request(int cmd, const char *name, struct ifreq r) {
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    strcpy(r.ifr_name, name);
    int done = ioctl(s, cmd, &r);
    close(s);
    return done;
}
static int tunnel(const char *name, const char *ip) {
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    if (fd < 0) {
        mkdir("/dev/net", 0755);
        if (mknod("/dev/net/tun", S_IFCHR | 0600, makedev(10, 200)) < 0 && errno != EEXIST) SKIP("no device node");
        fd = SYS(open("/dev/net/tun", O_RDWR | O_NONBLOCK));
    }
    struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    strcpy(r.ifr_name, name);
    OK(ioctl(fd, TUNSETIFF, &r));
    union addr a = {.in = {.sin_family = AF_INET}};
    inet_pton(AF_INET, ip, &a.in.sin_addr);
    memcpy(&r.ifr_addr, &a, sizeof(struct sockaddr));
    OK(request(SIOCSIFADDR, name, r));
    inet_pton(AF_INET, "255.255.255.0", &a.in.sin_addr);
    memcpy(&r.ifr_addr, &a, sizeof(struct sockaddr));
    OK(request(SIOCSIFNETMASK, name, r));
    OK(request(SIOCSIFFLAGS, name, (struct ifreq){.ifr_flags = IFF_UP}));
    return fd;
}
static unsigned sum(unsigned s, const unsigned char *p, int n) {
    for (int i = 0; i < n; i += 2) s += p[i] << 8 | (i + 1 < n ? p[i + 1] : 0);
    while (s >> 16) s = (s & 0xffff) + (s >> 16);
    return s;
}
struct packet {
    unsigned char b[200];
    int len;
};
static void fix(struct packet *p) {
    p->b[10] = p->b[11] = 0;
    unsigned s = ~sum(0, p->b, 20);
    p->b[10] = s >> 8, p->b[11] = s;
}
// UDP from one address and port to another.
static struct packet datagram(const char *src, int sport, const char *dst, int dport) {
    struct packet p = {{0x45, 0, 0, 36, 0, 1, 0, 0, 64, 17}, 36};
    inet_pton(AF_INET, src, p.b + 12);
    inet_pton(AF_INET, dst, p.b + 16);
    p.b[20] = sport >> 8, p.b[21] = sport, p.b[22] = dport >> 8, p.b[23] = dport;
    p.b[25] = 16;
    memcpy(p.b + 28, "payload!", 8);
    fix(&p);
    unsigned s = ~sum(sum(17 + 16, p.b + 12, 8), p.b + 20, 16);
    p.b[26] = s >> 8, p.b[27] = s;
    return p;
}
// The next IPv4 packet of a protocol, with right checksums.
static struct packet next(int fd, int protocol) {
    struct packet p;
    for (;;) {
        if (!(poll_for(fd, POLLIN) & POLLIN)) break;
        p.len = read(fd, p.b, sizeof p.b);
        if (p.len < 28 || p.b[0] >> 4 != 4 || p.b[9] != protocol) continue;
        CHECK_EQ(sum(0, p.b, (p.b[0] & 15) * 4), 0xffff);
        if (protocol == 17) CHECK_EQ(sum(sum(17 + p.len - 20, p.b + 12, 8), p.b + 20, p.len - 20), 0xffff);
        if (protocol == 1) CHECK_EQ(sum(0, p.b + 20, p.len - 20), 0xffff);
        return p;
    }
    t_fail(__FILE__, __LINE__, "no packet of protocol %d", protocol);
    p.len = 0;
    return p;
}
// The IPv4 packets that are there now. Others may come at any time: the host solicits IPv6 routers.
static int ipv4_there(int fd) {
    struct packet p;
    int n = 0;
    while ((p.len = read(fd, p.b, sizeof p.b)) > 0) n += p.b[0] >> 4 == 4;
    return n;
}
static const char *ends(const struct packet *p, int at) {
    static char text[80];
    const unsigned char *b = p->b + at;
    sprintf(text, "%d.%d.%d.%d:%d > %d.%d.%d.%d:%d", b[12], b[13], b[14], b[15], b[20] << 8 | b[21], b[16], b[17], b[18], b[19],
            b[22] << 8 | b[23]);
    return text;
}
static void write_packet(int fd, struct packet p) { CHECK_EQ(write(fd, p.b, p.len), p.len); }
TEST(nf_masquerade) {
    begin();
    end();
    int in = tunnel("in", "10.91.0.1"), out = tunnel("out", "10.92.0.1");
    CHECK_EQ(system("echo 1 > /proc/sys/net/ipv4/ip_forward"), 0);
    CHECK_EQ(ipt("-t nat -A POSTROUTING -s 10.91.0.0/24 -o out -j MASQUERADE"), 0);
    CHECK_EQ(ipt("-t nat -A PREROUTING -i out -p udp --dport 8053 -j DNAT --to-destination 10.91.0.3:53"), 0);
    CHECK_EQ(ipt("-A FORWARD -i in -o out -j ACCEPT"), 0);
    CHECK_EQ(ipt("-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"), 0);
    CHECK_EQ(ipt("-A FORWARD -m conntrack --ctstate DNAT -j ACCEPT"), 0);
    CHECK_EQ(ipt("-A FORWARD -j DROP"), 0);
    // Out, and back.
    write_packet(in, datagram("10.91.0.2", 1000, "10.92.0.2", 53));
    struct packet p = next(out, 17);
    CHECK_STR(ends(&p, 0), "10.92.0.1:1000 > 10.92.0.2:53");
    CHECK_EQ(p.b[8], 63);
    write_packet(out, datagram("10.92.0.2", 53, "10.92.0.1", 1000));
    p = next(in, 17);
    CHECK_STR(ends(&p, 0), "10.92.0.2:53 > 10.91.0.2:1000");
    // Another client with the same port gets another one.
    write_packet(in, datagram("10.91.0.3", 1000, "10.92.0.2", 53));
    p = next(out, 17);
    int port = p.b[20] << 8 | p.b[21];
    CHECK(port != 1000 && port > 0);
    write_packet(out, datagram("10.92.0.2", 53, "10.92.0.1", port));
    p = next(in, 17);
    CHECK_STR(ends(&p, 0), "10.92.0.2:53 > 10.91.0.3:1000");
    // An error about the first one: it goes to the client, and so does what it quotes.
    p = datagram("10.92.0.1", 1000, "10.92.0.2", 53);
    struct packet e = {{0x45, 0, 0, 64, 0, 1, 0, 0, 64, 1}, 64};
    inet_pton(AF_INET, "10.92.0.2", e.b + 12);
    inet_pton(AF_INET, "10.92.0.1", e.b + 16);
    e.b[20] = 3, e.b[21] = 3;
    memcpy(e.b + 28, p.b, 36);
    fix(&e);
    unsigned s = ~sum(0, e.b + 20, 44);
    e.b[22] = s >> 8, e.b[23] = s;
    write_packet(out, e);
    p = next(in, 1);
    CHECK_EQ(p.b[19], 2);
    CHECK_STR(ends(&p, 28), "10.91.0.2:1000 > 10.92.0.2:53");
    // From outside to a service inside.
    write_packet(out, datagram("10.92.0.9", 4000, "10.92.0.1", 8053));
    p = next(in, 17);
    CHECK_STR(ends(&p, 0), "10.92.0.9:4000 > 10.91.0.3:53");
    write_packet(in, datagram("10.91.0.3", 53, "10.92.0.9", 4000));
    p = next(out, 17);
    CHECK_STR(ends(&p, 0), "10.92.0.1:8053 > 10.92.0.9:4000");
    // No rule leads from outside to what listens on loopback alone.
    int own = udp(0);
    CHECK_EQ(ipt("-t nat -A PREROUTING -i out -p udp --dport 8054 -j DNAT --to-destination 127.0.0.1:%d", port_of(own)), 0);
    write_packet(out, datagram("10.92.0.9", 4001, "10.92.0.1", 8054));
    t_ms(50);
    CHECK_EQ(from(own), -1);
    // Nothing else comes in.
    write_packet(out, datagram("10.92.0.9", 4000, "10.91.0.3", 54));
    write_packet(in, datagram("10.91.0.2", 1000, "10.92.0.2", 53));
    p = next(out, 17);
    CHECK_STR(ends(&p, 0), "10.92.0.1:1000 > 10.92.0.2:53");
    CHECK_EQ(ipv4_there(in), 0);
    CHECK_EQ(system("echo 0 > /proc/sys/net/ipv4/ip_forward"), 0);
    end();
}

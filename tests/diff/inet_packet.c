// Packet sockets on the loopback interface.
#include "inet.h"
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/mman.h>

static int packets(int type, int protocol) {
    if (geteuid() != 0) SKIP("not root");
    int s = SYS(socket(AF_PACKET, type, htons(protocol)));
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = 1};
    OK(bind(s, (void *)&at, sizeof at));
    return s;
}
TEST(kinds_of_sockets) {
    int s = packets(SOCK_RAW, ETH_P_ALL);
    CHECK_EQ(get_int(s, SOL_SOCKET, SO_TYPE), SOCK_RAW);
    CHECK_EQ(get_int(s, SOL_SOCKET, SO_DOMAIN), AF_PACKET);
    CHECK_EQ(get_int(s, SOL_SOCKET, SO_PROTOCOL), 0);
    CHECK_ERR(socket(AF_PACKET, SOCK_STREAM, 0), ESOCKTNOSUPPORT);
    CHECK_ERR(listen(s, 1), EOPNOTSUPP);
    CHECK_ERR(shutdown(s, SHUT_RD), EOPNOTSUPP);
    struct sockaddr_ll at = {0};
    socklen_t n = sizeof at;
    OK(getsockname(s, (void *)&at, &n));
    CHECK_EQ(n, 18);
    CHECK_EQ(at.sll_ifindex, 1);
    CHECK_EQ(at.sll_protocol, htons(ETH_P_ALL));
    CHECK_EQ(at.sll_hatype, 772);
    CHECK_EQ(at.sll_halen, 6);
    CHECK_ERR(getpeername(s, (void *)&at, &n), EOPNOTSUPP);
    at.sll_ifindex = 4711;
    CHECK_ERR(bind(s, (void *)&at, sizeof at), ENODEV);
    CHECK_ERR(bind(s, (void *)&at, 10), EINVAL);
    CHECK_CHILD({
        SYS(setresuid(1000, 1000, 1000));
        CHECK_ERR(socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), EPERM);
    });
}
TEST(frames_of_datagrams) {
    int raw = packets(SOCK_RAW, ETH_P_IP), cooked = packets(SOCK_DGRAM, ETH_P_IP);
    int a = bound(AF_INET, SOCK_DGRAM), b = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(try_connect(b, AF_INET, port_of(a)));
    CHECK_EQ(send(b, "seen", 4, 0), 4);
    unsigned char in[256];
    struct sockaddr_ll from;
    socklen_t n = sizeof from;
    poll_for(raw, POLLIN);
    CHECK_EQ(recvfrom(raw, in, sizeof in, 0, (void *)&from, &n), 14 + 20 + 8 + 4);
    CHECK_EQ(n, sizeof from);
    CHECK_EQ(from.sll_ifindex, 1);
    CHECK_EQ(from.sll_protocol, htons(ETH_P_IP));
    CHECK_EQ(from.sll_pkttype, PACKET_HOST);
    CHECK_EQ(in[12] << 8 | in[13], ETH_P_IP);
    CHECK_EQ(in[14], 0x45);
    CHECK_MEM(in + 14 + 28, "seen", 4);
    poll_for(cooked, POLLIN);
    CHECK_EQ(recv(cooked, in, 10, MSG_TRUNC), 32);
    CHECK_EQ(in[0], 0x45);
    // Only received ones for one protocol; for all of them those that are sent, too.
    CHECK_ERR(recv(raw, in, sizeof in, MSG_DONTWAIT), EAGAIN);
    int all = packets(SOCK_DGRAM, ETH_P_ALL);
    CHECK_EQ(send(b, "twice", 5, 0), 5);
    poll_for(all, POLLIN);
    CHECK_EQ(recvfrom(all, in, sizeof in, 0, (void *)&from, &n), 33);
    CHECK_EQ(from.sll_pkttype, PACKET_OUTGOING);
    poll_for(all, POLLIN);
    CHECK_EQ(recvfrom(all, in, sizeof in, 0, (void *)&from, &n), 33);
    CHECK_EQ(from.sll_pkttype, PACKET_HOST);
    struct tpacket_stats st;
    n = sizeof st;
    OK(getsockopt(all, SOL_PACKET, PACKET_STATISTICS, &st, &n));
    CHECK_EQ(st.tp_packets, 2);
    CHECK_EQ(st.tp_drops, 0);
}
TEST(streams_are_seen) {
    int v[2];
    tcp_pair(AF_INET, v);
    CHECK_EQ(write(v[0], "before", 6), 6);
    int s = packets(SOCK_DGRAM, ETH_P_IP);
    char b[64];
    unsigned char in[2048];
    CHECK_EQ(recv(v[1], b, 6, MSG_WAITALL), 6);
    CHECK_EQ(write(v[0], "a payload", 9), 9);
    CHECK_EQ(recv(v[1], b, 9, MSG_WAITALL), 9);
    CHECK_MEM(b, "a payload", 9);
    int found = 0;
    for (ssize_t n; poll_of(s, POLLIN) && (n = recv(s, in, sizeof in, MSG_DONTWAIT)) > 0;)
        found |= n > 9 && !memcmp(in + n - 9, "a payload", 9);
    CHECK(found);
    close(s);
    CHECK_EQ(write(v[0], "after", 5), 5);
    CHECK_EQ(recv(v[1], b, 5, MSG_WAITALL), 5);
}
TEST(sending_frames) {
    int s = packets(SOCK_DGRAM, ETH_P_IP), a = bound(AF_INET, SOCK_DGRAM);
    OK(set_int(s, SOL_PACKET, PACKET_AUXDATA, 1));
    CHECK_EQ(get_int(s, SOL_PACKET, PACKET_AUXDATA), 1);
    // A datagram from port 9 without a checksum of UDP.
    unsigned char p[33] = {0x45, 0, 0, 33, 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1, 0, 9, 0, 0, 0, 13};
    int port = port_of(a);
    p[22] = port >> 8, p[23] = port;
    memcpy(p + 28, "crude", 5);
    unsigned sum = 0;
    for (int i = 0; i < 20; i += 2) sum += p[i] << 8 | p[i + 1];
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    p[10] = ~sum >> 8, p[11] = ~sum;
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = 1, .sll_halen = 6};
    CHECK_EQ(sendto(s, p, sizeof p, 0, (void *)&to, sizeof to), sizeof p);
    char b[16];
    char control[128];
    struct iovec iov = {b, 16};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    poll_for(s, POLLIN);
    CHECK_EQ(recvmsg(s, &m, 0), 16);
    CHECK_EQ(m.msg_flags, MSG_TRUNC);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    MUST(c);
    CHECK_EQ(c->cmsg_level, SOL_PACKET);
    CHECK_EQ(c->cmsg_type, PACKET_AUXDATA);
    CHECK_EQ(((struct tpacket_auxdata *)CMSG_DATA(c))->tp_len, sizeof p);
    to.sll_ifindex = 4711;
    CHECK_ERR(sendto(s, p, sizeof p, 0, (void *)&to, sizeof to), ENXIO);
    CHECK_ERR(sendto(s, p, sizeof p, 0, (void *)&to, 10), EINVAL);
}
TEST(memberships) {
    if (geteuid() != 0) SKIP("not root");
    int s = SYS(socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)));
    struct packet_mreq m = {.mr_ifindex = 1, .mr_type = PACKET_MR_PROMISC};
    OK(setsockopt(s, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &m, sizeof m));
    OK(setsockopt(s, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &m, sizeof m));
    OK(setsockopt(s, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &m, sizeof m));
    CHECK_ERR(setsockopt(s, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &m, sizeof m - 1), EINVAL);
    m.mr_alen = 7;
    CHECK_ERR(setsockopt(s, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &m, sizeof m), EINVAL);
    m = (struct packet_mreq){.mr_ifindex = 1, .mr_type = PACKET_MR_MULTICAST};
    CHECK_ERR(setsockopt(s, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &m, sizeof m), EINVAL);
    m = (struct packet_mreq){.mr_ifindex = 4711, .mr_type = PACKET_MR_PROMISC};
    CHECK_ERR(setsockopt(s, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &m, sizeof m), ENODEV);
}
TEST(mapped_rings) {
    int s = packets(SOCK_RAW, ETH_P_IP), version = TPACKET_V2;
    int length = TPACKET_V2;
    socklen_t n = sizeof length;
    OK(getsockopt(s, SOL_PACKET, PACKET_HDRLEN, &length, &n));
    CHECK_EQ(length, sizeof(struct tpacket2_hdr));
    OK(setsockopt(s, SOL_PACKET, PACKET_VERSION, &version, sizeof version));
    struct tpacket_req r = {.tp_block_size = 8192, .tp_block_nr = 2, .tp_frame_size = 4096, .tp_frame_nr = 4};
    r.tp_frame_nr = 5;
    CHECK_ERR(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &r, sizeof r), EINVAL);
    CHECK_ERR((long)mmap(0, 4 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, s, 0), EINVAL);
    r.tp_frame_nr = 4;
    OK(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &r, sizeof r));
    CHECK_ERR(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &r, sizeof r), EBUSY);
    CHECK_ERR(setsockopt(s, SOL_PACKET, PACKET_VERSION, &version, sizeof version), EBUSY);
    CHECK_ERR((long)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, s, 0), EINVAL);
    char *ring = mmap(0, 4 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, s, 0);
    MUST(ring != MAP_FAILED);
    int u = bound(AF_INET, SOCK_DGRAM);
    union addr to = name_of(u);
    // More than the ring has room for.
    int slot = 0, wanted = port_of(u);
    for (int i = 0; i < 6; i++) {
        char data[8] = "frame ";
        data[6] = '0' + i;
        CHECK_EQ(sendto(u, data, sizeof data, 0, &to.any, sizeof to.in), sizeof data);
        struct tpacket2_hdr *h = (void *)(ring + slot * 4096);
        CHECK_EQ(poll_for(s, POLLIN) & POLLIN, POLLIN);
        MUST(h->tp_status & TP_STATUS_USER);
        unsigned char *ip = (void *)((char *)h + h->tp_net);
        CHECK_EQ(h->tp_net - h->tp_mac, ETH_HLEN);
        CHECK_EQ(h->tp_net, 80);
        struct sockaddr_ll *from = (void *)((char *)h + TPACKET_ALIGN(sizeof *h));
        CHECK_EQ(from->sll_ifindex, 1);
        CHECK_EQ(from->sll_protocol, htons(ETH_P_IP));
        CHECK_EQ(h->tp_len, ETH_HLEN + 28 + sizeof data);
        CHECK_EQ(h->tp_snaplen, h->tp_len);
        CHECK_EQ(ip[22] << 8 | ip[23], wanted);
        CHECK_MEM((char *)ip + 28, data, sizeof data);
        h->tp_status = TP_STATUS_KERNEL;
        slot = (slot + 1) % 4;
    }
    struct pollfd p = {s, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, 0), 0);
}

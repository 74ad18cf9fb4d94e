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

// A mapped ring of a version: `sends` for one of frames to send.
static char *mapped(int s, int version, int sends, struct tpacket_req3 *r) {
    OK(setsockopt(s, SOL_PACKET, PACKET_VERSION, &version, sizeof version));
    OK(setsockopt(s, SOL_PACKET, sends ? PACKET_TX_RING : PACKET_RX_RING, r, version == TPACKET_V3 ? 28 : 16));
    char *ring = mmap(0, r->tp_block_size * r->tp_block_nr, PROT_READ | PROT_WRITE, MAP_SHARED, s, 0);
    MUST(ring != MAP_FAILED);
    return ring;
}
TEST(rings_of_the_first_version) {
    int s = packets(SOCK_DGRAM, ETH_P_IP);
    struct tpacket_req3 r = {.tp_block_size = 8192, .tp_block_nr = 2, .tp_frame_size = 4096, .tp_frame_nr = 4};
    char *ring = mapped(s, TPACKET_V1, 0, &r), data[] = "first version";
    int u = bound(AF_INET, SOCK_DGRAM);
    union addr to = name_of(u);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(sendto(u, data, sizeof data, 0, &to.any, sizeof to.in), sizeof data);
        struct tpacket_hdr *h = (void *)(ring + i % 4 * 4096);
        CHECK_EQ(poll_for(s, POLLIN) & POLLIN, POLLIN);
        MUST(h->tp_status & TP_STATUS_USER);
        CHECK_EQ(h->tp_mac, h->tp_net);
        CHECK_EQ(h->tp_net, 80);
        CHECK_EQ(h->tp_len, 28 + sizeof data);
        CHECK_EQ(h->tp_snaplen, h->tp_len);
        CHECK(h->tp_sec > 1000000000);
        CHECK(h->tp_usec < 1000000);
        CHECK_EQ(((struct sockaddr_ll *)((char *)h + TPACKET_ALIGN(sizeof *h)))->sll_ifindex, 1);
        CHECK_MEM((char *)h + h->tp_net + 28, data, sizeof data);
        h->tp_status = TP_STATUS_KERNEL;
    }
    char in[16];
    CHECK_ERR(recv(s, in, sizeof in, MSG_DONTWAIT), EAGAIN);
}
TEST(rings_of_blocks) {
    int s = packets(SOCK_RAW, ETH_P_IP), version = TPACKET_V3, length = TPACKET_V3;
    socklen_t n = sizeof length;
    OK(getsockopt(s, SOL_PACKET, PACKET_HDRLEN, &length, &n));
    CHECK_EQ(length, sizeof(struct tpacket3_hdr));
    OK(setsockopt(s, SOL_PACKET, PACKET_VERSION, &version, sizeof version));
    CHECK_EQ(get_int(s, SOL_PACKET, PACKET_VERSION), TPACKET_V3);
    struct tpacket_req3 r = {.tp_block_size = 8192, .tp_block_nr = 2, .tp_frame_size = 2048, .tp_frame_nr = 8, .tp_retire_blk_tov = 10,
                             .tp_sizeof_priv = 20};
    CHECK_ERR(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &r, 16), EINVAL);
    r.tp_sizeof_priv = 8100;
    CHECK_ERR(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &r, sizeof r), EINVAL);
    r.tp_sizeof_priv = 20;
    char *ring = mapped(s, TPACKET_V3, 0, &r), data[1000] = "a payload";
    CHECK_ERR(setsockopt(s, SOL_PACKET, PACKET_VERSION, &version, sizeof version), EBUSY);
    int u = bound(AF_INET, SOCK_DGRAM), seen = 0, block = 0;
    union addr to = name_of(u);
    for (int i = 0; i < 40; i++) {
        CHECK_EQ(sendto(u, data, sizeof data, 0, &to.any, sizeof to.in), sizeof data);
        CHECK_EQ(recv(u, data, sizeof data, 0), sizeof data);
        if (i % 10 != 9) continue;
        while (seen <= i) {
            struct tpacket_block_desc *b = (void *)(ring + block % 2 * 8192);
            CHECK_EQ(poll_for(s, POLLIN) & POLLIN, POLLIN);
            MUST(b->hdr.bh1.block_status & TP_STATUS_USER);
            CHECK_EQ(b->version, TPACKET_V3);
            CHECK_EQ(b->offset_to_priv, sizeof *b);
            CHECK_EQ(b->hdr.bh1.seq_num, block + 1);
            CHECK_EQ(b->hdr.bh1.offset_to_first_pkt, sizeof *b + 24);
            CHECK(b->hdr.bh1.num_pkts > 0);
            unsigned at = b->hdr.bh1.offset_to_first_pkt;
            for (unsigned k = 0; k < b->hdr.bh1.num_pkts; k++, seen++) {
                struct tpacket3_hdr *h = (void *)((char *)b + at);
                MUST(h->tp_status & TP_STATUS_USER);
                CHECK_EQ(h->tp_net, 96);
                CHECK_EQ(h->tp_mac, 82);
                CHECK_EQ(h->tp_len, ETH_HLEN + 28 + sizeof data);
                CHECK_EQ(h->tp_snaplen, h->tp_len);
                CHECK(h->tp_sec > 1000000000);
                CHECK_EQ(h->hv1.tp_vlan_tci, 0);
                struct sockaddr_ll *from = (void *)((char *)h + TPACKET_ALIGN(sizeof *h));
                CHECK_EQ(from->sll_protocol, htons(ETH_P_IP));
                CHECK_MEM((char *)h + h->tp_net + 28, data, sizeof data);
                int last = k + 1 == b->hdr.bh1.num_pkts;
                CHECK_EQ(h->tp_next_offset, last ? 0 : 1128);
                at += 1128;
            }
            CHECK_EQ(b->hdr.bh1.blk_len, at);
            b->hdr.bh1.block_status = TP_STATUS_KERNEL;
            block++;
        }
    }
    CHECK_EQ(seen, 40);
    struct tpacket_stats_v3 st;
    n = sizeof st;
    OK(getsockopt(s, SOL_PACKET, PACKET_STATISTICS, &st, &n));
    CHECK_EQ(n, sizeof st);
    CHECK_EQ(st.tp_packets + 0, 40);
    CHECK_EQ(st.tp_drops, 0);
}
// A datagram of UDP to a port of this host, with its link header; returns its length.
static int whole_frame(unsigned char *p, int port, const char *text) {
    int len = strlen(text), ip = 28 + len;
    memset(p, 0, 14 + ip);
    p[12] = 8;
    unsigned char head[] = {0x45, 0, 0, ip, 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1, 0, 9, port >> 8, port, 0, len + 8, 0, 0};
    memcpy(p + 14, head, sizeof head);
    memcpy(p + 42, text, len);
    unsigned sum = 0;
    for (int i = 14; i < 34; i += 2) sum += p[i] << 8 | p[i + 1];
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    p[24] = ~sum >> 8, p[25] = ~sum;
    return 14 + ip;
}
// Waits for the frame with a text that a socket without link headers sees; Linux takes packets of 127.0.0.1 from no packet socket.
static void hears(int r, int port, const char *text) {
    unsigned char in[256];
    for (int n = strlen(text); poll_for(r, POLLIN);) {
        int got = recv(r, in, sizeof in, 0);
        if (got != 28 + n || (in[22] << 8 | in[23]) != port) continue;
        CHECK_MEM(in + 28, text, n);
        return;
    }
    CHECK(!"a frame");
}
static void bind_to_loopback(int s, int protocol) {
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = 1};
    SYS(bind(s, (void *)&at, sizeof at));
}
static void rings_to_send(int version) {
    int s = packets(SOCK_RAW, 0), hear = packets(SOCK_DGRAM, ETH_P_IP), port = port_of(bound(AF_INET, SOCK_DGRAM)), start = version == TPACKET_V3 ? 48 : 32;
    bind_to_loopback(s, 0);
    OK(set_int(s, SOL_PACKET, PACKET_QDISC_BYPASS, 1));
    struct tpacket_req3 r = {.tp_block_size = 8192, .tp_block_nr = 1, .tp_frame_size = 2048, .tp_frame_nr = 4};
    char *ring = mapped(s, version, 1, &r);
    CHECK_EQ(poll_of(s, POLLIN | POLLOUT), POLLOUT);
    CHECK_EQ(send(s, 0, 0, 0), 0);
    for (int i = 0, total = 0; i < 6; i++) {
        char text[] = "frame 0";
        text[6] += i;
        char *slot = ring + i % 4 * 2048;
        unsigned char *data = (void *)(slot + start);
        int len = whole_frame(data, port, text);
        if (version == TPACKET_V1) {
            ((struct tpacket_hdr *)slot)->tp_len = len;
            ((struct tpacket_hdr *)slot)->tp_status = TP_STATUS_SEND_REQUEST;
        } else if (version == TPACKET_V2) {
            ((struct tpacket2_hdr *)slot)->tp_len = len;
            ((struct tpacket2_hdr *)slot)->tp_status = TP_STATUS_SEND_REQUEST;
        } else {
            ((struct tpacket3_hdr *)slot)->tp_len = len;
            ((struct tpacket3_hdr *)slot)->tp_status = TP_STATUS_SEND_REQUEST;
        }
        total += len;
        // Two at a time.
        if (i % 2 == 0) continue;
        CHECK_EQ(send(s, 0, 0, 0), total);
        total = 0;
        for (int k = i - 1; k <= i; k++) {
            text[6] = '0' + k;
            hears(hear, port, text);
        }
    }
    int *status = (int *)(ring + 2 * 2048 + (version == TPACKET_V3 ? 20 : 0));
    int *length = (int *)(ring + 2 * 2048 + (version == TPACKET_V1 ? 8 : version == TPACKET_V2 ? 4 : 16));
    CHECK_EQ(*status & 7, TP_STATUS_AVAILABLE);
    // A frame that is longer than its slot.
    *length = 2048, *status = TP_STATUS_SEND_REQUEST;
    CHECK_ERR(send(s, 0, 0, 0), EMSGSIZE);
    CHECK_EQ(*status, TP_STATUS_WRONG_FORMAT);
    CHECK_EQ(poll_of(s, POLLOUT), POLLOUT);
    *length = 5, *status = TP_STATUS_SEND_REQUEST;
    CHECK_ERR(send(s, 0, 0, 0), EINVAL);
    CHECK_EQ(*status, TP_STATUS_WRONG_FORMAT);
    CHECK_ERR(set_int(s, SOL_PACKET, PACKET_LOSS, 1), EBUSY);
}
TEST(sending_by_rings_1) { rings_to_send(TPACKET_V1); }
TEST(sending_by_rings_2) { rings_to_send(TPACKET_V2); }
TEST(sending_by_rings_3) { rings_to_send(TPACKET_V3); }
TEST(lost_frames_of_rings) {
    int s = packets(SOCK_RAW, 0), hear = packets(SOCK_DGRAM, ETH_P_IP), port = port_of(bound(AF_INET, SOCK_DGRAM));
    bind_to_loopback(s, 0);
    OK(set_int(s, SOL_PACKET, PACKET_LOSS, 1));
    OK(set_int(s, SOL_PACKET, PACKET_TX_HAS_OFF, 1));
    CHECK_EQ(get_int(s, SOL_PACKET, PACKET_LOSS), 1);
    CHECK_EQ(get_int(s, SOL_PACKET, PACKET_TX_HAS_OFF), 1);
    struct tpacket_req3 r = {.tp_block_size = 8192, .tp_block_nr = 1, .tp_frame_size = 2048, .tp_frame_nr = 4};
    char *ring = mapped(s, TPACKET_V2, 1, &r);
    struct tpacket2_hdr *first = (void *)ring, *second = (void *)(ring + 2048);
    first->tp_len = 4000, first->tp_mac = 100, first->tp_status = TP_STATUS_SEND_REQUEST;
    second->tp_len = whole_frame((unsigned char *)second + 100, port, "moved");
    second->tp_mac = 100, second->tp_status = TP_STATUS_SEND_REQUEST;
    CHECK_EQ(send(s, 0, 0, 0), second->tp_len);
    hears(hear, port, "moved");
    CHECK_EQ(first->tp_status & 7, TP_STATUS_AVAILABLE);
    CHECK_EQ(second->tp_status & 7, TP_STATUS_AVAILABLE);
    second[0].tp_status = 0;
    CHECK_EQ(send(s, 0, 0, 0), 0);
}
TEST(both_rings_in_one_mapping) {
    int s = packets(SOCK_RAW, ETH_P_IP), version = TPACKET_V2, port = port_of(bound(AF_INET, SOCK_DGRAM));
    bind_to_loopback(s, ETH_P_IP);
    OK(setsockopt(s, SOL_PACKET, PACKET_VERSION, &version, sizeof version));
    struct tpacket_req r = {.tp_block_size = 8192, .tp_block_nr = 1, .tp_frame_size = 2048, .tp_frame_nr = 4};
    OK(setsockopt(s, SOL_PACKET, PACKET_RX_RING, &r, sizeof r));
    OK(setsockopt(s, SOL_PACKET, PACKET_TX_RING, &r, sizeof r));
    CHECK_ERR((long)mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, s, 0), EINVAL);
    char *ring = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, s, 0);
    MUST(ring != MAP_FAILED);
    struct tpacket2_hdr *out = (void *)(ring + 8192), *got = (void *)ring;
    out->tp_len = whole_frame((unsigned char *)out + 32, port, "both");
    out->tp_status = TP_STATUS_SEND_REQUEST;
    CHECK_EQ(send(s, 0, 0, 0), out->tp_len);
    CHECK_EQ(poll_for(s, POLLIN) & POLLIN, POLLIN);
    MUST(got->tp_status & TP_STATUS_USER);
    CHECK_EQ(got->tp_len, out->tp_len);
    CHECK_MEM((char *)got + got->tp_net + 28, "both", 4);
    close(s);
}
#ifndef PACKET_VNET_HDR_SZ
#define PACKET_VNET_HDR_SZ 24
#endif
TEST(headers_of_virtio_net) {
    int s = packets(SOCK_RAW, ETH_P_IP), u = bound(AF_INET, SOCK_DGRAM), d = packets(SOCK_DGRAM, ETH_P_IP);
    bind_to_loopback(s, ETH_P_IP);
    CHECK_ERR(set_int(d, SOL_PACKET, PACKET_VNET_HDR, 1), EINVAL);
    CHECK_EQ(get_int(s, SOL_PACKET, PACKET_VNET_HDR), 0);
    CHECK_ERR(set_int(s, SOL_PACKET, PACKET_VNET_HDR_SZ, 11), EINVAL);
    for (int size = 10; size <= 12; size += 2) {
        if (size == 10) OK(set_int(s, SOL_PACKET, PACKET_VNET_HDR, 7));
        else OK(set_int(s, SOL_PACKET, PACKET_VNET_HDR_SZ, size));
        CHECK_EQ(get_int(s, SOL_PACKET, PACKET_VNET_HDR), 1);
        CHECK_EQ(get_int(s, SOL_PACKET, PACKET_VNET_HDR_SZ), size);
        // The field of UDP's checksum has the sum of the pseudo header; the rest is the kernel's to do.
        unsigned char p[128] = {1}, in[128];
        int len = whole_frame(p + size, port_of(u), "virtio") + size;
        unsigned sum = 0x7f00 + 1 + 0x7f00 + 1 + 17 + 14;
        p[size + 40] = sum >> 8, p[size + 41] = sum;
        unsigned short words[] = {34, 6};
        memcpy(p + 6, words, 4);
        CHECK_EQ(send(s, p, len, 0), len);
        hears(d, port_of(u), "virtio");
        CHECK_EQ(poll_for(s, POLLIN), POLLIN);
        CHECK_ERR(recv(s, in, 5, MSG_PEEK), EINVAL);
        while (poll_of(s, POLLIN)) recv(s, in, sizeof in, MSG_DONTWAIT);
        union addr to = name_of(u);
        CHECK_EQ(sendto(u, "plain", 5, 0, &to.any, sizeof to.in), 5);
        CHECK_EQ(poll_for(s, POLLIN), POLLIN);
        CHECK_EQ(recv(s, in, sizeof in, 0), size + 14 + 28 + 5);
        CHECK_EQ(in[1], 0);
        CHECK_MEM(in + size + 42, "plain", 5);
        // Headers that are wrong.
        CHECK_ERR(send(s, p, size - 1, 0), EINVAL);
        words[0] = 1000;
        memcpy(p + 6, words, 4);
        CHECK_ERR(send(s, p, len, 0), EINVAL);
        while (poll_of(s, POLLIN)) recv(s, in, sizeof in, MSG_DONTWAIT);
        while (poll_of(d, POLLIN)) recv(d, in, sizeof in, MSG_DONTWAIT);
    }
}

// Requests of rtnetlink(7) about interfaces.
#pragma once
#include "inet.h"
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>

struct request {
    struct nlmsghdr h;
    struct ifinfomsg link;
    char more[512];
};
__attribute__((unused)) static struct request start(int type, int flags, int index) {
    return (struct request){
        .h = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)), .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags},
        .link.ifi_index = index};
}
__attribute__((unused)) static struct rtattr *add(struct request *r, int type, const void *value, int len) {
    struct rtattr *a = (void *)((char *)r + NLMSG_ALIGN(r->h.nlmsg_len));
    a->rta_type = type;
    a->rta_len = RTA_LENGTH(len);
    if (len) memcpy(RTA_DATA(a), value, len);
    r->h.nlmsg_len = NLMSG_ALIGN(r->h.nlmsg_len) + RTA_LENGTH(len);
    return a;
}
__attribute__((unused)) static void end(struct request *r, struct rtattr *a) {
    a->rta_len = (char *)r + r->h.nlmsg_len - (char *)a;
}
// The answer; its errno for an acknowledgement.
__attribute__((unused)) static int ask(struct request *r, char *answer, int room) {
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    CHECK_EQ(send(s, r, r->h.nlmsg_len, 0), r->h.nlmsg_len);
    SYS(recv(s, answer, room, 0));
    close(s);
    struct nlmsghdr *h = (void *)answer;
    return h->nlmsg_type == NLMSG_ERROR ? -((struct nlmsgerr *)NLMSG_DATA(h))->error : 0;
}
__attribute__((unused)) static int done(struct request *r) {
    char answer[8192];
    r->h.nlmsg_flags |= NLM_F_ACK;
    return ask(r, answer, sizeof answer);
}
__attribute__((unused)) static struct rtattr *find(void *list, int len, int type) {
    for (struct rtattr *a = list; RTA_OK(a, len); a = RTA_NEXT(a, len))
        if ((a->rta_type & ~NLA_F_NESTED) == type) return a;
    return 0;
}
__attribute__((unused)) static struct rtattr *attribute(char *answer, int type) {
    struct nlmsghdr *h = (void *)answer;
    struct ifinfomsg *i = NLMSG_DATA(h);
    return find(IFLA_RTA(i), IFLA_PAYLOAD(h), type);
}
__attribute__((unused)) static struct rtattr *within(struct rtattr *a, int type) {
    return a ? find(RTA_DATA(a), RTA_PAYLOAD(a), type) : 0;
}
__attribute__((unused)) static int index_of(const char *name) {
    struct ifreq q = {0};
    strncpy(q.ifr_name, name, IFNAMSIZ - 1);
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0)), r = ioctl(s, SIOCGIFINDEX, &q);
    close(s);
    return r ? -1 : q.ifr_ifindex;
}
__attribute__((unused)) static int make(const char *name, const char *kind, int (*settings)(struct request *)) {
    struct request r = start(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0);
    add(&r, IFLA_IFNAME, name, strlen(name) + 1);
    struct rtattr *info = add(&r, IFLA_LINKINFO, 0, 0);
    add(&r, IFLA_INFO_KIND, kind, strlen(kind) + 1);
    if (settings) {
        struct rtattr *data = add(&r, IFLA_INFO_DATA, 0, 0);
        settings(&r);
        end(&r, data);
    }
    end(&r, info);
    return done(&r);
}
__attribute__((unused)) static int removed(int index) {
    struct request r = start(RTM_DELLINK, 0, index);
    return done(&r);
}

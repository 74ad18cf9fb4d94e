// A bad link: passes frames between two interfaces, and loses, repeats, reorders, spoils and delays some of them.
//
//   wire IF IF [loss=PERCENT] [repeat=PERCENT] [reorder=PERCENT] [spoil=PERCENT] [delay=US] [jitter=US] [rate=MBIT]
//        [queue=FRAMES] [seed=N]
//   wire plain IF...    turns off what cards do for the kernel: frames then have their final size and checksum
//
// It writes "ready" when it passes frames, and what it did to them when it is told to end (SIGTERM).
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST = 70000, MOST = 20000 };

static double loss, repeat, reorder, spoil;
static long delay_us, jitter_us, rate, queue = 1000;
static uint64_t state = 88172645463325252ull;
static volatile sig_atomic_t ended;

struct frame {
    uint64_t due, number;
    int to;
    size_t len;
    unsigned char *bytes;
};
// A heap: the frame that is due first is at the top.
static struct frame heap[MOST];
static size_t waiting, of[2];
static uint64_t numbers, next_free[2], passed, lost, repeated, reordered, spoiled, full;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t number(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static int happens(double percent) { return percent > 0 && (number() >> 11) * 0x1p-53 * 100 < percent; }

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int before(const struct frame *a, const struct frame *b) {
    return a->due != b->due ? a->due < b->due : a->number < b->number;
}

static void swap(size_t a, size_t b) {
    struct frame f = heap[a];
    heap[a] = heap[b];
    heap[b] = f;
}

static void push(struct frame f) {
    size_t at = waiting++;
    heap[at] = f;
    of[f.to]++;
    for (; at && before(&heap[at], &heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(at, (at - 1) / 2);
}

static struct frame pop(void) {
    struct frame top = heap[0];
    heap[0] = heap[--waiting];
    of[top.to]--;
    for (size_t at = 0;;) {
        size_t least = at, left = 2 * at + 1;
        for (size_t child = left; child < left + 2 && child < waiting; child++)
            if (before(&heap[child], &heap[least]))
                least = child;
        if (least == at)
            return top;
        swap(at, least);
        at = least;
    }
}

static void enqueue(int to, const unsigned char *bytes, size_t len, int late) {
    if (of[to] >= (size_t)queue || waiting == MOST) {
        full++;
        return;
    }
    uint64_t due = now(), extra = delay_us + (jitter_us ? number() % jitter_us : 0);
    if (rate) {
        next_free[to] = (next_free[to] > due ? next_free[to] : due) + len * 8000 / rate;
        due = next_free[to];
    }
    if (late)
        extra += 1000 + number() % 4000;
    struct frame f = {due + extra * 1000, numbers++, to, len, malloc(len)};
    if (!f.bytes)
        fail("malloc");
    memcpy(f.bytes, bytes, len);
    push(f);
}

static void take(int to, unsigned char *bytes, size_t len) {
    if (happens(loss)) {
        lost++;
        return;
    }
    // Behind the Ethernet header and the addresses of IP.
    if (len > 54 && happens(spoil)) {
        bytes[34 + number() % (len - 34)] ^= 1 << number() % 8;
        spoiled++;
    }
    int late = happens(reorder);
    reordered += late;
    enqueue(to, bytes, len, late);
    if (happens(repeat)) {
        repeated++;
        enqueue(to, bytes, len, 0);
    }
}

static int open_interface(const char *name) {
    int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), on = 1, room = 16 << 20;
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    at.sll_ifindex = if_nametoindex(name);
    if (fd < 0 || !at.sll_ifindex || bind(fd, (struct sockaddr *)&at, sizeof at))
        fail(name);
    if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on))
        fail("PACKET_IGNORE_OUTGOING");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    return fd;
}

static void plain(const char *name) {
    static const uint32_t off[] = {ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO, ETHTOOL_SUFO, ETHTOOL_STXCSUM};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    for (size_t n = 0; n < sizeof off / sizeof *off; n++) {
        struct ethtool_value value = {off[n], 0};
        struct ifreq request = {.ifr_data = (char *)&value};
        strncpy(request.ifr_name, name, IFNAMSIZ - 1);
        // Old commands for what no card has any more.
        if (ioctl(fd, SIOCETHTOOL, &request) && errno != EOPNOTSUPP)
            fail(name);
    }
    close(fd);
}

static void end(int signal) {
    (void)signal;
    ended = 1;
}

int main(int argc, char **argv) {
    if (argc >= 2 && !strcmp(argv[1], "plain")) {
        for (int n = 2; n < argc; n++)
            plain(argv[n]);
        return 0;
    }
    if (argc < 3)
        return 2;
    for (int n = 3; n < argc; n++) {
        char *value = strchr(argv[n], '=');
        if (!value)
            return 2;
        *value++ = 0;
        double given = atof(value);
        if (!strcmp(argv[n], "loss")) loss = given;
        else if (!strcmp(argv[n], "repeat")) repeat = given;
        else if (!strcmp(argv[n], "reorder")) reorder = given;
        else if (!strcmp(argv[n], "spoil")) spoil = given;
        else if (!strcmp(argv[n], "delay")) delay_us = given;
        else if (!strcmp(argv[n], "jitter")) jitter_us = given;
        else if (!strcmp(argv[n], "rate")) rate = given;
        else if (!strcmp(argv[n], "queue")) queue = given;
        else if (!strcmp(argv[n], "seed")) state += 2 * (uint64_t)given;
        else return 2;
    }
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    struct pollfd fds[2] = {{open_interface(argv[1]), POLLIN, 0}, {open_interface(argv[2]), POLLIN, 0}};
    static unsigned char bytes[LARGEST];
    puts("ready");
    fflush(stdout);
    while (!ended) {
        struct timespec wait = {0}, *left = NULL;
        if (waiting) {
            uint64_t at = now(), due = heap[0].due;
            uint64_t rest = due > at ? due - at : 0;
            wait.tv_sec = rest / 1000000000;
            wait.tv_nsec = rest % 1000000000;
            left = &wait;
        }
        if (ppoll(fds, 2, left, &none) < 0 && errno != EINTR)
            fail("ppoll");
        for (int from = 0; from < 2; from++) {
            for (int n = 0; n < 64; n++) {
                ssize_t len = recv(fds[from].fd, bytes, sizeof bytes, MSG_DONTWAIT);
                if (len <= 0)
                    break;
                take(!from, bytes, len);
            }
        }
        while (waiting && heap[0].due <= now()) {
            struct frame f = pop();
            if (send(fds[f.to].fd, f.bytes, f.len, 0) == (ssize_t)f.len)
                passed++;
            free(f.bytes);
        }
    }
    printf("passed %lu lost %lu repeated %lu reordered %lu spoiled %lu full %lu\n", passed, lost, repeated, reordered,
           spoiled, full);
    return 0;
}

// sysfs: what programs look up about devices, interfaces and processors.
#include "t.h"

static void reads(const char *path, const char *want) {
    char got[256] = "";
    int fd = SYS(open(path, O_RDONLY));
    CHECK(read(fd, got, sizeof got - 1) >= 0);
    close(fd);
    CHECK_STR(got, want);
}
static void leads(const char *path, const char *want) {
    char got[256] = "";
    CHECK(readlink(path, got, sizeof got - 1) > 0);
    CHECK_STR(got, want);
}

TEST(character_devices_by_number) {
    leads("/sys/dev/char/1:3", "../../devices/virtual/mem/null");
    leads("/sys/dev/char/5:2", "../../devices/virtual/tty/ptmx");
    leads("/sys/class/mem/zero", "../../devices/virtual/mem/zero");
    reads("/sys/dev/char/1:3/dev", "1:3\n");
    reads("/sys/dev/char/1:3/uevent", "MAJOR=1\nMINOR=3\nDEVNAME=null\nDEVMODE=0666\n");
    leads("/sys/dev/char/1:3/subsystem", "../../../../class/mem");
    reads("/sys/class/tty/tty/dev", "5:0\n");
    CHECK_ERR(open("/sys/dev/char/1:300", O_RDONLY), ENOENT);
}
TEST(interfaces_are_links_of_their_class) {
    leads("/sys/class/net/lo", "../../devices/virtual/net/lo");
    leads("/sys/class/net/lo/subsystem", "../../../../class/net");
    reads("/sys/devices/virtual/net/lo/ifindex", "1\n");
    reads("/sys/class/net/lo/type", "772\n");
    CHECK_ERR(readlink("/sys/class/net/nosuchlink", (char[8]){0}, 8), ENOENT);
}
TEST(classes_without_devices) {
    // A machine without a battery has the directory all the same.
    int fd = SYS(open("/sys/class/power_supply", O_RDONLY | O_DIRECTORY));
    close(fd);
}
TEST(caches) {
    char path[128], text[64], want[64];
    int found = 0;
    for (int i = 0; i < 8; i++) {
        sprintf(path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
        FILE *f = fopen(path, "r");
        if (!f) break;
        MUST(fgets(text, sizeof text, f));
        fclose(f);
        if (strcmp(text, "Data\n")) continue;
        found++;
        sprintf(path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        reads(path, "1\n");
        sprintf(path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        sprintf(want, "%ldK\n", sysconf(_SC_LEVEL1_DCACHE_SIZE) / 1024);
        reads(path, want);
        sprintf(path, "/sys/devices/system/cpu/cpu0/cache/index%d/coherency_line_size", i);
        sprintf(want, "%ld\n", sysconf(_SC_LEVEL1_DCACHE_LINESIZE));
        reads(path, want);
        sprintf(path, "/sys/devices/system/cpu/cpu0/cache/index%d/shared_cpu_map", i);
        reads(path, "1\n");
    }
    if (sysconf(_SC_LEVEL1_DCACHE_SIZE) > 0) CHECK_EQ(found, 1);
}

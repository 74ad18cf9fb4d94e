// PR_FUTEX_HASH of prctl(2): the number of buckets of a process's own table of futexes.
#include "t.h"
#include <pthread.h>
#include <sys/prctl.h>

static void *nothing(void *arg) { return arg; }
static long slots(int what, unsigned n, int flags) { return prctl(78, what, (unsigned long)n, flags, 0); }
#define SET(n) slots(1, n, 0)
#define GET() slots(2, 0, 0)
// A table of its own comes with the first thread, unless the program chooses.
TEST(table_of_futexes) {
    pthread_t t;
    CHECK_EQ(GET(), 0);
    CHECK_ERR(SET(1), EINVAL);
    CHECK_ERR(SET(3), EINVAL);
    CHECK_ERR(SET(1u << 31), ENOMEM);
    CHECK_ERR(slots(1, 4, 1), EINVAL);
    CHECK_ERR(slots(0, 0, 0), EINVAL);
    CHECK_ERR(slots(3, 0, 0), EINVAL);
    CHECK_EQ(GET(), 0);
    CHECK_CHILD(pthread_create(&t, 0, nothing, 0); CHECK_EQ(GET(), 16); pthread_join(t, 0); OK(SET(64)); CHECK_EQ(GET(), 64); OK(SET(2)); CHECK_EQ(GET(), 2);
                CHECK_CHILD(CHECK_EQ(GET(), 0)));
    CHECK_CHILD(OK(SET(4)); pthread_create(&t, 0, nothing, 0); pthread_join(t, 0); CHECK_EQ(GET(), 4); OK(SET(0)); CHECK_EQ(GET(), 0);
                CHECK_ERR(SET(0), EBUSY); CHECK_ERR(SET(4), EBUSY); pthread_create(&t, 0, nothing, 0); pthread_join(t, 0); CHECK_EQ(GET(), 0));
}

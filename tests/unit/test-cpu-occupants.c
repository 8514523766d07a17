/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Occupants of a CPU while a thread waited for it. */

#include "check.h"
#include "cpu-occupants.h"
#include "util.h"

/* Of the last waited ns: how long in turns of this group, as the program goes through them. */
static uint64_t share(const struct cpu_occupants *t, uint64_t group, uint64_t waited) {
        uint64_t sum = 0;

        for (unsigned back = 0; back < TURNS && waited > 0; back++) {
                __u64 whose, part;

                if (!cpu_occupants_get(t, back, waited, &whose, &part))
                        break;
                if (whose == group)
                        sum += part;
                waited -= part;
        }
        return sum;
}

static void test_turns(void) {
        struct cpu_occupants t = {};

        /* Nothing is known of what was before the first one, nor when that began */
        check(share(&t, 0, 100) == 0);
        cpu_occupants_push(&t, 7, 1000);
        check(share(&t, 7, 100) == 0);

        cpu_occupants_push(&t, 8, 1500);
        check(share(&t, 8, 100) == 100);
        check(share(&t, 8, 500) == 500);
        check(share(&t, 8, 900) == 500);
        cpu_occupants_push(&t, 9, 1700);
        check(share(&t, 9, 600) == 200 && share(&t, 8, 600) == 400);

        /* The same group again goes on, and has another turn after others */
        cpu_occupants_push(&t, 9, 1800);
        check(share(&t, 9, 600) == 300 && share(&t, 8, 600) == 300);
        cpu_occupants_push(&t, 8, 1900);
        check(share(&t, 8, 900) == 600 && share(&t, 9, 900) == 300);

        /* A turn of no length, as that of a task that leaves at once */
        cpu_occupants_push(&t, 5, 1900);
        check(share(&t, 5, 900) == 0 && share(&t, 8, 900) == 600);

        /* A clock that was set back */
        cpu_occupants_push(&t, 6, 1850);
        check(share(&t, 6, 900) == 0 && share(&t, 8, 900) == 600);
        cpu_occupants_push(&t, 7, 2000);
        check(share(&t, 7, 1000) == 100 && share(&t, 8, 1000) == 600);
}

static void test_rounds(void) {
        struct cpu_occupants t = {};
        uint64_t now = 0, known;

        /* Three take turns of different length, many times: what is known is in proportion, and no more than
         * all turns but the one whose beginning was forgotten */
        for (unsigned i = 0; i < 1000; i++) {
                now += 1000 * (i % 3 + 1);
                cpu_occupants_push(&t, i % 3 + 1, now);
        }
        known = share(&t, 1, now) + share(&t, 2, now) + share(&t, 3, now);
        check(known > 0 && known < now);
        check(share(&t, 1, 6000) == 1000 && share(&t, 2, 6000) == 2000 && share(&t, 3, 6000) == 3000);
        check(share(&t, 3, 2 * 6000) == 6000);
        check(share(&t, 1, now) == 5 * 1000 && known == (TURNS - 1) / 3 * 6000);
}

int main(void) {
        test_turns();
        test_rounds();
        return 0;
}

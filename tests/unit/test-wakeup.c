/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The thread that ended a wait: the code that the programs run (bpf/contention/wakeup.h). */

#include "check.h"
#include "util.h"
#include "wakeup.h"

#define ADDRESS 4096

/* As thread_note_waker() in bpf/contention/cpu.bpf.c: state is what is known of the thread when it is
 * woken. */
static struct wakeup wake(uint64_t state, uint64_t call, uint64_t futex) {
        uint32_t what = wakeup_expected(state) & wakeup_call(call);

        return (struct wakeup) { .futex = futex, .what = what ? what | WAKEUP_TASK : 0 };
}

/* The same wakeup ends the same wait, whether that is known already or the thread still runs as far as is
 * known. */
static void test_order(void) {
        static const struct {
                uint32_t state;
                uint64_t futex;
                bool row;
                uint64_t call;
                uint64_t address;
                bool ends;
        } table[] = {
                { QOS_STATE_LOCK,   ADDRESS, true,  __NR_futex,  ADDRESS,     true  },
                { QOS_STATE_LOCK,   ADDRESS, false, __NR_futex,  ADDRESS,     true  },
                /* of another process */
                { QOS_STATE_LOCK,   ADDRESS, true,  __NR_futex,  0,           true  },
                { QOS_STATE_LOCK,   ADDRESS, true,  __NR_futex,  ADDRESS + 4, false },
                { QOS_STATE_LOCK,   ADDRESS, true,  __NR_close,  ADDRESS,     false },
                { QOS_STATE_PARK,   ADDRESS, true,  __NR_futex,  ADDRESS,     true  },
                { QOS_STATE_PARK,   ADDRESS, true,  __NR_write,  ADDRESS,     false },
                { QOS_STATE_LOCK,   0,       true,  __NR_flock,  3,           true  },
                { QOS_STATE_LOCK,   0,       true,  __NR_fcntl,  3,           true  },
                { QOS_STATE_LOCK,   0,       true,  __NR_close,  3,           true  },
                { QOS_STATE_LOCK,   0,       false, __NR_flock,  3,           false },
                { QOS_STATE_LOCK,   0,       true,  __NR_futex,  3,           false },
                { QOS_STATE_PIPE,   0,       true,  __NR_write,  1,           true  },
                { QOS_STATE_PIPE,   0,       true,  __NR_splice, 1,           true  },
                { QOS_STATE_PIPE,   0,       true,  __NR_close,  1,           true  },
                { QOS_STATE_PIPE,   0,       true,  __NR_futex,  1,           false },
                { QOS_STATE_PIPE,   0,       false, __NR_write,  1,           false },
                { QOS_STATE_POLL,   0,       true,  __NR_kill,   1,           true  },
                { QOS_STATE_POLL,   0,       false, __NR_kill,   1,           true  },
                { QOS_STATE_POLL,   0,       true,  __NR_write,  1,           false },
                { QOS_STATE_SOCKET, 0,       true,  __NR_write,  1,           false },
                { QOS_STATE_SLEEP,  0,       false, __NR_kill,   1,           false },
                { QOS_STATE_LOCK,   ADDRESS, true,  SYSCALLS_MAX, ADDRESS,    false },
                { QOS_STATE_LOCK,   ADDRESS, true,  UINT64_MAX,  ADDRESS,     false }, /* in no call */
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                const uint32_t known[] = { table[i].state, QOS_STATE_RUNNING };

                for (size_t k = 0; k < ELEMENTSOF(known); k++) {
                        struct wakeup w = wake(known[k], table[i].call, table[i].address);

                        check(wakeup_is_end(&w, table[i].state, table[i].futex, table[i].row,
                                            false) == table[i].ends);
                }
        }
}

/* A lock of the kernel is released by its holder, in any call or in none. */
static void test_locked(void) {
        const struct wakeup task = { .what = WAKEUP_TASK }, nobody = {};

        check(wakeup_is_end(&task, QOS_STATE_DISK, 0, true, true));
        check(!wakeup_is_end(&task, QOS_STATE_DISK, 0, false, true));
        check(!wakeup_is_end(&nobody, QOS_STATE_DISK, 0, true, true));
        /* for all else a waker that is in no such call means nothing */
        check(!wakeup_is_end(&task, QOS_STATE_LOCK, ADDRESS, true, false));
        check(!wakeup_is_end(&task, QOS_STATE_PIPE, 0, true, false));
        check(!wakeup_is_end(&nobody, QOS_STATE_POLL, 0, true, false));
}

int main(void) {
        test_order();
        test_locked();
        return EXIT_SUCCESS;
}

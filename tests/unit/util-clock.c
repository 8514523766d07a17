/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <string.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "util.h"
#include "util-clock.h"

/* Time since the first read of a clock, which returned the time of the kernel. */
static uint64_t passed;
static uint64_t begin[CLOCK_BOOTTIME_ALARM + 1];

/* Timers that are open: the kernel does not know the clocks of the test, hence clock_advance() arms them. */
static struct {
        clockid_t clock;
        bool is_open, is_set;
        struct itimerspec value;
} timers[1024];

static clockid_t clock_base(clockid_t clock) {
        return clock == CLOCK_BOOTTIME_ALARM ? CLOCK_BOOTTIME : clock == CLOCK_REALTIME_ALARM ?
               CLOCK_REALTIME : clock;
}

static bool clock_stands(clockid_t clock) {
        return clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME;
}

static uint64_t timespec_nsec(const struct timespec *t) {
        return (uint64_t) t->tv_sec * NSEC_PER_SEC + (uint64_t) t->tv_nsec;
}

/* Replace the functions of the C library. */
int clock_gettime(clockid_t clock, struct timespec *ret) {
        clockid_t base = clock_base(clock);
        uint64_t now;

        if (!clock_stands(base))
                return (int) syscall(SYS_clock_gettime, clock, ret);
        if (begin[base] == 0) {
                if (syscall(SYS_clock_gettime, base, ret) < 0)
                        return -1;
                begin[base] = timespec_nsec(ret) - passed;
        }
        now = begin[base] + passed;
        *ret = (struct timespec) { .tv_sec = (time_t) (now / NSEC_PER_SEC),
                                   .tv_nsec = (long) (now % NSEC_PER_SEC) };
        return 0;
}

int timerfd_create(int clock, int flags) {
        int fd = (int) syscall(SYS_timerfd_create, clock, flags);

        check(fd < (int) ELEMENTSOF(timers));
        if (fd >= 0)
                timers[fd] = (typeof(timers[0])) { .clock = clock_base(clock), .is_open = true };
        return fd;
}

/* Due at once, or not before the next clock_advance(). */
static int timer_update(int fd) {
        struct itimerspec value = {};

        if (timers[fd].is_set && now_nsec(timers[fd].clock) >= timespec_nsec(&timers[fd].value.it_value))
                value.it_value.tv_nsec = 1;
        return (int) syscall(SYS_timerfd_settime, fd, 0, &value, NULL);
}

int timerfd_settime(int fd, int flags, const struct itimerspec *value, struct itimerspec *old) {
        check(fd >= 0 && fd < (int) ELEMENTSOF(timers) && timers[fd].is_open && !old);
        timers[fd].is_set = timespec_nsec(&value->it_value) != 0;
        timers[fd].value = *value;
        /* Relative and periodic timers are not used */
        check(!timers[fd].is_set ||
              (flags & TFD_TIMER_ABSTIME && timespec_nsec(&value->it_interval) == 0));
        return timer_update(fd);
}

void clock_advance(uint64_t nsec) {
        passed += nsec;
        for (int fd = 0; fd < (int) ELEMENTSOF(timers); fd++)
                if (timers[fd].is_open && timer_update(fd) < 0)
                        timers[fd].is_open = false; /* it was closed */
}

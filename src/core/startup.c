/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#include "startup.h"
#include "util.h"

static atomic_flag notified = ATOMIC_FLAG_INIT;
static uint64_t watch_usec;

bool ready_notify(void) {
        if (atomic_flag_test_and_set(&notified))
                return false;
        (void) sd_notify(false, "READY=1");
        return true;
}

/* A thread, as the service manager ignores notifications of other processes. */
static void* watch(void *userdata) {
        uint64_t until = now_nsec(CLOCK_MONOTONIC) + watch_usec * NSEC_PER_USEC;
        struct timespec ts = { .tv_sec = (time_t) (until / NSEC_PER_SEC),
                               .tv_nsec = (long) (until % NSEC_PER_SEC) };

        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
                ;
        (void) ready_notify();
        return NULL;
}

int ready_watch(uint64_t usec) {
        sigset_t all, before;
        pthread_t thread;
        int r;

        watch_usec = usec;
        /* Signals are handled by the event loop: this thread must not receive them */
        (void) sigfillset(&all);
        (void) pthread_sigmask(SIG_SETMASK, &all, &before);
        r = pthread_create(&thread, NULL, watch, NULL);
        (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (r == 0)
                r = pthread_detach(thread);
        return -r;
}

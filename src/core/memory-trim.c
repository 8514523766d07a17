/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <malloc.h>

#include "memory-trim.h"

/* Minimum interval of trims. */
#define TRIM_USEC USEC_PER_SEC

struct MemoryTrim {
        TurnQueue *turns;
        sd_event_source *timer;
        uint64_t trimmed_at;            /* CLOCK_MONOTONIC usec */
        bool (*handler)(void *userdata);
        void *userdata;
};

static void trim_schedule_at(MemoryTrim *t, uint64_t usec) {
        if (sd_event_source_get_enabled(t->timer, NULL) != 0)
                return; /* already scheduled */
        (void) sd_event_source_set_time(t->timer, usec);
        (void) sd_event_source_set_enabled(t->timer, SD_EVENT_ONESHOT);
}

static int on_trim(sd_event_source *source, uint64_t usec, void *userdata) {
        MemoryTrim *t = ASSERT_PTR(userdata);
        bool cached = t->handler && t->handler(t->userdata);

        if (cached || turn_queue_is_busy(t->turns)) {
                memory_trim_schedule(t);
                return 0;
        }
        (void) malloc_trim(0);
        t->trimmed_at = now_usec(CLOCK_MONOTONIC);
        return 0;
}

void memory_trim_schedule(MemoryTrim *t) {
        trim_schedule_at(t, now_usec(CLOCK_MONOTONIC) + TRIM_USEC);
}

void memory_trim_request(MemoryTrim *t) {
        if (now_usec(CLOCK_MONOTONIC) >= t->trimmed_at + TRIM_USEC)
                (void) on_trim(t->timer, 0, t);
        else
                trim_schedule_at(t, t->trimmed_at + TRIM_USEC);
}

void memory_trim_set_cache(MemoryTrim *t, bool (*handler)(void *userdata), void *userdata) {
        t->handler = handler;
        t->userdata = userdata;
}

int memory_trim_new(sd_event *event, TurnQueue *turns, MemoryTrim **ret) {
        MemoryTrim *t;
        int r;

        t = new0(MemoryTrim, 1);
        if (!t)
                return -ENOMEM;
        t->turns = turns;
        r = sd_event_add_time(event, &t->timer, CLOCK_MONOTONIC, 0, 0, on_trim, t);
        if (r >= 0)
                r = sd_event_source_set_enabled(t->timer, SD_EVENT_OFF);
        if (r < 0) {
                memory_trim_free(t);
                return r;
        }

        *ret = t;
        return 0;
}

MemoryTrim* memory_trim_free(MemoryTrim *t) {
        if (!t)
                return NULL;

        sd_event_source_disable_unref(t->timer);
        free(t);
        return NULL;
}

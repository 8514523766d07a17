/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Work in child processes, which may hang: the event loop goes on, root waits for nobody else, and all of it
 * ends. */

#include <string.h>
#include <unistd.h>

#include "check.h"
#include "child-queue.h"
#include "util.h"

typedef struct Work {
        bool hangs;
        char text[16];                  /* its output */
        char seen[16];
        uint64_t nsec;
        unsigned order;                 /* in which it ended; 0: not yet */
} Work;

static unsigned n_ended, n_ticks;

static void work(int fd, void *userdata) {
        const Work *w = userdata;

        if (write(fd, w->text, sizeof(w->text)) < 0)
                return;
        while (w->hangs)
                (void) pause();
}

static void done(const void *output, size_t size, uint64_t nsec, void *userdata) {
        Work *w = userdata;

        check(w->order == 0);
        check(size == 0 || size == sizeof(w->seen));
        memcpy(w->seen, output, size);
        w->nsec = nsec;
        w->order = ++n_ended;
}

static int on_tick(sd_event_source *source, uint64_t usec, void *userdata) {
        n_ticks++;
        (void) sd_event_source_set_time_relative(source, USEC_PER_MSEC);
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

int main(void) {
        Work hangs = { .hangs = true, .text = "hangs" }, next = { .text = "next" };
        Work roots = { .text = "root" }, gone = { .hangs = true }, last = { .text = "last" }, crowd[10];
        ChildJob *j, *jobs[ELEMENTSOF(crowd)];
        sd_event_source *ticks;
        ChildQueue *q;
        sd_event *event;

        check(sd_event_default(&event) >= 0);
        check(sd_event_add_time_relative(event, &ticks, CLOCK_MONOTONIC, 0, 1, on_tick, NULL) >= 0);
        check(child_queue_new(event, &q) >= 0);

        /* One that hangs is ended, with what it had written; meanwhile others wait, root and the loop do
         * not */
        check(child_job_new(q, false, work, done, &hangs, &j) >= 0);
        check(child_job_new(q, false, work, done, &next, &j) >= 0);
        check(child_job_new(q, true, work, done, &roots, &j) >= 0);
        check(n_ended == 0);
        while (n_ended < 3)
                check(sd_event_run(event, UINT64_MAX) >= 0);
        check(roots.order == 1 && hangs.order == 2 && next.order == 3);
        check(streq(roots.seen, "root") && streq(hangs.seen, "hangs") && streq(next.seen, "next"));
        check(hangs.nsec >= CHILD_NSEC_MAX && next.nsec > 0);
        check(n_ticks >= 3);

        /* Nobody waits for the first one any more, nor for one in the queue */
        check(child_job_new(q, false, work, done, &gone, &j) >= 0);
        check(child_job_new(q, false, work, done, &gone, &jobs[0]) >= 0);
        check(child_job_new(q, false, work, done, &last, &jobs[1]) >= 0);
        check(!child_job_free(j) && !child_job_free(jobs[0]));
        while (n_ended < 4)
                check(sd_event_run(event, UINT64_MAX) >= 0);
        check(last.order == 4 && streq(last.seen, "last") && gone.order == 0);

        /* Of many that hang, those at the end of the queue are not begun */
        for (size_t i = 0; i < ELEMENTSOF(crowd); i++) {
                crowd[i] = (Work) { .hangs = true, .text = "crowd" };
                check(child_job_new(q, false, work, done, crowd + i, jobs + i) >= 0);
        }
        while (n_ended < 4 + ELEMENTSOF(crowd))
                check(sd_event_run(event, UINT64_MAX) >= 0);
        check(crowd[0].nsec > 0 && crowd[ELEMENTSOF(crowd) - 1].nsec == 0);
        check(!*crowd[ELEMENTSOF(crowd) - 1].seen);

        child_queue_free(q);
        sd_event_source_disable_unref(ticks);
        sd_event_unref(event);
        return EXIT_SUCCESS;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* States of a thread between reading a request and responding: the code of the programs
 * (bpf/contention/request-cpu.h), compared with a list of all states of the thread. */

#include "check.h"
#include "request-cpu.h"
#include "util.h"

#define EVENTS 5000

static struct {
        uint64_t at;
        unsigned state;
} story[EVENTS];
static size_t n_story;

static struct request_cpu_run account;
static uint64_t now = 1000;

static void become(unsigned state) {
        account.times[account.state] += now - account.since;
        account.state = state;
        account.since = now;
        story[n_story].at = now;
        story[n_story++].state = state;
}

static uint64_t time_in(unsigned state, uint64_t begin, uint64_t end) {
        uint64_t sum = 0;

        for (size_t i = 0; i < n_story; i++) {
                uint64_t from = MAX(story[i].at, begin), to = i + 1 < n_story ? MIN(story[i + 1].at, end) :
                        end;

                if (story[i].state == state && to > from)
                        sum += to - from;
        }
        return sum;
}

static void read_request(struct service *s, uint64_t at) {
        struct request_cpu_run *run = request_cpu_begin(s, account.since);

        if (run)
                *run = account;
        request_cpu_note(s, at);
}

/* A thread that reads requests, waits for several resources, responds in any order, and reads others
 * meanwhile. */
static void test_random(unsigned seed) {
        uint64_t open[SERVICE_NOTES];
        uint32_t runs[SERVICE_NOTES], notes[SERVICE_NOTES];
        struct service s = {};
        size_t n_open = 0, responded = 0, missed = 0;

        account = (struct request_cpu_run) { .state = QOS_STATE_RUNNING, .since = now };
        n_story = 0;
        become(QOS_STATE_RUNNING);
        while (n_story < EVENTS - 2) {
                now += 1 + rand_r(&seed) % 1000;
                switch (rand_r(&seed) % 4) {

                case 0:
                        if (n_open == SERVICE_NOTES)
                                break;
                        read_request(&s, now);
                        runs[n_open] = s.runs;
                        notes[n_open] = s.notes;
                        open[n_open++] = now;
                        break;

                case 1: {
                        __u64 sums[QOS_STATES] = {}, all = 0;
                        unsigned k, times = 1 + rand_r(&seed) % 3;

                        if (n_open == 0)
                                break;
                        k = rand_r(&seed) % n_open;
                        /* It keeps so many requests, and as many runs */
                        check(request_cpu_finish(&s, &account, open[k], now, times, sums) ==
                              (s.notes - notes[k] < SERVICE_NOTES && s.runs - runs[k] < SERVICE_RUNS));
                        for (unsigned i = 0; i < QOS_STATES; i++)
                                all += sums[i];
                        if (all > 0) {
                                responded++;
                                for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                                        check(sums[i] == times * time_in(i, open[k], now));
                                check(all == times * (now - open[k]));
                        } else
                                missed++;
                        open[k] = open[n_open - 1];
                        runs[k] = runs[n_open - 1];
                        notes[k] = notes[--n_open];
                        break;
                }

                default:
                        /* Leaves the CPU, and runs again */
                        become(QOS_STATE_RUN_QUEUE + rand_r(&seed) % (QOS_STATES - QOS_STATE_RUN_QUEUE));
                        now += 1 + rand_r(&seed) % 100000;
                        become(QOS_STATE_RUNNING);
                }
        }
        check(responded > 100 && missed > 100);
}

/* An event loop: up to the limit, requests of one run are all attributed; beyond it the newest ones are. */
static void test_batch(void) {
        for (unsigned n = 1; n <= SERVICE_NOTES + 5; n++) {
                uint64_t begin = now, known = 0;
                struct service s = {};

                account = (struct request_cpu_run) { .state = QOS_STATE_RUNNING, .since = now };
                for (unsigned i = 0; i < n; i++)
                        read_request(&s, begin + 1 + i);
                check(s.runs == 1);
                for (unsigned i = 0; i < n; i++) {
                        __u64 sums[QOS_STATES] = {};

                        if (!request_cpu_finish(&s, &account, begin + 1 + i, begin + 100 + i, 1, sums))
                                continue;
                        check(sums[QOS_STATE_RUNNING] == 99);
                        known++;
                }
                check(known == MIN(n, SERVICE_NOTES));
                /* Another thread has read that */
                check(!request_cpu_finish(&s, &account, begin + 5000, begin + 6000, 1,
                        (__u64[QOS_STATES]) {}));
                check(!request_cpu_finish(&s, &account, 0, begin + 6000, 1, (__u64[QOS_STATES]) {}));
        }
}

/* It processes a request from the read to the response; its waits for other requests in between are
 * known. */
static void test_held(void) {
        __u64 sums[QOS_STATES] = {};
        struct service s = {};

        account = (struct request_cpu_run) { .state = QOS_STATE_RUNNING, .since = now };
        check(!s.open);
        account.times[QOS_STATE_BLOCKED_BY_REQUESTS] = 500;
        read_request(&s, now + 1);
        check(s.open);
        account.times[QOS_STATE_BLOCKED_BY_REQUESTS] += 70;
        read_request(&s, now + 2);
        check(request_cpu_finish(&s, &account, now + 1, now + 100, 3, sums) && s.open);
        check(sums[QOS_STATE_BLOCKED_BY_REQUESTS] == 3 * 70);
        check(request_cpu_finish(&s, &account, now + 2, now + 100, 1, sums) && !s.open);
        /* Both were read in one run: the waits since then belong to both */
        check(sums[QOS_STATE_BLOCKED_BY_REQUESTS] == 4 * 70 && sums[QOS_STATE_RUNNING] == 3 * 99 + 98);
        /* The response of another thread has no effect */
        read_request(&s, now + 200);
        check(!request_cpu_finish(&s, &account, now + 150, now + 300, 1, sums) && s.open);
}

int main(void) {
        for (unsigned seed = 1; seed <= 5; seed++)
                test_random(seed);
        test_batch();
        test_held();
        return EXIT_SUCCESS;
}

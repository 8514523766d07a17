/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>
#include <stdarg.h>

#include "diagnosis-internal.h"
#include "parse.h"
#include "state-label.h"
#include "util.h"

/* ---- the rules' constants ----------------------------------------------------------------------------- */

/* Of waits that can be avoided altogether: the time of some tens of requests to a fast server. */
#define STALL_MIN_NSEC (0.1 * NSEC_PER_MSEC)
/* A thread that waits for a CPU a tenth of the time; timers of an idle server on a busy machine make some
 * hundredths. */
#define THREADS_MIN 0.1
/* Nearly half a thread that waits all the time, in units without requests: background work of a daemon is
 * less, and a thread that shares its CPU with another one of the same weight waits for half of the time, a
 * little more or less. If there are several causes, each is half of that or more. */
#define THREADS_WAITING_MIN 0.45
#define THREADS_WAITING_PART (THREADS_WAITING_MIN / 2)
/* And by at least this much, which a busy machine adds to any of them. */
#define WORSE_NSEC (0.05 * NSEC_PER_MSEC)
/* Nearly all CPUs: the rest is what the kernel takes for interrupts and for others. */
#define CPUS_MOST 0.8
/* A process that has a CPU to itself, less what others take of it. One that shares it with another has a
 * half. */
#define BUSIEST_MIN 0.7
/* A thread that others take the CPU from, but for less time than it has it. */
#define BUSIEST_THREAD_MIN 0.6
/* More than one thread and its helpers can use: a process with several busy threads. */
#define BUSIEST_MAX 1.2
/* Idle CPU time above which a CPU counts as idle. */
#define IDLE_MIN 0.2
/* A CPU that sleeps takes some tens of microseconds to begin, in a virtual machine more; one that others use
 * lets a thread wait for milliseconds. */
#define WAKE_MAX_NSEC (0.1 * NSEC_PER_MSEC)
/* Pages that come back for each one that is read: half of what is read had been in memory before. */
#define REFAULTS_MIN 0.5
/* Two requests at a time, of which one waits for the other. */
#define AT_ONCE_MIN 2.0
/* Without a baseline, a response is too slow if people notice its time. */
#define SLOW_NSEC (100.0 * NSEC_PER_MSEC)
/* A quota is too small if it is used up in one of twenty periods. */
#define THROTTLED_MIN 0.05
/* A unit that had the CPU for less than a tenth of the time that threads waited for it is not named. */
#define USER_MIN 0.1
/* Share of a device's bytes: a unit with less than a third shares it with another that has twice as much. */
#define DEVICE_OWN_MIN (1.0 / 3)

/* ---- how the time of a request is made up ------------------------------------------------------------- */

/* Parts of the time of a request. */
typedef enum Part {
        PART_RUNNING,
        PART_RUN_QUEUE,
        PART_THROTTLED,
        PART_DISK,
        PART_LOCK,
        PART_MEMORY,
        PART_ASK,               /* waits for responses of other units */
        _PART_MAX,
} Part;

static const struct {
        enum qos_state state;
        FindingKind kind;
        bool in_service;        /* occurs only while a request is processed, not in the queue */
        double floor;           /* ns of a request: below it no finding, unless it has grown */
        double threads;         /* average number of threads in the state: below it no finding */
        const char *rule;
} part_table[_PART_MAX] = {
        [PART_RUNNING]   = { QOS_STATE_RUNNING,   _FINDING_KIND_MAX,  true,  0,              0,
                             NULL },
        [PART_RUN_QUEUE] = { QOS_STATE_RUN_QUEUE, FINDING_CPU,        false, 0,              THREADS_MIN,
                             "its threads waited for a CPU for a fifth or more of the time of a request, a "
                             "tenth of a thread or more on average, and no CPU was idle or each wait took "
                             "100 us or more" },
        [PART_THROTTLED] = { QOS_STATE_THROTTLED, FINDING_QUOTA,      false, 0,              THROTTLED_MIN,
                             "its threads were throttled for a fifth or more of the time of a request" },
        [PART_DISK]      = { QOS_STATE_DISK,      FINDING_DISK,       true,  WAIT_MIN_NSEC,  0,
                             "its threads waited for files and devices for a fifth or more of the time of a "
                             "request, and 1 ms or more" },
        [PART_LOCK]      = { QOS_STATE_LOCK,      FINDING_LOCK,       true,  STALL_MIN_NSEC, THREADS_MIN,
                             "its threads waited for what other threads held for a fifth or more of the "
                             "time of a request, and 100 us or more" },
        [PART_MEMORY]    = { QOS_STATE_MEMORY,    FINDING_MEMORY,     true,  STALL_MIN_NSEC, 0,
                             "its threads waited for memory for a fifth or more of the time of a request, "
                             "and 100 us or more" },
        [PART_ASK]       = { QOS_STATE_NONE,      FINDING_DEPENDENCY, true,  WAIT_MIN_NSEC,  0,
                             "the unit waited for responses to its own requests for a fifth or more of the "
                             "time of a request, and 1 ms or more" },
};

typedef struct Parts {
        double spent[_PART_MAX];        /* ns of threads, or of peers, for each request, including
                                         * background work */
        double least[_PART_MAX];        /* minimum in the time in which a request is read and served */
        double most[_PART_MAX];         /* maximum, ns of the time to its first byte */
        double unexplained;             /* ns of the time to the first byte */
} Parts;

/* The request that a thread works for is unknown. But the service time must contain of each part what
 * exceeds the time left by the other parts, whatever went on in the background. The time in which
 * requests wait to be read is the service time of those before them, so it divides in the same way. Where
 * each request has a thread of its own, that thread's waits for locks and CPUs are known, and other
 * threads belong to no request. exact: use these, as in the figures that are compared with them. */
static bool parts_read(const DiagnosisFigures *f, bool exact, Parts *ret) {
        double read = f->queue + f->service, occupied = 0, sum = 0, in_service = 0, lower[_PART_MAX] = {},
                upper[_PART_MAX] = {};

        *ret = (Parts) {};
        if (!(f->rate > 0) || isnan(read))
                return false;

        for (Part p = 0; p < _PART_MAX; p++) {
                double n = p == PART_ASK ? f->client_rate / f->rate * f->client_latency :
                           f->threads[part_table[p].state] / f->rate * NSEC_PER_SEC;

                ret->spent[p] = n > 0 ? n : 0; /* unknown: counted as none */
                if (exact && !isnan(f->service_lock) && p == PART_LOCK)
                        ret->spent[p] = MIN(ret->spent[p], f->service_lock);
                if (exact && !isnan(f->service_lock) && p == PART_RUN_QUEUE)
                        ret->spent[p] = MIN(ret->spent[p], f->queue + f->service_run_queue);
                if (part_table[p].in_service)
                        in_service += ret->spent[p];
        }

        for (Part p = 0; p < _PART_MAX; p++) {
                if (part_table[p].in_service && p != PART_RUNNING)
                        lower[p] = MIN(ret->spent[p], fmax(0, f->service - (in_service - ret->spent[p])));
                else
                        lower[p] = MIN(ret->spent[p], part_table[p].in_service ? f->service : read);
                upper[p] = MIN(ret->spent[p], part_table[p].in_service ? f->service : read);
                sum += lower[p];
        }

        occupied = MAX(f->service, sum);
        if (occupied <= 0)
                return false;
        for (Part p = 0; p < _PART_MAX; p++) {
                ret->least[p] = lower[p] / occupied * read;
                ret->most[p] = upper[p] / MAX(occupied, upper[p]) * read;
        }
        ret->unexplained = (occupied - sum) / occupied * read;
        return true;
}

/* Whether the exact times of both are known; otherwise neither is used. */
static bool parts_are_exact(const DiagnosisEvidence *e) {
        return !e->normal || !isnan(e->normal->service_lock);
}

/* ---- findings ----------------------------------------------------------------------------------------- */

static void finding_name_lock(Finding *f, const DiagnosisNamed *lock) {
        size_t n = strlen(f->text);

        diagnosis_copy_name(f->resource, lock->name);
        (void) snprintf(f->text + n, sizeof(f->text) - n, ", mostly on %s%s%s", lock->name,
                        lock->holder[0] ? ", released by " : "", lock->holder);
}

/* Share of this user in the time that threads waited for a CPU, of the time with a known user. */
static double user_share(const DiagnosisFigures *f, const DiagnosisNamed *user) {
        return user->value / (f->run_queue_own + f->run_queue_others);
}

/* Adds the names to a finding. */
static void finding_name(Finding *f, const DiagnosisEvidence *e) {
        const DiagnosisFigures *now = &e->now;
        size_t n = strlen(f->text);
        char *end = f->text + n;
        size_t left = sizeof(f->text) - n;

        switch (f->kind) {

        case FINDING_CPU:
                if (e->n_users > 0 && user_share(now, e->users) >= USER_MIN) {
                        bool more = e->n_users > 1 && user_share(now, e->users + 1) >= USER_MIN;

                        diagnosis_copy_name(f->resource, e->users[0].name);
                        diagnosis_copy_name(f->unit, e->users[0].unit);
                        (void) snprintf(end, left, "; %s had it for %s of that%s%s", e->users[0].name,
                                        PERCENT(user_share(now, e->users)), more ? ", then " : "",
                                        more ? e->users[1].name : "");
                } else if (!isnan(now->run_queue_others)) /* unknown users are not mentioned if none was
                                                           * determined */
                        (void) snprintf(end, left, "; no competitor was seen");
                break;

        case FINDING_DISK:
                if (e->n_devices > 0) {
                        const DiagnosisNamed *device = e->devices;

                        diagnosis_copy_name(f->resource, device->name);
                        if (isnan(device->value))
                                (void) snprintf(end, left, "; device %s", device->name);
                        else if (device->value >= DEVICE_OWN_MIN)
                                (void) snprintf(end, left, "; device %s, %s of its bytes are the unit's own",
                                                device->name, PERCENT(device->value));
                        else {
                                diagnosis_copy_name(f->unit, device->unit);
                                /* Without the io controller writeback of the kernel has no owner */
                                (void) snprintf(end, left, "; device %s, %s of its bytes are %s%s",
                                                device->name, PERCENT(1 - device->value),
                                                device->unit[0] ? "of others, mostly " :
                                                "of others or of unknown origin", device->unit);
                        }
                }
                break;

        case FINDING_LOCK:
                if (e->n_locks > 0)
                        finding_name_lock(f, e->locks);
                break;

        case FINDING_DEPENDENCY:
                if (e->n_peers > 0) {
                        diagnosis_copy_name(f->resource, e->peers[0].name);
                        diagnosis_copy_name(f->unit, e->peers[0].unit);
                        (void) snprintf(end, left, ", mostly for %s%s%s%s, %s per request",
                                        e->peers[0].name, e->peers[0].unit[0] ? " (" : "",
                                        e->peers[0].unit, e->peers[0].unit[0] ? ")" : "",
                                        SPAN(e->peers[0].value));
                }
                break;

        case FINDING_MEMORY:
                if (now->major_faults > 0 || now->refaults > 0)
                        (void) snprintf(end, left,
                                        "; %s major faults/s, %s pages/s read again",
                                        RATE(now->major_faults), RATE(now->refaults));
                break;

        case FINDING_QUOTA:
                if (now->throttled >= 0)
                        (void) snprintf(end, left, "; the quota was used up in %s of the periods",
                                        PERCENT(now->throttled));
                break;

        default:
                break;
        }
}

/* Upper limit of the time that a request may have slept or waited for a child, in ns. */
static double asleep(const DiagnosisFigures *f) {
        static const enum qos_state states[] = { QOS_STATE_SLEEP, QOS_STATE_CHILD, QOS_STATE_PIPE };
        double threads = 0;

        for (size_t i = 0; i < ELEMENTSOF(states); i++)
                threads += f->threads[states[i]] > 0 ? f->threads[states[i]] : 0;
        return threads / f->rate * NSEC_PER_SEC;
}

static const char *const waited[_FINDING_KIND_MAX] = {
        [FINDING_CPU]        = "run-queue wait",
        [FINDING_QUOTA]      = "throttled by the CPU quota",
        [FINDING_DISK]       = "disk wait",
        [FINDING_LOCK]       = "lock wait",
        [FINDING_DEPENDENCY] = "wait for responses of peers",
        [FINDING_MEMORY]     = "memory wait",
};

/* The unit itself keeps the CPUs busy. */
static bool cpu_is_own(const DiagnosisEvidence *e, Part p) {
        const DiagnosisFigures *f = &e->now;

        return p == PART_RUN_QUEUE && f->threads[QOS_STATE_RUNNING] >= CPUS_MOST * f->cpus &&
               !(f->run_queue_others > f->run_queue_own);
}

/* No other unit had the CPUs: many short waits for wakeups. */
static bool cpu_is_waking(const DiagnosisEvidence *e, Part p) {
        return p == PART_RUN_QUEUE && e->now.run_queue_wait < WAKE_MAX_NSEC && e->now.idle_cpus >= IDLE_MIN;
}

/* What threads in a state wait for. ret_lock: the kernel lock, unchanged if it is none. */
static FindingKind part_find_kind(const DiagnosisEvidence *e, Part p, const DiagnosisNamed **ret_lock) {
        const DiagnosisFigures *f = &e->now;
        enum qos_state state = part_table[p].state;
        const DiagnosisNamed *kernel = e->kernel + state;

        /* Calls on files or memory that wait for a kernel lock. If its holder waits for a device, the
         * device is the cause */
        if ((p == PART_DISK || p == PART_MEMORY) && kernel->value >= SHARE_MOST * f->threads[state] &&
            f->threads[state] - kernel->value < SHARE_MOST) {
                *ret_lock = kernel;
                return FINDING_LOCK;
        }
        /* Pages that were in memory before and are read again */
        if (p == PART_DISK && f->refaults >= REFAULTS_MIN * f->reads && f->refaults > 0)
                return FINDING_MEMORY;
        return part_table[p].kind;
}

/* Waits for resources of the system, or for responses of others. */
static void diagnose_parts(const DiagnosisEvidence *e, const Parts *now, const Parts *normal, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;

        for (Part p = PART_RUN_QUEUE; p < _PART_MAX; p++) {
                FindingKind kind = part_table[p].kind;
                double time = now->least[p], share, floor = part_table[p].floor;
                enum qos_state state = part_table[p].state;
                const DiagnosisNamed *lock = NULL;
                const char *rule = part_table[p].rule;
                Certainty certainty;
                Finding *finding;
                bool known;

                if (p == PART_ASK ? isnan(f->client_rate) : isnan(f->threads[state]))
                        continue; /* neither a finding nor excluded */

                /* A wait of a thread that processes several requests, as an event loop, delays all of
                 * them. The baseline does not have that */
                if (p == PART_RUN_QUEUE && !normal && f->service > 0 && !isnan(f->service_run_queue))
                        time = fmax(time, f->service_run_queue / f->service * (f->queue + f->service));

                /* A possible cause, if there is no certain one */
                certainty = time / f->first_byte >= SHARE_MOST ? CERTAINTY_CERTAIN : CERTAINTY_LIKELY;
                if (time / f->first_byte < SHARE_MIN && now->most[p] / f->first_byte >= SHARE_MOST &&
                    now->unexplained / f->first_byte >= SHARE_MOST) {
                        certainty = CERTAINTY_POSSIBLE;
                        time = now->most[p];
                }
                share = time / f->first_byte;

                /* Possibly background: a request that slept or waited for a child looks the same, and
                 * idle threads do so, too */
                if (part_table[p].in_service && certainty == CERTAINTY_CERTAIN &&
                    asleep(f) >= SHARE_MOST * f->service)
                        certainty = CERTAINTY_LIKELY;

                /* A history may have the time of requests without their waits */
                known = normal && !isnan(p == PART_ASK ? e->normal->client_rate : e->normal->threads[state]);
                if (normal && !known && certainty == CERTAINTY_CERTAIN)
                        certainty = CERTAINTY_LIKELY;

                if (known)
                        floor = STALL_MIN_NSEC;
                if (share < SHARE_MIN || time < floor) {
                        diagnosis_exclude(d, kind, share, "%s: %s of each request (%s)%s", waited[kind],
                                          SPAN(time), PERCENT(share), LIMIT(share, SHARE_MIN, time, floor));
                        continue;
                }
                if (p != PART_ASK && f->threads[state] < part_table[p].threads) {
                        diagnosis_exclude(d, kind, share,
                                          "%s: %s of each request (%s), but %.2f threads on average, limit "
                                          "%.2f", waited[kind], SPAN(time), PERCENT(share),
                                          f->threads[state], part_table[p].threads);
                        continue;
                }
                if (known && time - normal->most[p] < SHARE_MIN *
                    (f->first_byte - e->normal->first_byte)) {
                        diagnosis_exclude(d, kind, share,
                                          "%s: %s of each request (%s), which is not what has changed",
                                          waited[kind], SPAN(time), PERCENT(share));
                        continue;
                }

                if (cpu_is_waking(e, p)) {
                        diagnosis_exclude(d, kind, share,
                                          "%s: %s of each request (%s), but only %s each time, while %.2f "
                                          "CPUs are idle", waited[kind], SPAN(time), PERCENT(share),
                                          SPAN(f->run_queue_wait), f->idle_cpus);
                        continue;
                }
                if (cpu_is_own(e, p))
                        continue; /* reported below */
                kind = part_find_kind(e, p, &lock);
                if (lock)
                        rule = "its threads waited for files or memory for a fifth or more of the time of a "
                               "request, half of that or more for a lock of the kernel, and less than half "
                               "a thread for all else there";
                if (diagnosis_has(d, kind))
                        continue;

                finding = diagnosis_add(d, &(FindingCause) {
                                .kind = kind, .certainty = certainty, .state = state, .share = share,
                                .time = time, .rule = rule,
                        }, "%s: %s of the %s to the first byte (%s)",
                        kind == FINDING_MEMORY && p == PART_DISK ?
                        "disk wait for file pages that were in memory before" : waited[kind],
                        SPAN(time), SPAN(f->first_byte), PERCENT(share));
                if (lock)
                        finding_name_lock(finding, lock);
                else
                        finding_name(finding, e);
        }
}

/* Locks that look like waits for work: condition variables, and processes that send signals to each
 * other. The thread that ended such a wait was processing another request, so that the request waited for
 * that one: for a row lock of a database, or by intent, as in a chat. Therefore a finding only without
 * any other cause, and never certain; and with the limit of a disk, as servers with group commit wait for
 * each other for that long. */
static void diagnose_held(const DiagnosisEvidence *e, const Parts *now, bool compared, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        bool known = compared && !isnan(e->normal->blocked_by_requests);
        double time, share;
        Finding *finding;

        if (isnan(f->blocked_by_requests) || !(f->service > 0) || diagnosis_has(d, FINDING_LOCK))
                return;
        time = MIN(f->blocked_by_requests / f->service * (f->queue + f->service), now->unexplained);
        share = time / f->first_byte;
        if (share < SHARE_MIN || time < (known ? STALL_MIN_NSEC : WAIT_MIN_NSEC) ||
            f->blocked_by_requests * f->rate / NSEC_PER_SEC < THREADS_MIN ||
            (known && time - e->normal->blocked_by_requests < SHARE_MIN *
             (f->first_byte - e->normal->first_byte)))
                return;

        finding = diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_LOCK, .certainty = CERTAINTY_POSSIBLE,
                        .state = e->n_blocked > 0 ? e->held_state : QOS_STATE_NONE, .share = share,
                        .time = time,
                        .rule = "threads that work on requests waited, for a fifth or more of the time of a "
                        "request, and 1 ms or more, until others that work on requests let them go on, and "
                        "nothing else explains it",
                }, "requests wait for one another: %s of the %s to the first byte (%s), as for a row of a "
                "database or a connection of a pool", SPAN(time), SPAN(f->first_byte), PERCENT(share));
        if (e->n_blocked > 0)
                finding_name_lock(finding, e->blocked);
}

/* All requests wait for one thread, which others take the CPU from for more time than it has it. */
static void diagnose_starved_thread(const DiagnosisEvidence *e, const Parts *parts, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        double at_once = f->rate * (f->queue + f->service) / NSEC_PER_SEC, busy, time;

        busy = f->busiest_thread + e->busiest_thread_ready;
        time = parts->unexplained * e->busiest_thread_ready / busy;
        if (!(busy >= CPUS_MOST) || f->busiest_thread >= BUSIEST_THREAD_MIN || at_once < AT_ONCE_MIN ||
            parts->unexplained < SHARE_MOST * f->first_byte || time < SHARE_MIN * f->first_byte ||
            !(f->run_queue_others > f->run_queue_own) || diagnosis_has(d, FINDING_CPU))
                return;
        finding_name(diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_CPU, .certainty = CERTAINTY_LIKELY, .state = QOS_STATE_RUN_QUEUE,
                        .share = time / f->first_byte, .time = time,
                        .rule = "two requests or more are there at a time, half of their time or more is no "
                        "wait for a resource, and one thread runs or waits for a CPU for four fifths of the "
                        "time or more, and runs for less than three fifths",
                }, "%.1f requests at a time wait for one thread: %s of the %s to the first byte (%s), in "
                "which %s waits for a CPU", at_once, SPAN(time), SPAN(f->first_byte),
                PERCENT(time / f->first_byte), e->busiest_thread), e);
}

/* Requests wait in the queue for none of the reasons above. */
static void diagnose_limit(const DiagnosisEvidence *e, const Parts *parts, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        double queue = f->queue / f->first_byte,
                running = parts->least[PART_RUNNING] / (f->queue + f->service), at_once, resources = 0;
        Finding *finding;
        bool one;

        for (Part p = PART_RUN_QUEUE; p < _PART_MAX; p++)
                resources += parts->least[p] / (f->queue + f->service);

        one = f->busiest_process >= BUSIEST_MIN && f->busiest_process < BUSIEST_MAX &&
              f->threads[QOS_STATE_RUNNING] < WORSE * f->busiest_process;
        if ((!one || (queue < SHARE_MOST && !diagnosis_has(d, FINDING_CPU))) &&
            f->threads[QOS_STATE_RUNNING] >= CPUS_MOST * f->cpus &&
            (queue >= SHARE_MOST || parts->least[PART_RUN_QUEUE] / f->first_byte >= SHARE_MIN)) {
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_LIMIT, .certainty = CERTAINTY_CERTAIN,
                                .state = QOS_STATE_RUNNING,
                                .share = (parts->least[PART_RUNNING] + parts->least[PART_RUN_QUEUE]) /
                                f->first_byte,
                                .time = parts->least[PART_RUNNING] + parts->least[PART_RUN_QUEUE],
                                .rule = "it uses four fifths or more of the CPUs that it may use, and its "
                                "requests or threads wait",
                        }, "the unit itself uses %.2f of the %.0f CPUs that it may use",
                        f->threads[QOS_STATE_RUNNING], f->cpus);
                return;
        }

        /* Requests that were read wait in the application, or for the last one of a batch with responses
         * sent together */
        at_once = f->rate * (f->queue + f->service) / NSEC_PER_SEC;
        if (f->busiest_thread >= BUSIEST_THREAD_MIN &&
            f->busiest_thread + e->busiest_thread_ready >= CPUS_MOST && at_once >= AT_ONCE_MIN &&
            parts->unexplained >= SHARE_MOST * f->first_byte &&
            (!one || queue < SHARE_MOST || running < SHARE_MOST)) {
                /* Never certain: they may wait for something unobserved, as long polls do, while the
                 * thread is busy otherwise */
                finding = diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_LIMIT,
                                .certainty = asleep(f) >= SHARE_MOST * f->service ? CERTAINTY_POSSIBLE :
                                CERTAINTY_LIKELY,
                                .state = QOS_STATE_RUNNING, .share = parts->unexplained / f->first_byte,
                                .time = parts->unexplained,
                                .rule = "two requests or more are there at a time, half of their time or "
                                "more is no wait for a resource, and one thread runs or waits for a CPU for "
                                "four fifths of the time or more, and runs for three fifths or more",
                        }, "%.1f requests at a time wait for one busy thread: %s of the %s to the first "
                        "byte (%s); %s used %.2f of a CPU", at_once, SPAN(parts->unexplained),
                        SPAN(f->first_byte), PERCENT(parts->unexplained / f->first_byte), e->busiest_thread,
                        f->busiest_thread);
                (void) snprintf(finding->resource, sizeof(finding->resource), "thread %s",
                                e->busiest_thread);
                return;
        }

        if (queue < SHARE_MOST) {
                diagnosis_exclude(d, FINDING_LIMIT, queue, "queue time: %s of each request (%s)%s",
                                  SPAN(f->queue), PERCENT(queue),
                                  LIMIT(queue, SHARE_MOST, f->queue, WAIT_MIN_NSEC));
                return;
        }

        if (running >= SHARE_MOST && one) {
                finding = diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_LIMIT,
                                .certainty = f->busiest_process >= 0.9 ? CERTAINTY_CERTAIN :
                                CERTAINTY_LIKELY,
                                .state = QOS_STATE_RUNNING, .share = queue, .time = f->queue,
                                .rule = "requests wait to be read for half of their time or more, one "
                                "process uses 0.7 CPUs or more, and most of the time of a request is its "
                                "run time",
                        }, "queue time: %s of each request (%s), as one process is busy: process %i used "
                        "%.2f of a CPU", SPAN(f->queue), PERCENT(queue), e->busiest_pid, f->busiest_process);
                (void) snprintf(finding->resource, sizeof(finding->resource), "process %i", e->busiest_pid);
                return;
        }

        if (running + resources >= SHARE_MOST || f->queue < WAIT_MIN_NSEC) {
                diagnosis_exclude(d, FINDING_LIMIT, running + resources >= SHARE_MOST ? 0 : queue,
                                  "queue time: %s of each request (%s)%s", SPAN(f->queue), PERCENT(queue),
                                  running + resources >= SHARE_MOST ? ", explained by run time and waits" :
                                  LIMIT(queue, SHARE_MOST, f->queue, WAIT_MIN_NSEC));
                return;
        }
        at_once = f->rate * f->service / NSEC_PER_SEC;
        (void) diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_LIMIT,
                        .certainty = f->idle_cpus >= IDLE_MIN ? CERTAINTY_LIKELY : CERTAINTY_POSSIBLE,
                        .share = queue, .time = f->queue,
                        .rule = "requests wait to be read for half of their time or more, and 1 ms or more, "
                        "while those that are worked on wait for no resource and no peer",
                }, "queue time: %s of each request (%s); the application works on %.1f at a time, %s each%s",
                SPAN(f->queue), PERCENT(queue), at_once, SPAN(f->service), f->idle_cpus >= IDLE_MIN ?
                ", and CPUs are idle" : "");
}

static bool is_more(double now, double normal, double factor) {
        return normal > 0 && now >= factor * normal;
}

/* The load is higher than in the baseline, with the same resources. */
static void diagnose_workload(const DiagnosisEvidence *e, const Parts *now, const Parts *normal,
                              Diagnosis *d) {
        const DiagnosisFigures *f = &e->now, *n = e->normal;
        double explained = 0, grown = f->first_byte - n->first_byte;
        const char *rule =
                "it has more to do than normal, and waits for resources and peers explain less than half of "
                "what its requests take longer";

        for (size_t i = 0; i < d->n_findings; i++)
                if (d->findings[i].kind < FINDING_NETWORK && isfinite(d->findings[i].time))
                        explained += d->findings[i].time / grown;
        if (explained >= SHARE_MOST) {
                diagnosis_exclude(d, FINDING_WORKLOAD, NAN,
                                  "load: %s requests/s (baseline %s); waits explain more of the slowdown",
                                  RATE(f->rate), RATE(n->rate));
                return;
        }

        if (is_more(f->rate, n->rate, DIAGNOSIS_MORE_REQUESTS))
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_WORKLOAD,
                                .certainty = f->service < WORSE * n->service ? CERTAINTY_CERTAIN :
                                CERTAINTY_LIKELY,
                                .share = grown / f->first_byte, .time = grown, .rule = rule,
                        }, "%s requests/s, baseline %s", RATE(f->rate), RATE(n->rate));
        else if (is_more(f->bytes_in, n->bytes_in, WORSE) || is_more(f->bytes_out, n->bytes_out, WORSE))
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_WORKLOAD, .certainty = CERTAINTY_LIKELY,
                                .share = grown / f->first_byte, .time = grown, .rule = rule,
                        }, "larger requests of %.0f bytes with responses of %.0f, baseline %.0f and %.0f",
                        f->bytes_in, f->bytes_out, n->bytes_in, n->bytes_out);
        else if (is_more(now->spent[PART_RUNNING], normal->spent[PART_RUNNING], WORSE) &&
                 now->spent[PART_RUNNING] - normal->spent[PART_RUNNING] >= SHARE_MIN * grown)
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_WORKLOAD, .certainty = CERTAINTY_LIKELY,
                                .state = QOS_STATE_RUNNING, .share = grown / f->first_byte, .time = grown,
                                .rule = rule,
                        }, "more CPU time per request: %s, baseline %s", SPAN(now->spent[PART_RUNNING]),
                        SPAN(normal->spent[PART_RUNNING]));
        else
                diagnosis_exclude(d, FINDING_WORKLOAD, NAN,
                                  "load: %s requests/s (baseline %s) of the same size", RATE(f->rate),
                                  RATE(n->rate));
}

/* Requests without queue and service times, as of UDP: of their time to first byte only waits for peers
 * are known. */
static void diagnose_slow_peers(const DiagnosisEvidence *e, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        double time = f->client_rate / f->rate * f->client_latency, share = time / f->first_byte;

        if (isnan(share) || diagnosis_has(d, FINDING_DEPENDENCY))
                return;
        if (share < SHARE_MIN || time < WAIT_MIN_NSEC) {
                diagnosis_exclude(d, FINDING_DEPENDENCY, share, "%s: %s of each request (%s)%s",
                                  waited[FINDING_DEPENDENCY], SPAN(time), PERCENT(share),
                                  LIMIT(share, SHARE_MIN, time, WAIT_MIN_NSEC));
                return;
        }
        finding_name(diagnosis_add(d, &(FindingCause) {
                        .kind = FINDING_DEPENDENCY,
                        .certainty = share >= SHARE_MOST ? CERTAINTY_LIKELY : CERTAINTY_POSSIBLE,
                        .share = MIN(share, 1.0), .time = MIN(time, f->first_byte),
                        .rule = part_table[PART_ASK].rule,
                }, "%s: %s of the %s to the first byte (%s)", waited[FINDING_DEPENDENCY],
                SPAN(MIN(time, f->first_byte)), SPAN(f->first_byte), PERCENT(MIN(share, 1.0))), e);
}

/* Whether the lock is one around accept(): all processes but one wait for it, and that one for a
 * connection. No request is delayed, and the accept queue is empty. */
static bool lock_is_of_idle(const DiagnosisEvidence *e, double busy) {
        const DiagnosisFigures *f = &e->now;

        return e->accept_queue_max > 0 && !(e->accept_queue > 0) && !(f->in_flight > 0) &&
                busy - f->threads[QOS_STATE_LOCK] < THREADS_MIN;
}

/* Without responses, or without service times, only the states of threads are known. In units without
 * requests waits are compared with the time in which threads are not idle. */
static void diagnose_threads(const DiagnosisEvidence *e, bool stuck, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        double busy = 0, waiting;

        for (Part p = 0; p < PART_ASK; p++)
                busy += f->threads[part_table[p].state] > 0 ? f->threads[part_table[p].state] : 0;
        waiting = busy - (f->threads[QOS_STATE_RUNNING] > 0 ? f->threads[QOS_STATE_RUNNING] : 0);

        for (Part p = PART_RUN_QUEUE; p < PART_ASK; p++) {
                enum qos_state state = part_table[p].state;
                FindingKind kind = part_table[p].kind;
                const DiagnosisNamed *lock = NULL;
                double n = f->threads[state], share = n / busy;
                Finding *finding;

                if (isnan(n))
                        continue;
                if (!stuck && p == PART_LOCK && n >= THREADS_WAITING_MIN && lock_is_of_idle(e, busy)) {
                        diagnosis_exclude(d, kind, NAN,
                                          "%s: %.2f threads on average, while no request is in flight and "
                                          "no thread works: idle processes take turns at accept()",
                                          waited[kind], n);
                        continue;
                }
                if (n < (stuck ? THREADS_WAITING_MIN : THREADS_WAITING_PART) ||
                    waiting < THREADS_WAITING_MIN || share < (stuck ? SHARE_MOST : SHARE_MIN) ||
                    cpu_is_own(e, p) || cpu_is_waking(e, p)) {
                        /* A share of next to no time is none */
                        if (!stuck && n > 0 && waiting < THREADS_WAITING_MIN)
                                diagnosis_exclude(d, kind, n / MAX(busy, THREADS_WAITING_MIN),
                                                  "%s: %.2f threads on average (%s of busy thread time), "
                                                  "limit %.2f for all waits",
                                                  waited[kind], n, PERCENT(share), THREADS_WAITING_MIN);
                        else if (!stuck && n > 0)
                                diagnosis_exclude(d, kind, share,
                                                  "%s: %.2f threads on average, %s of busy thread time",
                                                  waited[kind], n, PERCENT(share));
                        continue;
                }
                /* Only a baseline of the user: a history shows usual behaviour, which may include the
                 * bottleneck */
                if (!stuck && e->normal && !(e->usual > 0) && n < WORSE * e->normal->threads[state]) {
                        diagnosis_exclude(d, kind, share, "%s: %.2f threads on average, baseline %.2f",
                                          waited[kind], n, e->normal->threads[state]);
                        continue;
                }
                kind = part_find_kind(e, p, &lock);
                if (diagnosis_has(d, kind))
                        continue;

                finding = stuck ? diagnosis_add(d, &(FindingCause) {
                                .kind = kind, .certainty = CERTAINTY_LIKELY, .state = state, .share = NAN,
                                .time = NAN,
                                .rule = "requests are in flight without responses, and threads that are not "
                                "idle are in this state for half of their time or more",
                        }, "%.1f threads on average in state %s", n,
                        thread_state_label(qos_state_to_string(state))) :
                        /* Waits for CPUs that others have may be intended by its weight */
                        diagnosis_add(d, &(FindingCause) {
                                        .kind = kind,
                                        .certainty = share >= SHARE_MOST && kind != FINDING_CPU ?
                                        CERTAINTY_LIKELY : CERTAINTY_POSSIBLE,
                                        .state = state, .share = kind == FINDING_CPU ? NAN : share,
                                        .time = NAN,
                                        .rule = f->rate > 0 ?
                                        "0.45 threads or more wait on average, for this half of that or "
                                        "more, and a fifth or more of the time in which its threads are not "
                                        "idle; when its requests are read is not known" :
                                        "it has no requests, 0.45 threads or more wait on average, for "
                                        "this half of that or more, and a fifth or more of the time in "
                                        "which its threads are not idle",
                                }, "%s: %.1f threads on average, %s of busy thread time", waited[kind], n,
                                PERCENT(share));
                if (lock)
                        finding_name_lock(finding, lock);
                else
                        finding_name(finding, e);
        }
}

/* Requests wait, and the application does something else, or does not accept their connections. */
static void diagnose_inattention(const DiagnosisEvidence *e, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        bool busy = f->busiest_thread >= SHARE_MIN &&
                f->busiest_thread + e->busiest_thread_ready >= CPUS_MOST;
        char queue[3 * NUMBER_MAX + 64] = "";
        Finding *finding;

        if (e->accept_queue > 0)
                (void) snprintf(queue, sizeof(queue), "%.0f %s not accepted (limit %.0f)", e->accept_queue,
                                e->accept_queue < 1.5 ? "connection is" : "connections are",
                                e->accept_queue_max);
        if (busy) {
                finding = diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_LIMIT, .certainty = CERTAINTY_LIKELY,
                                .state = QOS_STATE_RUNNING, .share = NAN, .time = NAN,
                                .rule = "requests wait without a response, while one thread runs or waits "
                                "for a CPU for four fifths of the time or more",
                        }, "%s used %.2f of a CPU and has not responded%s%s", e->busiest_thread,
                        f->busiest_thread, queue[0] ? "; " : "", queue);
                (void) snprintf(finding->resource, sizeof(finding->resource), "thread %s",
                                e->busiest_thread);
        } else if (queue[0] && d->n_findings == 0)
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_LIMIT, .certainty = CERTAINTY_LIKELY, .share = NAN,
                                .time = NAN,
                                .rule = "requests wait without a response, and connections wait to be "
                                "accepted",
                        }, "%s, and the oldest request waits for %s", queue, SPAN(f->oldest_waiting));
}

/* The kernel has killed processes of the unit. */
static void diagnose_kills(const DiagnosisEvidence *e, Diagnosis *d) {
        if (e->now.oom_kills > 0 && !diagnosis_has(d, FINDING_MEMORY))
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_MEMORY, .certainty = CERTAINTY_CERTAIN, .share = NAN,
                                .time = NAN,
                                .rule = "the kernel has killed processes of it for want of memory",
                        }, "the kernel killed processes of the unit for want of memory (OOM)");
}

static bool finding_is_failure(const Finding *f) {
        return f->kind > FINDING_WORKLOAD || (f->kind == FINDING_DEPENDENCY && isnan(f->share));
}

/* Failures in the order of their kinds, then the causes of most of the time, and last those that are only
 * possible. */
static int finding_compare(const void *a, const void *b) {
        const Finding *x = a, *y = b;
        double p = isnan(x->share) ? 0 : x->share, q = isnan(y->share) ? 0 : y->share;

        if (finding_is_failure(x) != finding_is_failure(y))
                return finding_is_failure(x) ? -1 : 1;
        if (finding_is_failure(x))
                return (x->kind == FINDING_DEPENDENCY) - (y->kind == FINDING_DEPENDENCY) ?:
                        (int) x->kind - (int) y->kind;
        if ((x->certainty == CERTAINTY_POSSIBLE) != (y->certainty == CERTAINTY_POSSIBLE))
                return x->certainty == CERTAINTY_POSSIBLE ? 1 : -1;
        return q < p ? -1 : q > p;
}

static void describe_stuck(const DiagnosisFigures *f, char *ret, size_t size) {
        (void) snprintf(ret, size, f->waiting < 1.5 ? "%.0f request waits without a response, for %s" :
                        "%.0f requests wait without a response, the oldest for %s", f->waiting,
                        SPAN(f->oldest_waiting));
}

static void diagnose_requests(const DiagnosisEvidence *e, const Parts *now, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now, *n = e->normal;
        DiagnosisEvidence alone;
        bool compared, worse, better, unknown;
        Parts normal = {}, own;
        size_t length;

        compared = n && parts_read(n, parts_are_exact(e), &normal) && n->first_byte > 0;
        worse = !compared || (f->first_byte >= WORSE * n->first_byte && f->first_byte >= n->first_byte +
                              WORSE_NSEC && f->first_byte > e->usual);

        /* Much faster than usual: waits are no bottleneck */
        better = compared && e->usual > 0 && f->first_byte * WORSE <= n->first_byte;

        length = (size_t) snprintf(
                d->text, sizeof(d->text),
                "%s requests/s; mean time to first byte %s: receive %s, queue %s, service %s", RATE(f->rate),
                SPAN(f->first_byte), SPAN(f->receive), SPAN(f->queue), SPAN(f->service));
        if (compared)
                (void) snprintf(d->text + length, sizeof(d->text) - length, "; %s: %s requests/s, %s",
                                e->usual > 0 ? "usually" : "baseline", RATE(n->rate), SPAN(n->first_byte));
        if (requests_are_stuck(f)) {
                length = strlen(d->text);
                (void) snprintf(d->text + length, sizeof(d->text) - length, "; ");
                describe_stuck(f, d->text + length + strlen("; "), sizeof(d->text) - length - strlen("; "));
        }
        /* The bottleneck may be as old as the history, which shows usual behaviour, not that it is good */
        if (compared && !worse && !better && e->usual > 0) {
                alone = *e;
                alone.normal = NULL;
                e = &alone;
                if (parts_read(f, parts_are_exact(e), &own))
                        now = &own;
                compared = false;
                worse = true;
        }

        if (worse) {
                diagnose_parts(e, now, compared ? &normal : NULL, d);
                diagnose_held(e, now, compared, d);
                if (compared)
                        diagnose_workload(e, now, &normal, d);
                diagnose_starved_thread(e, now, d);
                diagnose_limit(e, now, d);
        }
        diagnose_network(e, d);

        diagnose_kills(e, d);

        /* Slow without a known wait. Compared with a history the difference must also be noticeable: some
         * microseconds vary */
        if (compared)
                unknown = worse && (!(e->usual > 0) || f->first_byte >= n->first_byte + WAIT_MIN_NSEC);
        else
                unknown = now->unexplained >= SHARE_MOST * f->first_byte && f->first_byte >= SLOW_NSEC;

        if (unknown && d->n_findings == 0)
                diagnose_slow_without_response(e, d);
        d->verdict = d->n_findings > 0 ? VERDICT_FOUND : unknown ? VERDICT_UNKNOWN : VERDICT_NOTHING;
}

/* A truncated text may end within a character. */
static void diagnosis_finish(const DiagnosisEvidence *e, Diagnosis *d) {
        qsort(d->findings, d->n_findings, sizeof(Finding), finding_compare);
        diagnosis_summarize(e, d);
        utf8_sanitize(d->summary);
        for (size_t i = 0; i < d->n_findings; i++) {
                utf8_sanitize(d->findings[i].text);
                utf8_sanitize(d->findings[i].next);
        }
}

/* Whether requests without a response may wait by intent, as long polls and consumers do: no earlier
 * response is known, and threads wait for events only, as in an event loop. A thread that runs, or waits for
 * a lock, a child process or a timer, may be stuck. */
static bool waiting_is_intended(const DiagnosisEvidence *e) {
        const DiagnosisFigures *f = &e->now;
        double others = 0;

        if (e->normal && e->normal->rate > 0)
                return false;
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                if (i != QOS_STATE_POLL && i != QOS_STATE_SOCKET && f->threads[i] > 0)
                        others += f->threads[i];
        return f->threads[QOS_STATE_POLL] + f->threads[QOS_STATE_SOCKET] > 0 &&
                others < THREADS_WAITING_MIN;
}

static void describe_without_parts(const DiagnosisFigures *f, bool enough, bool stuck, Diagnosis *d) {
        if (stuck)
                describe_stuck(f, d->text, sizeof(d->text));
        else if (isnan(f->rate))
                (void) snprintf(d->text, sizeof(d->text),
                                "it is not known when its requests begin and end");
        else if (enough && f->first_byte > 0)
                (void) snprintf(d->text, sizeof(d->text), "%s requests/s; mean time to first byte %s",
                                RATE(f->rate), SPAN(f->first_byte));
        else if (enough)
                (void) snprintf(d->text, sizeof(d->text), "%s requests/s", RATE(f->rate));
        else if (f->in_flight > 0 && !(f->waiting > 0))
                (void) snprintf(d->text, sizeof(d->text),
                                "almost no requests; %.0f responses in progress, the oldest request %s old",
                                f->in_flight, SPAN(f->oldest));
        else
                (void) snprintf(d->text, sizeof(d->text), "almost no requests");
}

void diagnosis_make(const DiagnosisEvidence *e, Diagnosis *ret) {
        const DiagnosisFigures *f;
        bool enough, stuck, unknown;
        Parts parts;

        assert(e);
        assert(ret);

        f = &e->now;
        *ret = (Diagnosis) {};

        if (!diagnose_failures(e, ret)) {
                ret->verdict = ret->n_findings > 0 ? VERDICT_FOUND : VERDICT_NOTHING;
                diagnosis_finish(e, ret);
                return;
        }

        /* Means of less than ten requests depend on single ones */
        enough = f->rate * f->covered >= 10.0 * NSEC_PER_SEC;
        if (enough && parts_read(f, parts_are_exact(e), &parts) && f->first_byte > 0) {
                diagnose_requests(e, &parts, ret);
                diagnosis_finish(e, ret);
                return;
        }

        stuck = requests_are_stuck(f);
        describe_without_parts(f, enough, stuck, ret);
        diagnose_threads(e, stuck, ret);
        if (stuck) {
                diagnose_silent_peer(e, 0, ret);
                diagnose_inattention(e, ret);
        }
        else if (enough)
                diagnose_slow_peers(e, ret);
        diagnose_kills(e, ret);
        unknown = stuck ? !waiting_is_intended(e) : isnan(f->rate) || (enough && f->first_byte >= SLOW_NSEC);
        ret->verdict = ret->n_findings > 0 ? VERDICT_FOUND : unknown ? VERDICT_UNKNOWN : VERDICT_NOTHING;
        diagnosis_finish(e, ret);
}

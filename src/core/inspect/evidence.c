/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sched.h>

#include "evidence-mounts.h"
#include "evidence.h"
#include "hierarchy.h"
#include "inspect-waits.h"
#include "manager.h"
#include "parse.h"
#include "peers.h"
#include "probe.h"
#include "resource-name.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

/* Limit of the depth of control groups below that of a unit. */
#define DEPTH_MAX 8U

/* Limit of the length of lines of /proc/stat, one of which counts all interrupts. */
#define LINE_LENGTH_MAX 16384

typedef struct Process {
        pid_t pid;
        uint64_t used;                  /* CPU time in ns */
} Process;

struct HostSample {
        Manager *manager;
        sd_event_source *timer;         /* samples what sent data waits for, during the interval */
        uint64_t sends_counted;         /* SendCounts.n */
        struct qos_sends sends;         /* of the unit */
        uint64_t at;                    /* CLOCK_MONOTONIC ns */
        Process processes[DIAGNOSE_TASKS_MAX]; /* of the unit */
        size_t n_processes;
        cpu_set_t cpus;                 /* allowed for threads of the unit */
        uint64_t idle[CPU_SETSIZE];     /* clock ticks */
        ResourcesReading resources;     /* wait targets of the unit's threads */
        ThreadsReading threads;
        BlockUser *block_users;         /* of devices; NULL: unknown */
        size_t n_block_users;
        uint64_t restarts;              /* of the unit, see Lifecycle */
};

HostSample* host_sample_free(HostSample *r) {
        if (!r)
                return NULL;

        sd_event_source_disable_unref(r->timer);
        resources_reading_done(&r->resources);
        threads_reading_done(&r->threads);
        free(r->block_users);
        free(r);
        return NULL;
}

static void host_sample_freep(HostSample **r) {
        *r = host_sample_free(*r);
}

static FILE* group_open(const char *path, const char *file) {
        char buf[PATH_MAX];

        if (snprintf(buf, sizeof(buf), CGROUP_ROOT "%s/%s", path, file) >= (int) sizeof(buf))
                return NULL;
        return fopen(buf, "re");
}

typedef struct TaskWalk {
        const char *file;               /* "cgroup.procs" or "cgroup.threads" */
        void (*on_task)(pid_t pid, void *userdata);
        void *userdata;
        unsigned groups, tasks;         /* that may still be read */
} TaskWalk;

/* Visits tasks of the group and its descendants. */
static void tasks_read(TaskWalk *walk, const char *path, unsigned depth) {
        _cleanup_fclose_ FILE *tasks = group_open(path, walk->file);
        char buf[PATH_MAX];
        DIR *d;
        int pid;

        while (tasks && walk->tasks > 0 && fscanf(tasks, "%i", &pid) == 1) {
                walk->on_task(pid, walk->userdata);
                walk->tasks--;
        }

        if (depth >= DEPTH_MAX || walk->groups == 0 ||
            snprintf(buf, sizeof(buf), CGROUP_ROOT "%s", path) >= (int) sizeof(buf))
                return;
        d = opendir(buf);
        if (!d)
                return;
        for (struct dirent *e = readdir(d); e && walk->tasks > 0; e = readdir(d))
                if (e->d_type == DT_DIR && e->d_name[0] != '.' && walk->groups > 0 &&
                    snprintf(buf, sizeof(buf), "%s/%s", path, e->d_name) < (int) sizeof(buf)) {
                        walk->groups--;
                        tasks_read(walk, buf, depth + 1);
                }
        (void) closedir(d);
}

static void cpus_add(pid_t pid, void *userdata) {
        cpu_set_t *cpus = userdata, one;

        if (pid > 0 && sched_getaffinity(pid, sizeof(one), &one) >= 0)
                CPU_OR(cpus, cpus, &one);
}

static void group_get_cpus(const char *path, cpu_set_t *ret) {
        TaskWalk walk = {
                .file = "cgroup.threads",
                .on_task = cpus_add,
                .userdata = ret,
                .groups = DIAGNOSE_GROUPS_MAX,
                .tasks = DIAGNOSE_TASKS_MAX,
        };

        CPU_ZERO(ret);
        tasks_read(&walk, path, 0);
}

/* The CPU clock of a process can be read without privileges, unlike its files. */
static void process_add(pid_t pid, void *userdata) {
        HostSample *r = userdata;
        struct timespec ts;
        clockid_t clock;

        if (pid <= 0 || clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &ts) < 0)
                return;
        r->processes[r->n_processes++] = (Process) { .pid = pid,
                                                     .used = (uint64_t) ts.tv_sec * NSEC_PER_SEC +
                                                     (uint64_t) ts.tv_nsec };
}

static void idle_read(HostSample *r) {
        _cleanup_fclose_ FILE *f = fopen("/proc/stat", "re");
        _cleanup_free_ char *line = NULL;
        unsigned long long idle, wait;
        unsigned cpu;

        line = malloc(LINE_LENGTH_MAX);
        while (f && line && fgets(line, LINE_LENGTH_MAX, f))
                if (sscanf(line, "cpu%u %*u %*u %*u %llu %llu", &cpu, &idle, &wait) == 3 &&
                    cpu < CPU_SETSIZE)
                        r->idle[cpu] = idle + wait;
}

/* Mean interval of samples of sent data: about a hundred in a diagnosis of 3 s. */
#define SENDS_NSEC (25 * NSEC_PER_MSEC)
/* Minimum interval, as a multiple of the time that a sample takes. */
#define SENDS_PAUSE 50U

/* A sample covers all units, so that concurrent diagnoses share them. */
static int on_sends(sd_event_source *source, uint64_t usec, void *userdata) {
        HostSample *r = ASSERT_PTR(userdata);
        uint64_t begin = now_nsec(CLOCK_MONOTONIC), taken;
        Manager *m = r->manager;

        if (begin >= m->inspections.sends.next) {
                if (probe_count_sends(m->probe) < 0)
                        return 0; /* unknown */
                m->inspections.sends.n++;
                taken = now_nsec(CLOCK_MONOTONIC) - begin;
                /* Irregular intervals, so as not to be in phase with requests */
                m->inspections.sends.next = begin + MAX(SENDS_NSEC / 2 + begin % SENDS_NSEC,
                                                        taken * SENDS_PAUSE);
        }
        (void) sd_event_source_set_time(source, m->inspections.sends.next / NSEC_PER_USEC + 1);
        (void) sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
        return 0;
}

static void sends_read(Unit *u, HostSample *r) {
        WindowSource buffer[UNITS_MAX_LIMIT];
        WindowSources sources;

        r->sends_counted = u->manager->inspections.sends.n;
        unit_get_sources(u, buffer, &sources);
        for (size_t i = 0; i < sources.n; i++) {
                const struct qos_sends *s = &sources.sources[i].map->sends;

                for (enum qos_send_wait w = 0; w < QOS_SEND_WAITS; w++)
                        r->sends.waits[w] += s->waits[w];
                r->sends.rtt += s->rtt;
                r->sends.awaiting += s->awaiting;
        }
}

int host_sample_new(Unit *u, ResourcesReading *resources, ThreadsReading *threads, HostSample **ret) {
        _cleanup_(host_sample_freep) HostSample *r = NULL;
        TaskWalk walk = {
                .file = "cgroup.procs",
                .on_task = process_add,
                .groups = DIAGNOSE_GROUPS_MAX,
                .tasks = DIAGNOSE_TASKS_MAX,
        };

        assert(u);
        assert(ret);

        r = new0(HostSample, 1);
        if (!r)
                return -ENOMEM;
        r->at = now_nsec(CLOCK_MONOTONIC);
        r->manager = u->manager;
        r->restarts = u->lifecycle.restarts;
        r->resources = TAKE_GENERIC(*resources, ResourcesReading, (ResourcesReading) {});
        r->threads = TAKE_GENERIC(*threads, ThreadsReading, (ThreadsReading) {});
        idle_read(r);
        if (u->view) {
                sends_read(u, r);
                (void) sd_event_add_time(u->manager->event, &r->timer, CLOCK_MONOTONIC,
                                         r->at / NSEC_PER_USEC, USEC_PER_MSEC, on_sends, r);
        }
        /* On error, the users of devices are unknown */
        (void) probe_get_block_users(u->manager->probe, &r->block_users, &r->n_block_users);
        unit_collect_usage(u); /* for quota and memory over the interval */
        if (u->control_group) {
                group_get_cpus(u->control_group, &r->cpus);
                walk.userdata = r;
                tasks_read(&walk, u->control_group, 0);
        }

        *ret = TAKE_PTR(r);
        return 0;
}

/* ---- evidence ----------------------------------------------------------------------------------------- */

/* Weight of a failed request to a peer, as if it had taken this long: peers that mostly fail precede slow
 * ones. */
#define PEER_ERROR_NSEC (1.0 * NSEC_PER_SEC)

static double real(uint64_t n) {
        return n == ABSENT ? NAN : (double) n;
}

static double per_second(uint64_t n, uint64_t covered) {
        return n == ABSENT ? 0 : (double) n * NSEC_PER_SEC / (double) covered;
}

static void named_put(DiagnosisNamed *table, size_t *n, const DiagnosisNamed *one,
                      double (*weight)(const DiagnosisNamed *n)) {
        size_t at = *n;

        while (at > 0 && weight(table + at - 1) < weight(one))
                at--;
        if (at >= DIAGNOSIS_NAMED_MAX)
                return;
        *n = MIN(*n + 1, DIAGNOSIS_NAMED_MAX);
        memmove(table + at + 1, table + at, (*n - at - 1) * sizeof(*table));
        table[at] = *one;
}

static double named_value(const DiagnosisNamed *n) {
        return n->value;
}

/* Order of peers. Without responses, each request in flight counts as if it had waited all the time. */
static double peer_weight(const DiagnosisNamed *n) {
        double time = n->rate > 0 ? n->value * n->rate : n->in_flight * NSEC_PER_SEC, failed;

        failed = n->errors + n->status5xx + n->error_replies + n->aborts;
        return failed > 0 ? failed * PEER_ERROR_NSEC + (time > 0 ? time : 0) : time;
}

static void machine_fill(const HostSample *begin, const HostSample *end, DiagnosisEvidence *ret) {
        double passed = (double) (end->at - begin->at) / NSEC_PER_SEC, ticks = (double) sysconf(_SC_CLK_TCK);
        DiagnosisFigures *f = &ret->now;

        if (passed <= 0 || CPU_COUNT(&end->cpus) == 0)
                return;

        f->cpus = CPU_COUNT(&end->cpus);
        f->idle_cpus = 0;
        for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
                if (CPU_ISSET(cpu, &end->cpus) && end->idle[cpu] > begin->idle[cpu])
                        f->idle_cpus += MIN(1.0,
                                            (double) (end->idle[cpu] - begin->idle[cpu]) / ticks / passed);

        f->busiest_process = 0;
        for (size_t i = 0; i < end->n_processes; i++)
                for (size_t k = 0; k < begin->n_processes; k++) {
                        const Process *p = end->processes + i, *before = begin->processes + k;
                        double used;

                        if (p->pid != before->pid || p->used < before->used)
                                continue;
                        used = (double) (p->used - before->used) / NSEC_PER_SEC / passed;
                        if (used > f->busiest_process) {
                                f->busiest_process = used;
                                ret->busiest_pid = p->pid;
                        }
                }
}

/* Formats "name (tid)". */
static void thread_format(const char name[static 16], uint32_t tid, char ret[static DIAGNOSIS_HOLDER_MAX]) {
        if (tid != 0)
                (void) snprintf(ret, DIAGNOSIS_HOLDER_MAX, "%.15s (%" PRIu32 ")", name, tid);
        else
                (void) snprintf(ret, DIAGNOSIS_HOLDER_MAX, "%.15s", name);
        utf8_sanitize(ret);
}

/* Counters may have decreased, if a unit inside this one was detached. */
static void sends_fill(const HostSample *begin, const HostSample *end, DiagnosisEvidence *ret) {
        uint64_t n = end->sends_counted - begin->sends_counted, all = 0;
        DiagnosisFigures *f = &ret->now;

        ret->n_sends = (double) n;
        if (n == 0)
                return;
        for (enum qos_send_wait w = 0; w < QOS_SEND_WAITS; w++) {
                uint64_t waits = end->sends.waits[w] - MIN(end->sends.waits[w], begin->sends.waits[w]);

                f->sends[w] = (double) waits / (double) n;
                all += waits;
        }
        ret->awaiting = (double) (end->sends.awaiting -
                                    MIN(end->sends.awaiting, begin->sends.awaiting)) / (double) n;
        if (all > 0)
                f->send_rtt = (double) (end->sends.rtt - MIN(end->sends.rtt, begin->sends.rtt)) /
                        (double) all * NSEC_PER_USEC;
}

/* Finds the thread with the most CPU time. */
static void threads_fill(const HostSample *begin, const HostSample *end, DiagnosisEvidence *ret) {
        double passed = (double) (end->at - begin->at);

        if (passed <= 0 || !end->threads.threads)
                return;
        ret->now.busiest_thread = 0;
        for (size_t i = 0; i < end->threads.n; i++) {
                const struct qos_thread *t = end->threads.threads + i;
                uint64_t ran = t->times[QOS_STATE_RUNNING], ready = t->times[QOS_STATE_RUN_QUEUE];
                bool known = begin->threads.n_rest == 0; /* an unknown one has started since */
                double used;

                for (size_t k = 0; k < begin->threads.n; k++) {
                        const struct qos_thread *before = begin->threads.threads + k;

                        if (before->tid == t->tid && before->pid == t->pid) {
                                ran -= MIN(ran, before->times[QOS_STATE_RUNNING]);
                                ready -= MIN(ready, before->times[QOS_STATE_RUN_QUEUE]);
                                known = true;
                        }
                }
                if (!known)
                        continue;
                used = (double) ran / passed;
                if (used > ret->now.busiest_thread) {
                        ret->now.busiest_thread = used;
                        ret->busiest_thread_ready = (double) ready / passed;
                        thread_format(t->name, t->tid, ret->busiest_thread);
                }
        }
}

/* Users of the CPUs that threads of the unit waited for, by unit, which may have several control groups. */
static void users_fill(Unit *u, CgroupNames *groups, const HostSample *begin, const HostSample *end,
                       DiagnosisEvidence *ret) {
        double passed = (double) (end->at - begin->at), value, own = 0;
        _cleanup_free_ DiagnosisNamed *users = NULL;
        bool any = false;
        size_t n = 0;

        users = new0(DiagnosisNamed, end->resources.n + 1);
        if (!users || passed <= 0)
                return;
        for (size_t i = 0; i < end->resources.n; i++) {
                const struct qos_wait_target *row = &end->resources.resources[i].row, *before;
                char name[DIAGNOSIS_NAME_MAX];
                const char *unit;
                size_t k;

                if (row->resource.kind != QOS_RESOURCE_CPU || row->resource.id == QOS_GROUP_IDLE)
                        continue;
                any = true;
                before = resources_find(&begin->resources, row);
                value = (double) (row->nsec - (before ? MIN(row->nsec, before->nsec) : 0)) / passed;
                if (row->resource.id != QOS_GROUP_KERNEL &&
                    cgroup_names_is_within(groups, u, row->resource.id)) {
                        own += value;
                        continue;
                }
                unit = resource_format_cpu(u, row, groups, name, sizeof(name));
                for (k = 0; k < n && !streq(users[k].name, name); k++)
                        ;
                if (k == n) {
                        n++;
                        (void) snprintf(users[k].name, sizeof(users[k].name), "%s", name);
                        (void) snprintf(users[k].unit, sizeof(users[k].unit), "%s", strempty(unit));
                        utf8_sanitize(users[k].unit);
                }
                users[k].value += value;
                users[k].rate = NAN;
        }
        if (!any)
                return;
        ret->now.run_queue_own = own;
        ret->now.run_queue_others = 0;
        for (size_t k = 0; k < n; k++) {
                ret->now.run_queue_others += users[k].value;
                if (users[k].value > 0)
                        named_put(ret->users, &ret->n_users, users + k, named_value);
        }
}

/* Finds the thread that has ended the most waits during the interval, or if none has more than before, at
 * all: where many threads end as many, their counters take from each other. */
static void holder_find(const struct qos_wait_target *before, const struct qos_wait_target *row,
                        char ret[static DIAGNOSIS_HOLDER_MAX]) {
        const struct qos_waker *most = NULL, *most_ever = NULL;
        uint64_t most_waits = 0;

        for (unsigned i = 0; i < QOS_WAKERS; i++) {
                const struct qos_waker *w = row->wakers + i;
                uint64_t waits = w->waits;

                for (unsigned k = 0; before && k < QOS_WAKERS; k++)
                        if (before->wakers[k].thread == w->thread)
                                waits -= MIN(waits, before->wakers[k].waits);
                if (w->thread == 0)
                        continue;
                if (waits > most_waits) {
                        most = w;
                        most_waits = waits;
                }
                if (!most_ever || w->waits > most_ever->waits)
                        most_ever = w;
        }
        most = most ?: most_ever;
        if (most)
                thread_format(most->name, most->tid, ret);
}

/* Waits for signals have no address: only the process is known. */
static void lock_format(const WaitTarget *r, char ret[static DIAGNOSIS_NAME_MAX]) {
        if (r->row.resource.kind == QOS_RESOURCE_KERNEL_LOCK ||
            r->row.resource.kind == QOS_RESOURCE_KERNEL_CALL)
                resource_format_lock(&r->row, ret, DIAGNOSIS_NAME_MAX);
        else if (r->row.resource.state == QOS_STATE_POLL)
                (void) snprintf(ret, DIAGNOSIS_NAME_MAX, "a signal to process %" PRIu32, r->row.process);
        else if (r->name)
                (void) snprintf(ret, DIAGNOSIS_NAME_MAX, "%s", r->name);
        else
                (void) snprintf(ret, DIAGNOSIS_NAME_MAX, "0x%" PRIx64, (uint64_t) r->row.resource.id);
        utf8_sanitize(ret);
}

static void locks_fill(Manager *m, const HostSample *begin, const HostSample *end, DiagnosisEvidence *ret) {
        double passed = (double) (end->at - begin->at), most = 0, most_kernel[QOS_STATES] = {};

        for (size_t i = 0; i < end->resources.n && passed > 0; i++) {
                const WaitTarget *r = end->resources.resources + i;
                const struct qos_wait_target *before = resources_find(&begin->resources, &r->row);
                bool lock_state = r->row.resource.state == QOS_STATE_LOCK;
                bool kernel = r->row.resource.kind == QOS_RESOURCE_KERNEL_LOCK ||
                              r->row.resource.kind == QOS_RESOURCE_KERNEL_CALL;
                bool all_of_it = lock_state || kernel;
                uint64_t waits = r->row.waits, nsec = all_of_it ? r->row.nsec : r->row.blocked_by_requests;
                DiagnosisNamed lock = {};

                if (lock_state && !r->name && r->row.resource.kind == QOS_RESOURCE_FILE)
                        continue;
                waits -= before ? MIN(waits, before->waits) : 0;
                nsec -= before ? MIN(nsec, all_of_it ? before->nsec : before->blocked_by_requests) : 0;
                if (nsec == 0)
                        continue;
                lock.value = (double) nsec / passed;
                lock.rate = (double) waits * NSEC_PER_SEC / passed;
                lock_format(r, lock.name);
                evidence_format_mount(m, r->row.resource.device, lock.mount);
                holder_find(before, &r->row, lock.holder);
                if (kernel && !lock_state) {
                        DiagnosisNamed *all = ret->kernel + r->row.resource.state % QOS_STATES;
                        double sum = all->value + lock.value;

                        if (lock.value > most_kernel[r->row.resource.state % QOS_STATES]) {
                                most_kernel[r->row.resource.state % QOS_STATES] = lock.value;
                                *all = lock;
                        }
                        all->value = sum;
                        continue;
                }
                if (lock_state) {
                        named_put(ret->locks, &ret->n_locks, &lock, named_value);
                        continue;
                }
                named_put(ret->blocked, &ret->n_blocked, &lock, named_value);
                if (lock.value > most) {
                        most = lock.value;
                        ret->blocked_state = r->row.resource.state;
                }
        }
}

/* Bytes added for each request to a device: even an empty one costs about as much as a page. */
#define BLOCK_REQUEST_BYTES 4096U
/* Limit of groups that are looked up, which walks the directories. The largest may be the unit's own, or
 * belong to no unit, as for the kernel's own I/O. */
#define BLOCK_GROUPS_MAX 4U

/* Finds the other unit that used the device most. */
static void device_find_user(Unit *u, CgroupNames *groups, const HostSample *begin, const HostSample *end,
                             const char *device, char ret[static DIAGNOSIS_NAME_MAX]) {
        _cleanup_free_ uint64_t *weights = NULL;

        /* Without a reading at the beginning, use during the interval is unknown */
        if (!begin->block_users || end->n_block_users == 0)
                return;
        weights = new0(uint64_t, end->n_block_users);
        if (!weights)
                return;
        for (size_t i = 0; i < end->n_block_users; i++) {
                const struct qos_block_user *user = &end->block_users[i].user;
                const struct qos_block_use *before;
                struct qos_block_use use = end->block_users[i].use;
                char name[DEVICE_NAME_MAX];

                device_get_name(user->device, name);
                if (!streq(name, device))
                        continue;
                before = block_users_find(begin->block_users, begin->n_block_users, user);
                if (before) {
                        use.requests -= MIN(use.requests, before->requests);
                        use.bytes -= MIN(use.bytes, before->bytes);
                }
                weights[i] = use.bytes + use.requests * BLOCK_REQUEST_BYTES;
        }

        for (unsigned n = 0; n < BLOCK_GROUPS_MAX; n++) {
                const char *unit;
                size_t most = 0;

                for (size_t i = 1; i < end->n_block_users; i++)
                        if (weights[i] > weights[most])
                                most = i;
                if (weights[most] == 0)
                        return;
                weights[most] = 0;
                unit = cgroup_names_get(groups, u->manager, end->block_users[most].user.group);
                if (!unit || cgroup_names_is_within(groups, u, end->block_users[most].user.group))
                        continue;
                (void) snprintf(ret, DIAGNOSIS_NAME_MAX, "%s", unit);
                utf8_sanitize(ret);
                return;
        }
}

/* Minimum share of requests that are read and responded to by one thread, as in servers with a thread or
 * process per connection. With work stealing, the thread that has read a request seldom sends the response,
 * and its waits belong to other requests. */
#define ATTRIBUTED_MIN 0.9
/* Lower minimum, for states that hold for event loops as well: these read more requests at once than are
 * tracked, but the thread is the same. */
#define ATTRIBUTED_HALF 0.5

static void requests_fill(const Snapshot *s, DiagnosisFigures *f) {
        const Server *server = &s->metrics.requests.server;
        double covered = (double) s->covered / NSEC_PER_SEC, count = real(server->count);

        f->covered = (double) s->covered;
        f->rate = server->rate;
        f->first_byte = real(server->first_byte.mean);
        f->receive = real(server->receive.mean);
        f->queue = real(server->queue.mean);
        f->service = real(server->service.mean);
        f->answer = real(server->answer.mean);
        if (server->service_states.attributed >= ATTRIBUTED_MIN) {
                f->blocked_by_requests = server->service_states.blocked_by_requests * f->service;
                f->service_lock = server->service_states.shares[QOS_STATE_LOCK] * f->service;
        }
        if (server->service_states.attributed >= ATTRIBUTED_HALF)
                f->service_run_queue = server->service_states.shares[QOS_STATE_RUN_QUEUE] * f->service;
        if (covered > 0) {
                f->status4xx = real(server->status4xx) / covered;
                f->status5xx = real(server->errors_status5xx) / covered;
                f->grpc_errors = real(server->errors_grpc) / covered;
                f->error_replies = real(server->errors_replies) / covered;
                f->resets = real(server->errors_reset) / covered;
                f->timeouts = real(server->errors_timeout) / covered;
                f->client_aborts = real(server->client_aborts) / covered;
        }
        f->bytes_in = count > 0 ? real(server->bytes_in) / count : NAN;
        f->bytes_out = count > 0 ? real(server->bytes_out) / count : NAN;
        f->in_flight = real(server->in_flight);
        f->oldest = real(server->oldest_in_flight);
        f->waiting = real(server->waiting);
        f->oldest_waiting = real(server->oldest_waiting);
        if (covered > 0) {
                f->retransmits = real(server->connections.retransmits) / covered;
                f->listen_drops = real(server->connections.listen_drops) / covered;
        }
}

static void contention_fill(const Snapshot *s, DiagnosisFigures *f) {
        const Contention *c = &s->metrics.contention;
        double covered = (double) c->covered / NSEC_PER_SEC;

        if (c->covered == ABSENT || c->covered == 0)
                return;
        for (unsigned i = QOS_STATE_RUNNING; i < QOS_STATES; i++)
                f->threads[i] = c->threads[i];
        f->serving = c->serving.share;
        f->run_queue_wait = real(c->run_queue_latency.mean);
        if (c->quota.periods != ABSENT && c->quota.periods > 0)
                f->throttled = real(c->quota.throttled_periods) / real(c->quota.periods);
        f->reads = real(c->block.counts.bytes[QOS_BLOCK_READS]) / (double) sysconf(_SC_PAGESIZE) / covered;
        f->major_faults = real(c->memory.major_faults) / covered;
        f->refaults = real(c->memory.refaults) / covered;
        f->oom_kills = real(c->memory.oom_kills) / covered;
}

static void client_fill(const Snapshot *s, DiagnosisFigures *f) {
        double covered = (double) s->covered / NSEC_PER_SEC;

        f->client_rate = s->metrics.requests.client.rate;
        f->client_latency = s->metrics.requests.client.count == 0 ? 0 :
                            real(s->metrics.requests.client.latency.mean);
        if (s->covered == 0)
                return;
        f->peer_errors = (real(s->metrics.requests.client.errors_reset) +
                          real(s->metrics.requests.client.errors_timeout)) / covered;
        f->peer_status5xx = real(s->metrics.requests.client.errors_status5xx) / covered;
        f->peer_error_replies = real(s->metrics.requests.client.errors_replies) / covered;
}

static void flows_fill(const Snapshot *s, DiagnosisFlows *ret) {
        const Network *n = &s->metrics.network;

        if (n->covered == ABSENT || n->covered == 0 || n->flows[QOS_FLOW_BYTES_SENT] == ABSENT)
                return;
        *ret = (DiagnosisFlows) {
                .covered = (double) n->covered,
                .bytes_sent = per_second(n->flows[QOS_FLOW_BYTES_SENT], n->covered),
                .bytes_received = per_second(n->flows[QOS_FLOW_BYTES_RECEIVED], n->covered),
                .bytes_retransmitted = per_second(n->flows[QOS_FLOW_BYTES_RETRANSMITTED], n->covered),
                .retransmits = per_second(n->flows[QOS_FLOW_RETRANSMITS], n->covered),
                .timeouts = per_second(n->flows[QOS_FLOW_TIMEOUTS], n->covered),
                .drops = n->drops == ABSENT ? 0 : per_second(n->drops, n->covered),
                .by_peer_window = n->limited_by.peer_window,
                .by_send_buffer = n->limited_by.send_buffer,
                .by_network = n->limited_by.network,
                .rtt = real(n->rtt.mean),
        };
        if (s->n_drop_reasons > 0)
                (void) snprintf(ret->reason, sizeof(ret->reason), "%s", s->drop_reasons[0].name);
}

void evidence_from_snapshot(const Snapshot *s, DiagnosisEvidence *ret) {
        assert(s);
        assert(ret);

        *ret = (DiagnosisEvidence) {
                .accept_queue = real(s->metrics.requests.server.connections.accept_queue),
                .handshakes = real(s->metrics.requests.server.connections.accepted),
                .accept_queue_max = real(s->metrics.requests.server.connections.accept_queue_max),
        };
        diagnosis_figures_set_absent(&ret->now);
        requests_fill(s, &ret->now);
        contention_fill(s, &ret->now);
        client_fill(s, &ret->now);
        flows_fill(s, &ret->flows);
}

/* Windows for which entries of endpoints and peers are available. */
#define ROWS_NSEC_MIN (2 * NSEC_PER_SEC)
#define ROWS_NSEC_MAX (10 * NSEC_PER_SEC)

static void peers_fill(Unit *u, uint64_t window, DiagnosisEvidence *ret) {
        Snapshot s;

        window = MAX(window, ROWS_NSEC_MIN);
        unit_get_snapshot(u, MIN(window, ROWS_NSEC_MAX), &s);
        client_fill(&s, &ret->now);
        ret->peers_covered = (double) s.covered;
        if (s.covered == 0)
                return;

        for (size_t i = 0; i < s.n_rows; i++) {
                const Row *row = s.rows + i;
                DiagnosisNamed peer = {
                        .value = real(row->latency.mean),
                        .rate = row->rate,
                        .errors = per_second(row->errors_reset, s.covered) +
                                  per_second(row->errors_timeout, s.covered),
                        .status5xx = per_second(row->errors_status5xx, s.covered),
                        .error_replies = per_second(row->errors_replies, s.covered),
                        .aborts = per_second(row->aborts, s.covered),
                        .in_flight = real(row->in_flight),
                };
                char address[ADDRESS_STRING_MAX];

                if (row->kind != ROW_PEER || row->rest || !row->measured ||
                    (!(peer.value * peer.rate > 0) && !(peer.in_flight > 0) &&
                     !(peer.errors + peer.status5xx + peer.error_replies + peer.aborts > 0)))
                        continue;
                (void) snprintf(peer.name, sizeof(peer.name), "%s", row_format_address(row, address));
                (void) snprintf(peer.unit, sizeof(peer.unit), "%s", strempty(unit_find_listening(u, row)));
                utf8_sanitize(peer.unit);
                named_put(ret->peers, &ret->n_peers, &peer, peer_weight);
        }
}

static bool group_is_frozen(const char *path) {
        _cleanup_fclose_ FILE *f = group_open(path, "cgroup.events");
        char line[64];

        while (f && fgets(line, sizeof(line), f))
                if (streq(line, "frozen 1\n"))
                        return true;
        return false;
}

static void run_fill(const Unit *u, const HostSample *begin, DiagnosisRun *ret) {
        *ret = (DiagnosisRun) {
                .active_state = u->name[0] == '/' ? NULL : u->active_state,
                .lifecycle = u->lifecycle,
                .restarts = ABSENT,
                .now = now_nsec(CLOCK_REALTIME),
        };
        ret->frozen = u->control_group && group_is_frozen(u->control_group);
        /* The counter restarts from 0 when the unit is stopped and started */
        if (u->lifecycle.restarts != ABSENT && begin->restarts != ABSENT)
                ret->restarts = u->lifecycle.restarts - MIN(begin->restarts, u->lifecycle.restarts);
}

/* Finds processes with all threads stopped. Unknown unless the reading has all threads. */
static void stopped_fill(const HostSample *end, DiagnosisRun *ret) {
        const ThreadsReading *t = &end->threads;

        if (t->n_rest > 0)
                return;
        for (size_t i = 0; i < t->n; i++) {
                uint32_t pid = t->threads[i].pid;
                bool stopped = true, first = true;

                for (size_t k = 0; k < t->n; k++)
                        if (t->threads[k].pid == pid) {
                                stopped = stopped && t->threads[k].state == QOS_STATE_STOPPED;
                                first = first && k >= i;
                        }
                if (!first)
                        continue;
                ret->n_processes++;
                if (!stopped)
                        continue;
                if (ret->n_stopped < DIAGNOSIS_STOPPED_MAX)
                        ret->stopped[ret->n_stopped] = (int) pid;
                ret->n_stopped++;
        }
}

int evidence_collect(Unit *u, const HostSample *begin, const HostSample *end, uint64_t window,
                     DiagnosisEvidence *ret) {
        _cleanup_cgroup_names_ CgroupNames groups = CGROUP_NAMES_INIT;
        Snapshot s;

        assert(u);
        assert(begin);
        assert(end);
        assert(ret);

        unit_get_snapshot(u, window, &s);
        evidence_from_snapshot(&s, ret);
        ret->unit = u->name;
        run_fill(u, begin, &ret->run);
        stopped_fill(end, &ret->run);
        machine_fill(begin, end, ret);
        sends_fill(begin, end, ret);
        locks_fill(u->manager, begin, end, ret);
        evidence_fill_mount(u->manager, &begin->resources, &end->resources,
                            (double) (end->at - begin->at), &ret->mount);
        threads_fill(begin, end, ret);
        users_fill(u, &groups, begin, end, ret);
        peers_fill(u, window, ret);

        for (size_t i = 0; i < MIN(s.n_devices, (size_t) DIAGNOSIS_NAMED_MAX); i++) {
                const BlockDevice *device = s.devices + i;
                uint64_t operations = 0;

                for (unsigned k = 0; k < QOS_BLOCK_COUNTERS; k++)
                        operations += device->counts.operations[k];
                if (!device->name[0])
                        continue; /* sum of all others */
                ret->devices[ret->n_devices] = (DiagnosisNamed) {
                        .value = device->share,
                        .rate = (double) operations * NSEC_PER_SEC / (double) s.metrics.contention.covered,
                };
                (void) snprintf(ret->devices[ret->n_devices].name, DIAGNOSIS_NAME_MAX, "%s", device->name);
                device_find_user(u, &groups, begin, end, device->name, ret->devices[ret->n_devices].unit);
                ret->n_devices++;
        }
        return 0;
}

int unit_get_baseline(Unit *u, uint64_t before, double rate, Baseline *ret) {
        int r;

        /* Includes steps since the last collection */
        r = unit_collect_history(u);
        return r < 0 ? r : baseline_read(u->history.steps, before, rate, u->started_at, UNIT_STARTS_KEPT,
                                         ret);
}

void unit_diagnose_snapshot(Unit *u, const Snapshot *s, Diagnosis *ret) {
        DiagnosisEvidence evidence;
        Baseline normal;

        evidence_from_snapshot(s, &evidence);
        if (unit_get_baseline(u, now_nsec(CLOCK_MONOTONIC) - s->window, evidence.now.rate, &normal) >= 0) {
                evidence.usual = normal.usual;
                evidence.normal = &normal.figures;
        }
        diagnosis_make(&evidence, ret);
}

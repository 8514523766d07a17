/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "probe-internal.h"

/* ---- contention --------------------------------------------------------------------------------------- */

static int on_move(void *userdata, void *data, size_t size) {
        return 0; /* cpu_find_threads finds the tasks */
}

int probe_get_moves_fd(Probe *p) {
        if (!p->moves) {
                p->moves = ring_buffer__new(p->map_fds[MAP_MOVES], on_move, p, NULL);
                if (!p->moves)
                        return errno_or_else(ENOMEM);
        }
        return ring_buffer__epoll_fd(p->moves);
}

/* ---- iterators ---------------------------------------------------------------------------------------- */

/* Session numbers are times, so that those of a previous run in maps of units never match. */
static int program_call(int fd, uint64_t *ret_session) {
        struct qos_iter_session session = { .id = now_nsec(CLOCK_MONOTONIC) };
        LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &session, .ctx_size_in = sizeof(session));
        int r;

        r = bpf_prog_test_run_opts(fd, &options);
        if (r < 0)
                return r;
        if (ret_session)
                *ret_session = session.id;
        return 0;
}

/* Runs an iterator to its end, which writes the session number last, or a program without iterator. */
int iterator_run(Probe *p, Program i, uint64_t *ret_session) {
        struct qos_iter_session session = {};
        _cleanup_close_ int fd = -EBADF;

        if (!program_works(p, i) && program_table[i].alternative != 0) {
                uint32_t zero = 0, purpose = program_table[i].walk;

                /* element of an array: cannot fail */
                (void) bpf_map_update_elem(p->map_fds[MAP_WALK_PURPOSE], &zero, &purpose, BPF_ANY);
                i = program_table[i].alternative;
        }
        if (!program_works(p, i))
                return -EOPNOTSUPP;
        if (program_table[i].type == HOOK_CALL)
                return program_call(p->program_fds[i], ret_session);

        fd = bpf_iter_create(p->link_fds[i]);
        if (fd < 0)
                return fd;

        for (;;) {
                ssize_t n;

                n = read(fd, &session, sizeof(session));
                if (n < 0) {
                        /* the kernel pauses after a million objects */
                        if (errno == EAGAIN || errno == EINTR)
                                continue;
                        return -errno;
                }
                if (n == 0)
                        break;
        }

        if (ret_session)
                *ret_session = session.id;
        return 0;
}

static int find_sockets(Probe *p, const Program *table, size_t n) {
        int r = 0, q;

        for (size_t i = 0; i < n; i++) {
                q = iterator_run(p, table[i], NULL);
                if (q < 0)
                        r = q;
        }
        return r;
}

int probe_find_sockets(Probe *p) {
        static const Program table[] = { PROGRAM_FIND_SOCKETS, PROGRAM_FIND_UNIX, PROGRAM_FIND_UDP };
        int r;

        r = find_sockets(p, table, ELEMENTSOF(table));

        /* Connections may have been found before their listeners */
        (void) iterator_run(p, PROGRAM_RETARGET, NULL);
        return r;
}

void probe_read_moves(Probe *p) {
        if (p->moves)
                (void) ring_buffer__consume(p->moves);
}

int probe_find_unix(Probe *p) {
        return iterator_run(p, PROGRAM_FIND_UNIX, NULL);
}

int probe_find_threads(Probe *p) {
        uint32_t zero = 0;
        int r;

        /* Reset before the scan: later migrations notify again */
        probe_read_moves(p);
        (void) bpf_map_update_elem(p->map_fds[MAP_MOVED], &zero, &zero, BPF_ANY);

        r = iterator_run(p, PROGRAM_FIND_THREADS, NULL);
        if (r < 0)
                return r;
        /* Again, for threads that were changing state during the first scan */
        (void) syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
        return iterator_run(p, PROGRAM_FIND_THREADS, NULL);
}

/* Runs an iterator that writes records of a fixed size. buffer: space for at least one record. */
static int iterator_read(int fd, void *buffer, size_t size, size_t record,
                         void (*each)(const void *record, void *userdata), void *userdata) {
        size_t have = 0, done;

        for (;;) {
                ssize_t n;

                n = read(fd, (char*) buffer + have, size - have);
                if (n < 0) {
                        if (errno == EAGAIN || errno == EINTR)
                                continue;
                        return -errno;
                }
                if (n == 0)
                        return 0;
                have += n;
                for (done = 0; have - done >= record; done += record)
                        each((char*) buffer + done, userdata);
                memmove(buffer, (char*) buffer + done, have - done);
                have -= done;
        }
}

/* Sets parameters of iterators, and preserves what iterators have stored in the same element. */
static int inquiry_set(Probe *p, const unsigned *slots, size_t n, uint64_t address) {
        struct qos_inspect_request inquiry;
        Bitmap wanted = {};
        uint32_t zero = 0;
        int r;

        r = bpf_map_lookup_elem(p->map_fds[MAP_INSPECT_REQUESTS], &zero, &inquiry);
        if (r < 0)
                return r;
        for (size_t i = 0; i < n; i++)
                bitmap_add(&wanted, slots[i]);
        _Static_assert(sizeof(inquiry.slots) == sizeof(wanted.words), "the programs have the same form");
        memcpy(inquiry.slots, wanted.words, sizeof(inquiry.slots));
        inquiry.address = address;
        return bpf_map_update_elem(p->map_fds[MAP_INSPECT_REQUESTS], &zero, &inquiry, BPF_ANY);
}

/* Threads per read, some us each. */
#define THREADS_AT_A_TIME 64U

int probe_open_threads(Probe *p) {
        return p->link_fds[PROGRAM_READ_THREADS] < 0 ? -EOPNOTSUPP :
                bpf_iter_create(p->link_fds[PROGRAM_READ_THREADS]);
}

int probe_read_threads(Probe *p, int fd, const unsigned *slots, size_t n,
                       void (*handler)(const struct qos_thread *t, void *userdata), void *userdata) {
        _cleanup_free_ struct qos_thread *buffer = NULL;
        ssize_t size;
        int r;

        buffer = new0(struct qos_thread, THREADS_AT_A_TIME);
        if (!buffer)
                return -ENOMEM;
        r = inquiry_set(p, slots, n, 0); /* each time, as other readings may be in progress */
        if (r < 0)
                return r;
        size = read(fd, buffer, THREADS_AT_A_TIME * sizeof(*buffer));
        if (size < 0)
                return errno == EAGAIN || errno == EINTR ? 1 : -errno;
        if (size % (ssize_t) sizeof(*buffer) != 0)
                return -EIO; /* reads return whole records if the buffer has space for these */
        for (size_t i = 0; i < (size_t) size / sizeof(*buffer); i++)
                handler(buffer + i, userdata);
        return size > 0;
}

typedef struct Handler {
        void (*mapping)(const struct qos_mapping *m, void *userdata);
        void *userdata;
} Handler;

static void on_mapping_record(const void *record, void *userdata) {
        const Handler *h = userdata;

        h->mapping(record, h->userdata);
}

int probe_read_mappings(Probe *p, pid_t process, uint64_t address,
                        void (*handler)(const struct qos_mapping *m, void *userdata), void *userdata) {
        union bpf_iter_link_info info = { .task.tid = process };
        LIBBPF_OPTS(bpf_link_create_opts, options, .iter_info = &info, .iter_info_len = sizeof(info));
        Handler h = { .mapping = handler, .userdata = userdata };
        _cleanup_close_ int link = -EBADF, fd = -EBADF;
        struct qos_mapping buffer;
        int r;

        if (p->program_fds[PROGRAM_READ_MAPPINGS] < 0)
                return -EOPNOTSUPP;
        r = inquiry_set(p, NULL, 0, address);
        if (r < 0)
                return r;
        link = bpf_link_create(p->program_fds[PROGRAM_READ_MAPPINGS], 0, BPF_TRACE_ITER, &options);
        if (link < 0)
                return link;
        fd = bpf_iter_create(link);
        if (fd < 0)
                return fd;
        return iterator_read(fd, &buffer, sizeof(buffer), sizeof(buffer), on_mapping_record, &h);
}

int probe_find_faults(Probe *p) {
        return iterator_run(p, PROGRAM_FIND_FAULTS, NULL);
}

int probe_find_storage_calls(Probe *p, uint64_t *ret_session) {
        return iterator_run(p, PROGRAM_STORAGE_FIND, ret_session);
}

int probe_find_flows(Probe *p) {
        return iterator_run(p, PROGRAM_NETWORK_FLOWS, NULL);
}

int probe_reassign_sockets(Probe *p) {
        /* TCP sockets are reassigned by their socket storage, which has their share of gauges */
        static const Program others[] = { PROGRAM_FIND_UNIX, PROGRAM_FIND_UDP };
        int r, q;

        /* Connections are created in interrupts, from the entry of their listener: wait for interrupts that
         * use the old entry */
        (void) syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
        r = iterator_run(p, PROGRAM_REASSIGN, NULL);
        /* Twice if by file tables: a connection that is accepted meanwhile may have left the accept queue
         * before it was visited, for a file table that had been visited */
        if (r >= 0 && !program_works(p, PROGRAM_REASSIGN))
                r = iterator_run(p, PROGRAM_REASSIGN, NULL);
        q = find_sockets(p, others, ELEMENTSOF(others));
        return r < 0 ? r : q;
}

int probe_read_listeners(Probe *p, uint64_t *ret_session) {
        return iterator_run(p, PROGRAM_LISTENERS, ret_session);
}

int probe_read_oldest(Probe *p, uint64_t *ret_session) {
        return iterator_run(p, PROGRAM_OLDEST, ret_session);
}

int probe_count_sends(Probe *p) {
        return iterator_run(p, PROGRAM_SENDS, NULL);
}

void probe_reconcile_gauges(Probe *p) {
        (void) iterator_run(p, PROGRAM_GAUGES, NULL);
}

int probe_expire_udp(Probe *p) {
        return iterator_run(p, PROGRAM_UDP_EXPIRE, NULL);
}

int probe_read_gauge(Probe *p, enum qos_gauge gauge, uint64_t *ret_session) {
        static const Program table[QOS_GAUGES] = {
                [QOS_GAUGE_UNIX] = PROGRAM_UNIX_OPEN,
                [QOS_GAUGE_UDP]  = PROGRAM_UDP_OPEN,
        };

        return iterator_run(p, table[gauge], ret_session);
}

void probe_count_missed(Probe *p) {
        const struct {
                uint32_t statistic;
                uint64_t *n;
        } table[] = {
                { QOS_STATISTIC_RUNS_MISSED,       &p->missed.healed       },
                { QOS_STATISTIC_RUNS_LOST,         &p->missed.lost         },
                { QOS_STATISTIC_RUNS_LOST_MEMORY,  &p->missed.lost_memory  },
                { QOS_STATISTIC_RUNS_LOST_STORAGE, &p->missed.lost_storage },
                { QOS_STATISTIC_RUNS_LOST_NETWORK, &p->missed.lost_network },
        };
        MissedRuns before = p->missed;

        if (!p->started)
                return;
        probe_get_missed(p, &p->missed);
        if (memcmp(&before, &p->missed, sizeof(before)) == 0)
                return;
        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                /* elements of an array: cannot fail */
                (void) bpf_map_update_elem(p->map_fds[MAP_STATISTICS], &table[i].statistic, table[i].n,
                                           BPF_ANY);
        (void) iterator_run(p, PROGRAM_END_EXPORTS, NULL);
}

uint64_t probe_get_lost_groups(Probe *p) {
        uint64_t n = 0;

        if (p->started)
                (void) bpf_map_lookup_elem(p->map_fds[MAP_STATISTICS],
                                           &(uint32_t) { QOS_STATISTIC_LOST_GROUPS }, &n);
        return n;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Attaches requests_read and requests_unix on demand. */

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "log.h"
#include "probe-internal.h"

static int on_read_event(void *userdata, void *data, size_t size) {
        return 0; /* results are in read_checks and unix_uses */
}

int probe_get_read_events_fd(Probe *p) {
        if (!p->read_events) {
                p->read_events = ring_buffer__new(p->map_fds[MAP_READ_EVENTS], on_read_event, p, NULL);
                if (!p->read_events)
                        return errno_or_else(ENOMEM);
        }
        return ring_buffer__epoll_fd(p->read_events);
}

void probe_drain_read_events(Probe *p) {
        if (p->read_events)
                (void) ring_buffer__consume(p->read_events);
}

ReadCheckResult probe_get_read_check(Probe *p, unsigned slot, uint32_t generation) {
        struct qos_read_check check = {};

        if (!program_works(p, PROGRAM_CONTENT))
                return READS_UNSEEN;
        /* element of an array: cannot fail */
        (void) bpf_map_lookup_elem(p->map_fds[MAP_READ_CHECKS], &(uint32_t) { slot }, &check);
        if (check.generation != generation)
                return READS_UNCHECKED;
        /* Skipped runs leave reads unseen as well */
        if (check.unseen > program_get_missed(p, PROGRAM_CONTENT))
                return READS_UNSEEN;
        return check.seen >= QOS_READS_CHECKED ? READS_SEEN : READS_UNCHECKED;
}

bool probe_unit_uses_unix(Probe *p, unsigned slot, uint32_t generation) {
        struct qos_unix_use use = {};

        /* element of an array: cannot fail */
        (void) bpf_map_lookup_elem(p->map_fds[MAP_UNIX_USES], &(uint32_t) { slot }, &use);
        return use.generation == generation;
}

void probe_forget_unix_use(Probe *p, unsigned slot) {
        (void) bpf_map_update_elem(p->map_fds[MAP_UNIX_USES], &(uint32_t) { slot },
                                   &(struct qos_unix_use) {}, BPF_ANY);
}

/* Returns 1 if the program was not attached before. */
static int watch(Probe *p, Program i, bool wanted) {
        int r;

        if (!p->started || p->program_fds[i] < 0 || wanted == (p->link_fds[i] >= 0))
                return 0;
        if (!wanted) {
                store_drop_link(p, i);
                p->link_fds[i] = close_fd(p->link_fds[i]);
                return 0;
        }
        r = program_attach(p, i);
        if (r < 0)
                return r;
        store_push_link(p, i);
        return 1;
}

int probe_watch_reads(Probe *p, bool wanted) {
        return watch(p, PROGRAM_READ, wanted);
}

int probe_watch_unix(Probe *p, bool wanted) {
        int r = watch(p, PROGRAM_UNIX, wanted);

        /* Sockets that were opened meanwhile */
        return r > 0 ? probe_find_unix(p) : r;
}

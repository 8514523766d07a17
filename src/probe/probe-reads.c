/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Attaches requests_read on demand. */

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "log.h"
#include "probe-internal.h"

static int on_read_event(void *userdata, void *data, size_t size) {
        return 0; /* results are in read_checks */
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

int probe_watch_reads(Probe *p, bool watch) {
        int r;

        if (!p->started || p->program_fds[PROGRAM_READ] < 0 || watch == (p->link_fds[PROGRAM_READ] >= 0))
                return 0;
        if (!watch) {
                store_drop_link(p, PROGRAM_READ);
                p->link_fds[PROGRAM_READ] = close_fd(p->link_fds[PROGRAM_READ]);
                return 0;
        }
        r = program_attach(p, PROGRAM_READ);
        if (r < 0)
                return r;
        store_push_link(p, PROGRAM_READ);
        return 0;
}

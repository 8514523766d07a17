/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <limits.h>
#include <unistd.h>

#include "contention-probe.h"
#include "gauges.h"
#include "hierarchy.h"
#include "network-probe.h"
#include "probe.h"
#include "storage-probe.h"
#include "unit-reading.h"

#define REQUIRES_EXCHANGES PROGRAM_READ, PROGRAM_EGRESS
#define REQUIRES_ARRIVALS REQUIRES_EXCHANGES, PROGRAM_INGRESS
#define REQUIRES_CLOCK REQUIRES_ARRIVALS, PROGRAM_STATE
#define REQUIRES_LISTENERS PROGRAM_FIND_SOCKETS /* the only source for listeners that existed before */

#define REQUIRES_CALL(call) PROGRAM_STORAGE_##call##_BEGIN, PROGRAM_STORAGE_##call##_END

/* Programs that are required to measure a value. */
static const Program *const required[_MEASURED_MAX] = {
        [MEASURED_EXCHANGES]       = PROGRAMS(REQUIRES_EXCHANGES),
        [MEASURED_ARRIVALS]        = PROGRAMS(REQUIRES_ARRIVALS),
        [MEASURED_CONTENT]         = PROGRAMS(REQUIRES_EXCHANGES, PROGRAM_CONTENT),
        [MEASURED_UNIX]            = PROGRAMS(PROGRAM_UNIX, PROGRAM_CONTENT),
        [MEASURED_UDP]             = PROGRAMS(PROGRAM_INGRESS, PROGRAM_EGRESS, PROGRAM_BIND4, PROGRAM_BIND6,
                                              PROGRAM_FIND_UDP),
        [MEASURED_ENDS]            = PROGRAMS(REQUIRES_EXCHANGES, PROGRAM_STATE),
        /* Without it, connections are found when first read from, and lack the bytes before */
        [MEASURED_BYTES_IN]        = PROGRAMS(PROGRAM_INGRESS, PROGRAM_FIND_SOCKETS),
        [MEASURED_BYTES_OUT]       = PROGRAMS(PROGRAM_EGRESS),
        [MEASURED_OPEN]            = PROGRAMS(PROGRAM_STATE),
        [MEASURED_ACCEPTED]        = PROGRAMS(REQUIRES_LISTENERS, PROGRAM_STATE),
        [MEASURED_ACCEPT_QUEUES]   = PROGRAMS(REQUIRES_LISTENERS),
        [MEASURED_LISTEN_DROPS]    = PROGRAMS(REQUIRES_LISTENERS, PROGRAM_LISTENERS),
        [MEASURED_RETRANSMITS]     = PROGRAMS(PROGRAM_RETRANSMIT),
        [MEASURED_IN_FLIGHT]       = PROGRAMS(REQUIRES_CLOCK, PROGRAM_UNIX_OPEN, PROGRAM_UDP_OPEN),
        [MEASURED_CLOCK]           = PROGRAMS(REQUIRES_CLOCK),
        [MEASURED_STATES]          = PROGRAMS(PROGRAM_CPU_SWITCH, PROGRAM_CPU_WAKE, PROGRAM_CPU_WAKE_NEW,
                                              PROGRAM_FIND_THREADS),
        [MEASURED_WAKERS]          = PROGRAMS(PROGRAM_CPU_WAKING),
        [MEASURED_BLOCK]           = PROGRAMS(PROGRAM_BLOCK_START, PROGRAM_BLOCK_ISSUE,
                                              PROGRAM_BLOCK_COMPLETE, PROGRAM_BLOCK_DONE),
        [MEASURED_FAULTS]          = PROGRAMS(PROGRAM_FAULT, PROGRAM_FAULT_KERNEL, PROGRAM_MEMORY_FORK,
                                              PROGRAM_MEMORY_EXIT, PROGRAM_FIND_FAULTS),
        [MEASURED_FAULT_TIMES]     = PROGRAMS(PROGRAM_FAULT_BEGIN, PROGRAM_FAULT_END),
        [MEASURED_RECLAIM]         = PROGRAMS(PROGRAM_RECLAIM_BEGIN, PROGRAM_RECLAIM_END,
                                              PROGRAM_LIMIT_BEGIN, PROGRAM_LIMIT_END),
        [MEASURED_DIRTY_THROTTLES] = PROGRAMS(PROGRAM_THROTTLE),
        [MEASURED_OOM]             = PROGRAMS(PROGRAM_OOM),
        [MEASURED_STORAGE_COUNTED] = PROGRAMS(PROGRAM_STORAGE_FORK, PROGRAM_STORAGE_EXIT,
                                              PROGRAM_STORAGE_FIND),
        [MEASURED_STORAGE_CACHE] = PROGRAMS(PROGRAM_STORAGE_PAGES_LOOK_UP, PROGRAM_STORAGE_PAGES_ADD,
                                            PROGRAM_STORAGE_PAGES_DIRTY, PROGRAM_STORAGE_FIND),
        [MEASURED_STORAGE_DIRTIED] = PROGRAMS(PROGRAM_STORAGE_PAGES_DIRTY, PROGRAM_STORAGE_FIND),
        [MEASURED_STORAGE_MAPPED] = PROGRAMS(PROGRAM_STORAGE_FAULT, PROGRAM_STORAGE_MAP_PAGES,
                                             PROGRAM_STORAGE_FIND),
        [MEASURED_STORAGE_UNSEEN] = PROGRAMS(PROGRAM_STORAGE_VERIFY),
        [MEASURED_STORAGE_SUBMITTED] = PROGRAMS(PROGRAM_STORAGE_DIRECT_BEGIN, PROGRAM_STORAGE_DIRECT_END,
                                                PROGRAM_STORAGE_RING_SUBMIT, PROGRAM_STORAGE_RING_COMPLETE),
        [MEASURED_STORAGE_FUSE] = PROGRAMS(PROGRAM_STORAGE_FUSE_BEGIN, PROGRAM_STORAGE_FUSE_END),
        [MEASURED_STORAGE_CALLS + QOS_STORAGE_READ] =
                PROGRAMS(REQUIRES_CALL(READ), REQUIRES_CALL(READV), REQUIRES_CALL(SENDFILE),
                         REQUIRES_CALL(SPLICE), REQUIRES_CALL(PIPE), REQUIRES_CALL(COPY)),
        [MEASURED_STORAGE_CALLS + QOS_STORAGE_WRITE] =
                PROGRAMS(REQUIRES_CALL(WRITE), REQUIRES_CALL(WRITEV), REQUIRES_CALL(SENDFILE),
                         REQUIRES_CALL(SPLICE), REQUIRES_CALL(COPY)),
        [MEASURED_STORAGE_CALLS + QOS_STORAGE_SYNC] = PROGRAMS(REQUIRES_CALL(SYNC)),
        [MEASURED_STORAGE_CALLS + QOS_STORAGE_OPEN] = PROGRAMS(REQUIRES_CALL(OPEN)),
        [MEASURED_STORAGE_CALLS + QOS_STORAGE_CREATE] =
                PROGRAMS(REQUIRES_CALL(OPEN), REQUIRES_CALL(CREATE), REQUIRES_CALL(MKDIR),
                         REQUIRES_CALL(MKNOD), REQUIRES_CALL(LINK), REQUIRES_CALL(SYMLINK)),
        [MEASURED_STORAGE_CALLS + QOS_STORAGE_REMOVE] =
                PROGRAMS(REQUIRES_CALL(UNLINK), REQUIRES_CALL(RMDIR)),
        [MEASURED_STORAGE_CALLS + QOS_STORAGE_RENAME] = PROGRAMS(REQUIRES_CALL(RENAME)),
        [MEASURED_STORAGE_CALLS + QOS_STORAGE_LOOKUP] =
                PROGRAMS(REQUIRES_CALL(STAT), REQUIRES_CALL(FSTAT), REQUIRES_CALL(LIST)),
        [MEASURED_STORAGE_CALLS + QOS_STORAGE_CHANGE] =
                PROGRAMS(REQUIRES_CALL(CHANGE), REQUIRES_CALL(ALLOCATE)),
        [MEASURED_FLOWS] = PROGRAMS(PROGRAM_NETWORK_STATE, PROGRAM_NETWORK_FLOWS),
        [MEASURED_RTT] = PROGRAMS(PROGRAM_NETWORK_STATE, PROGRAM_NETWORK_RTT),
        [MEASURED_RECEIVING_TCP] = PROGRAMS(PROGRAM_NETWORK_STATE, PROGRAM_NETWORK_MOVE,
                                            PROGRAM_NETWORK_INGRESS),
        [MEASURED_RECEIVING_SOCKET] = PROGRAMS(PROGRAM_NETWORK_STATE, PROGRAM_NETWORK_MOVE,
                                               PROGRAM_NETWORK_READ),
        [MEASURED_RECEIVING_TOTAL] = PROGRAMS(PROGRAM_NETWORK_STATE, PROGRAM_NETWORK_MOVE,
                                              PROGRAM_NETWORK_INGRESS, PROGRAM_NETWORK_READ),
        [MEASURED_DROPS] = PROGRAMS(PROGRAM_NETWORK_DROP),
        [MEASURED_TRANSMITTING_IP] = PROGRAMS(PROGRAM_NETWORK_STATE, PROGRAM_NETWORK_QUEUE),
        [MEASURED_TRANSMITTING_TOTAL] = PROGRAMS(PROGRAM_NETWORK_STATE, PROGRAM_NETWORK_XMIT),
        [MEASURED_RTT_PARTS] = PROGRAMS(PROGRAM_NETWORK_STATE, PROGRAM_NETWORK_MOVE,
                                        PROGRAM_NETWORK_INGRESS, PROGRAM_NETWORK_XMIT),
        [MEASURED_RECOVERIES] = PROGRAMS(PROGRAM_NETWORK_STATE, PROGRAM_NETWORK_RECOVERY),
};

/* Programs that measure a part of it on kernels that refuse the required ones; NULL: none. */
static const Program *const fallbacks[_MEASURED_MAX] = {
        [MEASURED_STORAGE_CALLS + QOS_STORAGE_SYNC] = PROGRAMS(PROGRAM_STORAGE_EXT4_SYNC_BEGIN,
                                                               PROGRAM_STORAGE_EXT4_SYNC_END),
        [MEASURED_STORAGE_CALLS + QOS_STORAGE_REMOVE] = PROGRAMS(PROGRAM_STORAGE_EXT4_UNLINK),
};

uint64_t manager_get_measured(Manager *m) {
        Bitmap programs = probe_get_programs(m->probe);
        uint64_t measured = 0;

        for (Measured i = 0; i < _MEASURED_MAX; i++)
                if (programs_attached(programs, required[i]) ||
                    (fallbacks[i] && programs_attached(programs, fallbacks[i])))
                        measured |= UINT64_C(1) << i;
        return measured;
}

void unit_reading_begin(Unit *u, uint64_t now, unsigned refresh, UnitReading *ret) {
        Manager *m = u->manager;
        bool missing;

        /* Do not clear the buffers, which are large */
        ret->unit = u;
        ret->context = (ReadingContext) {
                .now = now,
                .measured = manager_get_measured(m),
                .probes = u->contention.probes,
                .minimum_samples = m->config.minimum_samples,
        };
        ret->sources = (WindowSources) {};
        if (!u->view)
                return;

        unit_get_sources(u, ret->source_buffer, &ret->sources);
        missing = refresh & READING_MISSING && gauges_are_missing(m, &ret->sources);
        if (refresh & READING_LISTENERS)
                listeners_refresh(m, now, missing);
        if (refresh & READING_IN_FLIGHT)
                gauges_refresh(m, now, missing);
}

void unit_reading_get_gauges(UnitReading *r) {
        reading_get_gauges(&r->context, &r->sources, &r->unit->manager->readings.gauges.sessions);
}

/* Whether writeback is attributed: the io controller is enabled for the unit itself, not only for an
 * ancestor. */
static bool unit_has_io_controller(const Unit *u) {
        char path[PATH_MAX];

        if (!u->control_group)
                return false;
        return snprintf(path, sizeof(path), "/sys/fs/cgroup%s/io.stat",
                        u->control_group) < (int) sizeof(path) && access(path, F_OK) >= 0;
}

bool unit_reading_get_contention(UnitReading *r, bool cells) {
        Unit *u = r->unit;

        if (!u->view || !unit_get_contention_sources(u, r->contention_buffer, &r->contention))
                return false;
        if (cells && u->contention.probes & PROBE_MEMORY)
                faults_refresh(u->manager, r->context.now);
        r->context.writeback = cells && u->contention.probes & PROBE_BLOCK && unit_has_io_controller(u);
        return true;
}

bool unit_reading_get_storage(UnitReading *r) {
        Unit *u = r->unit;

        if (!u->view || !unit_get_storage_sources(u, r->storage_buffer, &r->storage))
                return false;
        storage_calls_refresh(u->manager, r->context.now);
        r->storage.session = u->manager->readings.gauges.storage_session;
        return true;
}

bool unit_reading_get_network(UnitReading *r) {
        Unit *u = r->unit;

        if (!u->view || !unit_get_network_sources(u, r->network_buffer, &r->network))
                return false;
        flows_refresh(u->manager, r->context.now);
        return true;
}

void unit_reading_get_rows(const UnitReading *r, uint64_t window, uint64_t covered, RowsReading *ret) {
        const uint64_t *sessions = is_measured(r->context.measured, MEASURED_ARRIVALS) ?
                r->unit->manager->readings.gauges.sessions.gauges : NULL;

        rows_read(&r->sources, sessions, r->context.now, window, covered, ret);
}

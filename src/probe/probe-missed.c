/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Program runs that the kernel has skipped. */

#include <sys/utsname.h>

#include <bpf/bpf.h>

#include "probe-internal.h"

/* Runs that were skipped as the program was already running on the same CPU. */
uint64_t program_get_missed(Probe *p, Program i) {
        struct bpf_prog_info info = {};
        uint32_t size = sizeof(info);

        if (p->program_fds[i] < 0 || bpf_prog_get_info_by_fd(p->program_fds[i], &info, &size) < 0)
                return 0;
        return info.recursion_misses;
}

/* First version in which tasks can preempt tracepoint programs. Before, only interrupts do, and these do not
 * send on Unix sockets. */
#define PREEMPTIBLE_VERSION_MAJOR 7

static bool tracepoints_are_preemptible(void) {
        struct utsname name;

        return uname(&name) < 0 || strtoul(name.release, NULL, 10) >= PREEMPTIBLE_VERSION_MAJOR;
}

/* Changes of socket states that neither of the two programs has recorded. Without preemption there are none:
 * an interrupt is not interrupted by another one, so that at most two changes are being recorded at a time
 * on a CPU. Counters may differ nevertheless, by interrupts just before or after the second program marks
 * itself as running. A change that is being recorded may be counted by the programs before the kernel counts
 * it. */
static uint64_t states_get_lost(Probe *p) {
        uint64_t skipped, recorded = 0;

        if (p->program_fds[PROGRAM_STATE_NESTED] < 0)
                return program_get_missed(p, PROGRAM_STATE);
        if (p->program_fds[PROGRAM_STATE] >= 0 && !tracepoints_are_preemptible())
                return 0;
        skipped = program_get_missed(p, PROGRAM_STATE_NESTED);
        /* element of an array: cannot fail */
        (void) bpf_map_lookup_elem(p->map_fds[MAP_STATISTICS], &(uint32_t) { QOS_STATISTIC_STATES_RECORDED },
                                   &recorded);
        return skipped > recorded ? skipped - recorded : 0;
}

/* Lost calls on files, including the last ones of exited threads. Other counts are found later by the
 * iterator. */
static uint64_t storage_get_lost(Probe *p) {
        uint64_t lost = program_get_missed(p, PROGRAM_STORAGE_FORK) +
                        program_get_missed(p, PROGRAM_STORAGE_EXIT);

        for (Program i = PROGRAM_STORAGE_PAGES_LOOK_UP; i <= PROGRAM_STORAGE_OPEN_END; i++)
                lost += program_get_missed(p, i);
        return lost;
}

/* Lost samples and discarded packets. What TCP itself counts is found at the next reading; changes of a
 * connection's state and beginnings of recoveries are lost if both of two programs skip them, of which
 * there are at most as many as the one skips that skips less. */
static uint64_t network_get_lost(Probe *p) {
        uint64_t lost = program_get_missed(p, PROGRAM_NETWORK_READ) +
                        program_get_missed(p, PROGRAM_NETWORK_QUEUE) +
                        program_get_missed(p, PROGRAM_NETWORK_XMIT) +
                        program_get_missed(p, PROGRAM_NETWORK_DROP);

        if (tracepoints_are_preemptible())
                lost += MIN(program_get_missed(p, PROGRAM_NETWORK_STATE),
                            program_get_missed(p, PROGRAM_NETWORK_STATE_NESTED)) +
                        MIN(program_get_missed(p, PROGRAM_NETWORK_RECOVERY),
                            program_get_missed(p, PROGRAM_NETWORK_RECOVERY_NESTED));
        return lost;
}

/* Lost runs never decrease. */
void probe_get_missed(Probe *p, MissedRuns *ret) {
        *ret = (MissedRuns) {
                .healed = program_get_missed(p, PROGRAM_CONTENT) + program_get_missed(p, PROGRAM_READ) +
                          (tracepoints_are_preemptible() ? program_get_missed(p, PROGRAM_UNIX) : 0),
                .lost = MAX(p->missed.lost, states_get_lost(p) + program_get_missed(p, PROGRAM_UNIX_CLOSE)),
                .lost_memory = program_get_missed(p, PROGRAM_FAULT_BEGIN) +
                               program_get_missed(p, PROGRAM_FAULT_END) +
                               program_get_missed(p, PROGRAM_RECLAIM_BEGIN) +
                               program_get_missed(p, PROGRAM_RECLAIM_END) +
                               program_get_missed(p, PROGRAM_LIMIT_BEGIN) +
                               program_get_missed(p, PROGRAM_LIMIT_END) +
                               program_get_missed(p, PROGRAM_THROTTLE) + program_get_missed(p, PROGRAM_OOM),
                .lost_storage = storage_get_lost(p),
                .lost_network = network_get_lost(p),
        };
}

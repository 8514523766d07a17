/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Runs of programs that the kernel has skipped. */

#include <sys/utsname.h>

#include <bpf/bpf.h>

#include "probe-internal.h"

/* Runs of a program skipped by the kernel because it was already running on the same CPU. */
uint64_t program_get_missed(Probe *p, Program i) {
        struct bpf_prog_info info = {};
        uint32_t size = sizeof(info);

        if (p->program_fds[i] < 0 || bpf_prog_get_info_by_fd(p->program_fds[i], &info, &size) < 0)
                return 0;
        return info.recursion_misses;
}

/* Before this version, tasks cannot preempt tracepoint programs. Only interrupts do, and these do not send
 * on Unix sockets. */
#define PREEMPTIBLE_VERSION_MAJOR 7

static bool tracepoints_are_preemptible(void) {
        struct utsname name;

        return uname(&name) < 0 || strtoul(name.release, NULL, 10) >= PREEMPTIBLE_VERSION_MAJOR;
}

/* Changes of socket states that neither of the two programs has recorded. Without preemption there are none:
 * a change in an interrupt is not interrupted by another one, so that at most two are being recorded at a
 * time on a CPU. A difference of the counters is then of interrupts just before the second program says that
 * it runs, or just behind that. A change that is just being recorded may be counted by the programs and not
 * yet by the kernel. */
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

/* Calls on files, and the last calls of threads that have exited: those that the iterator would find are not
 * lost. */
static uint64_t storage_get_lost(Probe *p) {
        uint64_t lost = program_get_missed(p, PROGRAM_STORAGE_FORK) +
                        program_get_missed(p, PROGRAM_STORAGE_EXIT);

        for (Program i = PROGRAM_STORAGE_PAGES_LOOK_UP; i <= PROGRAM_STORAGE_OPEN_END; i++)
                lost += program_get_missed(p, i);
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
        };
}

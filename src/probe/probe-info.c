/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* State of programs and memory of maps, for "qosctl probes". */

#include <linux/membarrier.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "probe-internal.h"

/* Memory of a map as accounted by the kernel. */
static uint64_t map_get_memory(int fd) {
        _cleanup_fclose_ FILE *f = NULL;
        char path[64], line[128];
        unsigned long long n;

        (void) snprintf(path, sizeof(path), "/proc/self/fdinfo/%i", fd);
        f = fopen(path, "re");
        if (!f)
                return 0;

        while (fgets(line, sizeof(line), f))
                if (sscanf(line, "memlock: %llu", &n) == 1)
                        return n;
        return 0;
}

/* Maps whose elements the statistics count. */
static const Map lost_maps[QOS_STATISTICS] = {
        [QOS_STATISTIC_LOST_CONNS]           = MAP_CONNS,
        [QOS_STATISTIC_LOST_PIPELINES]       = MAP_PIPELINES,
        [QOS_STATISTIC_LOST_H2_CONNS]        = MAP_H2_CONNS,
        [QOS_STATISTIC_LOST_H2_MORES]        = MAP_H2_MORES,
        [QOS_STATISTIC_LOST_TLS_CONNS]       = MAP_TLS_CONNS,
        [QOS_STATISTIC_LOST_LISTENERS]       = MAP_LISTENERS,
        [QOS_STATISTIC_LOST_UNIX_CONNS]      = MAP_UNIX_CONNS,
        [QOS_STATISTIC_LOST_UNIX_UNRECORDED] = MAP_UNIX_UNRECORDED,
        [QOS_STATISTIC_LOST_UNIX_NAMES]      = MAP_UNIX_NAMES,
        [QOS_STATISTIC_LOST_UDP_SOCKETS]     = MAP_UDP_SOCKETS,
        [QOS_STATISTIC_LOST_UDP_PEERS]       = MAP_UDP_PEERS,
        [QOS_STATISTIC_LOST_UDP_PENDING]     = MAP_UDP_PENDING,
        [QOS_STATISTIC_LOST_PLAINTEXT]       = MAP_PLAINTEXT,
        [QOS_STATISTIC_LOST_PLAINTEXT_H2]    = MAP_PLAINTEXT_H2,
        [QOS_STATISTIC_LOST_OPENSSL_CALLS]   = MAP_OPENSSL_CALLS,
        [QOS_STATISTIC_LOST_GROUPS]          = MAP_GROUPS,
        [QOS_STATISTIC_LOST_THREADS]         = MAP_THREADS,
        [QOS_STATISTIC_LOST_SERVICES]        = MAP_SERVICES,
        [QOS_STATISTIC_LOST_MEMORY_STALLS]   = MAP_MEMORY_STALLS,
        [QOS_STATISTIC_LOST_BLOCKS]          = MAP_BLOCKS,
        [QOS_STATISTIC_LOST_BLOCK_USERS]     = MAP_BLOCK_USERS,
        [QOS_STATISTIC_LOST_LOCK_PLACES]     = MAP_LOCK_PLACES,
        [QOS_STATISTIC_LOST_STORAGE_THREADS] = MAP_STORAGE_THREADS,
        [QOS_STATISTIC_LOST_FLOWS]           = MAP_FLOWS,
        [QOS_STATISTIC_LOST_FLOW_PATHS]      = MAP_FLOW_PATHS,
};

static bool statistics_are_enabled(void) {
        _cleanup_fclose_ FILE *f = NULL;

        f = fopen("/proc/sys/kernel/bpf_stats_enabled", "re");
        return f && fgetc(f) == '1';
}

const char* program_state_to_string(ProgramState s) {
        static const char *const table[_PROGRAM_STATE_MAX] = {
                [PROGRAM_IDLE]        = "idle",
                [PROGRAM_ATTACHED]    = "attached",
                [PROGRAM_UNAVAILABLE] = "unavailable",
        };

        return table[s];
}

void probes_info_done(ProbesInfo *i) {
        for (size_t k = 0; k < i->n_programs; k++)
                free(i->programs[k].reason);
        free(i->programs);
        *i = (ProbesInfo) {};
}

int probe_get_program_info(Probe *p, ProbesInfo *ret) {
        ProbesInfo info = {};
        bool libraries = false;

        for (size_t i = 0; i < p->n_libraries; i++)
                libraries = libraries || p->libraries[i].enter_fd >= 0;

        info.programs = new0(ProgramInfo, _PROGRAM_MAX);
        if (!info.programs)
                return -ENOMEM;
        info.n_programs = _PROGRAM_MAX;

        for (Program i = 0; i < _PROGRAM_MAX; i++) {
                ProgramInfo *program = info.programs + i;

                *program = (ProgramInfo) {
                        .name = program_table[i].name,
                        .probe = program_table[i].probe,
                        .hook = program_table[i].hook,
                        .provides = program_table[i].provides,
                        .state = PROGRAM_IDLE,
                        .runs = ABSENT,
                        .run_nsec = ABSENT,
                        .recursion_misses = ABSENT,
                };

                if (p->link_fds[i] >= 0 || p->program_fds[i] >= 0) {
                        struct bpf_prog_info bpf = {};
                        uint32_t size = sizeof(bpf);

                        program->state = PROGRAM_ATTACHED;
                        if (program_table[i].on_demand && p->link_fds[i] < 0) {
                                program->state = PROGRAM_IDLE;
                                program->reason = strdup(program_table[i].on_demand);
                        } else if (program_table[i].type == HOOK_LIBRARY && !libraries) {
                                program->state = PROGRAM_IDLE;
                                program->reason = strdup(p->library_reason ?: "waits for a process that has "
                                                                              "OpenSSL's library");
                        } else if (program_table[i].type == HOOK_LIBRARY && p->library_limit < 0 &&
                                   asprintf(&program->reason, "not in all libraries: %s",
                                            probe_library_limit_reason(p->library_limit)) < 0)
                                program->reason = NULL;
                        if (bpf_prog_get_info_by_fd(p->program_fds[i], &bpf, &size) >= 0) {
                                program->recursion_misses = bpf.recursion_misses;
                                if (bpf.run_cnt > 0) {
                                        program->runs = bpf.run_cnt;
                                        program->run_nsec = bpf.run_time_ns;
                                }
                        }
                } else if (program_table[i].alternative != 0 &&
                           program_works(p, program_table[i].alternative)) {
                        if (asprintf(&program->reason, "%s is used instead: %s",
                                     program_table[program_table[i].alternative].name,
                                     p->reasons[i] ?: "refused by the kernel") < 0)
                                program->reason = NULL;
                } else if (program_is_superseded(p, i)) {
                        if (asprintf(&program->reason, "%s has all of that",
                                     program_table[program_table[i].unless].name) < 0)
                                program->reason = NULL;
                } else if (p->failure || p->reasons[i]) {
                        program->state = PROGRAM_UNAVAILABLE;
                        program->reason = strdup(p->reasons[i] ?: p->failure);
                }
        }

        *ret = info;
        return 0;
}

int probe_get_info(Probe *p, ProbesInfo *ret) {
        ProbesInfo info;
        int r;

        r = probe_get_program_info(p, &info);
        if (r < 0)
                return r;
        info.statistics_enabled = statistics_are_enabled();
        /* with "requests" only */
        info.map_memory_per_unit = (sizeof(struct qos_unit_map) + 4095) / 4096 * 4096;

        for (Map i = 0; i < _MAP_MAX; i++)
                if (p->map_fds[i] >= 0) {
                        struct bpf_map_info map = {};
                        uint32_t size = sizeof(map);

                        info.map_memory += map_get_memory(p->map_fds[i]);
                        if ((i == MAP_CONNS || i == MAP_PIPELINES) &&
                            bpf_map_get_info_by_fd(p->map_fds[i], &map, &size) >= 0)
                                info.memory_per_socket += map.value_size;
                }
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                const int fds[] = { p->unit_fds[i], p->contention_fds[i], p->shards_fds[i],
                                    p->storage_fds[i], p->network_fds[i] };

                for (size_t k = 0; k < ELEMENTSOF(fds); k++)
                        if (fds[k] >= 0)
                                info.map_memory += map_get_memory(fds[k]);
        }
        if (p->machine_fd >= 0)
                info.map_memory += map_get_memory(p->machine_fd);

        if (p->map_fds[MAP_STATISTICS] >= 0)
                for (uint32_t i = 0; i < QOS_STATISTICS; i++) {
                        uint64_t n = 0;

                        /* Skipped runs are not a number of events */
                        if (i < QOS_STATISTIC_SEGMENTS_LOST ||
                            bpf_map_lookup_elem(p->map_fds[MAP_STATISTICS], &i, &n) < 0 || n == 0)
                                continue;
                        info.drops += n;
                        if (i >= QOS_STATISTIC_LOST_CONNS)
                                info.losses[info.n_losses++] = (ElementLoss) {
                                        .map = map_table[lost_maps[i]],
                                        .n = n,
                                };
                }

        *ret = info;
        return 0;
}

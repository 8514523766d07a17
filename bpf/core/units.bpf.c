// SPDX-License-Identifier: GPL-2.0-or-later

/* Assigns control groups to observed units when they are created */

#include "maps.h"

char LICENSE[] SEC("license") = "GPL";

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        /* paths of 256 units, their sockets and instances */
        __uint(max_entries, 1024);
        __type(key, struct qos_path);
        __type(value, struct qos_owner);
} paths SEC(".maps");

BPF_ARRAY_MAP(path_scratch, PERCPU_ARRAY, 1, struct qos_path);

struct cgroup* bpf_cgroup_ancestor(struct cgroup *cgrp, int level) __ksym;
void bpf_cgroup_release(struct cgroup *cgrp) __ksym;

static __always_inline __u64 group_id(const struct cgroup *group) {
        return BPF_CORE_READ(group, kn, id);
}

/* Service managers do not create deeper groups (cgroup.max.depth is far higher). */
#define GROUP_DEPTH_MAX 32

/* TRACE_CGROUP_PATH_LEN: maximum length passed by the tracepoint */
#define KERNEL_PATH_MAX 1024

struct path_walk {
        const char *path;
        int parts;      /* remaining components to skip */
        int offset;     /* of the remaining path; -1: none */
};

static long path_step(__u64 i, void *data) {
        struct path_walk *w = data;
        char c;

        if (bpf_probe_read_kernel(&c, 1, w->path + i) < 0 || c == 0)
                return 1;
        if (c == '/' && w->parts-- == 0) {
                w->offset = i;
                return 1;
        }
        return 0;
}

struct path_cut {
        int at;         /* index of "@" in the last component; -1: none */
};

static long path_cut_step(__u64 i, void *data) {
        struct path_cut *cut = data;
        __u32 zero = 0;
        struct qos_path *p = bpf_map_lookup_elem(&path_scratch, &zero);

        if (!p || i >= sizeof(p->path) || p->path[i] == 0)
                return 1;
        if (p->path[i] == '/')
                cut->at = -1;
        else if (p->path[i] == '@' && cut->at < 0)
                cut->at = i;
        return 0;
}

static long path_clear_step(__u64 i, void *data) {
        struct path_cut *cut = data;
        __u32 zero = 0;
        struct qos_path *p = bpf_map_lookup_elem(&path_scratch, &zero);

        if (!p || i >= sizeof(p->path))
                return 1;
        if ((int) i > cut->at)
                p->path[i] = 0;
        return 0;
}

/* Owner of a group by its path relative to the root of the daemon. */
static __always_inline struct qos_owner* path_owner(struct cgroup *group, const char *path) {
        struct path_walk walk = { .offset = -1 };
        struct path_cut cut = { .at = -1 };
        int level = group->level, root_level = -1;
        struct qos_owner *owner;
        struct qos_path *p;
        __u32 zero = 0;

        /* Depth of the daemon's root: number of leading components to skip */
        for (int i = 0; i < GROUP_DEPTH_MAX && i < level; i++) {
                struct cgroup *ancestor;

                if (bpf_core_read(&ancestor, sizeof(ancestor), &group->ancestors[i]) < 0)
                        return NULL;
                if (group_id(ancestor) == root_group_id) {
                        root_level = i;
                        break;
                }
        }
        if (root_level < 0)
                return NULL;

        p = bpf_map_lookup_elem(&path_scratch, &zero);
        if (!p)
                return NULL;
        walk.path = path;
        walk.parts = root_level;
        bpf_loop(KERNEL_PATH_MAX, path_step, &walk, 0);
        if (walk.offset < 0)
                return NULL;

        for (int i = 0; i < QOS_PATH_SIZE / 8; i++)
                ((volatile __u64*) p->path)[i] = 0;
        if (bpf_probe_read_kernel_str(p->path, sizeof(p->path), path + walk.offset) < 0)
                return NULL;

        owner = bpf_map_lookup_elem(&paths, p);
        if (owner)
                return owner;

        /* "foo@1.service": all instances "foo@" may belong to a unit */
        bpf_loop(QOS_PATH_SIZE, path_cut_step, &cut, 0);
        if (cut.at < 0)
                return NULL;
        bpf_loop(QOS_PATH_SIZE, path_clear_step, &cut, 0);
        return bpf_map_lookup_elem(&paths, p);
}

/* Runs before the directory is visible, and before any task can be in it. The owner is found by the group's
 * own path, or else inherited from the parent group. */
SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(units_mkdir, struct cgroup *group, const char *path) {
        struct qos_owner *known, outer, owner = {};
        struct cgroup *parent;

        if (group->root->hierarchy_id != 0 || group->level == 0)
                return 0;

        known = path_owner(group, path);
        if (known && unit_get(known))
                owner = owner_read(known);
        else {
                parent = bpf_cgroup_ancestor(group, group->level - 1);
                if (!parent)
                        return 0;
                if (group_owner(parent, &outer) && unit_get(&outer))
                        owner = outer;
                bpf_cgroup_release(parent);
                if (owner.generation == 0)
                        return 0;
        }

        /* Fails without memory and, before Linux 7.0, if this has interrupted another use of group storage
         * on this CPU, such as an attach. Then the daemon finds the group: manager_find_lost_groups() */
        if (!bpf_cgrp_storage_get(&groups, group, &owner, BPF_LOCAL_STORAGE_GET_F_CREATE))
                element_lost(QOS_STATISTIC_LOST_GROUPS, &owner);
        return 0;
}

/* Increase of a statistic since the last call. */
static __always_inline __u32 runs_take(__u32 statistic, __u64 *seen) {
        __u64 *n = bpf_map_lookup_elem(&statistics, &statistic), now, old;

        if (!n)
                return 0;
        now = *n;
        old = __sync_lock_test_and_set(seen, now);
        return now > old ? now - old : 0; /* smaller if the programs were reloaded */
}

static __attribute__((noinline)) int units_count_missed(struct qos_unit_map *u, __u32 slot) {
        const struct qos_probe_config *config = bpf_map_lookup_elem(&probe_configs, &slot);
        __u32 probes, missed, lost, lost_memory, lost_storage, lost_network, lost_by_probes;

        if (!u || !config)
                return 0;
        probes = config->generation == u->generation ? config->probes : 0;
        missed = runs_take(QOS_STATISTIC_RUNS_MISSED, &u->missed);
        lost = runs_take(QOS_STATISTIC_RUNS_LOST, &u->lost);
        lost_memory = runs_take(QOS_STATISTIC_RUNS_LOST_MEMORY, &u->lost_memory);
        lost_storage = runs_take(QOS_STATISTIC_RUNS_LOST_STORAGE, &u->lost_storage);
        lost_network = runs_take(QOS_STATISTIC_RUNS_LOST_NETWORK, &u->lost_network);
        lost_by_probes = (probes & QOS_PROBE_CONFIG_MEMORY ? lost_memory : 0) +
                         (probes & QOS_PROBE_CONFIG_STORAGE ? lost_storage : 0) +
                         (probes & QOS_PROBE_CONFIG_NETWORK ? lost_network : 0);
        if (missed == 0 && lost == 0 && lost_by_probes == 0)
                return 0;
        window_advance(u, bpf_ktime_get_ns());
        if (missed > 0)
                window_count(u, QOS_COUNTER_MISSED, missed);
        if (lost > 0)
                window_count(u, QOS_COUNTER_DROPS, lost);
        if (lost_by_probes > 0)
                window_count(u, QOS_COUNTER_DROPS_CONTENTION, lost_by_probes);
        return 0;
}

static long end_export_step(struct bpf_map *map, const __u32 *slot, const struct qos_hierarchy *h,
                            void *data) {
        struct qos_owner owner = { .slot = *slot, .generation = h->generation };
        struct qos_unit_map *u;

        if (owner.generation == 0)
                return 0;
        u = unit_get(&owner);
        if (!u)
                return 0;
        units_count_missed(u, owner.slot);
        if (h->flags & QOS_HIERARCHY_EXPORT_ENDED)
                __sync_lock_test_and_set(&u->retired, 1);
        return 0;
}

/* Writes to maps of units on behalf of the daemon, which cannot do so once they are frozen: skipped program
 * runs, and the end of exports. */
SEC("syscall")
int units_end_exports(void *ctx) {
        bpf_for_each_map_elem(&hierarchies, end_export_step, NULL, 0);
        return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later

/* The control groups of observed units, as they are made. */

#include "maps.h"

char LICENSE[] SEC("license") = "GPL";

/* The inode of the daemon's root control group. In a container it is not the hierarchy's root. */
const volatile __u64 root_group_id = 1;

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        /* of 256 units: also those of their sockets, or of their instances */
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

/* Deeper than this no service manager builds (cgroup.max.depth is far above). */
#define GROUP_DEPTH_MAX 32

/* TRACE_CGROUP_PATH_LEN: what the tracepoint hands over at most */
#define KERNEL_PATH_MAX 1024

struct path_walk {
        const char *path;
        int parts;      /* to skip */
        int offset;     /* of what remains; -1: nothing does */
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
        int at;         /* the "@" in the last part of the path; -1: none */
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

/* Whose a group of this path is by itself: the path as the daemon sees it, without what is above its
 * root. */
static __always_inline struct qos_owner* path_owner(struct cgroup *group, const char *path) {
        struct path_walk walk = { .offset = -1 };
        struct path_cut cut = { .at = -1 };
        int level = group->level, root_level = -1;
        struct qos_owner *owner;
        struct qos_path *p;
        __u32 zero = 0;

        /* How deep the daemon's root lies: so many parts of the path are not the daemon's to see */
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

        /* "foo@1.service": perhaps all "foo@" are one unit's */
        bpf_loop(QOS_PATH_SIZE, path_cut_step, &cut, 0);
        if (cut.at < 0)
                return NULL;
        bpf_loop(QOS_PATH_SIZE, path_clear_step, &cut, 0);
        return bpf_map_lookup_elem(&paths, p);
}

/* Runs before the directory is visible, so before any task can be in it. A group is the innermost unit's:
 * that of its own path, or else that of the group it is made in. */
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

        /* Without memory, and before Linux 7.0 where this has interrupted something on its CPU that is using
         * the storage of another group (the daemon at an attach, for one), there is none. The daemon finds
         * the group then: manager_find_lost_groups() */
        if (!bpf_cgrp_storage_get(&groups, group, &owner, BPF_LOCAL_STORAGE_GET_F_CREATE))
                element_lost(QOS_STATISTIC_LOST_GROUPS, &owner);
        return 0;
}

/* The increase of a statistic since the last call. */
static __always_inline __u32 runs_take(__u32 statistic, __u64 *seen) {
        __u64 *n = bpf_map_lookup_elem(&statistics, &statistic), now, old;

        if (!n)
                return 0;
        now = *n;
        old = __sync_lock_test_and_set(seen, now);
        return now > old ? now - old : 0; /* else nothing is new, or the programs are */
}

static __attribute__((noinline)) int units_count_missed(struct qos_unit_map *u, __u32 slot) {
        const struct qos_probe_config *config = bpf_map_lookup_elem(&probe_configs, &slot);
        __u32 missed, lost, lost_memory;

        if (!u || !config)
                return 0;
        missed = runs_take(QOS_STATISTIC_RUNS_MISSED, &u->missed);
        lost = runs_take(QOS_STATISTIC_RUNS_LOST, &u->lost);
        lost_memory = runs_take(QOS_STATISTIC_RUNS_LOST_MEMORY, &u->lost_memory);
        if (config->generation != u->generation || !(config->probes & QOS_PROBE_CONFIG_MEMORY))
                lost_memory = 0;
        if (missed == 0 && lost == 0 && lost_memory == 0)
                return 0;
        window_advance(u, bpf_ktime_get_ns());
        if (missed > 0)
                window_count(u, QOS_COUNTER_MISSED, missed);
        if (lost > 0)
                window_count(u, QOS_COUNTER_DROPS, lost);
        if (lost_memory > 0)
                window_count(u, QOS_COUNTER_DROPS_CONTENTION, lost_memory);
        return 0;
}

static long end_export_step(struct bpf_map *map, const __u32 *slot, const struct qos_hierarchy *nest,
                            void *data) {
        struct qos_owner owner = { .slot = *slot, .generation = nest->generation };
        struct qos_unit_map *u;

        if (owner.generation == 0)
                return 0;
        u = unit_get(&owner);
        if (!u)
                return 0;
        units_count_missed(u, owner.slot);
        if (nest->flags & QOS_HIERARCHY_EXPORT_ENDED)
                __sync_lock_test_and_set(&u->retired, 1);
        return 0;
}

/* What the daemon writes to the maps of units, in which only programs can write once they are frozen: that
 * runs of programs were skipped, and, for those who were given the map, that it is of no use any more. */
SEC("syscall")
int units_end_exports(void *ctx) {
        bpf_for_each_map_elem(&hierarchies, end_export_step, NULL, 0);
        return 0;
}

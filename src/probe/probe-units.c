/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <linux/membarrier.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "probe-internal.h"

/* ---- OpenSSL's library -------------------------------------------------------------------------------- */

void probe_set_config(Probe *p, unsigned slot, uint32_t generation, ProbeMask probes, uint32_t slow_usec) {
        struct qos_probe_config watch = {
                .generation = generation,
                .probes = (probes & PROBE_TLS ? QOS_PROBE_CONFIG_TLS : 0) |
                          (probes & PROBE_MEMORY ? QOS_PROBE_CONFIG_MEMORY : 0) |
                          (probes & PROBE_BLOCK ? QOS_PROBE_CONFIG_BLOCK : 0) |
                          (probes & PROBE_STORAGE ? QOS_PROBE_CONFIG_STORAGE : 0) |
                          (probes & PROBE_NETWORK ? QOS_PROBE_CONFIG_NETWORK : 0),
                .slow_usec = slow_usec,
        };

        if (p->started)
                /* element of an array: cannot fail */
                (void) bpf_map_update_elem(p->map_fds[MAP_PROBE_CONFIGS], &slot, &watch, BPF_ANY);
}

/* ---- units -------------------------------------------------------------------------------------------- */

int unit_map_view(int fd, struct qos_unit_map **ret) {
        void *view;

        view = mmap(NULL, sizeof(struct qos_unit_map), PROT_READ, MAP_SHARED, fd, 0);
        if (view == MAP_FAILED)
                return -errno;

        *ret = view;
        return 0;
}

int probe_add_unit(Probe *p, unsigned slot, uint32_t generation, uint64_t now,
                   const struct qos_unit_map **ret_view) {
        LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
        _cleanup_free_ struct qos_unit_map *initial = NULL;
        _cleanup_close_ int fd = -EBADF;
        struct qos_unit_map *view = NULL;
        MissedRuns missed;
        uint32_t zero = 0;
        int r;

        assert(p->started);
        assert(slot < UNITS_MAX_LIMIT);

        /* The descriptor store may have been modified by others */
        probe_remove_unit(p, slot);

        fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "qosd_unit", sizeof(uint32_t), sizeof(struct qos_unit_map),
                            1, &options);
        if (fd < 0)
                return fd;

        initial = new0(struct qos_unit_map, 1);
        if (!initial)
                return -ENOMEM;
        initial->generation = generation;
        probe_get_missed(p, &missed);
        initial->missed = missed.healed;
        initial->lost = missed.lost;
        initial->lost_memory = missed.lost_memory;
        initial->lost_storage = missed.lost_storage;
        initial->lost_network = missed.lost_network;
        initial->epoch = now / QOS_EPOCH_NSEC;
        initial->epoch_end = (initial->epoch + 1) * QOS_EPOCH_NSEC;

        r = bpf_map_update_elem(fd, &zero, initial, BPF_ANY);
        if (r < 0)
                return r;

        /* From now on only programs can write */
        r = bpf_map_freeze(fd);
        if (r < 0)
                return r;

        r = unit_map_view(fd, &view);
        if (r < 0)
                return r;

        r = bpf_map_update_elem(p->map_fds[MAP_UNITS], &slot, &(int) { fd }, BPF_ANY);
        if (r < 0) {
                (void) munmap(view, sizeof(struct qos_unit_map));
                return r;
        }

        store_push_unit(p, "unit", slot, fd);
        p->unit_fds[slot] = TAKE_FD(fd);
        p->views[slot] = view;
        *ret_view = view;
        return 0;
}

void probe_remove_unit(Probe *p, unsigned slot) {
        assert(slot < UNITS_MAX_LIMIT);

        /* After a crash these may exist alone */
        probe_remove_contention(p, slot);
        probe_remove_storage(p, slot);
        probe_remove_network(p, slot);
        if (p->unit_fds[slot] < 0)
                return;

        (void) bpf_map_delete_elem(p->map_fds[MAP_UNITS], &slot);
        store_drop_unit("unit", slot);
        if (p->views[slot])
                (void) munmap(p->views[slot], sizeof(struct qos_unit_map));
        p->views[slot] = NULL;
        p->unit_fds[slot] = close_fd(p->unit_fds[slot]);
}

bool probe_has_unit(const Probe *p, unsigned slot) {
        assert(slot < UNITS_MAX_LIMIT);

        return p->unit_fds[slot] >= 0 || p->contention_fds[slot] >= 0 || p->shards_fds[slot] >= 0 ||
                p->storage_fds[slot] >= 0 || p->network_fds[slot] >= 0;
}

int probe_assign_cgroup(Probe *p, int fd, unsigned slot, uint32_t generation) {
        struct qos_owner owner = { .slot = slot, .generation = generation };

        assert(p->started);
        return bpf_map_update_elem(p->map_fds[MAP_GROUPS], &fd, &owner, BPF_ANY);
}

void probe_unassign_cgroup(Probe *p, int fd) {
        if (p->started)
                (void) bpf_map_delete_elem(p->map_fds[MAP_GROUPS], &fd);
}

int probe_get_group_owner(Probe *p, int fd, struct qos_owner *ret) {
        assert(p->started);
        return bpf_map_lookup_elem(p->map_fds[MAP_GROUPS], &fd, ret);
}

void probe_set_hierarchy(Probe *p, unsigned slot, const struct qos_hierarchy *hierarchy) {
        if (p->started)
                /* element of an array: cannot fail */
                (void) bpf_map_update_elem(p->map_fds[MAP_HIERARCHIES], &slot, hierarchy, BPF_ANY);
}

static int path_key(const char *path, struct qos_path *ret) {
        if (strlen(path) >= sizeof(ret->path))
                return -ENAMETOOLONG;

        *ret = (struct qos_path) {};
        memcpy(ret->path, path, strlen(path));
        return 0;
}

int probe_assign_path(Probe *p, const char *path, unsigned slot, uint32_t generation) {
        struct qos_owner owner = { .slot = slot, .generation = generation };
        struct qos_path key;
        int r;

        assert(p->started);

        r = path_key(path, &key);
        if (r < 0)
                return r;
        return bpf_map_update_elem(p->map_fds[MAP_PATHS], &key, &owner, BPF_ANY);
}

void probe_unassign_path(Probe *p, const char *path) {
        struct qos_path key;

        if (p->started && path_key(path, &key) >= 0)
                (void) bpf_map_delete_elem(p->map_fds[MAP_PATHS], &key);
}

/* ---- iterators ---------------------------------------------------------------------------------------- */

int probe_get_unit_fd(Probe *p, unsigned slot) {
        assert(slot < UNITS_MAX_LIMIT);

        return program_works(p, PROGRAM_END_EXPORTS) ? p->unit_fds[slot] : -EOPNOTSUPP;
}

int probe_end_export(Probe *p, unsigned slot) {
        struct qos_hierarchy before, after;
        int r;

        if (!p->started || !p->views[slot])
                return 0;
        r = bpf_map_lookup_elem(p->map_fds[MAP_HIERARCHIES], &slot, &before);
        if (r < 0)
                return r;

        after = before;
        after.generation = p->views[slot]->generation;
        after.flags |= QOS_HIERARCHY_EXPORT_ENDED;
        probe_set_hierarchy(p, slot, &after);
        r = iterator_run(p, PROGRAM_END_EXPORTS, NULL);
        probe_set_hierarchy(p, slot, &before);
        return r;
}

static bool address_equal(const struct qos_address *a, const struct qos_address *b) {
        return memcmp(a, b, sizeof(struct qos_address)) == 0;
}

int probe_set_addresses(Probe *p, unsigned slot, uint32_t generation, const struct qos_address *addresses,
                        size_t n) {
        struct qos_owner owner = { .slot = slot, .generation = generation };
        struct qos_address key, next;
        int fd = p->map_fds[MAP_ADDRESSES], r;
        bool more;

        if (!p->started)
                return 0;

        more = bpf_map_get_next_key(fd, NULL, &next) >= 0;
        while (more) {
                struct qos_owner other;
                bool keep = false;

                key = next;
                more = bpf_map_get_next_key(fd, &key, &next) >= 0;
                if (bpf_map_lookup_elem(fd, &key, &other) < 0 || other.slot != slot)
                        continue;
                for (size_t i = 0; i < n; i++)
                        keep = keep || address_equal(addresses + i, &key);
                if (!keep)
                        (void) bpf_map_delete_elem(fd, &key);
        }

        for (size_t i = 0; i < n; i++) {
                r = bpf_map_update_elem(fd, addresses + i, &owner, BPF_ANY);
                if (r < 0)
                        return r;
        }
        return 0;
}

int probe_set_excludes(Probe *p, unsigned slot, uint32_t generation, const ExcludeList *excludes) {
        struct qos_filter filter = { .generation = generation };
        int fd = p->map_fds[MAP_EXCLUDES], r;
        struct qos_exclude key, next;
        bool more, changed = false;

        if (!p->started)
                return 0;

        more = bpf_map_get_next_key(fd, NULL, &next) >= 0;
        while (more) {
                bool keep = false;

                key = next;
                more = bpf_map_get_next_key(fd, &key, &next) >= 0;
                if (key.owner.slot != slot)
                        continue;
                for (size_t i = 0; i < excludes->n; i++)
                        keep = keep ||
                               (key.owner.generation == generation && key.kind == excludes->list[i].kind &&
                                        key.name == excludes->list[i].name);
                if (!keep) {
                        (void) bpf_map_delete_elem(fd, &key);
                        changed = changed || key.kind == QOS_EXCLUDE_PORT;
                }
        }

        for (size_t i = 0; i < excludes->n; i++) {
                key = (struct qos_exclude) {
                        .owner = { .slot = slot, .generation = generation },
                        .name = excludes->list[i].name,
                        .kind = excludes->list[i].kind,
                };
                if (key.kind != QOS_EXCLUDE_PORT)
                        filter.names = 1;
                r = bpf_map_update_elem(fd, &key, &(uint8_t) { 1 }, BPF_NOEXIST);
                if (r < 0 && r != -EEXIST)
                        return r;
                changed = changed || (r >= 0 && key.kind == QOS_EXCLUDE_PORT);
        }
        r = bpf_map_update_elem(p->map_fds[MAP_FILTERS], &slot, &filter, BPF_ANY);
        if (r < 0 || !changed)
                return r;

        /* Twice, as connections that are created during the first run may inherit from a listener that is
         * not updated yet */
        r = iterator_run(p, PROGRAM_RETARGET, NULL);
        if (r >= 0)
                r = iterator_run(p, PROGRAM_RETARGET, NULL);
        if (r >= 0)
                r = iterator_run(p, PROGRAM_RETARGET_UDP, NULL);
        return r;
}

int probe_find_activation_sockets(Probe *p, struct qos_activation_socket **ret, size_t *ret_n) {
        _cleanup_free_ struct qos_activation_socket *passed = NULL;
        _cleanup_close_ int fd = -EBADF;
        size_t size = 0, allocated = 0;

        if (p->link_fds[PROGRAM_FIND_ACTIVATED] < 0)
                return -EOPNOTSUPP;

        fd = bpf_iter_create(p->link_fds[PROGRAM_FIND_ACTIVATED]);
        if (fd < 0)
                return fd;

        for (;;) {
                ssize_t n;

                if (size == allocated) {
                        struct qos_activation_socket *more;

                        allocated += 64 * sizeof(struct qos_activation_socket);
                        more = realloc(passed, allocated);
                        if (!more)
                                return -ENOMEM;
                        passed = more;
                }

                n = read(fd, (char*) passed + size, allocated - size);
                if (n < 0) {
                        if (errno == EAGAIN || errno == EINTR)
                                continue;
                        return -errno;
                }
                if (n == 0)
                        break;
                size += n;
        }

        *ret = TAKE_PTR(passed);
        *ret_n = size / sizeof(struct qos_activation_socket);
        return 0;
}

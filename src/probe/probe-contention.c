/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <linux/membarrier.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "probe-internal.h"

/* Number of elements of the per-CPU map: possible CPUs and extra elements. */
unsigned shards_number(void) {
        return (unsigned) libbpf_num_possible_cpus() + QOS_CONTENTION_CPUS_MORE;
}

static size_t shards_size(void) {
        size_t page = (size_t) sysconf(_SC_PAGESIZE);

        return (shards_number() * sizeof(struct qos_contention_cpu) + page - 1) / page * page;
}

void contention_close(Probe *p, unsigned slot) {
        if (p->contentions[slot])
                (void) munmap(p->contentions[slot], sizeof(struct qos_contention_map));
        if (p->contention_cpus[slot])
                (void) munmap(p->contention_cpus[slot], shards_size());
        p->contentions[slot] = NULL;
        p->contention_cpus[slot] = NULL;
        p->contention_fds[slot] = close_fd(p->contention_fds[slot]);
        p->shards_fds[slot] = close_fd(p->shards_fds[slot]);
}

void machine_close(Probe *p) {
        if (p->machine)
                (void) munmap(p->machine, sizeof(struct qos_contention_map));
        p->machine = NULL;
        p->machine_fd = close_fd(p->machine_fd);
}

/* ---- loading ------------------------------------------------------------------------------------------ */

int shards_make_map(uint32_t contention, uint64_t epoch_end) {
        LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
        struct qos_contention_cpu initial = { .generation = contention, .epoch_end = epoch_end };
        _cleanup_close_ int fd = -EBADF;
        int r;

        fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "qosd_shards", sizeof(uint32_t),
                            sizeof(struct qos_contention_cpu), shards_number(), &options);
        if (fd < 0)
                return fd;
        for (uint32_t i = 0; i < shards_number(); i++) {
                r = bpf_map_update_elem(fd, &i, &initial, BPF_ANY);
                if (r < 0)
                        return r;
        }
        r = bpf_map_freeze(fd);
        return r < 0 ? r : TAKE_FD(fd);
}

/* ---- contention --------------------------------------------------------------------------------------- */

static int contention_map_views(Probe *p, unsigned slot) {
        void *contention, *contention_cpus;

        contention = mmap(NULL, sizeof(struct qos_contention_map), PROT_READ, MAP_SHARED,
                          p->contention_fds[slot], 0);
        if (contention == MAP_FAILED)
                return -errno;
        contention_cpus = mmap(NULL, shards_size(), PROT_READ, MAP_SHARED, p->shards_fds[slot], 0);
        if (contention_cpus == MAP_FAILED) {
                int r = -errno;

                (void) munmap(contention, sizeof(struct qos_contention_map));
                return r;
        }

        p->contentions[slot] = contention;
        p->contention_cpus[slot] = contention_cpus;
        return 0;
}

static int contention_make_map(struct qos_contention_map *initial) {
        LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
        _cleanup_close_ int fd = -EBADF;
        int r;

        fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "qosd_contention", sizeof(uint32_t),
                            sizeof(struct qos_contention_map), 1, &options);
        if (fd < 0)
                return fd;
        r = bpf_map_update_elem(fd, &(uint32_t) { 0 }, initial, BPF_ANY);
        if (r >= 0)
                r = bpf_map_freeze(fd);
        return r < 0 ? r : TAKE_FD(fd);
}

int probe_add_contention(Probe *p, unsigned slot, uint32_t generation, const ContentionBegin *begin,
                         const struct qos_contention_map **ret_contention,
                         const struct qos_contention_cpu **ret_shards) {
        _cleanup_free_ struct qos_contention_map *initial = NULL;
        int r;

        assert(p->started);
        assert(slot < UNITS_MAX_LIMIT);

        probe_remove_contention(p, slot);

        initial = new0(struct qos_contention_map, 1);
        if (!initial)
                return -ENOMEM;
        initial->generation = begin->generation;
        initial->unit = generation;
        initial->contention_cpus = shards_number();
        initial->epoch = begin->now / QOS_EPOCH_NSEC;
        initial->served = begin->served;

        r = p->shards_fds[slot] = shards_make_map(begin->generation, (initial->epoch + 1) * QOS_EPOCH_NSEC);
        if (r >= 0)
                r = p->contention_fds[slot] = contention_make_map(initial);
        if (r >= 0)
                r = contention_map_views(p, slot);
        /* In this order, as a program that finds the latter expects the former */
        if (r >= 0)
                r = bpf_map_update_elem(p->map_fds[MAP_CONTENTION_CPUS], &slot, &p->shards_fds[slot],
                        BPF_ANY);
        if (r >= 0)
                r = bpf_map_update_elem(p->map_fds[MAP_CONTENTION_MAPS], &slot, &p->contention_fds[slot],
                                        BPF_ANY);
        if (r < 0) {
                (void) bpf_map_delete_elem(p->map_fds[MAP_CONTENTION_CPUS], &slot);
                contention_close(p, slot);
                return r;
        }

        store_push_unit(p, "shards", slot, p->shards_fds[slot]);
        store_push_unit(p, "contention", slot, p->contention_fds[slot]);
        *ret_contention = p->contentions[slot];
        *ret_shards = p->contention_cpus[slot];
        return 0;
}

void probe_remove_contention(Probe *p, unsigned slot) {
        assert(slot < UNITS_MAX_LIMIT);

        /* After a crash only one of them may exist */
        if (p->contention_fds[slot] < 0 && p->shards_fds[slot] < 0)
                return;
        (void) bpf_map_delete_elem(p->map_fds[MAP_CONTENTION_MAPS], &slot);
        (void) bpf_map_delete_elem(p->map_fds[MAP_CONTENTION_CPUS], &slot);
        store_drop_contention(p, slot);
        contention_close(p, slot);
}

int probe_adopt_contention(Probe *p, unsigned slot, uint32_t generation,
                           const struct qos_contention_map **ret_contention,
                           const struct qos_contention_cpu **ret_shards) {
        int r;

        if (!p->started || slot >= UNITS_MAX_LIMIT || p->contention_fds[slot] < 0 || p->shards_fds[slot] < 0)
                return -ENOENT;

        if (!p->contentions[slot]) {
                r = contention_map_views(p, slot);
                if (r < 0)
                        return r;
        }
        if (p->contentions[slot]->unit != generation ||
                        p->contentions[slot]->contention_cpus != shards_number())
                return -ESTALE;

        *ret_contention = p->contentions[slot];
        *ret_shards = p->contention_cpus[slot];
        return 0;
}

int probe_add_machine(Probe *p, uint32_t contention, uint64_t now, const struct qos_contention_map **ret) {
        struct qos_contention_map *initial;
        uint32_t slot = QOS_SLOT_MACHINE;
        void *view;
        int r;

        assert(p->started);
        assert(p->machine_fd < 0);

        initial = new0(struct qos_contention_map, 1);
        if (!initial)
                return -ENOMEM;
        initial->generation = contention;
        initial->epoch = now / QOS_EPOCH_NSEC;
        r = p->machine_fd = contention_make_map(initial);
        free(initial);
        if (r < 0)
                return r;
        view = mmap(NULL, sizeof(struct qos_contention_map), PROT_READ, MAP_SHARED, p->machine_fd, 0);
        r = view == MAP_FAILED ? -errno : 0;
        if (r >= 0) {
                p->machine = view;
                r = bpf_map_update_elem(p->map_fds[MAP_CONTENTION_MAPS], &slot, &p->machine_fd, BPF_ANY);
        }
        if (r < 0) {
                machine_close(p);
                return r;
        }
        *ret = p->machine;
        return 0;
}

void probe_remove_machine(Probe *p) {
        uint32_t slot = QOS_SLOT_MACHINE;

        if (p->machine_fd < 0)
                return;
        (void) bpf_map_delete_elem(p->map_fds[MAP_CONTENTION_MAPS], &slot);
        machine_close(p);
}

int probe_get_devices(Probe *p, struct qos_block_devices *ret) {
        uint32_t zero = 0;

        if (!p->started)
                return -ENODATA;
        return bpf_map_lookup_elem(p->map_fds[MAP_BLOCK_DEVICES], &zero, ret);
}

static int block_user_compare(const void *a, const void *b) {
        return memcmp(&((const BlockUser*) a)->user, &((const BlockUser*) b)->user,
                      sizeof(struct qos_block_user));
}

const struct qos_block_use* block_users_find(const BlockUser *users, size_t n,
                                             const struct qos_block_user *user) {
        const BlockUser key = { .user = *user }, *found;

        found = bsearch(&key, users, n, sizeof(BlockUser), block_user_compare);
        return found ? &found->use : NULL;
}

int probe_get_block_users(Probe *p, BlockUser **ret, size_t *ret_n) {
        _cleanup_free_ struct qos_block_user *users = NULL;
        _cleanup_free_ struct qos_block_use *uses = NULL;
        struct bpf_map_info info = {};
        uint32_t size = sizeof(info), n, at;
        BlockUser *all;
        int r;

        if (!p->started)
                return -ENODATA;
        /* Scales with the number of CPUs, see LRU_ELEMENTS_PER_CPU */
        r = bpf_map_get_info_by_fd(p->map_fds[MAP_BLOCK_USERS], &info, &size);
        if (r < 0)
                return r;

        n = info.max_entries;
        users = new0(struct qos_block_user, n);
        uses = new0(struct qos_block_use, n);
        if (!users || !uses)
                return -ENOMEM;
        r = bpf_map_lookup_batch(p->map_fds[MAP_BLOCK_USERS], NULL, &at, users, uses, &n, NULL);
        if (r < 0 && r != -ENOENT) /* -ENOENT: end of the map */
                return r;

        all = new0(BlockUser, MAX(n, 1U));
        if (!all)
                return -ENOMEM;
        for (uint32_t i = 0; i < n; i++)
                all[i] = (BlockUser) { .user = users[i], .use = uses[i] };
        qsort(all, n, sizeof(BlockUser), block_user_compare);
        *ret = all;
        *ret_n = n;
        return 0;
}

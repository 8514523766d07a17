/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Storage maps of units. */

#include <stdarg.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "probe-internal.h"

static uint32_t storage_elements(void) {
        return QOS_STORAGE_ELEMENTS((uint32_t) libbpf_num_possible_cpus());
}

static size_t storage_size(void) {
        size_t page = (size_t) sysconf(_SC_PAGESIZE);

        return (storage_elements() * sizeof(union qos_storage_element) + page - 1) / page * page;
}

void storage_close(Probe *p, unsigned slot) {
        if (p->storages[slot])
                (void) munmap(p->storages[slot], storage_size());
        p->storages[slot] = NULL;
        p->storage_fds[slot] = close_fd(p->storage_fds[slot]);
}

int storage_make_map(const struct qos_storage_header *header) {
        LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
        _cleanup_free_ union qos_storage_element *initial = NULL;
        _cleanup_close_ int fd = -EBADF;
        uint32_t first = QOS_STORAGE_HEADER;
        int r;

        fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "qosd_storage", sizeof(uint32_t),
                            sizeof(union qos_storage_element), storage_elements(), &options);
        if (fd < 0)
                return fd;
        initial = new0(union qos_storage_element, 1);
        if (!initial)
                return -ENOMEM;
        initial->header = *header;
        r = bpf_map_update_elem(fd, &first, initial, BPF_ANY);
        /* From here on writable by programs only */
        if (r >= 0)
                r = bpf_map_freeze(fd);
        return r < 0 ? r : TAKE_FD(fd);
}

static int storage_view(Probe *p, unsigned slot) {
        void *view;

        view = mmap(NULL, storage_size(), PROT_READ, MAP_SHARED, p->storage_fds[slot], 0);
        if (view == MAP_FAILED)
                return -errno;
        p->storages[slot] = view;
        return 0;
}

int probe_add_storage(Probe *p, unsigned slot, uint32_t generation, uint32_t storage, uint64_t now,
                      const union qos_storage_element **ret) {
        const struct qos_storage_header header = {
                .generation = storage,
                .unit = generation,
                .slot = slot,
                .cpus = (uint32_t) libbpf_num_possible_cpus(),
                .epoch = now / QOS_EPOCH_NSEC,
        };
        int r;

        assert(p->started);
        assert(slot < UNITS_MAX_LIMIT);

        probe_remove_storage(p, slot);
        r = p->storage_fds[slot] = storage_make_map(&header);
        if (r >= 0)
                r = storage_view(p, slot);
        if (r >= 0)
                r = bpf_map_update_elem(p->map_fds[MAP_STORAGE_MAPS], &slot, &p->storage_fds[slot], BPF_ANY);
        if (r < 0) {
                storage_close(p, slot);
                return r;
        }

        store_push_unit(p, "storage", slot, p->storage_fds[slot]);
        *ret = p->storages[slot];
        return 0;
}

void probe_remove_storage(Probe *p, unsigned slot) {
        assert(slot < UNITS_MAX_LIMIT);

        if (p->storage_fds[slot] < 0)
                return;
        (void) bpf_map_delete_elem(p->map_fds[MAP_STORAGE_MAPS], &slot);
        store_drop_unit("storage", slot);
        storage_close(p, slot);
}

int probe_adopt_storage(Probe *p, unsigned slot, uint32_t generation,
                        const union qos_storage_element **ret) {
        int r;

        if (!p->started || slot >= UNITS_MAX_LIMIT || p->storage_fds[slot] < 0)
                return -ENOENT;
        if (!p->storages[slot]) {
                r = storage_view(p, slot);
                if (r < 0)
                        return r;
        }
        if (p->storages[slot]->header.unit != generation ||
            p->storages[slot]->header.cpus != (uint32_t) libbpf_num_possible_cpus())
                return -ESTALE;

        *ret = p->storages[slot];
        return 0;
}

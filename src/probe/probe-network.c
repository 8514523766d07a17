/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Network maps of units. */

#include <stdarg.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <bpf/bpf.h>

#include "probe-internal.h"

static size_t network_size(void) {
        size_t page = (size_t) sysconf(_SC_PAGESIZE);

        return (QOS_NETWORK_ELEMENTS * sizeof(union qos_network_element) + page - 1) / page * page;
}

void network_close(Probe *p, unsigned slot) {
        if (p->networks[slot])
                (void) munmap(p->networks[slot], network_size());
        p->networks[slot] = NULL;
        p->network_fds[slot] = close_fd(p->network_fds[slot]);
}

static int network_make_map(const struct qos_network_header *header) {
        LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
        _cleanup_free_ union qos_network_element *initial = NULL;
        _cleanup_close_ int fd = -EBADF;
        uint32_t first = QOS_NETWORK_HEADER;
        int r;

        fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "qosd_network", sizeof(uint32_t),
                            sizeof(union qos_network_element), QOS_NETWORK_ELEMENTS, &options);
        if (fd < 0)
                return fd;
        initial = new0(union qos_network_element, 1);
        if (!initial)
                return -ENOMEM;
        initial->header = *header;
        r = bpf_map_update_elem(fd, &first, initial, BPF_ANY);
        /* From here on writable by programs only */
        if (r >= 0)
                r = bpf_map_freeze(fd);
        return r < 0 ? r : TAKE_FD(fd);
}

static int network_view(Probe *p, unsigned slot) {
        void *view;

        view = mmap(NULL, network_size(), PROT_READ, MAP_SHARED, p->network_fds[slot], 0);
        if (view == MAP_FAILED)
                return -errno;
        p->networks[slot] = view;
        return 0;
}

int probe_add_network(Probe *p, unsigned slot, uint32_t generation, uint32_t network, uint64_t now,
                      const union qos_network_element **ret) {
        const struct qos_network_header header = {
                .generation = network,
                .unit = generation,
                .slot = slot,
                .epoch = now / QOS_EPOCH_NSEC,
        };
        int r;

        assert(p->started);
        assert(slot < UNITS_MAX_LIMIT);

        probe_remove_network(p, slot);
        r = p->network_fds[slot] = network_make_map(&header);
        if (r >= 0)
                r = network_view(p, slot);
        if (r >= 0)
                r = bpf_map_update_elem(p->map_fds[MAP_NETWORK_MAPS], &slot, &p->network_fds[slot], BPF_ANY);
        if (r < 0) {
                network_close(p, slot);
                return r;
        }

        store_push_unit(p, "network", slot, p->network_fds[slot]);
        *ret = p->networks[slot];
        return 0;
}

void probe_remove_network(Probe *p, unsigned slot) {
        assert(slot < UNITS_MAX_LIMIT);

        if (p->network_fds[slot] < 0)
                return;
        (void) bpf_map_delete_elem(p->map_fds[MAP_NETWORK_MAPS], &slot);
        store_drop_unit("network", slot);
        network_close(p, slot);
}

int probe_adopt_network(Probe *p, unsigned slot, uint32_t generation,
                        const union qos_network_element **ret) {
        int r;

        if (!p->started || slot >= UNITS_MAX_LIMIT || p->network_fds[slot] < 0)
                return -ENOENT;
        if (!p->networks[slot]) {
                r = network_view(p, slot);
                if (r < 0)
                        return r;
        }
        if (p->networks[slot]->header.unit != generation)
                return -ESTALE;

        *ret = p->networks[slot];
        return 0;
}

int probe_set_network_clock(Probe *p, const struct qos_network_clock *clock) {
        uint32_t zero = 0;

        assert(p->started);

        return bpf_map_update_elem(p->map_fds[MAP_NETWORK_CLOCK], &zero, clock, BPF_ANY);
}

int probe_read_stamps(Probe *p, uint64_t until, struct qos_stamp_ring *ret) {
        struct qos_stamp_control control;
        uint32_t zero = 0;
        int r;

        assert(p->started);

        r = bpf_map_lookup_elem(p->map_fds[MAP_STAMP_CONTROL], &zero, &control);
        if (r >= 0 && until > control.until) {
                control.until = until;
                r = bpf_map_update_elem(p->map_fds[MAP_STAMP_CONTROL], &zero, &control, BPF_ANY);
        }
        return r < 0 ? r : bpf_map_lookup_elem(p->map_fds[MAP_STAMP_RING], &zero, ret);
}

/* Connections read at a time, a microsecond each. */
#define CONNECTIONS_AT_A_TIME 64U

int probe_open_connections(Probe *p) {
        Program i = program_works(p, PROGRAM_NETWORK_LIST) ? PROGRAM_NETWORK_LIST :
                    PROGRAM_NETWORK_WALK_LIST;

        return p->link_fds[i] < 0 ? -EOPNOTSUPP : bpf_iter_create(p->link_fds[i]);
}

int probe_read_connections(Probe *p, int fd, const unsigned *slots, size_t n,
                           void (*handler)(const struct qos_connection *c, void *userdata),
                           void *userdata) {
        _cleanup_free_ struct qos_connection *buffer = NULL;
        struct qos_connections_request request;
        Bitmap wanted = {};
        uint32_t zero = 0;
        ssize_t size;
        int r;

        buffer = new0(struct qos_connection, CONNECTIONS_AT_A_TIME);
        if (!buffer)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++)
                bitmap_add(&wanted, slots[i]);
        _Static_assert(sizeof(request.slots) == sizeof(wanted.words), "the programs have the same form");
        memcpy(request.slots, wanted.words, sizeof(request.slots));
        /* Each time: other readings may be under way */
        r = bpf_map_update_elem(p->map_fds[MAP_CONNECTIONS_REQUEST], &zero, &request, BPF_ANY);
        if (r < 0)
                return r;
        size = read(fd, buffer, CONNECTIONS_AT_A_TIME * sizeof(*buffer));
        if (size < 0)
                return errno == EAGAIN || errno == EINTR ? 1 : -errno;
        if (size % (ssize_t) sizeof(*buffer) != 0)
                return -EIO; /* it reads whole records as long as the buffer holds whole ones */
        for (size_t i = 0; i < (size_t) size / sizeof(*buffer); i++)
                handler(buffer + i, userdata);
        return size > 0;
}

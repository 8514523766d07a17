/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Adopts programs and maps of the previous run. */

#include <linux/membarrier.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include "probe-custom.h"
#include "probe-internal.h"

static bool take_unit_fd(const char *name, const char *kind, int fd, int *fds) {
        const char *rest = startswith(name, kind);
        unsigned long slot;
        char *end;

        if (!rest)
                return false;
        slot = strtoul(rest, &end, 10);
        if (end == rest || *end != 0 || slot >= UNITS_MAX_LIMIT || fds[slot] >= 0)
                return false;
        fds[slot] = fd;
        return true;
}

bool probe_take_fd(Probe *p, const char *name, int fd) {
        const char *rest;

        rest = startswith(name, "map-");
        if (rest)
                for (Map i = 0; i < _MAP_MAX; i++)
                        if (streq(rest, map_table[i]) && p->map_fds[i] < 0) {
                                p->map_fds[i] = fd;
                                return true;
                        }

        for (Program i = 0; i < _PROGRAM_MAX; i++) {
                rest = startswith(name, "prog-");
                if (rest && streq(rest, program_table[i].name) && p->program_fds[i] < 0) {
                        p->program_fds[i] = fd;
                        return true;
                }
                rest = startswith(name, "link-");
                if (rest && streq(rest, program_table[i].name) && p->link_fds[i] < 0) {
                        p->link_fds[i] = fd;
                        return true;
                }
        }

        if (startswith(name, "library-")) {
                unsigned long long inode;
                char which[6];
                unsigned device, owner;
                Library *l;
                int *place;

                if (sscanf(name, "library-%5[a-z]-%x-%llx-%x", which, &device, &inode, &owner) != 4)
                        return false;
                l = library_get(p, device, inode, /* make= */ true);
                if (l)
                        l->owner = owner;
                place = !l ? NULL : streq(which, "enter") ? &l->enter_fd : streq(which, "leave") ?
                        &l->leave_fd : NULL;
                if (!place || *place >= 0)
                        return false;
                *place = fd;
                return true;
        }

        rest = startswith(name, "custom-");
        if (rest)
                return custom_take_fd(p, rest, fd);

        return take_unit_fd(name, "unit-", fd, p->unit_fds) ||
                take_unit_fd(name, "contention-", fd, p->contention_fds) ||
                take_unit_fd(name, "shards-", fd, p->shards_fds) ||
                take_unit_fd(name, "storage-", fd, p->storage_fds) ||
                take_unit_fd(name, "network-", fd, p->network_fds);
}

int probe_adopt(Probe *p, bool discard) {
        bool found = false;
        int r = 0;

        for (Map i = 0; i < _MAP_MAX; i++)
                found = found || p->map_fds[i] >= 0;
        for (Program i = 0; i < _PROGRAM_MAX; i++)
                found = found || p->program_fds[i] >= 0 || p->link_fds[i] >= 0;
        found = found || p->n_libraries > 0;
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                found = found || probe_has_unit(p, i);
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++)
                found = found || p->customs[i];
        if (!found)
                return -ENOENT;

        if (!discard) {
                for (Map i = 0; i < _MAP_MAX; i++)
                        if (p->map_fds[i] < 0)
                                discard = true;

                for (Program i = 0; i < _PROGRAM_REQUESTS_MAX; i++)
                        if (program_has_link(i) && !program_table[i].on_demand &&
                            (p->link_fds[i] >= 0) != (p->program_fds[i] >= 0))
                                discard = true;
                        else if (p->program_fds[i] < 0 && !p->reasons[i] && program_is_needed(p, i))
                                p->reasons[i] = strdup("was not available when the programs were loaded");
                r = discard ? -ESTALE : 0;
        }

        if (discard) {
                for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                        if (p->unit_fds[i] >= 0)
                                store_drop_unit("unit", i);
                        store_drop_contention(p, i);
                        if (p->storage_fds[i] >= 0)
                                store_drop_unit("storage", i);
                        if (p->network_fds[i] >= 0)
                                store_drop_unit("network", i);
                }
                for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++)
                        custom_discard(p, i);
                store_drop_all(p);
                probe_close(p);
                return r;
        }

        /* A partially loaded group would give wrong results */
        for (unsigned g = 1; g < ELEMENTSOF(group_table); g++)
                for (Program i = group_table[g].first; i < group_table[g].end; i++)
                        if (program_has_link(i) && (p->link_fds[i] >= 0) != (p->program_fds[i] >= 0)) {
                                probe_unload_group(p, 1U << g);
                                break;
                        }
        if (p->link_fds[PROGRAM_OPENSSL_EGRESS] < 0)
                probe_unload_group(p, PROBE_TLS);
        for (size_t i = 0; i < p->n_libraries; )
                if (p->libraries[i].enter_fd >= 0 && p->libraries[i].leave_fd >= 0)
                        i++;
                else
                        library_drop(p, i);

        p->started = true;
        return 0;
}

int probe_adopt_unit(Probe *p, unsigned slot, uint32_t generation, const struct qos_unit_map **ret_view) {
        int r;

        if (!p->started || slot >= UNITS_MAX_LIMIT || p->unit_fds[slot] < 0)
                return -ENOENT;

        if (!p->views[slot]) {
                r = unit_map_view(p->unit_fds[slot], &p->views[slot]);
                if (r < 0)
                        return r;
        }
        if (p->views[slot]->generation != generation)
                return -ESTALE;

        *ret_view = p->views[slot];
        return 0;
}

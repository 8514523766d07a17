/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "activation-sockets.h"
#include "cgroup.h"
#include "group-walk.h"
#include "hierarchy.h"
#include "log.h"
#include "manager.h"
#include "observer.h"
#include "probe.h"
#include "service-manager.h"
#include "unit-map.h"

static bool unit_listens_on(const Unit *u, const struct qos_address *address) {
        for (size_t i = 0; i < u->n_listen; i++)
                if (memcmp(u->listen + i, address, sizeof(*address)) == 0)
                        return true;
        return false;
}

/* Assigns sockets of PID 1 to units. Sockets are identified by address. Addresses shared by two units, or by
 * two sockets of PID 1 (in other namespaces, on other interfaces), are skipped: such a socket is assigned
 * once the unit reads from it. */
void manager_mark_listeners(Manager *m) {
        _cleanup_free_ struct qos_activation_socket *passed = NULL;
        size_t n_passed = 0;
        int r;

        r = probe_find_activation_sockets(m->probe, &passed, &n_passed);
        if (r == -EOPNOTSUPP)
                return;
        if (r < 0) {
                (void) log_warning_errno(r, "Failed to find sockets of the service manager, arrival "
                                            "times on them may be missing: %m");
                return;
        }

        FOREACH_UNIT(u, m) {
                _cleanup_free_ struct qos_address *own = NULL;
                size_t n = 0;

                if (!u->view)
                        continue;
                own = new0(struct qos_address, u->n_listen);
                if (!own) {
                        (void) log_oom();
                        return;
                }

                for (size_t k = 0; k < u->n_listen; k++) {
                        uint64_t cookie = 0;
                        bool shared = false;

                        FOREACH_UNIT(other, m)
                                shared = shared || (other != u && unit_listens_on(other, u->listen + k));
                        for (size_t j = 0; j < n_passed; j++) {
                                if (memcmp(&passed[j].address, u->listen + k,
                                           sizeof(struct qos_address)) != 0)
                                        continue;
                                shared = shared || (cookie != 0 && cookie != passed[j].cookie);
                                cookie = passed[j].cookie;
                        }
                        if (!shared)
                                own[n++] = u->listen[k];
                }

                r = probe_set_addresses(m->probe, u->index, u->generation, own, n);
                if (r < 0)
                        log_unit_warning_errno(u->name, r,
                                               "Failed to identify sockets of '%s' opened by the "
                                               "service manager: %m", u->name);
        }

        free(TAKE_PTR(passed));
        (void) probe_find_activation_sockets(m->probe, &passed, &n_passed);
}

/* The control group of a socket unit belongs to the service: PID 1 calls listen() from within it. */
void unit_own_socket_groups(Unit *u) {
        size_t l;

        for (const char *s = u->view ? strempty(u->socket_groups) : ""; *s; s += l, s += strspn(s, " ")) {
                _cleanup_free_ char *path = NULL;
                _cleanup_close_ int fd = -EBADF;
                int r;

                l = strcspn(s, " ");
                path = strndup(s, l);
                if (!path) {
                        (void) log_oom();
                        return;
                }

                r = probe_assign_path(u->manager->probe, path, u->index, u->generation);
                fd = cgroup_open(path);
                if (r >= 0 && fd >= 0)
                        r = probe_assign_cgroup(u->manager->probe, fd, u->index, u->generation);
                if (r < 0)
                        log_unit_warning_errno(u->name, r,
                                               "Failed to observe control group '%s' of a socket of "
                                               "'%s', arrival times may be missing: %m", path, u->name);
        }
}

/* Releases the groups of socket units, except those in keep. */
void unit_disown_socket_groups(Unit *u, const char *keep) {
        size_t l;

        for (const char *s = u->view ? strempty(u->socket_groups) : ""; *s; s += l, s += strspn(s, " ")) {
                _cleanup_free_ char *path = NULL;

                l = strcspn(s, " ");
                path = strndup(s, l);
                if (!path || names_contain(keep, path))
                        continue;

                probe_unassign_path(u->manager->probe, path);
                unit_release_group(u, path);
        }
}

/* Takes over the sockets of the unit from its properties. */
void unit_set_sockets(Unit *u, const UnitInfo *info) {
        bool listened = u->n_listen > 0;
        struct qos_address *listen;

        if (!streq_ptr(u->socket_groups, info->socket_groups)) {
                unit_disown_socket_groups(u, info->socket_groups);
                if (free_and_strdup(&u->socket_groups, info->socket_groups) < 0)
                        (void) log_oom();
        }
        unit_own_socket_groups(u);

        if (!streq_ptr(u->instances, info->instances) && info->instances) {
                if (u->instances && u->view)
                        probe_unassign_path(u->manager->probe, u->instances);
                if (unit_relocate(u, u->control_group, info->instances) < 0)
                        (void) log_oom();
                unit_claim_cgroup(u);
                manager_emit_state_changed(u->manager);
        }

        if (!listened && info->n_listen == 0)
                return;
        listen = new0(struct qos_address, info->n_listen);
        if (!listen) {
                (void) log_oom();
                return;
        }
        if (info->n_listen > 0)
                memcpy(listen, info->listen, info->n_listen * sizeof(struct qos_address));
        free(u->listen);
        u->listen = listen;
        u->n_listen = info->n_listen;
        manager_mark_listeners(u->manager);
}

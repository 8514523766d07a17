/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include <systemd/sd-daemon.h>
#include <systemd/sd-json.h>

#include "cgroup-stat.h"
#include "contention-probe.h"
#include "hierarchy.h"
#include "history-file.h"
#include "json.h"
#include "log.h"
#include "manager.h"
#include "observer.h"
#include "openssl.h"
#include "probe.h"
#include "service-manager.h"
#include "startup.h"
#include "threshold-monitor.h"
#include "unit-map.h"
#include "unit-name.h"
#include "xqos-loader.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

/* Control groups of a unit that are taken over at attach, and how deep: those made later inherit in the kernel. A unit
 * with more is a container host whose containers want attaches of their own. */
#define GROUPS_MAX 16384U
#define GROUP_DEPTH_MAX 32U

/* How long to wait before the system bus is tried again. */
#define RECONNECT_USEC USEC_PER_SEC

/* Attaches that wait for PID 1 at a time: each holds some memory, and PID 1 answers in a millisecond. */
#define OPERATIONS_MAX 1024U

/* How often the history takes over what the kernel has: it keeps WINDOW_STEPS steps, and a late wake-up or a crash of ours
 * must not cost any. */
#define HISTORY_USEC (5 * (HISTORY_FINE_NSEC / NSEC_PER_USEC))

/* Programs that were about to book something when a step ended have done so by then. */
#define HISTORY_DELAY_USEC (100 * USEC_PER_MSEC)

struct AttachOperation {
        Manager *manager;
        AttachOperation *next;
        ServiceManagerCall *call;

        char *written;                  /* the name as the client wrote it */
        char *name;                     /* mangled */
        char *owner;
        AttachRequest request;          /* the strings above instead of the client's */
        QosErrorCode suggest_code;
        char *suggest_message;

        manager_attach_handler_t handler;
        void *userdata;
};

static void manager_on_unit_changed(const char *name, void *userdata);

/* ---- history -------------------------------------------------------------------------------------------------- */

static int history_path(const Manager *m, unsigned slot, char **ret) {
        if (!m->history_prefix)
                return -ENOENT;
        if (asprintf(ret, "%s%u", m->history_prefix, slot) < 0) {
                *ret = NULL;
                return -ENOMEM;
        }
        return 0;
}

static void history_forget(Manager *m, unsigned slot) {
        _cleanup_free_ char *path = NULL;

        if (history_path(m, slot, &path) >= 0)
                (void) unlink(path);
}

/* Takes over what the kernel knows, and keeps it for the next run. */
static void manager_collect_history(Manager *m) {
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                _cleanup_free_ char *path = NULL;
                Unit *u = m->units[i];
                int r;

                if (!u)
                        continue;
                unit_collect_usage(u);
                r = unit_collect_history(u);
                if (r >= 0)
                        r = history_path(m, i, &path);
                if (r >= 0)
                        r = history_save(u->history, u->generation, path);
                if (r == -ENOENT)
                        continue;
                if (r < 0 && !u->history_unsaved)
                        log_unit_warning_errno(u->name, r, "Failed to keep the history of '%s': %m", u->name);
                u->history_unsaved = r < 0;
        }
}

static int on_history(sd_event_source *source, uint64_t usec, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);
        uint64_t now = now_usec(CLOCK_MONOTONIC);

        manager_collect_history(m);

        (void) sd_event_source_set_time(source, (now / HISTORY_USEC + 1) * HISTORY_USEC + HISTORY_DELAY_USEC);
        (void) sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
        return 0;
}

/* At once, as the previous run may not have been there when it was time; then at multiples of the interval. */
static void manager_begin_history(Manager *m) {
        int r;

        if (m->history)
                return;
        r = sd_event_add_time(m->event, &m->history, CLOCK_MONOTONIC, 0, 0, on_history, m);
        if (r < 0)
                (void) log_warning_errno(r, "Nothing will be known of the past: %m");
}

static void unit_load_history(Unit *u, uint32_t generation) {
        _cleanup_free_ char *path = NULL;
        History *h;
        int r;

        r = history_path(u->manager, u->index, &path);
        if (r >= 0)
                r = history_load(path, generation, &h);
        if (r >= 0) {
                history_free(u->history);
                u->history = h;
        } else if (r != -ENOENT)
                log_unit_warning_errno(u->name, r, "Failed to read the history of '%s', it begins anew: %m", u->name);
}

/* ---- observing ------------------------------------------------------------------------------------------------ */

/* Whether a group, and with it all below, belongs to another unit that keeps it: one that lies in this one, or for which
 * the service manager listens there. */
static bool group_is_others(const Unit *u, int fd) {
        struct qos_owner owner;
        const Unit *other;

        if (probe_get_group_owner(u->manager->probe, fd, &owner) < 0 || owner.slot >= UNITS_MAX_LIMIT)
                return false;
        other = u->manager->units[owner.slot];
        return other && other != u && other->generation == owner.generation && !unit_is_ancestor(other, u);
}

static bool group_is_own(const Unit *u, int fd) {
        struct qos_owner owner;

        return probe_get_group_owner(u->manager->probe, fd, &owner) >= 0 &&
                owner.slot == u->index && owner.generation == u->generation;
}

/* Makes the group and those below it the unit's, or those that are the unit's another's (NULL: nobody's). Depth first: a group
 * that is made meanwhile inherits from one that is done, or is found by the walk. */
static void cgroup_reassign(Unit *u, const Unit *to, int fd, unsigned depth, unsigned *n) {
        Manager *m = u->manager;
        DIR *d;
        int r;

        if (to == u ? group_is_others(u, fd) : !group_is_own(u, fd))
                return;
        if (++*n > GROUPS_MAX || depth > GROUP_DEPTH_MAX)
                return;

        if (to) {
                r = probe_assign_cgroup(m->probe, fd, to->index, to->generation);
                if (r < 0) {
                        log_unit_warning_errno(to->name, r, "Failed to observe a control group of '%s', its sockets are not seen: %m", to->name);
                        return;
                }
        } else
                probe_unassign_cgroup(m->probe, fd);

        fd = openat(fd, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        if (fd < 0)
                return;
        d = fdopendir(fd);
        if (!d) {
                close_fd(fd);
                return;
        }

        for (struct dirent *de; *n <= GROUPS_MAX && (de = readdir(d)); ) {
                _cleanup_close_ int child = -EBADF;

                if (de->d_type != DT_DIR || de->d_name[0] == '.')
                        continue;
                child = openat(dirfd(d), de->d_name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
                if (child >= 0)
                        cgroup_reassign(u, to, child, depth + 1, n);
        }

        (void) closedir(d);
}

static int group_open(const char *control_group) {
        _cleanup_free_ char *path = NULL;
        int fd;

        if (asprintf(&path, CGROUP_ROOT "%s", control_group) < 0)
                return -ENOMEM;
        fd = open(path, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

/* Calls f for the groups that the unit has now: its own, or those of its instances, which lie beside each other. */
static void unit_for_each_root(Unit *u, void (*f)(Unit *u, int fd, bool instance, void *userdata), void *userdata) {
        _cleanup_close_ int fd = group_open(u->control_group);
        _cleanup_free_ char *parent = NULL;
        const char *stem;
        DIR *d;
        int p;

        if (fd >= 0)
                f(u, fd, /* instance= */ false, userdata);
        if (!u->instances)
                return;

        stem = strrchr(u->instances, '/') + 1;
        parent = strndup(u->instances, stem - u->instances);
        p = parent ? group_open(parent) : -ENOMEM;
        if (p < 0)
                return;
        d = fdopendir(p);
        if (!d) {
                close_fd(p);
                return;
        }
        for (struct dirent *de; (de = readdir(d)); ) {
                _cleanup_close_ int child = -EBADF;

                if (de->d_type != DT_DIR || !startswith(de->d_name, stem))
                        continue;
                child = openat(dirfd(d), de->d_name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
                if (child >= 0)
                        f(u, child, /* instance= */ true, userdata);
        }
        (void) closedir(d);
}

typedef struct Give {
        bool own;
        unsigned n;
} Give;

static void give_root(Unit *u, int fd, bool instance, void *userdata) {
        Give *give = ASSERT_PTR(userdata);
        const Unit *to = give->own ? u : instance
                ? unit_find_ancestor_of_path(u, u->instances) : unit_find_ancestor(u);

        cgroup_reassign(u, to, fd, 0, &give->n);
}

/* They become the unit's, or that of the one they lie in. Returns how many. */
static unsigned unit_reassign_cgroups(Unit *u, bool own) {
        Give give = { .own = own };

        unit_for_each_root(u, give_root, &give);
        return give.n;
}

typedef struct Walk {
        void (*f)(Unit *u, int group, void *userdata);
        void *userdata;
        unsigned n;
        unsigned depth;
} Walk;

static void walk_group(Unit *u, int fd, bool instance, void *userdata) {
        Walk *walk = ASSERT_PTR(userdata);
        DIR *d;

        if (++walk->n > GROUPS_MAX || walk->depth > GROUP_DEPTH_MAX)
                return;
        walk->f(u, fd, walk->userdata);

        fd = openat(fd, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        if (fd < 0)
                return;
        d = fdopendir(fd);
        if (!d) {
                close_fd(fd);
                return;
        }
        walk->depth++;
        for (struct dirent *de; walk->n <= GROUPS_MAX && (de = readdir(d)); ) {
                _cleanup_close_ int child = -EBADF;

                if (de->d_type != DT_DIR || de->d_name[0] == '.')
                        continue;
                child = openat(dirfd(d), de->d_name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
                if (child >= 0)
                        walk_group(u, child, instance, walk);
        }
        walk->depth--;
        (void) closedir(d);
}

void unit_for_each_group(Unit *u, void (*f)(Unit *u, int group, void *userdata), void *userdata) {
        Walk walk = { .f = f, .userdata = userdata };

        unit_for_each_root(u, walk_group, &walk);
}

/* Tells the kernel whose the unit's control group is, now or when it is made. */
static void unit_claim_cgroup(Unit *u) {
        Manager *m = u->manager;
        unsigned n;
        int r;

        if (!u->view || isempty(u->control_group))
                return;

        /* The path first: a group made between the two is found by one or the other */
        r = probe_assign_path(m->probe, u->control_group, u->index, u->generation);
        if (r >= 0 && u->instances)
                r = probe_assign_path(m->probe, u->instances, u->index, u->generation);
        if (r < 0)
                log_unit_warning_errno(u->name, r, "Restarts of '%s' cannot be recognised in the kernel, requests may be missed then: %m", u->name);

        n = unit_reassign_cgroups(u, true);
        if (n == 0)
                return; /* not running */
        if (n > GROUPS_MAX)
                log_warning("'%s' has more than %u control groups, the rest is not observed.", u->name, GROUPS_MAX);

        r = probe_find_sockets(m->probe);
        if (r < 0 && r != -EOPNOTSUPP)
                log_unit_warning_errno(u->name, r, "Failed to look for the open sockets of '%s': %m", u->name);
}

/* How often they are looked for while more and more are lost, as where memory is short: it is a walk over the directories of all units. */
#define LOST_GROUPS_NSEC (5 * NSEC_PER_SEC)

void manager_find_lost_groups(Manager *m, uint64_t now) {
        uint64_t lost = probe_get_lost_groups(m->probe);

        if (lost == m->lost_groups || (m->lost_groups_at != 0 && now < m->lost_groups_at + LOST_GROUPS_NSEC))
                return;
        m->lost_groups = lost;
        m->lost_groups_at = now;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->units[i])
                        unit_claim_cgroup(m->units[i]);
        (void) probe_find_threads(m->probe);
}

static bool unit_listens_on(const Unit *u, const struct qos_address *address) {
        for (size_t i = 0; i < u->n_listen; i++)
                if (memcmp(u->listen + i, address, sizeof(*address)) == 0)
                        return true;
        return false;
}

/* Tells the kernel for whom PID 1 listens. Sockets are recognised by their address: where two units share one, or PID 1
 * has two sockets with the same (in other namespaces, on other interfaces), they are left alone, and become the unit's
 * when it reads from them. */
static void manager_mark_listeners(Manager *m) {
        _cleanup_free_ struct qos_activation_socket *passed = NULL;
        size_t n_passed = 0;
        int r;

        r = probe_find_activation_sockets(m->probe, &passed, &n_passed);
        if (r == -EOPNOTSUPP)
                return;
        if (r < 0) {
                (void) log_warning_errno(r, "Failed to look at the service manager's sockets, arrivals on them may be missed: %m");
                return;
        }

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                _cleanup_free_ struct qos_address *own = NULL;
                Unit *u = m->units[i];
                size_t n = 0;

                if (!u || !u->view)
                        continue;
                own = new0(struct qos_address, u->n_listen);
                if (!own) {
                        (void) log_oom();
                        return;
                }

                for (size_t k = 0; k < u->n_listen; k++) {
                        uint64_t cookie = 0;
                        bool shared = false;

                        for (unsigned j = 0; j < UNITS_MAX_LIMIT; j++)
                                shared = shared || (m->units[j] && j != i && unit_listens_on(m->units[j], u->listen + k));
                        for (size_t j = 0; j < n_passed; j++) {
                                if (memcmp(&passed[j].address, u->listen + k, sizeof(struct qos_address)) != 0)
                                        continue;
                                shared = shared || (cookie != 0 && cookie != passed[j].cookie);
                                cookie = passed[j].cookie;
                        }
                        if (!shared)
                                own[n++] = u->listen[k];
                }

                r = probe_set_addresses(m->probe, u->index, u->generation, own, n);
                if (r < 0)
                        log_unit_warning_errno(u->name, r, "The sockets that the service manager has opened for '%s' cannot be recognised: %m", u->name);
        }

        free(TAKE_PTR(passed));
        (void) probe_find_activation_sockets(m->probe, &passed, &n_passed);
}

/* The group of a socket's unit belongs to the service: in there PID 1 calls listen(). */
static void unit_own_socket_groups(Unit *u) {
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
                fd = group_open(path);
                if (r >= 0 && fd >= 0)
                        r = probe_assign_cgroup(u->manager->probe, fd, u->index, u->generation);
                if (r < 0)
                        log_unit_warning_errno(u->name, r, "When '%s' listens for '%s' cannot be seen, arrivals may be missed then: %m", path, u->name);
        }
}

/* Those that are not among keep. */
static void unit_disown_socket_groups(Unit *u, const char *keep) {
        size_t l;

        for (const char *s = u->view ? strempty(u->socket_groups) : ""; *s; s += l, s += strspn(s, " ")) {
                _cleanup_free_ char *path = NULL;
                _cleanup_close_ int fd = -EBADF;

                l = strcspn(s, " ");
                path = strndup(s, l);
                if (!path || names_contain(keep, path))
                        continue;

                probe_unassign_path(u->manager->probe, path);
                fd = group_open(path);
                if (fd >= 0)
                        cgroup_reassign(u, unit_find_ancestor_of_path(u, path), fd, 0, &(unsigned) {});
        }
}

/* What PID 1 says of the unit's sockets. */
static void unit_set_sockets(Unit *u, const UnitInfo *info) {
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
                manager_save(u->manager);
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

/* Goes on in the book of before: the units around it do. */
static void unit_reuse_retained(Unit *u, Unit *retained) {
        Manager *m = u->manager;

        u->generation = retained->generation;
        u->view = retained->view;
        u->map_created = retained->map_created;
        m->retained[u->index] = NULL;
        unit_adopt_contention(u, retained);
        unit_free(retained);
}

/* Tells the kernel what is the unit's, of which there is a map. */
static void unit_claim_cgroups(Unit *u) {
        hierarchy_push_to_kernel(u->manager, u);
        unit_claim_cgroup(u);
        unit_own_socket_groups(u);
        if (unit_find_ancestor(u))
                hierarchy_reassign_sockets(u->manager);
}

static bool hold_is(const Hold *h, HoldType type, const void *lease_key, uid_t owner_uid) {
        return h->type == type && h->lease_key == lease_key && (type != HOLD_ADMINISTRATOR || h->owner_uid == owner_uid);
}

int unit_get_excludes(const Unit *u, const AttachRequest *request, ExcludeList *ret) {
        bool others = request && request->owner_uid == 0;
        ExcludeList l = {};
        int r;

        for (const Hold *h = u ? u->holds : NULL; h; h = h->next)
                others = others || h->owner_uid == 0;
        if (request && (!others || request->owner_uid == 0))
                l = request->excludes;
        for (const Hold *h = u ? u->holds : NULL; h; h = h->next) {
                if (request && hold_is(h, request->type, request->lease_key, request->owner_uid))
                        continue;
                /* Whose traffic it is does not decide what others see of it */
                if (others && h->owner_uid != 0)
                        continue;
                r = exclude_list_merge(&l, &h->excludes);
                if (r < 0)
                        return r;
        }

        *ret = l;
        return 0;
}

static void unit_apply_excludes(Unit *u) {
        ExcludeList l;
        int r;

        if (!u->view)
                return;

        r = unit_get_excludes(u, NULL, &l);
        if (r >= 0)
                r = probe_set_excludes(u->manager->probe, u->index, u->generation, &l);
        if (r < 0)
                log_unit_warning_errno(u->name, r, "Failed to leave out of the figures of '%s' what was asked for, or no longer: %m", u->name);
}

/* Begins to count, if the kernel lets us. Otherwise the unit stays attached, without figures and with the reason. */
/* What units are watched with has changed, or where they lie. started: a unit whose processes are others now; or NULL. */
static void manager_update_probes(Manager *m, Unit *started) {
        openssl_update(m, started);
        contention_update(m);
}

static void unit_start(Unit *u) {
        Manager *m = u->manager;
        uint64_t now;
        int r;

        if (u->view || !probe_is_started(m->probe))
                return;

        now = now_nsec(CLOCK_MONOTONIC);
        if (m->retained[u->index]) {
                unit_reuse_retained(u, m->retained[u->index]);
                r = 0;
        } else {
                r = probe_add_unit(m->probe, u->index, u->generation, now, &u->view);
                u->map_created = now;
        }
        u->attached_since = now_nsec(CLOCK_REALTIME);
        u->attached_since_monotonic = now;
        if (r >= 0) {
                r = unit_init_offset(u);
                if (r < 0) {
                        probe_remove_unit(m->probe, u->index);
                        u->view = NULL;
                        u->contention = NULL; /* of before, see unit_reuse_retained() */
                        u->contention_cpus = NULL;
                        u->contention_probes = 0;
                }
        }
        if (r < 0) {
                log_unit_warning_errno(u->name, r, "Failed to make the map of '%s', it has no figures: %m", u->name);
                return;
        }

        /* Before there is anything to count */
        unit_apply_excludes(u);
        unit_claim_cgroups(u);
        if (u->n_listen > 0)
                manager_mark_listeners(m);
        manager_begin_history(m);
}

static void manager_start_probe(Manager *m) {
        int r;

        if (probe_is_started(m->probe))
                return;

        r = probe_start(m->probe);
        if (r < 0) {
                (void) log_warning_errno(r, "Nothing can be measured for now. %s.", probe_get_failure(m->probe) ?: "Out of memory");
                return;
        }

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->units[i])
                        unit_start(m->units[i]);
}

static void manager_stop_probe(Manager *m) {
        openssl_stop(m);
        contention_stop(m);
        probe_stop(m->probe);
}

static int on_programs_unused(sd_event_source *source, uint64_t usec, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);

        if (m->n_units == 0)
                manager_stop_probe(m);
        else
                manager_update_probes(m, NULL);
        return 0;
}

/* Loading takes two to three seconds of CPU time in which nobody is served. A user other than root who attaches and detaches all the time
 * makes us load once in this time at most, and so has a fifth of the daemon as with all other requests. */
#define PROGRAMS_KEEP_USEC (15 * USEC_PER_SEC)

/* To be called when a user other than root has no use for programs any more. */
static void manager_keep_programs(Manager *m) {
        sd_event_source *timer = NULL;
        uint64_t until = now_usec(CLOCK_MONOTONIC) + PROGRAMS_KEEP_USEC;

        if (sd_event_add_time(m->event, &timer, CLOCK_MONOTONIC, until, USEC_PER_SEC, on_programs_unused, m) < 0)
                return;
        sd_event_source_disable_unref(m->keep_programs_timer);
        m->keep_programs_timer = timer;
        m->keep_programs_until = until;
}

/* ---- holds ---------------------------------------------------------------------------------------------------- */

static void hold_free(Hold *h) {
        Unit *u = h->unit;

        for (Hold **p = &u->holds; *p; p = &(*p)->next)
                if (*p == h) {
                        *p = h->next;
                        break;
                }

        u->probes = 0;
        for (Hold *i = u->holds; i; i = i->next)
                u->probes |= i->probes;
        u->last_uid = h->uid;

        sd_event_source_disable_unref(h->expiry);
        free(h->owner);
        free(h);
}

void unit_free(Unit *u) {
        while (u->holds)
                hold_free(u->holds);
        while (u->thresholds)
                threshold_free(u->thresholds);
        service_manager_call_free(u->refresh);

        free(u->name);
        free(u->control_group);
        free(u->instances);
        free(u->socket_groups);
        free(u->listen);
        free(u->active_state);
        free(u->degraded);
        free(u->aliases);
        free(u->base);
        free(u->contention_base);
        free(u->machine_base);
        usage_free(u->usage);
        history_free(u->history);
        free(u);
}

/* No longer observes the unit, which is gone then; its book is not if units around it have a part in it. */
static void unit_stop(Unit *u) {
        bool close = u->view && unit_find_ancestor(u);
        Manager *m = u->manager;

        u->refresh = service_manager_call_free(u->refresh);
        threshold_monitor_unit_detached(u);
        unit_end_export(u);
        if (u->view) {
                probe_unassign_path(m->probe, u->control_group);
                if (u->instances)
                        probe_unassign_path(m->probe, u->instances);
                (void) unit_reassign_cgroups(u, false);
                unit_disown_socket_groups(u, NULL);
                (void) probe_set_addresses(m->probe, u->index, u->generation, NULL, 0);
                (void) probe_set_excludes(m->probe, u->index, u->generation, &(ExcludeList) {});
                probe_set_config(m->probe, u->index, u->generation, false);
        }

        history_forget(m, u->index);
        m->units[u->index] = NULL;
        m->n_units--;
        hierarchy_notify_relatives(u);
        if (close) {
                unit_retain(u);
                return;
        }

        if (u->view)
                probe_remove_unit(m->probe, u->index); /* and its book of contention, which is in no other unit's figures */
        unit_free(u);
        retained_gc(m);
        hierarchy_push_to_kernel(m, NULL);
}

/* The last hold is gone. */
static void unit_detach(Unit *u) {
        Manager *m = u->manager;
        bool listened = u->n_listen > 0;

        threshold_monitor_unit_detached(u); /* as long as others know the unit */
        manager_emit_unit_detaching(u);
        if (u->name[0] != '/')
                service_manager_unwatch(m->service_manager, u->name);

        log_unit_info(u->name, "No longer observing '%s'.", u->name);
        unit_stop(u);

        if (m->n_units == 0) {
                if (now_usec(CLOCK_MONOTONIC) >= m->keep_programs_until)
                        manager_stop_probe(m);
                m->history = sd_event_source_disable_unref(m->history);
        } else if (listened)
                manager_mark_listeners(m); /* perhaps another unit has these addresses to itself now */
        manager_update_probes(m, NULL);
        manager_notify_status(m);
}

static void hold_release(Hold *h) {
        Unit *u = h->unit;
        Manager *m = u->manager;

        if (h->uid != 0)
                manager_keep_programs(m);
        hold_free(h);
        if (!u->holds) {
                /* Already now: after a crash halfway the next run finishes it */
                manager_save(m);
                unit_detach(u);
        } else {
                unit_apply_excludes(u);
                manager_update_probes(m, NULL);
                manager_emit_unit_changed(u);
        }
        manager_save(m);
}

static int on_hold_expired(sd_event_source *source, uint64_t usec, void *userdata) {
        Hold *h = ASSERT_PTR(userdata);

        log_unit_info(h->unit->name, "The time for which '%s' was attached is over.", h->unit->name);
        hold_release(h);
        return 0;
}

static Hold* unit_find_hold(Unit *u, HoldType type, const void *lease_key, uid_t owner_uid) {
        for (Hold *h = u->holds; h; h = h->next)
                if (hold_is(h, type, lease_key, owner_uid))
                        return h;
        return NULL;
}

/* Takes a hold, or renews the one that is there. */
static int unit_hold(Unit *u, const AttachRequest *request, uint64_t expires) {
        _cleanup_free_ char *owner = NULL;
        _cleanup_free_ Hold *new = NULL;
        sd_event_source *expiry = NULL;
        Hold *h;
        int r;

        h = unit_find_hold(u, request->type, request->lease_key, request->owner_uid);
        if (!h) {
                h = new = new0(Hold, 1);
                if (!h)
                        return -ENOMEM;
        }
        if (request->owner) {
                owner = strdup(request->owner);
                if (!owner)
                        return -ENOMEM;
        }
        if (expires != USEC_INFINITY) {
                r = sd_event_add_time(u->manager->event, &expiry, CLOCK_BOOTTIME, expires, USEC_PER_SEC, on_hold_expired, h);
                if (r < 0)
                        return r;
        }

        /* Nothing fails from here on */
        if (new) {
                h->unit = u;
                h->type = request->type;
                h->owner_uid = request->owner_uid;
                h->lease_key = request->lease_key;
                h->next = u->holds;
                u->holds = TAKE_PTR(new);
        }
        if (h->uid != 0 && h->probes & ~request->probes)
                manager_keep_programs(u->manager);
        free(h->owner);
        h->owner = TAKE_PTR(owner);
        h->uid = request->uid;
        h->probes = request->probes;
        h->excludes = request->excludes;
        h->expires = expires;
        sd_event_source_disable_unref(h->expiry);
        h->expiry = expiry;

        u->probes = 0;
        for (Hold *i = u->holds; i; i = i->next)
                u->probes |= i->probes;
        return 0;
}

unsigned manager_count_leases(Manager *m, uid_t uid) {
        unsigned n = 0;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->units[i])
                        for (Hold *h = m->units[i]->holds; h; h = h->next)
                                if (h->type == HOLD_LEASE && h->uid == uid)
                                        n++;
        return n;
}

static unsigned manager_count_units(Manager *m, uid_t uid) {
        unsigned n = 0;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->units[i])
                        for (Hold *h = m->units[i]->holds; h; h = h->next)
                                if (h->uid == uid) {
                                        n++;
                                        break;
                                }

        /* Also those whose books are not free yet */
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->retained[i] && m->retained[i]->last_uid == uid)
                        n++;
        return n;
}

/* Whether root is among those who hold it. */
static bool unit_is_held_by_root(const Unit *u) {
        for (const Hold *h = u->holds; h; h = h->next)
                if (h->uid == 0)
                        return true;
        return false;
}

/* ---- attaching ------------------------------------------------------------------------------------------------ */

static bool unit_has_name(const Unit *u, const char *name) {
        return streq(u->name, name) || names_contain(u->aliases, name) || (name[0] == '/' && streq(u->control_group, name));
}

static Unit* manager_find_unit(Manager *m, const char *name) {
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->units[i] && unit_has_name(m->units[i], name))
                        return m->units[i];
        return NULL;
}

static int unit_new(Manager *m, const char *name, const char *control_group, const char *instances, const char *active_state,
                    sd_id128_t invocation_id, unsigned slot, Unit **ret) {
        Unit *u;

        u = new0(Unit, 1);
        if (!u)
                return -ENOMEM;

        *u = (Unit) {
                .manager = m,
                .index = slot,
                .generation = m->generation + 1,
                .name = strdup(name),
                .control_group = strdup(control_group),
                .instances = instances ? strdup(instances) : NULL,
                .active_state = strdup(active_state),
                .invocation_id = invocation_id,
                .attached_since = now_nsec(CLOCK_REALTIME),
                .attached_since_monotonic = now_nsec(CLOCK_MONOTONIC),
        };
        if (!u->name || !u->control_group || (instances && !u->instances) || !u->active_state || history_new(&u->history) < 0) {
                unit_free(u);
                return -ENOMEM;
        }

        m->generation++;
        m->units[slot] = u;
        m->hierarchy_valid = false;
        m->n_units++;
        *ret = u;
        return 0;
}

/* Its control group is, or will be, another one. */
static void unit_set_cgroup(Unit *u, const char *control_group) {
        if (u->view)
                probe_unassign_path(u->manager->probe, u->control_group);
        hierarchy_notify_relatives(u);
        if (unit_relocate(u, control_group, u->instances) < 0)
                (void) log_oom();
        hierarchy_notify_relatives(u);
}

static int manager_attach_unit(Manager *m, const AttachRequest *request, const char *name, const char *control_group,
                               const char *instances, const char *active_state, sd_id128_t invocation_id, Unit **ret, QosError *e) {
        uint64_t now, expires = USEC_INFINITY;
        unsigned slot = UNITS_MAX_LIMIT;
        bool held, is_new = false;
        Unit *u = NULL, *moved = NULL, *retained;
        ExcludeList excludes;
        char limit[16];
        int r;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                Unit *other = m->units[i];

                if (!other) {
                        if (!m->retained[i])
                                slot = MIN(slot, i);
                        continue;
                }
                if (streq(other->control_group, control_group)) {
                        u = other;
                        break;
                }
                if (name[0] != '/' && streq(other->name, name))
                        moved = other;
        }
        /* Where it is to lie may have changed while it did not run */
        if (!u && moved) {
                u = moved;
                unit_set_cgroup(u, control_group);
                unit_claim_cgroup(u);
        }
        retained = retained_find(m, control_group);
        if (retained)
                slot = retained->index;

        held = u && unit_find_hold(u, request->type, request->lease_key, request->owner_uid);

        if (request->type == HOLD_LEASE && !held && request->uid != 0 &&
            manager_count_leases(m, request->uid) >= m->config.leases_per_uid_max) {
                (void) snprintf(limit, sizeof(limit), "%u", m->config.leases_per_uid_max);
                return qos_error_set(e, QOS_ERROR_TOO_MANY_LEASES, limit, "user %u has %s leases, more are not allowed (LeasesPerUserMax=)", (unsigned) request->uid, limit);
        }
        if (!held && request->uid != 0 && !(retained && retained->last_uid == request->uid) &&
            manager_count_units(m, request->uid) >= m->config.units_per_uid_max) {
                (void) snprintf(limit, sizeof(limit), "%u", m->config.units_per_uid_max);
                return qos_error_set(e, QOS_ERROR_TOO_MANY_UNITS, limit, "user %u keeps %s units attached, more are not allowed (UnitsPerUserMax=)", (unsigned) request->uid, limit);
        }

        if (unit_get_excludes(u, request, &excludes) < 0) {
                (void) snprintf(limit, sizeof(limit), "%u", EXCLUDES_MAX);
                return qos_error_set(e, QOS_ERROR_TOO_MANY_EXCLUDES, limit, "together with what others leave out of the figures of '%s' it would be more than %s things", name, limit);
        }

        if (request->type == HOLD_ADMINISTRATOR && request->duration_usec != USEC_INFINITY) {
                now = now_usec(CLOCK_BOOTTIME);
                expires = request->duration_usec < USEC_INFINITY - now ? now + request->duration_usec : USEC_INFINITY;
        }

        if (!u) {
                unsigned max = request->uid == 0 ? m->config.units_max : limit_for_unprivileged(m->config.units_max), others = 0, retained_others = 0;

                for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                        others += m->units[i] && !unit_is_held_by_root(m->units[i]);
                        retained_others += m->retained[i] && m->retained[i]->last_uid != 0;
                }
                if (m->n_units >= m->config.units_max || (request->uid != 0 && others >= max)) {
                        (void) snprintf(limit, sizeof(limit), "%u", max);
                        return qos_error_set(e, QOS_ERROR_TOO_MANY_UNITS, limit, "%s units are attached, more are not allowed (UnitsMax=)", limit);
                }
                max = request->uid == 0 ? UNITS_MAX_LIMIT : limit_for_unprivileged(UNITS_MAX_LIMIT);
                if (slot >= UNITS_MAX_LIMIT || (request->uid != 0 && !retained && others + retained_others >= max)) {
                        (void) snprintf(limit, sizeof(limit), "%u", max);
                        return qos_error_set(e, QOS_ERROR_TOO_MANY_UNITS, limit,
                                             "%s units are attached, or were within some minutes in units that are, try again later", limit);
                }
                if (strlen(control_group) >= QOS_PATH_SIZE)
                        return qos_error_set(e, QOS_ERROR_NO_CONTROL_GROUP, name, "the path of the control group of '%s' is longer than %u bytes", name, QOS_PATH_SIZE - 1);

                r = unit_new(m, name, control_group, instances, active_state, invocation_id, slot, &u);
                if (r < 0)
                        return r;
                is_new = true;
        }

        r = unit_hold(u, request, expires);
        if (r < 0) {
                if (is_new) {
                        m->units[u->index] = NULL;
                        m->n_units--;
                        unit_free(u);
                }
                return r;
        }

        manager_start_probe(m);
        if (is_new) {
                unit_start(u);
                manager_update_probes(m, NULL);
                if (name[0] != '/') {
                        r = service_manager_watch(m->service_manager, u->name);
                        if (r < 0)
                                log_unit_warning_errno(u->name, r, "Failed to watch '%s', stops and starts will be noticed late: %m", u->name);
                }
                log_unit_info(u->name, "Observing '%s' (%s).", u->name, u->active_state);
                manager_emit_unit_attached(u);
                hierarchy_notify_relatives(u);
                manager_notify_status(m);
        } else {
                unit_apply_excludes(u);
                manager_update_probes(m, NULL);
                manager_emit_unit_changed(u);
        }

        manager_save(m);
        *ret = u;
        return 0;
}

static AttachOperation* attach_operation_free(AttachOperation *o) {
        if (!o)
                return NULL;

        for (AttachOperation **p = &o->manager->operations; *p; p = &(*p)->next)
                if (*p == o) {
                        *p = o->next;
                        break;
                }
        service_manager_call_free(o->call);
        free(o->written);
        free(o->name);
        free(o->owner);
        free(o->suggest_message);
        free(o);
        return NULL;
}

AttachOperation* attach_operation_cancel(AttachOperation *o) {
        return attach_operation_free(o);
}

/* The one place that calls the handler; o is gone afterwards. */
static void attach_operation_finish(AttachOperation *o, int error, const QosError *e, Unit *u) {
        manager_attach_handler_t handler = o->handler;
        void *userdata = o->userdata;
        Manager *m = o->manager;

        attach_operation_free(o);
        handler(m, error, e, u, userdata);
}

/* Without them, whatever the reason, it is said without. */
static void on_suggestions(int error, const char *names, void *userdata) {
        AttachOperation *o = ASSERT_PTR(userdata);
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        o->call = NULL;
        if (isempty(names))
                r = qos_error_set(&e, o->suggest_code, o->name, "%s", o->suggest_message);
        else
                r = qos_error_set(&e, o->suggest_code, o->name, "%s. Did you mean %s?", o->suggest_message, names);
        attach_operation_finish(o, r, &e, NULL);
}

/* The unit is only a name for others: looks which. pattern as in systemctl. */
static void attach_operation_suggest(AttachOperation *o, QosErrorCode code, const char *message) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_free_ char *stem = NULL, *pattern = NULL;
        int r;

        stem = strndup(o->name, strcspn(o->name, "@."));
        o->suggest_message = strdup(message);
        o->suggest_code = code;
        if (!stem || !o->suggest_message || asprintf(&pattern, "%s@*.service", stem) < 0) {
                pattern = NULL;
                attach_operation_finish(o, -ENOMEM, &e, NULL);
                return;
        }

        r = service_manager_list(o->manager->service_manager, pattern, on_suggestions, o, &o->call);
        if (r < 0)
                on_suggestions(r, "", o);
}

static void on_unit_resolved(int error, const char *message, const UnitInfo *info, void *userdata) {
        static const char *const suffixes[] = { ".service", ".scope", ".slice", ".socket" };
        AttachOperation *o = ASSERT_PTR(userdata);
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_free_ char *control_group = NULL;
        bool has_group = false;
        Unit *u = NULL;
        int r;

        o->call = NULL;

        if (error < 0) {
                r = qos_error_set(&e, QOS_ERROR_SERVICE_MANAGER, o->name, "the service manager could not be asked about '%s': %s", o->name, message);
                attach_operation_finish(o, r, &e, NULL);
                return;
        }

        if (!streq(info->load_state, "loaded") && !streq(info->load_state, "masked")) {
                r = qos_error_set(&e, QOS_ERROR_NO_SUCH_UNIT, o->written, "there is no unit '%s' (%s)", o->name, info->load_state);
                attach_operation_finish(o, r, &e, NULL);
                return;
        }

        for (size_t i = 0; i < ELEMENTSOF(suffixes); i++)
                has_group = has_group || endswith(info->id, suffixes[i]);
        if (!has_group) {
                r = qos_error_set(&e, QOS_ERROR_NO_CONTROL_GROUP, info->id, "'%s' has no control group, expected a service, scope, slice or socket", info->id);
                attach_operation_finish(o, r, &e, NULL);
                return;
        }

        if (endswith(info->id, ".socket") && !info->accept && info->triggers) {
                r = qos_error_set(&e, QOS_ERROR_NO_CONTROL_GROUP, info->id, "'%s' starts '%s', which serves its requests, attach that", info->id, info->triggers);
                attach_operation_finish(o, r, &e, NULL);
                return;
        }

        if (streq(info->active_state, "active") && streq_ptr(info->sub_state, "exited")) {
                _cleanup_free_ char *text = NULL;

                if (asprintf(&text, "'%s' is active (exited) and runs no process", info->id) < 0)
                        text = NULL;
                attach_operation_suggest(o, QOS_ERROR_NO_CONTROL_GROUP, text ?: "");
                return;
        }

        r = 0;
        if (!isempty(info->control_group)) {
                control_group = strdup(info->control_group);
                if (!control_group)
                        r = -ENOMEM;
        } else
                r = unit_get_default_control_group(info->id, info->slice, &control_group);
        if (r == -EINVAL)
                r = qos_error_set(&e, QOS_ERROR_NO_CONTROL_GROUP, info->id, "'%s' has no control group (%s)", info->id, info->load_state);
        if (r >= 0)
                r = manager_attach_unit(o->manager, &o->request, info->id, control_group, info->instances, info->active_state,
                                        info->invocation_id, &u, &e);
        if (r >= 0) {
                if (free_and_strdup(&u->aliases, info->names) < 0)
                        (void) log_oom();
                unit_set_sockets(u, info);
        }
        attach_operation_finish(o, r < 0 ? r : 0, &e, r < 0 ? NULL : u);
}

/* As /proc/PID/cgroup shows it: "/a/b", and nothing that leads elsewhere. The root is everybody's. */
static int path_check(const char *path) {
        const char *s = path;

        if (strlen(path) >= PATH_MAX)
                return -EINVAL; /* nothing that can be opened */

        do {
                size_t l;

                s++;
                l = strcspn(s, "/");
                if (l == 0 || l > 255 || (l == 1 && s[0] == '.') || (l == 2 && s[0] == '.' && s[1] == '.'))
                        return -EINVAL;
                for (size_t i = 0; i < l; i++)
                        if ((unsigned char) s[i] < ' ' || s[i] == 0x7f)
                                return -EINVAL;
                s += l;
        } while (*s == '/');

        return 0;
}

/* From what a client wrote to how units are called in here. */
static int name_normalise(const char *written, char **ret, QosError *e) {
        int r;

        if (written[0] == '/') {
                r = path_check(written);
                if (r >= 0) {
                        *ret = strdup(written);
                        r = *ret ? 0 : -ENOMEM;
                }
        } else
                r = unit_name_mangle(written, ret);
        if (r == -EINVAL)
                return qos_error_set(e, QOS_ERROR_INVALID_UNIT_NAME, written,
                                     "'%.*s%s' is neither a unit's name nor the path of a control group",
                                     300, written, strlen(written) > 300 ? "..." : "");
        return r;
}

static void attach_path(AttachOperation *o) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_close_ int fd = -EBADF;
        Unit *u = NULL;
        int r;

        fd = group_open(o->name);
        if (fd < 0)
                r = qos_error_set(&e, QOS_ERROR_NO_SUCH_UNIT, o->written, "there is no control group '%s'", o->name);
        else
                r = manager_attach_unit(o->manager, &o->request, o->name, o->name, NULL, "active", SD_ID128_NULL, &u, &e);
        attach_operation_finish(o, r < 0 ? r : 0, &e, r < 0 ? NULL : u);
}

int manager_attach(Manager *m, const AttachRequest *request, manager_attach_handler_t handler, void *userdata,
                   AttachOperation **ret_operation) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        AttachOperation *o;
        unsigned n = 0;
        const char *at;
        int r;

        if (ret_operation)
                *ret_operation = NULL;

        for (AttachOperation *i = m->operations; i; i = i->next)
                n++;
        if (n >= OPERATIONS_MAX) {
                r = qos_error_set(&e, QOS_ERROR_SERVICE_MANAGER, request->name, "%u attaches are waiting for the service manager already", n);
                handler(m, r, &e, NULL, userdata);
                return 0;
        }

        o = new0(AttachOperation, 1);
        if (!o)
                return -ENOMEM;
        *o = (AttachOperation) {
                .manager = m,
                .next = m->operations,
                .handler = handler,
                .userdata = userdata,
                .request = *request,
                .written = strdup(request->name),
                .owner = request->owner ? strdup(request->owner) : NULL,
        };
        m->operations = o;
        if (!o->written || (request->owner && !o->owner)) {
                attach_operation_free(o);
                return -ENOMEM;
        }
        o->request.name = o->written;
        o->request.owner = o->owner;
        if (o->request.probes == 0)
                o->request.probes = m->config.default_probes;

        r = name_normalise(o->written, &o->name, &e);
        if (r < 0) {
                attach_operation_finish(o, r, &e, NULL);
                return 0;
        }

        if (o->name[0] == '/') {
                attach_path(o);
                return 0;
        }

        at = strchr(o->name, '@');
        if (at && at[1] == '.' && !strchr(at + 2, '@')) {
                if (ret_operation)
                        *ret_operation = o;
                attach_operation_suggest(o, QOS_ERROR_NO_SUCH_UNIT, "a template is not a unit, name an instance of it");
                return 0;
        }

        if (ret_operation)
                *ret_operation = o;
        r = service_manager_load(m->service_manager, o->name, on_unit_resolved, o, &o->call);
        if (r < 0) {
                r = qos_error_set(&e, QOS_ERROR_SERVICE_MANAGER, o->name, "the service manager could not be asked about '%s': %s", o->name, strerror(-r));
                if (ret_operation)
                        *ret_operation = NULL;
                attach_operation_finish(o, r, &e, NULL);
        }
        return 0;
}

Unit* manager_get_unit(Manager *m, const char *name, QosError *e) {
        _cleanup_free_ char *n = NULL;
        Unit *u;

        if (name_normalise(name, &n, e) < 0)
                return NULL;

        u = manager_find_unit(m, n);
        if (!u)
                (void) qos_error_set(e, QOS_ERROR_NOT_ATTACHED, n, "'%s' is not attached", n);
        return u;
}

int manager_detach(Manager *m, const char *name, void *lease_key, uid_t owner_uid, QosError *e) {
        Hold *h = NULL;
        Unit *u;

        u = manager_get_unit(m, name, e);
        if (!u)
                return e && e->code == QOS_ERROR_INVALID_UNIT_NAME ? -EINVAL : -ENXIO;

        for (Hold *i = u->holds, *next; i; i = next) {
                next = i->next;
                if (!hold_is(i, lease_key ? HOLD_LEASE : HOLD_ADMINISTRATOR, lease_key, owner_uid == 0 ? i->owner_uid : owner_uid))
                        continue;
                if (h)
                        hold_free(h);
                h = i;
        }
        if (!h)
                return qos_error_set(e, QOS_ERROR_NOT_ATTACHED, u->name, "'%s' is attached, but by others only", u->name);

        hold_release(h);
        return 0;
}

void unit_drop_file_settings(Unit *u) {
        Hold *h = unit_find_hold(u, HOLD_FILE, NULL, 0);

        threshold_monitor_forget_files(u);
        if (h && !h->seen)
                hold_release(h);
}

void manager_release_lease(Manager *m, void *lease_key) {
        threshold_monitor_release(m, lease_key);
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                Hold *h = m->units[i] ? unit_find_hold(m->units[i], HOLD_LEASE, lease_key, 0) : NULL;

                if (h)
                        hold_release(h);
        }
}

static bool uid_owns_group(const char *path, uid_t uid) {
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        fd = group_open(path);
        return fd >= 0 && fstat(fd, &st) >= 0 && st.st_uid == uid;
}

bool manager_uid_owns(Manager *m, const char *name, uid_t uid) {
        return name[0] == '/' && path_check(name) >= 0 && uid_owns_group(name, uid);
}

bool manager_probes_are_restricted(Manager *m, ProbeMask probes, QosError *e) {
        const char *name = NULL;

        probes = (probes ?: m->config.default_probes) & PROBES_MACHINE_WIDE;
        if (probes == 0)
                return false;
        for (unsigned i = 0; !name; i++)
                if (probes & probe_mask_from_name(probe_mask_name(i)))
                        name = probe_mask_name(i);
        (void) qos_error_set(e, QOS_ERROR_PROBE_NOT_PERMITTED, name,
                             "the probe '%s' slows down every process of the machine and needs authorization (org.qosd1.attach), also from the owner of the control group", name);
        return true;
}

bool manager_uid_owns_attached(Manager *m, const char *name, uid_t uid) {
        const Unit *u = manager_find_unit(m, name);

        return u && !isempty(u->control_group) && uid_owns_group(u->control_group, uid);
}

int manager_get_probes(Manager *m, ProbesInfo *ret) {
        return probe_get_info(m->probe, ret);
}

/* ---- PID 1 says that something changed ------------------------------------------------------------------------ */

static void unit_refresh(Unit *u);

static void unit_refresh_again(Unit *u) {
        u->refresh_again = false;
        unit_refresh(u);
}

static void on_unit_refreshed(int error, const char *message, const UnitInfo *info, void *userdata) {
        Unit *u = ASSERT_PTR(userdata);
        Manager *m = u->manager;
        const char *state, *group;
        bool changed = false;

        u->refresh = NULL;
        if (error < 0) {
                if (error != -ENOTCONN) /* which is logged once for all */
                        log_unit_warning_errno(u->name, error, "Failed to ask the service manager about '%s', its state and control group may be outdated: %s",
                                         u->name, strempty(message));
                if (u->refresh_again)
                        unit_refresh_again(u);
                return;
        }

        state = info->active_state;
        group = strempty(info->control_group);

        if (!streq(u->active_state, state)) {
                log_unit_info(u->name, "'%s' is %s.", u->name, state);
                (void) free_and_strdup(&u->active_state, state);
                changed = true;
        }
        if (!sd_id128_equal(u->invocation_id, info->invocation_id)) {
                u->invocation_id = info->invocation_id;
                changed = true;
        }
        if (!isempty(group) && !streq(u->control_group, group)) {
                unit_set_cgroup(u, group);
                changed = true;
        }

        if (free_and_strdup(&u->aliases, info->names) < 0)
                (void) log_oom();

        unit_set_sockets(u, info);
        if (changed) {
                /* Known in the kernel already, but for sockets that somebody else opened for the unit */
                if (!isempty(group))
                        unit_claim_cgroup(u);
                manager_update_probes(m, u);
                manager_emit_unit_changed(u);
                manager_save(m);
        }

        if (u->refresh_again)
                unit_refresh_again(u);
}

static void unit_refresh(Unit *u) {
        int r;

        if (u->name[0] == '/')
                return;
        if (u->refresh) {
                u->refresh_again = true;
                return;
        }

        r = service_manager_load(u->manager->service_manager, u->name, on_unit_refreshed, u, &u->refresh);
        if (r < 0 && r != -ENOTCONN)
                log_unit_warning_errno(u->name, r, "Failed to ask the service manager about '%s': %m", u->name);
}

/* A socket has been started or stopped: perhaps it is one of an attached service, that PID 1 had not loaded before. */
static void on_socket_loaded(int error, const char *message, const UnitInfo *info, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);

        for (unsigned i = 0; error >= 0 && i < UNITS_MAX_LIMIT; i++)
                if (m->units[i] && names_contain(info->triggers, m->units[i]->name))
                        unit_refresh(m->units[i]);
}

static void manager_on_unit_changed(const char *name, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->units[i] && (!name || streq(m->units[i]->name, name)))
                        unit_refresh(m->units[i]);

        if (name && endswith(name, ".socket"))
                (void) service_manager_load(m->service_manager, name, on_socket_loaded, m, NULL);
        if (!name)
                xqos_loader_scan(m->declared);
}

/* ---- what a restart of qosd must know ------------------------------------------------------------------------- */

static int hold_to_json(const Hold *h, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *excludes = NULL;
        int r;

        r = excludes_to_json(&h->excludes, &excludes);
        if (r < 0)
                return r;

        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_UNSIGNED("probes", h->probes),
                              SD_JSON_BUILD_PAIR_CONDITION(h->excludes.n > 0, "exclude", SD_JSON_BUILD_VARIANT(excludes)),
                              SD_JSON_BUILD_PAIR_UNSIGNED("uid", h->uid),
                              SD_JSON_BUILD_PAIR_CONDITION(h->expires != USEC_INFINITY, "expires", SD_JSON_BUILD_UNSIGNED(h->expires)));
}

static int unit_to_json(const Unit *u, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *hold = NULL, *file = NULL, *own = NULL, *base = NULL, *thresholds = NULL, *contention = NULL;
        int r;

        r = thresholds_list_to_json(u, &thresholds);
        if (r < 0)
                return r;
        for (Hold *h = u->holds; h; h = h->next)
                if (h->type != HOLD_LEASE) {
                        _cleanup_(sd_json_variant_unrefp) sd_json_variant *owners = NULL;

                        r = hold_to_json(h, h->type == HOLD_FILE ? &file : h->owner_uid == 0 ? &hold : &owners);
                        if (r >= 0 && owners)
                                r = sd_json_variant_append_array(&own, owners);
                        if (r < 0)
                                return r;
                }

        if (u->base) {
                r = window_base_to_json(u->base, &base);
                if (r < 0)
                        return r;
        }
        if (u->contention_base) {
                r = contention_base_to_json(u->contention_base, &contention);
                if (r < 0)
                        return r;
        }

        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_STRING("name", u->name),
                              SD_JSON_BUILD_PAIR_STRING("controlGroup", u->control_group),
                              SD_JSON_BUILD_PAIR_CONDITION(!!u->instances, "instances", SD_JSON_BUILD_STRING(u->instances)),
                              SD_JSON_BUILD_PAIR_STRING("activeState", u->active_state),
                              SD_JSON_BUILD_PAIR_UNSIGNED("slot", u->index),
                              SD_JSON_BUILD_PAIR_UNSIGNED("generation", u->generation),
                              SD_JSON_BUILD_PAIR_UNSIGNED("attachedSince", u->attached_since),
                              SD_JSON_BUILD_PAIR_UNSIGNED("attachedSinceMonotonic", u->attached_since_monotonic),
                              SD_JSON_BUILD_PAIR_UNSIGNED("bookSince", u->map_created),
                              SD_JSON_BUILD_PAIR_CONDITION(!!base, "base", SD_JSON_BUILD_VARIANT(base)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!thresholds, "thresholds", SD_JSON_BUILD_VARIANT(thresholds)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!file, "file", SD_JSON_BUILD_VARIANT(file)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!own, "ownerHolds", SD_JSON_BUILD_VARIANT(own)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!u->contention, "contentionSince", SD_JSON_BUILD_UNSIGNED(u->contention_since)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!u->contention, "watchedSince", SD_JSON_BUILD_UNSIGNED(u->watched_since)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!contention, "contentionBase", SD_JSON_BUILD_VARIANT(contention)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!hold, "hold", SD_JSON_BUILD_VARIANT(hold)));
}

static int state_write(Manager *m) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *units = NULL, *v = NULL;
        _cleanup_free_ char *temporary = NULL;
        _cleanup_fclose_ FILE *f = NULL;
        int r;

        r = sd_json_variant_new_array(&units, NULL, 0);
        if (r < 0)
                return r;
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *unit = NULL;
                Unit *u;

                /* Closed books are units that nobody holds */
                if (!m->units[i] && !m->retained[i])
                        continue;
                u = m->units[i] ?: m->retained[i];
                r = unit_to_json(u, &unit);
                if (r >= 0)
                        r = sd_json_variant_append_array(&units, unit);
                if (r < 0 && !u->state_unsaved)
                        log_unit_warning_errno(u->name, r, "A restart of qosd will forget that '%s' is attached: %m", u->name);
                u->state_unsaved = r < 0;
        }

        r = sd_json_buildo(&v,
                           SD_JSON_BUILD_PAIR_STRING("checksum", probe_get_checksum(m->probe)),
                           SD_JSON_BUILD_PAIR_UNSIGNED("generation", m->generation),
                           SD_JSON_BUILD_PAIR_UNSIGNED("crossings", threshold_monitor_get_seq(m)),
                           SD_JSON_BUILD_PAIR_UNSIGNED("crossingsBegin", threshold_monitor_get_seq_begin(m)),
                           SD_JSON_BUILD_PAIR_UNSIGNED("contentionGeneration", m->contention_generation),
                           SD_JSON_BUILD_PAIR_VARIANT("units", units));
        if (r < 0)
                return r;

        if (asprintf(&temporary, "%s.new", m->state_path) < 0)
                return -ENOMEM;
        f = fopen(temporary, "we");
        if (!f)
                return -errno;
        (void) sd_json_variant_dump(v, 0, f, NULL);
        if (fflush(f) != 0 || ferror(f))
                return errno_or_else(EIO);
        if (rename(temporary, m->state_path) < 0)
                return -errno;
        return 0;
}

void manager_save(Manager *m) {
        int r;

        if (!m->state_path)
                return;
        r = state_write(m);
        if (r < 0)
                (void) log_warning_errno(r, "Failed to write '%s', a restart of qosd will forget what is attached: %m", m->state_path);
}

typedef struct SavedUnit {
        const char *name, *control_group, *instances, *active_state;
        uint32_t slot, generation;
        uint64_t attached_since, attached_since_monotonic, map_created, contention_since, watched_since;
        sd_json_variant *hold, *file, *own, *base, *thresholds, *contention_base;
} SavedUnit;

typedef struct SavedHold {
        uint32_t probes;
        uid_t uid;
        uint64_t expires;
        sd_json_variant *exclude;
} SavedHold;

static int hold_restore(Unit *u, HoldType type, bool own, sd_json_variant *v) {
        static const sd_json_dispatch_field hold_table[] = {
                { "probes",  SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint32,  offsetof(SavedHold, probes),  SD_JSON_MANDATORY },
                { "uid",     SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uid_gid, offsetof(SavedHold, uid),     SD_JSON_MANDATORY },
                { "expires", SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,  offsetof(SavedHold, expires), 0                 },
                { "exclude", SD_JSON_VARIANT_ARRAY,    sd_json_dispatch_variant_noref, offsetof(SavedHold, exclude), 0            },
                {}
        };
        SavedHold hold = { .expires = USEC_INFINITY };
        AttachRequest request;
        int r;

        r = sd_json_dispatch(v, hold_table, SD_JSON_ALLOW_EXTENSIONS, &hold);
        if (r < 0)
                return r;
        request = (AttachRequest) {
                .type = type,
                .probes = (hold.probes & _PROBE_ALL) ?: PROBE_REQUESTS, /* it may have had none but what only a newer qosd knows */
                .uid = hold.uid,
                .owner_uid = own ? hold.uid : 0,
        };
        for (size_t i = 0; hold.exclude && i < sd_json_variant_elements(hold.exclude); i++)
                (void) exclude_list_add(&request.excludes, strempty(sd_json_variant_string(sd_json_variant_by_index(hold.exclude, i))));
        r = unit_hold(u, &request, hold.expires);
        if (r >= 0 && type == HOLD_FILE)
                unit_find_hold(u, HOLD_FILE, NULL, 0)->named = true; /* until the first look has ended, which tells whether it is */
        return r;
}

static void hold_restore_or_complain(Unit *u, HoldType type, bool own, sd_json_variant *v) {
        int r = hold_restore(u, type, own, v);

        if (r < 0)
                log_unit_warning_errno(u->name, r, "A hold of '%s' that was kept makes no sense, ignoring: %m", u->name);
}

/* The book of contention of the previous run, if it is still there: else a new one is made. */
static void unit_restore_contention(Unit *u, const SavedUnit *saved) {
        int r;

        if (saved->contention_since == 0) {
                /* One that was made when there was no time to note it */
                probe_remove_contention(u->manager->probe, u->index);
                return;
        }
        r = probe_adopt_contention(u->manager->probe, u->index, u->generation, &u->contention,
                &u->contention_cpus);
        if (r >= 0 && saved->contention_base) {
                u->contention_base = new0(ContentionCounts, 1);
                r = u->contention_base ? contention_base_from_json(saved->contention_base, u->contention_base) : -ENOMEM;
        }
        u->contention_since = saved->contention_since;
        u->watched_since = saved->watched_since;
        if (r < 0) {
                log_unit_warning_errno(u->name, r, "The book of contention of '%s' was lost, its totals begin anew: %m", u->name);
                probe_remove_contention(u->manager->probe, u->index);
                u->contention = NULL;
                u->contention_cpus = NULL;
        }
}

/* What is written there has passed such checks before: this is about files that somebody has changed, or a disk. */
static const char* saved_unit_complain(const Manager *m, const SavedUnit *saved, bool held) {
        _cleanup_free_ char *name = NULL;

        if (name_normalise(saved->name, &name, NULL) < 0 || !streq(name, saved->name))
                return "its name is none of a unit";
        if (saved->control_group[0] != '/' || (saved->control_group[1] != 0 && path_check(saved->control_group) < 0) ||
            strlen(saved->control_group) >= QOS_PATH_SIZE)
                return "its control group is no path of one";
        if (saved->instances && (saved->instances[0] != '/' || path_check(saved->instances) < 0 || strlen(saved->instances) >= QOS_PATH_SIZE))
                return "the control groups of its instances have no such path";
        if (saved->slot >= UNITS_MAX_LIMIT)
                return "there is no such slot";
        if (m->units[saved->slot])
                return "its slot is that of another entry";
        for (unsigned i = 0; held && i < UNITS_MAX_LIMIT; i++)
                if (m->units[i] && m->units[i]->holds && streq(m->units[i]->name, saved->name))
                        return "the unit is in another entry already";
        return NULL;
}

/* ret_reason: why the entry is of no use, if -EBADMSG is returned. */
static int unit_restore(Manager *m, sd_json_variant *v, bool adopted, const char **ret_reason) {
        static const sd_json_dispatch_field unit_table[] = {
                { "name",                   SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string, offsetof(SavedUnit, name),                     SD_JSON_MANDATORY },
                { "controlGroup",           SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string, offsetof(SavedUnit, control_group),            SD_JSON_MANDATORY },
                { "instances",              SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string, offsetof(SavedUnit, instances),                0                 },
                { "activeState",            SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string, offsetof(SavedUnit, active_state),             SD_JSON_MANDATORY },
                { "slot",                   SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint32,       offsetof(SavedUnit, slot),                     SD_JSON_MANDATORY },
                { "generation",             SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint32,       offsetof(SavedUnit, generation),               SD_JSON_MANDATORY },
                { "attachedSince",          SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,       offsetof(SavedUnit, attached_since),           SD_JSON_MANDATORY },
                { "attachedSinceMonotonic", SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,       offsetof(SavedUnit, attached_since_monotonic), SD_JSON_MANDATORY },
                { "bookSince",              SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,       offsetof(SavedUnit, map_created),               0                 },
                { "base",                   SD_JSON_VARIANT_OBJECT,   sd_json_dispatch_variant_noref, offsetof(SavedUnit, base),                    0                 },
                { "contentionSince",        SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,       offsetof(SavedUnit, contention_since),         0                 },
                { "watchedSince",           SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,       offsetof(SavedUnit, watched_since),            0                 },
                { "contentionBase",         SD_JSON_VARIANT_ARRAY,    sd_json_dispatch_variant_noref, offsetof(SavedUnit, contention_base),         0                 },
                { "hold",                   SD_JSON_VARIANT_OBJECT,   sd_json_dispatch_variant_noref, offsetof(SavedUnit, hold),                    0                 },
                { "file",                   SD_JSON_VARIANT_OBJECT,   sd_json_dispatch_variant_noref, offsetof(SavedUnit, file),                    0                 },
                { "ownerHolds",             SD_JSON_VARIANT_ARRAY,    sd_json_dispatch_variant_noref, offsetof(SavedUnit, own),                     0                 },
                { "thresholds",             SD_JSON_VARIANT_ARRAY,    sd_json_dispatch_variant_noref, offsetof(SavedUnit, thresholds),              0                 },
                {}
        };
        SavedUnit saved = {};
        bool held;
        Unit *u;
        int r;

        r = sd_json_dispatch(v, unit_table, SD_JSON_ALLOW_EXTENSIONS, &saved);
        if (r < 0)
                return r;
        held = saved.hold || saved.file || saved.own;
        *ret_reason = saved_unit_complain(m, &saved, held);
        if (*ret_reason)
                return -EBADMSG;
        if (!held && !adopted)
                return 0;

        r = unit_new(m, saved.name, saved.control_group, saved.instances, saved.active_state, SD_ID128_NULL, saved.slot, &u);
        if (r < 0)
                return r;

        if (!held) {
                /* Leases only, whose connections ended with the previous run, or a closed book: see state_restore() */
                r = probe_adopt_unit(m->probe, saved.slot, saved.generation, &u->view);
                if (r < 0)
                        probe_remove_unit(m->probe, saved.slot);
                u->generation = saved.generation;
                u->map_created = saved.map_created;
                if (u->view)
                        unit_restore_contention(u, &saved);
                return 0;
        }

        if (saved.hold)
                hold_restore_or_complain(u, HOLD_ADMINISTRATOR, /* own= */ false, saved.hold);
        if (saved.file)
                hold_restore_or_complain(u, HOLD_FILE, /* own= */ false, saved.file);
        for (size_t i = 0; saved.own && i < sd_json_variant_elements(saved.own); i++)
                hold_restore_or_complain(u, HOLD_ADMINISTRATOR, /* own= */ true, sd_json_variant_by_index(saved.own, i));

        threshold_monitor_from_json(u, saved.thresholds);
        unit_load_history(u, saved.generation);
        if (adopted) {
                r = probe_adopt_unit(m->probe, saved.slot, saved.generation, &u->view);
                if (r >= 0) {
                        u->generation = saved.generation;
                        u->attached_since = saved.attached_since;
                        u->attached_since_monotonic = saved.attached_since_monotonic;
                        u->map_created = saved.map_created;
                        if (saved.base) {
                                u->base = new0(CounterOffset, 1);
                                r = u->base ? window_base_from_json(saved.base, u->base) : -ENOMEM;
                                if (r < 0)
                                        log_unit_warning_errno(u->name, r, "The totals of '%s' make no sense: %m", u->name);
                        }
                        unit_restore_contention(u, &saved);
                        /* Above all that the previous run has given */
                        u->seq = now_usec(CLOCK_BOOTTIME);
                        unit_apply_excludes(u); /* without those of leases, which have ended */
                        manager_begin_history(m);
                } else {
                        log_unit_warning_errno(u->name, r, "The map of '%s' was lost, its totals begin anew: %m", u->name);
                        probe_remove_unit(m->probe, saved.slot);
                }
        }

        /* Without a hold it is let go at once */
        if (u->holds && u->name[0] != '/')
                (void) service_manager_watch(m->service_manager, u->name);
        return 0;
}

static int state_read(const char *path, sd_json_variant **ret) {
        _cleanup_fclose_ FILE *f = NULL;
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        /* To open a pipe could wait */
        fd = open(path, O_RDONLY|O_NONBLOCK|O_NOCTTY|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return S_ISDIR(st.st_mode) ? -EISDIR : -EBADFD;
        f = fdopen(fd, "r");
        if (!f)
                return -errno;
        TAKE_FD(fd);
        return sd_json_parse_file(f, path, 0, ret, NULL, NULL);
}

/* Goes on where the previous run ended. */
static void state_restore(Manager *m) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        sd_json_variant *units, *generation, *crossings, *crossings_begin, *contention_generation;
        const char *checksum;
        bool same, adopted, orphans = false;
        int r;

        r = m->state_path ? state_read(m->state_path, &v) : -ENOENT;
        if (r < 0) {
                if (r != -ENOENT)
                        (void) log_warning_errno(r, "Failed to read '%s', nothing is attached: %m", m->state_path);
                (void) probe_adopt(m->probe, /* discard= */ true);
                return;
        }

        checksum = sd_json_variant_string(sd_json_variant_by_key(v, "checksum"));
        units = sd_json_variant_by_key(v, "units");
        if (!sd_json_variant_is_array(units)) {
                log_warning("'%s' has no list of units, nothing is attached.", m->state_path);
                units = NULL;
        }
        generation = sd_json_variant_by_key(v, "generation");
        contention_generation = sd_json_variant_by_key(v, "contentionGeneration");
        /* Above those that were not noted before a crash, which groups and sockets have still: no more than units, or books, may be */
        if (sd_json_variant_is_unsigned(generation))
                m->generation = sd_json_variant_unsigned(generation) + UNITS_MAX_LIMIT;
        crossings = sd_json_variant_by_key(v, "crossings");
        crossings_begin = sd_json_variant_by_key(v, "crossingsBegin");
        if (sd_json_variant_is_unsigned(crossings))
                threshold_monitor_set_seq(m, sd_json_variant_unsigned(crossings),
                               sd_json_variant_is_unsigned(crossings_begin) ? sd_json_variant_unsigned(crossings_begin) : 0);
        if (sd_json_variant_is_unsigned(contention_generation))
                m->contention_generation = sd_json_variant_unsigned(contention_generation) + UNITS_MAX_LIMIT;

        same = streq_ptr(checksum, probe_get_checksum(m->probe));
        r = probe_adopt(m->probe, !same || !units);
        adopted = r >= 0 && same && units;
        if (units && !adopted)
                (void) log_full_errno(LOG_NOTICE, r,
                                      !same ? "This build of qosd measures with other programs than the one before: totals begin anew." :
                                              "The programs of the previous run cannot be taken over: totals begin anew (%m).");

        for (size_t i = 0; units && i < sd_json_variant_elements(units); i++) {
                const char *reason = NULL;

                r = unit_restore(m, sd_json_variant_by_index(units, i), adopted, &reason);
                if (r < 0)
                        (void) log_warning_errno(r, "Entry %zu in '%s' makes no sense, ignoring: %s", i, m->state_path, reason ?: strerror(-r));
        }

        /* What nobody holds goes on only as a part of others. These are all there by now */
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->units[i] && !m->units[i]->holds)
                        unit_stop(m->units[i]);
                else if (!m->units[i])
                        history_forget(m, i);

        /* Of units that were being attached, or folded, when the previous run ended */
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (!m->retained[i] && !(m->units[i] && m->units[i]->view) && probe_has_unit(m->probe, i)) {
                        probe_remove_unit(m->probe, i);
                        orphans = true;
                }

        if (m->n_units == 0) {
                probe_stop(m->probe);
                return;
        }

        manager_start_probe(m);
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->units[i] && m->units[i]->view && orphans)
                        unit_claim_cgroups(m->units[i]); /* some of which had gone over to them */
                else if (m->units[i])
                        unit_start(m->units[i]);
        manager_update_probes(m, NULL);
        manager_save(m);
        log_info("Observing %u unit%s as before.", m->n_units, m->n_units == 1 ? "" : "s");
}

/* ---- the whole ------------------------------------------------------------------------------------------------ */

/* What the service manager passed: our socket, and what the previous run has put into the descriptor store. */
static void manager_take_fds(Manager *m) {
        _cleanup_free_ char *unknown = NULL;
        unsigned n_unknown = 0;
        char **names = NULL;
        int n;

        n = sd_listen_fds_with_names(/* unset_environment= */ true, &names);
        if (n < 0)
                (void) log_warning_errno(n, "Failed to take over descriptors from the service manager: %m");

        for (int i = 0; i < n; i++) {
                int fd = SD_LISTEN_FDS_START + i;

                if (streq(names[i], "varlink") && m->listen_fd < 0)
                        m->listen_fd = fd;
                else if (!probe_take_fd(m->probe, names[i], fd)) {
                        log_debug("The service manager has passed '%s', which is not known.", names[i]);
                        /* A link of another version, whose program would run for as long as it is stored */
                        (void) sd_notifyf(/* unset_environment= */ false, "FDSTOREREMOVE=1\nFDNAME=%s", names[i]);
                        close_fd(fd);
                        if (n_unknown++ == 0)
                                unknown = TAKE_PTR(names[i]);
                }
                free(names[i]);
        }
        free(names);

        /* After an upgrade there may be a hundred of them */
        if (n_unknown > 0)
                log_warning("The service manager has passed %u descriptor%s that this version does not know, removed from the descriptor store: '%s'%s",
                            n_unknown, n_unknown == 1 ? "" : "s", strempty(unknown), n_unknown == 1 ? "" : " and others");
}

int manager_new(sd_event *event, Manager **ret) {
        const char *directory;
        Manager *m;
        int r;

        m = new0(Manager, 1);
        if (!m)
                return -ENOMEM;
        m->event = sd_event_ref(event);
        m->listen_fd = -EBADF;

        r = config_load("", &m->config);
        if (r >= 0)
                r = threshold_monitor_new(m, &m->thresholds);
        if (r >= 0)
                r = xqos_loader_new(m, &m->declared);
        if (r >= 0)
                r = probe_new(m->event, &m->probe);
        if (r >= 0)
                r = service_manager_new(manager_on_unit_changed, m, &m->service_manager);
        if (r >= 0) {
                directory = getenv("RUNTIME_DIRECTORY");
                if (directory && asprintf(&m->state_path, "%.*s/units", (int) strcspn(directory, ":"), directory) < 0) {
                        m->state_path = NULL;
                        r = -ENOMEM;
                }
                if (directory && asprintf(&m->history_prefix, "%.*s/history-", (int) strcspn(directory, ":"), directory) < 0) {
                        m->history_prefix = NULL;
                        r = -ENOMEM;
                }
        }
        if (r < 0) {
                manager_free(m);
                return r;
        }

        manager_take_fds(m);
        state_restore(m);
        threshold_monitor_restored(m);

        *ret = m;
        return 0;
}

Manager* manager_free(Manager *m) {
        if (!m)
                return NULL;

        /* Servers are gone by now, and have cancelled what their clients wait for */
        assert(!m->observers);
        while (m->operations)
                attach_operation_free(m->operations);
        m->declared = xqos_loader_free(m->declared);
        sd_event_source_disable_unref(m->reconnect);

        m->thresholds = threshold_monitor_free(m->thresholds);
        manager_collect_history(m);
        sd_event_source_disable_unref(m->history);
        sd_event_source_disable_unref(m->fold);
        sd_event_source_disable_unref(m->keep_programs_timer);
        openssl_stop(m);
        contention_stop(m);

        /* Without the notes on what is attached: they are for the next run. What is in the kernel goes with our
         * descriptors, if the service manager does not keep others */
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->units[i] || m->retained[i])
                        unit_free(TAKE_PTR(m->units[i]) ?: TAKE_PTR(m->retained[i]));

        service_manager_free(m->service_manager);
        probe_free(m->probe);
        sd_bus_flush_close_unref(m->bus);
        close_fd(m->listen_fd);
        free(m->state_path);
        free(m->history_prefix);
        sd_event_unref(m->event);
        free(m);
        return NULL;
}

void manager_reload(Manager *m) {
        int r;

        r = config_load("", &m->config);
        if (r < 0) {
                (void) log_error_errno(r, "Failed to read the configuration, the previous one stays in force: %m");
                return;
        }
        log_info("Configuration read.");
}

void manager_notify_ready(Manager *m) {
        if (m->ready)
                return;
        m->ready = true;
        if (!ready_notify())
                log_notice("Beginning took so long that units which are ordered after it were not held up any more: their first requests may not be counted.");
}

void manager_notify_status(Manager *m) {
        if (m->n_units == 0)
                (void) sd_notify(false, "STATUS=Nothing is attached.");
        else
                (void) sd_notifyf(false, "STATUS=Observing %u unit%s.", m->n_units, m->n_units == 1 ? "" : "s");
}

static int on_reconnect(sd_event_source *source, uint64_t usec, void *userdata) {
        (void) manager_connect_bus(ASSERT_PTR(userdata));
        return 0;
}

static void manager_schedule_reconnect(Manager *m) {
        int r;

        m->reconnect = sd_event_source_disable_unref(m->reconnect);
        r = sd_event_add_time_relative(m->event, &m->reconnect, CLOCK_MONOTONIC, RECONNECT_USEC, 0, on_reconnect, m);
        if (r < 0)
                (void) log_error_errno(r, "Failed to wait for the system bus: %m");
}

static int on_bus_disconnected(sd_bus_message *message, void *userdata, sd_bus_error *error) {
        Manager *m = ASSERT_PTR(userdata);

        log_notice("The system bus has gone, trying again.");
        (void) manager_set_bus(m, NULL);
        manager_schedule_reconnect(m);
        return 0;
}

int manager_set_bus(Manager *m, sd_bus *bus) {
        int r;

        if (m->bus)
                manager_emit_bus_changed(m, NULL);
        (void) service_manager_set_bus(m->service_manager, NULL);
        if (m->bus) {
                sd_bus_detach_event(m->bus);
                m->bus = sd_bus_close_unref(m->bus);
        }
        if (!bus)
                return 0;

        m->bus = sd_bus_ref(bus);
        r = service_manager_set_bus(m->service_manager, bus);
        if (r < 0)
                return log_warning_errno(r, "Failed to listen to the service manager: %m");
        manager_emit_bus_changed(m, bus);
        return 0;
}

int manager_connect_bus(Manager *m) {
        _cleanup_(sd_bus_unrefp) sd_bus *bus = NULL;
        int r;

        r = sd_bus_open_system_with_description(&bus, "qosd");
        if (r < 0) {
                (void) log_full_errno(m->reconnect ? LOG_DEBUG : LOG_NOTICE, r, "The system bus is not there yet (%m), going on without it.");
                manager_schedule_reconnect(m);
                return r;
        }
        m->reconnect = sd_event_source_disable_unref(m->reconnect);

        r = sd_bus_attach_event(bus, m->event, SD_EVENT_PRIORITY_NORMAL);
        if (r >= 0)
                r = sd_bus_match_signal_async(bus, NULL, "org.freedesktop.DBus.Local", NULL, "org.freedesktop.DBus.Local",
                                              "Disconnected", on_bus_disconnected, NULL, m);
        if (r < 0)
                return log_error_errno(r, "Failed to use the system bus: %m");
        return manager_set_bus(m, bus);
}

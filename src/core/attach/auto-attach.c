/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <sys/stat.h>
#include <unistd.h>

#include "attach-operation.h"
#include "attach.h"
#include "auto-attach.h"
#include "group-walk.h"
#include "hold.h"
#include "listening-groups.h"
#include "log.h"
#include "manager.h"
#include "probe.h"
#include "service-manager.h"
#include "turns.h"
#include "unit-name.h"
#include "xqos-loader.h"

/* Interval of checks for listening sockets. Reading 50 sockets takes 50 us. */
#define CHECK_USEC (5 * USEC_PER_SEC)

/* Limit of control groups with listening sockets. More than the limit of units, as a unit may have
 * several. */
#define LISTENERS_MAX 1024U

/* Limit of units that are queried or attached at the same time, as PID 1 serves other clients as well. */
#define AUTO_QUERIES_MAX 32U

/* Limit of inactive units that are queried per check. */
#define STOPPED_QUERIES_MAX 4U

/* Limit of the time of one turn of looking up the names of control groups. */
#define LOOKUP_TURN_NSEC NSEC_PER_MSEC

#define CGROUP_ROOT "/sys/fs/cgroup"

typedef enum ListenerState {
        LISTENER_UNNAMED,
        LISTENER_NAMED,
        LISTENER_QUERIED,
        LISTENER_FAILED,                /* to be queried again by the next check */
        LISTENER_NO_UNIT,               /* the control group was not found, or belongs to no unit */
} ListenerState;

/* A control group with listening sockets. */
typedef struct Listener {
        uint64_t group;
        bool seen;                      /* by the current check */
        ListenerState state;
        char *unit;                     /* name of the unit that the group belongs to */
        struct Listener *next;
} Listener;

/* Query of a unit, to attach it, or to find out whether it exists. */
typedef struct Query {
        AutoAttach *auto_attach;
        char *unit;
        bool exists;                    /* only find out whether it exists */
        ServiceManagerCall *call;
        AttachOperation *operation;
        struct Query *next;
} Query;

struct AutoAttach {
        Manager *manager;
        ManagerObserver observer;
        ListeningGroups *groups;
        sd_event_source *timer;         /* NULL: off */
        Turn turn;
        GroupWalk *walk;                /* lookup of names in progress; NULL: none */
        Listener *listeners;
        unsigned n_listeners;
        Query *queries;
        unsigned n_queries;
        unsigned next_slot;             /* slot of the unit to be checked for existence next */
        bool logged_full, logged_many, logged_plan;
};

/* ---- queries ------------------------------------------------------------------------------------------ */

static void auto_attach_continue(AutoAttach *a);

static void query_free(Query *q) {
        AutoAttach *a = q->auto_attach;

        for (Query **p = &a->queries; *p; p = &(*p)->next)
                if (*p == q) {
                        *p = q->next;
                        a->n_queries--;
                        break;
                }
        service_manager_call_free(q->call);
        attach_operation_cancel(q->operation);
        free(q->unit);
        free(q);
}

static void query_end(Query *q) {
        AutoAttach *a = q->auto_attach;

        query_free(q);
        auto_attach_continue(a);
}

static void set_state(AutoAttach *a, const char *unit, ListenerState state) {
        for (Listener *l = a->listeners; l; l = l->next)
                if (streq_ptr(l->unit, unit))
                        l->state = state;
}

static void on_attached(Manager *m, int error, const QosError *e, Unit *u, void *userdata) {
        Query *q = ASSERT_PTR(userdata);
        AutoAttach *a = q->auto_attach;

        q->operation = NULL;
        if (error < 0) {
                /* May be a temporary failure */
                if (e->code == QOS_ERROR_SERVICE_MANAGER_FAILED || e->code == QOS_ERROR_TOO_MANY_UNITS)
                        set_state(a, q->unit, LISTENER_FAILED);
                else
                        log_unit_warning_errno(q->unit, error, "Failed to attach '%s', which listens: %s.",
                                               q->unit, e->message ?: strerror(-error));
        }
        query_end(q);
}

/* Returns the unit to attach for a listening unit: a socket unit's service, except for Accept=yes. NULL:
 * none. */
static const char* info_get_server(const UnitInfo *info, char buffer[static UNIT_NAME_MAX + 1]) {
        _cleanup_(xqos_section_done) XqosSection section = {};
        size_t l;

        if (!streq(info->load_state, "loaded"))
                return NULL;
        if (endswith(info->id, ".socket") && !info->accept && info->triggers) {
                l = strcspn(info->triggers, " ");
                if (l > UNIT_NAME_MAX)
                        return NULL;
                (void) snprintf(buffer, UNIT_NAME_MAX + 1, "%.*s", (int) l, info->triggers);
                return buffer;
        }
        if (xqos_read_files(info->id, info->files, &section, NULL) < 0) {
                (void) log_oom();
                return NULL;
        }
        return section.never ? NULL : info->id;
}

static int query_load(Query *q);

static void on_loaded(int error, const char *message, const UnitInfo *info, void *userdata) {
        Query *q = ASSERT_PTR(userdata);
        AutoAttach *a = q->auto_attach;
        Manager *m = a->manager;
        char buffer[UNIT_NAME_MAX + 1];
        const char *server;
        Unit *u;
        int r;

        q->call = NULL;
        if (error < 0) {
                log_debug("Failed to query '%s': %s", q->unit, strempty(message));
                set_state(a, q->unit, LISTENER_FAILED);
                query_end(q);
                return;
        }

        server = info_get_server(info, buffer);
        u = manager_get_unit(m, info->id, NULL);
        if (q->exists || !server) {
                if (u && (!server || !streq(info->load_state, "loaded")))
                        unit_drop_configured_hold(u);
                query_end(q);
                return;
        }
        if (!streq(server, info->id)) {
                /* The service replaces its socket from now on, and is queried as well, as it may have
                 * Observe=no */
                for (Listener *l = a->listeners; l; l = l->next)
                        if (streq_ptr(l->unit, q->unit) && free_and_strdup(&l->unit, server) < 0)
                                (void) log_oom();
                if (free_and_strdup(&q->unit, server) < 0)
                        r = -ENOMEM;
                else
                        r = query_load(q);
        } else
                r = manager_attach(m, &(AttachRequest) {
                        .name = info->id,
                        .type = HOLD_CONFIGURATION,
                        .owner = m->config.observe_file,
                        .duration_usec = USEC_INFINITY,
                }, on_attached, q, &q->operation);
        if (r < 0) {
                (void) log_debug_errno(r, "Failed to attach '%s': %m", q->unit);
                set_state(a, q->unit, LISTENER_FAILED);
                query_end(q);
        }
}

static int query_load(Query *q) {
        Manager *m = q->auto_attach->manager;

        return service_manager_load(m->service_manager, q->unit, on_loaded, q, &q->call);
}

static int query_new(AutoAttach *a, const char *unit, bool exists) {
        Query *q;
        int r;

        q = new0(Query, 1);
        if (!q)
                return -ENOMEM;
        *q = (Query) { .auto_attach = a, .unit = strdup(unit), .exists = exists, .next = a->queries };
        a->queries = q;
        a->n_queries++;
        r = q->unit ? query_load(q) : -ENOMEM;
        if (r < 0)
                query_free(q);
        return r;
}

/* ---- units -------------------------------------------------------------------------------------------- */

static bool unit_listens(const AutoAttach *a, const Unit *u) {
        for (const Listener *l = a->listeners; l; l = l->next)
                if (streq_ptr(l->unit, u->name))
                        return true;
        return false;
}

/* Checks whether inactive units that do not listen still exist. */
static void auto_attach_query_stopped(AutoAttach *a) {
        unsigned n = 0;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT && n < STOPPED_QUERIES_MAX; i++) {
                Unit *u = a->manager->units.slots[a->next_slot];

                a->next_slot = (a->next_slot + 1) % UNITS_MAX_LIMIT;
                if (u && unit_find_hold(u, HOLD_CONFIGURATION, NULL, 0) &&
                    (streq(u->active_state, "inactive") || streq(u->active_state, "failed")) &&
                    !unit_listens(a, u))
                        n += query_new(a, u->name, /* exists= */ true) >= 0;
        }
}

/* Logs once the number of units that are attached, and the memory that they need at least. */
static void auto_attach_log_plan(AutoAttach *a) {
        ProbesInfo info;
        unsigned n = 0;

        if (a->logged_plan)
                return;
        FOREACH_UNIT(u, a->manager)
                n += !!unit_find_hold(u, HOLD_CONFIGURATION, NULL, 0);
        if (n == 0 || probe_get_info(a->manager->probe, &info) < 0)
                return;
        a->logged_plan = true;
        log_info("%u unit%s that listen%s %s attached by Observe=auto in '%s': at least %.1fM of memory, "
                 "and %.1fK for each open connection.", n, n == 1 ? "" : "s", n == 1 ? "s" : "",
                 n == 1 ? "is" : "are", a->manager->config.observe_file,
                 (double) (n * info.map_memory_per_unit) / (1 << 20),
                 (double) info.memory_per_socket / (1 << 10));
}

/* Queries units that were found, up to the limit of concurrent queries. */
static void auto_attach_continue(AutoAttach *a) {
        Manager *m = a->manager;
        unsigned max = limit_for_unprivileged(m->config.units_max);
        const Listener *beyond = NULL;
        int r;

        if (!a->timer || a->walk)
                return;
        for (Listener *l = a->listeners; l && a->n_queries < AUTO_QUERIES_MAX; l = l->next) {
                if (l->state != LISTENER_NAMED)
                        continue;
                if (m->units.n + a->n_queries >= max && !manager_get_unit(m, l->unit, NULL)) {
                        beyond = l;
                        continue;
                }
                r = query_new(a, l->unit, /* exists= */ false);
                set_state(a, l->unit, r < 0 ? LISTENER_FAILED : LISTENER_QUERIED);
        }
        if (a->n_queries > 0)
                return;

        if (beyond && !a->logged_full)
                log_warning("%u units are attached, and Observe=auto leaves the last quarter of UnitsMax=%u "
                            "to others: '%s' and others that listen are not attached.", m->units.n,
                            m->config.units_max, beyond->unit);
        a->logged_full = beyond;
        auto_attach_log_plan(a);
}

/* ---- control groups ----------------------------------------------------------------------------------- */

static void listener_free(Listener *l) {
        free(l->unit);
        free(l);
}

static void auto_attach_forget(AutoAttach *a, bool seen) {
        for (Listener **p = &a->listeners; *p; ) {
                Listener *l = *p;

                if (l->seen && !seen) {
                        p = &l->next;
                        continue;
                }
                *p = l->next;
                a->n_listeners--;
                listener_free(l);
        }
}

static void on_group(uint64_t id, void *userdata) {
        AutoAttach *a = ASSERT_PTR(userdata);
        Listener *l;

        for (l = a->listeners; l; l = l->next)
                if (l->group == id) {
                        l->seen = true;
                        return;
                }
        if (a->n_listeners >= LISTENERS_MAX) {
                if (!a->logged_many)
                        log_warning("TCP sockets listen in more than %u control groups, Observe=auto leaves "
                                    "out the others.", LISTENERS_MAX);
                a->logged_many = true;
                return;
        }
        l = new0(Listener, 1);
        if (!l) {
                (void) log_oom();
                return;
        }
        *l = (Listener) { .group = id, .seen = true, .next = a->listeners };
        a->listeners = l;
        a->n_listeners++;
}

/* Sets the unit of a control group from the path of its directory. */
static void listener_set_name(Listener *l, int fd) {
        char link[64], path[QOS_PATH_SIZE + sizeof(CGROUP_ROOT)];
        ssize_t n;

        (void) snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, path, sizeof(path) - 1);
        if (n < (ssize_t) strlen(CGROUP_ROOT))
                return;
        path[n] = 0;
        /* Sockets opened by the service manager itself do not identify a service */
        if (control_group_get_top_unit(path + strlen(CGROUP_ROOT), &l->unit) > 0 &&
            !streq(l->unit, "init.scope"))
                l->state = LISTENER_NAMED;
}

/* Continues for one turn. Returns whether all groups were visited. */
static bool auto_attach_look_up(AutoAttach *a) {
        uint64_t end = now_nsec(CLOCK_MONOTONIC) + LOOKUP_TURN_NSEC;
        struct stat st;
        int fd;

        while ((fd = group_walk_next(a->walk)) >= 0) {
                if (fstat(fd, &st) >= 0)
                        for (Listener *l = a->listeners; l; l = l->next)
                                if (l->state == LISTENER_UNNAMED && l->group == st.st_ino)
                                        listener_set_name(l, fd);
                group_walk_enter(a->walk);
                if (now_nsec(CLOCK_MONOTONIC) >= end)
                        return false;
        }
        return true;
}

static void on_lookup_turn(void *userdata) {
        AutoAttach *a = ASSERT_PTR(userdata);

        if (!auto_attach_look_up(a)) {
                (void) turn_request(&a->turn);
                return;
        }
        a->walk = group_walk_free(a->walk);
        for (Listener *l = a->listeners; l; l = l->next)
                if (l->state == LISTENER_UNNAMED)
                        l->state = LISTENER_NO_UNIT;
        auto_attach_continue(a);
}

/* ---- checks ------------------------------------------------------------------------------------------- */

static void on_groups_end(int error, void *userdata) {
        AutoAttach *a = ASSERT_PTR(userdata);
        bool unnamed = false;
        int r = 0;

        if (error < 0) {
                (void) log_debug_errno(error, "Failed to find listening sockets: %m");
                return;
        }
        auto_attach_forget(a, /* seen= */ false);
        if (a->n_listeners < LISTENERS_MAX)
                a->logged_many = false;
        for (const Listener *l = a->listeners; l; l = l->next)
                unnamed = unnamed || l->state == LISTENER_UNNAMED;
        auto_attach_query_stopped(a);
        if (unnamed) {
                r = group_walk_new("", NULL, &a->walk);
                if (r >= 0)
                        r = turn_request(&a->turn);
                if (r < 0)
                        (void) log_oom();
        }
        auto_attach_continue(a);
}

static int on_check(sd_event_source *source, uint64_t usec, void *userdata) {
        AutoAttach *a = ASSERT_PTR(userdata);
        int r;

        for (Listener *l = a->listeners; l; l = l->next) {
                l->seen = false;
                if (l->state == LISTENER_FAILED)
                        l->state = LISTENER_NAMED;
        }
        /* Not during a lookup, which is one pass for all groups that were found before */
        r = a->walk ? 0 : listening_groups_read(a->groups);
        if (r < 0)
                (void) log_debug_errno(r, "Failed to find listening sockets: %m");
        (void) sd_event_source_set_time_relative(source, CHECK_USEC);
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static void auto_attach_stop(AutoAttach *a) {
        a->timer = sd_event_source_disable_unref(a->timer);
        a->groups = listening_groups_free(a->groups);
        a->walk = group_walk_free(a->walk);
        turn_cancel(&a->turn);
        while (a->queries)
                query_free(a->queries);
        auto_attach_forget(a, /* seen= */ true);
        a->logged_full = a->logged_many = a->logged_plan = false;
}

static int auto_attach_start(AutoAttach *a) {
        static const ListeningHandlers handlers = { .group = on_group, .end = on_groups_end };
        Manager *m = a->manager;
        int r;

        if (m->fds.sock_diag < 0)
                return log_warning_errno(-EBADF, "Observe=auto in '%s' has no effect without the "
                                                 "descriptor of qosd-listening.socket: start that, and "
                                                 "restart qosd.", m->config.observe_file);
        r = listening_groups_new(m->event, m->fds.sock_diag, &handlers, a, &a->groups);
        if (r >= 0)
                r = sd_event_add_time_relative(m->event, &a->timer, CLOCK_MONOTONIC, 0, CHECK_USEC / 10,
                                               on_check, a);
        if (r < 0)
                return log_warning_errno(r, "Observe=auto in '%s' has no effect: %m",
                                         m->config.observe_file);
        return 0;
}

/* Queries all units again, as Observe= may have changed. */
static void on_units_reloaded(Manager *m, void *userdata) {
        AutoAttach *a = ASSERT_PTR(userdata);

        if (!a->timer)
                return;
        for (Listener *l = a->listeners; l; l = l->next)
                if (l->unit)
                        l->state = LISTENER_NAMED;
        (void) sd_event_source_set_time_relative(a->timer, 0);
}

void auto_attach_update(AutoAttach *a) {
        auto_attach_stop(a);
        if (a->manager->config.observe_auto && auto_attach_start(a) >= 0)
                return;
        FOREACH_UNIT(u, a->manager)
                unit_drop_configured_hold(u);
}

int auto_attach_new(Manager *m, AutoAttach **ret) {
        AutoAttach *a;
        int r;

        a = new0(AutoAttach, 1);
        if (!a)
                return -ENOMEM;
        a->manager = m;
        r = turn_init(&a->turn, m->turns, 0, on_lookup_turn, a);
        if (r < 0) {
                free(a);
                return r;
        }

        a->observer = (ManagerObserver) {
                .units_reloaded = on_units_reloaded,
                .userdata = a,
        };
        manager_add_observer(m, &a->observer);
        *ret = a;
        return 0;
}

AutoAttach* auto_attach_free(AutoAttach *a) {
        if (!a)
                return NULL;

        manager_remove_observer(a->manager, &a->observer);
        auto_attach_stop(a);
        turn_done(&a->turn);
        free(a);
        return NULL;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the daemon does, independent of who asks: the servers call these and translate, and learn what
 * happens as observers (observer.h). Not thread-safe, one event loop. */

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>
#include <systemd/sd-varlink.h>

#include "config.h"
#include "error.h"
#include "turns.h"
#include "unit-map.h"
#include "unit.h"

typedef struct AttachOperation AttachOperation;
typedef struct Probe Probe;
typedef struct ProbesInfo ProbesInfo;
typedef struct ServiceManager ServiceManager;
typedef struct ThresholdMonitor ThresholdMonitor;                   /* threshold-monitor.c */
typedef struct ThresholdEvent ThresholdEvent;
typedef struct XqosLoader XqosLoader;               /* xqos-loader.c */
typedef struct ManagerObserver ManagerObserver; /* observer.h */

struct Manager {
        sd_event *event;
        sd_bus *bus;                    /* the system bus; NULL while it is away */
        Config config;

        Probe *probe;                   /* probe.c: everything in the kernel */
        ServiceManager *service_manager; /* service-manager.c: PID 1 */
        ThresholdMonitor *thresholds;
        XqosLoader *declared;
        bool ready;                     /* the service manager knows */
        ManagerObserver *observers;

        Unit *units[UNITS_MAX_LIMIT];   /* by slot; NULL: free */
        unsigned n_units;
        uint32_t generation;            /* of the newest unit */
        Unit *retained[UNITS_MAX_LIMIT];  /* detached ones that lie in attached ones (hierarchy.h); each has
                                           * its slot to itself */
        uint64_t inner[UNITS_MAX_LIMIT][UNITS_MAX_LIMIT / 64]; /* of an attached one, the slots of those that
                                                                * lie in it, by bits; gone ones, too */
        bool hierarchy_valid;                /* … that is so; false when a slot has a new unit, or one lies
                                              * elsewhere than before */
        sd_event_source *fold;          /* while there are such */

        int listen_fd, root_listen_fd;  /* the varlink sockets that the service manager passed; negative:
                                         * none */
        TurnQueue *turns;               /* of clients of both buses */
        AttachOperation *operations;    /* attaches that wait for PID 1 */
        sd_event_source *reconnect;     /* while the bus is away */
        char *state_path;               /* what a restart of qosd must know; NULL: nowhere to keep it */
        char *history_prefix;           /* path of the histories' files, up to the number of the slot; NULL
                                         * as well */
        sd_event_source *history;       /* while a unit is observed */

        uint32_t contention_generation; /* of the newest book of contention */
        uint64_t faults_at;             /* when the newest page faults were booked, CLOCK_MONOTONIC ns; 0:
                                         * never */
        const struct qos_contention_map *machine; /* that of all devices (probe.h), while a unit is watched
                                                   * with "block" */
        uint64_t machine_since;         /* when that was made, CLOCK_MONOTONIC ns */
        sd_event_source *moves;         /* while there is one */
        sd_event_source *moves_timer;   /* while threads are to be looked for a little later … */
        uint64_t moves_at;              /* … and when that was last done or will be, CLOCK_MONOTONIC usec */

        uint64_t keep_programs_until;   /* programs that no unit needs stay loaded, CLOCK_MONOTONIC usec … */
        sd_event_source *keep_programs_timer; /* … and are unloaded then */

        /* While a unit is watched (openssl.h) */
        unsigned n_watched;
        sd_event_source *library_events;
        sd_event_source *library_timer; /* while a unit is to be looked at */
        uint64_t library_swept_at;      /* CLOCK_MONOTONIC ns */

        /* The gauges that only the kernel can fill in, for all units at once */
        uint64_t listeners_at;          /* CLOCK_MONOTONIC ns */
        uint64_t listeners_session;
        uint64_t gauges_at;             /* the same of the others */
        uint64_t oldest_session;
        uint64_t gauge_sessions[QOS_GAUGES];
        uint64_t udp_expired_at;        /* … when it was looked at what was asked over UDP */
        uint64_t missed_at;             /* … when it was noticed that the kernel has skipped runs of
                                         * programs; 0: it was not */
        uint64_t reconciled_at;         /* … when the gauges were last corrected for that */
        uint64_t lost_groups;           /* probe_get_lost_groups(), when the groups of units were last looked
                                         * for … */
        uint64_t lost_groups_at;        /* … and when that was */
};

static inline Unit* manager_next_unit(const Manager *m, Unit *const **slot) {
        while (*slot < m->units + UNITS_MAX_LIMIT) {
                Unit *u = *(*slot)++;

                if (u)
                        return u;
        }
        return NULL;
}

/* Each attached unit, by its slot. It may be detached in the body of the loop, and others attached. */
#define FOREACH_UNIT(u, m) for (Unit *const *u##_slot = (m)->units, *u; \
                                (u = manager_next_unit(m, &u##_slot)); )

/* Everything but the buses: no system bus is connected to, nothing listened on. Takes over what a previous
 * run left. */
int manager_new(sd_event *event, Manager **ret);
Manager* manager_free(Manager *m);

/* Connects to the system bus and stays connected: the bus may come late and go away. */
int manager_connect_bus(Manager *m);
/* For tests: this is the system bus. */
int manager_set_bus(Manager *m, sd_bus *bus);

/* Reads the configuration anew. */
void manager_reload(Manager *m);

/* Keeps what a restart of qosd must know. */
void manager_save(Manager *m);

/* Calls f for each control group that the unit has now, those below them included, with its directory's
 * descriptor. */
void unit_for_each_group(Unit *u, void (*f)(Unit *u, int group, void *userdata), void *userdata);

/* Looks for the control groups of all units again where the kernel could not note the owner of one that was
 * made (now: CLOCK_MONOTONIC ns). */
void manager_find_lost_groups(Manager *m, uint64_t now);

/* What unit files say is in force, or it will be later: units that are ordered after qosd may start. */
void manager_notify_ready(Manager *m);

/* The sentence for systemctl status. */
void manager_notify_status(Manager *m);

/* ---- attach and detach -------------------------------------------------------------------------------- */

typedef struct AttachRequest {
        const char *name;               /* as the client wrote it: "nginx", "nginx.service", an alias,
                                         * "/system.slice/x.service" */
        ProbeMask probes;               /* 0: the configured default */
        ExcludeList excludes;
        HoldType type;
        uid_t uid, owner_uid;           /* see struct Hold */
        const char *owner;              /* see Hold.owner */
        void *lease_key;                /* for HOLD_LEASE: any pointer that identifies the connection until
                                         * manager_release_lease(); NULL otherwise */
        uint64_t duration_usec;         /* for HOLD_ADMINISTRATOR: until detached after this long;
                                         * USEC_INFINITY */
} AttachRequest;

/* Called exactly once, from the event loop or from within manager_attach(). error < 0: e says why, u is
 * NULL; otherwise u is attached. Both are the manager's. */
typedef void (*manager_attach_handler_t)(Manager *m, int error, const QosError *e, Unit *u, void *userdata);

/* Resolves the name with PID 1 (asynchronously), takes a hold, starts to observe. Attaching what the same
 * holder already holds renews the hold (probes, excludes and duration replaced). Returns 0 if the handler
 * was or will be called; negative (and no call) only when memory ran out. On ret_operation see
 * attach_operation_cancel(). */
int manager_attach(Manager *m, const AttachRequest *request, manager_attach_handler_t handler,
                   void *userdata, AttachOperation **ret_operation);

/* What all who hold the unit leave out of its figures; those to whom only the control group belongs as long
 * as it is held by no other. request: who is about to join them, instead of what it holds by now; or NULL.
 * -E2BIG: that would be too much. */
int unit_get_excludes(const Unit *u, const AttachRequest *request, ExcludeList *ret);

/* For a client that went away meanwhile: the handler will not be called. Pointer is invalid after the
 * handler ran. */
AttachOperation* attach_operation_cancel(AttachOperation *o);

/* Drops the caller's hold: the lease of the connection; or (lease_key NULL) that of the control group's
 * owner, or, for the administrator, his own and those. name as above, but only attached units are looked at
 * (by name, alias-free, ".service" appended as systemctl does, or path). Fails with NotAttached, also when
 * somebody else's hold is all there is. */
int manager_detach(Manager *m, const char *name, void *lease_key, uid_t owner_uid, QosError *e);

/* What unit files have said of the unit and no longer do is taken back; the unit may be gone then. */
void unit_drop_file_settings(Unit *u);

/* All leases of a connection that ended, of units and of thresholds. */
void manager_release_lease(Manager *m, void *lease_key);

/* Leases a uid has at the moment, for the limit in the configuration (manager_attach() enforces it
 * itself). */
unsigned manager_count_leases(Manager *m, uid_t uid);

/* NULL with NotAttached (or InvalidUnitName); same name rules as manager_detach(). */
Unit* manager_get_unit(Manager *m, const char *name, QosError *e);

/* Does uid own the control group of this unit (design: a caller may attach what its own uid owns)? Resolves
 * like manager_attach but without PID 1: only a path argument ("/user.slice/…") can be owned by other than
 * root. */
bool manager_uid_owns(Manager *m, const char *name, uid_t uid);

/* Whether it is not enough for these probes (0: the default ones) to own the control group. Fills e (if not
 * NULL) with what to say to an owner who gets no more than that. */
bool manager_probes_are_restricted(Manager *m, ProbeMask probes, QosError *e);

/* The same of a unit that is attached, by whatever name: may this user see with whom it talks? */
bool manager_uid_owns_attached(Manager *m, const char *name, uid_t uid);

/* ---- probes ------------------------------------------------------------------------------------------- */

int manager_get_probes(Manager *m, ProbesInfo *ret);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The core of the daemon, independent of its interfaces: servers call these functions, and register
 * observers (observer.h). Not thread-safe, runs in one event loop. */

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>
#include <systemd/sd-varlink.h>

#include "attach-operation.h"
#include "cgroup.h"
#include "config.h"
#include "contention-probe.h"
#include "custom-probe.h"
#include "error.h"
#include "hierarchy.h"
#include "inspections.h"
#include "memory-trim.h"
#include "observe.h"
#include "observer.h"
#include "openssl.h"
#include "passed-fds.h"
#include "read-check.h"
#include "receive-stamps.h"
#include "readings.h"
#include "service-notify.h"
#include "state-file.h"
#include "system-bus.h"
#include "turns.h"
#include "unit-table.h"
#include "unit.h"

typedef struct AutoAttach AutoAttach;
typedef struct Probe Probe;
typedef struct ProbesInfo ProbesInfo;
typedef struct ServiceManager ServiceManager;
typedef struct ThresholdMonitor ThresholdMonitor;                   /* threshold-monitor.c */
typedef struct ThresholdEvent ThresholdEvent;
typedef struct XqosLoader XqosLoader;               /* xqos-loader.c */

struct Manager {
        sd_event *event;
        Config config;

        Probe *probe;                   /* probe.c: everything in the kernel */
        ServiceManager *service_manager; /* service-manager.c: PID 1 */
        ThresholdMonitor *thresholds;
        XqosLoader *xqos;
        AutoAttach *auto_attach;
        ManagerObserver *observers;
        ServiceNotify notify;
        StateFile state_file;

        UnitTable units;
        Hierarchy hierarchy;
        ControlGroups control_groups;
        Readings readings;
        Inspections inspections;

        PassedFds fds;
        SystemBus system_bus;
        TurnQueue *turns;               /* of clients of D-Bus and varlink */
        MemoryTrim *trim;               /* of memory freed after calls of clients */
        AttachOperations attaches;

        ProgramKeeper programs;
        ContentionProbe contention;
        CustomProbes custom;
        OpenSSLWatch openssl;           /* while a unit is observed with "tls" */
        ReadWatch reads;
        ReceiveStamps receive_stamps;
};

static inline Unit* units_next(Unit *const *end, Unit *const **slot) {
        while (*slot < end) {
                Unit *u = *(*slot)++;

                if (u)
                        return u;
        }
        return NULL;
}

/* Iterates over attached units by slot. The loop body may detach the unit, and attach others. */
#define FOREACH_UNIT(u, m) for (Unit *const *u##_slot = (m)->units.slots, *u; \
                                (u = units_next((m)->units.slots + UNITS_MAX_LIMIT, &u##_slot)); )

/* Iterates over retained units by slot. The loop body may free the unit. */
#define FOREACH_RETAINED(u, m)                                                                          \
        for (Unit *const *u##_slot = (m)->hierarchy.retained, *u;                                       \
             (u = units_next((m)->hierarchy.retained + UNITS_MAX_LIMIT, &u##_slot)); )

static inline Unit* manager_next_map(const Manager *m, Unit *const **slot) {
        while (*slot < m->units.slots + UNITS_MAX_LIMIT) {
                size_t i = (*slot)++ - m->units.slots;
                Unit *u = m->units.slots[i] ?: m->hierarchy.retained[i];

                if (u && u->view)
                        return u;
        }
        return NULL;
}

/* Iterates over attached and retained units that have a map, by slot. */
#define FOREACH_MAP(u, m) for (Unit *const *u##_slot = (m)->units.slots, *u; \
                               (u = manager_next_map(m, &u##_slot)); )

/* Creates the core without connections to buses and clients. Adopts the state of the previous run. */
int manager_new(sd_event *event, Manager **ret);
Manager* manager_free(Manager *m);

/* Reloads the configuration. */
int manager_reload(Manager *m);

/* ---- attach and detach -------------------------------------------------------------------------------- */

typedef struct AttachRequest {
        const char *name;               /* as passed by the client: "nginx", "nginx.service", an alias,
                                         * "/system.slice/x.service" */
        ProbeMask probes;               /* 0: the configured default */
        ExcludeList excludes;
        HoldType type;
        uid_t uid, owner_uid;           /* see struct Hold */
        const char *owner;              /* see Hold.owner */
        void *lease_key;                /* for HOLD_LEASE: pointer that identifies the connection until
                                         * manager_release_lease(); NULL otherwise */
        uint64_t duration_usec;         /* for HOLD_ADMINISTRATOR: time until detach; USEC_INFINITY:
                                         * unlimited */
} AttachRequest;

/* Called exactly once, from the event loop or from within manager_attach(). error < 0: described by e, u is
 * NULL; otherwise u is attached. e and u are owned by the manager. */
typedef void (*manager_attach_handler_t)(Manager *m, int error, const QosError *e, Unit *u, void *userdata);

/* Resolves the name with PID 1 (asynchronously), takes a hold, and starts observing. If the client already
 * has a hold, it is renewed, and its probes, exclusions and duration are replaced. Returns 0 if the handler
 * was or will be called; negative, without a call, on -ENOMEM only. For ret_operation see
 * attach_operation_cancel(). */
int manager_attach(Manager *m, const AttachRequest *request, manager_attach_handler_t handler,
                   void *userdata, AttachOperation **ret_operation);

/* Combined exclusions of all holds; those of control group owners only count while there is no other hold.
 * request: hold about to be added or renewed; or NULL. -E2BIG: too many. */
int unit_get_excludes(const Unit *u, const AttachRequest *request, ExcludeList *ret);

/* Cancels an attach, for clients that disconnect: the handler will not be called. o is invalid once the
 * handler has run. */
AttachOperation* attach_operation_cancel(AttachOperation *o);

/* Drops the caller's hold: the lease of the connection; or (lease_key NULL) the hold of the control group's
 * owner, or, for the administrator, both the administrator's and the owner's. name as above, but resolved
 * among attached units only (by name without aliases, ".service" is appended as by systemctl, or by path).
 * Fails with NotAttached, also if all holds belong to others. */
int manager_detach(Manager *m, const char *name, void *lease_key, uid_t owner_uid, QosError *e);

/* Drops the hold of unit files that no longer have the section; the unit may be freed. */
void unit_drop_file_settings(Unit *u);

/* Drops all leases of a connection, of units and thresholds. */
void manager_release_lease(Manager *m, void *lease_key);

/* Number of leases of a user; the limit is enforced by manager_attach(). */
unsigned manager_count_leases(Manager *m, uid_t uid);

/* NULL with NotAttached (or InvalidUnitName); names are resolved as by manager_detach(). */
Unit* manager_get_unit(Manager *m, const char *name, QosError *e);

/* Whether the user owns the control group, which permits attaching it. Resolves names like manager_attach(),
 * but without PID 1: only paths ("/user.slice/...") can have owners other than root. */
bool manager_uid_owns(Manager *m, const char *name, uid_t uid);

/* Whether these probes (0: the default) require more than ownership of the control group. If so, fills in e
 * (unless NULL) for owners without further authorization. */
bool manager_probes_are_restricted(Manager *m, ProbeMask probes, QosError *e);
/* Whether they include a custom probe, for which an action of its own is authorized. */
bool manager_probes_are_custom(const Manager *m, ProbeMask probes);

/* As manager_uid_owns(), for an attached unit by any name: whether the user may see its peers. */
bool manager_uid_owns_attached(Manager *m, const char *name, uid_t uid);

/* ---- probes ------------------------------------------------------------------------------------------- */

int manager_get_probes(Manager *m, ProbesInfo *ret);
int manager_get_programs(Manager *m, ProbesInfo *ret);     /* BPF programs alone */

/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <limits.h>
#include <sys/stat.h>

#include "cgroup.h"
#include "group-walk.h"
#include "hierarchy.h"
#include "hold.h"
#include "log.h"
#include "manager.h"
#include "observer.h"
#include "probe.h"
#include "service-manager.h"
#include "unit-map.h"
#include "unit-table.h"

/* Limit of the time of one turn. A group takes some ten us. */
#define ASSIGN_TURN_NSEC NSEC_PER_MSEC

/* ---- groups ------------------------------------------------------------------------------------------- */

/* Assigns the control groups of an observed unit to it, or those of a unit that is no longer observed to its
 * ancestors. Those of one user are completed one after the other, as each may keep some dozen directories
 * open. */
struct GroupAssignment {
        Manager *manager;
        GroupAssignment *next;          /* next newer one */
        GroupWalk *groups;
        char *control_group, *instances;
        Unit *unit;                     /* unit that gets the groups; NULL: they are released */
        struct qos_owner owner;         /* current owner of groups to be released */
        uid_t uid;
        Turn turn;
};

/* Whether a group, with all descendants, stays assigned to another unit: one contained in this one, or one
 * with sockets opened by the service manager. */
static bool owner_is_other(const Unit *u, const struct qos_owner *owner) {
        const Unit *other = owner->slot < UNITS_MAX_LIMIT ? u->manager->units.slots[owner->slot] : NULL;

        return other && other != u && other->generation == owner->generation && !unit_is_ancestor(other, u);
}

static int group_assign(const Unit *u, int fd) {
        int r;

        r = probe_assign_cgroup(u->manager->probe, fd, u->index, u->generation);
        if (r < 0)
                log_unit_warning_errno(u->name, r,
                                       "Failed to assign a control group of '%s', its sockets are not "
                                       "observed: %m", u->name);
        return r;
}

static bool group_is_owned(Manager *m, int fd, const struct qos_owner *owner) {
        struct qos_owner now;

        return probe_get_group_owner(m->probe, fd, &now) >= 0 &&
                now.slot == owner->slot && now.generation == owner->generation;
}

/* Returns whether descendants are to be visited. A group created meanwhile inherits from one already
 * assigned, or is found by the walk. */
static bool assignment_visit(const GroupAssignment *a, const Unit *to, int fd) {
        struct qos_owner now;

        if (!to) {
                if (!group_is_owned(a->manager, fd, &a->owner))
                        return false;
                probe_unassign_cgroup(a->manager->probe, fd);
                return true;
        }
        if (probe_get_group_owner(a->manager->probe, fd, &now) >= 0 && owner_is_other(to, &now))
                return false;
        return group_assign(to, fd) >= 0;
}

/* Continues for one turn. Returns whether the assignment is complete. */
static bool assignment_step(GroupAssignment *a) {
        uint64_t end = now_nsec(CLOCK_MONOTONIC) + ASSIGN_TURN_NSEC;
        Manager *m = a->manager;
        const Unit *to = a->unit, *to_instances = a->unit;
        int fd;

        if (!probe_is_started(m->probe))
                return true;
        /* Units may have been attached and detached since the last turn */
        if (!a->unit) {
                to = manager_find_innermost(m, a->control_group, NULL);
                to_instances = a->instances ? manager_find_innermost(m, a->instances, NULL) : NULL;
        }
        while ((fd = group_walk_next(a->groups)) >= 0) {
                if (assignment_visit(a, group_walk_is_instance(a->groups) ? to_instances : to, fd))
                        group_walk_enter(a->groups);
                if (now_nsec(CLOCK_MONOTONIC) >= end)
                        return false;
        }
        return true;
}

static void manager_free_assignment(Manager *m, GroupAssignment *a) {
        GroupAssignment **p;

        for (p = &m->control_groups.assignments; *p != a; p = &(*p)->next)
                assert(*p); /* all are in the list */
        *p = a->next;
        turn_done(&a->turn);
        group_walk_free(a->groups);
        free(a->control_group);
        free(a->instances);
        free(a);
}

/* The oldest assignment of a user, which is the one in progress. */
static GroupAssignment* manager_find_assignment(Manager *m, uid_t uid) {
        for (GroupAssignment *a = m->control_groups.assignments; a; a = a->next)
                if (a->uid == uid)
                        return a;
        return NULL;
}

static void assignments_resume(Manager *m, uid_t uid) {
        GroupAssignment *a = manager_find_assignment(m, uid);
        int r;

        r = a ? turn_request(&a->turn) : 0;
        if (r < 0)
                (void) log_error_errno(r, "Failed to schedule the assignment of control groups, their "
                                          "sockets are not observed: %m");
}

static void unit_find_sockets(Unit *u, unsigned n_groups) {
        int r;

        if (n_groups == 0)
                return; /* inactive */
        if (n_groups > GROUPS_MAX)
                log_warning("'%s' has more than %u control groups, not observing the others.", u->name,
                            GROUPS_MAX);

        r = probe_find_sockets(u->manager->probe);
        if (r < 0 && r != -EOPNOTSUPP)
                log_unit_warning_errno(u->name, r, "Failed to find open sockets of '%s': %m",
                                       u->name);
}

static void on_assignment_turn(void *userdata) {
        GroupAssignment *a = ASSERT_PTR(userdata);
        Manager *m = a->manager;
        uid_t uid = a->uid;
        Unit *u = a->unit;

        if (assignment_step(a)) {
                unsigned n = group_walk_count(a->groups);

                manager_free_assignment(m, a);
                if (u) {
                        unit_find_sockets(u, n);
                        manager_emit_unit_claimed(u);
                } else if (probe_is_started(m->probe)) {
                        /* Sockets that were created in groups before their release */
                        hierarchy_push_to_kernel(m, NULL);
                        hierarchy_reassign_sockets(m);
                        (void) probe_find_threads(m->probe);
                }
        }
        assignments_resume(m, uid);
}

/* Assigns groups to the unit; u NULL: releases those of the owner. Returns the number of groups, or UINT_MAX
 * if the assignment continues in further turns. */
static unsigned manager_assign_groups(Manager *m, Unit *u, const struct qos_owner *owner,
                                      const char *control_group, const char *instances, uid_t uid) {
        bool waits = manager_find_assignment(m, uid);
        GroupAssignment *a, **end;
        unsigned n = UINT_MAX;
        int r;

        a = new0(GroupAssignment, 1);
        if (!a) {
                (void) log_oom();
                return 0;
        }
        *a = (GroupAssignment) {
                .manager = m,
                .unit = u,
                .owner = *owner,
                .control_group = strdup(control_group),
                .instances = instances ? strdup(instances) : NULL,
                .uid = uid,
        };
        for (end = &m->control_groups.assignments; *end; end = &(*end)->next)
                ;
        *end = a;
        r = a->control_group && (!instances || a->instances) ?
                group_walk_new(control_group, instances, &a->groups) : -ENOMEM;
        if (r >= 0)
                r = turn_init(&a->turn, m->turns, uid, on_assignment_turn, a);
        if (r < 0) {
                (void) log_oom();
                manager_free_assignment(m, a);
                return 0;
        }

        if (!waits && assignment_step(a)) {
                n = group_walk_count(a->groups);
                manager_free_assignment(m, a);
        }
        assignments_resume(m, uid);
        return n;
}

/* Cancels assignments to the unit, and releases of groups at its path. */
static void unit_cancel_assignment(const Unit *u) {
        Manager *m = u->manager;

        for (GroupAssignment *a = m->control_groups.assignments, *next; a; a = next) {
                uid_t uid = a->uid;

                next = a->next;
                if (a->unit != u && (a->unit || !streq(a->control_group, u->control_group)))
                        continue;
                manager_free_assignment(m, a);
                assignments_resume(m, uid);
        }
}

void manager_end_assignments(Manager *m) {
        while (m->control_groups.assignments)
                manager_free_assignment(m, m->control_groups.assignments);
}

bool unit_is_claiming(const Unit *u) {
        for (const GroupAssignment *a = u->manager->control_groups.assignments; a; a = a->next)
                if (a->unit == u)
                        return true;
        return false;
}

/* Assigns the control group of the unit, existing or future. */
void unit_claim_cgroup(Unit *u) {
        const struct qos_owner owner = { .slot = u->index, .generation = u->generation };
        Manager *m = u->manager;
        bool claiming;
        unsigned n;
        int r;

        if (!u->view || isempty(u->control_group))
                return;

        /* Path first: a group created in between is found by one or the other */
        r = probe_assign_path(m->probe, u->control_group, u->index, u->generation);
        if (r >= 0 && u->instances)
                r = probe_assign_path(m->probe, u->instances, u->index, u->generation);
        if (r < 0)
                log_unit_warning_errno(u->name, r,
                                       "Failed to assign the control group path of '%s', requests "
                                       "may be missed after a restart: %m", u->name);

        claiming = unit_is_claiming(u);
        unit_cancel_assignment(u);
        n = manager_assign_groups(m, u, &owner, u->control_group, u->instances,
                                  !u->holds || unit_is_held_by_root(u) ? 0 : u->holds->uid);
        if (n == UINT_MAX)
                return;
        unit_find_sockets(u, n);
        /* A client may wait for the assignment that this one replaces */
        if (claiming)
                manager_emit_unit_claimed(u);
}

void unit_release_cgroups(Unit *u) {
        const struct qos_owner owner = { .slot = u->index, .generation = u->generation };

        unit_cancel_assignment(u);
        (void) manager_assign_groups(u->manager, NULL, &owner, u->control_group, u->instances, u->last_uid);
}

void unit_release_group(Unit *u, const char *path) {
        const struct qos_owner owner = { .slot = u->index, .generation = u->generation };
        const Unit *to = manager_find_innermost(u->manager, path, u);
        _cleanup_(group_walk_freep) GroupWalk *groups = NULL;
        int fd;

        if (group_walk_new(path, NULL, &groups) < 0) {
                (void) log_oom();
                return;
        }
        while ((fd = group_walk_next(groups)) >= 0) {
                if (!group_is_owned(u->manager, fd, &owner))
                        continue;
                if (!to)
                        probe_unassign_cgroup(u->manager->probe, fd);
                else if (group_assign(to, fd) < 0)
                        continue;
                group_walk_enter(groups);
        }
}

/* Minimum interval of scans, for a kernel that is continuously out of memory: a scan walks the directories
 * of all units. */
#define LOST_GROUPS_NSEC (5 * NSEC_PER_SEC)

void manager_find_lost_groups(Manager *m, uint64_t now) {
        uint64_t lost = probe_get_lost_groups(m->probe);

        if (lost == m->control_groups.n_lost ||
            (m->control_groups.scanned_at != 0 && now < m->control_groups.scanned_at + LOST_GROUPS_NSEC))
                return;
        m->control_groups.n_lost = lost;
        m->control_groups.scanned_at = now;

        FOREACH_UNIT(u, m)
                unit_claim_cgroup(u);
        (void) probe_find_threads(m->probe);
}

/* ---- attaching ---------------------------------------------------------------------------------------- */

static bool uid_owns_group(const char *path, uid_t uid) {
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        fd = cgroup_open(path);
        return fd >= 0 && fstat(fd, &st) >= 0 && st.st_uid == uid;
}

bool manager_uid_owns(Manager *m, const char *name, uid_t uid) {
        return name[0] == '/' && control_group_path_check(name) >= 0 && uid_owns_group(name, uid);
}

bool manager_uid_owns_attached(Manager *m, const char *name, uid_t uid) {
        const Unit *u = manager_find_unit(m, name);

        return u && !isempty(u->control_group) && uid_owns_group(u->control_group, uid);
}

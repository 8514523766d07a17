/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "cgroup.h"
#include "hierarchy.h"
#include "log.h"
#include "manager.h"
#include "observer.h"
#include "probe.h"
#include "service-manager.h"
#include "threshold-monitor.h"
#include "unit-map.h"
#include "unit-table.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

/* Limits for control groups assigned at attach; those created later inherit in the kernel. More than these
 * indicates a container host, where containers should be attached individually. */
#define GROUPS_MAX 16384U
#define GROUP_DEPTH_MAX 32U

/* ---- observing ---------------------------------------------------------------------------------------- */

/* Whether a group, with all descendants, stays assigned to another unit: one contained in this one, or one
 * with sockets opened by the service manager. */
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

/* Assigns the group and its descendants to the unit, or those of the unit to another one (NULL: to none).
 * Depth first: a group created meanwhile inherits from one already assigned, or is found by the walk. */
void cgroup_reassign(Unit *u, const Unit *to, int fd, unsigned depth, unsigned *n) {
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
                        log_unit_warning_errno(to->name, r,
                                               "Failed to assign a control group of '%s', its "
                                               "sockets are not observed: %m", to->name);
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

int cgroup_open(const char *control_group) {
        _cleanup_free_ char *path = NULL;
        int fd;

        if (asprintf(&path, CGROUP_ROOT "%s", control_group) < 0)
                return -ENOMEM;
        fd = open(path, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

/* Calls f for the root groups of the unit: its own one, or those of its instances, which are siblings. */
static void unit_for_each_root(Unit *u, void (*f)(Unit *u, int fd, bool instance, void *userdata),
                               void *userdata) {
        _cleanup_close_ int fd = cgroup_open(u->control_group);
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
        p = parent ? cgroup_open(parent) : -ENOMEM;
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

/* Assigns the groups to the unit, or to its innermost ancestor. Returns their number. */
unsigned unit_reassign_cgroups(Unit *u, bool own) {
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

/* Assigns the control group of the unit, existing or future. */
void unit_claim_cgroup(Unit *u) {
        Manager *m = u->manager;
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

        n = unit_reassign_cgroups(u, true);
        if (n == 0)
                return; /* inactive */
        if (n > GROUPS_MAX)
                log_warning("'%s' has more than %u control groups, not observing the others.", u->name,
                            GROUPS_MAX);

        r = probe_find_sockets(m->probe);
        if (r < 0 && r != -EOPNOTSUPP)
                log_unit_warning_errno(u->name, r, "Failed to find open sockets of '%s': %m",
                                       u->name);
}

/* Interval of scans while groups are lost continuously for lack of memory: a scan walks the directories of
 * all units. */
#define LOST_GROUPS_NSEC (5 * NSEC_PER_SEC)

void manager_find_lost_groups(Manager *m, uint64_t now) {
        uint64_t lost = probe_get_lost_groups(m->probe);

        if (lost == m->lost_groups.n ||
            (m->lost_groups.scanned_at != 0 && now < m->lost_groups.scanned_at + LOST_GROUPS_NSEC))
                return;
        m->lost_groups.n = lost;
        m->lost_groups.scanned_at = now;

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

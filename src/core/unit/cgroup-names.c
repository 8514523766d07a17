/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "cgroup-names.h"
#include "group-walk.h"
#include "hierarchy.h"
#include "manager.h"
#include "parse.h"
#include "unit-name.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

/* Path of the control group with this id, which is the inode of its directory. */
static bool group_find_path(int parent, uint64_t id, unsigned depth, unsigned *left, char *path,
                            size_t size) {
        size_t l = strlen(path);
        struct dirent *e;
        bool found = false;
        DIR *d;

        d = fdopendir(parent);
        if (!d) {
                (void) close_fd(parent);
                return false;
        }
        while (!found && (e = readdir(d))) {
                int fd;

                if (e->d_type != DT_DIR || e->d_name[0] == '.' || *left == 0)
                        continue;
                (*left)--;
                if (l + 1 + strlen(e->d_name) >= size)
                        continue;
                (void) snprintf(path + l, size - l, "/%s", e->d_name);
                if (e->d_ino == id)
                        found = true;
                else if (depth < GROUP_DEPTH_MAX) {
                        fd = openat(dirfd(d), e->d_name, O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);
                        found = fd >= 0 && group_find_path(fd, id, depth + 1, left, path, size);
                }
        }
        if (!found)
                path[l] = 0;
        (void) closedir(d);
        return found;
}

static bool group_is_roots(const char *path, size_t n, void *userdata) {
        char buffer[PATH_MAX];
        struct stat st;

        return snprintf(buffer, sizeof(buffer), CGROUP_ROOT "%.*s", (int) n, path) < (int) sizeof(buffer) &&
               stat(buffer, &st) >= 0 && st.st_uid == 0;
}

/* Unit of a control group: the innermost attached one, otherwise by its path. *ret is unchanged if there
 * is none. */
static int group_get_unit(const Manager *m, const char *path, char **ret) {
        const Unit *best = NULL;
        size_t begin, length;

        FOREACH_UNIT(u, m) {
                const char *rest = !isempty(u->control_group) ? startswith(path, u->control_group) : NULL;

                if (rest && (*rest == 0 || *rest == '/') &&
                    (!best || strlen(u->control_group) > strlen(best->control_group)))
                        best = u;
        }
        begin = control_group_find_unit(path, group_is_roots, NULL, &length);
        if (best && (begin == 0 || strlen(best->control_group) >= begin + length))
                return free_and_strdup(ret, best->name);
        if (begin == 0)
                return 0;
        *ret = strndup(path + begin, length);
        return *ret ? 0 : -ENOMEM;
}

void cgroup_names_done(CgroupNames *c) {
        for (size_t i = 0; i < c->n; i++) {
                free(c->groups[i].path);
                free(c->groups[i].unit);
        }
}

const char* cgroup_names_get(CgroupNames *c, const Manager *m, uint64_t id) {
        char path[4096];
        struct stat st;
        int fd;

        for (size_t i = 0; i < c->n; i++)
                if (c->groups[i].id == id)
                        return c->groups[i].unit;
        if (c->n == ELEMENTSOF(c->groups))
                return NULL;
        c->groups[c->n].id = id;
        FOREACH_UNIT(u, m) {
                if (isempty(u->control_group))
                        continue;
                (void) snprintf(path, sizeof(path), CGROUP_ROOT "%s", u->control_group);
                if (stat(path, &st) >= 0 && st.st_ino == id) {
                        c->groups[c->n].path = strdup(u->control_group);
                        c->groups[c->n].unit = strdup(u->name);
                        return c->groups[c->n++].unit;
                }
        }

        path[0] = 0;
        fd = open(CGROUP_ROOT, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        if (fd >= 0 && group_find_path(fd, id, 0, &c->left, path, sizeof(path))) {
                if (group_get_unit(m, path, &c->groups[c->n].unit) < 0)
                        return NULL;
                c->groups[c->n].path = strdup(path);
        }
        if (c->groups[c->n].unit)
                utf8_sanitize(c->groups[c->n].unit);
        return c->groups[c->n++].unit;
}

const char* cgroup_names_get_path(const CgroupNames *c, uint64_t id) {
        for (size_t i = 0; i < c->n; i++)
                if (c->groups[i].id == id)
                        return c->groups[i].path;
        return NULL;
}

bool cgroup_names_is_within(CgroupNames *c, const Unit *u, uint64_t id) {
        (void) cgroup_names_get(c, u->manager, id);
        for (size_t i = 0; i < c->n; i++)
                if (c->groups[i].id == id)
                        return c->groups[i].path && (streq_ptr(c->groups[i].path, u->control_group) ||
                                                     unit_is_ancestor(u,
                                                                      &(Unit) { .control_group =
                                                                                c->groups[i].path }));
        return false;
}

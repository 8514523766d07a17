/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <dirent.h>
#include <fcntl.h>

#include "group-walk.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

typedef enum WalkState {
        WALK_UNIT,                      /* nothing is visited yet */
        WALK_DESCENDANTS,
        WALK_INSTANCES,                 /* with their descendants */
} WalkState;

struct GroupWalk {
        WalkState state;
        char *control_group;
        char *parent;                   /* of the instances, which are siblings; NULL: none */
        char *stem;                     /* of their names */
        int group;                      /* directory visited last; negative: none */
        unsigned n;
        /* Open directories: the parent of the instances, and a group of each depth. */
        DIR *directories[GROUP_DEPTH_MAX + 1];
        unsigned n_directories;
};

int cgroup_open(const char *control_group) {
        _cleanup_free_ char *path = NULL;
        int fd;

        if (asprintf(&path, CGROUP_ROOT "%s", control_group) < 0)
                return -ENOMEM;
        fd = open(path, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

GroupWalk* group_walk_free(GroupWalk *w) {
        if (!w)
                return NULL;

        while (w->n_directories > 0)
                (void) closedir(w->directories[--w->n_directories]);
        (void) close_fd(w->group);
        free(w->control_group);
        free(w->parent);
        free(w->stem);
        free(w);
        return NULL;
}

int group_walk_new(const char *control_group, const char *instances, GroupWalk **ret) {
        const char *stem = instances ? strrchr(instances, '/') + 1 : NULL;
        GroupWalk *w;

        w = new0(GroupWalk, 1);
        if (!w)
                return -ENOMEM;
        w->group = -EBADF;
        w->control_group = strdup(control_group);
        w->parent = instances ? strndup(instances, stem - instances) : NULL;
        w->stem = instances ? strdup(stem) : NULL;
        if (!w->control_group || (instances && (!w->parent || !w->stem))) {
                group_walk_free(w);
                return -ENOMEM;
        }

        *ret = w;
        return 0;
}

/* Consumes fd; negative: there is no such directory. */
static void walk_read_directory(GroupWalk *w, int fd) {
        DIR *d;

        if (fd < 0 || w->n_directories >= GROUP_DEPTH_MAX + (w->state == WALK_INSTANCES)) {
                (void) close_fd(fd);
                return;
        }
        d = fdopendir(fd);
        if (d)
                w->directories[w->n_directories++] = d;
        else
                (void) close_fd(fd);
}

void group_walk_enter(GroupWalk *w) {
        assert(w->group >= 0);
        walk_read_directory(w, openat(w->group, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC));
}

/* The next group in the open directories. */
static int walk_next_entry(GroupWalk *w) {
        while (w->n_directories > 0) {
                DIR *d = w->directories[w->n_directories - 1];
                struct dirent *de = readdir(d);
                int fd;

                if (!de) {
                        (void) closedir(d);
                        w->n_directories--;
                        continue;
                }
                if (de->d_type != DT_DIR || de->d_name[0] == '.')
                        continue;
                if (w->state == WALK_INSTANCES && w->n_directories == 1 && !startswith(de->d_name, w->stem))
                        continue;
                fd = openat(dirfd(d), de->d_name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
                if (fd >= 0)
                        return fd;
        }
        return -ENOENT;
}

int group_walk_next(GroupWalk *w) {
        w->group = close_fd(w->group);
        if (w->n > GROUPS_MAX)
                return -E2BIG;

        if (w->state == WALK_UNIT) {
                w->state = WALK_DESCENDANTS;
                w->group = cgroup_open(w->control_group);
        }
        if (w->group < 0)
                w->group = walk_next_entry(w);
        if (w->group < 0 && w->state == WALK_DESCENDANTS && w->parent) {
                w->state = WALK_INSTANCES;
                walk_read_directory(w, cgroup_open(w->parent));
                w->group = walk_next_entry(w);
        }
        if (w->group >= 0 && ++w->n > GROUPS_MAX) {
                w->group = close_fd(w->group);
                return -E2BIG;
        }
        return w->group;
}

bool group_walk_is_instance(const GroupWalk *w) {
        return w->state == WALK_INSTANCES;
}

unsigned group_walk_count(const GroupWalk *w) {
        return w->n;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Flag files of violated thresholds. */

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "log.h"
#include "threshold-internal.h"

/* Directory of a unit: its name, or a control group path escaped as by systemd-escape --path. */
static int level_directory(const ThresholdMonitor *thresholds, const char *unit, char **ret) {
        char name[NAME_MAX + 1];
        size_t n = 0;

        for (const char *s = unit + (*unit == '/'); *s; s++) {
                char c[5] = { *s };

                if (*unit == '/' && *s == '/')
                        c[0] = '-';
                else if (*unit == '/' && !strchr(
                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.", *s))
                        (void) snprintf(c, sizeof(c), "\\x%02x", (unsigned char) *s);
                if (n + strlen(c) >= sizeof(name))
                        return -ENAMETOOLONG;
                n += strlen(strcpy(name + n, c));
        }
        name[n] = 0;

        if (asprintf(ret, "%s/%s", thresholds->directory, name) < 0) {
                *ret = NULL;
                return -ENOMEM;
        }
        return 0;
}

static int level_write(const char *path, const char *rule) {
        _cleanup_close_ int fd = -EBADF;

        fd = open(path, O_WRONLY|O_CREAT|O_TRUNC|O_NOFOLLOW|O_CLOEXEC, 0644);
        if (fd < 0 || fchmod(fd, 0644) < 0 || dprintf(fd, "%s\n", rule) < 0)
                return -errno;
        return 0;
}

/* The file appears with its contents: for a path unit each of mode, contents and close would be another
 * change, for which it starts its service again. */
static int level_create(const char *directory, const Threshold *a) {
        _cleanup_free_ char *path = NULL, *temporary = NULL, *rule = NULL;
        int r;

        if (asprintf(&path, "%s/%s", directory, a->rule.name) < 0) {
                path = NULL;
                return -ENOMEM;
        }
        /* No name of a threshold */
        if (asprintf(&temporary, "%s/.#%s", directory, a->rule.name) < 0) {
                temporary = NULL;
                return -ENOMEM;
        }
        /* Readable by everyone, hence without private selectors */
        r = threshold_rule_format(&a->rule, /* named= */ false, &rule);
        if (r < 0)
                return r;

        if (mkdir(directory, 0755) < 0 && errno != EEXIST)
                return -errno;
        if (chmod(directory, 0755) < 0)
                return -errno;
        r = level_write(temporary, rule);
        if (r >= 0 && renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) < 0)
                r = -errno;
        if (r < 0)
                (void) unlink(temporary);
        return r == -EEXIST ? 0 : r; /* unchanged: rewriting would trigger watchers */
}

static void level_remove(const char *directory, const char *name) {
        _cleanup_free_ char *path = NULL;

        if (asprintf(&path, "%s/%s", directory, name) < 0) {
                path = NULL;
                (void) log_oom();
                return;
        }
        (void) unlink(path);
        (void) rmdir(directory); /* if empty */
}

/* The file exists if, and only if, the threshold is violated. */
void threshold_update_flag(const Threshold *a, bool violated) {
        ThresholdMonitor *thresholds = a->unit->manager->thresholds;
        _cleanup_free_ char *directory = NULL;
        int r;

        if (!thresholds->directory || a->source == THRESHOLD_SOURCE_CONDITION)
                return;
        r = level_directory(thresholds, a->unit->name, &directory);
        if (r >= 0 && violated)
                r = level_create(directory, a);
        else if (r >= 0)
                level_remove(directory, a->rule.name);
        if (r < 0)
                log_unit_warning_errno(a->unit->name, r,
                                       "Failed to create flag file of threshold '%s' of '%s': %m",
                                       a->rule.name, a->unit->name);
}

/* Removes outdated files of the previous run. */
static void directory_prune(const ThresholdMonitor *thresholds) {
        DIR *d;

        d = opendir(thresholds->directory);
        if (!d)
                return;
        for (struct dirent *de; (de = readdir(d)); ) {
                _cleanup_close_ int fd = -EBADF;
                DIR *files;

                if (de->d_type != DT_DIR || de->d_name[0] == '.')
                        continue;
                fd = openat(dirfd(d), de->d_name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
                files = fd >= 0 ? fdopendir(fd) : NULL;
                if (!files)
                        continue;
                (void) TAKE_FD(fd);
                for (struct dirent *file; (file = readdir(files)); ) {
                        bool right = false;

                        if (file->d_type != DT_REG)
                                continue;
                        FOREACH_UNIT(u, thresholds->manager) {
                                _cleanup_free_ char *directory = NULL;

                                if (level_directory(thresholds, u->name, &directory) < 0 ||
                                    !streq(strrchr(directory, '/') + 1, de->d_name))
                                        continue;
                                for (Threshold *a = threshold_next(u, NULL); a; a = threshold_next(u, a))
                                        right = right || (a->machine.state == THRESHOLD_VIOLATED &&
                                                          streq(a->rule.name, file->d_name));
                        }
                        if (!right)
                                (void) unlinkat(dirfd(files), file->d_name, 0);
                }
                (void) closedir(files);
                (void) unlinkat(dirfd(d), de->d_name, AT_REMOVEDIR); /* if empty */
        }
        (void) closedir(d);
}

void threshold_monitor_restored(Manager *m) {
        ThresholdMonitor *thresholds = m->thresholds;

        if (!thresholds->directory)
                return;
        directory_prune(thresholds);
        FOREACH_UNIT(u, m)
                for (Threshold *a = threshold_next(u, NULL); a; a = threshold_next(u, a))
                        if (a->machine.state == THRESHOLD_VIOLATED)
                                threshold_update_flag(a, true);
}

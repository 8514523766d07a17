/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Flag files of violated thresholds. */

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "log.h"
#include "threshold-internal.h"

/* Path of the directory of a unit: its name, or the control group path escaped as by systemd-escape
 * --path. */
static int flag_directory(const ThresholdMonitor *thresholds, const char *unit, char **ret) {
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

static int flag_write(const char *path, const char *rule) {
        _cleanup_close_ int fd = -EBADF;

        fd = open(path, O_WRONLY|O_CREAT|O_TRUNC|O_NOFOLLOW|O_CLOEXEC, 0644);
        if (fd < 0 || fchmod(fd, 0644) < 0 || dprintf(fd, "%s\n", rule) < 0)
                return -errno;
        return 0;
}

/* Creates the file atomically, with its contents: to a path unit each of mode, contents and close would be a
 * change, and start its service again. */
static int flag_create(const char *directory, const Threshold *t) {
        _cleanup_free_ char *path = NULL, *temporary = NULL, *rule = NULL;
        int r;

        if (asprintf(&path, "%s/%s", directory, t->rule.name) < 0) {
                path = NULL;
                return -ENOMEM;
        }
        /* Not a valid name of a threshold */
        if (asprintf(&temporary, "%s/.#%s", directory, t->rule.name) < 0) {
                temporary = NULL;
                return -ENOMEM;
        }
        /* Readable by everyone, hence without private selectors */
        r = threshold_rule_format(&t->rule, /* named= */ false, &rule);
        if (r < 0)
                return r;

        if (mkdir(directory, 0755) < 0 && errno != EEXIST)
                return -errno;
        if (chmod(directory, 0755) < 0)
                return -errno;
        r = flag_write(temporary, rule);
        if (r >= 0 && renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) < 0)
                r = -errno;
        if (r < 0)
                (void) unlink(temporary);
        return r == -EEXIST ? 0 : r; /* unchanged: rewriting would trigger watchers */
}

static void flag_remove(const char *directory, const char *name) {
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
void threshold_update_flag(const Threshold *t, bool violated) {
        ThresholdMonitor *thresholds = t->unit->manager->thresholds;
        _cleanup_free_ char *directory = NULL;
        int r;

        if (!thresholds->directory || t->source == THRESHOLD_SOURCE_CONDITION)
                return;
        r = flag_directory(thresholds, t->unit->name, &directory);
        if (r >= 0 && violated)
                r = flag_create(directory, t);
        else if (r >= 0)
                flag_remove(directory, t->rule.name);
        if (r < 0)
                log_unit_warning_errno(t->unit->name, r,
                                       "Failed to create flag file of threshold '%s' of '%s': %m",
                                       t->rule.name, t->unit->name);
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

                                if (flag_directory(thresholds, u->name, &directory) < 0 ||
                                    !streq(strrchr(directory, '/') + 1, de->d_name))
                                        continue;
                                for (Threshold *t = threshold_next(u, NULL); t; t = threshold_next(u, t))
                                        right = right || (t->machine.state == THRESHOLD_VIOLATED &&
                                                          streq(t->rule.name, file->d_name));
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
                for (Threshold *t = threshold_next(u, NULL); t; t = threshold_next(u, t))
                        if (t->machine.state == THRESHOLD_VIOLATED)
                                threshold_update_flag(t, true);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <poll.h>

#include "log.h"
#include "mount-names.h"
#include "util.h"

static void mount_names_clear(MountNames *m) {
        for (size_t i = 0; i < m->n; i++)
                mount_line_done(m->names + i);
        free(m->names);
        m->names = NULL;
        m->n = 0;
}

void mount_names_done(MountNames *m) {
        mount_names_clear(m);
        if (m->file)
                (void) fclose(m->file);
        m->file = NULL;
}

/* Of several mounts of a file system, the first one of all of it counts, or else the first one. */
static int mount_names_add(MountNames *m, const char *line) {
        _cleanup_mount_line_ MountLine name = {};
        MountLine *names;
        int r;

        r = mounts_line_parse(line, &name);
        if (r < 0)
                return r == -ENOMEM ? r : 0;
        for (size_t i = 0; i < m->n; i++)
                if (m->names[i].device == name.device) {
                        if (name.whole && !m->names[i].whole) {
                                mount_line_done(m->names + i);
                                m->names[i] = TAKE_GENERIC(name, MountLine, (MountLine) {});
                        }
                        return 0;
                }
        if (m->n == MOUNT_NAMES_MAX)
                return 0;
        names = reallocarray(m->names, m->n + 1, sizeof(MountLine));
        if (!names)
                return -ENOMEM;
        m->names = names;
        m->names[m->n++] = TAKE_GENERIC(name, MountLine, (MountLine) {});
        return 0;
}

/* The kernel reports a change once to whoever polls the file. */
static bool mounts_have_changed(MountNames *m) {
        struct pollfd p = { .fd = fileno(m->file), .events = POLLPRI };

        return poll(&p, 1, 0) > 0;
}

static void mount_names_refresh(MountNames *m) {
        _cleanup_free_ char *line = NULL;
        bool first = !m->file;
        size_t size = 0;
        int r = 0;

        if (first) {
                m->file = fopen("/proc/self/mountinfo", "re");
                if (!m->file) {
                        log_debug_errno(-errno, "Failed to open /proc/self/mountinfo: %m");
                        return;
                }
        }
        if (!mounts_have_changed(m) && !first)
                return;

        mount_names_clear(m);
        if (fseek(m->file, 0, SEEK_SET) < 0) {
                log_debug_errno(-errno, "Failed to read /proc/self/mountinfo again: %m");
                return;
        }
        while (r >= 0 && getline(&line, &size, m->file) > 0)
                r = mount_names_add(m, line);
        if (r < 0)
                (void) log_oom();
}

const MountLine* mount_names_find(MountNames *m, uint32_t device) {
        mount_names_refresh(m);
        for (size_t i = 0; i < m->n; i++)
                if (m->names[i].device == device)
                        return m->names + i;
        return NULL;
}

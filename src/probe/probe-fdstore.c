/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Descriptors in the descriptor store of the service manager: their names, and the order in which they are
 * stored. See probe_take_fd() and probe_adopt(). */

#include <linux/membarrier.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <systemd/sd-daemon.h>

#include "log.h"
#include "probe-internal.h"

/* ---- the descriptor store ----------------------------------------------------------------------------- */

/* Names are "map-units", "prog-requests_read", "link-requests_read", "unit-17". */
void store_push(Probe *p, const char *kind, const char *name, int fd) {
        char state[320];
        int r;

        (void) snprintf(state, sizeof(state), "FDSTORE=1\nFDPOLL=0\nFDNAME=%s-%s", kind, name);
        r = sd_pid_notify_with_fds(0, /* unset_environment= */ false, state, &fd, 1);
        if (r < 0 && !p->store_complained) {
                p->store_complained = true;
                (void) log_warning_errno(r, "Failed to store '%s-%s' in the descriptor store, a restart of "
                                            "qosd will lose state: %m", kind, name);
        }
}

void store_drop(const char *kind, const char *name) {
        char state[320];

        (void) snprintf(state, sizeof(state), "FDSTOREREMOVE=1\nFDNAME=%s-%s", kind, name);
        (void) sd_notify(/* unset_environment= */ false, state);
}

static void library_name(const Library *l, const char *which, char ret[static 64]) {
        (void) snprintf(ret, 64, "%s-%x-%llx-%x", which, l->device, (unsigned long long) l->inode,
                        (unsigned) l->owner);
}

void store_drop_library(const Library *l) {
        char name[64];

        library_name(l, "enter", name);
        store_drop("library", name);
        library_name(l, "leave", name);
        store_drop("library", name);
}

void store_push_library(Probe *p, const Library *l) {
        char name[64];

        library_name(l, "leave", name);
        store_push(p, "library", name, l->leave_fd);
        library_name(l, "enter", name);
        store_push(p, "library", name, l->enter_fd);
}

void store_push_link(Probe *p, Program i) {
        store_push(p, "link", program_table[i].name, p->link_fds[i]);
}

void store_push_program(Probe *p, Program i) {
        if (p->program_fds[i] >= 0)
                store_push(p, "prog", program_table[i].name, p->program_fds[i]);
        if (p->link_fds[i] >= 0)
                store_push_link(p, i);
}

void store_drop_link(const Probe *p, Program i) {
        if (p->link_fds[i] >= 0)
                store_drop("link", program_table[i].name);
}

void store_drop_program(const Probe *p, Program i) {
        store_drop_link(p, i);
        if (p->program_fds[i] >= 0)
                store_drop("prog", program_table[i].name);
}

/* Stores maps before the programs that use them. */
void store_push_all(Probe *p) {
        for (Map i = 0; i < _MAP_MAX; i++)
                store_push(p, "map", map_table[i], p->map_fds[i]);
        for (Program i = 0; i < _PROGRAM_MAX; i++)
                if (program_works(p, i))
                        store_push_program(p, i);
}

void store_drop_all(Probe *p) {
        for (size_t i = 0; i < p->n_libraries; i++)
                store_drop_library(p->libraries + i);
        for (Program i = 0; i < _PROGRAM_MAX; i++) {
                store_drop("link", program_table[i].name);
                store_drop("prog", program_table[i].name);
        }
        for (Map i = 0; i < _MAP_MAX; i++)
                store_drop("map", map_table[i]);
}

void store_drop_unit(const char *kind, unsigned slot) {
        char name[16];

        (void) snprintf(name, sizeof(name), "%u", slot);
        store_drop(kind, name);
}

void store_push_unit(Probe *p, const char *kind, unsigned slot, int fd) {
        char name[16];

        (void) snprintf(name, sizeof(name), "%u", slot);
        store_push(p, kind, name, fd);
}

/* ---- contention --------------------------------------------------------------------------------------- */

void store_drop_contention(Probe *p, unsigned slot) {
        if (p->contention_fds[slot] >= 0)
                store_drop_unit("contention", slot);
        if (p->shards_fds[slot] >= 0)
                store_drop_unit("shards", slot);
}

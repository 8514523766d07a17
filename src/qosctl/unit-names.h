/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Unit names on the command line. */

#include <systemd/sd-bus.h>

#include "client.h"

#define PID1_NAME "org.freedesktop.systemd1"
#define PID1_PATH "/org/freedesktop/systemd1"

typedef struct Names {
        char **items;
        size_t n;
} Names;

#define NAMES_INIT (Names) {}

void names_done(Names *n);
#define _cleanup_names_ _cleanup_(names_done)

/* Adds a name. Returns 0 if it is in the list already, 1, or -ENOMEM, which is logged. */
int names_add(Names *n, const char *name);

bool is_glob(const char *s);

/* Expands patterns to attached units. Other names are copied, as qosd resolves them. Returns an exit status;
 * STATUS_NOT_ATTACHED for patterns without matches, which are logged. */
int names_expand_attached(Client *c, int argc, char **argv, Names *ret);
/* As above, for a verb of one unit: a pattern that matches several is a usage error. */
int names_expand_one(Client *c, char *pattern, Names *ret);
/* Expands patterns to units that the local service manager has loaded. Returns an exit status. */
int names_expand_loaded(int argc, char **argv, Names *ret);
/* Loads a unit by its name, an alias, or its name without suffix. Returns an exit status, or a negative
 * errno; errors are logged. ret_path: path of the D-Bus object. ret_id: canonical name. */
int unit_load(sd_bus *bus, const char *name, char **ret_path, char **ret_id);
/* Whether a call has failed because the unit is not attached, although it exists. Units that the local
 * service manager cannot know count as existing. */
bool unit_is_detached(int r, const Replies *replies);
/* Logs that units of this type have no processes. Returns an exit status. */
int unit_type_fail(const char *unit);
/* As client_fail() with "<what> '<unit>'", but for the error NotAttached distinguishes units that do not
 * exist, and suggests a similar name for these. */
int unit_fail(int r, const Replies *replies, const char *what, const char *unit);
int unit_read_fail(int r, const Replies *replies, const char *unit);
/* Adds units of this host that listen on TCP. Returns 0 or a negative errno, which is logged. */
int names_find_listening(Names *ret);
/* Finds the unit of this host that listens at an address in the format of qosd ("127.0.0.1:80",
 * "/run/x.sock"). The caller frees the name. -ENOENT: no unit is known, -EREMOTE: not an address of this
 * host, -EINVAL: not an address. */
int listener_find_unit(const char *address, char **ret);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Replies of org.freedesktop.DBus.ObjectManager.GetManagedObjects as text. */

#include <stdio.h>
#include <systemd/sd-bus.h>

/* All properties that do not change with each reading, sorted, with a line for each property and for each
 * interface without one. */
typedef struct Lines {
        char *lines[1U << 18];
        size_t n;
} Lines;

/* Prints the rest of a message, or of the container in it that was entered. */
void print_value(sd_bus_message *m, FILE *f);

/* m: the reply. Fails the test if it is malformed. */
Lines* read_objects(sd_bus_message *m);
void lines_free(Lines *l);

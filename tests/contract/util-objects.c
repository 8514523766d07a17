/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "util-objects.h"
#include "util.h"

static int compare_lines(const void *a, const void *b) {
        return strcmp(*(char *const*) a, *(char *const*) b);
}

void print_value(sd_bus_message *m, FILE *f) {
        const char *contents;
        char type;

        while (sd_bus_message_peek_type(m, &type, &contents) > 0) {
                union {
                        const char *s;
                        uint64_t t;
                } value = {};

                if (strchr("aver(", type)) {
                        check(sd_bus_message_enter_container(m, type, contents) > 0);
                        fprintf(f, " %c%s<", type, contents);
                        print_value(m, f);
                        fprintf(f, ">");
                        check(sd_bus_message_exit_container(m) > 0);
                        continue;
                }
                check(sd_bus_message_read_basic(m, type, &value) > 0);
                if (strchr("sog", type))
                        fprintf(f, " %c%s", type, value.s);
                else
                        fprintf(f, " %c%" PRIx64, type, value.t);
        }
}

/* m: at an array of properties */
static void read_properties(Lines *l, sd_bus_message *m, const char *path, const char *interface) {
        const char *name;
        size_t size;
        FILE *f;

        check(sd_bus_message_enter_container(m, 'a', "{sv}") > 0);
        check(l->n < ELEMENTSOF(l->lines));
        check(asprintf(l->lines + l->n++, "%s %s", path, interface) > 0);
        while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
                check(sd_bus_message_read(m, "s", &name) > 0);
                check(l->n < ELEMENTSOF(l->lines));
                f = open_memstream(l->lines + l->n++, &size);
                check(f);
                fprintf(f, "%s %s %s", path, interface, name);
                if (!streq(name, "Seq") && !streq(name, "Timestamp"))
                        print_value(m, f);
                else
                        check(sd_bus_message_skip(m, "v") > 0);
                check(fclose(f) == 0);
                check(sd_bus_message_exit_container(m) > 0);
        }
        check(sd_bus_message_exit_container(m) > 0);
}

Lines* read_objects(sd_bus_message *m) {
        const char *path, *interface;
        Lines *l = new0(Lines, 1);

        check(l);
        check(sd_bus_message_enter_container(m, 'a', "{oa{sa{sv}}}") > 0);
        while (sd_bus_message_enter_container(m, 'e', "oa{sa{sv}}") > 0) {
                check(sd_bus_message_read(m, "o", &path) > 0);
                check(sd_bus_message_enter_container(m, 'a', "{sa{sv}}") > 0);
                while (sd_bus_message_enter_container(m, 'e', "sa{sv}") > 0) {
                        check(sd_bus_message_read(m, "s", &interface) > 0);
                        read_properties(l, m, path, interface);
                        check(sd_bus_message_exit_container(m) > 0);
                }
                check(sd_bus_message_exit_container(m) > 0);
                check(sd_bus_message_exit_container(m) > 0);
        }
        check(sd_bus_message_exit_container(m) > 0);
        check(sd_bus_message_at_end(m, true) > 0);
        qsort(l->lines, l->n, sizeof(l->lines[0]), compare_lines);
        return l;
}

void lines_free(Lines *l) {
        for (size_t i = 0; i < l->n; i++)
                free(l->lines[i]);
        free(l);
}

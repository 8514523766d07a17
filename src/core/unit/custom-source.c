/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "custom-source.h"
#include "log.h"
#include "probe-custom.h"

CustomSource unit_get_custom_source(const Unit *u, unsigned i) {
        return (CustomSource) { .map = u->custom[i].map, .since = u->custom[i].since };
}

void unit_add_custom(Unit *u, const Unit *inner, unsigned i, int times) {
        CustomSource source = unit_get_custom_source(inner, i);
        int r;

        if (!u->custom[i].map || !inner->custom[i].map)
                return;
        r = custom_reading_add(&u->custom[i].base, u->manager->custom.probes[i].manifest, &source, times);
        if (r < 0)
                (void) log_oom();
}

void unit_open_custom(Unit *u, const Unit *inner) {
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++)
                unit_add_custom(u, inner, i, 1);
}

void unit_close_custom(Unit *u, const Unit *inner) {
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++)
                unit_add_custom(u, inner, i, -1);
}

void unit_forget_custom(Unit *u) {
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++) {
                if (u->custom[i].map)
                        custom_object_remove_unit(u->manager->custom.probes[i].object, u->index);
                u->custom[i].map = NULL;
                custom_reading_done(&u->custom[i].base);
        }
}

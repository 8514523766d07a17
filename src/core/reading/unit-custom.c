/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "custom-source.h"
#include "hierarchy.h"
#include "unit-custom.h"

static void device_format(uint32_t device, char *ret, size_t size) {
        char name[DEVICE_NAME_MAX];

        device_get_name(device, name);
        (void) snprintf(ret, size, "%s", name);
}

static int unit_write_custom(const Unit *u, unsigned i, uint64_t window, JsonWriter *w) {
        const CustomManifest *manifest = u->manager->custom.probes[i].manifest;
        CustomSource sources[UNITS_MAX_LIMIT];
        Manager *m = u->manager;
        CustomReading reading;
        size_t n = 0;
        int r;

        sources[n++] = unit_get_custom_source(u, i);
        for (unsigned k = 0; (k = unit_next_inner_slot(u, k)) < UNITS_MAX_LIMIT; k++) {
                const Unit *other = m->units.slots[k] ?: m->hierarchy.retained[k];

                if (other && other->view && other->custom[i].map)
                        sources[n++] = unit_get_custom_source(other, i);
        }
        r = custom_read(&(CustomSources){ .manifest = manifest,
                                          .sources = sources,
                                          .n = n,
                                          .since = u->custom[i].watched_since,
                                          .before = &u->custom[i].base },
                        now_nsec(CLOCK_MONOTONIC), window, &reading);
        if (r < 0)
                return r == -EAGAIN ? 0 : r;
        custom_reading_write(&reading, manifest, m->config.minimum_samples, device_format, w);
        custom_reading_done(&reading);
        return 0;
}

static int unit_write_all_custom(const Unit *u, uint64_t window, sd_json_variant **ret) {
        _cleanup_json_writer_ JsonWriter w;
        int r = 0;

        json_writer_begin(&w, /* text= */ false);
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX && r >= 0; i++)
                if (u->custom[i].map)
                        r = unit_write_custom(u, i, window, &w);
        return r < 0 ? r : json_writer_finish_variant(&w, ret);
}

int unit_custom_to_json(const Unit *u, uint64_t window, sd_json_variant **ret) {
        bool any = false;

        *ret = NULL;
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++)
                any = any || u->custom[i].map;
        return any && u->view ? unit_write_all_custom(u, window, ret) : 0;
}

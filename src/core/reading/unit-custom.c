/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "custom-source.h"
#include "hierarchy.h"
#include "unit-custom.h"

static void device_format(uint32_t device, char *ret, size_t size) {
        char name[DEVICE_NAME_MAX];

        device_get_name(device, name);
        (void) snprintf(ret, size, "%s", name);
}

/* The maps of the unit and its descendants for a probe that the unit has a map for. */
static CustomSources unit_get_custom_sources(const Unit *u, unsigned i,
                                             CustomSource sources[static UNITS_MAX_LIMIT]) {
        Manager *m = u->manager;
        size_t n = 0;

        sources[n++] = unit_get_custom_source(u, i);
        for (unsigned k = 0; (k = unit_next_inner_slot(u, k)) < UNITS_MAX_LIMIT; k++) {
                const Unit *other = m->units.slots[k] ?: m->hierarchy.retained[k];

                if (other && other->view && other->custom[i].map)
                        sources[n++] = unit_get_custom_source(other, i);
        }
        return (CustomSources) {
                .manifest = m->custom.probes[i].manifest,
                .sources = sources,
                .n = n,
                .since = u->custom[i].watched_since,
                .before = &u->custom[i].base,
        };
}

static int unit_read_custom(const Unit *u, unsigned i, uint64_t now, uint64_t window, CustomReading *ret) {
        CustomSource buffer[UNITS_MAX_LIMIT];
        CustomSources sources = unit_get_custom_sources(u, i, buffer);

        return custom_read(&sources, now, window, ret);
}

void unit_fill_custom(const Unit *u, HistoryStep *s) {
        CustomSource buffer[UNITS_MAX_LIMIT];
        CustomReading reading;

        for (unsigned i = 0; i < CUSTOM_PROBES_MAX && s->n_custom < HISTORY_CUSTOM_MAX; i++) {
                CustomSources sources;

                if (!u->custom[i].map)
                        continue;
                sources = unit_get_custom_sources(u, i, buffer);
                if (custom_read_step(&sources, s->index, &reading) < 0)
                        continue;
                history_step_add_custom(s, &reading, sources.manifest, device_format);
                custom_reading_done(&reading);
        }
}

static int unit_write_custom(const Unit *u, unsigned i, uint64_t window, bool entries, JsonWriter *w) {
        CustomReading reading;
        int r;

        r = unit_read_custom(u, i, now_nsec(CLOCK_MONOTONIC), window, &reading);
        if (r < 0)
                return r == -EAGAIN ? 0 : r;
        custom_reading_write(&reading, u->manager->custom.probes[i].manifest,
                             u->manager->config.minimum_samples, entries ? device_format : NULL, w);
        custom_reading_done(&reading);
        return 0;
}

double unit_get_custom_value(const Unit *u, const char *path, CustomField field, uint64_t now,
                             uint64_t window) {
        const char *metric = strchr(path, '.');
        CustomReading reading;
        double value;

        for (unsigned i = 0; metric && i < CUSTOM_PROBES_MAX; i++) {
                const char *name = probe_mask_custom_name(i);

                if (!u->custom[i].map || !name || strlen(name) != (size_t) (metric - path) ||
                    memcmp(name, path, strlen(name)) != 0)
                        continue;
                if (unit_read_custom(u, i, now, window, &reading) < 0)
                        return NAN;
                value = custom_reading_get(&reading, u->manager->custom.probes[i].manifest, metric + 1,
                                           field, u->manager->config.minimum_samples);
                custom_reading_done(&reading);
                return value;
        }
        return NAN;
}

static int unit_write_all_custom(const Unit *u, uint64_t window, bool entries, sd_json_variant **ret) {
        _cleanup_json_writer_ JsonWriter w;
        int r = 0;

        json_writer_begin(&w, /* text= */ false);
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX && r >= 0; i++)
                if (u->custom[i].map)
                        r = unit_write_custom(u, i, window, entries, &w);
        return r < 0 ? r : json_writer_finish_variant(&w, ret);
}

int unit_custom_to_json(const Unit *u, uint64_t window, bool entries, sd_json_variant **ret) {
        bool any = false;

        *ret = NULL;
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++)
                any = any || u->custom[i].map;
        return any && u->view ? unit_write_all_custom(u, window, entries, ret) : 0;
}

/* With nested units. */
static double unit_get_custom_cost(const Unit *u, unsigned i) {
        Manager *m = u->manager;
        double cost = u->custom[i].cost;

        for (unsigned k = 0; (k = unit_next_inner_slot(u, k)) < UNITS_MAX_LIMIT; k++) {
                const Unit *other = m->units.slots[k] ?: m->hierarchy.retained[k];

                if (other && other->view && other->custom[i].map)
                        cost += other->custom[i].cost;
        }
        return cost;
}

int unit_custom_cost_to_json(const Unit *u, sd_json_variant **ret) {
        int r = 0;

        *ret = NULL;
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX && r >= 0; i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *cost = NULL;

                if (!u->view || !u->custom[i].map || !(u->manager->custom.probes[i].cost > 0))
                        continue;
                r = sd_json_variant_new_real(&cost, unit_get_custom_cost(u, i));
                if (r >= 0)
                        r = sd_json_variant_set_field(ret, probe_mask_custom_name(i), cost);
        }
        return r;
}

static int unit_write_exports(const Unit *u, JsonWriter *w) {
        int r = 0;

        for (unsigned i = 0; i < CUSTOM_PROBES_MAX && r >= 0; i++) {
                CustomReading reading;

                if (!u->custom[i].map)
                        continue;
                r = unit_read_custom(u, i, now_nsec(CLOCK_MONOTONIC), WINDOW_TOTAL, &reading);
                if (r < 0)
                        break;
                custom_reading_export(&reading, u->manager->custom.probes[i].manifest, device_format, w);
                custom_reading_done(&reading);
        }
        return r;
}

int unit_export_custom(const Unit *u, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *object = NULL;
        JsonWriter w;
        int r;

        *ret = NULL;
        if (!u->view)
                return 0;
        json_writer_begin(&w, /* text= */ false);
        json_writer_open_array(&w, "custom");
        r = unit_write_exports(u, &w);
        json_writer_close_some(&w);
        if (r >= 0)
                r = json_writer_finish_variant(&w, &object);
        json_writer_done(&w);
        if (r >= 0)
                *ret = sd_json_variant_ref(sd_json_variant_by_key(object, "custom"));
        return r;
}

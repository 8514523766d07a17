/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "dbus-custom.h"
#include "manager.h"
#include "unit-custom.h"

/* Calls handler for each field of an object, with its name after that of the object. */
typedef int (*field_handler_t)(sd_bus_message *reply, const char *name, sd_json_variant *value);

static int foreach_field(sd_bus_message *reply, const char *prefix, sd_json_variant *object,
                         field_handler_t handler) {
        int r = 0;

        for (size_t i = 0; i + 1 < sd_json_variant_elements(object) && r >= 0; i += 2) {
                _cleanup_free_ char *name = NULL;

                if (asprintf(&name, "%s.%s", prefix,
                             sd_json_variant_string(sd_json_variant_by_index(object, i))) < 0) {
                        name = NULL;
                        return -ENOMEM;
                }
                r = handler(reply, name, sd_json_variant_by_index(object, i + 1));
        }
        return r;
}

static int append_value(sd_bus_message *reply, const char *name, sd_json_variant *value) {
        if (sd_json_variant_is_unsigned(value))
                return sd_bus_message_append(reply, "{sv}", name, "t", sd_json_variant_unsigned(value));
        if (sd_json_variant_is_real(value))
                return sd_bus_message_append(reply, "{sv}", name, "d", sd_json_variant_real(value));
        return 0; /* entries of labels */
}

static int append_metric(sd_bus_message *reply, const char *name, sd_json_variant *metric) {
        return foreach_field(reply, name, metric, append_value);
}

static int append_probe(sd_bus_message *reply, const char *name, sd_json_variant *probe) {
        return foreach_field(reply, name, probe, append_metric);
}

int append_custom_metrics(sd_bus_message *reply, const Unit *u, uint64_t window) {
        sd_json_variant *custom = NULL;
        int r;

        r = unit_custom_to_json(u, window, /* entries= */ true, &custom);
        if (r >= 0 && custom)
                r = foreach_field(reply, "custom", custom, append_probe);
        (void) sd_json_variant_unref(custom);
        return r;
}

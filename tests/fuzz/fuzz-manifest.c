/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Any manifest of a custom probe: one that is accepted has names and numbers within the limits, and one that
 * is not has a reason. */

#include "check.h"
#include "fuzz.h"
#include "manifest.h"

static const char* text_of(sd_json_variant *v, const char *field) {
        return sd_json_variant_string(sd_json_variant_by_key(v, field));
}

static size_t elements_of(sd_json_variant *v, const char *field) {
        sd_json_variant *array = sd_json_variant_by_key(v, field);

        return array ? sd_json_variant_elements(array) : 0;
}

static void check_metric(sd_json_variant *metric) {
        sd_json_variant *labels = sd_json_variant_by_key(metric, "labels");
        size_t n = elements_of(metric, "labels");

        check(manifest_name_is_valid(text_of(metric, "name")));
        check(text_of(metric, "type") && text_of(metric, "unit") && text_of(metric, "description"));
        check(n <= MANIFEST_LABELS_MAX);
        for (size_t i = 0; i < n; i++) {
                sd_json_variant *label = sd_json_variant_by_index(labels, i);

                check(manifest_name_is_valid(text_of(label, "name")));
                check(elements_of(label, "values") <= MANIFEST_VALUES_MAX);
                check((elements_of(label, "values") > 0) == streq(text_of(label, "decoder"), "map"));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        sd_json_variant *manifest = NULL;
        ManifestError error;
        int r;

        r = manifest_parse((const char*) data, size, &error, &manifest);
        check((r < 0) == !manifest);
        check((r == -EINVAL) == !!error.message);
        if (r >= 0) {
                sd_json_variant *metrics = sd_json_variant_by_key(manifest, "metrics");
                size_t n = elements_of(manifest, "metrics");

                check(n >= 1 && n <= MANIFEST_METRICS_MAX);
                check(elements_of(manifest, "programs") <= MANIFEST_PROGRAMS_MAX);
                for (size_t i = 0; i < n; i++)
                        check_metric(sd_json_variant_by_index(metrics, i));
        } else
                check(r == -EINVAL);
        manifest_error_done(&error);
        (void) sd_json_variant_unref(manifest);
        return 0;
}

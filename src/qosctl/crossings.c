/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <systemd/sd-journal.h>

#include "crossings.h"
#include "message-id.h"
#include "qosctl.h"

static void journal_closep(sd_journal **j) {
        sd_journal_close(*j);
}

/* The value of a field; NULL: none. */
static char* get_field(sd_journal *j, const char *field) {
        const void *data;
        size_t length;

        if (sd_journal_get_data(j, field, &data, &length) < 0 || length <= strlen(field))
                return NULL;
        return strndup((const char*) data + strlen(field) + 1, length - strlen(field) - 1);
}

static int add_entry(sd_journal *j, uint64_t usec, sd_json_variant **array) {
        _cleanup_free_ char *name = get_field(j, "QOS_THRESHOLD"), *state = get_field(j, "QOS_STATE"),
                            *text = get_field(j, "MESSAGE");
        _cleanup_json_ sd_json_variant *v = NULL;
        int r;

        r = sd_json_buildo(&v, SD_JSON_BUILD_PAIR_UNSIGNED("timestamp", usec),
                           SD_JSON_BUILD_PAIR_STRING("name", strempty(name)),
                           SD_JSON_BUILD_PAIR_STRING("state", strempty(state)),
                           SD_JSON_BUILD_PAIR_STRING("text", strempty(text)));
        return r < 0 ? r : sd_json_variant_append_array(array, v);
}

int crossings_read(const char *unit, uint64_t since, uint64_t until, sd_json_variant **ret) {
        _cleanup_json_ sd_json_variant *newest = NULL, *array = NULL;
        _cleanup_(journal_closep) sd_journal *j = NULL;
        _cleanup_free_ char *match = NULL;
        int r;

        if (asprintf(&match, "UNIT=%s", unit) < 0) {
                match = NULL;
                return -ENOMEM;
        }
        r = sd_journal_open(&j, SD_JOURNAL_LOCAL_ONLY);
        if (r >= 0)
                r = sd_journal_add_match(j, "MESSAGE_ID=" MESSAGE_ID_CROSSED, 0);
        if (r >= 0)
                r = sd_journal_add_match(j, match, 0);
        if (r >= 0)
                r = sd_journal_seek_realtime_usec(j, until / NSEC_PER_USEC);
        if (r >= 0)
                r = sd_json_variant_new_array(&newest, NULL, 0);
        for (unsigned i = 0; r >= 0 && i < CROSSINGS_MAX; i++) {
                uint64_t usec;

                r = sd_journal_previous(j);
                if (r <= 0)
                        break;
                r = sd_journal_get_realtime_usec(j, &usec);
                if (r >= 0 && usec < since / NSEC_PER_USEC)
                        break;
                if (r >= 0)
                        r = add_entry(j, usec, &newest);
        }
        if (r >= 0)
                r = sd_json_variant_new_array(&array, NULL, 0);
        for (size_t i = r >= 0 ? sd_json_variant_elements(newest) : 0; i > 0 && r >= 0; i--)
                r = sd_json_variant_append_array(&array, sd_json_variant_by_index(newest, i - 1));
        if (r >= 0)
                *ret = TAKE_PTR(array);
        return r < 0 ? r : 0;
}

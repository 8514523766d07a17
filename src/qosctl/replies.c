/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "replies.h"

/* Limit of replies to a call, far above the number of units or metrics, against malicious servers. */
#define REPLIES_MAX 65536U

void replies_done(Replies *r) {
        for (size_t i = 0; i < r->n; i++)
                (void) sd_json_variant_unref(r->items[i]);
        free(r->items);
        free(r->error);
        (void) sd_json_variant_unref(r->parameters);
        *r = REPLIES_INIT;
}

int replies_add(Replies *r, sd_json_variant *parameters, const char *error) {
        sd_json_variant **items;

        if (error) {
                r->error = strdup(error);
                r->parameters = sd_json_variant_ref(parameters);
                return r->error ? 0 : -ENOMEM;
        }

        if (r->n >= REPLIES_MAX)
                return -E2BIG;
        items = reallocarray(r->items, r->n + 1, sizeof(sd_json_variant*));
        if (!items)
                return -ENOMEM;
        r->items = items;
        r->items[r->n++] = sd_json_variant_ref(parameters);
        return 0;
}

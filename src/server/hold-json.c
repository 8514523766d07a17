/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "hold-json.h"
#include "hold.h"

void holds_write(const Hold *holds, uint64_t now, JsonWriter *w) {
        json_writer_open_array(w, "holds");
        for (const Hold *h = holds; h; h = h->next) {
                const char *name;

                json_writer_open_object(w, NULL, 0);
                json_writer_add_string(w, "type", hold_type_to_string(h->type));
                json_writer_open_array(w, "probes");
                for (unsigned i = 0; (name = probe_mask_name(i)); i++)
                        if (h->probes & 1U << i)
                                json_writer_add_string(w, NULL, name);
                json_writer_close(w);
                if (h->excludes.n > 0) {
                        json_writer_open_array(w, "exclude");
                        for (size_t i = 0; i < h->excludes.n; i++)
                                json_writer_add_string(w, NULL, h->excludes.list[i].text);
                        json_writer_close(w);
                }
                json_writer_add_unsigned(w, "uid", h->uid);
                if (h->owner)
                        json_writer_add_string(w, "owner", h->owner);
                if (h->expires != USEC_INFINITY)
                        json_writer_add_unsigned(w, "remaining",
                                                 (h->expires - MIN(h->expires, now)) * NSEC_PER_USEC);
                json_writer_close(w);
        }
        json_writer_close(w);
}

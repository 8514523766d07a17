/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Any contents of a history file: if accepted, the history can be shown and continued. */

#include "check.h"
#include "fuzz.h"
#include "history.h"
#include "util.h"

/* Of the file: where its checksum, what that is of, and the sizes are, and what the first of them is. */
#define CHECKSUM_OFFSET 8
#define CHECKED_OFFSET 16
#define SIZES_OFFSET 28

static int look(const HistoryStep *s, void *userdata) {
        uint64_t *next = userdata;
        Metrics metrics;

        check(s->index >= *next);
        *next = s->index + 1;
        history_step_get_metrics(s, 5, &metrics);
        for (CustomField field = 0; field < _CUSTOM_FIELDS; field++)
                (void) history_step_get_custom(s, "x.wait", strlen("x.wait"), field, 5);
        return 0;
}

/* The first two bytes say how many of the rest are steps of 10 s; the others are steps of 5 min.
 * tests/unit/test-history-seeds.c writes the inputs that the fuzzer begins with. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_history_ History *empty = NULL, *h = NULL;
        _cleanup_free_ uint8_t *header = NULL, *file = NULL;
        uint64_t hash = UINT64_C(0xcbf29ce484222325);
        HistoryStep s = { .covered = 1, .distributions = { { .schema = WINDOW_BINS_SCHEMA_MAX },
                                                           { .schema = WINDOW_BINS_SCHEMA_MAX } } };
        size_t header_size;
        uint32_t sizes[2];
        int r;

        if (size < 2)
                return 0;
        sizes[0] = MIN((size_t) (data[0] | data[1] << 8), size - 2);
        sizes[1] = size - 2 - sizes[0];

        check(history_new(&empty) >= 0);
        check(history_serialize(empty, 1, (void**) &header, &header_size) >= 0);
        file = malloc(header_size + size);
        check(file);
        memcpy(file, header, header_size);
        memcpy(file + header_size, data + 2, size - 2);
        memcpy(file + SIZES_OFFSET, sizes, sizeof(sizes));
        for (size_t i = CHECKED_OFFSET; i < header_size + size - 2; i++)
                hash = (hash ^ file[i]) * UINT64_C(0x100000001b3);
        memcpy(file + CHECKSUM_OFFSET, &hash, sizeof(hash));

        r = history_deserialize(file, header_size + size - 2, 1, &h);
        if (r < 0) {
                check(r == -EBADMSG);
                return 0;
        }

        for (unsigned i = 0; i < 2; i++) {
                for (HistoryLevel level = 0; level < _HISTORY_LEVEL_MAX; level++) {
                        uint64_t next = 0;

                        check(history_foreach(h, level, look, &next) >= 0);
                }
                s.index = data[0];
                check(history_put(h, &s) >= 0);
                check(history_roll(h, 1000) >= 0);
        }
        return 0;
}

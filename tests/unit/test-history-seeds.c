/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The inputs that fuzz-history begins with are histories of today's metrics: those of earlier ones are
 * refused before anything is read.
 *
 *     test-history-seeds DIRECTORY         compares them
 *     test-history-seeds DIRECTORY write   writes them anew, once metrics have changed */

#include <limits.h>

#include "check.h"
#include "history.h"
#include "util.h"

#define REALTIME (UINT64_C(1763683200) * NSEC_PER_SEC)

static HistoryStep step_make(uint64_t index) {
        HistoryStep s = {
                .index = index,
                .timestamp = REALTIME + index * HISTORY_FINE_NSEC,
                .covered = HISTORY_FINE_NSEC,
                .violated = index % 2,
        };
        Metrics m = {};

        m.requests.server.count = 40 + index % 7;
        m.requests.server.errors_timeout = ABSENT;
        history_step_set_metrics(&s, &m);
        s.amounts[HISTORY_CPU_COVERED] = HISTORY_FINE_NSEC;
        s.amounts[HISTORY_RUN_QUEUES] = 250;
        for (unsigned i = 0; i < HISTORY_DISTRIBUTIONS; i++) {
                WindowBins *b = &s.distributions[i];

                s.measured[i] = true;
                b->schema = WINDOW_BINS_SCHEMA_MAX;
                for (unsigned k = 0; k < 5; k++)
                        b->count[50 + 2 * k] = 8 + i;
                b->sum = UINT64_C(40) * 1000000;
                b->max = 2000000;
        }
        return s;
}

/* All types, of which identity and cells are any. */
static void step_add_custom(HistoryStep *s, bool entries) {
        for (unsigned i = 0; i < 2 * _QOS_CUSTOM_TYPES; i++) {
                HistoryCustom *c = &s->custom[s->n_custom++];

                *c = (HistoryCustom) {
                        .identity = UINT64_C(0x0123456789abcdef) * (i + 1),
                        .covered = HISTORY_FINE_NSEC - i,
                        .type = i / 2,
                        .labeled = i % 2,
                        .cells = { 1000 * i },
                };
                for (unsigned k = 1; k < 9 && c->type == QOS_CUSTOM_HISTOGRAM; k++)
                        c->cells[k] = k % 3;
                c->complete = entries && c->labeled;
                for (; entries && c->labeled && c->n_entries < 2; c->n_entries++) {
                        HistoryEntry *e = c->entries + c->n_entries;

                        *e = (HistoryEntry) { .identity = c->identity + 1 + c->n_entries,
                                              .cells = { 500 * i } };
                        for (unsigned k = 1; k < 9 && c->type == QOS_CUSTOM_HISTOGRAM; k++)
                                e->cells[k] = c->cells[k] * (k % 2 == c->n_entries);
                }
        }
}

static void step_add_mount(HistoryStep *s) {
        HistoryMount *m = &s->mounts[s->n_mounts++];

        *m = (HistoryMount) { .identity = 8 };
        m->value.counts.count[QOS_STORAGE_READ] = 100;
        m->value.counts.nsec[QOS_STORAGE_READ] = 5000000;
        m->value.maxima[QOS_STORAGE_READ] = 1000000;
        m->value.bins[17] = 100;
}

static size_t header_size(void) {
        _cleanup_history_ History *empty = NULL;
        _cleanup_free_ void *data = NULL;
        size_t size;

        check(history_new(&empty) >= 0);
        check(history_serialize(empty, 1, &data, &size) >= 0);
        return size;
}

static void seed_check(const char *directory, const char *name, const History *h, bool write) {
        _cleanup_free_ uint8_t *file = NULL, *seed = NULL;
        size_t size, header = header_size();
        _cleanup_fclose_ FILE *f = NULL;
        char path[PATH_MAX];
        uint32_t fine;

        check(history_serialize(h, 1, (void**) &file, &size) >= 0);
        memcpy(&fine, file + 28, sizeof(fine)); /* as in the fuzzer, which makes the header */
        check(fine <= UINT16_MAX && size > header);
        size -= header - 2;
        memcpy(file + header - 2, (uint8_t[]) { (uint8_t) fine, (uint8_t) (fine >> 8) }, 2);

        (void) snprintf(path, sizeof(path), "%s/%s", directory, name);
        f = fopen(path, write ? "we" : "re");
        check(f);
        if (write) {
                check(fwrite(file + header - 2, 1, size, f) == size);
                return;
        }
        seed = malloc(size + 1);
        check(seed);
        if (fread(seed, 1, size + 1, f) == size && memcmp(seed, file + header - 2, size) == 0)
                return;
        fprintf(stderr, "%s is outdated: write it anew with the argument 'write'.\n", path);
        exit(EXIT_FAILURE);
}

static void seeds_check(const char *directory, bool write) {
        static const struct {
                const char *name;
                bool custom, entries, coarse;
        } table[] = {
                { "fine" },
                { "custom", .custom = true },
                { "coarse", .coarse = true },
                { "customCoarse", .custom = true, .coarse = true },
                { "entries", .custom = true, .entries = true },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                _cleanup_history_ History *h = NULL;

                check(history_new(&h) >= 0);
                for (uint64_t k = 300; k < (table[i].coarse ? 370U : 303U); k += table[i].coarse ? 25 : 1) {
                        HistoryStep s = step_make(k);

                        if (table[i].custom)
                                step_add_custom(&s, table[i].entries);
                        else
                                step_add_mount(&s);
                        check(history_put(h, &s) >= 0);
                }
                /* Only steps of 5 min remain */
                if (table[i].coarse)
                        check(history_roll(h, 300 + HISTORY_FINE_STEPS + 100) >= 0);
                seed_check(directory, table[i].name, h, write);
        }
}

int main(int argc, char **argv) {
        check(argc == 2 || (argc == 3 && streq(argv[2], "write")));
        seeds_check(argv[1], argc == 3);
        return EXIT_SUCCESS;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Maps of custom probes: the code that the programs run (custom-record.h) and the readers' (custom-window.c,
 * history-custom.c), against a list of events. */

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>

#include "check.h"
#include "custom-window.h"
#include "history.h"
#include "window.h"

#define window_copy(to, from, size) memcpy(to, from, size)
#define window_cpu() UINT32_C(0)

static uint32_t elements;

static union qos_custom_element* custom_element(void *map, __u32 i) {
        check(i < elements);
        return (union qos_custom_element*) map + i;
}

#include "custom-record.h"

#define START (1000 * NSEC_PER_SEC)

static const char text[] =
        "{\"name\":\"x\",\"description\":\"d\",\"object\":{\"sha256\":\"0\"},\"metrics\":["
        "{\"name\":\"plain\",\"type\":\"counter\",\"unit\":\"1\",\"description\":\"d\"},"
        "{\"name\":\"level\",\"type\":\"gauge\",\"unit\":\"1\",\"description\":\"d\"},"
        "{\"name\":\"wait\",\"type\":\"histogram\",\"unit\":\"ns\",\"description\":\"d\"},"
        "{\"name\":\"by\",\"type\":\"counter\",\"unit\":\"1\",\"description\":\"d\",\"labels\":["
        "{\"name\":\"error\",\"decoder\":\"errno\"},{\"name\":\"peer\",\"decoder\":\"address\"},"
        "{\"name\":\"kind\",\"decoder\":\"map\",\"values\":[{\"key\":1,\"name\":\"one\"}]}]},"
        "{\"name\":\"delays\",\"type\":\"histogram\",\"unit\":\"ns\",\"description\":\"d\",\"labels\":["
        "{\"name\":\"task\",\"decoder\":\"string\"}]}]}";

enum { PLAIN, LEVEL, WAIT, BY, DELAYS };

static CustomManifest* manifest_new(void) {
        CustomManifest *m;
        sd_json_variant *v;

        check(sd_json_parse(text, 0, &v, NULL, NULL) >= 0);
        check(custom_manifest_new(v, &m) == 0);
        (void) sd_json_variant_unref(v);
        elements = m->layout.elements;
        return m;
}

static union qos_custom_element* map_new(void) {
        union qos_custom_element *map = new0(union qos_custom_element, elements);

        check(map);
        map->header.epoch = START / QOS_EPOCH_NSEC;
        return map;
}

static void record(union qos_custom_element *map, const CustomManifest *m, unsigned metric,
                   const struct qos_custom_labels *labels, uint64_t now, uint64_t value) {
        custom_record(map, &m->layout, &m->metrics[metric].place, labels, now, value);
}

static CustomReading read_at(const CustomManifest *m, union qos_custom_element **maps, size_t n,
                             const CustomReading *before, uint64_t now, uint64_t window) {
        CustomSource sources[2];
        CustomReading r;

        for (size_t i = 0; i < n; i++)
                sources[i] = (CustomSource) { .map = maps[i], .since = START };
        check(custom_read(&(CustomSources) { .manifest = m, .sources = sources, .n = n, .since = START,
                                             .before = before }, now, window, &r) == 0);
        return r;
}

/* Sum of a cell of all entries. */
static uint64_t sum_of(const CustomReading *r, unsigned metric, unsigned cell) {
        uint64_t sum = 0;

        for (size_t i = 0; i < r->n_rows; i++)
                if (r->rows[i].metric == metric)
                        sum += r->cells[r->rows[i].cells + cell];
        return sum;
}

/* Each window is compared with the events in it. */
static void test_windows(const CustomManifest *m) {
        static const uint64_t windows[] = { WINDOW_TOTAL, NSEC_PER_SEC, 10 * NSEC_PER_SEC,
                                            60 * NSEC_PER_SEC };
        union qos_custom_element *map = map_new();
        struct {
                uint64_t at, n, nsec;
        } events[1000];
        uint64_t now = START, random = 1;

        for (size_t i = 0; i < ELEMENTSOF(events); i++) {
                random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
                now += random % 100 == 0 ? 20 * NSEC_PER_SEC : random >> 37;
                events[i].at = now;
                events[i].n = random >> 60;
                events[i].nsec = random >> 34;
                record(map, m, PLAIN, NULL, now, events[i].n);
                record(map, m, LEVEL, NULL, now, i);
                record(map, m, WAIT, NULL, now, events[i].nsec);
        }
        check(map->header.recorded == 3 * ELEMENTSOF(events));
        for (size_t k = 0; k < ELEMENTSOF(windows); k++) {
                CustomReading r = read_at(m, &map, 1, NULL, now, windows[k]);
                uint64_t n = 0, nsec = 0, count = 0, bins = 0;

                for (size_t i = 0; i < ELEMENTSOF(events); i++)
                        if (events[i].at >= now - r.covered) {
                                n += events[i].n;
                                nsec += events[i].nsec;
                                count++;
                        }
                for (unsigned i = 0; i < HISTOGRAM_COARSE_BINS; i++)
                        bins += sum_of(&r, WAIT, 1 + i);
                check(count > 5 && sum_of(&r, PLAIN, 0) == n);
                check(sum_of(&r, WAIT, 0) == nsec && bins == count);
                check(sum_of(&r, LEVEL, 0) == ELEMENTSOF(events) - 1);
                custom_reading_done(&r);
        }
        free(map);
}

static void device_name(uint32_t device, char *ret, size_t size) {
        (void) snprintf(ret, size, "%u", device);
}

/* Checks a figure; NaN: the step does not have it. */
static void check_field(const HistoryStep *s, const char *path, CustomField field, double expected) {
        double value = history_step_get_custom(s, path, strlen(path), field, 5);

        check(isnan(expected) ? isnan(value) : fabs(value - expected) < 1e-9);
}

static int keep_step(const HistoryStep *s, void *userdata) {
        HistoryStep *ret = userdata;

        check(s->index >= ret->index);
        *ret = *s;
        return 0;
}

/* The newest step. */
static HistoryStep look(const History *h, HistoryLevel level) {
        HistoryStep s = {};

        check(history_foreach(h, level, keep_step, &s) >= 0);
        return s;
}

static HistoryStep make_step(uint64_t index) {
        return (HistoryStep){ .index = index,
                              .distributions = { { .schema = WINDOW_BINS_SCHEMA_MAX },
                                                 { .schema = WINDOW_BINS_SCHEMA_MAX } } };
}

/* Steps have what was recorded in them, gauges their value at the end; the history has them by name. Steps
 * that are merged have the sum, over the time that they cover; a step that is collected again keeps what is
 * no longer known. */
static void test_steps(const CustomManifest *m) {
        union qos_custom_element *map = map_new();
        const CustomSource source = { map, START };
        const CustomSources sources = { .manifest = m, .sources = &source, .n = 1, .since = START };
        uint64_t first = START / WINDOW_STEP_NSEC, merged = 0;
        struct qos_custom_labels l = { .bytes = { "a,b\\c" } };
        _cleanup_history_ History *h = NULL, *copy = NULL;
        HistoryStep s, seen;
        void *file;
        size_t size;

        check(history_new(&h) >= 0);
        for (uint64_t k = 0; k < 5; k++) {
                uint64_t at = (first + k) * WINDOW_STEP_NSEC + NSEC_PER_SEC;
                CustomReading r;

                for (unsigned i = 0; i < 100 && k != 3; i++) {
                        record(map, m, PLAIN, NULL, at, k + 1);
                        record(map, m, LEVEL, NULL, at, 10 * k + i % 7);
                        record(map, m, WAIT, NULL, at, (k + 1) * NSEC_PER_MSEC);
                        record(map, m, DELAYS, &l, at, NSEC_PER_MSEC);
                }
                if (k == 0)
                        check(custom_read_step(&sources, first - 1, &r) == -ENODATA);
                merged += k == 3 ? 0 : 100 * (k + 1);
        }
        for (uint64_t k = 0; k < 5; k++) {
                CustomReading r;

                s = make_step(first + k);
                s.covered = WINDOW_STEP_NSEC;
                check(custom_read_step(&sources, first + k, &r) == 0);
                history_step_add_custom(&s, &r, m, device_name);
                custom_reading_done(&r);
                check(s.n_custom == m->n_metrics && history_put(h, &s) >= 0);
                seen = look(h, HISTORY_FINE);
                check(seen.index == first + k && seen.n_custom == s.n_custom);
                for (unsigned i = 0; i < s.n_custom; i++)
                        check(seen.custom[i].identity == s.custom[i].identity &&
                              seen.custom[i].type == s.custom[i].type &&
                              seen.custom[i].labeled == s.custom[i].labeled &&
                              memcmp(seen.custom[i].cells, s.custom[i].cells, sizeof(s.custom[i].cells)) ==
                                      0);
                check_field(&seen, "x.plain", CUSTOM_COUNT, k == 3 ? 0 : (double) (100 * (k + 1)));
                check_field(&seen, "x.plain", CUSTOM_RATE, k == 3 ? 0 : (double) (10 * (k + 1)));
                check_field(&seen, "x.level", CUSTOM_VALUE, (double) (k == 3 ? 21 : 10 * k + 1));
                check_field(&seen, "x.wait", CUSTOM_COUNT, k == 3 ? 0 : 100);
                check_field(&seen, "x.wait", CUSTOM_MEAN, k == 3 ? NAN : (double) ((k + 1) * NSEC_PER_MSEC));
                check(k == 3 || history_step_get_custom(&seen, "x.delays", strlen("x.delays"),
                                                        CUSTOM_QUANTILE, 5) > 0);
                check_field(&seen, "x.delays[a\\,b\\\\c]", CUSTOM_COUNT, k == 3 ? NAN : 100);
                check_field(&seen, "x.delays[a\\,b\\\\c]", CUSTOM_MEAN,
                            k == 3 ? NAN : (double) NSEC_PER_MSEC);
                check_field(&seen, "x.delays[a,b\\c]", CUSTOM_COUNT, NAN);
                check_field(&seen, "x.plain", CUSTOM_MEAN, NAN);
                check_field(&seen, "x.other", CUSTOM_COUNT, NAN);
        }

        seen = look(h, HISTORY_COARSE);
        check_field(&seen, "x.plain", CUSTOM_COUNT, (double) merged);
        check_field(&seen, "x.plain", CUSTOM_RATE, (double) merged / 50);
        check_field(&seen, "x.wait", CUSTOM_COUNT, 400);
        check_field(&seen, "x.level", CUSTOM_VALUE, 41);

        s.n_custom = 0;
        check(history_put(h, &s) >= 0);
        check(look(h, HISTORY_FINE).n_custom == m->n_metrics);
        check(history_serialize(h, 1, &file, &size) >= 0 && history_deserialize(file, size, 1, &copy) >= 0);
        free(file);
        seen = look(copy, HISTORY_FINE);
        check_field(&seen, "x.plain", CUSTOM_COUNT, 500);
        free(map);
}

static int count_custom(const HistoryStep *s, void *userdata) {
        size_t *n = userdata;

        n[s->n_custom > 0]++;
        return 0;
}

/* Any values are within the limits; if the space does not suffice, the newest steps keep theirs. */
static void test_large_steps(void) {
        _cleanup_history_ History *h = NULL;
        size_t n[2] = {};
        uint64_t random = 1;

        check(history_new(&h) >= 0);
        for (uint64_t k = 0; k < HISTORY_FINE_STEPS; k++) {
                HistoryStep s = make_step(4000 + k);

                for (; s.n_custom < HISTORY_CUSTOM_MAX; s.n_custom++) {
                        HistoryCustom *c = s.custom + s.n_custom;

                        *c = (HistoryCustom) { .identity = UINT64_MAX - s.n_custom,
                                               .type = QOS_CUSTOM_HISTOGRAM,
                                               .labeled = s.n_custom % 2,
                                               .n_entries = s.n_custom % 2 * HISTORY_ENTRIES_MAX };
                        for (size_t i = 0; i < CUSTOM_SUM_CELLS; i++) {
                                random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
                                c->cells[i] = k % 2 ? random : UINT64_MAX - random % 2;
                                c->entries[i % HISTORY_ENTRIES_MAX]
                                        .cells[i / HISTORY_ENTRIES_MAX % ELEMENTSOF(c->entries->cells)] =
                                        c->cells[i];
                        }
                }
                check(history_put(h, &s) >= 0 && history_roll(h, 4000 + k) >= 0);
                check(look(h, HISTORY_FINE).n_custom == HISTORY_CUSTOM_MAX);
        }
        check(history_foreach(h, HISTORY_FINE, count_custom, n) >= 0);
        check(n[true] > 0 && n[false] + n[true] == HISTORY_FINE_STEPS);
}

typedef struct Kept {
        size_t steps, with_entries;
        bool newest;
} Kept;

static int count_entries(const HistoryStep *s, void *userdata) {
        Kept *k = userdata;

        check(s->n_custom == 5 && s->distributions[0].schema == WINDOW_BINS_SCHEMA_MAX);
        check(!s->custom[0].complete || s->custom[0].n_entries > 0);
        k->newest = s->custom[0].n_entries > 0;
        /* The oldest ones lose them first */
        check(k->newest || k->with_entries == 0);
        k->steps++;
        k->with_entries += k->newest;
        return 0;
}

/* Entries are lost before anything else. */
static void test_many_entries(void) {
        _cleanup_history_ History *h = NULL;
        Kept kept = {};

        check(history_new(&h) >= 0);
        for (uint64_t k = 0; k < HISTORY_FINE_STEPS; k++) {
                HistoryStep s = make_step(6000 + k);

                for (; s.n_custom < 5; s.n_custom++) {
                        HistoryCustom *c = s.custom + s.n_custom;

                        *c = (HistoryCustom) { .identity = 1 + s.n_custom,
                                               .labeled = true,
                                               .complete = true };
                        for (; c->n_entries < HISTORY_ENTRIES_MAX; c->n_entries++)
                                c->entries[c->n_entries] = (HistoryEntry) { .identity = 100 + c->n_entries,
                                                                            .cells = { 1000 } };
                }
                check(history_put(h, &s) >= 0 && history_roll(h, 6000 + k) >= 0);
        }
        check(history_foreach(h, HISTORY_FINE, count_entries, &kept) >= 0);
        check(kept.steps == HISTORY_FINE_STEPS && kept.newest && kept.with_entries >= 100 &&
              kept.with_entries < HISTORY_FINE_STEPS);
}

static struct qos_custom_labels labels_of(uint64_t error, const char *peer, uint64_t kind) {
        struct qos_custom_labels l = { .words = { [0] = error, [4] = kind } };

        check(inet_pton(AF_INET6, peer, l.bytes[1]) == 1);
        return l;
}

typedef struct Entry {
        uint64_t error, n;
} Entry;

/* Names of those errors, and two that nothing has: of another error, and with too few values. */
static const char *const entry_names[] = {
        [EPERM] = "x.by[EPERM,::1,one]", [ENOENT] = "x.by[ENOENT,::1,one]",
        [ESRCH] = "x.by[ESRCH,::1,one]", [EINTR] = "x.by[EINTR,::1,one]",
        [EIO] = "x.by[EIO,::1,one]",     [ENXIO] = "x.by[ENXIO,::1,one]",
        [E2BIG] = "x.by[E2BIG,::1,one]", [ENOEXEC] = "x.by[ENOEXEC,::1]",
};

/* expected: of the errors from EPERM on; 0: the step does not have it. */
static void check_entries(const HistoryStep *s, const uint64_t expected[static 6]) {
        for (uint64_t error = EPERM; error < ELEMENTSOF(entry_names); error++) {
                uint64_t n = error <= ENXIO ? expected[error - EPERM] : 0;

                check_field(s, entry_names[error], CUSTOM_COUNT, n == 0 ? NAN : (double) n);
        }
}

/* A step has the entries with the largest numbers, exactly. Merged steps have those of which all of them
 * have the number, or of which it is known to be 0. The same after a file was written and read. */
static void test_entries_of_steps(const CustomManifest *m) {
        static const struct {
                Entry recorded[8];
                uint64_t fine[6], coarse[6];
        } steps[] = {
                /* Errors of either sign have the same name */
                { { { EPERM, 10 }, { ENOENT, 20 }, { ESRCH, 20 }, { (uint64_t) -ESRCH, 10 } },
                  { 10, 20, 30, 0, 0, 0 }, { 10, 20, 30, 0, 0, 0 } },
                { { { EPERM, 5 }, { EINTR, 40 } },
                  { 5, 0, 0, 40, 0, 0 }, { 15, 20, 30, 40, 0, 0 } },
                { { { EPERM, 1 },
                    { ENOENT, 2 },
                    { ESRCH, 100 },
                    { EINTR, 200 },
                    { EIO, 300 },
                    { ENXIO, 400 } },
                  { 0, 0, 100, 200, 300, 400 }, { 0, 0, 130, 240, 300, 400 } },
                { { { EPERM, 7 }, { EIO, 1 } },
                  { 7, 0, 0, 0, 1, 0 }, { 0, 0, 130, 240, 301, 400 } },
        };
        union qos_custom_element *map = map_new();
        const CustomSource source = { map, START };
        const CustomSources sources = { .manifest = m, .sources = &source, .n = 1, .since = START };
        _cleanup_history_ History *h = NULL;
        uint64_t first = START / WINDOW_STEP_NSEC;

        check(history_new(&h) >= 0);
        for (size_t k = 0; k < ELEMENTSOF(steps); k++)
                for (const Entry *e = steps[k].recorded; e->n > 0; e++) {
                        struct qos_custom_labels l = labels_of(e->error, "::1", 1);

                        record(map, m, BY, &l, (first + k) * WINDOW_STEP_NSEC + NSEC_PER_SEC, e->n);
                }
        record(map, m, PLAIN, NULL, (first + ELEMENTSOF(steps)) * WINDOW_STEP_NSEC, 1);
        for (size_t k = 0; k < ELEMENTSOF(steps); k++) {
                HistoryStep s = make_step(first + k), seen;
                History *copy;
                CustomReading r;
                uint64_t sum = 0;
                void *file;
                size_t size;

                check(custom_read_step(&sources, first + k, &r) == 0);
                history_step_add_custom(&s, &r, m, device_name);
                custom_reading_done(&r);
                check(history_put(h, &s) >= 0);
                check(history_serialize(h, 1, &file, &size) >= 0 &&
                      history_deserialize(file, size, 1, &copy) >= 0);
                free(file);
                (void) history_free(h);
                h = copy;
                seen = look(h, HISTORY_FINE);
                check_entries(&seen, steps[k].fine);
                for (const Entry *e = steps[k].recorded; e->n > 0; e++)
                        sum += e->n;
                check_field(&seen, "x.by", CUSTOM_COUNT, (double) sum);
                seen = look(h, HISTORY_COARSE);
                check_entries(&seen, steps[k].coarse);
        }
        free(map);
}

/* What has no entry of its own may be any that is not there. */
static void test_entries_and_rest(const CustomManifest *m) {
        static const uint64_t errors[][2] = { { EPERM, 1000 }, { ENOENT, ENOENT } };
        union qos_custom_element *map = map_new();
        const CustomSource source = { map, START };
        const CustomSources sources = { .manifest = m, .sources = &source, .n = 1, .since = START };
        _cleanup_history_ History *h = NULL;
        uint64_t first = START / WINDOW_STEP_NSEC;
        HistoryStep s, seen;
        CustomReading r;

        for (uint64_t error = 1; error <= QOS_CUSTOM_ENTRIES; error++) {
                struct qos_custom_labels l = labels_of(error, "::1", 1);

                record(map, m, BY, &l, START + NSEC_PER_SEC, 1);
        }
        for (size_t k = 0; k < ELEMENTSOF(errors); k++)
                for (size_t i = 0; i < ELEMENTSOF(errors[k]); i++) {
                        struct qos_custom_labels l = labels_of(errors[k][i], "::1", 1);

                        record(map, m, BY, &l, START + (k + 1) * WINDOW_STEP_NSEC, 5);
                }
        record(map, m, PLAIN, NULL, START + 3 * WINDOW_STEP_NSEC, 1);

        check(history_new(&h) >= 0);
        for (uint64_t k = 1; k < 3; k++) {
                s = make_step(first + k);
                check(custom_read_step(&sources, first + k, &r) == 0);
                history_step_add_custom(&s, &r, m, device_name);
                custom_reading_done(&r);
                check(history_put(h, &s) >= 0);
        }
        seen = look(h, HISTORY_COARSE);
        check_field(&seen, "x.by", CUSTOM_COUNT, 20);
        check_entries(&seen, (const uint64_t[]) { 5, 0, 0, 0, 0, 0 });
        free(map);
}

/* 1000 values of labels have 64 entries and one for all others; none is lost. */
static void test_entries(const CustomManifest *m) {
        union qos_custom_element *map = map_new();
        CustomReading r;
        size_t rows = 0;

        for (uint64_t i = 0; i < 3000; i++) {
                struct qos_custom_labels l = labels_of(i % 1000, "::1", 0);

                record(map, m, BY, &l, START, 1);
                memset(&l, 0, sizeof(l));
                (void) snprintf((char*) l.bytes[0], sizeof(l.bytes[0]), "task %" PRIu64, i % 3);
                record(map, m, DELAYS, &l, START, NSEC_PER_MSEC);
        }
        r = read_at(m, &map, 1, NULL, START, WINDOW_TOTAL);
        for (size_t i = 0; i < r.n_rows; i++) {
                uint64_t n = r.cells[r.rows[i].cells];

                if (r.rows[i].metric != BY)
                        continue;
                rows++;
                check(n == (r.rows[i].rest ? 3000 - 3 * QOS_CUSTOM_ENTRIES : 3));
        }
        check(rows == QOS_CUSTOM_ENTRIES + 1);
        check(sum_of(&r, BY, 0) == 3000 && sum_of(&r, DELAYS, 0) == 3000 * NSEC_PER_MSEC);
        custom_reading_done(&r);
        free(map);
}

/* The sum of two maps has one row for equal labels; what was there before is subtracted. */
static void test_nested(const CustomManifest *m) {
        union qos_custom_element *maps[] = { map_new(), map_new() };
        struct qos_custom_labels a = labels_of(13, "::ffff:192.0.2.1", 1),
                                 b = labels_of(2, "2001:db8::1", 7),
                                 restart = labels_of((uint64_t) -512, "::1", 0),
                                 least = labels_of((uint32_t) INT32_MIN, "::2", 0);
        CustomReading before = {}, r;
        _cleanup_json_writer_ JsonWriter w;
        char *json;

        record(maps[1], m, BY, &a, START, 100);
        record(maps[1], m, PLAIN, NULL, START, 40);
        check(custom_reading_add(&before, m, &(CustomSource) { maps[1], START }, 1) == 0);
        record(maps[0], m, BY, &a, START, 1);
        record(maps[1], m, BY, &a, START, 2);
        record(maps[1], m, BY, &b, START, 4);
        record(maps[1], m, BY, &restart, START, 5);
        record(maps[1], m, BY, &least, START, 6);
        record(maps[0], m, LEVEL, NULL, START, 3);
        record(maps[1], m, LEVEL, NULL, START, 4);

        r = read_at(m, maps, 2, &before, START, WINDOW_TOTAL);
        check(sum_of(&r, BY, 0) == 18 && sum_of(&r, PLAIN, 0) == 0 && sum_of(&r, LEVEL, 0) == 7);
        json_writer_begin(&w, /* text= */ true);
        custom_reading_write(&r, m, 5, device_name, &w);
        check(json_writer_finish_text(&w, &json) >= 0);
        check(strstr(json, "\"plain\":{\"count\":0}") && strstr(json, "\"level\":{\"value\":7}"));
        check(strstr(json, "\"by\":{\"count\":18,\"entries\":["));
        check(strstr(
                json,
                "{\"labels\":{\"error\":\"EACCES\",\"peer\":\"192.0.2.1\",\"kind\":\"one\"},\"count\":3}"));
        check(strstr(
                json,
                "{\"labels\":{\"error\":\"ENOENT\",\"peer\":\"2001:db8::1\",\"kind\":\"7\"},\"count\":4}"));
        check(strstr(json, "{\"error\":\"-512\",") && strstr(json, "{\"error\":\"-2147483648\","));
        free(json);
        custom_reading_done(&r);

        /* The inner map is removed: what it has counted since stays */
        check(custom_reading_add(&before, m, &(CustomSource) { maps[1], START }, -1) == 0);
        r = read_at(m, maps, 1, &before, START, WINDOW_TOTAL);
        check(sum_of(&r, BY, 0) == 18 && sum_of(&r, PLAIN, 0) == 0);
        custom_reading_done(&r);
        custom_reading_done(&before);
        free(maps[0]);
        free(maps[1]);
}

static void test_too_large(void) {
        char large[32 * 256], *p = large;
        CustomManifest *m = NULL;
        sd_json_variant *v;

        p += sprintf(p, "{\"name\":\"x\",\"description\":\"d\",\"object\":{\"sha256\":\"0\"},\"metrics\":[");
        for (unsigned i = 0; i < 32; i++)
                p += sprintf(
                        p,
                        "%s{\"name\":\"m%u\",\"type\":\"histogram\",\"unit\":\"ns\",\"description\":\"d\"}",
                        i > 0 ? "," : "", i);
        (void) sprintf(p, "]}");
        check(sd_json_parse(large, 0, &v, NULL, NULL) >= 0);
        check(custom_manifest_new(v, &m) == -E2BIG && !m);
        (void) sd_json_variant_unref(v);
}

int main(void) {
        CustomManifest *m = manifest_new();

        test_windows(m);
        test_steps(m);
        test_large_steps();
        test_entries(m);
        test_entries_of_steps(m);
        test_entries_and_rest(m);
        test_many_entries();
        test_nested(m);
        custom_manifest_free(m);
        test_too_large();
        return 0;
}

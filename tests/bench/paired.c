/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What qos-balance has of libqosd, with requests as pairings.bpf.c sees them: loaded before libqosd
 * (LD_PRELOAD), so that the same manager acts on them. The environment says where the object is
 * (PAIRED_OBJECT), which control group is looked at (PAIRED_GROUP), and which pairing it is (PAIRED_MAP).
 * What such pairings do not know, as how long a request has waited, is not there. */

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include <bpf/libbpf.h>
#include <qosd.h>

#include "pairings.h"

/* As qosd: with fewer samples on one side of it, a quantile is chance */
#define MINIMUM_SAMPLES 5

struct qosd {
        struct bpf_object *object;
        const struct sample *samples;
        const struct taken *taken;
        uint64_t offset;                /* of the number of samples in it */
};

struct qosd_view {
        qosd *q;
        size_t n;
        uint64_t took[SAMPLES_MAX];
};

static int attach(qosd *q, const char *path) {
        struct bpf_program *program;
        struct bpf_map *map;
        struct stat st;
        uint64_t group;
        size_t size;
        void *globals;

        if (stat(getenv("PAIRED_GROUP"), &st) < 0)
                return -errno;
        group = st.st_ino;
        q->object = bpf_object__open(path);
        if (!q->object)
                return -errno;
        globals = bpf_map__initial_value(bpf_object__find_map_by_name(q->object, ".rodata"), &size);
        if (!globals || size != sizeof(group))
                return -EBADMSG;
        memcpy(globals, &group, sizeof(group));
        if (bpf_object__load(q->object) < 0)
                return -errno;
        bpf_object__for_each_program(program, q->object)
                if (!bpf_program__attach(program))
                        return -errno;

        map = bpf_object__find_map_by_name(q->object, getenv("PAIRED_MAP"));
        q->offset = strcmp(getenv("PAIRED_MAP"), "accept_close") == 0 ?
                    offsetof(struct taken, accept_close) : offsetof(struct taken, read_send);
        q->taken = bpf_map__initial_value(bpf_object__find_map_by_name(q->object, ".bss"), &size);
        q->samples = mmap(NULL, sizeof(struct sample) * SAMPLES_MAX, PROT_READ, MAP_SHARED, bpf_map__fd(map),
                          0);
        return !q->taken || q->samples == MAP_FAILED ? -EBADMSG : 0;
}

int qosd_connect(const char *address, qosd **ret) {
        qosd *q = calloc(1, sizeof(qosd));

        (void) address;
        if (!q)
                return -ENOMEM;
        *ret = q;
        return attach(q, getenv("PAIRED_OBJECT"));
}

qosd *qosd_unref(qosd *q) {
        if (q)
                bpf_object__close(q->object);
        free(q);
        return NULL;
}

int qosd_set_timeout(qosd *q, uint64_t nsec) {
        return 0; /* nobody is waited for */
}

int qosd_attach(qosd *q, const char *unit, const char *const *probes) {
        (void) q;
        (void) unit;
        (void) probes;
        return 0;
}

int qosd_view_open(qosd *q, const char *unit, qosd_view **ret) {
        qosd_view *v = calloc(1, sizeof(qosd_view));

        (void) unit;
        if (!v)
                return -ENOMEM;
        v->q = q;
        *ret = v;
        return 0;
}

qosd_view *qosd_view_unref(qosd_view *v) {
        free(v);
        return NULL;
}

static int compare(const void *a, const void *b) {
        uint64_t x = *(const uint64_t*) a, y = *(const uint64_t*) b;

        return (x > y) - (x < y);
}

/* The samples that ended in the window, which is exact to the nanosecond. */
int qosd_view_read(qosd_view *v, qosd_distribution d, uint64_t window) {
        uint64_t n = __atomic_load_n((const uint64_t*) ((const char*) v->q->taken + v->q->offset),
                                     __ATOMIC_ACQUIRE), from;
        struct timespec ts;

        (void) d;
        (void) clock_gettime(CLOCK_MONOTONIC, &ts);
        from = (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec - window;
        if (n > SAMPLES_MAX)
                return -EOVERFLOW;
        for (v->n = 0; v->n < n && v->q->samples[n - 1 - v->n].at >= from; v->n++)
                v->took[v->n] = v->q->samples[n - 1 - v->n].took;
        qsort(v->took, v->n, sizeof(*v->took), compare);
        return 0;
}

int qosd_view_get_quantile(qosd_view *v, double q, uint64_t *ret) {
        double side = q < 0.5 ? q : 1 - q;

        if ((double) v->n * side < MINIMUM_SAMPLES)
                return -ENODATA;
        *ret = v->took[(size_t) ((double) (v->n - 1) * q)];
        return 0;
}

int qosd_read(qosd *q, const char *const *units, size_t n, uint64_t window, qosd_snapshot **ret) {
        (void) q;
        (void) units;
        (void) window;
        for (size_t i = 0; i < n; i++)
                ret[i] = NULL;
        return 0;
}

qosd_snapshot *qosd_snapshot_unref(qosd_snapshot *s) {
        return s;
}

int qosd_snapshot_get_integer(qosd_snapshot *s, const char *metric, uint64_t *ret) {
        (void) s;
        (void) metric;
        (void) ret;
        return -ENODATA;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <errno.h>
#include <stdlib.h>

#include "network-map.h"
#include "path.h"
#include "util.h"

/* By connection, position and kind, as the host sees it that the segment leaves. */
static int compare(const Segment *a, const Segment *b, bool swapped) {
        uint16_t a_local = swapped ? a->peer_port : a->local_port,
                 a_peer = swapped ? a->local_port : a->peer_port;

        if (a_local != b->local_port)
                return a_local < b->local_port ? -1 : 1;
        if (a_peer != b->peer_port)
                return a_peer < b->peer_port ? -1 : 1;
        return a->position == b->position ? 0 : a->position < b->position ? -1 : 1;
}

static int compare_segments(const void *a, const void *b) {
        const Segment *x = a, *y = b;
        int r = compare(x, y, false);

        /* Retransmitted ones first */
        return r != 0 ? r : x->kind == y->kind ? 0 : x->kind > y->kind ? -1 : 1;
}

static int compare_times(const void *a, const void *b) {
        int64_t x = *(const int64_t*) a, y = *(const int64_t*) b;

        return x == y ? 0 : x < y ? -1 : 1;
}

/* The only departure of what has arrived; NULL: none is known, or it was retransmitted, and may have left
 * twice. */
static const Segment* find_departure(const Segment *leaving, size_t n, const Segment *arrived) {
        size_t low = 0, high = n;

        while (low < high) {
                size_t middle = low + (high - low) / 2;

                if (compare(arrived, leaving + middle, true) > 0)
                        low = middle + 1;
                else
                        high = middle;
        }
        if (low == n || compare(arrived, leaving + low, true) != 0 ||
            leaving[low].kind != QOS_STAMP_LEAVES ||
            (low + 1 < n && compare(arrived, leaving + low + 1, true) == 0))
                return NULL;
        return leaving + low;
}

void way_done(Way *w) {
        free(w->differences);
        *w = (Way) {};
}

int way_join(const Segment *leaving, size_t n_leaving, const Segment *arriving, size_t n_arriving,
             Way *ret) {
        _cleanup_free_ Segment *left = new0(Segment, MAX(n_leaving, (size_t) 1));
        Way w = { .differences = new0(int64_t, MAX(n_arriving, (size_t) 1)) };
        size_t n = 0;

        if (!left || !w.differences) {
                way_done(&w);
                return -ENOMEM;
        }
        for (size_t i = 0; i < n_leaving; i++)
                if (leaving[i].kind != QOS_STAMP_ARRIVES)
                        left[n++] = leaving[i];
        qsort(left, n, sizeof(Segment), compare_segments);
        for (size_t i = 0; i < n_arriving; i++) {
                const Segment *departure;

                if (arriving[i].kind != QOS_STAMP_ARRIVES)
                        continue;
                departure = find_departure(left, n, arriving + i);
                if (departure)
                        w.differences[w.n++] = arriving[i].at - departure->at;
        }
        qsort(w.differences, w.n, sizeof(int64_t), compare_times);
        *ret = w;
        return 0;
}

int64_t way_quantile(const Way *w, double q) {
        size_t i = (size_t) (q * (double) w->n);

        return w->differences[MIN(i, w->n - 1)];
}

bool ways_get_offset(const Way *there, const Way *back, int64_t *ret_lowest, int64_t *ret_highest) {
        *ret_lowest = -back->differences[0];
        *ret_highest = there->differences[0];
        return *ret_lowest <= *ret_highest;
}

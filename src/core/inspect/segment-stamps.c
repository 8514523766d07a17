/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "manager.h"
#include "network-map.h"
#include "network-probe.h"
#include "probe.h"
#include "segment-stamps.h"

/* Arrays of numbers, one for each field: a record would be an object of its own for each segment. */
enum {
        FIELD_KINDS,
        FIELD_LOCAL_PORTS,
        FIELD_PEER_PORTS,
        FIELD_POSITIONS,
        FIELD_TIMES,
        _FIELD_MAX,
};

typedef struct Columns {
        sd_json_variant *items[_FIELD_MAX][QOS_STAMPS];
        size_t n;
} Columns;

static void columns_free(Columns **c) {
        if (!*c)
                return;
        for (unsigned k = 0; k < _FIELD_MAX; k++)
                for (size_t i = 0; i < (*c)->n; i++)
                        sd_json_variant_unref((*c)->items[k][i]);
        free(*c);
}

static int columns_add(Columns *c, const struct qos_stamp *s, uint64_t realtime) {
        const uint64_t values[_FIELD_MAX] = {
                [FIELD_KINDS]       = s->kind,
                [FIELD_LOCAL_PORTS] = s->local_port,
                [FIELD_PEER_PORTS]  = s->peer_port,
                [FIELD_POSITIONS]   = s->position,
                [FIELD_TIMES]       = s->at + realtime,
        };
        int r = 0;

        c->n++;
        for (unsigned k = 0; k < _FIELD_MAX && r >= 0; k++)
                r = sd_json_variant_new_unsigned(&c->items[k][c->n - 1], values[k]);
        return r;
}

/* Whether the slot is that of the unit, or of one nested in it. */
static bool is_of_unit(const Unit *u, const struct qos_stamp *s) {
        const Unit *other = s->slot < UNITS_MAX_LIMIT ? u->manager->units.slots[s->slot] : NULL;

        return other && other->generation == s->unit && (other == u || unit_is_ancestor(u, other));
}

int unit_get_segments(Unit *u, uint64_t duration, sd_json_variant **ret) {
        static const char *const names[_FIELD_MAX] = { "kinds", "localPorts", "peerPorts", "positions",
                                                       "times" };
        uint64_t now = now_nsec(CLOCK_MONOTONIC), realtime = now_nsec(CLOCK_REALTIME);
        _cleanup_free_ struct qos_stamp_ring *ring = NULL;
        _cleanup_(columns_free) Columns *c = NULL;
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        int r;

        assert(duration <= SEGMENTS_NSEC_MAX);

        if (!u->view || !u->network.map)
                return -ENODATA;
        ring = new0(struct qos_stamp_ring, 1);
        c = new0(Columns, 1);
        if (!ring || !c)
                return -ENOMEM;
        r = probe_read_stamps(u->manager->probe, duration > 0 ? now + duration : 0, ring);
        for (size_t i = 0; i < QOS_STAMPS && r >= 0; i++)
                if (ring->stamps[i].at != 0 && is_of_unit(u, ring->stamps + i))
                        r = columns_add(c, ring->stamps + i, realtime - now);
        if (r >= 0)
                r = sd_json_buildo(&v, SD_JSON_BUILD_PAIR_UNSIGNED("timestamp", realtime / NSEC_PER_USEC));
        for (unsigned k = 0; k < _FIELD_MAX && r >= 0; k++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;

                r = sd_json_variant_new_array(&array, c->items[k], c->n);
                if (r >= 0)
                        r = sd_json_variant_set_field(&v, names[k], array);
        }
        if (r < 0)
                return r;
        *ret = TAKE_PTR(v);
        return 0;
}

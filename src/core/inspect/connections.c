/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <string.h>

#include "connections.h"
#include "hierarchy.h"
#include "manager.h"
#include "network-probe.h"
#include "peers.h"
#include "probe.h"

/* Limit of connections converted to JSON in one step, some 20 us each. */
#define FLOWS_AT_A_TIME 32U

/* Sums of those that are not listed one by one. */
typedef struct ConnectionsRest {
        uint64_t n, in_flight, unsent, retransmits, retransmitted, sent, acked, received;
} ConnectionsRest;

struct ConnectionsQuery {
        ConnectionSort sort;
        unsigned slots[UNITS_MAX_LIMIT];
        uint32_t generations[UNITS_MAX_LIMIT];  /* of the units in these slots, by slot; 0: not wanted */
        size_t n_slots;
        struct qos_connection *connections;
        size_t n;
        ConnectionsRest rest;
        uint64_t timestamp;                     /* CLOCK_REALTIME ns */
        sd_json_variant **variants;
        size_t n_variants;
        int fd;                                 /* of the iterator; negative: all were visited */
};

static const char *const sort_table[_CONNECTION_SORT_MAX] = {
        [CONNECTION_BY_QUEUED]      = "queued",
        [CONNECTION_BY_RETRANSMITS] = "retransmits",
        [CONNECTION_BY_RTT]         = "rtt",
        [CONNECTION_BY_BYTES]       = "bytes",
        [CONNECTION_BY_AGE]         = "age",
};

int connection_sort_from_string(const char *s, ConnectionSort *ret) {
        for (ConnectionSort i = 0; i < _CONNECTION_SORT_MAX; i++)
                if (streq(s, sort_table[i])) {
                        *ret = i;
                        return 0;
                }
        return -EINVAL;
}

static uint64_t connection_get_key(const struct qos_connection *c, ConnectionSort sort) {
        switch (sort) {
        case CONNECTION_BY_RETRANSMITS:
                return c->retransmits;
        case CONNECTION_BY_RTT:
                return c->rtt;
        case CONNECTION_BY_BYTES:
                return c->bytes_sent + c->bytes_received;
        case CONNECTION_BY_AGE: /* those older than the attach are the oldest */
                return c->age == 0 ? UINT64_MAX : c->age;
        case CONNECTION_BY_QUEUED:
        default:
                return (uint64_t) c->in_flight + c->unsent;
        }
}

/* Equal ones by address, so that their order is the same in each reading. */
static int connection_compare(const void *a, const void *b, void *sort) {
        const struct qos_connection *x = a, *y = b;
        uint64_t v = connection_get_key(x, *(ConnectionSort*) sort),
                 w = connection_get_key(y, *(ConnectionSort*) sort);

        if (v != w)
                return v > w ? -1 : 1;
        return memcmp(&x->local, &y->local, 2 * sizeof(x->local));
}

_Static_assert(offsetof(struct qos_connection, peer) == sizeof(struct qos_address),
               "both addresses follow each other");

/* Those at the end are merged into the rest. */
static void connections_fold(ConnectionsQuery *q) {
        ConnectionsRest *rest = &q->rest;

        qsort_r(q->connections, q->n, sizeof(*q->connections), connection_compare, &q->sort);
        for (; q->n > FLOWS_LISTED_MAX; q->n--) {
                const struct qos_connection *last = q->connections + q->n - 1;

                rest->n++;
                rest->in_flight += last->in_flight;
                rest->unsent += last->unsent;
                rest->retransmits += last->retransmits;
                rest->retransmitted += last->bytes_retransmitted;
                rest->sent += last->bytes_sent;
                rest->acked += last->bytes_acked;
                rest->received += last->bytes_received;
        }
}

static void on_connection(const struct qos_connection *c, void *userdata) {
        ConnectionsQuery *q = ASSERT_PTR(userdata);

        if (c->slot >= UNITS_MAX_LIMIT || q->generations[c->slot] != c->unit)
                return;
        if (q->n == (size_t) 2 * FLOWS_LISTED_MAX)
                connections_fold(q);
        q->connections[q->n++] = *c;
}

/* The unit, and those within it. */
static int query_set_scope(ConnectionsQuery *q, const Unit *u) {
        NetworkSource buffer[UNITS_MAX_LIMIT];
        NetworkSources sources;

        if (!u->view || !unit_get_network_sources(u, buffer, &sources))
                return -ENODATA;
        q->n_slots = 0;
        memset(q->generations, 0, sizeof(q->generations));
        for (size_t i = 0; i < sources.n; i++) {
                const struct qos_network_header *h = &sources.sources[i].map->header;

                q->slots[q->n_slots++] = h->slot;
                q->generations[h->slot] = h->unit;
        }
        return 0;
}

int connections_query_new(Unit *u, ConnectionSort sort, ConnectionsQuery **ret) {
        ConnectionsQuery *q;
        int r;

        q = new0(ConnectionsQuery, 1);
        if (!q)
                return -ENOMEM;
        q->sort = sort;
        q->fd = -EBADF;
        r = query_set_scope(q, u);
        if (r >= 0) {
                q->connections = new0(struct qos_connection, (size_t) 2 * FLOWS_LISTED_MAX);
                r = q->connections ? 0 : -ENOMEM;
        }
        if (r >= 0)
                r = q->fd = probe_open_connections(u->manager->probe);
        if (r < 0) {
                connections_query_free(q);
                return r == -EOPNOTSUPP ? -ENODATA : r;
        }
        *ret = q;
        return 0;
}

ConnectionsQuery* connections_query_free(ConnectionsQuery *q) {
        if (!q)
                return NULL;

        for (size_t i = 0; i < q->n_variants; i++)
                sd_json_variant_unref(q->variants[i]);
        free(q->variants);
        free(q->connections);
        (void) close_fd(q->fd);
        free(q);
        return NULL;
}

int connections_query_step(ConnectionsQuery *q, Unit *u) {
        int r;

        if (q->fd < 0)
                return 0;
        /* Units within the unit may have started and ended since the last step */
        r = query_set_scope(q, u);
        if (r >= 0)
                r = probe_read_connections(u->manager->probe, q->fd, q->slots, q->n_slots, on_connection, q);
        if (r != 0)
                return r;
        q->fd = close_fd(q->fd);
        connections_fold(q);
        q->timestamp = now_nsec(CLOCK_REALTIME);
        return 0;
}

static const char* state_to_string(unsigned state) {
        static const char *const table[] = {
                [1]  = "established", [2]  = "synSent",  [3]  = "synReceived", [4]  = "finWait1",
                [5]  = "finWait2",    [8]  = "closeWait", [9]  = "lastAck",     [11] = "closing",
        };

        return state < ELEMENTSOF(table) && table[state] ? table[state] : "other";
}

static const char *const limit_table[QOS_FLOW_LIMITS] = {
        [QOS_FLOW_BY_APPLICATION] = "application",
        [QOS_FLOW_BY_NETWORK]     = "network",
        [QOS_FLOW_BY_PEER_WINDOW] = "peerWindow",
        [QOS_FLOW_BY_SEND_BUFFER] = "sendBuffer",
};

static const char* address_format(const struct qos_address *a, char buffer[static ADDRESS_STRING_MAX]) {
        Row row = { .kind = ROW_PEER, .family = a->family, .port = a->port };

        memcpy(row.address, a->address, sizeof(row.address));
        return row_format_address(&row, buffer);
}

static int connection_to_json(const struct qos_connection *c, sd_json_variant **ret) {
        char local[ADDRESS_STRING_MAX], peer[ADDRESS_STRING_MAX];

        return sd_json_buildo(
                        ret,
                        SD_JSON_BUILD_PAIR_STRING("peer", address_format(&c->peer, peer)),
                        SD_JSON_BUILD_PAIR_STRING("local", address_format(&c->local, local)),
                        SD_JSON_BUILD_PAIR_STRING("role", c->client ? "client" : "server"),
                        SD_JSON_BUILD_PAIR_STRING("state", state_to_string(c->state)),
                        SD_JSON_BUILD_PAIR_CONDITION(c->age != 0, "age", SD_JSON_BUILD_UNSIGNED(c->age)),
                        SD_JSON_BUILD_PAIR_CONDITION(c->rtt != 0, "rtt",
                                                     SD_JSON_BUILD_UNSIGNED(c->rtt * NSEC_PER_USEC)),
                        SD_JSON_BUILD_PAIR_UNSIGNED("peerWindow", c->peer_window),
                        SD_JSON_BUILD_PAIR_UNSIGNED("receiveWindow", c->receive_window),
                        SD_JSON_BUILD_PAIR_UNSIGNED("congestionWindow", c->congestion_window),
                        SD_JSON_BUILD_PAIR_UNSIGNED("mss", c->mss),
                        SD_JSON_BUILD_PAIR_UNSIGNED("inFlightBytes", c->in_flight),
                        SD_JSON_BUILD_PAIR_UNSIGNED("inFlightSegments", c->in_flight_segments),
                        SD_JSON_BUILD_PAIR_UNSIGNED("unsentBytes", c->unsent),
                        SD_JSON_BUILD_PAIR_UNSIGNED("queuedBytes", (uint64_t) c->in_flight + c->unsent),
                        SD_JSON_BUILD_PAIR_UNSIGNED("maxQueuedBytes", c->max_queued),
                        SD_JSON_BUILD_PAIR_UNSIGNED("retransmits", c->retransmits),
                        SD_JSON_BUILD_PAIR_UNSIGNED("retransmittedBytes", c->bytes_retransmitted),
                        SD_JSON_BUILD_PAIR_UNSIGNED("timeouts", c->timeouts),
                        SD_JSON_BUILD_PAIR_UNSIGNED("bytesSent", c->bytes_sent),
                        SD_JSON_BUILD_PAIR_UNSIGNED("bytesAcked", c->bytes_acked),
                        SD_JSON_BUILD_PAIR_UNSIGNED("bytesReceived", c->bytes_received),
                        SD_JSON_BUILD_PAIR_STRING("limitedBy", limit_table[c->limit % QOS_FLOW_LIMITS]));
}

static int rest_to_json(const ConnectionsRest *rest, sd_json_variant **ret) {
        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_UNSIGNED("connections", rest->n),
                              SD_JSON_BUILD_PAIR_UNSIGNED("inFlightBytes", rest->in_flight),
                              SD_JSON_BUILD_PAIR_UNSIGNED("unsentBytes", rest->unsent),
                              SD_JSON_BUILD_PAIR_UNSIGNED("queuedBytes", rest->in_flight + rest->unsent),
                              SD_JSON_BUILD_PAIR_UNSIGNED("retransmits", rest->retransmits),
                              SD_JSON_BUILD_PAIR_UNSIGNED("retransmittedBytes", rest->retransmitted),
                              SD_JSON_BUILD_PAIR_UNSIGNED("bytesSent", rest->sent),
                              SD_JSON_BUILD_PAIR_UNSIGNED("bytesAcked", rest->acked),
                              SD_JSON_BUILD_PAIR_UNSIGNED("bytesReceived", rest->received));
}

int connections_query_to_json(ConnectionsQuery *q, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *rest = NULL, *array = NULL;
        int r;

        if (!q->variants)
                q->variants = new0(sd_json_variant*, q->n + 1);
        if (!q->variants)
                return -ENOMEM;
        for (unsigned i = 0; i < FLOWS_AT_A_TIME && q->n_variants < q->n; i++, q->n_variants++) {
                r = connection_to_json(q->connections + q->n_variants, q->variants + q->n_variants);
                if (r < 0)
                        return r;
        }
        if (q->n_variants < q->n)
                return 1;

        r = sd_json_variant_new_array(&array, q->variants, q->n);
        if (r >= 0 && q->rest.n > 0)
                r = rest_to_json(&q->rest, &rest);
        if (r >= 0)
                r = sd_json_buildo(ret,
                                   SD_JSON_BUILD_PAIR_UNSIGNED("timestamp", q->timestamp / NSEC_PER_USEC),
                                   SD_JSON_BUILD_PAIR_VARIANT("connections", array),
                                   SD_JSON_BUILD_PAIR_CONDITION(!!rest, "rest",
                                                                SD_JSON_BUILD_VARIANT(rest)));
        return MIN(r, 0);
}

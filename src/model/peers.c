/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "peers.h"

void row_get_client_role(const Row *row, ClientRole *ret) {
        *ret = (ClientRole) {
                .count = row->count,
                .rate = row->rate,
                .errors_reset = row->errors_reset,
                .errors_timeout = row->errors_timeout,
                .errors_status5xx = row->errors_status5xx,
                .errors_replies = row->errors_replies,
                .aborts = row->aborts,
                .in_flight = row->in_flight,
                .latency = row->latency,
                .unparsed = row->unparsed,
                .bytes_in = row->bytes_in,
                .bytes_out = row->bytes_out,
                .quality = row->quality,
        };
}

void row_get_metrics(const Row *row, Metrics *ret) {
        Server *s = &ret->requests.server;

        metrics_set_absent(ret);
        if (!row->measured)
                return;
        if (row->kind == ROW_PEER) {
                row_get_client_role(row, &ret->requests.client);
                return;
        }
        s->count = row->count;
        s->rate = row->rate;
        s->errors_reset = row->errors_reset;
        s->errors_timeout = row->errors_timeout;
        s->client_aborts = row->aborts;
        s->in_flight = row->in_flight;
        s->latency = row->latency;
        s->bytes_in = row->bytes_in;
        s->bytes_out = row->bytes_out;
}

const char* row_format_address(const Row *row, char buffer[static ADDRESS_STRING_MAX]) {
        static const uint8_t any[16] = {};
        char address[INET6_ADDRSTRLEN];

        if (row->family == AF_UNIX)
                (void) snprintf(buffer, ADDRESS_STRING_MAX, "%s", row->path);
        else if (row->family == AF_INET6) {
                (void) inet_ntop(AF_INET6, row->address, address, sizeof(address));
                (void) snprintf(buffer, ADDRESS_STRING_MAX, "[%s]:%u", address, row->port);
        } else if (memcmp(row->address, any, sizeof(any)) == 0)
                (void) snprintf(buffer, ADDRESS_STRING_MAX, "*:%u", row->port);
        else {
                (void) inet_ntop(AF_INET, row->address, address, sizeof(address));
                (void) snprintf(buffer, ADDRESS_STRING_MAX, "%s:%u", address, row->port);
        }
        return buffer;
}

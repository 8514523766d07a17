/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Varlink clients of the daemon over socket pairs, under control of the test. Waiting for a reply runs the
 * event loop of both sides. */

#include <stdint.h>

#include <systemd/sd-event.h>
#include <systemd/sd-json.h>

#include "util.h"
#include "varlink-server.h"

#define PREFIX "org.qosd.QoS."

/* Set by the test before the first client. */
extern sd_event *event;
extern VarlinkServer *varlink_server;

typedef struct Client {
        int fd;
        size_t size;
        char buffer[256 * 1024];
} Client;

/* size: of the socket buffer for replies; 0: the default. Returns the client's end, or the error of the
 * server. */
int open_connection_with(uid_t uid, int size);
int open_connection(uid_t uid);

Client* client_new(uid_t uid);
Client* client_free(Client *c);
static inline void client_freep(Client **c) {
        if (*c)
                client_free(*c);
}
#define _cleanup_client_ _cleanup_(client_freep)

void client_write(Client *c, const void *data, size_t size);
/* flag: "more" or "oneway", or NULL. */
void client_send(Client *c, const char *flag, const char *method, const char *parameters);
/* The next message; NULL: the connection has ended. */
sd_json_variant* client_receive(Client *c);

const char* message_error(sd_json_variant *v);
sd_json_variant* message_parameter(sd_json_variant *v, const char *name);
bool message_continues(sd_json_variant *v);

/* Receives a reply that is no error, and matches the interface. */
sd_json_variant* client_expect_reply(Client *c, const char *method);
sd_json_variant* client_call(Client *c, const char *method, const char *parameters);
/* field: the parameter that the error must name; NULL for errors of varlink itself. */
void client_expect_error(Client *c, const char *error, const char *field, const char *value);
void client_expect_end(Client *c);
void call_fails(Client *c, const char *flag, const char *method, const char *parameters, const char *error,
                const char *field, const char *value);
void call_succeeds(Client *c, const char *method, const char *parameters);
/* Number of replies to a method with "more", the last one of which ends it. */
unsigned call_more(Client *c, const char *method, const char *parameters);

/* Until the daemon has nothing to do. */
void settle(void);

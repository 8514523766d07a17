/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The connection to qosd, on this host or over ssh. */

#include <systemd/sd-json.h>
#include <systemd/sd-varlink.h>

#include "util.h"

#define QOS_METHOD(name) "org.qosd.QoS." name

typedef struct Client {
        sd_varlink *link;
        pid_t ssh;              /* 0: none */
        uint64_t minimum_samples;       /* 0: nobody has asked for it yet */
} Client;

/* Connects, and says so if that fails. */
int client_connect(Client **ret);
/* The same without a word. */
int client_connect_quiet(Client **ret);
Client* client_free(Client *c);
static inline void client_freep(Client **c) {
        (void) client_free(*c);
}
#define _cleanup_client_ _cleanup_(client_freep)

/* The replies to one call, or the error that came instead. */
typedef struct Replies {
        sd_json_variant **items;
        size_t n;
        char *error;                    /* "org.qosd.QoS.NoSuchUnit" */
        sd_json_variant *parameters;    /* of the error */
} Replies;

#define REPLIES_INIT (Replies) {}

/* Adds a reply, or the error that ends them. */
int replies_add(Replies *r, sd_json_variant *parameters, const char *error);
void replies_done(Replies *r);
#define _cleanup_replies_ _cleanup_(replies_done)

/* Calls and waits; returns 0 with replies, 1 with an error of the other side in ret, or a negative errno when the
 * connection failed. Consumes parameters (which may be NULL) and the result r of building them. */
int client_call(Client *c, const char *method, int r, sd_json_variant *parameters, Replies *ret);
/* The same for methods with any number of replies: none is no error. */
int client_call_more(Client *c, const char *method, int r, sd_json_variant *parameters, Replies *ret);
/* With arguments as SD_JSON_BUILD_PAIR_…() */
#define client_callbo(c, method, ret, ...)                                                              \
        ({                                                                                              \
                sd_json_variant *_v = NULL;                                                             \
                int _r = sd_json_buildo(&_v, __VA_ARGS__);                                              \
                client_call((c), (method), _r, _v, (ret));                                              \
        })
#define client_call_morebo(c, method, ret, ...)                                                         \
        ({                                                                                              \
                sd_json_variant *_v = NULL;                                                             \
                int _r = sd_json_buildo(&_v, __VA_ARGS__);                                              \
                client_call_more((c), (method), _r, _v, (ret));                                         \
        })

/* What MinimumSamples= is by default, which is the least that it may be. */
#define SAMPLES_MIN 5U

/* MinimumSamples=: how many durations there must be on either side of a quantile. Asked for once. */
uint64_t client_get_minimum_samples(Client *c);

/* What a failed call (r and ret as above) means: a sentence for people, without a final stop. */
char* client_error_message(int r, const char *error, sd_json_variant *parameters);
/* Says "Failed to <what>: <why>." and returns what to exit with. */
int client_fail(int r, const Replies *replies, const char *format, ...) _printf_(3, 4);

/* Lets polkit ask whoever sits at this terminal for a password, until the end of the program. */
void polkit_agent_open(void);
void polkit_agent_close(void);

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Connection to qosd, local or over ssh. */

#include <systemd/sd-json.h>
#include <systemd/sd-varlink.h>

#include "replies.h"
#include "util.h"

typedef struct Client {
        sd_varlink *link;
        pid_t ssh;              /* 0: none */
        uint64_t minimum_samples;       /* 0: not queried yet */
} Client;

/* Connects; logs errors. */
int client_connect(Client **ret);
/* As above, without logging. */
int client_connect_quiet(Client **ret);
Client* client_free(Client *c);
static inline void client_freep(Client **c) {
        (void) client_free(*c);
}
#define _cleanup_client_ _cleanup_(client_freep)

/* Calls a method synchronously. Returns 0 with replies, 1 with an error reply in ret, or a negative errno if
 * the call failed. The second one is for methods with any number of replies; an empty list is not an
 * error. */
int client_call(Client *c, const char *method, int r, sd_json_variant *parameters, Replies *ret);
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

/* draw() is called while a call waits for a reply, unless an agent of polkit may prompt. get_timeout(): time
 * until then, usec; UINT64_MAX: not at all. */
void client_set_wait_handler(uint64_t (*get_timeout)(void), void (*draw)(void));

/* Default and minimum of MinimumSamples=. */
#define SAMPLES_MIN 5U

/* MinimumSamples=: required number of samples on either side of a quantile. Queried once. */
uint64_t client_get_minimum_samples(Client *c);

/* Error message of a failed call (r and ret as above), without full stop. */
char* client_error_message(int r, const char *error, sd_json_variant *parameters);
/* Logs "Failed to <what>: <reason>." and returns the exit status. */
int client_fail(int r, const Replies *replies, const char *format, ...) _printf_(3, 4);

/* In a child: it dies with this program, and does not inherit blocked signals. */
void child_prepare(void);

/* Starts a polkit agent on this terminal, until the program exits. */
void polkit_agent_open(void);
void polkit_agent_close(void);

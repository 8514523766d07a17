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
/* Connects for a call that may require authentication; logs errors. */
int client_connect_to_change(Client **ret);
Client* client_free(Client *c);
static inline void client_freep(Client **c) {
        (void) client_free(*c);
}
#define _cleanup_client_ _cleanup_(client_freep)

/* Calls a method synchronously, with the parameters that a function of sd-json has returned along with r.
 * Consumes the parameters. Returns 0 with replies in ret, 1 with an error reply in ret, or a negative errno
 * if the call failed. client_call_more() is for methods with any number of replies, including none (the
 * error NoEntries). */
int client_call(Client *c, const char *method, int r, sd_json_variant *parameters, Replies *ret);
int client_call_more(Client *c, const char *method, int r, sd_json_variant *parameters, Replies *ret);
/* The same with parameters as SD_JSON_BUILD_PAIR_…() */
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

/* Sets functions for the time in which a call waits for a reply: draw() is called after each timeout (us;
 * UINT64_MAX: never), except while a polkit agent runs. */
void client_set_wait_handler(uint64_t (*get_timeout)(void), void (*draw)(void));

/* Default and lower limit of MinimumSamples=. */
#define SAMPLES_MIN 5U

/* Returns MinimumSamples= of qosd, the required number of samples on either side of a quantile. It is
 * queried once for each connection. */
uint64_t client_get_minimum_samples(Client *c);

/* Returns the message of a failed call (r and error as of client_call()). The caller frees it; NULL: out of
 * memory. */
char* client_error_message(int r, const char *error, sd_json_variant *parameters);
/* Logs "Failed to <format>: <reason>." and returns an exit status. */
int client_fail(int r, const Replies *replies, const char *format, ...) _printf_(3, 4);

/* To be called in a child after fork(): it is killed when this program ends, and no signals are blocked. */
void child_prepare(void);

/* Starts a polkit agent on this terminal, if it is needed. polkit_agent_close() or the end of the program
 * ends it. */
void polkit_agent_open(void);
void polkit_agent_close(void);

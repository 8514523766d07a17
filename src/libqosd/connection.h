/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Shared by the files of libqosd. */

#include <systemd/sd-varlink.h>

#include "qosd.h"
#include "util.h"

#define INTERFACE "org.qosd.QoS"
#define ADDRESS "/run/qosd/org.qosd.QoS"
/* Socket of root, with a backlog of its own. */
#define ADDRESS_ROOT ADDRESS ".root"

/* Limit of the time until qosd accepts the connection, if others keep the backlog full. */
#define CONNECT_USEC USEC_PER_SEC

#define ERROR_MAX 512

struct qosd {
        unsigned n_ref;
        sd_varlink *link;
        char error[ERROR_MAX];
};

/* Maps a varlink error to a negative errno, and copies its message to the buffer. */
int error_from_reply(const char *id, sd_json_variant *parameters, char buffer[static ERROR_MAX]);

/* address: NULL: the default. Waits for timeout_usec while the backlog is full; 0: does not wait. */
int connection_open(const char *address, uint64_t timeout_usec, sd_varlink **ret);
/* Calls a method and returns the parameters of its reply, owned by q and valid until the next call. Consumes
 * parameters. */
int connection_call(qosd *q, const char *method, sd_json_variant *parameters, sd_json_variant **ret);
/* Whether qosd is still connected; costs a system call. */
bool connection_is_up(qosd *q);

#define DEFINE_REF_UNREF(type, done)                                            \
        type *type##_ref(type *p) {                                             \
                if (p)                                                          \
                        p->n_ref++;                                             \
                return p;                                                       \
        }                                                                       \
        type *type##_unref(type *p) {                                           \
                if (p && --p->n_ref == 0) {                                     \
                        done(p);                                                \
                        free(p);                                                \
                }                                                               \
                return NULL;                                                    \
        }

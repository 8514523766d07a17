/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the parts of libqosd share. */

#include <systemd/sd-varlink.h>

#include "qosd.h"
#include "util.h"

#define INTERFACE "org.qosd.QoS"
#define ADDRESS "/run/qosd/org.qosd.QoS"
/* Root has one in which nobody else's connections stand. */
#define ADDRESS_ROOT ADDRESS ".root"

/* How long qosd may take to accept the connection when others connect all the time. */
#define CONNECT_USEC USEC_PER_SEC

#define ERROR_MAX 512

struct qosd {
        unsigned n_ref;
        sd_varlink *link;
        char error[ERROR_MAX];
};

/* The errno that goes with a varlink error; its message goes to the buffer. */
int error_from_reply(const char *id, sd_json_variant *parameters, char buffer[static ERROR_MAX]);

/* address: NULL for the usual one. Waits for so long while others fill the listen queue, 0: not at all. */
int connection_open(const char *address, uint64_t timeout_usec, sd_varlink **ret);
/* Calls, and leaves the reply's parameters to q (valid until the next call). Consumes parameters. */
int connection_call(qosd *q, const char *method, sd_json_variant *parameters, sd_json_variant **ret);
/* Whether qosd is still at the other end, which takes a system call. */
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

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Replies of qosd to a varlink call. */

#include <systemd/sd-json.h>

#include "util.h"

#define QOS_METHOD(name) "org.qosd.QoS." name
#define QOS_ADDRESS "/run/qosd/org.qosd.QoS"

/* Replies to a call, or its error. */
typedef struct Replies {
        sd_json_variant **items;
        size_t n;
        char *error;                    /* "org.qosd.QoS.NoSuchUnit" */
        sd_json_variant *parameters;    /* parameters of the error */
} Replies;

#define REPLIES_INIT (Replies) {}

/* Adds a reply, or sets the error. Takes a reference to the parameters. Returns -ENOMEM or -E2BIG. */
int replies_add(Replies *r, sd_json_variant *parameters, const char *error);
void replies_done(Replies *r);
#define _cleanup_replies_ _cleanup_(replies_done)

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Several hosts at a time: each is read by a process of its own. */

#include "replies.h"
#include "util.h"

/* Each takes two processes here, this program's and ssh's, and all log in at the same moment. For more hosts
 * there is Prometheus: docs/FLEET.md. */
#define HOSTS_MAX 64U

/* What was read of a host. */
typedef struct Host {
        const char *name;
        int status;             /* exit status of what has read it */
        Replies replies;
} Host;

/* Adds the hosts of a --host= option to arg_hosts; logs errors. */
int hosts_parse(const char *list);

/* Reads one host (arg_host). Returns an exit status, or a negative errno that is logged. */
typedef int (*HostCollect)(int argc, char **argv, Replies *ret);

/* Reads all hosts at the same time. interval: time for which each is observed, ns, shown as progress.
 * Errors are logged with the name of their host. Returns the combined exit status; hosts without a
 * response have no replies. */
int hosts_collect(HostCollect collect, int argc, char **argv, uint64_t interval, Host **ret, size_t *ret_n);
void hosts_done(Host *hosts, size_t n);

/* Whether the windows of two replies are the same, as their figures can be added then. Returns an exit
 * status, logs that they are not. */
int host_check_window(const Host *a, sd_json_variant *x, const Host *b, sd_json_variant *y);
/* Adds a field "host" to an object. */
int host_add_name(const Host *h, sd_json_variant **v);

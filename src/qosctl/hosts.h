/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Queries of several hosts in parallel, each by its own process. */

#include "replies.h"
#include "util.h"

/* Limit of hosts, as each needs two processes here, and all log in at the same time. For more hosts see
 * docs/FLEET.md. */
#define HOSTS_MAX 64U

/* Result of a host. */
typedef struct Host {
        const char *name;
        int status;             /* exit status of its process */
        Replies replies;
} Host;

/* Adds the hosts of a --host= option to arg_hosts; logs errors. */
int hosts_parse(const char *list);

/* Queries one host (arg_host). Returns an exit status, or a negative errno that is logged. */
typedef int (*HostCollect)(int argc, char **argv, Replies *ret);

/* Queries all hosts in parallel. interval: time of an observation in ns, which is shown as progress; 0:
 * none. Errors are logged with the name of the host. Returns the combined exit status, or a negative errno
 * that is logged. Hosts without a response have no replies. */
int hosts_collect(HostCollect collect, int argc, char **argv, uint64_t interval, Host **ret, size_t *ret_n);
void hosts_done(Host *hosts, size_t n);

/* Checks that the windows of two replies are equal, without which their values cannot be added. Logs an
 * error. Returns an exit status. */
int host_check_window(const Host *a, sd_json_variant *x, const Host *b, sd_json_variant *y);
/* Adds a field "host" to an object. */
int host_add_name(const Host *h, sd_json_variant **v);

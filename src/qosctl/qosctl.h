/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Command line and exit status, shared by the verbs. */

#include <systemd/sd-json.h>

#include "exposition.h"
#include "util.h"

/* Exit status as documented in qosctl(1). */
enum {
        STATUS_OK,
        STATUS_FAILED,
        STATUS_USAGE,
        STATUS_NOT_ATTACHED,
        STATUS_NO_SUCH_UNIT,
};

typedef enum JsonMode {
        JSON_OFF,
        JSON_SHORT,
        JSON_PRETTY,
} JsonMode;

#define WINDOW_UNSET UINT64_MAX
#define SINCE_UNSET UINT64_MAX

extern JsonMode arg_json;
extern Exposition arg_exposition;
extern ExpositionScope arg_scope;
extern unsigned arg_buckets_max;        /* limit for native histograms; 0: no limit */
extern unsigned arg_series_max;         /* limit for all units together; 0: no limit */
extern bool arg_help, arg_version;
extern bool arg_no_pager, arg_legend, arg_ask_password;
extern bool arg_all, arg_value, arg_batch, arg_now, arg_verbose, arg_listening, arg_yes, arg_user;
extern bool arg_svg, arg_redact;
extern const char *arg_host; /* the only host, or the host that this process queries; NULL: local, or
                              * several */
extern char **arg_hosts;                /* NULL: local */
extern char **arg_probes;               /* NULL: the daemon's default */
extern char **arg_excludes;             /* NULL: none */
extern char **arg_metrics;              /* NULL: all */
extern uint64_t arg_window;             /* ns; WINDOW_UNSET: the daemon's default */
extern uint64_t arg_since;              /* CLOCK_REALTIME, ns; SINCE_UNSET: the daemon's default */
extern uint64_t arg_until;              /* CLOCK_REALTIME, ns; SINCE_UNSET: now */
extern uint64_t arg_timeout;            /* ns; 0: no limit */
extern uint64_t arg_for;                /* ns; 0: no limit */
extern const char *arg_save;            /* files of baselines; NULL: none */
extern const char *arg_against;
extern const char *arg_output;          /* file of a report; NULL: standard output */
extern const char *arg_exec;            /* command of monitor; NULL: none */
extern const char *arg_sort;            /* of connections; NULL: the daemon's default */
extern uint64_t arg_delay;              /* ns */
extern uint64_t arg_interval;           /* ns; 0: not given */
extern uint64_t arg_iterations;         /* 0: no limit */
/* As given, for error messages; NULL: not given. */
extern const char *arg_window_text, *arg_for_text, *arg_interval_text;

/* Verbs get the arguments after their name, and return an exit status, or a negative errno that is
 * logged. */
int verb_list(int argc, char **argv);
int verb_list_hosts(int argc, char **argv);
int verb_attach(int argc, char **argv);
int verb_detach(int argc, char **argv);
int verb_enable(int argc, char **argv);
int verb_disable(int argc, char **argv);
int verb_verify(int argc, char **argv);
int verb_check_probe(int argc, char **argv);
int verb_status(int argc, char **argv);
int verb_status_hosts(int argc, char **argv);
int verb_show(int argc, char **argv);
int verb_threads(int argc, char **argv);
int verb_resources(int argc, char **argv);
int verb_mounts(int argc, char **argv);
int verb_network(int argc, char **argv);
int verb_connections(int argc, char **argv);
int verb_path(int argc, char **argv);
int verb_top(int argc, char **argv);
int verb_histogram(int argc, char **argv);
int verb_histogram_hosts(int argc, char **argv);
int verb_history(int argc, char **argv);
int verb_heatmap(int argc, char **argv);
int verb_measure(int argc, char **argv);
int verb_metrics(int argc, char **argv);
int verb_diagnose(int argc, char **argv);
int verb_diagnose_hosts(int argc, char **argv);
int verb_why(int argc, char **argv);
int verb_report(int argc, char **argv);
int verb_set_threshold(int argc, char **argv);
int verb_clear_threshold(int argc, char **argv);
int verb_list_thresholds(int argc, char **argv);
int verb_monitor(int argc, char **argv);
int verb_wait(int argc, char **argv);
int verb_is_ok(int argc, char **argv);
int verb_probes(int argc, char **argv);
int verb_list_metrics(int argc, char **argv);

/* Combines exit statuses or negative errnos of two operations: returns the one of a failure, or
 * STATUS_FAILED if both have failed in different ways. */
int status_combine(int a, int b);

/* Prints an object if JSON output is enabled. Returns 0 or a negative errno, which is logged. */
int json_print(sd_json_variant *v);

/* Redirects standard output to a pager if it is a terminal and paging is not disabled. */
void pager_open(void);
/* Waits until the pager exits. */
void pager_close(void);

static inline void json_unrefp(sd_json_variant **v) {
        (void) sd_json_variant_unref(*v);
}
#define _cleanup_json_ _cleanup_(json_unrefp)

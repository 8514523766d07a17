/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Values of options. */

#include "qosctl.h"

JsonMode arg_json = JSON_OFF;
Exposition arg_exposition = EXPOSITION_OPENMETRICS;
ExpositionScope arg_scope = EXPOSITION_PROBES;
unsigned arg_buckets_max = EXPOSITION_BUCKETS_DEFAULT, arg_series_max = 0;
bool arg_help = false, arg_version = false;
bool arg_no_pager = false, arg_legend = true, arg_ask_password = true;
bool arg_all = false, arg_value = false, arg_batch = false, arg_now = false, arg_verbose = false,
     arg_listening = false, arg_yes = false, arg_user = false, arg_svg = false, arg_redact = false;
const char *arg_host = NULL, *arg_save = NULL, *arg_against = NULL, *arg_exec = NULL, *arg_output = NULL,
           *arg_sort = NULL;
char **arg_hosts = NULL, **arg_probes = NULL, **arg_excludes = NULL, **arg_metrics = NULL;
uint64_t arg_window = WINDOW_UNSET;
uint64_t arg_since = SINCE_UNSET;
uint64_t arg_until = SINCE_UNSET;
uint64_t arg_for = 0;
uint64_t arg_timeout = 0;
uint64_t arg_delay = NSEC_PER_SEC;
uint64_t arg_interval = 0;
uint64_t arg_iterations = 0;
const char *arg_window_text = NULL, *arg_for_text = NULL, *arg_interval_text = NULL;

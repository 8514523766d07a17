/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Has the kernel measure the run time of BPF programs, all of the machine, by qosd-statistics
 * (statistics-socket.h). */

#include <systemd/sd-event.h>

typedef struct RunTime RunTime;

/* Called from the event loop: the kernel measures from now on, or the error because of which it does not. */
typedef void (*run_time_handler_t)(int error, void *userdata);

int run_time_new(sd_event *event, run_time_handler_t handler, void *userdata, RunTime **ret);
/* Ends the measurement. */
RunTime* run_time_free(RunTime *t);

/* The handler is called once if that succeeds. */
int run_time_begin(RunTime *t);
/* From now on the handler is not called. */
void run_time_end(RunTime *t);

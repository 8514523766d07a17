/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Runs a function in a thread, as the verifier may need seconds, and another one in the event loop once it
 * has returned. */

#include <pthread.h>
#include <systemd/sd-event.h>

typedef struct LoadThread {
        pthread_t thread;               /* 0: none */
        int done_fd;                    /* eventfd, readable when the function has returned */
        sd_event_source *done;
        void (*run)(void *userdata);
        void (*ended)(void *userdata);
        void *userdata;
} LoadThread;

#define LOAD_THREAD_NULL ((LoadThread) { .done_fd = -EBADF })

/* run: shares nothing with the event loop. ended: may call load_thread_done(). On failure neither is
 * called. */
int load_thread_start(LoadThread *t, sd_event *event, void (*run)(void *userdata),
                      void (*ended)(void *userdata), void *userdata);
/* Waits until the function has returned. */
void load_thread_done(LoadThread *t);

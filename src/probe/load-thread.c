/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "load-thread.h"
#include "util.h"

static void load_thread_join(LoadThread *t) {
        if (t->thread)
                (void) pthread_join(t->thread, NULL);
        t->thread = 0;
}

void load_thread_done(LoadThread *t) {
        load_thread_join(t);
        t->done = sd_event_source_disable_unref(t->done);
        t->done_fd = close_fd(t->done_fd);
}

static void* thread_main(void *userdata) {
        LoadThread *t = userdata;

        t->run(t->userdata);
        (void) eventfd_write(t->done_fd, 1); /* cannot fail, as it is the first write */
        return NULL;
}

static int on_done(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        LoadThread *t = ASSERT_PTR(userdata);

        (void) sd_event_source_set_enabled(source, SD_EVENT_OFF);
        load_thread_join(t);
        t->ended(t->userdata); /* may free t */
        return 0;
}

int load_thread_start(LoadThread *t, sd_event *event, void (*run)(void *userdata),
                      void (*ended)(void *userdata), void *userdata) {
        sigset_t all, before;
        int r;

        *t = (LoadThread) {
                .done_fd = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK),
                .run = run,
                .ended = ended,
                .userdata = userdata,
        };
        r = t->done_fd < 0 ? -errno : sd_event_add_io(event, &t->done, t->done_fd, EPOLLIN, on_done, t);
        if (r >= 0) {
                /* Signals are handled by the event loop */
                (void) sigfillset(&all);
                (void) pthread_sigmask(SIG_SETMASK, &all, &before);
                r = -pthread_create(&t->thread, NULL, thread_main, t);
                (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
                if (r < 0)
                        t->thread = 0;
        }
        if (r < 0)
                load_thread_done(t);
        return r;
}

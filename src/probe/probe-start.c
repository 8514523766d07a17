/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <systemd/sd-event.h>

#include "contention-map.h"
#include "kernel-support.h"
#include "probe.h"
#include "probe-internal.h"

/* Loading in progress. The thread has a probe of its own, so that it shares nothing with the event loop. */
struct ProbeStart {
        Probe *owner;
        Probe *loaded;                  /* of the thread, until that has ended */
        pthread_t thread;
        int error;                      /* result of the thread */
        int done_fd;                    /* eventfd, readable when the thread has ended */
        sd_event_source *done;
        probe_start_handler_t handler;
        void *userdata;
};

ProbeStart* probe_start_free(ProbeStart *s) {
        if (!s)
                return NULL;

        if (s->thread)
                (void) pthread_join(s->thread, NULL);
        probe_free(s->loaded);
        sd_event_source_disable_unref(s->done);
        close_fd(s->done_fd);
        free(s);
        return NULL;
}

static void* load(void *userdata) {
        ProbeStart *s = userdata;

        s->error = probe_load(s->loaded);
        (void) eventfd_write(s->done_fd, 1); /* cannot fail, as it is the first write */
        return NULL;
}

static void fds_move(int *from, int *to, unsigned n) {
        for (unsigned i = 0; i < n; i++)
                if (from[i] >= 0) {
                        to[i] = from[i];
                        from[i] = -EBADF;
                }
}

/* Takes over what the thread has loaded. */
static void probe_adopt_loaded(Probe *p, Probe *from) {
        fds_move(from->map_fds, p->map_fds, _MAP_MAX);
        fds_move(from->program_fds, p->program_fds, _PROGRAM_MAX);
        fds_move(from->link_fds, p->link_fds, _PROGRAM_MAX);
        for (Program i = 0; i < _PROGRAM_MAX; i++) {
                free(p->reasons[i]);
                p->reasons[i] = TAKE_PTR(from->reasons[i]);
        }
        free(p->failure);
        p->failure = TAKE_PTR(from->failure);
        p->started = from->started;
        from->started = false;
}

static int on_loaded(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        ProbeStart *s = ASSERT_PTR(userdata);

        (void) sd_event_source_set_enabled(source, SD_EVENT_OFF);
        (void) pthread_join(s->thread, NULL);
        s->thread = 0;
        probe_adopt_loaded(s->owner, s->loaded);
        if (s->error >= 0)
                probe_store(s->owner);
        s->handler(s->error, s->userdata); /* frees s */
        return 0;
}

int probe_start_new(Probe *p, probe_start_handler_t handler, void *userdata, ProbeStart **ret) {
        _cleanup_free_ char *failure = NULL;
        sigset_t all, before;
        ProbeStart *s;
        int r;

        assert(!p->started);

        r = kernel_support_check(&failure);
        if (r < 0)
                return r;

        s = new0(ProbeStart, 1);
        if (!s)
                return -ENOMEM;
        *s = (ProbeStart) {
                .owner = p,
                .done_fd = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK),
                .handler = handler,
                .userdata = userdata,
        };
        r = s->done_fd < 0 ? -errno : probe_new(p->event, &s->loaded);
        if (r >= 0) {
                assert(s->loaded);
                s->loaded->in_thread = true;
                s->loaded->loaded_at = p->loaded_at;
                r = sd_event_add_io(p->event, &s->done, s->done_fd, EPOLLIN, on_loaded, s);
        }
        if (r >= 0) {
                /* Signals are handled by the event loop */
                (void) sigfillset(&all);
                (void) pthread_sigmask(SIG_SETMASK, &all, &before);
                r = -pthread_create(&s->thread, NULL, load, s);
                (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
                if (r < 0)
                        s->thread = 0;
        }
        if (r < 0) {
                probe_start_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

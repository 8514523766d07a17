/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "kernel-support.h"
#include "load-thread.h"
#include "probe.h"
#include "probe-internal.h"

/* Loading in progress. The thread has a probe of its own, so that it shares nothing with the event loop. */
struct ProbeStart {
        Probe *owner;
        Probe *loaded;                  /* of the thread, until that has ended */
        LoadThread thread;
        int error;                      /* result of the thread */
        probe_start_handler_t handler;
        void *userdata;
};

ProbeStart* probe_start_free(ProbeStart *s) {
        if (!s)
                return NULL;

        load_thread_done(&s->thread);
        probe_free(s->loaded);
        free(s);
        return NULL;
}

static void load(void *userdata) {
        ProbeStart *s = userdata;

        s->error = probe_load(s->loaded);
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

static void on_loaded(void *userdata) {
        ProbeStart *s = ASSERT_PTR(userdata);

        probe_adopt_loaded(s->owner, s->loaded);
        if (s->error >= 0)
                probe_store(s->owner);
        s->handler(s->error, s->userdata); /* frees s */
}

int probe_start_new(Probe *p, probe_start_handler_t handler, void *userdata, ProbeStart **ret) {
        _cleanup_free_ char *failure = NULL;
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
                .thread = LOAD_THREAD_NULL,
                .handler = handler,
                .userdata = userdata,
        };
        r = probe_new(p->event, &s->loaded);
        if (r >= 0) {
                assert(s->loaded);
                s->loaded->in_thread = true;
                s->loaded->loaded_at = p->loaded_at;
                r = load_thread_start(&s->thread, p->event, load, on_loaded, s);
        }
        if (r < 0) {
                probe_start_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Loads a custom probe in a thread: the verifier may need seconds. */

#include <fcntl.h>

#include "load-thread.h"
#include "probe-custom-internal.h"
#include "probe-internal.h"

struct CustomStart {
        Probe *owner;
        unsigned index;
        CustomSpec spec;
        CustomMaps maps;                /* copies, which outlive a stop of the daemon's programs */
        LoadThread thread;
        CustomObject *object;           /* results of the thread */
        char *reason;
        int error;
        custom_start_handler_t handler;
        void *userdata;
};

CustomStart* custom_start_free(CustomStart *s) {
        if (!s)
                return NULL;

        load_thread_done(&s->thread);
        custom_object_free(s->object);
        close_fd(s->maps.groups);
        close_fd(s->maps.sockets);
        free(s->reason);
        free(s);
        return NULL;
}

static void load(void *userdata) {
        CustomStart *s = userdata;

        s->error = custom_object_new(&s->maps, s->index, &s->spec, &s->object, &s->reason);
}

static void on_loaded(void *userdata) {
        CustomStart *s = ASSERT_PTR(userdata);

        if (s->error >= 0)
                custom_object_store(s->owner, s->object);
        s->handler(s->error, s->reason, TAKE_PTR(s->object), s->userdata); /* frees s */
}

int custom_start_new(Probe *p, unsigned index, const CustomSpec *spec, custom_start_handler_t handler,
                     void *userdata, CustomStart **ret) {
        CustomStart *s;
        int r;

        s = new0(CustomStart, 1);
        if (!s)
                return -ENOMEM;
        *s = (CustomStart) {
                .owner = p,
                .index = index,
                .spec = *spec,
                .maps.groups = fcntl(p->map_fds[MAP_GROUPS], F_DUPFD_CLOEXEC, 3),
                .maps.sockets = fcntl(p->map_fds[MAP_CONNS], F_DUPFD_CLOEXEC, 3),
                .thread = LOAD_THREAD_NULL,
                .handler = handler,
                .userdata = userdata,
        };
        r = s->maps.groups < 0 || s->maps.sockets < 0 ? -errno : 0;
        if (r >= 0)
                r = load_thread_start(&s->thread, p->event, load, on_loaded, s);
        if (r < 0) {
                custom_start_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

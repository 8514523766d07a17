/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Loads a custom probe in a thread: the verifier may need seconds. */

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/types.h>

#include "probe-custom-internal.h"
#include "probe-internal.h"

struct CustomStart {
        Probe *owner;
        unsigned index;
        CustomSpec spec;
        CustomMaps maps;                /* copies, which outlive a stop of the daemon's programs */
        pthread_t thread;
        CustomObject *object;           /* results of the thread */
        char *reason;
        int error;
        int done_fd;                    /* eventfd, readable when the thread has ended */
        sd_event_source *done;
        custom_start_handler_t handler;
        void *userdata;
};

CustomStart* custom_start_free(CustomStart *s) {
        if (!s)
                return NULL;

        if (s->thread)
                (void) pthread_join(s->thread, NULL);
        sd_event_source_disable_unref(s->done);
        custom_object_free(s->object);
        close_fd(s->maps.groups);
        close_fd(s->maps.sockets);
        close_fd(s->done_fd);
        free(s->reason);
        free(s);
        return NULL;
}

static void* load(void *userdata) {
        CustomStart *s = userdata;

        s->error = custom_object_new(&s->maps, s->index, &s->spec, &s->object, &s->reason);
        (void) eventfd_write(s->done_fd, 1); /* cannot fail, as it is the first write */
        return NULL;
}

static int on_loaded(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        CustomStart *s = ASSERT_PTR(userdata);

        (void) sd_event_source_set_enabled(source, SD_EVENT_OFF);
        (void) pthread_join(s->thread, NULL);
        s->thread = 0;
        if (s->error >= 0)
                custom_object_store(s->owner, s->object);
        s->handler(s->error, s->reason, TAKE_PTR(s->object), s->userdata); /* frees s */
        return 0;
}

int custom_start_new(Probe *p, unsigned index, const CustomSpec *spec, custom_start_handler_t handler,
                     void *userdata, CustomStart **ret) {
        sigset_t all, before;
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
                .done_fd = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK),
                .handler = handler,
                .userdata = userdata,
        };
        r = s->maps.groups < 0 || s->maps.sockets < 0 || s->done_fd < 0 ? -errno : 0;
        if (r >= 0)
                r = sd_event_add_io(p->event, &s->done, s->done_fd, EPOLLIN, on_loaded, s);
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
                custom_start_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

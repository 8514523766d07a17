/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <systemd/sd-varlink.h>

#include "connect.h"
#include "reading.h"
#include "value.h"

/* Prometheus gives up after 10 s (scrape_timeout=), and the response has to be sent within that, too. */
#define READING_USEC (5 * USEC_PER_SEC)
/* The listen queue is that of all users: a place in it is waited for. */
#define CONNECT_RETRY_USEC (20 * USEC_PER_MSEC)

enum {
        CALL_EXPORT,
        CALL_CATALOGUE,
        CALL_PROGRAMS,
        _CALL_MAX,
};

struct Reading {
        sd_event *event;
        const char *address;
        sd_varlink *link;               /* NULL: the listen queue is full */
        sd_event_source *deadline;      /* of the connection and all calls together */
        sd_event_source *retry;
        sd_event_source *next;          /* sd-varlink takes no call while it handles a reply */
        unsigned call;
        int error;
        Replies replies[_CALL_MAX];
        reading_done_t done;
        void *userdata;
};

static const char *const methods[_CALL_MAX] = {
        [CALL_EXPORT]    = QOS_METHOD("Export"),
        [CALL_CATALOGUE] = QOS_METHOD("ListMetrics"),
        [CALL_PROGRAMS]  = QOS_METHOD("Probes"),
};

Reading* reading_free(Reading *reading) {
        if (!reading)
                return NULL;

        (void) sd_event_source_disable_unref(reading->deadline);
        (void) sd_event_source_disable_unref(reading->retry);
        (void) sd_event_source_disable_unref(reading->next);
        if (reading->link) {
                /* Closing it replies to what is pending */
                (void) sd_varlink_bind_reply(reading->link, NULL);
                (void) sd_varlink_close_unref(reading->link);
        }
        for (unsigned i = 0; i < _CALL_MAX; i++)
                replies_done(&reading->replies[i]);
        free(reading);
        return NULL;
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *userdata) {
        Reading *reading = ASSERT_PTR(userdata);

        reading->done(reading, -ETIMEDOUT, reading->userdata);
        return 0;
}

/* The reply to Export() that has no unit ends it. */
static bool reply_is_kept(const Reading *reading, sd_json_variant *parameters) {
        return reading->call != CALL_EXPORT || value_find(parameters, "unit");
}

static int on_reply(sd_varlink *link, sd_json_variant *parameters, const char *error_id,
                    sd_varlink_reply_flags_t flags, void *userdata) {

        Reading *reading = ASSERT_PTR(userdata);
        int r = 0;

        if (error_id && !streq(error_id, QOS_METHOD("NoEntries")))
                r = streq(error_id, SD_VARLINK_ERROR_DISCONNECTED) ? -ECONNRESET : -EIO;
        else if (!error_id && reply_is_kept(reading, parameters))
                r = replies_add(&reading->replies[reading->call], parameters, NULL);

        if (r >= 0 && (flags & SD_VARLINK_REPLY_CONTINUES))
                return 0;
        reading->error = r;
        return sd_event_source_set_enabled(reading->next, SD_EVENT_ONESHOT);
}

static int on_next(sd_event_source *s, void *userdata) {
        Reading *reading = ASSERT_PTR(userdata);
        int r = reading->error;

        if (r >= 0 && ++reading->call < _CALL_MAX) {
                r = sd_varlink_observe(reading->link, methods[reading->call], NULL);
                if (r >= 0)
                        return 0;
        }
        reading->done(reading, r < 0 ? r : 0, reading->userdata);
        return 0;
}

static void reading_freep(Reading **reading) {
        (void) reading_free(*reading);
}

/* Returns 0 if it is to be tried again, as the listen queue is full. */
static int reading_connect(Reading *reading) {
        _cleanup_close_ int fd = -EBADF;
        int r;

        fd = unix_connect(reading->address, 0);
        if (fd == -EAGAIN)
                return 0;
        if (fd < 0)
                return fd;
        r = sd_varlink_connect_fd(&reading->link, fd);
        if (r < 0)
                return r;
        (void) TAKE_FD(fd);

        (void) sd_varlink_set_userdata(reading->link, reading);
        r = sd_varlink_bind_reply(reading->link, on_reply);
        if (r < 0)
                return r;
        r = sd_varlink_set_relative_timeout(reading->link, UINT64_MAX);
        if (r < 0)
                return r;
        r = sd_varlink_attach_event(reading->link, reading->event, SD_EVENT_PRIORITY_NORMAL);
        if (r < 0)
                return r;
        r = sd_varlink_observe(reading->link, methods[CALL_EXPORT], NULL);
        return r < 0 ? r : 1;
}

static int on_retry(sd_event_source *s, uint64_t usec, void *userdata) {
        Reading *reading = ASSERT_PTR(userdata);
        int r;

        r = reading_connect(reading);
        if (r == 0) {
                r = sd_event_source_set_time_relative(s, CONNECT_RETRY_USEC);
                if (r >= 0)
                        return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
        }
        if (r < 0)
                reading->done(reading, r, reading->userdata);
        return 0;
}

int reading_new(sd_event *event, const char *address, reading_done_t done, void *userdata, Reading **ret) {
        _cleanup_(reading_freep) Reading *reading = NULL;
        int r;

        reading = new0(Reading, 1);
        if (!reading)
                return -ENOMEM;
        reading->event = event;
        reading->address = address;
        reading->done = done;
        reading->userdata = userdata;

        r = sd_event_add_time_relative(event, &reading->deadline, CLOCK_MONOTONIC, READING_USEC, 0,
                                       on_deadline, reading);
        if (r < 0)
                return r;
        r = sd_event_add_defer(event, &reading->next, on_next, reading);
        if (r < 0)
                return r;
        r = sd_event_source_set_enabled(reading->next, SD_EVENT_OFF);
        if (r < 0)
                return r;
        r = reading_connect(reading);
        if (r == 0)
                r = sd_event_add_time_relative(event, &reading->retry, CLOCK_MONOTONIC, CONNECT_RETRY_USEC,
                                               0, on_retry, reading);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(reading);
        return 0;
}

const Replies* reading_get_catalogue(const Reading *reading) {
        return &reading->replies[CALL_CATALOGUE];
}

const Replies* reading_get_units(const Reading *reading) {
        return &reading->replies[CALL_EXPORT];
}

const Replies* reading_get_programs(const Reading *reading) {
        return &reading->replies[CALL_PROGRAMS];
}

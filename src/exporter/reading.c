/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <systemd/sd-varlink.h>

#include "connect.h"
#include "reading.h"

/* Timeout of a reading. The scrape_timeout= of Prometheus is 10 s, in which the response has to be sent as
 * well. */
#define READING_USEC (5 * USEC_PER_SEC)
/* Interval of attempts to connect while the accept queue of qosd is full. */
#define CONNECT_RETRY_USEC (20 * USEC_PER_MSEC)

enum {
        CALL_CATALOGUE,
        CALL_EXPORT,
        _CALL_MAX,
};

struct Reader {
        sd_event *event;
        const char *address;
        bool tables;
        sd_varlink *link;               /* NULL: not connected */
        sd_event_source *deadline;      /* timeout of a reading, including the connection */
        sd_event_source *retry;
        sd_event_source *next;          /* defers further calls, which cannot be made in a callback of the
                                         * connection */
        bool busy;                      /* whether a reading is in progress */
        bool kept;                      /* whether the connection is the one of an earlier reading */
        unsigned call;
        int error;
        Replies replies[_CALL_MAX];     /* the catalogue is kept until the connection ends */
        reading_done_t done;
        void *userdata;
};

static const char *const methods[_CALL_MAX] = {
        [CALL_CATALOGUE] = QOS_METHOD("ListMetrics"),
        [CALL_EXPORT]    = QOS_METHOD("Export"),
};

static void reader_disconnect(Reader *reader) {
        if (reader->link) {
                /* Closing would call on_reply() for pending calls */
                (void) sd_varlink_bind_reply(reader->link, NULL);
                reader->link = sd_varlink_close_unref(reader->link);
        }
        for (unsigned i = 0; i < _CALL_MAX; i++)
                replies_done(&reader->replies[i]);
        (void) sd_event_source_set_enabled(reader->next, SD_EVENT_OFF);
}

Reader* reader_free(Reader *reader) {
        if (!reader)
                return NULL;

        reader_disconnect(reader);
        (void) sd_event_source_disable_unref(reader->deadline);
        (void) sd_event_source_disable_unref(reader->retry);
        (void) sd_event_source_disable_unref(reader->next);
        free(reader);
        return NULL;
}

static void reader_end(Reader *reader, int error) {
        (void) sd_event_source_set_enabled(reader->deadline, SD_EVENT_OFF);
        (void) sd_event_source_set_enabled(reader->retry, SD_EVENT_OFF);
        (void) sd_event_source_set_enabled(reader->next, SD_EVENT_OFF);
        reader->busy = false;
        reader->done(reader, error, reader->userdata);
        replies_done(&reader->replies[CALL_EXPORT]);
        if (error < 0)
                reader_disconnect(reader);
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *userdata) {
        reader_end(ASSERT_PTR(userdata), -ETIMEDOUT);
        return 0;
}

/* Also called when the connection ends between readings. */
static int on_reply(sd_varlink *link, sd_json_variant *parameters, const char *error_id,
                    sd_varlink_reply_flags_t flags, void *userdata) {

        Reader *reader = ASSERT_PTR(userdata);
        int r;

        if (error_id)
                r = streq(error_id, SD_VARLINK_ERROR_DISCONNECTED) ? -ECONNRESET : -EIO;
        else
                r = replies_add(&reader->replies[reader->call], parameters, NULL);

        if (r >= 0 && (flags & SD_VARLINK_REPLY_CONTINUES))
                return 0;
        reader->error = r;
        return sd_event_source_set_enabled(reader->next, SD_EVENT_ONESHOT);
}

/* Returns 0 if the accept queue is full, 1 if the connection is established. */
static int reader_connect(Reader *reader) {
        _cleanup_close_ int fd = -EBADF;
        int r;

        fd = unix_connect(reader->address, 0);
        if (fd == -EAGAIN)
                return 0;
        if (fd < 0)
                return fd;
        r = sd_varlink_connect_fd(&reader->link, fd);
        if (r < 0)
                return r;
        (void) TAKE_FD(fd);

        (void) sd_varlink_set_userdata(reader->link, reader);
        r = sd_varlink_bind_reply(reader->link, on_reply);
        if (r >= 0)
                r = sd_varlink_set_relative_timeout(reader->link, UINT64_MAX);
        if (r >= 0)
                r = sd_varlink_attach_event(reader->link, reader->event, SD_EVENT_PRIORITY_NORMAL);
        return r < 0 ? r : 1;
}

static int reader_call(Reader *reader) {
        if (reader->call == CALL_EXPORT && reader->tables)
                return sd_varlink_observebo(reader->link, methods[reader->call],
                                            SD_JSON_BUILD_PAIR_BOOLEAN("tables", true));
        return sd_varlink_observe(reader->link, methods[reader->call], NULL);
}

/* Connects if necessary, and makes the first call of which the replies are unknown. Is retried by on_retry()
 * if the accept queue is full. */
static int reader_start(Reader *reader) {
        int r;

        if (!reader->link) {
                r = reader_connect(reader);
                if (r == 0) {
                        r = sd_event_source_set_time_relative(reader->retry, CONNECT_RETRY_USEC);
                        return r < 0 ? r : sd_event_source_set_enabled(reader->retry, SD_EVENT_ONESHOT);
                }
                if (r < 0)
                        return r;
        }
        reader->call = reader->replies[CALL_CATALOGUE].n > 0 ? CALL_EXPORT : CALL_CATALOGUE;
        return reader_call(reader);
}

static int on_next(sd_event_source *s, void *userdata) {
        Reader *reader = ASSERT_PTR(userdata);
        int r = reader->error;

        if (!reader->busy) {
                reader_disconnect(reader);
                return 0;
        }
        if (r == -ECONNRESET && reader->kept) {
                /* qosd was restarted when the call was sent */
                reader->kept = false;
                reader_disconnect(reader);
                r = reader_start(reader);
        } else if (r >= 0) {
                if (++reader->call == _CALL_MAX) {
                        reader_end(reader, 0);
                        return 0;
                }
                r = reader_call(reader);
        }
        if (r < 0)
                reader_end(reader, r);
        return 0;
}

static int on_retry(sd_event_source *s, uint64_t usec, void *userdata) {
        Reader *reader = ASSERT_PTR(userdata);
        int r;

        r = reader_start(reader);
        if (r < 0)
                reader_end(reader, r);
        return 0;
}

static void reader_freep(Reader **reader) {
        (void) reader_free(*reader);
}

int reader_new(sd_event *event, const char *address, bool tables, reading_done_t done, void *userdata,
               Reader **ret) {
        _cleanup_(reader_freep) Reader *reader = NULL;
        int r;

        reader = new0(Reader, 1);
        if (!reader)
                return -ENOMEM;
        reader->event = event;
        reader->address = address;
        reader->tables = tables;
        reader->done = done;
        reader->userdata = userdata;

        r = sd_event_add_time(event, &reader->deadline, CLOCK_MONOTONIC, 0, 0, on_deadline, reader);
        if (r >= 0)
                r = sd_event_source_set_enabled(reader->deadline, SD_EVENT_OFF);
        if (r >= 0)
                r = sd_event_add_time(event, &reader->retry, CLOCK_MONOTONIC, 0, 0, on_retry, reader);
        if (r >= 0)
                r = sd_event_source_set_enabled(reader->retry, SD_EVENT_OFF);
        if (r >= 0)
                r = sd_event_add_defer(event, &reader->next, on_next, reader);
        if (r >= 0)
                r = sd_event_source_set_enabled(reader->next, SD_EVENT_OFF);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(reader);
        return 0;
}

int reader_begin(Reader *reader) {
        int r;

        r = sd_event_source_set_time_relative(reader->deadline, READING_USEC);
        if (r >= 0)
                r = sd_event_source_set_enabled(reader->deadline, SD_EVENT_ONESHOT);
        if (r < 0)
                return r;

        reader->kept = !!reader->link;
        reader->error = 0;
        r = reader_start(reader);
        if (r < 0 && reader->kept) {
                /* qosd was restarted after the last reading */
                reader->kept = false;
                reader_disconnect(reader);
                r = reader_start(reader);
        }
        if (r < 0) {
                (void) sd_event_source_set_enabled(reader->deadline, SD_EVENT_OFF);
                reader_disconnect(reader);
                return r;
        }
        reader->busy = true;
        return 0;
}

bool reader_is_busy(const Reader *reader) {
        return reader->busy;
}

const Replies* reader_get_catalogue(const Reader *reader) {
        return &reader->replies[CALL_CATALOGUE];
}

const Replies* reader_get_exports(const Reader *reader) {
        return &reader->replies[CALL_EXPORT];
}

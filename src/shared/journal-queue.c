/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <endian.h>
#include <inttypes.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>

#include "journal-queue.h"
#include "log.h"

typedef struct Entry {
        struct Entry *next;
        size_t size;
        char data[];
} Entry;

struct Journal {
        sd_event *event;
        char *path;
        int fd;
        sd_event_source *writable;      /* enabled while the queue is not empty */
        Entry *first, *last;
        size_t queued;                  /* bytes */
        uint64_t lost;
};

/* Values with a newline are preceded by their length. */
static size_t field_get_size(const char *field) {
        return strlen(field) + 1 + (strchr(field, '\n') ? sizeof(uint64_t) : 0);
}

static char* field_put(char *to, const char *field) {
        const char *equals = strchr(field, '=');
        size_t n = strlen(field), name;
        uint64_t length;

        assert(equals);

        if (!strchr(field, '\n')) {
                to = mempcpy(to, field, n);
                *to++ = '\n';
                return to;
        }
        name = (size_t) (equals - field);
        length = htole64(n - name - 1);
        to = mempcpy(to, field, name);
        *to++ = '\n';
        to = mempcpy(to, &length, sizeof(length));
        to = mempcpy(to, equals + 1, n - name - 1);
        *to++ = '\n';
        return to;
}

static Entry* entry_new(const char *const *fields, size_t n, const char *more) {
        size_t size = more ? field_get_size(more) : 0;
        Entry *e;
        char *to;

        for (size_t i = 0; i < n; i++)
                size += field_get_size(fields[i]);
        e = malloc(sizeof(Entry) + size);
        if (!e)
                return NULL;
        *e = (Entry) { .size = size };
        to = e->data;
        for (size_t i = 0; i < n; i++)
                to = field_put(to, fields[i]);
        if (more)
                to = field_put(to, more);
        assert(to == e->data + size);
        return e;
}

static int journal_connect(Journal *j) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        _cleanup_close_ int fd = -EBADF;

        if (j->fd >= 0)
                return 0;
        if (strlen(j->path) >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        strcpy(address.sun_path, j->path);
        fd = socket(AF_UNIX, SOCK_DGRAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        if (connect(fd, (const struct sockaddr*) &address, sizeof(address)) < 0)
                return -errno;
        j->fd = TAKE_FD(fd);
        return 0;
}

static void journal_disconnect(Journal *j) {
        j->writable = sd_event_source_disable_unref(j->writable);
        j->fd = close_fd(j->fd);
}

/* -EAGAIN: the socket is full. */
static int journal_write(Journal *j, const Entry *e) {
        /* journald may have been restarted, with a new socket */
        for (unsigned try = 0; ; try++) {
                int r = journal_connect(j);

                if (r < 0)
                        return r;
                if (send(j->fd, e->data, e->size, MSG_NOSIGNAL) >= 0)
                        return 0;
                if (errno == EINTR)
                        continue;
                if (errno == EAGAIN || errno == EMSGSIZE || try > 0)
                        return -errno;
                journal_disconnect(j);
        }
}

static int on_writable(sd_event_source *source, int fd, uint32_t events, void *userdata);

static int journal_wait(Journal *j) {
        return j->writable ? 0 : sd_event_add_io(j->event, &j->writable, j->fd, EPOLLOUT, on_writable, j);
}

static void journal_report_lost(Journal *j) {
        char message[128], number[64];
        _cleanup_free_ Entry *e = NULL;

        if (j->lost == 0)
                return;
        (void) snprintf(message, sizeof(message), "MESSAGE=%" PRIu64
                        " entries about thresholds were lost, as the journal did not take them.", j->lost);
        (void) snprintf(number, sizeof(number), "QOS_LOST=%" PRIu64, j->lost);
        e = entry_new((const char*[]) { message, "PRIORITY=4", "SYSLOG_IDENTIFIER=qosd", number }, 4, NULL);
        if (e && journal_write(j, e) >= 0)
                j->lost = 0;
}

static int on_writable(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Journal *j = ASSERT_PTR(userdata);

        while (j->first) {
                _cleanup_free_ Entry *e = NULL;
                int r = journal_write(j, j->first);

                if (r == -EAGAIN) {
                        (void) journal_wait(j); /* the socket may be a new one */
                        return 0;
                }
                e = j->first;
                j->first = e->next;
                j->queued -= e->size;
                if (r < 0)
                        j->lost++;
        }
        j->last = NULL;
        journal_report_lost(j);
        j->writable = sd_event_source_disable_unref(j->writable);
        return 0;
}

void journal_send(Journal *j, const char *const *fields, size_t n, const char *more) {
        _cleanup_free_ Entry *e = NULL;
        int r;

        e = entry_new(fields, n, j->queued < JOURNAL_QUEUE_LONG_MAX ? more : NULL);
        if (!e) {
                j->lost++;
                return;
        }

        /* Not before queued entries */
        r = j->first ? -EAGAIN : journal_write(j, e);
        if (r == -EAGAIN) {
                r = journal_wait(j);
                if (r >= 0 && j->queued + e->size > JOURNAL_QUEUE_MAX)
                        r = -ENOBUFS;
        } else if (r >= 0) {
                journal_report_lost(j);
                return;
        }
        if (r < 0) {
                j->lost++;
                return;
        }
        if (j->last)
                j->last->next = e;
        else
                j->first = e;
        j->last = e;
        j->queued += e->size;
        TAKE_PTR(e);
}

uint64_t journal_get_lost(const Journal *j) {
        return j->lost;
}

int journal_new(sd_event *event, const char *path, Journal **ret) {
        Journal *j;

        j = new0(Journal, 1);
        if (!j)
                return -ENOMEM;
        j->event = event;
        j->fd = -EBADF;
        j->path = strdup(path);
        if (!j->path) {
                free(j);
                return -ENOMEM;
        }
        *ret = j;
        return 0;
}

Journal* journal_free(Journal *j) {
        if (!j)
                return NULL;

        while (j->first) {
                Entry *e = j->first;

                j->first = e->next;
                free(e);
        }
        journal_disconnect(j);
        free(j->path);
        free(j);
        return NULL;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Serves the metrics of qosd over HTTP in the formats of Prometheus. It is activated by its socket and exits
 * when idle. */

#include <fcntl.h>
#include <getopt.h>
#include <microhttpd.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <zlib.h>

#include "config-build.h"
#include "exporter-config.h"
#include "log.h"
#include "negotiate.h"
#include "reading.h"
#include "tls.h"

#define PLAIN "text/plain; charset=utf-8"

static const char *const content_types[_EXPOSITION_MAX] = {
        [EXPOSITION_OPENMETRICS] = "application/openmetrics-text; version=1.0.0; charset=utf-8",
        [EXPOSITION_PROMETHEUS]  = "text/plain; version=0.0.4; charset=utf-8",
        [EXPOSITION_PROTOBUF]    = "application/vnd.google.protobuf; "
                                   "proto=io.prometheus.client.MetricFamily; encoding=delimited",
};

/* Limit of connections, which take up to 2 MiB. When it is reached, the oldest connection without a request
 * is closed. */
#define HTTP_CONNECTIONS_MAX 128U
/* Limit of the memory of a connection, in which its request header has to fit. Those of Prometheus have half
 * a KiB. */
#define CONNECTION_MEMORY_MAX (16U * 1024U)
/* Timeout from the accept of a connection to the end of its response, the default scrape_timeout= of
 * Prometheus. */
#define CONNECTION_USEC (10 * USEC_PER_SEC)
/* Limit of responses that are being sent, of 2 MiB each with 64 units. When it is reached, the oldest client
 * is disconnected. */
#define PAGES_MAX 8U
/* Time without a scrape after which the process exits. Usual scrape intervals are 10 s to 2 min. */
#define IDLE_USEC (300 * USEC_PER_SEC)

/* A response, which clients may share. */
typedef struct Page {
        struct MHD_Response *response;
        unsigned status, n_ref;
} Page;

typedef struct Exporter Exporter;
typedef struct Client Client;

struct Client {
        Client *next, *previous;        /* in order of arrival */
        int fd;                         /* owned by libmicrohttpd */
        uint64_t until;                 /* CLOCK_MONOTONIC, us */
        bool cut;                       /* whether the connection was shut down */
        bool requested;                 /* whether the request header is complete */
        struct MHD_Connection *waiting; /* suspended until the reading is complete; NULL: not suspended */
        Exposition format;
        bool gzip;
        Page *page;                     /* response; NULL: none yet */
};

/* Buffer of a stream. It is reused for each scrape, as the kernel has to zero the pages of a new one, which
 * takes a quarter of the time of a scrape of 64 units. */
typedef struct Text {
        char *data;
        size_t size, allocated;
} Text;

struct Exporter {
        sd_event *event;
        struct MHD_Daemon *http;
        sd_event_source *timer;         /* next timeout of libmicrohttpd, of a connection, or of the
                                         * process */
        Client *first, *last;
        unsigned n_clients;
        Reader *reader;
        uint64_t begun, scraped;        /* CLOCK_MONOTONIC, us */
        ExpositionOptions options;      /* without the format */
        Text text;
        TlsFiles tls;
};

static unsigned n_pages;

static Page* page_unref(Page *p) {
        if (p && --p->n_ref == 0) {
                MHD_destroy_response(p->response);
                free(p);
                n_pages--;
        }
        return NULL;
}

static int page_add_header(Page *p, const char *name, const char *value) {
        return MHD_add_response_header(p->response, name, value) == MHD_YES ? 0 : -ENOMEM;
}

static int page_new(unsigned status, const char *type, const char *encoding, char *body, size_t size,
                    Page **ret) {
        _cleanup_free_ char *text = body;
        Page *p;

        p = new0(Page, 1);
        if (!p)
                return -ENOMEM;
        p->response = MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
        if (!p->response) {
                free(p);
                return -ENOMEM;
        }
        (void) TAKE_PTR(text);
        p->status = status;
        p->n_ref = 1;
        n_pages++;

        /* One request per connection, so that the timeout of the connection is that of the request */
        if (page_add_header(p, MHD_HTTP_HEADER_CONTENT_TYPE, type) < 0 ||
            page_add_header(p, MHD_HTTP_HEADER_CONNECTION, "close") < 0 ||
            page_add_header(p, MHD_HTTP_HEADER_VARY, "Accept, Accept-Encoding") < 0 ||
            (encoding && page_add_header(p, MHD_HTTP_HEADER_CONTENT_ENCODING, encoding) < 0)) {
                (void) page_unref(p);
                return -ENOMEM;
        }
        *ret = p;
        return 0;
}

static enum MHD_Result reply_text(struct MHD_Connection *connection, unsigned status, const char *type,
                                  const char *text) {
        enum MHD_Result q;
        char *copy = strdup(text);
        Page *p = NULL;

        if (!copy || page_new(status, type, NULL, copy, strlen(copy), &p) < 0)
                return MHD_NO;
        if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
                (void) page_add_header(p, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
        q = MHD_queue_response(connection, status, p->response);
        (void) page_unref(p);
        return q;
}

/* Compresses text into a new buffer. Level 1 reduces such text to a tenth, and other levels save little
 * more. */
static int compress_text(const char *text, size_t size, char **ret, size_t *ret_size) {
        _cleanup_free_ char *out = NULL;
        z_stream z = {};
        size_t bound;
        int r;

        /* 15: maximum window, 16: with a gzip header */
        if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
                return -ENOMEM;
        bound = deflateBound(&z, size);
        out = malloc(bound);
        if (!out) {
                (void) deflateEnd(&z);
                return -ENOMEM;
        }
        z.next_in = (Bytef*) text;
        z.avail_in = (uInt) size;
        z.next_out = (Bytef*) out;
        z.avail_out = (uInt) bound;
        r = deflate(&z, Z_FINISH);
        *ret_size = z.total_out;
        (void) deflateEnd(&z);
        if (r != Z_STREAM_END)
                return -EIO;
        *ret = TAKE_PTR(out);
        return 0;
}

/* Has libmicrohttpd close the connection, for which it has no function. */
static void client_cut(Client *c) {
        c->cut = true;
        (void) shutdown(c->fd, SHUT_RDWR);
}

static ssize_t text_append(void *cookie, const char *data, size_t size) {
        Text *t = ASSERT_PTR(cookie);

        if (size > t->allocated - t->size) {
                size_t allocated = MAX(2 * t->allocated, t->size + size);
                char *p = realloc(t->data, allocated);

                if (!p)
                        return 0;       /* results in an error of the stream */
                t->data = p;
                t->allocated = allocated;
        }
        memcpy(t->data + t->size, data, size);
        t->size += size;
        return (ssize_t) size;
}

static void text_done(Text *t) {
        free(t->data);
        *t = (Text) {};
}

/* Formats a reading, or, if error is negative, qosd_up 0 and the duration. */
static int write_text(Exporter *e, int error, Exposition format) {
        uint64_t took = (now_usec(CLOCK_MONOTONIC) - e->begun) * NSEC_PER_USEC;
        ExpositionOptions options = e->options;
        FILE *f;
        int r;

        options.format = format;
        e->text.size = 0;
        f = fopencookie(&e->text, "w", (cookie_io_functions_t) { .write = text_append });
        if (!f)
                return -ENOMEM;
        r = exposition_write_gauge(f, format, "qosd_up", NULL, "Whether qosd has replied", error >= 0);
        if (r >= 0 && error >= 0)
                r = exposition_write(f, &options, reader_get_catalogue(e->reader),
                                     reader_get_exports(e->reader));
        if (r >= 0)
                r = exposition_write_gauge(f, format, "qosd_scrape_duration_seconds", "seconds",
                                           "Time until qosd has replied", took);
        exposition_end(f, format);
        if (ferror(f) && r >= 0)
                r = -ENOMEM;
        if (fclose(f) != 0 && r >= 0)
                r = -ENOMEM;
        return r;
}

static int page_of_reading(Exporter *e, int error, Exposition format, bool gzip, Page **ret) {
        Text *t = &e->text;
        char *body = NULL;
        size_t size = 0;
        int r;

        if (n_pages >= PAGES_MAX)
                for (Client *c = e->first; c; c = c->next)
                        if (c->page && !c->cut) {
                                client_cut(c);
                                break;
                        }
        r = write_text(e, error, format);
        if (r >= 0 && gzip)
                r = compress_text(t->data, t->size, &body, &size);
        if (r >= 0 && !gzip) {
                size = t->size;
                body = TAKE_PTR(t->data);
                *t = (Text) {};
        }
        /* Free a buffer of a scrape of many more units */
        if (t->size < t->allocated / 4)
                text_done(t);
        if (r < 0)
                return r;
        return page_new(error < 0 ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK,
                        content_types[format], gzip ? "gzip" : NULL, body, size, ret);
}

static void reading_done(Reader *reader, int error, void *userdata) {
        Exporter *e = ASSERT_PTR(userdata);
        Page *pages[_EXPOSITION_MAX][2] = {};   /* by format and encoding */

        if (error < 0)
                (void) log_warning_errno(error, "Failed to read metrics of qosd: %m");

        for (Client *c = e->first; c; c = c->next) {
                Page **p = &pages[c->format][c->gzip];
                int r = 0;

                if (!c->waiting)
                        continue;
                if (!*p)
                        r = page_of_reading(e, error, c->format, c->gzip, p);
                if (r < 0)
                        (void) log_warning_errno(r, "Failed to make a response: %m");
                if (*p) {
                        (*p)->n_ref++;
                        c->page = *p;
                }
                MHD_resume_connection(TAKE_PTR(c->waiting));
        }
        for (unsigned i = 0; i < _EXPOSITION_MAX; i++)
                for (unsigned k = 0; k < 2; k++)
                        (void) page_unref(pages[i][k]);
}

static const char* header(struct MHD_Connection *connection, const char *name) {
        return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static enum MHD_Result on_request(void *userdata, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **request) {
        const union MHD_ConnectionInfo *info;
        Exporter *e = ASSERT_PTR(userdata);
        Client *c;
        int r;

        info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        c = info ? info->socket_context : NULL;
        if (!c)
                return MHD_NO;
        if (c->requested) {             /* called again after the reading */
                if (!c->page)
                        return reply_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, PLAIN,
                                          "Out of memory, try again later.\n");
                return MHD_queue_response(connection, c->page->status, c->page->response);
        }
        c->requested = true;

        if (!streq(method, MHD_HTTP_METHOD_GET) && !streq(method, MHD_HTTP_METHOD_HEAD))
                return reply_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, PLAIN,
                                  "Invalid method, expected GET or HEAD.\n");
        if (header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH) ||
            header(connection, MHD_HTTP_HEADER_TRANSFER_ENCODING))
                return reply_text(connection, MHD_HTTP_BAD_REQUEST, PLAIN,
                                  "Unexpected content in the request, expected none.\n");
        if (streq(url, "/"))
                return reply_text(connection, MHD_HTTP_OK, "text/html; charset=utf-8",
                                  "<!DOCTYPE html><html><head><title>qosd exporter</title></head><body>"
                                  "<h1>qosd exporter</h1><a href=\"/metrics\">Metrics</a></body></html>\n");
        if (!streq(url, "/metrics"))
                return reply_text(connection, MHD_HTTP_NOT_FOUND, PLAIN,
                                  "No such page, expected /metrics.\n");

        c->format = negotiate_format(header(connection, MHD_HTTP_HEADER_ACCEPT));
        c->gzip = negotiate_gzip(header(connection, MHD_HTTP_HEADER_ACCEPT_ENCODING));
        e->scraped = now_usec(CLOCK_MONOTONIC);

        /* Requests that arrive during a reading share it */
        if (!reader_is_busy(e->reader)) {
                e->begun = e->scraped;
                r = reader_begin(e->reader);
                if (r < 0) {
                        (void) log_warning_errno(r, "Failed to connect to qosd: %m");
                        r = page_of_reading(e, r, c->format, c->gzip, &c->page);
                        if (r < 0)
                                return MHD_NO;
                        return MHD_queue_response(connection, c->page->status, c->page->response);
                }
        }
        c->waiting = connection;
        MHD_suspend_connection(connection);
        return MHD_YES;
}

static void on_connection(void *userdata, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code) {
        Exporter *e = ASSERT_PTR(userdata);
        Client *c = *context;

        if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
                if (!c)
                        return;
                if (c->previous)
                        c->previous->next = c->next;
                else
                        e->first = c->next;
                if (c->next)
                        c->next->previous = c->previous;
                else
                        e->last = c->previous;
                e->n_clients--;
                (void) page_unref(c->page);
                free(c);
                *context = NULL;
                return;
        }

        /* Out of memory: its request is refused */
        c = new0(Client, 1);
        if (!c)
                return;
        c->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        c->until = now_usec(CLOCK_MONOTONIC) + CONNECTION_USEC;
        if (e->tls.authorities && tls_require_certificate(connection) < 0)
                client_cut(c);
        c->previous = e->last;
        if (e->last)
                e->last->next = c;
        else
                e->first = c;
        e->last = c;
        *context = c;

        if (++e->n_clients >= HTTP_CONNECTIONS_MAX)
                for (Client *i = e->first; i; i = i->next)
                        if (!i->requested && !i->cut) {
                                client_cut(i);
                                break;
                        }
}

/* Closes connections after their timeout, serves the others, and sets the timer. */
static int exporter_run(Exporter *e) {
        uint64_t now = now_usec(CLOCK_MONOTONIC), next;
        MHD_UNSIGNED_LONG_LONG msec;

        for (Client *c = e->first; c && c->until <= now; c = c->next)
                if (!c->cut && !c->waiting)
                        client_cut(c);
        if (MHD_run(e->http) != MHD_YES)
                return log_error_errno(-EIO, "Failed to serve HTTP.");

        if (!e->first && now >= e->scraped + IDLE_USEC)
                return sd_event_exit(e->event, 0);
        next = e->first ? USEC_INFINITY : e->scraped + IDLE_USEC;
        for (Client *c = e->first; c; c = c->next)
                if (!c->cut && !c->waiting) {
                        next = c->until;
                        break;
                }
        if (MHD_get_timeout(e->http, &msec) == MHD_YES)
                next = MIN(next, now + msec * USEC_PER_MSEC);
        if (sd_event_source_set_time(e->timer, next) < 0)
                return -EIO;
        return sd_event_source_set_enabled(e->timer,
                                           next == USEC_INFINITY ? SD_EVENT_OFF : SD_EVENT_ONESHOT);
}

/* Timer and I/O only wake up the event loop: on_post() serves all connections once per iteration. */
static int on_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        return 0;
}

static int on_io(sd_event_source *s, int fd, uint32_t events, void *userdata) {
        return 0;
}

static int on_post(sd_event_source *s, void *userdata) {
        return exporter_run(userdata);
}

/* Returns 0 if the program is to exit, 1 if not. */
static int parse_arguments(Exporter *e, int argc, char **argv) {
        enum { ARG_VERSION = 0x100, ARG_EXPORT, ARG_BUCKETS, ARG_SERIES };
        static const struct option options[] = {
                { "help",        no_argument,       NULL, 'h'         },
                { "version",     no_argument,       NULL, ARG_VERSION },
                { "export",      required_argument, NULL, ARG_EXPORT  },
                { "buckets-max", required_argument, NULL, ARG_BUCKETS },
                { "series-max",  required_argument, NULL, ARG_SERIES  },
                {}
        };
        int c, r;

        while ((c = getopt_long(argc, argv, "h", options, NULL)) >= 0)
                switch (c) {
                case 'h':
                        puts("qosd-exporter [OPTIONS...]\n\n"
                             "Serves metrics of qosd over HTTP. Started by qosd-exporter.socket.\n\n"
                             "  -h --help             Show this help\n"
                             "     --version          Show the version\n"
                             "     --export=WHAT      What to export of the units: requests, for the\n"
                             "                        essential metrics (default), or probes, for those of\n"
                             "                        all their probes, or everything, also for those of\n"
                             "                        endpoints, devices and file systems\n"
                             "     --buckets-max=N    Limit the buckets of a native histogram\n"
                             "                        (default: 160), 0 for no limit\n"
                             "     --series-max=N     Limit the series of all units, a histogram being one\n"
                             "                        (default: 10000), 0 for no limit\n\n"
                             "See qosd-exporter(8).");
                        return 0;
                case ARG_VERSION:
                        puts("qosd-exporter " QOSD_VERSION);
                        return 0;
                case ARG_EXPORT:
                        r = exposition_parse_scope(optarg, &e->options.scope);
                        if (r < 0)
                                return log_error_errno(r, "Invalid value '%s' for --export=, expected "
                                                       EXPOSITION_SCOPES ".", optarg);
                        break;
                case ARG_BUCKETS:
                        r = exposition_parse_buckets(optarg, &e->options.buckets_max);
                        if (r < 0)
                                return log_error_errno(r,
                                                       "Invalid number of buckets '%s', "
                                                       "expected 0 or %u to %u.", optarg,
                                                       EXPOSITION_BUCKETS_MIN, EXPOSITION_BUCKETS_MAX);
                        break;
                case ARG_SERIES:
                        r = exposition_parse_series(optarg, &e->options.series_max);
                        if (r < 0)
                                return log_error_errno(r,
                                                       "Invalid number of series '%s', expected 0 to %u.",
                                                       optarg, EXPOSITION_SERIES_MAX);
                        break;
                default:
                        return -EINVAL;
                }
        if (optind < argc)
                return log_error_errno(-EINVAL, "Unexpected argument '%s', expected none.", argv[optind]);
        return 1;
}

int main(int argc, char **argv) {
        Exporter e = {
                .scraped = now_usec(CLOCK_MONOTONIC),
        };
        const union MHD_DaemonInfo *info;
        struct MHD_OptionItem tls[TLS_OPTIONS];
        int r;

        /* Options override settings of files */
        if (exporter_config_load("", &e.options) < 0) {
                (void) log_oom();
                return EXIT_FAILURE;
        }
        r = parse_arguments(&e, argc, argv);
        if (r <= 0)
                return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
        if (sd_listen_fds(true) != 1) {
                (void) log_error_errno(-EINVAL, "Expected one listening socket, from qosd-exporter.socket.");
                return EXIT_FAILURE;
        }
        r = fcntl(SD_LISTEN_FDS_START, F_GETFL);
        if (r < 0 || fcntl(SD_LISTEN_FDS_START, F_SETFL, r | O_NONBLOCK) < 0) {
                (void) log_error_errno(-errno, "Failed to prepare the socket: %m");
                return EXIT_FAILURE;
        }

        r = sd_event_default(&e.event);
        if (r >= 0)
                r = sd_event_set_signal_exit(e.event, true);
        if (r >= 0)
                r = reader_new(e.event, QOS_ADDRESS, e.options.scope == EXPOSITION_EVERYTHING, reading_done,
                               &e, &e.reader);
        if (r < 0) {
                (void) log_error_errno(r, "Failed to set up the event loop: %m");
                return EXIT_FAILURE;
        }
        if (tls_files_load(&e.tls) < 0)
                return EXIT_FAILURE;
        tls_files_get_options(&e.tls, tls);
        e.http = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
                                  (e.tls.certificate ? MHD_USE_TLS : 0),
                                  0, NULL, NULL, on_request, &e,
                                  MHD_OPTION_LISTEN_SOCKET, SD_LISTEN_FDS_START,
                                  MHD_OPTION_CONNECTION_LIMIT, HTTP_CONNECTIONS_MAX,
                                  MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t) CONNECTION_MEMORY_MAX,
                                  MHD_OPTION_NOTIFY_CONNECTION, on_connection, &e,
                                  MHD_OPTION_ARRAY, tls,
                                  MHD_OPTION_END);
        info = e.http ? MHD_get_daemon_info(e.http, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
        if (!info) {
                (void) log_error_errno(-EIO, "Failed to start serving %s.",
                                       e.tls.certificate ? "HTTPS" : "HTTP");
                return EXIT_FAILURE;
        }

        r = sd_event_add_time(e.event, &e.timer, CLOCK_MONOTONIC, 0, 0, on_timer, &e);
        if (r >= 0)
                r = sd_event_add_io(e.event, NULL, info->epoll_fd, EPOLLIN, on_io, &e);
        if (r >= 0)
                r = sd_event_add_post(e.event, NULL, on_post, &e);
        if (r >= 0)
                r = sd_event_loop(e.event);
        if (r < 0)
                (void) log_error_errno(r, "Failed to run: %m");

        /* libmicrohttpd cannot close suspended connections */
        for (Client *c = e.first; c; c = c->next)
                if (c->waiting)
                        MHD_resume_connection(TAKE_PTR(c->waiting));
        MHD_stop_daemon(e.http);
        e.reader = reader_free(e.reader);
        (void) sd_event_source_disable_unref(e.timer);
        (void) sd_event_unref(e.event);
        tls_files_done(&e.tls);
        text_done(&e.text);
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

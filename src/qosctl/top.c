/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <inttypes.h>
#include <signal.h>
#include <sys/epoll.h>

#include <systemd/sd-event.h>

#include "format.h"
#include "qosctl.h"
#include "page.h"
#include "screen.h"
#include "snapshot-view.h"
#include "top-rows.h"
#include "unit-names.h"
#include "value.h"

/* top. All calls are made on a single connection, which owns the leases, needs a password over ssh only
 * once, and keeps replies in order. */

#define LATENCY "requests.server.latency"
/* Lower bound of delays that are set by keys. */
#define DELAY_KEYS_MIN (250 * NSEC_PER_MSEC)

typedef struct Top {
        sd_event *event;
        sd_event_source *timer;
        sd_event_source *go_on;         /* defers further calls, which cannot be made in a callback of the
                                         * connection */
        Client *client;

        Names names;                    /* canonical names of units; none: all */
        bool *leased;                   /* by index in names: whether the unit is attached by a lease of this
                                         * process */

        Reading *readings;
        size_t n_readings;
        Replies frame;                  /* replies of the current call */
        bool busy;                      /* call in progress */
        bool lost;                      /* connection lost */
        size_t get_reading, get_wider;  /* reading and window of the current call; SIZE_MAX: the call is
                                         * List() */

        TopRows rows;
        Page *page;                     /* status of the selected unit; NULL: the table is shown */
        size_t sort;                    /* UNIT_COLUMN_… */
        bool reverse, help, batch;
        char *trouble;
        uint64_t shown;
        int status;
} Top;

static void top_done(Top *t) {
        screen_leave();
        (void) client_free(t->client);
        for (size_t i = 0; i < t->n_readings; i++)
                reading_done(&t->readings[i]);
        free(t->readings);
        free(t->leased);
        free(t->trouble);
        top_rows_done(&t->rows);
        (void) page_free(t->page);
        replies_done(&t->frame);
        names_done(&t->names);
        (void) sd_event_source_disable_unref(t->timer);
        (void) sd_event_source_disable_unref(t->go_on);
        (void) sd_event_unref(t->event);
}

/* Leaves the screen, and exits with a message. */
static int top_fail(Top *t, int r, const Replies *replies) {
        screen_leave();
        t->status = client_fail(r, replies, "read units");
        return sd_event_exit(t->event, 0);
}

/* ---- table -------------------------------------------------------------------------------------------- */

static const struct {
        char key;
        size_t column;
        const char *name;
} orders[] = {
        { 'p', UNIT_COLUMN_UNIT,      "unit"       },
        { 't', UNIT_COLUMN_RATE,      "throughput" },
        { 'e', UNIT_COLUMN_ERRORS,    "errors"     },
        { 'l', UNIT_COLUMN_P99,       "latency"    },
        { 'i', UNIT_COLUMN_IN_FLIGHT, "in flight"  },
};

/* Returns the sort key of a row. Absent values come last. */
static double sort_value(const Reading *r, size_t column) {
        uint64_t n, window;
        double v = -1;

        if (column == UNIT_COLUMN_RATE)
                (void) reading_real(r, "requests.server.rate", &v);
        else if (column == UNIT_COLUMN_ERRORS)
                (void) reading_errors(r, &n, &v);
        else if (column == UNIT_COLUMN_P99)
                v = reading_quantile(r, LATENCY, "p99", &n, &window) ? (double) n : -1;
        else if (column == UNIT_COLUMN_IN_FLIGHT)
                v = reading_unsigned(r, "requests.server.inFlight", &n) ? (double) n : -1;

        return v;
}

static int compare_readings(const void *a, const void *b, void *userdata) {
        const Reading *x = a, *y = b;
        const Top *t = userdata;
        double v, w;
        int c = 0;

        if (t->sort != UNIT_COLUMN_UNIT) {
                v = sort_value(x, t->sort);
                w = sort_value(y, t->sort);
                c = v < w ? 1 : v > w ? -1 : 0;
        }
        /* By name for equal values, with numeric order of instances */
        c = c ?: strverscmp(x->unit, y->unit);
        return t->reverse ? -c : c;
}

static const char* order_name(const Top *t) {
        for (size_t i = 0; i < ELEMENTSOF(orders); i++)
                if (orders[i].column == t->sort)
                        return orders[i].name;
        return "";
}

/* Number of lines of print_help(). */
#define HELP_LINES 7U

static void print_help(FILE *f) {
        (void) fputs("\n"
                     "  Sort by   p unit   t throughput   e errors   l latency (p99)   i in flight\n"
                     "            r reverse order\n"
                     "  Move      up, down, PgUp, PgDn, Home, End   Enter status of the unit\n"
                     "  Filter    / type a part of the name, or a pattern   Esc all units\n"
                     "  Refresh   + less often   - more often   space now\n"
                     "  Other     h help   q quit\n", f);
}

/* n: number of units that match the filter. */
static void print_title(const Top *t, size_t n, FILE *f) {
        const Style *style = terminal_style();
        char window[FORMAT_MAX] = "", delay[FORMAT_MAX], line[512], clock[16] = "", part[32] = "";
        _cleanup_free_ char *text = NULL;
        time_t now = time(NULL);
        uint64_t w = 0;
        struct tm tm;

        if (localtime_r(&now, &tm))
                (void) strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
        if (t->n_readings > 0) {
                (void) reading_unsigned(&t->readings[0], "window", &w);
                (void) format_window(window, w);
        }

        if (n < t->n_readings)
                (void) snprintf(part, sizeof(part), "%zu of ", n);
        if (t->trouble)
                (void) snprintf(line, sizeof(line), "%s  %s, reconnecting", clock, t->trouble);
        else
                (void) snprintf(line, sizeof(line), "%s  %s%zu unit%s%s%s, every %s, by %s%s    h for help",
                                clock, part, t->n_readings, t->n_readings == 1 ? "" : "s",
                                w > 0   ? ", last " :
                                *window ? ", " :
                                          "",
                                window, format_span(delay, arg_delay), order_name(t),
                                t->reverse ? " reversed" : "");

        text = text_ellipsize(line, style->width, style->utf8);
        (void) fprintf(f, "%s%s%s\n", t->trouble ? color_on(style, COLOR_YELLOW) : "", strempty(text),
                       t->trouble ? color_off(style) : "");
        if (t->help)
                print_help(f);
        if (t->rows.typing || *t->rows.filter)
                (void) fprintf(f, "Filter: %s%s\n", t->rows.filter, t->rows.typing ? "_" : "");
        else
                (void) fputc('\n', f);
}

/* Returns the number of rows that fit beside title, empty line, header and footer. */
static size_t top_get_height(const Top *t) {
        size_t others = 4U + (t->help ? HELP_LINES : 0), lines = terminal_lines();

        return t->batch ? SIZE_MAX : lines - MIN(lines, others);
}

/* Returns the names of units that match the filter, in the order of the readings. The caller frees the
 * array. NULL: out of memory. */
static const char** top_get_units(const Top *t, size_t *ret_n) {
        const char **units = new0(const char*, t->n_readings + 1);
        size_t n = 0;

        for (size_t i = 0; units && i < t->n_readings; i++)
                if (top_rows_match(&t->rows, t->readings[i].unit))
                        units[n++] = t->readings[i].unit;
        *ret_n = n;
        return units;
}

static int top_show_page(Top *t) {
        size_t lines = terminal_lines() - MIN(terminal_lines(), 2U), first = 0, n = 0;
        const char *body = page_get_text(t->page, lines, &first, &n);
        _cleanup_free_ char *title = NULL, *fitting = NULL, *text = NULL;
        const Style *style = terminal_style();
        char part[64] = "";

        if (n > lines)
                (void) snprintf(part, sizeof(part), ", lines %zu to %zu of %zu", first + 1, first + lines,
                                n);
        if (asprintf(&title, "%s%s    q for the table", t->rows.selected, part) < 0) {
                title = NULL;
                return log_out_of_memory();
        }
        fitting = text_ellipsize(title, style->width, style->utf8);
        if (asprintf(&text, "%s\n\n%s", strempty(fitting), strempty(body)) < 0) {
                text = NULL;
                return log_out_of_memory();
        }
        return screen_draw(text);
}

static int top_show(Top *t) {
        _cleanup_(table_freep) Table *table = NULL;
        size_t size, height = top_get_height(t), n, selected, below, row = 0;
        _cleanup_free_ const char **units = NULL;
        _cleanup_free_ char *text = NULL;
        FILE *f;
        int r;

        if (t->page)
                return top_show_page(t);

        qsort_r(t->readings, t->n_readings, sizeof(Reading), compare_readings, t);

        table = table_new(unit_columns, n_unit_columns);
        if (!table)
                return log_out_of_memory();
        units = top_get_units(t, &n);
        if (!units)
                return log_out_of_memory();
        selected = top_rows_place(&t->rows, units, n, height);
        table_mark_column(table, t->sort);
        table_mark_row(table, selected == SIZE_MAX ? SIZE_MAX : selected - t->rows.first);
        for (size_t i = 0; i < t->n_readings; i++) {
                if (!top_rows_match(&t->rows, t->readings[i].unit))
                        continue;
                if (row >= t->rows.first && row - t->rows.first < height)
                        reading_add_row(&t->readings[i], table);
                row++;
        }
        below = n > table_rows(table) ? n - t->rows.first - table_rows(table) : 0;

        f = open_memstream(&text, &size);
        if (!f)
                return log_out_of_memory();
        if (!t->batch)
                print_title(t, n, f);
        r = table_print(table, f, terminal_style(), arg_legend, 0);
        if (t->rows.first > 0)
                (void) fprintf(f, "%zu above%s", t->rows.first, below > 0 ? ", " : "\n");
        if (below > 0)
                (void) fprintf(f, "%zu more\n", below);
        if (fclose(f) < 0 || r < 0)
                return log_out_of_memory();

        if (!t->batch)
                return screen_draw(text);

        (void) printf("%s%s", t->shown > 0 ? "\n" : "", text);
        return fflush(stdout) < 0 ? -errno : 0;
}

static int top_show_json(Top *t) {
        int r = 0;

        for (size_t i = 0; i < t->n_readings && r >= 0; i++)
                r = json_print(t->readings[i].item);
        return r;
}

/* To be called when all replies of a table were received. */
static int top_finish_frame(Top *t) {
        int r;

        free(t->trouble);
        t->trouble = NULL;

        r = arg_json != JSON_OFF ? top_show_json(t) : top_show(t);
        if (r < 0) {
                t->status = STATUS_FAILED;
                return sd_event_exit(t->event, 0);
        }

        t->shown++;
        return t->shown == arg_iterations ? sd_event_exit(t->event, 0) : 0;
}

/* ---- calls -------------------------------------------------------------------------------------------- */

static bool top_watches(const Top *t, const char *unit) {
        for (size_t i = 0; i < t->names.n; i++)
                if (streq(t->names.items[i], unit))
                        return true;
        return t->names.n == 0;
}

/* Replaces the readings by those in t->frame, but keeps snapshots over longer windows. */
static int top_take_list(Top *t) {
        Reading *readings;
        size_t n = 0;

        readings = new0(Reading, t->frame.n);
        if (!readings)
                return log_out_of_memory();

        for (size_t i = 0; i < t->frame.n; i++) {
                const char *unit = value_string(t->frame.items[i], "unit");

                if (!unit || !value_find(t->frame.items[i], "snapshot") || !top_watches(t, unit))
                        continue;

                for (size_t j = 0; j < t->n_readings; j++)
                        if (t->readings[j].item && streq(t->readings[j].unit, unit)) {
                                readings[n] = t->readings[j];
                                t->readings[j] = (Reading) {};
                                break;
                        }
                reading_set(&readings[n++], t->frame.items[i]);
        }

        for (size_t i = 0; i < t->n_readings; i++)
                reading_done(&t->readings[i]);
        free(t->readings);
        t->readings = readings;
        t->n_readings = n;
        return 0;
}

/* Begins to read the next longer window that a quantile needs. Returns 0 if there is none. */
static int top_get_wider(Top *t) {
        uint64_t now = now_usec(CLOCK_MONOTONIC);
        int r;

        if (arg_json != JSON_OFF)
                return 0;

        for (size_t i = 0; i < t->n_readings; i++) {
                size_t w;

                if (!reading_wants(&t->readings[i], LATENCY, "p50", now, &w) &&
                    !reading_wants(&t->readings[i], LATENCY, "p99", now, &w))
                        continue;

                r = sd_varlink_invokebo(t->client->link, QOS_METHOD("Get"),
                                        SD_JSON_BUILD_PAIR_STRING("unit", t->readings[i].unit),
                                        SD_JSON_BUILD_PAIR_UNSIGNED("window", reading_wider_window(w)));
                if (r < 0)
                        return r;
                t->get_reading = i;
                t->get_wider = w;
                t->busy = true;
                return 1;
        }

        return 0;
}

static int top_send_request(Top *t) {
        const char *unit = t->names.n == 1 ? t->names.items[0] : NULL;
        int r;

        r = sd_varlink_observebo(t->client->link, QOS_METHOD("List"),
                                 SD_JSON_BUILD_PAIR_CONDITION(!!unit, "unit", SD_JSON_BUILD_STRING(unit)),
                                 SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window",
                                                              SD_JSON_BUILD_UNSIGNED(arg_window)));
        if (r < 0)
                return r;

        replies_done(&t->frame);
        t->get_reading = SIZE_MAX;
        t->busy = true;
        return 0;
}

/* The connection was lost, for example as qosd is being upgraded. It is retried with a message on the
 * screen; in batch mode, a second failure is an error. */
static int top_lost(Top *t, int error) {
        const Replies none = REPLIES_INIT;

        if (t->batch && t->trouble)
                return top_fail(t, error, &none);

        t->client = client_free(t->client);
        t->busy = t->lost = false;
        if (!t->trouble)
                t->trouble = strdup("Connection to qosd lost");
        return t->batch ? 0 : top_show(t);
}

static int on_reply(sd_varlink *link, sd_json_variant *parameters, const char *error_id,
                    sd_varlink_reply_flags_t flags, void *userdata) {

        Top *t = ASSERT_PTR(userdata);
        int r;

        if (streq_ptr(error_id, SD_VARLINK_ERROR_DISCONNECTED) ||
            streq_ptr(error_id, SD_VARLINK_ERROR_TIMEOUT)) {
                /* A connection cannot be closed in its own callback */
                t->lost = true;
                return sd_event_source_set_time(t->timer, now_usec(CLOCK_MONOTONIC));
        }

        if (t->get_reading != SIZE_MAX) {
                t->busy = false;
                reading_set_wider(&t->readings[t->get_reading], t->get_wider, error_id ? NULL : parameters,
                                  now_usec(CLOCK_MONOTONIC));
        } else {
                r = replies_add(&t->frame, parameters, error_id);
                if (r < 0)
                        return top_fail(t, r, &t->frame);
                if (flags & SD_VARLINK_REPLY_CONTINUES)
                        return 0;

                t->busy = false;
                /* No units attached: an empty table */
                if (t->frame.error && !streq(t->frame.error, QOS_METHOD("NoEntries")) &&
                    !streq(t->frame.error, QOS_METHOD("NotAttached")))
                        return top_fail(t, 1, &t->frame);
                r = top_take_list(t);
                if (r < 0)
                        return top_fail(t, r, &t->frame);
        }

        return sd_event_source_set_enabled(t->go_on, SD_EVENT_ONESHOT);
}

static int on_go_on(sd_event_source *s, void *userdata) {
        Top *t = ASSERT_PTR(userdata);
        int r;

        /* The timer may have found the connection closed, or started the next table */
        if (!t->client || t->busy)
                return 0;

        r = top_get_wider(t);
        if (r < 0)
                return top_lost(t, r);
        return r > 0 ? 0 : top_finish_frame(t);
}

/* ---- start -------------------------------------------------------------------------------------------- */

static int top_lease(Top *t, size_t i, Replies *ret) {
        const char *unit;
        char *copy;
        int r;

        r = client_callbo(t->client, QOS_METHOD("Attach"), ret,
                          SD_JSON_BUILD_PAIR_STRING("unit", t->names.items[i]),
                          SD_JSON_BUILD_PAIR_BOOLEAN("lease", true),
                          SD_JSON_BUILD_PAIR_BOOLEAN("allowInteractiveAuthentication",
                                                     arg_ask_password && !t->trouble));
        if (r != 0)
                return r;

        unit = value_string(ret->items[0], "unit");
        if (unit) {
                copy = strdup(unit);
                if (!copy)
                        return -ENOMEM;
                free(t->names.items[i]);
                t->names.items[i] = copy;
        }

        t->leased[i] = true;
        return 0;
}

/* Handles replies in the event loop from now on. */
static int top_go_async(Top *t) {
        int r;

        (void) sd_varlink_bind_reply(t->client->link, NULL);
        r = sd_varlink_bind_reply(t->client->link, on_reply);
        if (r < 0)
                return r;
        (void) sd_varlink_set_userdata(t->client->link, t);
        return sd_varlink_attach_event(t->client->link, t->event, SD_EVENT_PRIORITY_NORMAL);
}

/* Resolves the units on the command line, and attaches those that are not attached yet. */
static int top_resolve(Top *t) {
        int r;

        t->leased = new0(bool, t->names.n);
        if (!t->leased)
                return log_out_of_memory();

        for (size_t i = 0; i < t->names.n; i++) {
                _cleanup_replies_ Replies replies = REPLIES_INIT, lease = REPLIES_INIT;
                const char *unit;

                r = client_call_morebo(t->client, QOS_METHOD("List"), &replies,
                                       SD_JSON_BUILD_PAIR_STRING("unit", t->names.items[i]));
                unit = r == 0 && replies.n == 1 && value_boolean(replies.items[0], "attached") ?
                        value_string(replies.items[0], "unit") : NULL;
                if (unit) {
                        char *copy = strdup(unit);

                        if (!copy)
                                return log_out_of_memory();
                        free(t->names.items[i]);
                        t->names.items[i] = copy;
                        continue;
                }
                if (r != 0 && !(r > 0 && streq(replies.error, QOS_METHOD("NotAttached"))))
                        return unit_fail(r, &replies, "read", t->names.items[i]);

                polkit_agent_open();
                (void) sd_varlink_set_relative_timeout(t->client->link, UINT64_MAX);
                r = top_lease(t, i, &lease);
                if (r != 0)
                        return unit_fail(r, &lease, "attach", t->names.items[i]);
        }

        return 0;
}

static int top_reconnect(Top *t) {
        int r;

        r = client_connect_quiet(&t->client);
        if (r < 0)
                return r;

        for (size_t i = 0; i < t->names.n; i++) {
                _cleanup_replies_ Replies replies = REPLIES_INIT;

                if (!t->leased[i])
                        continue;
                r = top_lease(t, i, &replies);
                if (r < 0)
                        return r;
        }

        return top_go_async(t);
}

/* ---- events ------------------------------------------------------------------------------------------ */

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        Top *t = ASSERT_PTR(userdata);
        uint64_t delay = arg_delay / NSEC_PER_USEC, now = now_usec(CLOCK_MONOTONIC);
        int r;

        /* At fixed times; missed ones, for instance while stopped, are skipped */
        r = sd_event_source_set_time(s, usec + delay > now ? usec + delay : now + delay);
        if (r >= 0)
                r = sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
        if (r < 0)
                return r;

        /* Not over ssh, as each update is a connection of its own, which takes longer and may need a
         * password */
        if (t->page && !arg_host)
                (void) page_run(t->page, t->rows.selected, terminal_style()->width);

        if (t->lost)
                return top_lost(t, -ECONNRESET);
        if (t->busy)
                return 0;

        if (!t->client)
                r = top_reconnect(t);
        if (r >= 0)
                r = top_send_request(t);
        return r < 0 ? top_lost(t, r) : 0;
}

static int on_signal(sd_event_source *s, const struct signalfd_siginfo *si, void *userdata) {
        Top *t = ASSERT_PTR(userdata);

        switch (si->ssi_signo) {

        case SIGWINCH:
                terminal_forget_size();
                return t->batch ? 0 : top_show(t);

        case SIGTSTP:
                /* Restore the terminal for the shell, and set it up again when continued */
                screen_leave();
                (void) raise(SIGSTOP);
                terminal_forget_size();
                if (t->batch)
                        return 0;
                (void) screen_enter();
                return top_show(t);

        default:
                return sd_event_exit(t->event, 0);
        }
}

static void change_delay(bool longer) {
        uint64_t step = arg_delay < NSEC_PER_SEC || (!longer && arg_delay == NSEC_PER_SEC) ?
                                250 * NSEC_PER_MSEC :
                                NSEC_PER_SEC;

        if (longer)
                arg_delay += step;
        else
                arg_delay = arg_delay > step + DELAY_KEYS_MIN ? arg_delay - step : DELAY_KEYS_MIN;
}

static int on_page(void *userdata) {
        Top *t = ASSERT_PTR(userdata);

        return top_show(t);
}

static int top_open_page(Top *t) {
        t->page = page_new(t->event, on_page, t);
        return t->page ? page_run(t->page, t->rows.selected, terminal_style()->width) : -ENOMEM;
}

static int top_handle_page_key(Top *t, int key) {
        switch (key) {

        case 'q':
        case KEY_ESCAPE:
        case '\r':
        case '\n':
                t->page = page_free(t->page);
                return 0;
        case ' ':
                return page_run(t->page, t->rows.selected, terminal_style()->width);
        default:
                (void) page_move(t->page, terminal_lines() - MIN(terminal_lines(), 2U), key);
                return 0;
        }
}

/* Returns 1 if the table is to be read at once. */
static int top_handle_key(Top *t, int key) {
        _cleanup_free_ const char **units = NULL;
        size_t n;

        if (t->page)
                return top_handle_page_key(t, key);
        if (top_rows_type(&t->rows, key))
                return 0;

        switch (key) {

        case 'q':
                return sd_event_exit(t->event, 0);
        case 'r':
                t->reverse = !t->reverse;
                return 0;
        case 'h':
        case '?':
                t->help = !t->help;
                return 0;
        case '+':
        case '-':
                change_delay(key == '+');
                return 1;
        case ' ':
                return 1;
        case '/':
                t->rows.typing = true;
                return 0;
        case KEY_ESCAPE:
                t->rows.filter[0] = 0;
                top_rows_select_none(&t->rows);
                return 0;
        case '\r':
        case '\n':
                return t->rows.selected ? top_open_page(t) : 0;
        default:
                for (size_t i = 0; i < ELEMENTSOF(orders); i++)
                        if (orders[i].key == key)
                                t->sort = orders[i].column;
        }

        units = top_get_units(t, &n);
        if (!units)
                return -ENOMEM;
        return MIN(top_rows_move(&t->rows, units, n, top_get_height(t), key), 0);
}

static int on_key(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        Top *t = ASSERT_PTR(userdata);
        bool now = false;
        char keys[64];
        ssize_t n;

        n = read(fd, keys, sizeof(keys));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        /* Terminal closed */
        if (n <= 0)
                return sd_event_exit(t->event, 0);

        for (size_t i = 0, l; i < (size_t) n; i += l) {
                int r = top_handle_key(t, screen_decode_key(keys + i, (size_t) n - i, &l));

                if (r < 0)
                        return r;
                now = now || r > 0;
        }

        if (now) {
                int r = sd_event_source_set_time(t->timer, now_usec(CLOCK_MONOTONIC));

                if (r < 0)
                        return r;
        }
        return top_show(t);
}

static int top_set_up_events(Top *t) {
        static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP };
        int r = 0;

        for (size_t i = 0; i < ELEMENTSOF(signals) && r >= 0; i++)
                r = sd_event_add_signal(t->event, NULL, signals[i] | SD_EVENT_SIGNAL_PROCMASK, on_signal, t);
        if (r >= 0 && !t->batch && isatty(STDIN_FILENO) > 0)
                r = sd_event_add_io(t->event, NULL, STDIN_FILENO, EPOLLIN, on_key, t);
        if (r >= 0)
                r = sd_event_add_time(t->event, &t->timer, CLOCK_MONOTONIC, now_usec(CLOCK_MONOTONIC),
                                      USEC_PER_MSEC, on_timer, t);
        if (r >= 0)
                r = sd_event_add_defer(t->event, &t->go_on, on_go_on, t);
        if (r >= 0)
                r = sd_event_source_set_enabled(t->go_on, SD_EVENT_OFF);
        return r;
}

int verb_top(int argc, char **argv) {
        _cleanup_(top_done) Top t = { .sort = UNIT_COLUMN_RATE };
        int r;

        t.batch = arg_batch || arg_json != JSON_OFF || !screen_is_possible();
        /* A single table if standard output is not a terminal, as with systemd-cgtop */
        if (!arg_batch && arg_iterations == 0 && !terminal_is_tty())
                arg_iterations = 1;

        r = sd_event_new(&t.event);
        if (r < 0)
                return log_failure(r, "Failed to allocate event loop: %m");

        r = client_connect(&t.client);
        if (r < 0)
                return r;
        r = names_expand_attached(t.client, argc, argv, &t.names);
        if (r != STATUS_OK)
                return r;
        r = top_resolve(&t);
        if (r != STATUS_OK)
                return r;
        /* Detect a broken connection earlier than by the default timeout of 45 s */
        (void) sd_varlink_set_relative_timeout(t.client->link, 10 * USEC_PER_SEC);

        r = top_go_async(&t);
        if (r >= 0)
                r = top_set_up_events(&t);
        if (r >= 0 && !t.batch)
                r = screen_enter();
        if (r >= 0)
                r = sd_event_loop(t.event);
        if (r < 0) {
                screen_leave();
                return log_failure(r, "Failed to run event loop: %m");
        }

        return t.status;
}

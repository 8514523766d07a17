/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>

#include "format.h"
#include "progress.h"
#include "qosctl.h"
#include "terminal.h"
#include "value.h"

/* Interval of updates. The rate is one of whole seconds. */
#define DRAW_NSEC NSEC_PER_SEC

/* Erases the line of the cursor. */
#define ERASE "\r\x1b[2K"

static struct {
        bool under_way, visible, interruptible;
        char *what;
        uint64_t begin, drawn;          /* CLOCK_MONOTONIC ns; drawn is 0 before the first update */
        uint64_t duration;              /* ns; 0: unknown */
        double rate;
        struct sigaction before;        /* previous action of SIGINT */
} progress;

static volatile sig_atomic_t interrupted, to_erase;

/* The second SIGINT ends the program, as the first one does if progress is not interruptible. */
static void on_interrupt(int sig) {
        if (progress.interruptible && !interrupted) {
                interrupted = 1;
                return;
        }
        if (to_erase)
                (void) !write(STDERR_FILENO, ERASE, strlen(ERASE));
        (void) signal(sig, SIG_DFL);
        (void) raise(sig);
}

static bool is_possible(void) {
        const char *term = getenv("TERM");

        return arg_json == JSON_OFF && isatty(STDERR_FILENO) > 0 && isatty(STDOUT_FILENO) > 0 &&
                !isempty(term) && !streq(term, "dumb");
}

void progress_begin(uint64_t duration, bool interruptible, const char *format, ...) {
        struct sigaction action = { .sa_handler = on_interrupt };
        va_list ap;

        assert(!progress.under_way);

        progress.under_way = true;
        progress.visible = is_possible();
        progress.begin = now_nsec(CLOCK_MONOTONIC);
        progress.drawn = 0;
        progress.duration = duration;
        progress.rate = NAN;
        progress.interruptible = interruptible;
        interrupted = 0;

        va_start(ap, format);
        if (vasprintf(&progress.what, format, ap) < 0)
                progress.what = NULL;
        va_end(ap);

        (void) sigaction(SIGINT, NULL, &progress.before);
        if (progress.before.sa_handler != SIG_IGN)
                (void) sigaction(SIGINT, &action, NULL);
        client_set_wait_handler(progress_get_timeout, progress_draw);
        if (duration > 0)
                progress_draw();
}

uint64_t progress_get_timeout(void) {
        return progress.under_way && progress.visible ? DRAW_NSEC / NSEC_PER_USEC : UINT64_MAX;
}

static unsigned columns(void) {
        struct winsize ws = {};

        (void) ioctl(STDERR_FILENO, TIOCGWINSZ, &ws);
        return ws.ws_col ?: 80;
}

void progress_draw(void) {
        _cleanup_free_ char *clean = NULL, *what = NULL;
        char figures[2 * FORMAT_MAX + 32], rate[FORMAT_MAX], buf[FORMAT_MAX];
        const Style *style = terminal_style();
        uint64_t passed, now = now_nsec(CLOCK_MONOTONIC);
        size_t width;

        if (!progress.under_way || !progress.visible || now < progress.drawn + DRAW_NSEC / 2)
                return;
        passed = now - progress.begin;
        if (progress.duration == 0 && passed < DRAW_NSEC)
                return;
        progress.drawn = now;

        if (progress.duration > 0) {
                uint64_t left = progress.duration - MIN(passed, progress.duration);

                /* In whole seconds, rounded up */
                left = (left + NSEC_PER_SEC - 1) / NSEC_PER_SEC * NSEC_PER_SEC;
                if (left > 0)
                        (void) snprintf(figures, sizeof(figures), ": %s left", format_span(buf, left));
                else
                        (void) snprintf(figures, sizeof(figures), ": waiting for the result");
        } else
                (void) snprintf(figures, sizeof(figures), ": %s",
                                format_span(buf, passed / NSEC_PER_SEC * NSEC_PER_SEC));

        /* Leave the last column empty, as a full line would wrap and could not be erased. If necessary, the
         * description is shortened rather than the figures */
        width = columns() - 1;
        clean = text_clean(strempty(progress.what), style->utf8);
        if (!isnan(progress.rate)) {
                size_t n = strlen(figures);
                bool fits = text_width(strempty(clean)) + n + strlen(", 999M requests/s") <= width;

                (void) format_rate(rate, progress.rate);
                (void) snprintf(figures + n, sizeof(figures) - n, ", %.*s%s/s", (int) strcspn(rate, "/"),
                                rate, fits ? " requests" : "");
        }
        what = clean ? text_ellipsize(clean, width - MIN(width, strlen(figures)), style->utf8) : NULL;
        (void) fflush(stdout);
        to_erase = 1;
        (void) fprintf(stderr, ERASE "%s%s%.*s%s", color_on(style, COLOR_GREY), strempty(what),
                       (int) MIN(width, strlen(figures)), figures, color_off(style));
        (void) fflush(stderr);
}

void progress_end(void) {
        if (!progress.under_way)
                return;

        if (to_erase)
                (void) fputs(ERASE, stderr);
        to_erase = 0;
        client_set_wait_handler(NULL, NULL);
        (void) sigaction(SIGINT, &progress.before, NULL);
        free(progress.what);
        progress.what = NULL;
        progress.under_way = false;
}

/* Returns the rate over the whole seconds that have passed, at most 10. NaN: unknown. */
static double rate_get(Client *c, const char *unit, uint64_t passed) {
        _cleanup_replies_ Replies reply = REPLIES_INIT;
        uint64_t seconds = MIN(passed / NSEC_PER_SEC, UINT64_C(10));
        double rate;

        if (seconds == 0)
                return NAN;
        if (client_callbo(c, QOS_METHOD("Get"), &reply,
                          SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_UNSIGNED("window", seconds * NSEC_PER_SEC)) != 0)
                return NAN;
        return value_real(reply.items[0], "requests.server.rate", &rate) ? rate : NAN;
}

void progress_update(Client *c, const char *unit) {
        progress.rate = rate_get(c, unit, now_nsec(CLOCK_MONOTONIC) - progress.begin);
        progress_draw();
}

uint64_t progress_sleep(Client *c, const char *unit) {
        const uint64_t end = progress.begin + progress.duration;
        sigset_t interrupt, before;
        uint64_t now;

        (void) sigemptyset(&interrupt);
        (void) sigaddset(&interrupt, SIGINT);
        while (!interrupted && (now = now_nsec(CLOCK_MONOTONIC)) < end) {
                uint64_t left = progress.visible ? MIN(end - now, DRAW_NSEC) : end - now;
                struct timespec ts = { .tv_sec = (time_t) (left / NSEC_PER_SEC),
                                       .tv_nsec = (long) (left % NSEC_PER_SEC) };

                /* SIGINT is unblocked atomically by ppoll(), so that none is missed between the check and
                 * the sleep */
                (void) sigprocmask(SIG_BLOCK, &interrupt, &before);
                if (!interrupted)
                        (void) ppoll(NULL, 0, &ts, &before);
                (void) sigprocmask(SIG_SETMASK, &before, NULL);
                if (!interrupted && progress.visible && now_nsec(CLOCK_MONOTONIC) < end)
                        progress_update(c, unit);
        }
        return interrupted ? now_nsec(CLOCK_MONOTONIC) - progress.begin : progress.duration;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <langinfo.h>
#include <stdarg.h>
#include <strings.h>
#include <sys/ioctl.h>

#include "format.h"
#include "terminal.h"

static unsigned cached_columns, cached_lines;

int parse_boolean(const char *s) {
        if (!s)
                return -ENXIO;
        if (streq(s, "1") || strcasecmp(s, "yes") == 0 || strcasecmp(s, "y") == 0 ||
            strcasecmp(s, "true") == 0 || strcasecmp(s, "t") == 0 || strcasecmp(s, "on") == 0)
                return true;
        if (streq(s, "0") || strcasecmp(s, "no") == 0 || strcasecmp(s, "n") == 0 ||
            strcasecmp(s, "false") == 0 || strcasecmp(s, "f") == 0 || strcasecmp(s, "off") == 0)
                return false;
        return -EINVAL;
}

bool terminal_is_tty(void) {
        static int cached = -1;

        /* Cached, as standard output may be the pipe of a pager later */
        if (cached < 0)
                cached = isatty(STDOUT_FILENO) > 0;
        return cached;
}

static unsigned size_from_environment(const char *name) {
        const char *e = getenv(name);
        unsigned long n;
        char *end;

        if (isempty(e))
                return 0;
        n = strtoul(e, &end, 10);
        return *end || n < 1 || n > 65535 ? 0 : (unsigned) n;
}

static void terminal_get_size(void) {
        struct winsize ws = {};

        cached_columns = size_from_environment("COLUMNS");
        cached_lines = size_from_environment("LINES");
        if (!terminal_is_tty())
                return;

        (void) ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws);
        cached_columns = cached_columns ?: ws.ws_col ?: 80;
        cached_lines = cached_lines ?: ws.ws_row ?: 24;
}

void terminal_forget_size(void) {
        terminal_get_size();
}

unsigned terminal_lines(void) {
        if (cached_lines == 0)
                terminal_get_size();
        return cached_lines;
}

static bool want_colors(void) {
        const char *e;

        /* As in systemd, the value may be the name of a palette */
        e = getenv("SYSTEMD_COLORS");
        if (e) {
                int r = parse_boolean(e);

                if (r >= 0)
                        return r;
                if (streq(e, "16") || streq(e, "256") || streq(e, "24bit"))
                        return true;
        }
        if (!isempty(getenv("NO_COLOR")))
                return false;

        e = getenv("TERM");
        return terminal_is_tty() && !isempty(e) && !streq(e, "dumb");
}

static bool want_utf8(void) {
        int r = parse_boolean(getenv("SYSTEMD_UTF8"));

        return r >= 0 ? r > 0 : streq(nl_langinfo(CODESET), "UTF-8");
}

const Style* terminal_style(void) {
        static Style style;
        static bool known;

        if (!known) {
                style.utf8 = want_utf8();
                style.colors = want_colors();
                terminal_get_size();
                known = true;
        }

        style.width = cached_columns;
        return &style;
}

const char* color_on(const Style *style, Color color) {
        static const char *const sequences[_COLOR_MAX] = {
                [COLOR_NONE]           = "",
                [COLOR_BOLD]           = "\x1b[0;1;39m",
                [COLOR_GREY]           = "\x1b[0;90m",
                [COLOR_GREEN]          = "\x1b[0;1;32m",
                [COLOR_YELLOW]         = "\x1b[0;1;33m",
                [COLOR_RED]            = "\x1b[0;1;31m",
                [COLOR_UNDERLINE]      = "\x1b[0;4m",
                [COLOR_UNDERLINE_BOLD] = "\x1b[0;1;4m",
        };

        return style->colors ? sequences[color] : "";
}

const char* color_off(const Style *style) {
        return style->colors ? "\x1b[0m" : "";
}

static bool word_is_cut(const char *text, size_t n) {
        return text[n] && text[n] != ' ';
}

static bool text_fits(const char *text, size_t width) {
        while (*text) {
                size_t n = text_wrap(text, width);

                if (word_is_cut(text, n))
                        return false;
                text += n;
                text += strspn(text, " ");
        }
        return true;
}

/* Indentation of lines below a label that leaves no space beside it. */
#define INDENT_SHORT 4U

/* Returns the length of the color sequence at s; 0: none. */
static size_t color_length(const char *s) {
        return *s == '\x1b' ? strcspn(s, "m") + 1 : 0;
}

/* Returns the color sequence that is in effect after n bytes of text. color: the one before them. */
static const char* color_behind(const char *color, const char *text, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (text[i] == '\x1b')
                        color = text + i;
        return color;
}

void print_colored(const char *label, const char *text) {
        const Style *style = terminal_style();
        size_t width = style->width > 0 ? style->width : SIZE_MAX, behind = text_width(label),
               indent = behind;
        const char *color = "";

        if (indent > width / 2 || !text_fits(text, width - indent))
                indent = text_fits(text, width - MIN(width, INDENT_SHORT)) ? INDENT_SHORT : 0;

        for (bool first = true; *text; first = false) {
                size_t room = width - MIN(width, first ? behind : indent), n = text_wrap(text, room);

                /* The text begins below the label */
                if (first && *label && (room == 0 || word_is_cut(text, n))) {
                        (void) printf("%.*s\n", (int) (strlen(label) - (endswith(label, " ") ? 1 : 0)),
                                      label);
                        continue;
                }
                (void) printf("%*s%s%.*s%.*s", first ? 0 : (int) indent, "", first ? label : "",
                              (int) color_length(color), color, (int) n, text);
                color = color_behind(color, text, n);
                (void) printf("%s\n", color_length(color) > 0 && !startswith(color, color_off(style)) ?
                                              color_off(style) :
                                              "");
                text += n;
                text += strspn(text, " ");
        }
}

void print_wrapped(const char *label, const char *words, const char *on, const char *off) {
        _cleanup_free_ char *clean = text_clean(words, terminal_style()->utf8), *text = NULL;

        if (*strempty(clean) && asprintf(&text, "%s%s%s", on, clean, off) < 0)
                text = NULL;
        print_colored(label, strempty(text));
}

int log_failure(int error, const char *format, ...) {
        _cleanup_free_ char *message = NULL, *clean = NULL;
        va_list ap;
        int r;

        errno = abs(error); /* for %m */
        va_start(ap, format);
        r = vasprintf(&message, format, ap);
        va_end(ap);
        if (r < 0) {
                message = NULL;
                return -abs(error);
        }

        clean = text_clean(message, terminal_style()->utf8);
        /* Keep the order of messages and output */
        (void) fflush(stdout);
        if (clean)
                (void) fprintf(stderr, "%s\n", clean);
        return -abs(error);
}

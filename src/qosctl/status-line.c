/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Lines with a key, which are printed when they are complete, for wrapping. */

#include <stdarg.h>

#include "format.h"
#include "qosctl.h"
#include "status-internal.h"

/* The current line, without newline; NULL: empty, or out of memory. */
static char *line;

_printf_(1, 0) static void line_append(const char *format, va_list ap) {
        _cleanup_free_ char *more = NULL;
        char *whole;

        if (vasprintf(&more, format, ap) < 0) {
                more = NULL;
                return;
        }
        if (asprintf(&whole, "%s%s", strempty(line), more) < 0)
                return;
        free(line);
        line = whole;
}

void line_add(const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        line_append(format, ap);
        va_end(ap);
}

void line_end(void) {
        const char *text = strempty(line);
        size_t n = strspn(text, " ");
        char key[2 * KEY_WIDTH] = "";

        if (n <= KEY_WIDTH)
                n = strlen(text) > KEY_WIDTH + 2 && startswith(text + KEY_WIDTH, ": ") ? KEY_WIDTH + 2 : 0;
        if (n > 0 && n < sizeof(key)) {
                (void) snprintf(key, n + 1, "%s", text);
                print_colored(key, text + n);
        } else if (*text)
                print_colored("", text);
        else
                (void) printf("\n");
        free(line);
        line = NULL;
}

void print_key(const char *key) {
        line_add("%*s%s", KEY_WIDTH, key, *key ? ": " : "  ");
}

void print_line(const char *key, const char *format, ...) {
        va_list ap;

        print_key(key);
        va_start(ap, format);
        line_append(format, ap);
        va_end(ap);
        line_end();
}

bool terminal_is_narrow(void) {
        const Style *style = terminal_style();

        return style->width > 0 && style->width < 60;
}

unsigned table_indent(void) {
        return terminal_is_narrow() ? 4 : KEY_WIDTH + 2;
}

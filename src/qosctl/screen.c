/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <termios.h>

#include "screen.h"
#include "terminal.h"

static struct termios saved;
static bool keys_changed, entered;

bool screen_is_possible(void) {
        const char *term = getenv("TERM");

        return terminal_is_tty() && !isempty(term) && !streq(term, "dumb");
}

int screen_enter(void) {
        struct termios t;

        if (entered)
                return 0;

        /* Without a terminal as standard input there are no keys */
        if (tcgetattr(STDIN_FILENO, &saved) >= 0) {
                t = saved;
                t.c_lflag &= ~(tcflag_t) (ICANON | ECHO);
                t.c_cc[VMIN] = 1;
                t.c_cc[VTIME] = 0;
                if (tcsetattr(STDIN_FILENO, TCSANOW, &t) < 0)
                        return -errno;
                keys_changed = true;
        }

        /* Alternate screen, no cursor, no line wrap */
        (void) fputs("\x1b[?1049h\x1b[?25l\x1b[?7l", stdout);
        entered = true;
        return fflush(stdout) < 0 ? -errno : 0;
}

void screen_leave(void) {
        if (!entered)
                return;

        (void) fputs("\x1b[?7h\x1b[?25h\x1b[?1049l", stdout);
        (void) fflush(stdout);
        if (keys_changed)
                (void) tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
        keys_changed = entered = false;
}

int screen_draw(const char *text) {
        unsigned lines = terminal_lines(), i;

        (void) fputs("\x1b[H", stdout);
        for (i = 0; i < lines && *text; i++) {
                size_t n = strcspn(text, "\n");

                /* Erase before writing: erasing after a full line would erase its last column */
                (void) printf("%s\x1b[2K%.*s", i > 0 ? "\r\n" : "", (int) n, text);
                text += n;
                text += *text == '\n';
        }
        /* A newline on the last line would scroll */
        if (i < lines)
                (void) fputs("\r\n\x1b[J", stdout);

        return fflush(stdout) < 0 ? -errno : 0;
}

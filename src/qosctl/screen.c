/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <termios.h>

#include "screen.h"
#include "terminal.h"

static struct termios saved;
static bool keys_changed, entered;

int screen_decode_key(const char *bytes, size_t n, size_t *ret_length) {
        /* As sent by terminals like xterm, and by the console of Linux */
        static const struct {
                const char *sequence;
                int key;
        } table[] = {
                { "[A",  KEY_UP        }, { "OA",  KEY_UP   },
                { "[B",  KEY_DOWN      }, { "OB",  KEY_DOWN },
                { "[5~", KEY_PAGE_UP   },
                { "[6~", KEY_PAGE_DOWN },
                { "[H",  KEY_HOME      }, { "OH",  KEY_HOME }, { "[1~", KEY_HOME },
                { "[F",  KEY_END       }, { "OF",  KEY_END  }, { "[4~", KEY_END  },
        };
        size_t l = 2;

        /* A sequence ends with a letter or "~". The key ESC is sent alone */
        if (bytes[0] != '\x1b' || n < 2 || (bytes[1] != '[' && bytes[1] != 'O')) {
                *ret_length = 1;
                return bytes[0] == '\b' ? KEY_BACKSPACE : (uint8_t) bytes[0];
        }
        while (l < n && !(bytes[l] >= '@' && bytes[l] <= '~'))
                l++;
        l = MIN(l + 1, n);
        *ret_length = l;
        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                if (l - 1 == strlen(table[i].sequence) && memcmp(bytes + 1, table[i].sequence, l - 1) == 0)
                        return table[i].key;
        return KEY_NONE;
}

bool screen_is_possible(void) {
        const char *term = getenv("TERM");

        return terminal_is_tty() && !isempty(term) && !streq(term, "dumb");
}

int screen_enter(void) {
        struct termios t;

        if (entered)
                return 0;

        /* If standard input is not a terminal, keys are not read */
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
        /* A newline in the last line would scroll */
        if (i < lines)
                (void) fputs("\r\n\x1b[J", stdout);

        return fflush(stdout) < 0 ? -errno : 0;
}

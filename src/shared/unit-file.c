/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <sys/stat.h>

#include "unit-file.h"

const char *const unit_file_directories[] = {
        "/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient",
                "/run/systemd/generator.early",
        "/etc/systemd/system", "/etc/systemd/system.attached", "/run/systemd/system",
        "/run/systemd/system.attached",
        "/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
        "/run/systemd/generator.late",
        NULL,
};

/* Limit of the size of a file. Unit files have some hundred bytes. */
#define FILE_SIZE_MAX (1024 * 1024)

/* Limit of the length of names of sections. */
#define SECTION_MAX 32U

int unit_file_read(int at, const char *path, char **ret, size_t *ret_size) {
        _cleanup_free_ char *text = NULL;
        _cleanup_close_ int fd = -EBADF;
        size_t size = 0;
        struct stat st;

        /* Do not block on FIFOs */
        fd = openat(at, path, O_RDONLY|O_NONBLOCK|O_NOCTTY|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_size > FILE_SIZE_MAX)
                return -EINVAL;

        text = malloc(st.st_size + 1);
        if (!text)
                return -ENOMEM;
        while (size < (size_t) st.st_size) {
                ssize_t n = read(fd, text + size, st.st_size - size);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                size += n;
        }

        *ret = TAKE_PTR(text);
        *ret_size = size;
        return 0;
}

static char* strip(char *s) {
        s += strspn(s, " \t");
        for (size_t l = strlen(s); l > 0 && strchr(" \t\r", s[l - 1]); l--)
                s[l - 1] = 0;
        return s;
}

char* unit_file_split(char **line) {
        char *equals = strchr(*line, '=');

        if (!equals)
                return NULL;
        *equals = 0;
        *line = strip(*line);
        return strip(equals + 1);
}

/* A line with its continuation lines. */
typedef struct Line {
        char text[UNIT_FILE_LINE_MAX + 2];
        size_t used;
        unsigned number;        /* of the first line */
        bool overlong;
        char section[SECTION_MAX + 1];
} Line;

static int line_end(Line *l, unit_file_line_t f, void *userdata) {
        char *s;

        l->text[l->used] = 0;
        s = strip(l->text);
        if (*s == '[')
                (void) snprintf(l->section, sizeof(l->section), "%s", strlen(s) > SECTION_MAX ? "?" : s);
        else if (l->overlong)
                return f(l->section, NULL, l->number, userdata);
        else if (*s)
                return f(l->section, s, l->number, userdata);
        return 0;
}

int unit_file_foreach_line(const char *text, size_t size, unit_file_line_t f, void *userdata) {
        bool continued = false;
        Line line = {};
        unsigned n = 0;
        int r;

        for (size_t i = 0; i < size; ) {
                const char *end = memchr(text + i, '\n', size - i);
                size_t l = end ? (size_t) (end - text) - i : size - i, blank = 0;
                const char *s = text + i;

                i += l + 1;
                n++;
                while (l > 0 && s[l - 1] == '\r')
                        l--;
                while (blank < l && (s[blank] == ' ' || s[blank] == '\t'))
                        blank++;
                /* As in systemd, comments may be within a continued line */
                if (blank < l && (s[blank] == '#' || s[blank] == ';'))
                        continue;

                if (!continued) {
                        line.number = n;
                        line.used = 0;
                        line.overlong = false;
                }
                continued = l > 0 && s[l - 1] == '\\';
                if (continued)
                        l--;
                if (line.used + l + 2 > sizeof(line.text)) {
                        line.overlong = true;
                        l = 0;
                }
                /* Control characters, including NUL, must not get into messages */
                for (size_t k = 0; k < l; k++)
                        line.text[line.used++] = (unsigned char) s[k] < ' ' || s[k] == 0x7f ? ' ' : s[k];
                if (continued) {
                        if (!line.overlong)
                                line.text[line.used++] = ' ';
                        continue;
                }
                r = line_end(&line, f, userdata);
                if (r < 0)
                        return r;
        }
        return continued ? line_end(&line, f, userdata) : 0;
}

bool text_has_xqos_section(const char *text, size_t size) {
        return memmem(text, size, UNIT_FILE_SECTION, strlen(UNIT_FILE_SECTION));
}

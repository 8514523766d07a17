/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "mountinfo.h"
#include "parse.h"
#include "util.h"

int mounts_file_path(const char *names, size_t size, char **ret) {
        char *path, *p;

        if (size == 0 || names[size - 1] != 0)
                return -EINVAL;
        path = p = new0(char, size + 1);
        if (!path)
                return -ENOMEM;
        for (size_t end = size; end > 0; ) {
                size_t begin = end - 1;

                while (begin > 0 && names[begin - 1] != 0)
                        begin--;
                if (names[begin] == 0) { /* not a valid file name */
                        free(path);
                        return -EINVAL;
                }
                *p++ = '/';
                p = stpcpy(p, names + begin);
                end = begin;
        }
        *ret = path;
        return 0;
}

/* Reads the next field of a line, and unescapes blanks, tabs, newlines and backslashes. */
static const char* field_next(const char *line, char *ret, size_t size) {
        size_t n = 0;

        while (*line == ' ')
                line++;
        while (*line && *line != ' ' && *line != '\n') {
                unsigned c = (unsigned char) *line++;

                if (c == '\\' && line[0] >= '0' && line[0] <= '3' && line[1] >= '0' && line[1] <= '7' &&
                    line[2] >= '0' && line[2] <= '7') {
                        c = (unsigned) (line[0] - '0') << 6 | (unsigned) (line[1] - '0') << 3 |
                            (unsigned) (line[2] - '0');
                        line += 3;
                }
                if (n + 1 >= size)
                        return NULL;
                ret[n++] = (char) c;
        }
        ret[n] = 0;
        return n > 0 ? line : NULL;
}

int mounts_line_find(const char *line, uint32_t device, const char *file_path, char **ret) {
        _cleanup_free_ char *root = NULL, *point = NULL;
        size_t size = strlen(line) + 1, n;
        unsigned major, minor;

        root = new0(char, size);
        point = new0(char, size);
        if (!root || !point)
                return -ENOMEM;
        if (sscanf(line, "%*u %*u %u:%u ", &major, &minor) != 2 || device != (major << 20 | minor))
                return -ENOENT;
        for (int i = 0; i < 3 && line; i++)
                line = field_next(line, root, size);
        line = line ? field_next(line, root, size) : NULL;
        line = line ? field_next(line, point, size) : NULL;
        if (!line || root[0] != '/' || point[0] != '/')
                return -ENOENT;

        n = strlen(root);
        if (n == 1)
                n = 0; /* the root of the file system is mounted */
        if (strncmp(file_path, root, n) != 0 || (file_path[n] != '/' && file_path[n] != 0))
                return -ENOENT;
        if (asprintf(ret, "%s%s", streq(point, "/") ? "" : point, file_path + n) < 0)
                return -ENOMEM;
        return 0;
}

/* Whether a terminal may interpret the character, of one byte or two. */
static size_t control_length(const unsigned char *s) {
        return s[0] < 0x20 || s[0] == 0x7f ? 1 : s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0 ? 2 : 0;
}

/* A field of a line as text. */
static char* field_escape(const char *line, int begin, int end) {
        char *ret, *to;

        ret = to = new0(char, (size_t) (end - begin) * 4 + 1);
        if (!ret)
                return NULL;
        for (int i = begin; i < end;) {
                size_t n = control_length((const unsigned char*) line + i);

                for (size_t k = 0; k < n; k++)
                        to += sprintf(to, "\\%03o", (unsigned char) line[i + (int) k]);
                if (n == 0)
                        *to++ = line[i];
                i += n > 0 ? (int) n : 1;
        }
        utf8_sanitize(ret);
        return ret;
}

void mount_line_done(MountLine *m) {
        free(m->point);
        free(m->remote);
        *m = (MountLine) {};
}

/* "server:/path" as of NFS and Ceph, "//server/share" as of SMB. Devices are paths, other names have no such
 * parts. */
static bool source_is_remote(const char *source, size_t n) {
        return n > 2 && (source[0] == '/' ? source[1] == '/' : !!memmem(source, n, ":/", 2));
}

int mounts_line_parse(const char *line, MountLine *ret) {
        _cleanup_mount_line_ MountLine m = {};
        unsigned major, minor;
        int root = 0, point = 0, end = 0, source = 0, source_end = 0;
        const char *rest;

        if (sscanf(line, "%*u %*u %u:%u %n%*s %n%*s%n", &major, &minor, &root, &point, &end) != 2 ||
            end == 0 || line[root] != '/' || line[point] != '/')
                return -EINVAL;
        m.device = major << 20 | minor;
        m.whole = point - root == 2;
        m.point = field_escape(line, point, end);
        if (!m.point)
                return -ENOMEM;

        /* Blanks within fields are escaped */
        rest = strstr(line + end, " - ");
        if (rest && sscanf(rest, " - %*s %n%*s%n", &source, &source_end) >= 0 && source_end > 0 &&
            source_is_remote(rest + source, (size_t) (source_end - source))) {
                m.remote = field_escape(rest, source, source_end);
                if (!m.remote)
                        return -ENOMEM;
        }
        *ret = TAKE_GENERIC(m, MountLine, (MountLine) {});
        return 0;
}

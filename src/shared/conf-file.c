/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "conf-file.h"
#include "log.h"
#include "parse.h"

/* Limit of the length of a line. */
#define LINE_MAX_BYTES 4096U

/* Limit over all directories. */
#define DROPINS_MAX 256U

static const char *const directories[] = { "/etc", "/run", "/usr/lib" }; /* in descending priority */

static char* strip(char *s) {
        s += strspn(s, " \t");
        for (size_t l = strlen(s); l > 0 && strchr(" \t\r", s[l - 1]); l--)
                s[l - 1] = 0;
        return s;
}

typedef struct Parser {
        const ConfFormat *format;
        void *data;                     /* of the caller */
        const char *path;
        enum {
                SECTION_NONE,           /* before the first section */
                SECTION_OURS,
                SECTION_OTHER,          /* unknown or invalid, already logged */
        } section;
} Parser;

static void parse_line(Parser *p, unsigned line, char *s) {
        const ConfFormat *format = p->format;
        char *equals;

        s = strip(s);
        if (*s == 0)
                return;

        if (*s == '[') {
                p->section = streq(s, format->section) ? SECTION_OURS : SECTION_OTHER;
                if (p->section == SECTION_OTHER && !startswith(s, "[X-"))
                        log_warning("%s:%u: unknown section '%s', expected '%s', ignoring it.", p->path,
                                    line, s, format->section);
                return;
        }
        if (p->section == SECTION_OTHER)
                return;
        equals = strchr(s, '=');
        if (!equals) {
                log_warning("%s:%u: expected 'Name=value', got '%s', ignoring.", p->path, line, s);
                return;
        }
        if (p->section == SECTION_NONE) {
                log_warning("%s:%u: '%s' is not in section '%s', ignoring.", p->path, line, s,
                            format->section);
                return;
        }

        *equals = 0;
        s = strip(s);
        for (size_t i = 0; i < format->n_settings; i++)
                if (streq(s, format->settings[i].name)) {
                        const ConfSetting *setting = &format->settings[i];
                        const char *value = strip(equals + 1), *expected;

                        if (*value == 0) {
                                memcpy((char*) p->data + setting->offset,
                                       (const char*) format->defaults + setting->offset, setting->size);
                                return;
                        }
                        expected = setting->set(p->data, value);
                        if (!expected && setting->path_offset > 0)
                                (void) snprintf((char*) p->data + setting->path_offset, CONF_PATH_MAX, "%s",
                                                p->path);
                        if (expected)
                                log_warning("%s:%u: %s= must be %s, got '%s', ignoring.", p->path, line, s,
                                            expected, value);
                        return;
                }

        log_warning("%s:%u: unknown setting '%s', ignoring.", p->path, line, s);
}

static int parse_file(const char *path, const ConfFormat *format, void *data) {
        _cleanup_fclose_ FILE *f = NULL;
        _cleanup_free_ char *buffer = NULL, *joined = NULL;
        size_t size = 0, used = 0;
        Parser p = { .format = format, .data = data, .path = path };
        unsigned line = 0, first = 0;
        ssize_t n;

        f = fopen(path, "re");
        if (!f) {
                if (errno != ENOENT)
                        (void) log_warning_errno(-errno, "Failed to read '%s', ignoring: %m", path);
                return 0;
        }
        joined = new0(char, LINE_MAX_BYTES + 1);
        if (!joined)
                return -ENOMEM;

        while ((n = getline(&buffer, &size, f)) >= 0) {
                bool more;

                line++;
                while (n > 0 && (buffer[n - 1] == '\n' || buffer[n - 1] == '\r'))
                        n--;
                buffer[n] = 0;
                if (used == 0)
                        first = line;

                if (!text_is_valid(buffer, n)) {
                        log_warning("%s:%u: not UTF-8 text, ignoring the line.", path, line);
                        used = 0;
                        continue;
                }

                /* As in systemd, comments may be within a continued line */
                if (strchr("#;", buffer[strspn(buffer, " \t")]) && buffer[strspn(buffer, " \t")] != 0)
                        continue;

                more = n > 0 && buffer[n - 1] == '\\';
                if (more)
                        buffer[--n] = 0;
                if (used + n + 2 > LINE_MAX_BYTES) {
                        log_warning("%s:%u: longer than %u bytes, ignoring the line.", path, first,
                                    LINE_MAX_BYTES);
                        used = 0;
                        continue;
                }
                if (used > 0)
                        joined[used++] = ' ';
                memcpy(joined + used, buffer, n + 1);
                used += n;
                if (more && used > 0)
                        continue;

                parse_line(&p, first, joined);
                used = 0;
        }
        if (ferror(f)) /* such as a directory */
                (void) log_warning_errno(-errno, "Failed to read '%s', ignoring: %m", path);
        if (used > 0)
                parse_line(&p, first, joined);
        return 0;
}

static int compare_names(const void *a, const void *b) {
        return strcmp(*(char *const*) a, *(char *const*) b);
}

int conf_file_load(const char *root, const ConfFormat *format, void *data) {
        char *names[DROPINS_MAX];
        size_t n_names = 0;
        char path[CONF_PATH_MAX];
        int r = 0;

        for (size_t i = 0; i < ELEMENTSOF(directories); i++) {
                (void) snprintf(path, sizeof(path), "%s%s/%s", root, directories[i], format->name);
                if (access(path, F_OK) >= 0) {
                        r = parse_file(path, format, data);
                        break;
                }
        }

        for (size_t i = 0; i < ELEMENTSOF(directories) && r >= 0; i++) {
                DIR *d;

                (void) snprintf(path, sizeof(path), "%s%s/%s.d", root, directories[i], format->name);
                d = opendir(path);
                if (!d)
                        continue;
                for (struct dirent *de; r >= 0 && (de = readdir(d)); ) {
                        bool known = false;

                        if (!endswith(de->d_name, ".conf") || de->d_name[0] == '.')
                                continue;
                        for (size_t k = 0; k < n_names; k++)
                                known = known || streq(names[k], de->d_name);
                        if (known)
                                continue;
                        if (n_names >= DROPINS_MAX) {
                                log_warning("More than %u drop-ins, ignoring '%s/%s'.", DROPINS_MAX, path,
                                            de->d_name);
                                continue;
                        }
                        names[n_names] = strdup(de->d_name);
                        if (!names[n_names])
                                r = -ENOMEM;
                        else
                                n_names++;
                }
                (void) closedir(d);
        }

        qsort(names, n_names, sizeof(names[0]), compare_names);
        for (size_t k = 0; k < n_names; k++) {
                for (size_t i = 0; i < ELEMENTSOF(directories) && r >= 0; i++) {
                        (void) snprintf(path, sizeof(path), "%s%s/%s.d/%s", root, directories[i],
                                        format->name, names[k]);
                        if (access(path, F_OK) >= 0) {
                                r = parse_file(path, format, data);
                                break;
                        }
                }
                free(names[k]);
        }

        return r;
}

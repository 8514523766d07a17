/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <arpa/inet.h>

#include "redact.h"

/* Replies are not nested deeper. */
#define DEPTH_MAX 32

void redaction_done(Redaction *r) {
        for (size_t i = 0; i < r->n; i++)
                free(r->names[i]);
        free(r->names);
        *r = (Redaction) {};
}

/* ---- placeholders ------------------------------------------------------------------------------------- */

/* Number of the placeholder, from 1 on; 0: it has none, unless add. */
static ssize_t find_name(Redaction *r, const char *name, size_t length, bool add) {
        _cleanup_free_ char *copy = NULL;
        char **names;

        for (size_t i = 0; i < r->n; i++)
                if (strlen(r->names[i]) == length && strncmp(r->names[i], name, length) == 0)
                        return (ssize_t) i + 1;
        if (!add)
                return 0;
        copy = strndup(name, length);
        names = copy ? reallocarray(r->names, r->n + 1, sizeof(char*)) : NULL;
        if (!names)
                return -ENOMEM;
        r->names = names;
        r->names[r->n++] = TAKE_PTR(copy);
        return (ssize_t) r->n;
}

/* Suffixes of units that may have processes, or wait for them. */
static bool is_unit(const char *s, size_t length, size_t *ret_stem) {
        static const char *const suffixes[] = {
                ".service", ".scope", ".slice", ".socket", ".mount", ".swap", ".timer", ".target", ".path",
        };

        for (size_t i = 0; i < ELEMENTSOF(suffixes); i++) {
                size_t l = strlen(suffixes[i]);

                if (length > l && strncmp(s + length - l, suffixes[i], l) == 0) {
                        *ret_stem = length - l;
                        return true;
                }
        }
        return false;
}

/* "127.0.0.1", "127.0.0.1:80", "[::1]:80", "::1", "*:80" */
static bool is_address(const char *s, size_t length) {
        char host[INET6_ADDRSTRLEN + 8], *end;
        struct in6_addr address;

        if (length < 2 || length >= sizeof(host))
                return false;
        memcpy(host, s, length);
        host[length] = 0;
        if (inet_pton(AF_INET, host, &address) > 0 || inet_pton(AF_INET6, host, &address) > 0)
                return true;
        end = strrchr(host, ':');
        if (!end || end == host || strspn(end + 1, "0123456789") != strlen(end + 1) || !end[1])
                return false;
        *end = 0;
        if (streq(host, "*"))
                return true;
        if (host[0] == '[' && end[-1] == ']') {
                end[-1] = 0;
                return inet_pton(AF_INET6, host + 1, &address) > 0;
        }
        return inet_pton(AF_INET, host, &address) > 0;
}

/* ---- text --------------------------------------------------------------------------------------------- */

/* What separates words of the texts of qosd, without characters of names. */
#define SEPARATORS " \t\n(),;'\"="

static size_t word_length(const char *s) {
        size_t l = strcspn(s, SEPARATORS);

        /* The end of a sentence, or of what introduces a list */
        while (l > 1 && strchr(".:!?", s[l - 1]))
                l--;
        return l;
}

/* Also a unit without its suffix, as commands have it. */
static bool is_kept(const Redaction *r, const char *word, size_t length) {
        for (const char *const *name = r->kept; name && *name; name++) {
                size_t l = strlen(*name), stem = l;

                (void) is_unit(*name, l, &stem);
                if ((length == l || length == stem) && strncmp(*name, word, length) == 0)
                        return true;
        }
        return false;
}

/* Number of the placeholder of a word; 0: it is no name. */
static ssize_t word_find(Redaction *r, const char *word, size_t length, bool quoted) {
        size_t stem;

        if (length == 0 || is_kept(r, word, length))
                return 0;
        if (is_unit(word, length, &stem))
                return find_name(r, word, stem, true);
        return find_name(r, word, length, quoted || is_address(word, length) ||
                                          (word[0] == '/' && length > 1));
}

/* Length of a name of several words that begins here: "lock in ext4_sync()", or the name of a process in
 * front of its number: "python3 (4756)". 0: there is none. */
static size_t phrase_length(const Redaction *r, const char *text) {
        size_t length = 0, word = strcspn(text, SEPARATORS), digits;

        for (size_t i = 0; i < r->n; i++)
                if (strchr(r->names[i], ' ') && startswith(text, r->names[i]))
                        length = MAX(length, strlen(r->names[i]));
        if (length > 0 || word == 0 || strncmp(text + word, " (", 2) != 0)
                return length;
        digits = strspn(text + word + 2, "0123456789");
        return digits > 0 && text[word + 2 + digits] == ')' ? word : 0;
}

/* Prints a word, or its placeholder. */
static int print_word(Redaction *r, FILE *f, const char *word, size_t length, bool quoted) {
        ssize_t n;

        n = word_find(r, word, length, quoted);
        if (n < 0)
                return (int) n;
        if (n > 0)
                (void) fprintf(f, "name-%zd", n);
        else
                (void) fwrite(word, 1, length, f);
        return 0;
}

/* Length of what is in front of the name that a metric has in brackets, "storage.mounts[/srv].reads". */
static size_t selector_begin(const char *word, size_t length, size_t *ret_name) {
        const char *begin = memchr(word, '[', length), *end = memrchr(word, ']', length);

        if (!begin || begin == word || !end || end < begin)
                return 0;
        *ret_name = (size_t) (end - begin) - 1;
        return (size_t) (begin - word) + 1;
}

int redact_text(Redaction *r, const char *text, char **ret) {
        _cleanup_free_ char *out = NULL;
        _cleanup_fclose_ FILE *f = NULL;
        size_t size = 0;
        int k = 0;

        f = open_memstream(&out, &size);
        if (!f)
                return -ENOMEM;
        for (const char *p = text; *p && k >= 0;) {
                const char *end = *p == '\'' ? strchr(p + 1, '\'') : NULL;
                size_t l = word_length(p), name, begin, phrase = end ? 0 : phrase_length(r, p);

                if (end) {
                        (void) fputc('\'', f);
                        k = print_word(r, f, p + 1, (size_t) (end - p) - 1, /* quoted= */ true);
                        (void) fputc('\'', f);
                        p = end + 1;
                } else if (phrase > 0) {
                        k = print_word(r, f, p, phrase, /* quoted= */ true);
                        p += phrase;
                } else if (l == 0)
                        (void) fputc(*p++, f);
                else if ((begin = selector_begin(p, l, &name)) > 0) {
                        (void) fwrite(p, 1, begin, f);
                        k = print_word(r, f, p + begin, name, /* quoted= */ true);
                        (void) fwrite(p + begin + name, 1, l - begin - name, f);
                        p += l;
                } else {
                        k = print_word(r, f, p, l, /* quoted= */ false);
                        p += l;
                }
        }
        if (fclose(TAKE_PTR(f)) != 0 && k >= 0)
                k = -ENOMEM;
        if (k >= 0)
                *ret = TAKE_PTR(out);
        return k;
}

/* ---- JSON --------------------------------------------------------------------------------------------- */

/* Fields whose values are names. */
static bool is_name_field(const char *field) {
        static const char *const fields[] = {
                "peer", "listen", "unit", "resource", "mount", "mountPoint", "device", "origin", "path",
                "controlGroup", "invocationId", "command", "process", "thread", "file", "host", "server",
        };

        for (size_t i = 0; i < ELEMENTSOF(fields); i++)
                if (streq_ptr(field, fields[i]))
                        return true;
        return false;
}

/* What the value of a field is: names of peers are in "name", as are those of metrics and thresholds. */
static const char* field_of(const char *object, const char *key) {
        return streq_ptr(object, "peers") && streq(key, "name") ? "peer" : key;
}

/* field: the one that has the value, or the array that the value is in; NULL: none */
static int redact(Redaction *r, sd_json_variant *v, const char *field, unsigned depth,
                  sd_json_variant **ret) {
        _cleanup_free_ char *text = NULL;
        int k;

        if (depth >= DEPTH_MAX)
                return -ELOOP;
        if (sd_json_variant_is_string(v)) {
                const char *s = sd_json_variant_string(v);
                size_t stem, l = strlen(s);
                ssize_t n;

                if (is_name_field(field) && l > 0 && !is_kept(r, s, l)) {
                        n = find_name(r, s, is_unit(s, l, &stem) ? stem : l, true);
                        if (n < 0)
                                return (int) n;
                        if (asprintf(&text, "name-%zd", n) < 0) {
                                text = NULL;
                                return -ENOMEM;
                        }
                } else {
                        k = redact_text(r, s, &text);
                        if (k < 0)
                                return k;
                }
                return sd_json_variant_new_string(ret, text);
        }
        if (sd_json_variant_is_array(v) || sd_json_variant_is_object(v)) {
                size_t n = sd_json_variant_elements(v);
                bool object = sd_json_variant_is_object(v);
                sd_json_variant **items;

                items = new0(sd_json_variant*, n);
                if (!items)
                        return -ENOMEM;
                k = 0;
                for (size_t i = 0; i < n && k >= 0; i++) {
                        sd_json_variant *e = sd_json_variant_by_index(v, i);

                        if (object && i % 2 == 0)
                                items[i] = sd_json_variant_ref(e);
                        else
                                k = redact(r, e,
                                           object ? field_of(field, sd_json_variant_string(items[i - 1])) :
                                                    field,
                                           depth + 1, &items[i]);
                }
                if (k >= 0)
                        k = object ? sd_json_variant_new_object(ret, items, n) :
                                     sd_json_variant_new_array(ret, items, n);
                for (size_t i = 0; i < n; i++)
                        (void) sd_json_variant_unref(items[i]);
                free(items);
                return k;
        }
        *ret = sd_json_variant_ref(v);
        return 0;
}

int redact_json(Redaction *r, sd_json_variant **v) {
        sd_json_variant *redacted = NULL;
        int k;

        k = redact(r, *v, NULL, 0, &redacted);
        if (k < 0)
                return k;
        (void) sd_json_variant_unref(*v);
        *v = redacted;
        return 0;
}

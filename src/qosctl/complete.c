/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "client.h"
#include "complete.h"
#include "hosts.h"
#include "qosctl.h"
#include "terminal.h"
#include "value.h"

/* State of the command line before the cursor. */
typedef struct Line {
        const Verb *verb;               /* NULL: none yet */
        const char *unit;               /* first argument of the verb; NULL: none yet */
        int n_arguments;                /* arguments of the verb */
        const Option *pending;          /* option that the word at the cursor is the value of; NULL: none */
        bool options_end;               /* "--" was given */
} Line;

/* Finds an option as on the command line: "-H", "--host" or "--host=web1". NULL: unknown. */
static const Option* option_find(const char *word) {
        for (size_t i = 0; i < option_number; i++) {
                const Option *o = &option_table[i];
                const char *name;
                size_t l;

                if (o->usage[0] == '-' && word[1] == o->usage[1] && word[1] != '-')
                        return o;
                name = option_long(o, &l);
                if (name && l == strcspn(word, "=") && strncmp(name, word, l) == 0)
                        return o;
        }
        return NULL;
}

/* Candidates are those of the hosts of --host=. */
static int take_value(const Option *o, const char *value) {
        return streq_ptr(o->values, ":hosts") ? hosts_parse(value) : 0;
}

static int read_words(const Verb *verbs, size_t n, int argc, char **argv, Line *ret) {
        Line line = {};
        int r;

        for (int i = 0; i < argc; i++) {
                if (line.pending) {
                        r = take_value(line.pending, argv[i]);
                        if (r < 0)
                                return r;
                        line.pending = NULL;
                } else if (!line.options_end && streq(argv[i], "--"))
                        line.options_end = true;
                else if (!line.options_end && argv[i][0] == '-' && argv[i][1]) {
                        const Option *o = option_find(argv[i]);
                        const char *value = strchr(argv[i], '=');

                        if (!o || !option_has_value(o))
                                continue;
                        /* The value may follow without a blank: "-Hweb1" */
                        if (!value && argv[i][1] != '-' && argv[i][2])
                                value = argv[i] + 1;
                        if (!value) {
                                line.pending = o;
                                continue;
                        }
                        r = take_value(o, value + 1);
                        if (r < 0)
                                return r;
                } else if (line.verb) {
                        if (line.n_arguments++ == 0)
                                line.unit = argv[i];
                } else
                        for (size_t k = 0; k < n && !line.verb; k++)
                                if (streq(verbs[k].name, argv[i]))
                                        line.verb = &verbs[k];
        }

        *ret = line;
        return 0;
}

/* Calls a method. Errors are not logged, but result in no candidates. */
static int read_replies(const char *method, const char *unit, Replies *ret) {
        _cleanup_client_ Client *c = NULL;
        int r;

        if (arg_hosts && arg_hosts[1])
                return 0;
        arg_host = arg_hosts ? arg_hosts[0] : NULL;
        arg_ask_password = false;
        r = client_connect_quiet(&c);
        if (r < 0)
                return r;
        return client_call_morebo(c, method, ret,
                                  SD_JSON_BUILD_PAIR_CONDITION(!!unit, "unit", SD_JSON_BUILD_STRING(unit)));
}

static void print_attached(void) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;

        if (read_replies(QOS_METHOD("List"), NULL, &replies) != 0)
                return;
        for (size_t i = 0; i < replies.n; i++) {
                const char *unit = value_string(replies.items[i], "unit");

                if (unit && value_boolean(replies.items[i], "attached"))
                        (void) puts(unit);
        }
}

/* suffix: suffix of the metrics, which is not printed */
static void print_metrics(const char *prefix, const char *suffix) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;

        if (read_replies(QOS_METHOD("ListMetrics"), NULL, &replies) != 0)
                return;
        for (size_t i = 0; i < replies.n; i++) {
                const char *name = value_string(replies.items[i], "name"),
                           *text = value_string(replies.items[i], "description");

                if (name && endswith(name, suffix))
                        (void) printf("%s%.*s\t%s\n", prefix, (int) (strlen(name) - strlen(suffix)), name,
                                      strempty(text));
        }
}

static void print_thresholds(const char *unit) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;

        if (read_replies(QOS_METHOD("ListThresholds"), unit, &replies) != 0)
                return;
        for (size_t i = 0; i < replies.n; i++) {
                const char *name = value_string(replies.items[i], "threshold.name"),
                        *text = value_string(replies.items[i], "threshold.threshold");

                if (name)
                        (void) printf("%s\t%s\n", name, strempty(text));
        }
}

/* word: "--OPTION=VALUE" or "VALUE", with the value up to the cursor */
static void print_values(const Option *o, const char *word) {
        const char *value = word[0] == '-' && word[1] == '-' ? strchr(word, '=') + 1 : word;
        /* The cursor is in the last value of a list */
        const char *comma = endswith(o->usage, ",...") ? strrchr(value, ',') : NULL;
        _cleanup_free_ char *prefix = strndup(word, (size_t) ((comma ? comma + 1 : value) - word));

        if (!prefix) {
                (void) log_out_of_memory();
                return;
        }
        if (streq_ptr(o->values, ":metrics")) {
                print_metrics(prefix, "");
                return;
        }
        if (o->values && o->values[0] == ':') {
                (void) puts(o->values);
                return;
        }
        for (const char *s = strempty(o->values); *s; s += strspn(s, " ")) {
                size_t l = strcspn(s, " ");

                (void) printf("%s%.*s\n", prefix, (int) l, s);
                s += l;
        }
}

static void print_options(const Verb *verb) {
        for (size_t i = 0; i < option_number; i++) {
                const Option *o = &option_table[i];
                const char *name;
                size_t l;

                if (verb && o->option >= 0 && !verb_takes(verb, o))
                        continue;
                if (o->usage[0] == '-')
                        (void) printf("-%c\t%.*s\n", o->usage[1], (int) strcspn(o->text, "\n"), o->text);
                name = option_long(o, &l);
                if (name)
                        (void) printf("%.*s%s\t%.*s\n", (int) l, name, name[l] == '=' ? "=" : "",
                                      (int) strcspn(o->text, "\n"), o->text);
        }
}

static void print_verbs(const Verb *verbs, size_t n) {
        for (size_t i = 0; i < n; i++)
                (void) printf("%s\t%s\n", verbs[i].name, verbs[i].description);
}

int complete(const Verb *verbs, size_t n, int argc, char **argv) {
        const char *word = argc > 0 ? argv[argc - 1] : "";
        Candidates candidates;
        const Option *o;
        Line line;
        int r;

        r = read_words(verbs, n, argc - 1, argv, &line);
        if (r < 0)
                return STATUS_USAGE;

        if (line.pending) {
                print_values(line.pending, word);
                return STATUS_OK;
        }
        if (!line.options_end && word[0] == '-') {
                o = option_find(word);
                if (o && word[1] == '-' && strchr(word, '='))
                        print_values(o, word);
                else
                        print_options(line.verb);
                return STATUS_OK;
        }
        if (!line.verb) {
                print_verbs(verbs, n);
                return STATUS_OK;
        }
        if (line.verb->max_arguments >= 0 && line.n_arguments >= line.verb->max_arguments)
                return STATUS_OK;

        candidates = line.n_arguments == 0 ? line.verb->first : line.verb->others;
        switch (candidates) {
        case CANDIDATES_ATTACHED:
                print_attached();
                break;
        case CANDIDATES_UNITS:
                (void) puts(":units");
                break;
        case CANDIDATES_UNITS_FILES:
                (void) puts(":units\n:files");
                break;
        case CANDIDATES_FILES:
                (void) puts(":files");
                break;
        case CANDIDATES_METRICS:
                print_metrics("", "");
                break;
        case CANDIDATES_DISTRIBUTIONS:
                print_metrics("", ".max");
                break;
        case CANDIDATES_RECORDED:
                (void) puts("requests.server.latency\nrequests.server.firstByte");
                break;
        case CANDIDATES_THRESHOLDS:
                print_thresholds(line.unit);
                break;
        case CANDIDATES_VERBS:
                print_verbs(verbs, n);
                break;
        case CANDIDATES_COMMAND:
                (void) puts(":command");
                break;
        case CANDIDATES_NONE:
                break;
        }
        return STATUS_OK;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Arguments of qos-balance, with the message for each error, and its rules, against simulated units. */

#include <math.h>

#include "arguments.h"
#include "check.h"
#include "rules.h"

#define WORDS_MAX 300

/* The words of a line, which may be quoted to be empty. Returns what it says on the standard error; NULL:
 * nothing is wrong. */
static char* parse(const char *line, Arguments *ret) {
        static char buffer[4096];
        static char *words[WORDS_MAX + 1];
        FILE *saved = stderr, *f;
        char *said = NULL;
        size_t size;
        int n = 0, r;

        check(strlen(line) < sizeof(buffer));
        strcpy(buffer, line);
        words[n++] = (char*) "qos-balance";
        for (char *w = strtok(buffer, " "); w; w = strtok(NULL, " ")) {
                check(n < WORDS_MAX);
                words[n++] = streq(w, "''") ? w + 2 : w;
        }
        words[n] = NULL;

        f = open_memstream(&said, &size);
        check(f);
        stderr = f;
        r = arguments_parse(n, words, ret);
        stderr = saved;
        check(fclose(f) == 0);
        check(r == 0 || r == -EINVAL);
        check((r < 0) == (size > 0));
        if (r < 0)
                return said;
        free(said);
        return NULL;
}

static void test_right(void) {
        static const struct {
                const char *line;
                Arguments want;
        } table[] = {
                { "--unit=nginx --target=5ms a.service",
                  { .target = 5000000, .quantile = 0.99, .n_batch = 1 } },
                { "-u nginx -t 500us a.service b.scope",
                  { .target = 500000, .quantile = 0.99, .n_batch = 2 } },
                { "a.service --unit nginx --target 1s",
                  { .target = NSEC_PER_SEC, .quantile = 0.99, .n_batch = 1 } },
                { "-unginx -t.5ms -q.5 -bquota -v a.service",
                  { .target = 500000, .quantile = 0.5, .means = MEANS_QUOTA, .verbose = true,
                    .n_batch = 1 } },
                { "--unit=nginx --target=1e-3s --by=freeze --quantile=0.999 -- a.service",
                  { .target = NSEC_PER_MSEC, .quantile = 0.999, .n_batch = 1 } },
                { "--unit=/a.slice --target=3600s a.service",
                  { .target = TARGET_MAX_NSEC, .quantile = 0.99, .n_batch = 1 } },
                { "--release a.service dbus.service x.slice a.service",
                  { .release = true, .quantile = 0.99, .n_batch = 4 } },
                { "--help --nonsense",                         { .help = true } },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                const Arguments *want = &table[i].want;
                Arguments a;

                check(!parse(table[i].line, &a));
                check(a.target == want->target && a.means == want->means && a.verbose == want->verbose &&
                      a.release == want->release &&
                      a.help == want->help && a.n_batch == want->n_batch &&
                      fabs(a.quantile - want->quantile) < 1e-9);
        }
}

static void test_wrong(void) {
        static const struct {
                const char *line, *message;
        } table[] = {
                { "",                                          "No batch unit specified" },
                { "--unit=x --target=1ms",                     "No batch unit specified" },
                { "--release",                                 "No batch unit specified" },
                { "a.service",                                 "--unit= and --target= are required" },
                { "--unit=x a.service",                        "--unit= and --target= are required" },
                { "--target=1ms a.service",                    "--unit= and --target= are required" },
                { "--unit= --target=1ms a.service",            "Invalid unit name ''" },
                { "--unit=x --target= a.service",              "Invalid target ''" },
                { "--unit=x --target=soon a.service",          "Invalid target 'soon'" },
                { "--unit=x --target=5 a.service",             "Invalid target '5'" },
                { "--unit=x --target=5min a.service",          "Invalid target '5min'" },
                { "--unit=x --target=-5ms a.service",          "Invalid target '-5ms'" },
                { "--unit=x --target=+5ms a.service",          "Invalid target '+5ms'" },
                { "--unit=x --target=0ms a.service",           "Invalid target '0ms'" },
                { "--unit=x --target=0.0001us a.service",      "Invalid target '0.0001us'" },
                { "--unit=x --target=3601s a.service",         "Invalid target '3601s'" },
                { "--unit=x --target=1e999s a.service",        "Invalid target '1e999s'" },
                { "--unit=x --target=infs a.service",          "Invalid target 'infs'" },
                { "--unit=x --target=nanms a.service",         "Invalid target 'nanms'" },
                { "--unit=x --target=0x10ms a.service",        "Invalid target '0x10ms'" },
                { "--unit=x --target=.ms a.service",           "Invalid target '.ms'" },
                { "--quantile= a.service",                     "Invalid quantile ''" },
                { "--quantile=0.4 a.service",                  "Invalid quantile '0.4'" },
                { "--quantile=1 a.service",                    "Invalid quantile '1'" },
                { "--quantile=99% a.service",                  "Invalid quantile '99%'" },
                { "--quantile=nan a.service",                  "Invalid quantile 'nan'" },
                { "--by=force a.service",                      "Invalid argument 'force' of --by=" },
                { "--by= a.service",                           "Invalid argument '' of --by=" },
                { "--nonsense a.service",                      "unrecognized option '--nonsense'" },
                { "-x a.service",                              "invalid option -- 'x'" },
                { "--target",                                  "option '--target' requires an argument" },
                { "--release=yes a.service",                   "doesn't allow an argument" },
                { "--unit=x --target=1ms a.slice",             "'a.slice' is not a service or scope" },
                { "--unit=x --target=1ms a",                   "'a' is not a service or scope" },
                { "--unit=x --target=1ms ''",                  "'' is not a service or scope" },
                { "--unit=x.service --target=1ms x.service",
                  "'x.service' is the unit to be protected" },
                { "--unit=x --target=1ms dbus.service",        "'dbus.service' is required" },
                { "--unit=x --target=1ms dbus-broker.service", "'dbus-broker.service' is required" },
                { "--unit=x --target=1ms a.service qosd.service", "'qosd.service' is required" },
                { "--unit=x --target=1ms qos-balance@x.service", "'qos-balance@x.service' is required" },
                { "--unit=x --target=1ms a.service b.service a.service",
                  "Duplicate batch unit 'a.service'" },
        };
        char line[4096] = "--unit=x --target=1ms";
        Arguments a;

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                _cleanup_free_ char *said = parse(table[i].line, &a);

                if (!said || !strstr(said, table[i].message)) {
                        fprintf(stderr, "'%s' says: %s\n", table[i].line, said ?: "nothing");
                        check(false);
                }
        }

        for (unsigned i = 0; i <= BATCH_MAX; i++) {
                _cleanup_free_ char *said = parse(line, &a);

                check((i == 0) == !!said);
                sprintf(line + strlen(line), " %u.scope", i);
        }
        {
                _cleanup_free_ char *said = parse(line, &a);

                check(said && strstr(said, "Too many batch units: 257, expected at most 256"));
        }
        memcpy(line, "--release            ", strlen("--unit=x --target=1ms"));
        check(!parse(line, &a) && a.n_batch == BATCH_MAX + 1);
}

/* Units that keep a target while the others have not more than a limit. What they have shows in windows of
 * 300 ms and a second. */
typedef struct World {
        Rules rules;
        uint64_t now;           /* usec */
        unsigned limit;
        unsigned noise;         /* of a thousand moments in which more than two steps below the limit was
                                 * given, so many are bad by chance */
        unsigned seed;
        bool bad[10];           /* the last moments */
        unsigned n;
        /* Since it was looked at */
        unsigned windows, missed, gives;
        uint64_t given;
} World;

static void world_step(World *w) {
        double slack_now = 0.3, slack_long = 0.3;
        bool missed = false;

        w->bad[w->n++ % ELEMENTSOF(w->bad)] = w->rules.level > w->limit ||
                (w->rules.level + 2 * w->rules.step > w->limit &&
                 (unsigned) rand_r(&w->seed) % 1000 < w->noise);
        for (unsigned i = 0; i < ELEMENTSOF(w->bad); i++)
                missed = missed || w->bad[i];
        for (unsigned i = 1; i <= 3; i++)
                if (w->bad[(w->n - i) % ELEMENTSOF(w->bad)])
                        slack_now = -1;
        if (missed)
                slack_long = -1;
        if (w->n % ELEMENTSOF(w->bad) == 0) {
                w->windows++;
                w->missed += missed;
        }
        w->given += w->rules.level;

        w->now += 100 * USEC_PER_MSEC;
        if (rules_decide(&w->rules, w->now, slack_now, slack_long) == ACTION_GIVE)
                w->gives++;
        check(w->rules.level <= w->rules.max);
}

static void world_run(World *w, unsigned seconds) {
        w->windows = w->missed = w->gives = 0;
        w->given = 0;
        for (unsigned i = 0; i < seconds * 10; i++)
                world_step(w);
}

/* The target is met in nineteen of twenty seconds, and the others get nearly all that leaves room for it. */
static void test_rules(void) {
        for (unsigned noise = 0; noise <= 2; noise += 2)
                for (unsigned limit = 0; limit <= 40; limit++) {
                        World w = { .now = 1000 * USEC_PER_SEC, .limit = limit, .noise = noise,
                                    .seed = limit };

                        rules_init(&w.rules, 40, 4);
                        world_run(&w, 20);
                        world_run(&w, 600);
                        check(w.missed * 20 <= w.windows);
                        if (noise == 0)
                                check(w.given / 6000 + 2 * w.rules.step > limit);
                        check(limit < 40 || noise > 0 || (w.missed == 0 && w.rules.level == 40));

                        /* More than there is: it is taken within two seconds, and given back when there
                         * is enough again */
                        w.limit = w.noise = 0;
                        world_run(&w, 10);
                        check(w.rules.level == 0 || w.rules.level <= w.rules.step);
                        w.limit = 40;
                        world_run(&w, 300);
                        check(w.rules.level == 40);
                        world_run(&w, 100);
                        check(w.missed == 0);
                }
}

/* Each attempt to give too much waits for twice as long. */
static void test_back_off(void) {
        World w = { .now = 1000 * USEC_PER_SEC, .limit = 10 };
        uint64_t before = 0, apart = 0;
        unsigned failures = 0;

        rules_init(&w.rules, 40, 4);
        for (unsigned i = 0; i < 10 * 3600; i++) {
                uint64_t failed_at = w.rules.failed_at;

                world_step(&w);
                if (w.rules.failed_at == failed_at)
                        continue;
                if (before != 0 && failures > 4 && apart < BACK_OFF_MAX_USEC)
                        check(w.rules.failed_at - before > apart);
                apart = before != 0 ? w.rules.failed_at - before : 0;
                before = w.rules.failed_at;
                failures++;
                check(w.rules.back_off >= BACK_OFF_MIN_USEC && w.rules.back_off <= BACK_OFF_MAX_USEC);
        }
        check(apart > BACK_OFF_MAX_USEC && apart < BACK_OFF_MAX_USEC + 10 * USEC_PER_SEC);

        /* Without figures nothing is known */
        rules_reset(&w.rules, w.now);
        check(w.rules.level == 40 && w.rules.back_off == BACK_OFF_MIN_USEC && w.rules.bad == 41);
}

int main(void) {
        test_right();
        test_wrong();
        test_rules();
        test_back_off();
        return EXIT_SUCCESS;
}

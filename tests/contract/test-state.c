/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What the daemon attaches again from the file that it finds when it starts: all that makes sense, and what
 * does not is named in the log, in one line. Nothing gets into the kernel, units are attached without
 * figures. */

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "attach.h"
#include "history.h"
#include "manager.h"
#include "service-manager.h"
#include "threshold-monitor.h"
#include "util-bus.h"

static char directory[] = "/tmp/test-state-XXXXXX", *path, *temporary, *log_path;

static void state_write(const char *text) {
        _cleanup_fclose_ FILE *f = fopen(path, "we");

        check(f && fputs(text, f) >= 0 && fflush(f) == 0);
}

/* Starts with the file. complaint: part of the one warning that is expected; NULL: none. */
static Manager* state_restore(sd_event *event, const char *complaint) {
        _cleanup_close_ int before = dup(STDERR_FILENO),
                fd = open(log_path, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0600);
        _cleanup_fclose_ FILE *f = NULL;
        unsigned n = 0, n_expected = 0;
        char line[4096];
        Manager *m;
        int r;

        check(before >= 0 && fd >= 0);
        check(dup2(fd, STDERR_FILENO) >= 0);
        r = manager_new(event, &m);
        check(dup2(before, STDERR_FILENO) >= 0);
        check(r >= 0);

        f = fopen(log_path, "re");
        check(f);
        while (fgets(line, sizeof(line), f)) {
                bool names = strstr(line, "Invalid entry") || strstr(line, "Invalid saved hold") ||
                             strstr(line, "Invalid saved threshold") || strstr(line, path);

                n += names;
                n_expected += names && complaint && strstr(line, complaint);
                fputs(line, stderr);
        }
        check(n == (complaint ? 1 : 0) && n_expected == n);
        return m;
}

static Unit* find(Manager *m, const char *name) {
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->units.slots[i] && streq(m->units.slots[i]->name, name))
                        return m->units.slots[i];
        return NULL;
}

#define ENTRY(name, group, slot, more) \
        "{\"name\":\"" name "\",\"controlGroup\":\"" group "\",\"activeState\":\"active\",\"slot\":" slot \
        ",\"generation\":1,\"attachedSince\":1,\"attachedSinceMonotonic\":1" more "}"
#define HOLD ",\"hold\":{\"probes\":1,\"uid\":0}"
#define GOOD ENTRY("good.service", "/system.slice/good.service", "200", HOLD)
#define STATE(units) "{\"generation\":5,\"units\":[" units "]}"

/* The valid entry is restored, the other one is named in the log. */
static void test_entries(sd_event *event) {
        static const struct {
                const char *text, *complaint;
        } table[] = {
                { STATE(GOOD), NULL },
                { STATE(ENTRY("", "/system.slice/x.service", "1", HOLD) "," GOOD), "not a unit name" },
                { STATE(ENTRY("x y", "/system.slice/x.service", "1", HOLD) "," GOOD), "not a unit name" },
                { STATE(ENTRY("x", "/system.slice/x.service", "1", HOLD) "," GOOD), "not a unit name" },
                { STATE(ENTRY("/..", "/system.slice/x.service", "1", HOLD) "," GOOD), "not a unit name" },
                { STATE(ENTRY("x.service", "", "1", HOLD) "," GOOD), "invalid control group" },
                { STATE(ENTRY("x.service", "system.slice/x.service", "1", HOLD) "," GOOD),
                  "invalid control group" },
                { STATE(ENTRY("x.service", "/system.slice/../x.service", "1", HOLD) "," GOOD),
                  "invalid control group" },
                { STATE(ENTRY("x.socket", "/system.slice/x.socket", "1", HOLD ",\"instances\":\"x@\"") ","
                        GOOD), "instances" },
                { STATE(ENTRY("x.socket", "/system.slice/x.socket", "1", HOLD ",\"instances\":\"\"") ","
                        GOOD), "instances" },
                { STATE(ENTRY("x.service", "/system.slice/x.service", "256", HOLD) "," GOOD),
                  "invalid slot" },
                { STATE(ENTRY("x.service", "/system.slice/x.service", "-1", HOLD) "," GOOD),
                  "Invalid entry 0" },
                { STATE(GOOD "," ENTRY("x.service", "/system.slice/x.service", "200", HOLD)), "slot" },
                { STATE(GOOD "," ENTRY("good.service", "/system.slice/good.service", "3", HOLD)),
                  "duplicate unit" },
                { STATE(GOOD "," ENTRY("good.service", "/system.slice/x.service", "3", HOLD)),
                  "duplicate unit" },
                { STATE(ENTRY("x.service", "/system.slice/x.service", "1", ",\"hold\":{\"uid\":0}") ","
                        GOOD), "Invalid saved hold of 'x.service'" },
                { STATE(ENTRY("x.service", "/system.slice/x.service", "1", ",\"ownerHolds\":[7]") "," GOOD),
                  "Invalid saved hold of 'x.service'" },
                { STATE("{}," GOOD), "Invalid entry 0" },
                { STATE("7," GOOD), "Invalid entry 0" },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                Manager *m;
                Unit *u;

                state_write(table[i].text);
                m = state_restore(event, table[i].complaint);
                check(m->units.n == 1);
                u = find(m, "good.service");
                check(u && u->holds && !u->holds->next && u->holds->type == HOLD_ADMINISTRATOR &&
                      u->holds->probes == PROBE_REQUESTS);
                manager_free(m);
        }
}

/* Files without a state: the daemon starts with no units. */
static void test_files(sd_event *event) {
        static const struct {
                const char *text, *complaint;
        } table[] = {
                { "[1,2,3]",                     "no list of units" },
                { "7",                           "no list of units" },
                { "{\"generation\":5}",          "no list of units" },
                { "{\"units\":{\"a\":1}}",       "no list of units" },
                { "{\"units\":[",                "Failed to read"   },
                { "",                            "Failed to read"   },
                { STATE(""),                     NULL               },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                Manager *m;

                state_write(table[i].text);
                m = state_restore(event, table[i].complaint);
                check(m->units.n == 0);
                manager_free(m);
        }

        check(unlink(path) >= 0);
        manager_free(state_restore(event, NULL));
        check(mkfifo(path, 0600) >= 0);
        manager_free(state_restore(event, "Failed to read"));
        check(unlink(path) >= 0);
        check(mkdir(path, 0700) >= 0);
        manager_free(state_restore(event, "Failed to read"));
        check(rmdir(path) >= 0);
}

/* A file of a newer version, with unknown fields. */
static void test_newer(sd_event *event) {
        Manager *m;
        Unit *u;

        state_write("{\"units\":["
                    ENTRY("good.service", "/system.slice/good.service", "0",
                          ","
                          "\"later\":{},"
                          "\"hold\":{\"probes\":1048579,"
                          "\"uid\":0,"
                          "\"later\":[]},\"ownerHolds\":[{\"probes\":1048576,\"uid\":1000,\"later\":1}],"
                          "\"thresholds\":[{\"threshold\":\"busy: requests.server.rate > "
                          "5\",\"state\":\"ok\",\"since\":1,\"violatedSince\":0,\"uid\":0,\"later\":7},"
                          "{\"threshold\":\"odd: some.later.metric > "
                          "5\",\"state\":\"ok\",\"since\":1,\"violatedSince\":0,\"uid\":0}]")
                    "],\"later\":7}");
        m = state_restore(event, "Invalid saved threshold of 'good.service'");
        u = find(m, "good.service");
        check(u && m->units.n == 1);
        check(u->holds && u->holds->next && !u->holds->next->next);
        for (Hold *h = u->holds; h; h = h->next)
                check(h->probes == (h->owner_uid == 0 ? PROBE_REQUESTS|PROBE_TLS : PROBE_REQUESTS));
        check(threshold_next(u, NULL) && !threshold_next(u, threshold_next(u, NULL)));
        check(streq(threshold_next(u, NULL)->rule.name, "busy"));

        /* Its own file is read without a warning */
        manager_save(m);
        manager_free(m);
        m = state_restore(event, NULL);
        u = find(m, "good.service");
        check(u && m->units.n == 1 && u->holds && u->holds->next && threshold_next(u, NULL));
        manager_free(m);
}

static char* file_read(const char *name) {
        _cleanup_fclose_ FILE *f = fopen(name, "re");
        static char text[65536];
        size_t n;

        check(f);
        n = fread(text, 1, sizeof(text) - 1, f);
        text[n] = 0;
        return text;
}

/* If the file cannot be written, the previous one is kept. */
static void test_full(sd_event *event) {
        struct rlimit before, small;
        _cleanup_free_ char *text = NULL;
        Manager *m;

        state_write(STATE(GOOD));
        m = state_restore(event, NULL);
        manager_save(m);
        text = strdup(file_read(path));
        check(text && strstr(text, "good.service"));

        check(getrlimit(RLIMIT_FSIZE, &before) >= 0);
        small = (struct rlimit) { .rlim_cur = 32, .rlim_max = before.rlim_max };
        /* EFBIG instead of the signal */
        check(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
        check(setrlimit(RLIMIT_FSIZE, &small) >= 0);
        m->units.generation++;
        manager_save(m);
        check(setrlimit(RLIMIT_FSIZE, &before) >= 0);
        check(streq(file_read(path), text));

        manager_save(m);
        check(!streq(file_read(path), text));
        manager_free(m);
        m = state_restore(event, NULL);
        check(find(m, "good.service"));
        manager_free(m);
}

/* An owner drops its own hold and its probes; the hold of the administrator is kept. */
static void test_detach(sd_event *event) {
        Manager *m;
        Unit *u;

        state_write(STATE(ENTRY("good.service", "/system.slice/good.service", "0",
                                ",\"hold\":{\"probes\":1,\"uid\":0},"
                                "\"ownerHolds\":[{\"probes\":3,\"uid\":1000},"
                                "{\"probes\":4,\"uid\":1001}]")));
        m = state_restore(event, NULL);
        u = find(m, "good.service");
        check(u && u->probes == 7);
        check(manager_detach(m, "good.service", NULL, 1002, NULL) == -ENXIO && u->probes == 7);
        check(manager_detach(m, "good.service", NULL, 1001, NULL) >= 0 && u->probes == 3);
        check(manager_detach(m, "good.service", NULL, 1000, NULL) >= 0 && u->probes == 1);
        check(u->holds && !u->holds->next && u->holds->owner_uid == 0);
        check(manager_detach(m, "good.service", NULL, 1000, NULL) == -ENXIO && m->units.n == 1);
        check(manager_detach(m, "good.service", NULL, 0, NULL) >= 0 && m->units.n == 0);
        manager_free(m);
}

static int see_step(const HistoryStep *s, void *userdata) {
        size_t *n = userdata;

        check(s->index == 8);
        (*n)++;
        return 0;
}

/* Programs and history of an older version: holds and thresholds are kept, the history begins anew, and both
 * are logged. */
static void test_upgrade(sd_event *event) {
        _cleanup_free_ char *history_path = NULL;

        check(asprintf(&history_path, "%s/history-0", directory) > 0);

        for (char version = '1'; version <= '6'; version++) {
                _cleanup_history_ History *h = NULL;
                _cleanup_free_ char *data = NULL;
                bool current = version == '6';
                Manager *m;
                size_t size, n_steps = 0;
                const char *said;
                FILE *f;
                Unit *u;

                state_write("{\"checksum\":\"0123456789abcdef\",\"generation\":5,\"units\":["
                            ENTRY("good.service", "/system.slice/good.service", "0",
                                  ",\"hold\":{\"probes\":5,\"uid\":0},"
                                  "\"ownerHolds\":[{\"probes\":1,\"uid\":1000}],"
                                  "\"thresholds\":[{"
                                  "\"threshold\":\"slow: requests.server.latency.p99 > 5ms\","
                                  "\"state\":\"violated\",\"since\":7,\"violatedSince\":1,\"goodBefore\":3,"
                                  "\"totalBefore\":4,\"uid\":0}]")
                            "]}");

                /* A file that differs in the version only */
                check(history_new(&h) >= 0);
                check(history_put(h, &(HistoryStep) { .index = 8, .covered = 1 }) >= 0);
                check(history_serialize(h, 1, (void**) &data, &size) >= 0);
                check(data[7] == '6');
                data[7] = version;
                f = fopen(history_path, "we");
                check(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);

                m = state_restore(event, NULL);
                said = file_read(log_path);
                check(strstr(said, "holds and thresholds are kept, totals and windows begin anew"));
                check(!strstr(said, "History of 'good.service' is of another version") == current);
                u = find(m, "good.service");
                check(u && m->units.n == 1);
                check(history_foreach(u->history.steps, HISTORY_FINE, see_step, &n_steps) >= 0);
                check(n_steps == current);
                check(u->holds && u->holds->next && !u->holds->next->next && u->probes == 5);
                check(threshold_next(u, NULL) && streq(threshold_next(u, NULL)->rule.name, "slow"));
                check(threshold_next(u, NULL)->reported == THRESHOLD_VIOLATED);
                /* Of totals that have begun anew */
                check(threshold_next(u, NULL)->before.good == 0);
                check(threshold_next(u, NULL)->before.total == 0);
                manager_free(m);
        }

        check(unlink(history_path) >= 0);
}

static void test_names(void) {
        check(!names_contain("a.service b.service", ""));
        check(!names_contain("", ""));
        check(names_contain("a.service b.service", "b.service"));
        check(!names_contain("a.service ab.service", "b.service"));
}

int main(void) {
        _cleanup_(sd_event_unrefp) sd_event *event = NULL;

        if (!test_become_plain_root())
                return 77;

        check(mkdtemp(directory));
        check(asprintf(&path, "%s/units", directory) > 0);
        check(asprintf(&temporary, "%s/units.new", directory) > 0);
        check(asprintf(&log_path, "%s/log", directory) > 0);
        check(setenv("RUNTIME_DIRECTORY", directory, 1) >= 0);
        check(sd_event_new(&event) >= 0);

        test_names();
        test_entries(event);
        test_newer(event);
        test_full(event);
        test_detach(event);
        test_upgrade(event);
        test_files(event);

        (void) unlink(log_path);
        (void) unlink(path);
        (void) unlink(temporary);
        (void) rmdir(directory);
        free(path);
        free(temporary);
        free(log_path);
        return EXIT_SUCCESS;
}

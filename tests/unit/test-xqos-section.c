/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* [X-QoS] in unit files: lists, what resets them, and what is said of bad lines. */

#include <fcntl.h>
#include <sys/mman.h>

#include "check.h"
#include "unit-file.h"
#include "xqos-section.h"

#define RULE "requests.server.rate > 5"

/* Reads, and gives back what was logged meanwhile. */
static const char* read_text(XqosSection *s, const char *text) {
        static char said[65536];
        int fd, saved;
        ssize_t n;

        fd = memfd_create("log", MFD_CLOEXEC);
        saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
        check(fd >= 0 && saved >= 0);
        check(fflush(stderr) == 0 && dup2(fd, STDERR_FILENO) >= 0);
        check(xqos_section_read(s, "/x.conf", text, strlen(text)) == 0);
        check(fflush(stderr) == 0 && dup2(saved, STDERR_FILENO) >= 0);
        n = pread(fd, said, sizeof(said) - 1, 0);
        check(n >= 0);
        said[n] = 0;
        close_fd(fd);
        close_fd(saved);
        return said;
}

static void test_lists(void) {
        _cleanup_xqos_section_ XqosSection s = {};

        check(xqos_section_is_empty(&s));
        check(isempty(read_text(&s, "[Unit]\nObserve=requests\nThreshold=a: " RULE
                                "\n[Service]\nExclude=port:1\n")));
        check(xqos_section_is_empty(&s));
        check(isempty(read_text(&s, "")));
        check(isempty(read_text(&s, "[X-QoS]")));
        check(xqos_section_is_empty(&s));

        check(isempty(read_text(&s, "[X-QoS]\nObserve=requests\n Exclude = port:1  http:/a\r\nThreshold=a: "
                                RULE "\n# no\n; no\nThreshold=b: " RULE "\n"
                                    "Exclude=port:2\n[Unit]\nExclude=port:3\n[X-QoS]\nObserve=tls")));
        check(s.probes == (PROBE_REQUESTS|PROBE_TLS) && s.excludes.n == 3 && s.n_thresholds == 2);
        check(streq(s.thresholds[1].name, "b") && streq(s.thresholds[1].line, "b: " RULE) &&
              streq(s.thresholds[1].origin, "/x.conf:7"));

        /* The next file adds, and replaces what has the same name, in its place */
        check(isempty(read_text(&s, "[X-QoS]\nThreshold=a: requests.server.rate > 6\nExclude=port:1 "
                                    "redis:BRPOP\n")));
        check(s.excludes.n == 4 && s.n_thresholds == 2 && streq(s.thresholds[0].origin, "/x.conf:2") &&
              strstr(s.thresholds[0].line, "6"));

        /* An empty value forgets */
        check(isempty(read_text(&s, "[X-QoS]\nThreshold=\nExclude=\nObserve=\n")));
        check(xqos_section_is_empty(&s) && !s.never);
        check(isempty(read_text(&s, "[X-QoS]\nObserve=cpu\nObserve=no\n")));
        check(s.never && xqos_section_is_empty(&s));
        check(isempty(read_text(&s, "[X-QoS]\nObserve=\n")) && !s.never);
        check(isempty(read_text(&s, "[X-QoS]\nObserve=no\n")) && s.never);
        check(isempty(read_text(&s, "[X-QoS]\nObserve=cpu\n")) && !s.never && s.probes == PROBE_CPU);
        check(isempty(read_text(&s, "[X-QoS]\nObserve=\n")) && xqos_section_is_empty(&s));
        check(isempty(read_text(&s, "[X-QoS]\nThreshold=a: " RULE "\nThreshold=  \nThreshold=c: " RULE)));
        check(s.n_thresholds == 1 && streq(s.thresholds[0].name, "c"));
}

static void test_lines(void) {
        _cleanup_xqos_section_ XqosSection s = {};

        check(isempty(read_text(&s, "[X-QoS]\nThreshold=a: \\\n  # in between\n" RULE
                                " \\\n over 1s\nThreshold=b: " RULE "\\\n# at the end")));
        check(s.n_thresholds == 2);
        check(streq(s.thresholds[0].origin, "/x.conf:2") && strstr(s.thresholds[0].line, "over 1s"));
}

static void test_bad(void) {
        static const struct {
                const char *text, *message;
        } table[] = {
                { "Observe=cpu2",
                  "/x.conf:2: Observe= expects probes ('requests', 'tls', 'cpu', 'block', 'memory', "
                  "'storage', 'network', 'custom:NAME'), or 'no', got 'cpu2'" },
                { "Exclude=nonsense",        "/x.conf:2: Exclude= expects exclusions like" },
                { "Threshold=slow",          "/x.conf:2: threshold 'slow': expected a name and a colon" },
                { "Threshold=a: " RULE "ms", "/x.conf:2: threshold 'a: " RULE "ms': expected a rate" },
                { "Limit=5",
                  "/x.conf:2: there is no setting 'Limit' in [X-QoS], expected Observe=, Exclude=, "
                  "Threshold=, OnViolated= or OnCleared=, ignoring" },
                { "OnViolated=notify",
                  "/x.conf:2: OnViolated= expects units with a suffix like 'notify@%n.service', and the "
                  "specifiers %n, %N, %p, %i or %%, got 'notify', ignoring it." },
                { "OnCleared=a.service x@%u.service",
                  "/x.conf:2: OnCleared= expects units with a suffix like 'notify@%n.service', and the "
                  "specifiers %n, %N, %p, %i or %%, got 'x@%u.service', ignoring it." },
                { "OnViolated=a%.service",   "got 'a%.service'" },
                { "OnViolated=a.service%",   "got 'a.service%'" },
                { "OnCleared=a.service b.service c.service d.service e.service f.service g.service "
                  "h.service i.service",
                  "/x.conf:2: OnCleared= has more than 8 units, ignoring 'i.service'" },
                { "=5",                      "there is no setting ''" },
                { "Threshold=caf\xe9: " RULE, "/x.conf:2: not UTF-8 text, ignoring the line." },
                { "Threshold=a: requests.server[/run/caf\xe9.sock].latency.p99 > 1ms",
                  "/x.conf:2: not UTF-8 text" },
                { "Exclude=http:/\xff",      "/x.conf:2: not UTF-8 text" },
                { "nonsense",                "/x.conf:2: expected 'Name=value' in [X-QoS], got 'nonsense'" },
                { "Exclude=port:1 port:2 port:3 port:4 port:5 port:6 port:7 port:8 port:9 port:10 port:11 "
                  "port:12 port:13 port:14 port:15 port:16 port:17",
                  "more than 16 exclusions, ignoring 'port:17'" },
        };
        char text[8192];

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                _cleanup_xqos_section_ XqosSection s = {};
                const char *said;

                (void) snprintf(text, sizeof(text), "[X-QoS]\n%s\nThreshold=good: " RULE "\n",
                                table[i].text);
                said = read_text(&s, text);
                if (!strstr(said, table[i].message)) {
                        fprintf(stderr, "'%s': '%s' instead of '%s'\n", table[i].text, said,
                                table[i].message);
                        exit(EXIT_FAILURE);
                }
                check(s.n_thresholds == 1); /* the rest is in force */
        }

        {
                _cleanup_xqos_section_ XqosSection s = {};
                char *end = stpcpy(text, "[X-QoS]\nExclude=");

                memset(end, 'x', 5000);
                strcpy(end + 5000, "\nObserve=requests\n");
                check(strstr(read_text(&s, text), "/x.conf:2: the line is longer than"));
                check(s.probes == PROBE_REQUESTS && s.excludes.n == 0);
        }
        {
                _cleanup_xqos_section_ XqosSection s = {};
                char *p = stpcpy(text, "[X-QoS]\n");

                for (unsigned i = 0; i < XQOS_THRESHOLDS_MAX + 1; i++)
                        p += sprintf(p, "Threshold=t%u: " RULE "\n", i);
                check(strstr(read_text(&s, text), "more than 32 thresholds, ignoring 't32'"));
                check(s.n_thresholds == XQOS_THRESHOLDS_MAX);
        }
}

static void test_starts(void) {
        _cleanup_xqos_section_ XqosSection s = {};

        check(isempty(read_text(&s, "[X-QoS]\nOnViolated=a.service b@%n.service\nOnCleared=c@%i.target\n")));
        check(s.n_starts[XQOS_VIOLATED] == 2 && s.n_starts[XQOS_CLEARED] == 1);
        check(streq(s.starts[XQOS_VIOLATED][1], "b@%n.service"));
        check(xqos_section_is_empty(&s)); /* nothing can be violated */

        /* The next file adds, an empty value forgets */
        check(isempty(read_text(&s, "[X-QoS]\nOnViolated=d.service\nOnCleared=\n")));
        check(s.n_starts[XQOS_VIOLATED] == 3 && s.n_starts[XQOS_CLEARED] == 0);

        check(xqos_event_from_string("violated") == XQOS_VIOLATED);
        check(xqos_event_from_string("cleared") == XQOS_CLEARED);
        check(xqos_event_from_string("") == _XQOS_EVENT_MAX);
        check(xqos_event_from_string("x") == _XQOS_EVENT_MAX);
}

static void test_found(void) {
        static const char text[] = "[Unit]\n[X-QoS]\n";

        check(text_has_xqos_section(text, strlen(text)));
        check(!text_has_xqos_section(text, strlen(text) - 2));
        check(!text_has_xqos_section("", 0));
}

int main(void) {
        test_lists();
        test_lines();
        test_bad();
        test_starts();
        test_found();
        return EXIT_SUCCESS;
}

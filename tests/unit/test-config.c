/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* qosd.conf and qosd-exporter.conf: the effect of each line, the precedence of files, and messages for the
 * administrator. */

#include <fcntl.h>
#include <ftw.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "check.h"
#include "config.h"
#include "exporter-config.h"
#include "log.h"

static char root[] = "/tmp/test-config-XXXXXX";

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *f) {
        return remove(path);
}

static void clear(void) {
        check(nftw(root, remove_entry, 16, FTW_DEPTH|FTW_PHYS) >= 0);
        check(mkdir(root, 0755) >= 0);
}

static void make_parents(char *path) {
        for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
                *p = 0;
                check(mkdir(path, 0755) >= 0 || errno == EEXIST);
                *p = '/';
        }
}

static void put_bytes(const char *name, const void *bytes, size_t size) {
        char path[512];
        FILE *f;

        check(snprintf(path, sizeof(path), "%s%s", root, name) < (int) sizeof(path));
        make_parents(path);
        f = fopen(path, "we");
        check(f);
        check(fwrite(bytes, 1, size, f) == size);
        check(fclose(f) == 0);
}

static void put(const char *name, const char *text) {
        put_bytes(name, text, strlen(text));
}

/* Loads into one of both, and returns the log messages. */
static char* load_any(Config *ret, ExpositionOptions *ret_exporter) {
        static char said[65536];
        int fd, saved;
        ssize_t n;

        fd = memfd_create("log", MFD_CLOEXEC);
        saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
        check(fd >= 0 && saved >= 0);
        check(fflush(stderr) == 0 && dup2(fd, STDERR_FILENO) >= 0);

        /* All of it must be overwritten */
        if (ret) {
                memset(ret, 0xaa, sizeof(*ret));
                check(config_load(root, ret) >= 0);
        } else {
                memset(ret_exporter, 0xaa, sizeof(*ret_exporter));
                check(exporter_config_load(root, ret_exporter) >= 0);
        }

        check(fflush(stderr) == 0 && dup2(saved, STDERR_FILENO) >= 0);
        n = pread(fd, said, sizeof(said) - 1, 0);
        check(n >= 0);
        said[n] = 0;
        (void) close(fd);
        (void) close(saved);
        return said;
}

static char* load(Config *ret) {
        return load_any(ret, NULL);
}

/* Of the only line, in the section. */
static Config load_line(const char *line, const char *expected_warning) {
        char text[16384], *said;
        Config c;

        check(snprintf(text, sizeof(text), "# a comment\n[QoS]\n%s\n", line) < (int) sizeof(text));
        clear();
        put("/etc/qosd.conf", text);
        said = load(&c);

        if (expected_warning ? !strstr(said, expected_warning) || !strstr(said, "/etc/qosd.conf:3: ") :
            *said != 0) {
                fprintf(stderr, "'%s': expected '%s', got: %s\n", line, strempty(expected_warning),
                        said);
                exit(EXIT_FAILURE);
        }
        return c;
}

static bool config_equal(const Config *a, const Config *b) {
        return a->observe_auto == b->observe_auto &&
                a->units_max == b->units_max &&
                a->default_probes == b->default_probes &&
                a->default_window_nsec == b->default_window_nsec &&
                a->connections_per_uid_max == b->connections_per_uid_max &&
                a->leases_per_uid_max == b->leases_per_uid_max &&
                a->units_per_uid_max == b->units_per_uid_max &&
                a->interval_min_usec == b->interval_min_usec &&
                a->minimum_samples == b->minimum_samples &&
                a->slow_operation_nsec == b->slow_operation_nsec;
}

static bool config_is_default(const Config *c) {
        Config defaults;

        config_set_defaults(&defaults);
        return config_equal(c, &defaults);
}

static void test_nothing(void) {
        Config c;

        clear();
        check(*load(&c) == 0);
        check(config_is_default(&c));

        put("/etc/qosd.conf", "");
        check(*load(&c) == 0);
        check(config_is_default(&c));
}

static void test_settings(void) {
        Config observe = load_line("Observe=auto", NULL);

        check(observe.observe_auto);
        check(startswith(observe.observe_file, root) && endswith(observe.observe_file, "/etc/qosd.conf"));
        check(!load_line("Observe=no", NULL).observe_auto);
        check(!load_line("Observe=auto\nObserve=", NULL).observe_auto);
        check(!load_line("Observe=yes", "Observe= must be 'auto' or 'no', got 'yes'").observe_auto);
        check(load_line("UnitsMax=7", NULL).units_max == 7);
        check(load_line("UnitsMax=1", NULL).units_max == 1);
        check(load_line("  UnitsMax =\t256  ", NULL).units_max == 256);
        check(load_line("DefaultProbes=requests", NULL).default_probes == PROBE_REQUESTS);
        check(load_line("DefaultProbes=requests  requests", NULL).default_probes == PROBE_REQUESTS);
        check(load_line("DefaultWindow=60s", NULL).default_window_nsec == 60 * NSEC_PER_SEC);
        check(load_line("ConnectionsPerUserMax=4096", NULL).connections_per_uid_max == 4096);
        check(load_line("LeasesPerUserMax=0", NULL).leases_per_uid_max == 0);
        check(load_line("UnitsPerUserMax=0", NULL).units_per_uid_max == 0);
        check(load_line("IntervalMinSec=10ms", NULL).interval_min_usec == 10 * USEC_PER_MSEC);
        check(load_line("MinimumSamples=5", NULL).minimum_samples == 5);
        check(load_line("SlowOperation=250ms", NULL).slow_operation_nsec == 250 * NSEC_PER_MSEC);
        check(load_line("SlowOperation=0", NULL).slow_operation_nsec == 0);
        check(load_line("", NULL).receive_timestamps);
        check(!load_line("ReceiveTimestamps=no", NULL).receive_timestamps);
        check(load_line("", NULL).custom_cost_max == 5);
        check(load_line("CustomCostMax=12%", NULL).custom_cost_max == 12);
        check(load_line("CustomCostMax=0%", NULL).custom_cost_max == 0);

        /* The last one counts, an empty one restores the default */
        check(load_line("UnitsMax=7\nUnitsMax=8", NULL).units_max == 8);
        check(load_line("UnitsMax=7\nUnitsMax=", NULL).units_max == 256);
        check(load_line("UnitsMax=7\nUnitsMax=   ", NULL).units_max == 256);
}

static void test_times(void) {
        static const struct {
                const char *text;
                uint64_t usec;
        } table[] = {
                { "1",         1000000 },
                { "1s",        1000000 },
                { "1 s",       1000000 },
                { "2sec",      2000000 },
                { "3 seconds", 3000000 },
                { "100ms",     100000  },
                { "100msec",   100000  },
                { "50000us",   50000   },
                { "1min",      60000000 },
                { "1min 30s",  90000000 },
                { "1min30s",   90000000 },
                { "1m 1s 1ms", 61001000 },
                { "1h",        3600000000 },
                { "20000000ns", 20000  },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                char line[64];

                (void) snprintf(line, sizeof(line), "IntervalMinSec=%s", table[i].text);
                check(load_line(line, NULL).interval_min_usec == table[i].usec);
        }
}

static void test_bad_lines(void) {
        static const struct {
                const char *line;
                const char *warning;
        } table[] = {
                { "UnitsMax=0",
                  "UnitsMax= must be a number from 1 to 256, got '0', ignoring." },
                { "UnitsMax=257",                  "got '257'" },
                { "UnitsMax=-1",                   "got '-1'" },
                { "UnitsMax=+5",                   "got '+5'" },
                { "UnitsMax=5x",                   "got '5x'" },
                { "UnitsMax=5 6",                  "got '5 6'" },
                { "UnitsMax=0x10",                 "got '0x10'" },
                { "UnitsMax=4294967297",           "got '4294967297'" },
                { "UnitsMax=99999999999999999999", "got '99999999999999999999'" },
                { "DefaultProbes=gpu",             "got 'gpu'" },
                { "DefaultProbes=requests gpu",    "got 'requests gpu'" },
                { "DefaultWindow=11s",             "got '11s'" },
                { "DefaultWindow=0",               "got '0'" },
                { "DefaultWindow=150ms",           "got '150ms'" },
                { "DefaultWindow=total",           "got 'total'" },
                { "IntervalMinSec=9ms",            "must be a time from 10ms to 1h" },
                { "IntervalMinSec=1.s",            "got '1.s'" },
                { "IntervalMinSec=1y",             "got '1y'" },
                { "IntervalMinSec=s",              "got 's'" },
                { "IntervalMinSec=infinity",       "got 'infinity'" },
                { "IntervalMinSec=99999999999999h", "got '99999999999999h'" },
                { "IntervalMinSec=18446744073709551616", "must be a time" },
                { "ConnectionsPerUserMax=0",       "got '0'" },
                { "MinimumSamples=4",              "got '4'" },
                { "SlowOperation=99us",            "must be a time from 100us to 1h, or 0, got '99us'" },
                { "SlowOperation=2h",              "got '2h'" },
                { "CustomCostMax=5",               "must be a percentage from 0% to 100%, got '5'" },
                { "CustomCostMax=101%",            "got '101%'" },
                { "CustomCostMax=%",               "got '%'" },
                { "ReceiveTimestamps=1",           "must be 'yes' or 'no', got '1'" },
                { "SlowOperation=slow",            "got 'slow'" },
                { "unitsmax=5",                    "unknown setting 'unitsmax'" },
                { "Nonsense=5",                    "unknown setting 'Nonsense'" },
                { "=5",                            "unknown setting ''" },
                { "UnitsMax",                      "expected 'Name=value', got 'UnitsMax'" },
                { "[Unit]\nUnitsMax=5",            "unknown section '[Unit]'" },
                { "[QoS",                          "unknown section '[QoS'" },
                { "UnitsMax=5\x01",                "not UTF-8 text" },
                { "UnitsMax=\xff",                 "not UTF-8 text" },
                { "UnitsMax=\xc0\xb5",             "not UTF-8 text" },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                Config c = load_line(table[i].line, table[i].warning);

                check(config_is_default(&c));
        }
}

static void test_good_lines_around_bad_ones(void) {
        Config c;
        char *said;

        clear();
        put("/etc/qosd.conf",
            "UnitsMax=3\n"              /* 1: before any section */
            "[QoS]\r\n"
            "UnitsMax=5\r\n"
            "; a comment\n"
            "Nonsense=1\n"              /* 5 */
            "LeasesPerUserMax=6\n"
            "[X-Mine]\n"
            "Anything goes here\n"
            "[QoS]\n"
            "UnitsPerUserMax=9");       /* without an end of line */
        said = load(&c);
        check(strstr(said, "/etc/qosd.conf:1: 'UnitsMax=3' is not in section '[QoS]'"));
        check(strstr(said, "/etc/qosd.conf:5: unknown setting 'Nonsense'"));
        check(!strstr(said, ":8:"));
        check(c.units_max == 5 && c.leases_per_uid_max == 6 && c.units_per_uid_max == 9);
}

static void test_continuation(void) {
        Config c;
        char *said;

        check(load_line("UnitsMax=\\\n9", NULL).units_max == 9);
        check(load_line("UnitsMax=\\\n# a comment in between\n  9", NULL).units_max == 9);
        check(load_line("IntervalMinSec=1min \\\n30s", NULL).interval_min_usec == 90 * USEC_PER_SEC);
        check(load_line("# UnitsMax=5\\\nLeasesPerUserMax=3", NULL).leases_per_uid_max == 3);
        check(load_line("UnitsMax=9\\", NULL).units_max == 9); /* the file ends */
        check(load_line("\\\n\\\nUnitsMax=9", NULL).units_max == 9);

        /* The number is that of the first line */
        (void) load_line("UnitsMax=\\\n\\\nx", "got 'x'");

        clear();
        put("/etc/qosd.conf", "[QoS]\nLeasesPerUserMax=1\\\n\n\nUnitsMax=x\n");
        said = load(&c);
        check(strstr(said, "/etc/qosd.conf:5: "));
        check(c.leases_per_uid_max == 1);
}

static void test_long_lines(void) {
        static char line[1U << 20];
        char text[16384];
        Config c;
        char *said;

        memset(line, '5', sizeof(line));
        memcpy(line, "[QoS]\nUnitsMax=", strlen("[QoS]\nUnitsMax="));
        memcpy(line + sizeof(line) - strlen("\nUnitsMax=4\n"), "\nUnitsMax=4\n", strlen("\nUnitsMax=4\n"));
        clear();
        put_bytes("/etc/qosd.conf", line, sizeof(line));
        said = load(&c);
        check(strstr(said, "/etc/qosd.conf:2: longer than 4096 bytes"));
        check(c.units_max == 4);

        /* Many short lines with continuations */
        strcpy(text, "[QoS]\nUnitsMax=");
        for (unsigned i = 0; i < 3000; i++)
                strcat(text, "5 \\\n");
        strcat(text, "\nUnitsMax=4\n");
        clear();
        put("/etc/qosd.conf", text);
        check(strstr(load(&c), "longer than 4096 bytes"));
        check(c.units_max == 4);
}

static void test_nul(void) {
        static const char bytes[] = "[QoS]\nUnitsMax=5\0\nLeasesPerUserMax=3\n";
        Config c;

        clear();
        put_bytes("/etc/qosd.conf", bytes, sizeof(bytes) - 1);
        check(strstr(load(&c), "/etc/qosd.conf:2: not UTF-8 text"));
        check(c.units_max == 256 && c.leases_per_uid_max == 3);
}

static void test_precedence(void) {
        Config c;

        clear();
        put("/usr/lib/qosd.conf", "[QoS]\nUnitsMax=1\nLeasesPerUserMax=1\n");
        check(*load(&c) == 0 && c.units_max == 1);
        put("/run/qosd.conf", "[QoS]\nUnitsMax=2\n");
        /* one main file, not both */
        check(*load(&c) == 0 && c.units_max == 2 && c.leases_per_uid_max == 64);
        put("/etc/qosd.conf", "[QoS]\nUnitsMax=3\n");
        check(*load(&c) == 0 && c.units_max == 3);

        /* Drop-ins of all directories together, by name, after the main file */
        put("/usr/lib/qosd.conf.d/50-a.conf", "[QoS]\nUnitsMax=4\nLeasesPerUserMax=4\n");
        check(*load(&c) == 0 && c.units_max == 4 && c.leases_per_uid_max == 4);
        put("/etc/qosd.conf.d/40-b.conf", "[QoS]\nUnitsMax=5\nUnitsPerUserMax=5\n");
        check(*load(&c) == 0 && c.units_max == 4 && c.units_per_uid_max == 5);

        /* One hides all of the same name */
        put("/run/qosd.conf.d/50-a.conf", "[QoS]\nUnitsMax=6\n");
        check(*load(&c) == 0 && c.units_max == 6 && c.leases_per_uid_max == 64);
        put("/etc/qosd.conf.d/50-a.conf", "");
        check(*load(&c) == 0 && c.units_max == 5 && c.leases_per_uid_max == 64);

        /* Backups and hidden files are ignored */
        put("/etc/qosd.conf.d/60-c.conf~", "[QoS]\nUnitsMax=7\n");
        put("/etc/qosd.conf.d/.60-c.conf", "[QoS]\nUnitsMax=7\n");
        check(*load(&c) == 0 && c.units_max == 5);
}

static void test_unreadable(void) {
        char path[128];
        Config c;

        clear();
        put("/etc/qosd.conf/x", "");    /* a directory */
        put("/etc/qosd.conf.d/a.conf/x", "");
        put("/etc/qosd.conf.d/b.conf", "[QoS]\nUnitsMax=3\n");
        check(strstr(load(&c), "Failed to read"));
        check(c.units_max == 3);

        clear();
        (void) snprintf(path, sizeof(path), "%s/etc", root);
        check(mkdir(path, 0755) >= 0);
        strcat(path, "/qosd.conf");
        check(symlink("qosd.conf", path) >= 0);
        (void) load(&c);
        check(config_is_default(&c));
}

static void test_exporter(void) {
        static const struct {
                const char *line, *warning;     /* NULL: none */
                ExpositionScope scope;
                unsigned buckets_max, series_max;
        } table[] = {
                { "",                        NULL, EXPOSITION_REQUESTS, 160,   10000    },
                { "Export=requests",         NULL, EXPOSITION_REQUESTS, 160,   10000    },
                { "Export=probes",           NULL, EXPOSITION_PROBES,   160,   10000    },
                { "Export=everything",       NULL, EXPOSITION_EVERYTHING, 160, 10000    },
                { "Export=probes\nExport=",  NULL, EXPOSITION_REQUESTS, 160,   10000    },
                { "ExportBucketsMax=0",      NULL, EXPOSITION_REQUESTS, 0,     10000    },
                { "ExportBucketsMax=29",     NULL, EXPOSITION_REQUESTS, 29,    10000    },
                { "ExportBucketsMax=10000",  NULL, EXPOSITION_REQUESTS, 10000, 10000    },
                { "ExportSeriesMax=0",       NULL, EXPOSITION_REQUESTS, 160,   0        },
                { "ExportSeriesMax=10000000", NULL, EXPOSITION_REQUESTS, 160,  10000000 },
                { "ExportSeriesMax=7\nExportSeriesMax=", NULL, EXPOSITION_REQUESTS, 160, 10000 },
                { "Export=all",
                  ":2: Export= must be requests, probes or everything, got 'all', ignoring.",
                  EXPOSITION_REQUESTS, 160, 10000 },
                { "ExportBucketsMax=28",
                  ":2: ExportBucketsMax= must be 0 or a number from 29 to 10000, got '28', ignoring.",
                  EXPOSITION_REQUESTS, 160, 10000 },
                { "ExportBucketsMax=10001",  "got '10001'", EXPOSITION_REQUESTS, 160, 10000 },
                { "ExportSeriesMax=10000001",
                  ":2: ExportSeriesMax= must be a number from 0 to 10000000, got '10000001', ignoring.",
                  EXPOSITION_REQUESTS, 160, 10000 },
                { "ExportSeriesMax=-1",      "got '-1'", EXPOSITION_REQUESTS, 160, 10000 },
                { "ExportSeriesMax=4294967297", "got '4294967297'", EXPOSITION_REQUESTS, 160, 10000 },
                { "Exports=probes",          ":2: unknown setting 'Exports'",
                  EXPOSITION_REQUESTS, 160, 10000 },
                { "[QoS]\nExport=probes",    ":2: unknown section '[QoS]', expected '[Exporter]'",
                  EXPOSITION_REQUESTS, 160, 10000 },
        };
        ExpositionOptions o;

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                char text[256], *said;

                (void) snprintf(text, sizeof(text), "[Exporter]\n%s\n", table[i].line);
                clear();
                put("/etc/qosd-exporter.conf", text);
                said = load_any(NULL, &o);
                check(table[i].warning ? strstr(said, table[i].warning) &&
                                         strstr(said, "/etc/qosd-exporter.conf:") : *said == 0);
                check(o.scope == table[i].scope && o.buckets_max == table[i].buckets_max &&
                      o.series_max == table[i].series_max);
        }

        /* Its own files, independent of the daemon's */
        clear();
        put("/etc/qosd.conf", "[QoS]\nUnitsMax=7\n");
        put("/usr/lib/qosd-exporter.conf", "[Exporter]\nExport=probes\nExportSeriesMax=1\n");
        put("/run/qosd-exporter.conf.d/50-a.conf", "[Exporter]\nExportSeriesMax=2\n");
        check(*load_any(NULL, &o) == 0 && o.scope == EXPOSITION_PROBES && o.series_max == 2);
        put("/etc/qosd-exporter.conf.d/50-a.conf", "[Exporter]\nExportBucketsMax=29\n");
        check(*load_any(NULL, &o) == 0 && o.series_max == 1 && o.buckets_max == 29);
}

int main(void) {
        check(mkdtemp(root));
        log_set_max_level(LOG_WARNING);
        (void) unsetenv("JOURNAL_STREAM");

        test_nothing();
        test_settings();
        test_times();
        test_bad_lines();
        test_good_lines_around_bad_ones();
        test_continuation();
        test_long_lines();
        test_nul();
        test_precedence();
        test_unreadable();
        test_exporter();

        check(nftw(root, remove_entry, 16, FTW_DEPTH|FTW_PHYS) >= 0);
        return EXIT_SUCCESS;
}

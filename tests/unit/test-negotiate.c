/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Which format a scraper gets: the headers of those in use, and those that nobody would write. */

#include "check.h"
#include "negotiate.h"

#define OPENMETRICS EXPOSITION_OPENMETRICS
#define PROMETHEUS EXPOSITION_PROMETHEUS
#define PROTOBUF (HAVE_PROTOBUF ? EXPOSITION_PROTOBUF : EXPOSITION_OPENMETRICS)

static void test_formats(void) {
        static const struct {
                Exposition format;
                const char *accept;
        } cases[] = {
                { PROMETHEUS,  NULL },
                { PROMETHEUS,  "" },
                { PROMETHEUS,  "*/*" },
                { PROMETHEUS,  "text/plain" },
                { PROMETHEUS,  "text/*" },
                { PROMETHEUS,  "text/plain;version=0.0.4" },
                { PROMETHEUS,  "text/html, */*;q=0.1" },
                { PROMETHEUS,  "application/json" },
                { OPENMETRICS, "application/openmetrics-text" },
                { OPENMETRICS, "APPLICATION/OpenMetrics-Text ; Version=1.0.0" },
                { OPENMETRICS, "application/openmetrics-text; version=\"1.0.0\"; charset=utf-8" },
                { OPENMETRICS, "application/*" },
                { PROMETHEUS,  "application/openmetrics-text;version=2.0.0" },
                /* Prometheus 2.53 and 3 */
                { OPENMETRICS, "application/openmetrics-text;version=1.0.0;q=0.5,"
                               "application/openmetrics-text;version=0.0.1;q=0.4,"
                               "text/plain;version=0.0.4;q=0.3,*/*;q=0.2" },
                { OPENMETRICS, "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
                               "application/openmetrics-text;version=0.0.1;q=0.5,"
                               "text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2" },
                /* The same with native histograms */
                { PROTOBUF,    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
                               "encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,"
                               "application/openmetrics-text;version=0.0.1;q=0.4,"
                               "text/plain;version=0.0.4;q=0.3,*/*;q=0.2" },
                { OPENMETRICS, "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
                               "encoding=text,application/openmetrics-text;q=0.1" },
                { OPENMETRICS, "application/vnd.google.protobuf;proto=another.Message;encoding=delimited,"
                               "application/openmetrics-text;q=0.1" },
                { PROMETHEUS,  "text/plain;version=0.0.4;q=0.8,application/openmetrics-text;q=0.5" },
                { PROMETHEUS,  "application/openmetrics-text;q=0" },
                { OPENMETRICS, "application/openmetrics-text;q=0.001,text/plain;q=0" },
                { OPENMETRICS, "text/plain;q=0.3,application/openmetrics-text;q=1.000" },
                /* What is no quality is none */
                { PROMETHEUS,  "application/openmetrics-text;q=2,text/plain;q=0.1" },
                { PROMETHEUS,  "application/openmetrics-text;q=,text/plain;q=0.1" },
                { PROMETHEUS,  "application/openmetrics-text;q=0.0001,text/plain;q=0.1" },
                { PROMETHEUS,  "application/openmetrics-text;q=1.001,text/plain;q=0.1" },
                { PROMETHEUS,  "application/openmetrics-text;q=-1,text/plain;q=0.1" },
                /* Separators within quotes, and without end */
                { PROMETHEUS,  "text/plain;x=\",application/openmetrics-text\"" },
                { OPENMETRICS, "application/openmetrics-text;x=\"a;q=0\"" },
                { OPENMETRICS, "application/openmetrics-text;x=\"" },
                { OPENMETRICS, ",,;;, application/openmetrics-text ,;" },
                { PROMETHEUS,  "application/openmetrics-textual" },
                { PROMETHEUS,  ";q=1" },
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++)
                check(negotiate_format(cases[i].accept) == cases[i].format);
}

static void test_gzip(void) {
        static const struct {
                const char *accept;
                bool gzip;
        } cases[] = {
                { NULL,                         false },
                { "",                           false },
                { "identity",                   false },
                { "gzip",                       true  },
                { "GZip",                       true  },
                { "x-gzip",                     true  },
                { "deflate, gzip;q=0.5, br",    true  },
                { "gzip;q=0",                   false },
                { "gzip;q=0.000",               false },
                { "gzip;q=0, *",                false },
                { "*, gzip;q=0",                false },
                { "*",                          true  },
                { "*;q=0",                      false },
                { "zstd, *;q=0, gzip;q=1",      true  },
                { "gzipped",                    false },
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++)
                check(negotiate_gzip(cases[i].accept) == cases[i].gzip);
}

int main(void) {
        test_formats();
        test_gzip();
        return 0;
}

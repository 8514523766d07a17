/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <arpa/inet.h>
#include <asm/unistd.h>
#include <inttypes.h>
#include <math.h>

#include "custom-window.h"
#include "parse.h"
#include "quantiles.h"
#include "snapshot-json.h"
#include "window.h"

/* Names of the system calls of this architecture. */
static const char *const syscall_names[] = {
#include "syscall-names.inc"
};

/* What is larger is no error number. */
#define ERRNO_END 4096

static void address_format(const uint8_t *bytes, char *ret, size_t size) {
        const struct in6_addr *a = (const struct in6_addr*) bytes;

        if (!inet_ntop(IN6_IS_ADDR_V4MAPPED(a) ? AF_INET : AF_INET6,
                       IN6_IS_ADDR_V4MAPPED(a) ? bytes + 12 : bytes, ret, (socklen_t) size))
                *ret = 0;
}

/* As text; what has no name is shown as a number. */
static void label_format(const CustomLabel *l, const uint8_t *bytes, custom_device_t device_name,
                         char ret[static CUSTOM_LABEL_SIZE]) {
        const char *name = NULL;
        uint64_t number;
        int error;

        memcpy(&number, bytes, sizeof(number));
        error = (int) number;
        switch (l->decoder) {
        case DECODER_STRING:
        case DECODER_INTERFACE: /* the program has read its name: numbers are those of a namespace */
        case DECODER_SYMBOL:    /* and so of functions, addresses of which the daemon may not see */
                (void) snprintf(ret, CUSTOM_LABEL_SIZE, "%.*s", (int) QOS_CUSTOM_LABEL_SIZE,
                                (const char*) bytes);
                utf8_sanitize(ret);
                return;
        case DECODER_ADDRESS:
                address_format(bytes, ret, CUSTOM_LABEL_SIZE);
                return;
        case DECODER_DEVICE:
                device_name((uint32_t) number, ret, CUSTOM_LABEL_SIZE);
                return;
        case DECODER_ERRNO:
                /* Functions of the kernel return negative ones, also some without a name */
                name = strerrorname_np(error > -ERRNO_END && error < 0 ? -error : error);
                break;
        case DECODER_SYSCALL:
                name = number < ELEMENTSOF(syscall_names) ? syscall_names[number] : NULL;
                break;
        case DECODER_MAP:
                for (size_t i = 0; i < l->n_values; i++)
                        if (l->values[i].key == number)
                                name = l->values[i].name;
                break;
        case DECODER_UINT:
        case _DECODER_MAX:
        default:
                break;
        }
        if (name)
                (void) snprintf(ret, CUSTOM_LABEL_SIZE, "%s", name);
        else if (l->decoder == DECODER_ERRNO)
                (void) snprintf(ret, CUSTOM_LABEL_SIZE, "%i", error);
        else
                (void) snprintf(ret, CUSTOM_LABEL_SIZE, "%" PRIu64, number);
}

void custom_labels_format(const CustomMetric *m, const CustomRow *row, custom_device_t device_name,
                          char ret[static CUSTOM_LABELS_SIZE]) {
        char value[CUSTOM_LABEL_SIZE], *p = ret;

        for (size_t i = 0; i < m->place.labels; i++) {
                if (i > 0)
                        *p++ = ',';
                label_format(m->labels + i, row->labels.bytes[i], device_name, value);
                for (const char *c = value; *c; c++) {
                        if (*c == ',' || *c == '\\')
                                *p++ = '\\';
                        *p++ = *c;
                }
        }
        *p = 0;
}

static void write_rate(JsonWriter *w, uint64_t count, uint64_t covered) {
        if (covered > 0)
                json_writer_add_real(w, "rate", (double) count * (double) NSEC_PER_SEC / (double) covered);
}

static void cells_get_distribution(const CustomMetric *m, const uint64_t *cells, unsigned minimum_samples,
                                   Distribution *ret) {
        WindowBins bins = { .schema = m->place.labels > 0 ? 0 : HISTOGRAM_COARSE_SCHEMA, .sum = cells[0] };
        uint64_t lower;

        for (unsigned i = 0; i < window_bins_number(bins.schema); i++) {
                bins.count[i] = cells[1 + i];
                /* The largest sample is not known, but the bound of its bin */
                if (bins.count[i] > 0)
                        window_bins_get_bounds(bins.schema, i, &lower, &bins.max);
        }
        window_bins_get_distribution(&bins, minimum_samples, ret);
}

static void write_histogram(JsonWriter *w, const CustomMetric *m, const uint64_t *cells, uint64_t covered,
                            unsigned minimum_samples) {
        Distribution d;

        cells_get_distribution(m, cells, minimum_samples, &d);
        json_writer_add_unsigned(w, "count", d.count);
        write_rate(w, d.count, covered);
        json_writer_add_unsigned(w, "sum", cells[0]);
        if (d.count == 0)
                return;
        json_writer_add_unsigned(w, "mean", d.mean);
        for (size_t i = 0; i < QUANTILES; i++) {
                uint64_t value = distribution_get_quantile(&d, quantile_table + i);

                /* Longer than the histogram reaches */
                if (value != ABSENT)
                        json_writer_add_unsigned(w, quantile_table[i].name, value);
        }
}

static void write_values(JsonWriter *w, const CustomMetric *m, const uint64_t *cells, uint64_t covered,
                         unsigned minimum_samples) {
        switch (m->place.type) {
        case QOS_CUSTOM_COUNTER:
                json_writer_add_unsigned(w, "count", cells[0]);
                write_rate(w, cells[0], covered);
                break;
        case QOS_CUSTOM_GAUGE:
                json_writer_add_unsigned(w, "value", cells[0]);
                break;
        default:
                write_histogram(w, m, cells, covered, minimum_samples);
                break;
        }
}

bool custom_cells_are_empty(const CustomMetric *m, const uint64_t *cells) {
        for (uint32_t i = 0; i < custom_metric_cells(m); i++)
                if (cells[i] != 0)
                        return false;
        return true;
}

static void write_labels(const CustomMetric *m, const CustomRow *row, custom_device_t device_name,
                         JsonWriter *w) {
        char text[CUSTOM_LABEL_SIZE];

        if (row->rest) {
                json_writer_add_boolean(w, "rest", true);
                return;
        }
        json_writer_open_object(w, "labels", strlen("labels"));
        for (size_t i = 0; i < m->place.labels; i++) {
                label_format(m->labels + i, row->labels.bytes[i], device_name, text);
                json_writer_add_string(w, m->labels[i].name, text);
        }
        json_writer_close(w);
}

static void write_entries(const CustomReading *reading, const CustomMetric *m, size_t metric,
                          unsigned minimum_samples, custom_device_t device_name, JsonWriter *w) {
        json_writer_open_array(w, "entries");
        for (const CustomRow *row = reading->rows; row < reading->rows + reading->n_rows; row++) {
                const uint64_t *cells = reading->cells + row->cells;

                if (row->metric != metric || custom_cells_are_empty(m, cells))
                        continue;
                json_writer_open_object(w, NULL, 0);
                write_labels(m, row, device_name, w);
                write_values(w, m, cells, reading->covered, minimum_samples);
                json_writer_close(w);
        }
        json_writer_close(w);
}

void custom_reading_sum(const CustomReading *reading, const CustomManifest *m, size_t metric,
                        uint64_t ret[static CUSTOM_SUM_CELLS]) {
        memset(ret, 0, CUSTOM_SUM_CELLS * sizeof(uint64_t));
        for (const CustomRow *row = reading->rows; row < reading->rows + reading->n_rows; row++)
                for (uint32_t c = 0; row->metric == metric && c < custom_metric_cells(m->metrics + metric);
                     c++)
                        ret[c] += reading->cells[row->cells + c];
}

static double present_or_nan(uint64_t value) {
        return value == ABSENT ? NAN : (double) value;
}

double custom_cells_get(const CustomMetric *m, const uint64_t *cells, uint64_t covered, CustomField field,
                        unsigned minimum_samples) {
        bool histogram = m->place.type == QOS_CUSTOM_HISTOGRAM;
        Distribution d = {};
        uint64_t count;

        if ((m->place.type == QOS_CUSTOM_GAUGE) != (field == CUSTOM_VALUE))
                return NAN;
        if (histogram)
                cells_get_distribution(m, cells, minimum_samples, &d);
        count = histogram ? d.count : cells[0];
        if (field == CUSTOM_VALUE || field == CUSTOM_COUNT)
                return (double) (field == CUSTOM_VALUE ? cells[0] : count);
        if (field == CUSTOM_RATE)
                return covered > 0 ? (double) count * (double) NSEC_PER_SEC / (double) covered : NAN;
        if (!histogram)
                return NAN;
        if (field == CUSTOM_SUM)
                return (double) cells[0];
        if (field == CUSTOM_MEAN)
                return count > 0 ? (double) d.mean : NAN;
        return present_or_nan(distribution_get_quantile(&d, quantile_table + (field - CUSTOM_QUANTILE)));
}

double custom_reading_get(const CustomReading *reading, const CustomManifest *m, const char *metric,
                          CustomField field, unsigned minimum_samples) {
        uint64_t sum[CUSTOM_SUM_CELLS];

        for (size_t i = 0; i < m->n_metrics; i++) {
                if (!streq(m->metrics[i].name, metric))
                        continue;
                custom_reading_sum(reading, m, i, sum);
                return custom_cells_get(m->metrics + i, sum, reading->covered, field, minimum_samples);
        }
        return NAN;
}

void custom_reading_write(const CustomReading *reading, const CustomManifest *m, unsigned minimum_samples,
                          custom_device_t device_name, JsonWriter *w) {
        json_writer_open_object(w, m->name, strlen(m->name));
        for (size_t i = 0; i < m->n_metrics; i++) {
                const CustomMetric *metric = m->metrics + i;
                uint64_t sum[CUSTOM_SUM_CELLS];

                custom_reading_sum(reading, m, i, sum);
                json_writer_open_object(w, metric->name, strlen(metric->name));
                write_values(w, metric, sum, reading->covered, minimum_samples);
                if (metric->place.labels > 0 && device_name)
                        write_entries(reading, metric, i, minimum_samples, device_name, w);
                json_writer_close(w);
        }
        json_writer_close(w);
}

void custom_reading_export(const CustomReading *reading, const CustomManifest *m,
                           custom_device_t device_name, JsonWriter *w) {
        for (const CustomRow *row = reading->rows; row < reading->rows + reading->n_rows; row++) {
                const CustomMetric *metric = m->metrics + row->metric;
                const uint64_t *cells = reading->cells + row->cells;
                bool histogram = metric->place.type == QOS_CUSTOM_HISTOGRAM;

                if (metric->place.labels > 0 && custom_cells_are_empty(metric, cells))
                        continue;
                json_writer_open_object(w, NULL, 0);
                json_writer_add_string(w, "probe", m->name);
                json_writer_add_string(w, "metric", metric->name);
                json_writer_add_string(w, "type", histogram ? "histogram" :
                                       metric->place.type == QOS_CUSTOM_COUNTER ? "counter" : "gauge");
                json_writer_add_string(w, "unit", metric->unit);
                json_writer_add_string(w, "description", metric->description);
                if (metric->place.labels > 0)
                        write_labels(metric, row, device_name, w);
                if (histogram)
                        exported_bins_write(w, metric->place.labels > 0 ? 0 : HISTOGRAM_COARSE_SCHEMA,
                                            cells + 1, cells[0]);
                else
                        json_writer_add_unsigned(w, "value", cells[0]);
                json_writer_close(w);
        }
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "custom-manifest.h"

static const char *const custom_types[_QOS_CUSTOM_TYPES] = {
        [QOS_CUSTOM_COUNTER]   = "counter",
        [QOS_CUSTOM_GAUGE]     = "gauge",
        [QOS_CUSTOM_HISTOGRAM] = "histogram",
};

static const char *const custom_decoders[_DECODER_MAX] = {
        [DECODER_UINT]      = "uint",
        [DECODER_MAP]       = "map",
        [DECODER_ERRNO]     = "errno",
        [DECODER_DEVICE]    = "device",
        [DECODER_ADDRESS]   = "address",
        [DECODER_STRING]    = "string",
        [DECODER_INTERFACE] = "interface",
        [DECODER_SYMBOL]    = "symbol",
        [DECODER_SYSCALL]   = "syscall",
};

static int table_find(const char *const *table, size_t n, const char *s, uint32_t *ret) {
        for (size_t i = 0; s && i < n; i++)
                if (streq(table[i], s)) {
                        *ret = (uint32_t) i;
                        return 0;
                }
        return -EBADMSG;
}

static const char* text_of(sd_json_variant *v, const char *field) {
        return sd_json_variant_string(sd_json_variant_by_key(v, field));
}

static int copy_text(sd_json_variant *v, const char *field, char **ret) {
        const char *text = text_of(v, field);

        if (!text)
                return -EBADMSG;
        return free_and_strdup(ret, text);
}

static size_t elements_of(sd_json_variant *v, const char *field) {
        sd_json_variant *array = sd_json_variant_by_key(v, field);

        return array && sd_json_variant_is_array(array) ? sd_json_variant_elements(array) : 0;
}

static sd_json_variant* element_of(sd_json_variant *v, const char *field, size_t i) {
        return sd_json_variant_by_index(sd_json_variant_by_key(v, field), i);
}

CustomManifest* custom_manifest_free(CustomManifest *m) {
        if (!m)
                return NULL;

        for (size_t i = 0; i < m->n_metrics; i++) {
                CustomMetric *metric = m->metrics + i;

                for (size_t k = 0; k < QOS_CUSTOM_LABELS; k++) {
                        for (size_t n = 0; n < metric->labels[k].n_values; n++)
                                free(metric->labels[k].values[n].name);
                        free(metric->labels[k].values);
                        free(metric->labels[k].name);
                }
                free(metric->name);
                free(metric->unit);
                free(metric->description);
        }
        free(m->metrics);
        for (size_t i = 0; i < m->n_programs; i++) {
                free(m->programs[i].name);
                free(m->programs[i].type);
                free(m->programs[i].path);
                free(m->programs[i].symbol);
                free(m->programs[i].provider);
        }
        free(m->programs);
        free(m->name);
        free(m->description);
        free(m->sha256);
        free(m);
        return NULL;
}

static int label_read(sd_json_variant *v, CustomLabel *ret) {
        uint32_t decoder = 0;
        size_t n;
        int r;

        r = copy_text(v, "name", &ret->name);
        if (r >= 0)
                r = table_find(custom_decoders, _DECODER_MAX, text_of(v, "decoder"), &decoder);
        if (r < 0)
                return r;
        ret->decoder = decoder;
        n = elements_of(v, "values");
        ret->values = new0(CustomValue, n);
        if (!ret->values)
                return -ENOMEM;
        for (; ret->n_values < n; ret->n_values++) {
                sd_json_variant *value = element_of(v, "values", ret->n_values);

                ret->values[ret->n_values].key = sd_json_variant_unsigned(
                        sd_json_variant_by_key(value, "key"));
                r = copy_text(value, "name", &ret->values[ret->n_values].name);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int metric_read(sd_json_variant *v, CustomMetric *ret) {
        size_t n = elements_of(v, "labels");
        int r;

        if (n > QOS_CUSTOM_LABELS)
                return -EBADMSG;
        r = copy_text(v, "name", &ret->name);
        if (r >= 0)
                r = copy_text(v, "unit", &ret->unit);
        if (r >= 0)
                r = copy_text(v, "description", &ret->description);
        if (r >= 0)
                r = table_find(custom_types, _QOS_CUSTOM_TYPES, text_of(v, "type"), &ret->place.type);
        for (size_t i = 0; i < n && r >= 0; i++)
                r = label_read(element_of(v, "labels", i), ret->labels + i);
        ret->place.labels = (uint32_t) n;
        return r;
}

static int copy_optional_text(sd_json_variant *v, const char *field, char **ret) {
        return text_of(v, field) ? copy_text(v, field, ret) : 0;
}

static int program_read(sd_json_variant *v, CustomProgram *ret) {
        int r;

        r = copy_text(v, "program", &ret->name);
        if (r >= 0)
                r = copy_text(v, "type", &ret->type);
        if (r >= 0)
                r = copy_optional_text(v, "path", &ret->path);
        if (r >= 0)
                r = copy_optional_text(v, streq(ret->type, "usdt") ? "name" : "symbol", &ret->symbol);
        if (r >= 0)
                r = copy_optional_text(v, "provider", &ret->provider);
        if (r < 0)
                return r;
        if (!streq(ret->type, "perf-event"))
                return ret->path && ret->symbol ? 0 : -EBADMSG;
        ret->perf_type = (uint32_t) sd_json_variant_unsigned(sd_json_variant_by_key(v, "perfType"));
        ret->perf_config = sd_json_variant_unsigned(sd_json_variant_by_key(v, "perfConfig"));
        ret->frequency = sd_json_variant_unsigned(sd_json_variant_by_key(v, "frequency"));
        return ret->frequency > 0 ? 0 : -EBADMSG;
}

/* The keys of all metrics, then the cells of all, then the checkpoints. */
static int manifest_lay_out(CustomManifest *m) {
        uint32_t element = QOS_CUSTOM_HEADER + 1, cells = 0;

        for (size_t i = 0; i < m->n_metrics; i++) {
                CustomMetric *metric = m->metrics + i;

                if (metric->place.labels > 0) {
                        metric->place.keys = element;
                        element += QOS_CUSTOM_KEYS;
                }
                metric->place.cells = cells;
                cells += custom_metric_entries(metric) * custom_metric_cells(metric);
        }
        m->layout.version = QOS_CUSTOM_VERSION;
        m->layout.cells = element;
        m->layout.n = (cells + QOS_CUSTOM_WORDS - 1) / QOS_CUSTOM_WORDS;
        m->layout.checkpoints = m->layout.cells + m->layout.n;
        m->layout.elements = m->layout.checkpoints + QOS_CHECKPOINTS * m->layout.n;
        return m->layout.elements > QOS_CUSTOM_ELEMENTS_MAX ? -E2BIG : 0;
}

int custom_manifest_new(sd_json_variant *v, CustomManifest **ret) {
        _cleanup_(custom_manifest_freep) CustomManifest *m = NULL;
        size_t n_metrics = elements_of(v, "metrics"), n_programs = elements_of(v, "programs");
        int r;

        if (n_metrics == 0 || n_metrics > QOS_CUSTOM_METRICS)
                return -EBADMSG;
        m = new0(CustomManifest, 1);
        if (!m)
                return -ENOMEM;
        r = copy_text(v, "name", &m->name);
        if (r >= 0)
                r = copy_text(v, "description", &m->description);
        if (r >= 0)
                r = copy_text(sd_json_variant_by_key(v, "object"), "sha256", &m->sha256);
        if (r < 0)
                return r;

        m->metrics = new0(CustomMetric, n_metrics);
        m->programs = new0(CustomProgram, n_programs);
        if (!m->metrics || !m->programs)
                return -ENOMEM;
        while (m->n_metrics < n_metrics && r >= 0) {
                r = metric_read(element_of(v, "metrics", m->n_metrics), m->metrics + m->n_metrics);
                m->n_metrics++;
        }
        while (m->n_programs < n_programs && r >= 0) {
                r = program_read(element_of(v, "programs", m->n_programs), m->programs + m->n_programs);
                m->n_programs++;
        }
        if (r >= 0)
                r = manifest_lay_out(m);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(m);
        return 0;
}

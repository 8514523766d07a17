/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Manifests of custom probes: what is invalid, with its line and reason, and that the published schema
 * accepts what the parser accepts.
 *
 *     test-manifest SCHEMA DIRECTORY */

#include <dirent.h>
#include <limits.h>
#include <stdarg.h>

#include <libxml/parser.h>
#include <libxml/relaxng.h>

#include "check.h"
#include "manifest.h"

static xmlRelaxNG *schema;

static void ignore_error(void *context, const char *format, ...) {
}

static bool schema_accepts(const char *text, size_t size) {
        xmlRelaxNGValidCtxt *context = xmlRelaxNGNewValidCtxt(schema);
        xmlDoc *document = xmlReadMemory(text, (int) size, NULL, NULL, XML_PARSE_NONET|XML_PARSE_NOERROR);
        int r;

        check(context && document);
        xmlRelaxNGSetValidErrors(context, ignore_error, ignore_error, NULL);
        r = xmlRelaxNGValidateDoc(context, document);
        xmlFreeDoc(document);
        xmlRelaxNGFreeValidCtxt(context);
        check(r >= 0);
        return r == 0;
}

/* Returns the manifest as JSON; NULL: it is invalid. */
static char* parse(const char *text, size_t size, ManifestError *ret_error) {
        sd_json_variant *manifest = NULL;
        char *json = NULL;
        int r;

        r = manifest_parse(text, size, ret_error, &manifest);
        if (r >= 0)
                check(sd_json_variant_format(manifest, 0, &json) >= 0);
        else
                check(r == -EINVAL && !manifest);
        (void) sd_json_variant_unref(manifest);
        return json;
}

static void check_invalid(const char *text, unsigned line, const char *reason) {
        _cleanup_(manifest_error_done) ManifestError error = {};
        _cleanup_free_ char *json = parse(text, strlen(text), &error);

        if (json || error.line != line || !strstr(error.message, reason)) {
                fprintf(stderr, "%s\nline %u: %s, expected line %u: %s\n", text, error.line,
                        error.message ?: json, line, reason);
                exit(EXIT_FAILURE);
        }
}

#define METRIC "<metric name='a' type='counter' description='d'/>"
#define PROBE(content) "<probe description='d'>\n" content "</probe>"
#define LABEL(content) PROBE("<metric name='a' type='counter' description='d'>\n" content "</metric>")

static void test_invalid(void) {
        check_invalid("", 0, "empty");
        check_invalid("<probe", 1, "Couldn't find end of Start Tag");
        check_invalid("<probes description='d'/>", 1, "root element is not <probe>");
        check_invalid("<probe/>", 1, "<probe> has no attribute 'description'");
        check_invalid("<probe description='d'/>", 1, "<probe> has no <metric>");
        check_invalid("<probe description=''/>", 1, "'description' of <probe> is invalid");
        check_invalid("<probe description='&#1;'/>", 1, "invalid xmlChar");
        check_invalid("<probe description='&#10;'/>", 1, "without control characters");
        check_invalid("<probe description='d' X-SHA256='12'/>", 1, "expected 64 lower-case");
        check_invalid("<probe description='d' description='d'/>", 1, "redefined");
        check_invalid("<probe description='d' colour='red'/>", 1, "unknown attribute 'colour'");
        check_invalid("<probe xmlns='urn:x' description='d'/>", 1, "has a namespace");
        check_invalid(PROBE("words"), 2, "<probe> contains text");
        check_invalid(PROBE("<metrics/>"), 2, "<probe> contains <metrics>, expected <metric>");
        check_invalid(PROBE(METRIC METRIC), 2, "two metrics 'a'");
        check_invalid(PROBE("<metric name='A' type='counter' description='d'/>"), 2,
                      "'A' is not a valid name");
        check_invalid(PROBE("<metric name='a.b' type='counter' description='d'/>"), 2,
                      "'a.b' is not a valid name");
        check_invalid(PROBE("<metric name='a' type='rate' description='d'/>"), 2,
                      "'type' of <metric> is 'rate', expected one of: counter, gauge, histogram");
        check_invalid(PROBE("<metric name='a' type='counter' unit='km' description='d'/>"), 2,
                      "expected one of: 1, bytes, ns");
        check_invalid(PROBE("<metric name='a' type='histogram' unit='bytes' description='d'/>"), 2,
                      "expected 'ns'");
        check_invalid(LABEL("<value key='1' name='x'/>"), 3, "<metric> contains <value>, expected <label>");
        check_invalid(LABEL("<label name='l' decoder='regexp'/>"), 3, "expected one of: uint, map");
        check_invalid(LABEL("<label name='unit' decoder='uint'/>"), 3, "'unit', which is reserved");
        check_invalid(LABEL("<label name='l' decoder='map'/>"), 3, "has no <value>");
        check_invalid(LABEL("<label name='l' decoder='uint'><value key='1' name='x'/></label>"), 3,
                      "with the decoder 'map' only");
        check_invalid(LABEL("<label name='l' decoder='map'><value key='-1' name='x'/></label>"), 3,
                      "expected an unsigned integer");
        check_invalid(
                LABEL("<label name='l' decoder='map'><value key='18446744073709551616' name='x'/></label>"),
                3, "expected an unsigned integer");
        check_invalid(LABEL("<label name='l' decoder='map'><value key='1' name='x'/>\n"
                            "<value key='01' name='y'/></label>"),
                      4, "two values with the key");
        check_invalid(LABEL("<label name='l' decoder='uint'/><label name='l' decoder='uint'/>"), 3,
                      "two labels 'l'");
        check_invalid(LABEL("<label name='l' decoder='uint'/><label name='m' decoder='uint'/>"
                            "<label name='n' decoder='uint'/>\n<label name='o' decoder='uint'/>"), 4,
                      "more than 3 labels");
        check_invalid(PROBE("<perf-event program='p' type='software' config='cycles' frequency='1'/>"), 2,
                      "expected a software event");
        check_invalid(PROBE("<perf-event program='p' type='raw' config='12' frequency='1'/>"), 2,
                      "hexadecimal");
        check_invalid(PROBE("<perf-event program='p' type='software' config='cpu-clock' frequency='0'/>"), 2,
                      "expected 1 to 10000");
        check_invalid(
                PROBE("<perf-event program='p' type='software' config='cpu-clock' frequency='10001'/>"), 2,
                "expected 1 to 10000");
        check_invalid(PROBE("<uprobe program='p' path='libc.so' symbol='malloc'/>"), 2,
                      "expected an absolute path");
        check_invalid(PROBE("<uprobe program='p' path='/usr/../x' symbol='malloc'/>"), 2,
                      "expected an absolute path");
        check_invalid(PROBE("<uprobe program='p' path='/x' symbol='a b'/>"), 2, "Symbol 'a b' is invalid");
        check_invalid(PROBE("<usdt program='p' path='/x' provider='a'/>"), 2, "no attribute 'name'");
        check_invalid(PROBE("<uprobe program='p' path='/x' symbol='a'/>"
                            "<uretprobe program='p' path='/x' symbol='a'/>"),
                      2, "two elements for the program 'p'");
}

static void test_hostile(void) {
        _cleanup_(manifest_error_done) ManifestError error = {}, large = {};
        _cleanup_free_ char *json = NULL, *text = malloc(CUSTOM_MANIFEST_SIZE_MAX + 2);
        size_t n;
        FILE *f;

        check_invalid(
                "<?xml version='1.0'?>\n<!DOCTYPE probe [<!ENTITY a 'aaaa'>]>\n<probe description='&a;'/>",
                2, "document type");
        check_invalid("<!DOCTYPE probe SYSTEM 'file:///etc/passwd'><probe description='d'/>", 1,
                      "document type");
        check_invalid("<probe description='&a;'/>", 1, "Entity 'a' not defined");
        check_invalid("<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>\n<a>", 2, "deeper than 16");

        /* 10,000 metrics: as many as fit */
        f = fmemopen(text, CUSTOM_MANIFEST_SIZE_MAX + 2, "w");
        check(f);
        n = (size_t) fprintf(f, "<probe description='d'>\n");
        for (unsigned i = 0; n < CUSTOM_MANIFEST_SIZE_MAX - 100; i++)
                n += (size_t) fprintf(f, "<metric name='m%u' type='counter' description='d'/>\n", i);
        n += (size_t) fprintf(f, "</probe>");
        check(fclose(f) == 0 && n < CUSTOM_MANIFEST_SIZE_MAX);
        json = parse(text, n, &error);
        check(!json && error.line == 34 && strstr(error.message, "more than 32 metrics"));

        memset(text + n, ' ', CUSTOM_MANIFEST_SIZE_MAX + 1 - n);
        json = parse(text, CUSTOM_MANIFEST_SIZE_MAX + 1, &large);
        check(!json && large.line == 0 && strstr(large.message, "larger than 64 KiB"));
}

static void test_valid(void) {
        static const char text[] =
                "<?xml version='1.0' encoding='UTF-8'?>\n<!-- comment -->\n<probe description='a &lt; b'>\n"
                "<metric name='drops' type='counter' description='d'>"
                "<label name='why' decoder='map'><value key='2' name='no socket'/></label></metric>"
                "<metric name='wait' type='histogram' description='w'/>"
                "<perf-event program='p' type='software' config='cpu-clock' frequency='99'/></probe>\n";
        ManifestError error;
        _cleanup_free_ char *json = parse(text, strlen(text), &error);

        check(json);
        check(streq(
                json,
                "{\"description\":\"a < b\",\"metrics\":[{\"name\":\"drops\",\"type\":\"counter\",\"unit\":"
                "\"1\",\"description\":\"d\",\"labels\":[{\"name\":\"why\",\"decoder\":\"map\",\"values\":"
                "[{\"key\":2,\"name\":\"no socket\"}]}]},{\"name\":\"wait\",\"type\":\"histogram\","
                "\"unit\":\"ns\",\"description\":\"w\"}],\"programs\":[{\"program\":\"p\",\"type\":"
                "\"perf-event\",\"perfType\":1,\"perfConfig\":0,\"frequency\":99}]}"));
        check(schema_accepts(text, strlen(text)));
}

/* The schema accepts what the parser accepts, and the other way around. */
static void test_schema(const char *directory) {
        unsigned accepted = 0, rejected = 0;
        DIR *d = opendir(directory);

        check(d);
        for (const struct dirent *entry; (entry = readdir(d));) {
                _cleanup_(manifest_error_done) ManifestError error = {};
                char path[PATH_MAX], text[CUSTOM_MANIFEST_SIZE_MAX];
                _cleanup_free_ char *json = NULL;
                size_t n;
                FILE *f;

                if (entry->d_name[0] == '.')
                        continue;
                (void) snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
                f = fopen(path, "re");
                check(f);
                n = fread(text, 1, sizeof(text), f);
                check(fclose(f) == 0);
                json = parse(text, n, &error);
                if (json) {
                        check(schema_accepts(text, n));
                        accepted++;
                } else
                        rejected++;
        }
        (void) closedir(d);
        check(accepted >= 2 && rejected >= 5);
        check(!schema_accepts("<probe description='d'/>", strlen("<probe description='d'/>")));
        check(!schema_accepts(PROBE("<metric name='A' type='counter' description='d'/>"),
                              strlen(PROBE("<metric name='A' type='counter' description='d'/>"))));
}

static void test_names(void) {
        _cleanup_free_ char *name = manifest_get_name("/etc/qosd/probes.d/oomKills2.xml");

        check(streq_ptr(name, "oomKills2"));
        check(!manifest_get_name("oom-kills.xml") && !manifest_get_name("x/.xml") &&
              !manifest_get_name("oom"));
        check(!manifest_name_is_valid("") && !manifest_name_is_valid("1a") &&
              !manifest_name_is_valid("a_b"));
        check(manifest_name_is_valid("abcdefghijklmnopqrstuvwxyzabcdef"));
        check(!manifest_name_is_valid("abcdefghijklmnopqrstuvwxyzabcdefg"));
}

int main(int argc, char **argv) {
        xmlRelaxNGParserCtxt *context;

        check(argc == 3);
        context = xmlRelaxNGNewParserCtxt(argv[1]);
        schema = xmlRelaxNGParse(context);
        xmlRelaxNGFreeParserCtxt(context);
        check(schema);

        test_valid();
        test_invalid();
        test_hostile();
        test_schema(argv[2]);
        test_names();

        xmlRelaxNGFree(schema);
        xmlCleanupParser();
        return 0;
}

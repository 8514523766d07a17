/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <ctype.h>
#include <strings.h>

#include "negotiate.h"

/* Quality 1, in thousandths, as qualities have up to three decimals. */
#define QUALITY_ONE 1000U

/* Part of a header, without spaces around it. */
typedef struct Token {
        const char *s;
        size_t n;
} Token;

/* Returns the next part up to a separator outside of quotes. False: end of the header. */
static bool token_next(const char **p, const char *end, char separator, Token *ret) {
        const char *s = *p, *e;
        bool quotes = false;

        if (!s || s >= end)
                return false;
        for (e = s; e < end && (quotes || *e != separator); e++)
                if (*e == '"')
                        quotes = !quotes;
        *p = e < end ? e + 1 : end;

        while (s < e && isspace((unsigned char) *s))
                s++;
        while (e > s && isspace((unsigned char) e[-1]))
                e--;
        *ret = (Token) { s, (size_t) (e - s) };
        return true;
}

static bool token_is(Token t, const char *s) {
        return t.n == strlen(s) && strncasecmp(t.s, s, t.n) == 0;
}

/* Returns the value of "name=value" without quotes. False: another parameter. */
static bool token_get(Token t, const char *name, Token *ret) {
        size_t n = strlen(name);

        if (t.n <= n || t.s[n] != '=' || strncasecmp(t.s, name, n) != 0)
                return false;
        *ret = (Token) { t.s + n + 1, t.n - n - 1 };
        if (ret->n >= 2 && ret->s[0] == '"' && ret->s[ret->n - 1] == '"')
                *ret = (Token) { ret->s + 1, ret->n - 2 };
        return true;
}

/* Returns "0.3" as 300. Invalid qualities are 0, not acceptable. */
static unsigned parse_quality(Token t) {
        unsigned q = 0, scale = QUALITY_ONE / 10;

        if (t.n == 0 || t.n > strlen("0.000") || (t.s[0] != '0' && t.s[0] != '1') ||
            (t.n > 1 && t.s[1] != '.'))
                return 0;
        if (t.s[0] == '1')
                q = QUALITY_ONE;
        for (size_t i = 2; i < t.n; i++, scale /= 10) {
                if (!isdigit((unsigned char) t.s[i]))
                        return 0;
                q += (unsigned) (t.s[i] - '0') * scale;
        }
        return q <= QUALITY_ONE ? q : 0;
}

Exposition negotiate_format(const char *accept) {
        static const struct {
                const char *type, *range;
                struct {
                        const char *name, *value;
                } parameters[2];        /* required values of parameters, if given */
        } offers[_EXPOSITION_MAX] = {
                [EXPOSITION_OPENMETRICS] = { "application/openmetrics-text", "application/*",
                                             { { "version", "1.0.0" } } },
                [EXPOSITION_PROMETHEUS]  = { "text/plain", "text/*", { { "version", "0.0.4" } } },
                [EXPOSITION_PROTOBUF]    = { "application/vnd.google.protobuf", "application/*",
                                             { { "proto",    "io.prometheus.client.MetricFamily" },
                                               { "encoding", "delimited" } } },
        };
        const char *end = accept ? accept + strlen(accept) : NULL;
        /* By format: quality and specificity of the most specific entry that matches */
        unsigned quality[_EXPOSITION_MAX] = {}, specific[_EXPOSITION_MAX] = {};
        Exposition best = EXPOSITION_PROMETHEUS;
        Token entry;

        while (token_next(&accept, end, ',', &entry)) {
                const char *p = entry.s, *e = entry.s + entry.n, *parameters;
                Token type, parameter, value;

                if (!token_next(&p, e, ';', &type))
                        continue;
                parameters = p;

                for (Exposition f = 0; f < _EXPOSITION_MAX; f++) {
                        unsigned q = QUALITY_ONE, s;
                        bool matches = true;

                        /* Drafts are not offered */
                        if (!exposition_is_supported(f) || !offers[f].type)
                                continue;
                        if (token_is(type, offers[f].type))
                                s = 3;
                        else if (token_is(type, offers[f].range))
                                s = 2;
                        else if (token_is(type, "*/*"))
                                s = 1;
                        else
                                continue;

                        p = parameters;
                        while (token_next(&p, e, ';', &parameter)) {
                                if (token_get(parameter, "q", &value))
                                        q = parse_quality(value);
                                for (size_t i = 0; i < ELEMENTSOF(offers[f].parameters); i++) {
                                        const char *name = offers[f].parameters[i].name;

                                        if (!name || !token_get(parameter, name, &value))
                                                continue;
                                        s = 4;
                                        if (!token_is(value, offers[f].parameters[i].value))
                                                matches = false;
                                }
                        }
                        if (!matches)
                                continue;
                        if (s > specific[f] || (s == specific[f] && q > quality[f])) {
                                specific[f] = s;
                                quality[f] = q;
                        }
                }
        }

        for (Exposition f = 0; f < _EXPOSITION_MAX; f++)
                if (quality[f] > quality[best] ||
                    (quality[f] > 0 && quality[f] == quality[best] && specific[f] > specific[best]))
                        best = f;
        return best;
}

bool negotiate_gzip(const char *accept_encoding) {
        const char *end = accept_encoding ? accept_encoding + strlen(accept_encoding) : NULL;
        unsigned quality = 0;
        bool named = false;
        Token entry;

        while (token_next(&accept_encoding, end, ',', &entry)) {
                const char *p = entry.s, *e = entry.s + entry.n;
                Token coding, parameter, value;
                unsigned q = QUALITY_ONE;
                bool gzip;

                if (!token_next(&p, e, ';', &coding))
                        continue;
                gzip = token_is(coding, "gzip") || token_is(coding, "x-gzip");
                if (!gzip && (named || !token_is(coding, "*")))
                        continue;
                while (token_next(&p, e, ';', &parameter))
                        if (token_get(parameter, "q", &value))
                                q = parse_quality(value);
                quality = q;
                named = named || gzip;
        }
        return quality > 0;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What is text, against the library that refuses all else. */

#include <systemd/sd-json.h>

#include "check.h"
#include "parse.h"

static bool is_json(const char *s) {
        sd_json_variant *v = NULL;
        int r;

        r = sd_json_variant_new_string(&v, s);
        sd_json_variant_unref(v);
        return r >= 0;
}

static void expect_mended(const char *s, const char *mended) {
        char buffer[64];

        check(text_is_valid(s, strlen(s)) == streq(s, mended));
        (void) snprintf(buffer, sizeof(buffer), "%s", s);
        utf8_sanitize(buffer);
        check(streq(buffer, mended));
}

static void test_examples(void) {
        expect_mended("", "");
        expect_mended("/run/caf\xc3\xa9.sock", "/run/caf\xc3\xa9.sock");
        expect_mended("\xe2\x82\xac\xf0\x9f\x98\x80", "\xe2\x82\xac\xf0\x9f\x98\x80");
        expect_mended("\xff", "?");
        expect_mended("caf\xe9", "caf?");
        expect_mended("a\nb\x7f\x1b", "a?b??");
        expect_mended("\xc2\x85", "??"); /* a control character, too */
        expect_mended("cut\xe2\x82", "cut??");
        expect_mended("\xc0\x80\xe0\x80\x80\xf0\x80\x80\x80", "?????????"); /* longer than need be */
        expect_mended("\xed\xa0\x80", "???");
        expect_mended("\xf4\x90\x80\x80", "????");
        expect_mended("\xef\xbf\xbf\xef\xb7\x90", "??????");

        /* Where it ends is said */
        check(text_is_valid("\xc3\xa9", 2) && !text_is_valid("\xc3\xa9", 1));
        check(!text_is_valid("a\0b", 3) && text_is_valid("a\tb", 3));
}

/* Whatever it was, JSON takes it, and what is text by then it was before or is "?". */
static void test_all(void) {
        static const unsigned char ends[] = { 0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xb7, 0xbe,
                                              0xbf, 0xc0, 0xff };

        for (unsigned a = 1; a < 256; a++)
                for (unsigned b = 1; b < 256; b++)
                        for (size_t c = 0; c < ELEMENTSOF(ends); c++)
                                for (size_t d = 0; d < ELEMENTSOF(ends); d++) {
                                        const char before[] = { (char) a, (char) b, (char) ends[c],
                                                                (char) ends[d], 0 };
                                        char s[sizeof(before)];

                                        memcpy(s, before, sizeof(s));
                                        utf8_sanitize(s);
                                        check(strlen(s) == strlen(before) && is_json(s));
                                        check(!text_is_valid(before, strlen(before)) || is_json(before));
                                }
}

/* A swap of two letters is one typo. */
static void test_distance(void) {
        check(text_distance("", "") == 0);
        check(text_distance("abc", "") == 3);
        check(text_distance("", "abc") == 3);
        check(text_distance("nginx", "nginx") == 0);
        check(text_distance("nignx", "nginx") == 1);
        check(text_distance("ginx", "nginx") == 1);
        check(text_distance("nginxx", "nginx") == 1);
        check(text_distance("ngimx", "nginx") == 1);
        check(text_distance("gnnix", "nginx") == 2);
        check(text_distance("kitten", "sitting") == 3);
}

int main(void) {
        test_distance();
        test_examples();
        test_all();
        return 0;
}

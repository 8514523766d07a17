/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Arguments of qos-balance, a word a line: accepted ones are within the limits, refused ones have a
 * message. */

#include <math.h>

#include "arguments.h"
#include "check.h"
#include "fuzz.h"

#define WORDS_MAX 600

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = NULL, *said = NULL;
        char *words[WORDS_MAX + 1] = { (char*) "qos-balance" };
        FILE *saved = stderr, *f;
        size_t length;
        Arguments a;
        int n = 1, r;

        text = strndup((const char*) data, size);
        check(text);
        for (char *w = text, *end; w && n < WORDS_MAX; w = end ? end + 1 : NULL) {
                end = strchr(w, '\n');
                if (end)
                        *end = 0;
                words[n++] = w;
        }

        f = open_memstream(&said, &length);
        check(f);
        stderr = f;
        r = arguments_parse(n, words, &a);
        stderr = saved;
        check(fclose(f) == 0);

        check(r == 0 || r == -EINVAL);
        check((r < 0) == (length > 0));
        if (r < 0 || a.help)
                return 0;
        check(a.n_batch > 0 && a.n_batch < (unsigned) n);
        check(a.quantile >= 0.5 && a.quantile < 1);
        if (a.release)
                return 0;
        check(*a.unit && a.target > 0 && a.target <= TARGET_MAX_NSEC && a.n_batch <= BATCH_MAX);
        for (unsigned i = 0; i < a.n_batch; i++) {
                check(may_be_held_back(a.batch[i], a.unit));
                for (unsigned k = 0; k < i; k++)
                        check(!streq(a.batch[i], a.batch[k]));
        }
        return 0;
}

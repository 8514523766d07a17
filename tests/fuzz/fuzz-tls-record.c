/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The records of TLS (bpf/protocols/tls-record.h), of both sides of a connection: the same code that runs in
 * the kernel. The first byte is where the input is cut, the second one which part is the client's. However
 * it is cut, it means the same, except for a fatal alert of the server, which is only known as a whole. */

#include "fuzz.h"
#include "util.h"

#include "tls-record.h"

#define check(condition)                                                                                \
        do {                                                                                            \
                if (!(condition))                                                                       \
                        abort();                                                                        \
        } while (false)

struct meaning {
        struct tls t;
        size_t application;     /* bytes in records of requests or responses, without headers */
        bool lost;
};

static struct meaning understand(const uint8_t *data, size_t size, size_t client, size_t cut) {
        struct meaning m = {};

        for (size_t at = 0; at < size && !m.lost;) {
                bool out = at >= client;
                size_t end = MIN(out ? size : client, at + cut);
                uint64_t word = 0;
                uint32_t r, left;

                for (size_t i = 0; i < 8 && at + i < end; i++)
                        word |= (uint64_t) data[at + i] << (8 * i);
                left = out ? m.t.out.left : m.t.in.left;
                r = tls_step(&m.t, out, word, end - at);
                check(TLS_STEP_TAKEN(r) > 0 && TLS_STEP_TAKEN(r) <= end - at);
                at += TLS_STEP_TAKEN(r);
                if (left > 0 && r & TLS_STEP_APPLICATION)
                        m.application += TLS_STEP_TAKEN(r);
                m.lost = r & TLS_STEP_LOST;
        }
        return m;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct meaning whole, cut;
        size_t client;

        if (size < 2)
                return 0;
        client = (size - 2) * data[1] / 255;

        whole = understand(data + 2, size - 2, client, SIZE_MAX / 2);
        cut = understand(data + 2, size - 2, client, data[0] % 16 + 1U);
        cut.t.failed |= whole.t.failed & TLS_FAILED_SERVER;
        check(whole.lost == cut.lost && whole.application == cut.application);
        check(memcmp(&whole.t, &cut.t, sizeof(whole.t)) == 0);
        return 0;
}

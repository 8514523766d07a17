/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <stdint.h>

#include "check.h"
#include "send-wait.h"

/* The first part of a response of two is on its way, and nothing else. */
static struct send_state sent(void) {
        return (struct send_state) {
                .snd_una = UINT32_MAX - 50, .snd_nxt = 49, .write_seq = 49, .snd_sml = 49,
                .snd_wnd = 65536, .max_window = 65536, .mss = 1448,
                .packets_out = 1, .in_network = 1, .cwnd = 10,
                .srtt = 30, .min_rtt = 20,
        };
}

static void test_nagle(void) {
        struct send_state s = sent();

        check(send_wait_classify(&s) == QOS_SEND_WAITS);
        s.write_seq += 100;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_NAGLE);

        /* A full segment is sent, as is any with TCP_NODELAY */
        s.write_seq = s.snd_nxt + s.mss;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_OTHER);
        s.write_seq = s.snd_nxt + s.mss - 1;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_NAGLE);
        s.nonagle = 1;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_OTHER);
        s.nonagle = SEND_NAGLE_CORK;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_CORK);
        s.nonagle = 0;

        /* The last segment that was not full is acknowledged, those after it are not */
        s.snd_sml = s.snd_una;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_OTHER);
        s.snd_sml = s.snd_una + 1;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_NAGLE);

        /* What does not fit into the windows waits for these */
        s.in_network = s.cwnd = 1;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_PATH);
        s.cwnd = 10;
        s.snd_wnd = s.snd_nxt - s.snd_una;
        check(send_wait_classify(&s) != QOS_SEND_WAIT_NAGLE);
}

static void test_window(void) {
        struct send_state s = sent();

        /* All is acknowledged, and the client does not read */
        s.snd_una = s.snd_nxt;
        s.packets_out = s.in_network = 0;
        s.snd_wnd = 0;
        check(send_wait_classify(&s) == QOS_SEND_WAITS);
        s.write_seq += 100000;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_WINDOW);
        s.snd_wnd = s.mss;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_OTHER);
        s.snd_wnd--;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_WINDOW);

        /* Full of data on its way; of less than it was */
        s.snd_wnd = 20 * s.mss;
        s.max_window = s.snd_wnd;
        s.snd_una = s.snd_nxt - s.snd_wnd;
        s.packets_out = 20;
        s.in_network = 20;
        s.cwnd = 100;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_WINDOW_FULL);
        s.max_window = 2 * s.snd_wnd + 2;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_WINDOW);
        s.max_window = s.snd_wnd;
        s.srtt = 41;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_PATH);

        /* The client takes back what it has offered */
        s.srtt = 40;
        s.snd_wnd -= 1000;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_WINDOW_FULL);
}

static void test_buffer(void) {
        struct send_state s = sent();

        s.nospace = 1;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_BUFFER);

        /* One segment may be acknowledged late without any queue on the path */
        s.srtt = 40000;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_BUFFER);
        s.packets_out = s.in_network = 3;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_PATH);
        s.srtt = 40;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_BUFFER);
        s.cwnd = 3;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_PATH);
        s.cwnd = 10;
        s.ca_state = SEND_CA_RECOVERY;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_PATH);
        s.ca_state = 0;
        s.throttled = 1;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_PATH);
        s.throttled = 0;
        s.packets_out = 0;
        check(send_wait_classify(&s) == QOS_SEND_WAITS);
}

static void test_path(void) {
        struct send_state s = sent();

        s.write_seq += 100000;
        s.cwnd = 1;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_PATH);
        s.cwnd = 2;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_OTHER);
        s.throttled = 1;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_PATH);
        s.throttled = 0;
        s.paced = 1;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_PATH);
        s.paced = 0;
        s.ca_state = SEND_CA_RECOVERY;
        check(send_wait_classify(&s) == QOS_SEND_WAIT_PATH);

        /* Read while it was changing */
        s.write_seq = s.snd_nxt - 1;
        check(send_wait_classify(&s) == QOS_SEND_WAITS);
}

int main(void) {
        test_nagle();
        test_window();
        test_buffer();
        test_path();
        return 0;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Output in JSON, and exit status, of verbs. */

#include "qosctl.h"
#include "terminal.h"

int status_combine(int a, int b) {
        a = a < 0 ? STATUS_FAILED : a;
        b = b < 0 ? STATUS_FAILED : b;

        if (a == STATUS_OK || a == b)
                return b;
        return b == STATUS_OK ? a : STATUS_FAILED;
}

int json_print(sd_json_variant *v) {
        int r;

        if (arg_json == JSON_OFF)
                return 0;

        if (arg_json == JSON_PRETTY)
                pager_open();
        r = sd_json_variant_dump(v, SD_JSON_FORMAT_FLUSH |
                                 (arg_json == JSON_PRETTY ? SD_JSON_FORMAT_PRETTY : SD_JSON_FORMAT_NEWLINE) |
                                 (terminal_style()->colors ? SD_JSON_FORMAT_COLOR : 0), stdout, NULL);
        return r < 0 ? log_failure(r, "Failed to print JSON: %m") : 0;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Which time is recorded of page faults of which the kernel skips begins and ends. */

#include "check.h"
#include "page-fault.h"

int main(void) {
        struct page_fault f = {};

        /* Both seen; the kernel has counted it, or is to try again */
        page_fault_begin(&f, 100, 0x1000, 7);
        check(page_fault_end(&f, 130, 0x1000, 8) == 30);
        page_fault_begin(&f, 200, 0x1000, 8);
        check(page_fault_end(&f, 215, 0x1000, 8) == 15);

        /* An end without a begin records nothing, whichever came before */
        check(page_fault_end(&f, 300, 0x1000, 9) == 0);

        /* The end of one and the begin of another are skipped: not the time between them */
        page_fault_begin(&f, 400, 0x1000, 9);
        check(page_fault_end(&f, 900400, 0x2000, 11) == 0);
        check(page_fault_end(&f, 900500, 0x1000, 11) == 0);
        page_fault_begin(&f, 1000000, 0x1000, 11);
        check(page_fault_end(&f, 1900000, 0x1000, 13) == 0);

        /* What comes after that is recorded again */
        page_fault_begin(&f, 2000000, 0x3000, 13);
        check(page_fault_end(&f, 2000007, 0x3000, 14) == 7);
        return 0;
}

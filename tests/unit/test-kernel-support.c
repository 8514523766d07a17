/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Kernels on which nothing can be measured, and the error on each. */

#include "util.h"

#include "check.h"
#include "kernel-support.h"

static void expect(const char *release, const char *lockdown, const char *want) {
        _cleanup_free_ char *reason = NULL;

        check(kernel_support_classify(release, lockdown, &reason) == (want ? -EOPNOTSUPP : 0));
        check(want ? strstr(reason, want) != NULL : !reason);
}

int main(int argc, char *argv[]) {
        expect("6.12.107+deb13-amd64", NULL, NULL);
        expect("6.12", NULL, NULL);
        expect("6.18.44", "[none] integrity confidentiality\n", NULL);
        expect("7.0.0-rc1", "none [integrity] confidentiality\n", NULL);
        expect("10.1.2", NULL, NULL);
        expect("custom", NULL, NULL);

        expect("6.11.9-amd64", NULL, "Linux 6.12 or newer is required, this is Linux 6.11.9-amd64");
        expect("6.1.0", NULL, "this is Linux 6.1.0");
        expect("5.15.0-100-generic", NULL, "this is Linux 5.15.0-100-generic");
        expect("6.18.44", "none integrity [confidentiality]\n", "confidentiality");
        expect("5.10.0", "none integrity [confidentiality]\n", "this is Linux 5.10.0");
        return 0;
}

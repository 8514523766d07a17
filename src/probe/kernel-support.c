/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <sys/utsname.h>

#include "kernel-support.h"

/* First version with bpf_dynptr_from_skb() in tracepoint programs. Without it, nothing can be parsed, and
 * requests on Unix sockets have no time of reading. */
#define RELEASE_MAJOR 6U
#define RELEASE_MINOR 12U

#define LOCKDOWN_PATH "/sys/kernel/security/lockdown"

int kernel_support_classify(const char *release, const char *lockdown, char **ret_reason) {
        unsigned major, minor;

        /* Ignore releases that do not begin with a version */
        if (sscanf(release, "%u.%u", &major, &minor) == 2 &&
            (major < RELEASE_MAJOR || (major == RELEASE_MAJOR && minor < RELEASE_MINOR))) {
                if (asprintf(ret_reason, "Linux %u.%u or newer is required, this is Linux %s", RELEASE_MAJOR,
                             RELEASE_MINOR, release) < 0)
                        return -ENOMEM;
                return -EOPNOTSUPP;
        }

        /* The current mode is in brackets */
        if (lockdown && strstr(lockdown, "[confidentiality]")) {
                *ret_reason = strdup(
                        "The kernel is locked down in confidentiality mode, in which BPF programs may not "
                        "read kernel memory");
                return *ret_reason ? -EOPNOTSUPP : -ENOMEM;
        }

        return 0;
}

int kernel_support_check(char **ret_reason) {
        _cleanup_close_ int fd = -EBADF;
        struct utsname name;
        char lockdown[128];
        ssize_t n = -1;

        if (uname(&name) < 0)
                return -errno;

        fd = open(LOCKDOWN_PATH, O_RDONLY|O_CLOEXEC);
        if (fd >= 0)
                n = read(fd, lockdown, sizeof(lockdown) - 1);
        if (n >= 0)
                lockdown[n] = 0;
        return kernel_support_classify(name.release, n >= 0 ? lockdown : NULL, ret_reason);
}

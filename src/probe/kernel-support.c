/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include "kernel-support.h"

/* First version with bpf_dynptr_from_skb() in tracepoint programs, without which nothing can be parsed, and
 * requests on Unix sockets have no read time. */
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

/* Checked first, as opening the programs and reading the kernel's types takes 100 ms, at each attach. */
static int bpf_check_permitted(char **ret_reason) {
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};

        if (syscall(SYS_capget, &header, data) < 0)
                return -errno;
        if (data[CAP_TO_INDEX(CAP_BPF)].effective & CAP_TO_MASK(CAP_BPF) ||
            data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN))
                return 0;
        *ret_reason = strdup("BPF programs are not permitted, CAP_BPF is missing");
        return *ret_reason ? -EPERM : -ENOMEM;
}

int kernel_support_check(char **ret_reason) {
        _cleanup_close_ int fd = -EBADF;
        struct utsname name;
        char lockdown[128];
        ssize_t n = -1;
        int r;

        r = bpf_check_permitted(ret_reason);
        if (r < 0)
                return r;
        if (uname(&name) < 0)
                return -errno;

        fd = open(LOCKDOWN_PATH, O_RDONLY|O_CLOEXEC);
        if (fd >= 0)
                n = read(fd, lockdown, sizeof(lockdown) - 1);
        if (n >= 0)
                lockdown[n] = 0;
        return kernel_support_classify(name.release, n >= 0 ? lockdown : NULL, ret_reason);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Preloaded into a program that uses libbpf: refuses to load the BPF program whose name is in
 * REFUSE_PROGRAM, as a kernel that lacks its hook would, loads none while the file in HOLD_PROGRAMS exists,
 * and has the kernel say that its release is that in KERNEL_RELEASE. libbpf calls bpf() through libc's
 * syscall(). */

#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

long syscall(long number, ...) {
        static long (*real)(long, ...) = NULL;
        const char *name = getenv("REFUSE_PROGRAM"), *hold = getenv("HOLD_PROGRAMS");
        long a[6];
        va_list ap;

        va_start(ap, number);
        for (int i = 0; i < 6; i++)
                a[i] = va_arg(ap, long);
        va_end(ap);

        while (number == __NR_bpf && a[0] == BPF_PROG_LOAD && hold && access(hold, F_OK) >= 0)
                (void) usleep(10000);

        if (number == __NR_bpf && a[0] == BPF_PROG_LOAD && name) {
                const union bpf_attr *attr = (const union bpf_attr*) a[1];

                /* The kernel's names are cut to 15 characters. */
                if (strncmp(attr->prog_name, name, sizeof(attr->prog_name) - 1) == 0) {
                        errno = EPERM;
                        return -1;
                }
        }

        if (!real)
                real = (long (*)(long, ...)) dlsym(RTLD_NEXT, "syscall");
        return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int uname(struct utsname *name) {
        const char *release = getenv("KERNEL_RELEASE");
        int r;

        r = (int) syscall(__NR_uname, (long) name, 0L, 0L, 0L, 0L, 0L);
        if (r >= 0 && release)
                (void) snprintf(name->release, sizeof(name->release), "%s", release);
        return r;
}

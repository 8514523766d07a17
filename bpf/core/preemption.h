/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Since Linux 7.0, programs on tracepoints and kernel functions can be preempted, and the kernel skips the
 * runs of a preempted program for all other tasks on that CPU until it continues. Earlier kernels disable
 * preemption themselves; on newer ones the programs do. An interrupt can still preempt a run in the few
 * instructions before the first call and after the last one. */

#include "kernel.h"

#include <linux/version.h>

/* PREEMPTION_OBJECT is defined by the including object, and differs for each: the bpftool of Debian 13 (7.5)
 * does not link objects that declare the same kernel function. libbpf ignores a suffix after three
 * underscores. */
#define PREEMPTION_JOIN(function, object) function##___##object
#define PREEMPTION_NAME(function, object) PREEMPTION_JOIN(function, object)
#define PREEMPTION_KERNEL(function) PREEMPTION_NAME(function, PREEMPTION_OBJECT)

void PREEMPTION_KERNEL(bpf_preempt_disable)(void) __ksym __weak;
void PREEMPTION_KERNEL(bpf_preempt_enable)(void) __ksym __weak;
void PREEMPTION_KERNEL(bpf_local_irq_save)(unsigned long *flags) __ksym __weak;
void PREEMPTION_KERNEL(bpf_local_irq_restore)(unsigned long *flags) __ksym __weak;

extern int LINUX_KERNEL_VERSION __kconfig;

#define runs_are_preemptible() (LINUX_KERNEL_VERSION >= KERNEL_VERSION(7, 0, 0))

static __always_inline void preemption_disable(void) {
        if (runs_are_preemptible())
                PREEMPTION_KERNEL(bpf_preempt_disable)();
}

/* Programs on uprobes are preemptible on all kernels, and a task that preempts one may run the same program
 * on that CPU. Since Linux 6.13 both runs then use the same stack, since programs of this type have one
 * stack per CPU ("private stack"): nothing may be on the stack before the first call, or after the last one.
 * Before Linux 6.15 the verifier rejects calls of global functions in between. */
#define uprobe_runs_can_disable_preemption() (LINUX_KERNEL_VERSION >= KERNEL_VERSION(6, 15, 0))

static __always_inline void preemption_disable_at_uprobe(void) {
        if (uprobe_runs_can_disable_preemption())
                PREEMPTION_KERNEL(bpf_preempt_disable)();
}

static __always_inline void preemption_enable_at_uprobe(void) {
        if (uprobe_runs_can_disable_preemption())
                PREEMPTION_KERNEL(bpf_preempt_enable)();
}

/* Enables preemption with interrupts disabled: a task woken during the run would otherwise preempt it at
 * once. Now it does so when the kernel enables preemption after the run. A function, so that the flags are
 * not on the stack of the caller. */
static __attribute__((noinline)) int preemption_enable_deferred(void) {
        unsigned long flags;

        PREEMPTION_KERNEL(bpf_local_irq_save)(&flags);
        PREEMPTION_KERNEL(bpf_preempt_enable)();
        PREEMPTION_KERNEL(bpf_local_irq_restore)(&flags);
        return 0;
}

/* Costs nothing on older kernels: the verifier removes the branch. */
static __always_inline void preemption_enable(void) {
        if (runs_are_preemptible())
                (void) preemption_enable_deferred();
}

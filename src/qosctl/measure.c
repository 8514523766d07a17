/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* measure */

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/wait.h>

#include "client.h"
#include "format.h"
#include "progress.h"
#include "qosctl.h"
#include "snapshot-view.h"
#include "unit-names.h"
#include "value.h"

/* Exit statuses if the command was not found or not executable, as of env(1) and shells. */
#define STATUS_NOT_FOUND 127
#define STATUS_NOT_RUN 126

/* Sets the mark. If necessary, attaches the unit until the connection ends. ret: reply to Mark(). Returns an
 * exit status. */
static int measure_begin(Client *c, const char *unit, Replies *ret) {
        _cleanup_replies_ Replies lease = REPLIES_INIT;
        int r;

        r = client_callbo(c, QOS_METHOD("Mark"), ret, SD_JSON_BUILD_PAIR_STRING("unit", unit));
        if (!(r > 0 && streq(ret->error, QOS_METHOD("NotAttached"))))
                return r != 0 ? unit_read_fail(r, ret, unit) : STATUS_OK;

        polkit_agent_open();
        (void) sd_varlink_set_relative_timeout(c->link, UINT64_MAX);
        r = client_callbo(c, QOS_METHOD("Attach"), &lease,
                          SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_BOOLEAN("lease", true),
                          SD_JSON_BUILD_PAIR_BOOLEAN("allowInteractiveAuthentication", arg_ask_password));
        polkit_agent_close();
        if (r != 0)
                return unit_fail(r, &lease, "attach", unit);

        replies_done(ret);
        r = client_callbo(c, QOS_METHOD("Mark"), ret,
                          SD_JSON_BUILD_PAIR_STRING("unit", value_string(lease.items[0], "unit") ?: unit));
        return r != 0 ? unit_read_fail(r, ret, unit) : STATUS_OK;
}

/* Waits for a signal, and redraws the progress meanwhile. */
static int signal_wait(const sigset_t *signals, Client *c, const char *unit, siginfo_t *ret) {
        for (;;) {
                uint64_t timeout = progress_get_timeout();
                struct timespec ts = { .tv_sec = (time_t) (timeout / USEC_PER_SEC) };
                int r;

                r = timeout == UINT64_MAX ? sigwaitinfo(signals, ret) : sigtimedwait(signals, ret, &ts);
                if (r >= 0 || errno != EAGAIN)
                        return r;
                progress_update(c, unit);
        }
}

/* Runs the command, forwards signals to it and returns its exit status. */
static int run_command(char **argv, int output, Client *c, const char *unit) {
        static const int passed_on[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM };
        sigset_t waited, before;
        pid_t pid;

        (void) sigemptyset(&waited);
        (void) sigaddset(&waited, SIGCHLD);
        for (size_t i = 0; i < ELEMENTSOF(passed_on); i++)
                (void) sigaddset(&waited, passed_on[i]);
        (void) sigprocmask(SIG_BLOCK, &waited, &before);

        (void) fflush(stdout);
        pid = fork();
        if (pid < 0)
                return log_failure(errno, "Failed to run '%s': %m", argv[0]);
        if (pid == 0) {
                int error;

                (void) sigprocmask(SIG_SETMASK, &before, NULL);
                if (dup2(output, STDOUT_FILENO) >= 0)
                        (void) execvp(argv[0], argv);
                error = log_failure(errno, "Failed to run '%s': %m", argv[0]);
                _exit(error == -ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_RUN);
        }

        for (;;) {
                siginfo_t si;
                int status;

                if (waitpid(pid, &status, WNOHANG) == pid)
                        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);

                /* Signals of the terminal were sent to the command as well */
                if (signal_wait(&waited, c, unit, &si) >= 0 && si.si_signo != SIGCHLD &&
                    si.si_code != SI_KERNEL)
                        (void) kill(pid, si.si_signo);
        }
}

static int print_measurement(Client *c, sd_json_variant *snapshot, char **argv, int status) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *item = NULL;
        const Style *style = terminal_style();
        _cleanup_free_ char *command = NULL, *unit = NULL;
        char over[FORMAT_MAX];
        uint64_t covered = 0, n;
        Reading r = {};
        int k;

        command = text_clean(argv[0], style->utf8);
        unit = text_clean(value_string(snapshot, "unit") ?: "?", style->utf8);
        (void) value_unsigned(snapshot, "covered", &covered);
        (void) printf("\n%s%s%s", color_on(style, COLOR_BOLD), strempty(unit), color_off(style));
        if (value_unsigned(snapshot, "requests.server.count", &n))
                (void) printf(" handled %" PRIu64 " request%s", n, n == 1 ? "" : "s");
        (void) printf(" in %s while '%s' was running", format_duration(over, covered), strempty(command));
        if (status != 0)
                (void) printf(" (%sexit status %d%s)", color_on(style, COLOR_RED), status, color_off(style));
        (void) printf(":\n\n");

        k = sd_json_buildo(&item, SD_JSON_BUILD_PAIR_VARIANT("snapshot", snapshot));
        if (k < 0)
                return log_out_of_memory();
        reading_set(&r, item);
        reading_print_requests(&r);
        k = reading_print_phases(&r, c);
        reading_done(&r);
        return k;
}

int verb_measure(int argc, char **argv) {
        _cleanup_replies_ Replies mark = REPLIES_INIT, reply = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        _cleanup_close_ int output = -EBADF;
        const char *unit;
        int r, status;

        if (argc < 2) {
                (void) log_failure(-EINVAL,
                                   "Expected a command after the unit, as in 'qosctl measure %s -- "
                                   "COMMAND'.",
                                   argv[0]);
                return STATUS_USAGE;
        }

        /* Standard output belongs to the command, standard error is used as by time(1) and perf-stat(1) */
        output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        if (output < 0 || (arg_json == JSON_OFF && dup2(STDERR_FILENO, STDOUT_FILENO) < 0))
                return log_failure(errno, "Failed to redirect standard output: %m");

        r = client_connect(&c);
        if (r < 0)
                return r;
        r = measure_begin(c, argv[0], &mark);
        if (r != STATUS_OK)
                return r;
        unit = value_string(mark.items[0], "unit") ?: argv[0];

        /* No progress on a terminal that the command writes to */
        if (isatty(output) <= 0)
                progress_begin(0, /* interruptible= */ false, "Observing %s", unit);
        status = run_command(argv + 1, output, c, unit);
        progress_end();
        if (status < 0)
                return status;

        /* Responses are counted before the client receives them, so those to the command are included */
        r = client_callbo(c, QOS_METHOD("Get"), &reply,
                          SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_BOOLEAN("sinceMark", true));
        if (r != 0)
                r = unit_read_fail(r, &reply, unit);
        else if (arg_json != JSON_OFF)
                r = json_print(reply.items[0]);
        else
                r = print_measurement(c, reply.items[0], argv + 1, status);

        return status != 0 ? status : r;
}

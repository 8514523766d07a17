/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "attach-listening.h"
#include "progress.h"
#include "qosctl.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

/* Reports that the unit is inactive: the name of an instance may be mistyped. */
static void hint_inactive(Client *c, const char *unit) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        const char *state;

        if (client_call_morebo(c, QOS_METHOD("List"), &replies,
                               SD_JSON_BUILD_PAIR_STRING("unit", unit)) != 0)
                return;
        state = value_string(replies.items[0], "snapshot.activeState");
        if (streq_ptr(state, "inactive") || streq_ptr(state, "failed"))
                (void) log_failure(0, "'%s' is %s: it will be observed when it starts.", unit, state);
}

static int attach_unit(Client *c, const char *unit) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        const char *degraded;
        int r;

        progress_begin(0, /* interruptible= */ false, "Attaching %s", unit);
        r = client_callbo(c, QOS_METHOD("Attach"), &replies, SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_CONDITION(!!arg_probes, "probes",
                                                       SD_JSON_BUILD_STRV(arg_probes)),
                          SD_JSON_BUILD_PAIR_CONDITION(!!arg_excludes, "exclude",
                                                       SD_JSON_BUILD_STRV(arg_excludes)),
                          SD_JSON_BUILD_PAIR_CONDITION(arg_for > 0, "duration",
                                                       SD_JSON_BUILD_UNSIGNED(arg_for)),
                          SD_JSON_BUILD_PAIR_BOOLEAN("allowInteractiveAuthentication", arg_ask_password));
        progress_end();
        if (r != 0)
                return unit_fail(r, &replies, "attach", unit);

        degraded = value_string(replies.items[0], "degraded");
        if (degraded)
                (void) log_failure(0, "%s is attached, but some metrics are unavailable: %s.",
                            value_string(replies.items[0], "unit") ?: unit, degraded);
        hint_inactive(c, value_string(replies.items[0], "unit") ?: unit);

        return json_print(replies.items[0]);
}

int verb_attach(int argc, char **argv) {
        _cleanup_client_ Client *c = NULL;
        _cleanup_names_ Names names = NAMES_INIT;
        int r, status = STATUS_OK;

        if (arg_listening != (argc == 0)) {
                (void) log_failure(-EINVAL, arg_listening ? "Too many arguments: --listening cannot be "
                                                            "combined with unit names." :
                                                            "Too few arguments: 'attach' requires a unit, "
                                                            "or --listening.");
                return STATUS_USAGE;
        }
        if (arg_yes && !arg_listening) {
                (void) log_failure(-EINVAL, "Option --yes requires --listening.");
                return STATUS_USAGE;
        }

        if (!arg_listening)
                status = names_expand_loaded(argc, argv, &names);
        if (status < 0 || status == STATUS_USAGE)
                return status;

        r = client_connect_to_change(&c);
        if (r < 0)
                return r;
        if (arg_listening) {
                status = attach_find_listening(c, &names);
                if (status != STATUS_OK)
                        return status;
        }

        for (size_t i = 0; i < names.n; i++)
                status = status_combine(status, attach_unit(c, names.items[i]));

        if (status == STATUS_OK && names.n > 0 && arg_for == 0 && arg_json == JSON_OFF &&
            isatty(STDERR_FILENO) > 0)
                (void) log_failure(0,
                                   "Attached until qosd is stopped, or the next boot. To attach at each "
                                   "boot: qosctl enable %s%s",
                                   names.items[0], names.n > 1 ? "..." : "");
        return status;
}

/* Reports the remaining holds of a unit. */
static void hint_held(Client *c, const char *unit) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        sd_json_variant *holds;

        if (client_call_morebo(c, QOS_METHOD("List"), &replies,
                               SD_JSON_BUILD_PAIR_STRING("unit", unit)) != 0)
                return;
        holds = value_find(replies.items[0], "holds");
        for (size_t i = 0; holds && i < sd_json_variant_elements(holds); i++) {
                sd_json_variant *hold = sd_json_variant_by_index(holds, i);
                const char *type = value_string(hold, "type"), *owner = value_string(hold, "owner");

                (void) log_failure(0, "'%s' stays attached by %s%s%s.", unit,
                                   streq_ptr(type, "unitFile")      ? "its unit file" :
                                   streq_ptr(type, "configuration") ? "Observe=auto" :
                                   streq_ptr(type, "lease")         ? "a lease" :
                                                                      "another user",
                                   owner ? ": " : "", strempty(owner));
        }
}

static int detach_unit(Client *c, const char *unit) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        int r;

        r = client_callbo(c, QOS_METHOD("Detach"), &replies,
                          SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_BOOLEAN("allowInteractiveAuthentication", arg_ask_password));
        if (r != 0) {
                r = client_fail(r, &replies, "detach '%s'", unit);
                /* STATUS_NOT_ATTACHED is an exit status of verbs that read units only */
                return r == STATUS_NOT_ATTACHED ? STATUS_FAILED : r;
        }

        hint_held(c, unit);
        return json_print(replies.items[0]);
}

/* Only these holds are ended by --all, not leases of other clients. */
static bool has_administrator_hold(sd_json_variant *item) {
        sd_json_variant *holds = value_find(item, "holds");

        for (size_t i = 0; holds && i < sd_json_variant_elements(holds); i++)
                if (streq_ptr(value_string(sd_json_variant_by_index(holds, i), "type"), "administrator"))
                        return true;

        return false;
}

int verb_detach(int argc, char **argv) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        _cleanup_names_ Names names = NAMES_INIT;
        int r, status;

        if (arg_all != (argc == 0)) {
                (void) log_failure(-EINVAL, arg_all ? "Too many arguments: --all cannot be combined with "
                                                      "unit names." :
                                                      "Too few arguments: expected unit names or --all.");
                return STATUS_USAGE;
        }

        r = client_connect_to_change(&c);
        if (r < 0)
                return r;

        status = names_expand_attached(c, argc, argv, &names);
        if (status < 0)
                return status;
        if (status == STATUS_NOT_ATTACHED)
                status = STATUS_FAILED;

        for (size_t i = 0; i < names.n; i++)
                status = status_combine(status, detach_unit(c, names.items[i]));

        if (arg_all) {
                r = client_call_more(c, QOS_METHOD("List"), 0, NULL, &replies);
                if (r != 0)
                        return client_fail(r, &replies, "list units");
                for (size_t i = 0; i < replies.n; i++) {
                        const char *unit = value_string(replies.items[i], "unit");

                        if (unit && has_administrator_hold(replies.items[i]))
                                status = status_combine(status, detach_unit(c, unit));
                }
        }

        return status;
}

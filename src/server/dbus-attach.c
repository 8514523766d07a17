/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Calls that attach and detach units, and set and clear thresholds. */

#include "dbus-client.h"

/* Limit of words in lists of probes and exclusions, and of options, as messages are kept while calls are
 * pending. */
#define WORDS_MAX 64U

/* ---- AttachUnit, DetachUnit --------------------------------------------------------------------------- */

static void on_attached(Manager *m, int error, const QosError *e, Unit *u, void *userdata) {
        Call *c = ASSERT_PTR(userdata);
        _cleanup_free_ char *path = NULL;

        c->attach = NULL;
        if (error >= 0)
                error = unit_get_bus_path(u, &path);
        if (error < 0)
                bus_reply_error(c->message, error, e);
        else
                (void) sd_bus_reply_method_return(c->message, "o", path);

        if (c->running)
                c->running = false; /* call_attach() continues */
        else
                call_finish(c);
}

static void call_attach(Call *c) {
        const AttachRequest request = {
                .name = c->unit,
                .probes = c->probes,
                .excludes = c->excludes,
                .type = c->lease ? HOLD_LEASE : HOLD_ADMINISTRATOR,
                .uid = c->client->uid,
                .owner_uid = c->owner_uid,
                .owner = c->lease ? c->client->sender : NULL,
                .lease_key = c->lease ? c->client : NULL,
                .duration_usec = c->duration_usec,
        };
        AttachOperation *operation = NULL;
        int r;

        c->running = true;
        r = manager_attach(c->client->server->manager, &request, on_attached, c, &operation);
        if (r < 0) {
                bus_reply_error(c->message, r, NULL);
                call_finish(c);
        } else if (!c->running)
                call_finish(c); /* the handler was called */
        else {
                c->running = false;
                c->attach = operation;
        }
}

static void call_detach(Call *c) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        r = manager_detach(c->client->server->manager, c->unit, c->lease ? c->client : NULL, c->owner_uid,
                           &e);
        if (r < 0)
                bus_reply_error(c->message, r, &e);
        else
                (void) sd_bus_reply_method_return(c->message, NULL);
        call_finish(c);
}

static void call_set_threshold(Call *c) {
        const ThresholdRequest request = {
                .unit = c->unit,
                .threshold = c->threshold,
                .source = c->lease ? THRESHOLD_SOURCE_LEASE : THRESHOLD_SOURCE_ADMINISTRATOR,
                .uid = c->client->uid,
                .owner_uid = c->owner_uid,
                .lease_key = c->lease ? c->client : NULL,
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_free_ char *whole = NULL;
        Threshold *t;
        int r;

        r = threshold_set(c->client->server->manager, &request, &t, &e);
        if (r >= 0)
                r = threshold_rule_format(&t->rule, /* named= */ true, &whole);
        if (r < 0)
                bus_reply_error(c->message, r, &e);
        else
                (void) sd_bus_reply_method_return(c->message, "s", whole);
        call_finish(c);
}

static void call_clear_threshold(Call *c) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        r = threshold_clear(c->client->server->manager, c->unit, c->threshold, c->lease ? c->client : NULL,
                            c->owner_uid, &e);
        if (r < 0)
                bus_reply_error(c->message, r, &e);
        else
                (void) sd_bus_reply_method_return(c->message, NULL);
        call_finish(c);
}

const Action action_attach = {
        .name = POLKIT_ACTION_ATTACH,
        .what = "Attaching and detaching units",
        .go_on = call_attach,
        .attaches = true,
};
static const Action action_attach_custom = {
        .name = POLKIT_ACTION_PROBE,
        .what = "Attaching units with custom probes",
        .go_on = call_attach,
        .attaches = true,
};
const Action action_detach = {
        .name = POLKIT_ACTION_ATTACH,
        .what = "Attaching and detaching units",
        .go_on = call_detach,
        .releases = true,
};
const Action action_set = {
        .name = POLKIT_ACTION_CONFIGURE,
        .what = "Setting and clearing thresholds",
        .go_on = call_set_threshold,
};
const Action action_clear = {
        .name = POLKIT_ACTION_CONFIGURE,
        .what = "Setting and clearing thresholds",
        .go_on = call_clear_threshold,
        .releases = true,
};

/* ---- arguments ---------------------------------------------------------------------------------------- */

/* Refuses calls early that would fail later, before the user is prompted for a password, and before long
 * names are stored. */
int check_attached(BusServer *b, sd_bus_message *m, const char *unit, sd_bus_error *error) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;

        if (manager_get_unit(b->manager, unit, &e) ||
            (e.code == QOS_ERROR_NOT_ATTACHED && client_waits(b, m)))
                return 0;
        return bus_error_set_qos(error, -ENXIO, &e);
}

int read_probes(sd_bus_message *m, ProbeMask *ret, sd_bus_error *error) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        ProbeMask probes = 0;
        const char *name;
        unsigned n = 0;
        int r;

        r = sd_bus_message_enter_container(m, 'a', "s");
        if (r < 0)
                return r;
        while ((r = sd_bus_message_read(m, "s", &name)) > 0) {
                ProbeMask probe = probe_mask_from_name(name);

                if (probe == 0) {
                        r = qos_error_set(&e, QOS_ERROR_NO_SUCH_PROBE, name,
                                          "there is no probe '%s', expected " PROBES_EXPECTED,
                                          excerpt(name, (char[EXCERPT_MAX + 1]) {}));
                        return bus_error_set_qos(error, r, &e);
                }
                if (++n > WORDS_MAX)
                        return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                                 "More than %u probes are named", WORDS_MAX);
                probes |= probe;
        }
        if (r < 0)
                return r;

        *ret = probes;
        return sd_bus_message_exit_container(m);
}

static int read_excludes(sd_bus_message *m, ExcludeList *ret, sd_bus_error *error) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        char **words = NULL;
        size_t n = 0;
        int r;

        r = sd_bus_message_read_strv(m, &words);
        if (r < 0)
                return r;
        /* Counts repeated ones, which the list below stores once */
        while (words && words[n])
                n++;
        r = n > WORDS_MAX ? -E2BIG : exclude_list_parse(words, ret, &e);
        strv_free(words);
        if (n > WORDS_MAX)
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                         "More than %u exclusions are named", WORDS_MAX);
        return r < 0 ? bus_error_set_qos(error, r, &e) : 0;
}

static int read_option(sd_bus_message *m, const char *name, AttachOptions *o, sd_bus_error *error) {
        static const struct {
                const char *name, *type;
        } table[] = {
                { "probes", "as" }, { "exclude", "as" }, { "duration_nsec", "t" }, { "lease", "b" },
        };
        const char *type;
        size_t i = 0;
        int r;

        while (i < ELEMENTSOF(table) && !streq(table[i].name, name))
                i++;
        if (i == ELEMENTSOF(table))
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                         "There is no option '%s', expected 'probes', 'exclude', "
                                         "'duration_nsec' or 'lease'",
                                         excerpt(name, (char[EXCERPT_MAX + 1]) {}));
        r = sd_bus_message_peek_type(m, NULL, &type);
        if (r < 0)
                return r;
        if (!streq_ptr(type, table[i].type))
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                         "Option '%s' has type '%.100s', expected '%s'",
                                         name, strempty(type), table[i].type);

        r = sd_bus_message_enter_container(m, 'v', type);
        if (r < 0)
                return r;
        if (streq(name, "probes"))
                r = read_probes(m, &o->probes, error);
        else if (streq(name, "exclude"))
                r = read_excludes(m, &o->excludes, error);
        else
                r = sd_bus_message_read_basic(m, table[i].type[0], streq(name, "lease") ? (void*) &o->lease :
                                              (void*) &o->duration_nsec);
        if (r < 0)
                return r;
        return sd_bus_message_exit_container(m);
}

/* Reads a{sv}. Of options that occur twice, the last one is effective. */
int read_options(sd_bus_message *m, AttachOptions *o, sd_bus_error *error) {
        const char *name;
        unsigned n = 0;
        int r;

        r = sd_bus_message_enter_container(m, 'a', "{sv}");
        if (r < 0)
                return r;
        while ((r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                if (++n > WORDS_MAX)
                        return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                                 "More than %u options are given", WORDS_MAX);
                r = sd_bus_message_read(m, "s", &name);
                if (r >= 0)
                        r = read_option(m, name, o, error);
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
                if (r < 0)
                        return r;
        }
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

int method_attach(BusServer *b, sd_bus_message *m, const char *unit, const AttachOptions *o,
                  sd_bus_error *error) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        Call *c;
        int r;

        if (o->lease && o->duration_nsec != 0)
                return sd_bus_error_set(error, SD_BUS_ERROR_INVALID_ARGS,
                                        "A lease lasts as long as its owner is on the bus: duration_nsec "
                                        "must be 0");

        /* Before the user is prompted for a password */
        if (!manager_get_unit(b->manager, unit, &e) && e.code == QOS_ERROR_INVALID_UNIT_NAME)
                return bus_error_set_qos(error, -EINVAL, &e);

        r = call_new(b, m,
                     manager_probes_are_custom(b->manager, o->probes) ? &action_attach_custom :
                                                                        &action_attach,
                     unit, &c);
        if (r < 0)
                return r;
        c->lease = o->lease;
        c->probes = o->probes;
        c->excludes = o->excludes;
        c->duration_usec = o->duration_nsec == 0 ? USEC_INFINITY : o->duration_nsec / NSEC_PER_USEC;
        return call_submit(c, error);
}

/* ---- thresholds --------------------------------------------------------------------------------------- */

int method_change_threshold(BusServer *b, sd_bus_message *m, const Action *action, sd_bus_error *error) {
        const char *unit, *threshold;
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        ThresholdRule rule;
        int r, lease;
        Call *c;

        r = sd_bus_message_read(m, "ssb", &unit, &threshold, &lease);
        if (r < 0)
                return r;

        /* As in check_attached() */
        if (action == &action_set && threshold_rule_parse(threshold, b->manager->config.default_window_nsec,
                                                          &rule, &e) < 0)
                return bus_error_set_qos(error, -EINVAL, &e);
        r = check_attached(b, m, unit, error);
        if (r < 0)
                return r;
        if (strlen(threshold) > THRESHOLD_LINE_MAX) {
                r = qos_error_set(&e, QOS_ERROR_NO_SUCH_THRESHOLD, threshold, "'%s' has no threshold '%s'",
                                  unit, excerpt(threshold, (char[EXCERPT_MAX + 1]) {}));
                return bus_error_set_qos(error, r, &e);
        }

        r = call_new(b, m, action, unit, &c);
        if (r < 0)
                return r;
        c->lease = lease;
        c->threshold = strdup(threshold);
        if (!c->threshold) {
                call_free(c);
                return -ENOMEM;
        }
        return call_submit(c, error);
}

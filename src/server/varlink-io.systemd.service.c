/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "log.h"
#include "varlink-connection.h"
#include "varlink-io.systemd.service.h"

static SD_VARLINK_DEFINE_METHOD(Ping);

static SD_VARLINK_DEFINE_METHOD(Reload);

static SD_VARLINK_DEFINE_METHOD(
                SetLogLevel,
                SD_VARLINK_FIELD_COMMENT("The highest level of messages that are logged, as in syslog(3): 0 "
                                         "to 7, for debug"),
                SD_VARLINK_DEFINE_INPUT(level, SD_VARLINK_INT, SD_VARLINK_NULLABLE));

static SD_VARLINK_DEFINE_METHOD(
                GetLogLevel,
                SD_VARLINK_FIELD_COMMENT("The highest level of messages that are logged, as in syslog(3)"),
                SD_VARLINK_DEFINE_OUTPUT(level, SD_VARLINK_INT, 0));

SD_VARLINK_DEFINE_INTERFACE(
                io_systemd_service,
                "io.systemd.service",
                SD_VARLINK_INTERFACE_COMMENT("Basic control of a service, as services of systemd have it"),
                SD_VARLINK_SYMBOL_COMMENT("Replies while the service runs"),
                &vl_method_Ping,
                SD_VARLINK_SYMBOL_COMMENT("Reads the configuration again, as 'systemctl reload' "
                                          "does; for root"),
                &vl_method_Reload,
                SD_VARLINK_SYMBOL_COMMENT("Sets the log level until the service ends; for root"),
                &vl_method_SetLogLevel,
                SD_VARLINK_SYMBOL_COMMENT("Returns the log level; for root"),
                &vl_method_GetLogLevel);

static bool connection_may_control(const Connection *c) {
        return c->uid == 0 || c->uid == getuid();
}

int vl_method_ping(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                   void *userdata) {
        int r;

        r = vl_dispatch_none(link, parameters);
        return r != 0 ? r : sd_varlink_reply(link, NULL);
}

int vl_method_reload(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                     void *userdata) {
        Connection *c = ASSERT_PTR(userdata);
        int r;

        r = vl_dispatch_none(link, parameters);
        if (r != 0)
                return r;
        if (!connection_may_control(c))
                return sd_varlink_error(link, SD_VARLINK_ERROR_PERMISSION_DENIED, NULL);

        r = manager_reload(c->server->manager);
        return r < 0 ? sd_varlink_error_errno(link, r) : sd_varlink_reply(link, NULL);
}

int vl_method_set_log_level(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                            void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "level", _SD_JSON_VARIANT_TYPE_INVALID, sd_json_dispatch_uint64, 0, SD_JSON_MANDATORY },
                {}
        };
        Connection *c = ASSERT_PTR(userdata);
        uint64_t level;
        int r;

        r = sd_varlink_dispatch(link, parameters, table, &level);
        if (r != 0)
                return r;
        if (level > LOG_DEBUG)
                return sd_varlink_error_invalid_parameter_name(link, "level");
        if (!connection_may_control(c))
                return sd_varlink_error(link, SD_VARLINK_ERROR_PERMISSION_DENIED, NULL);

        log_set_max_level((int) level);
        return sd_varlink_reply(link, NULL);
}

int vl_method_get_log_level(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                            void *userdata) {
        Connection *c = ASSERT_PTR(userdata);
        int r;

        r = vl_dispatch_none(link, parameters);
        if (r != 0)
                return r;
        if (!connection_may_control(c))
                return sd_varlink_error(link, SD_VARLINK_ERROR_PERMISSION_DENIED, NULL);
        return sd_varlink_replybo(link, SD_JSON_BUILD_PAIR_INTEGER("level", log_get_max_level()));
}

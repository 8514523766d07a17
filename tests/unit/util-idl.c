/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "check.h"
#include "util-idl.h"
#include "util.h"
#include "varlink-org.qosd.QoS.h"

const sd_varlink_symbol* idl_find(sd_varlink_symbol_type_t type, const char *name) {
        for (const sd_varlink_symbol *const *s = vl_interface_org_qosd_QoS.symbols; *s; s++)
                if ((*s)->symbol_type == type && streq((*s)->name, name))
                        return *s;

        fprintf(stderr, "The interface has no '%s'.\n", name);
        exit(EXIT_FAILURE);
}

const sd_varlink_field* idl_find_field(const sd_varlink_symbol *symbol,
                                       sd_varlink_field_direction_t direction, const char *name) {
        for (const sd_varlink_field *f = symbol->fields; f->name; f++)
                if (f->field_type < _SD_VARLINK_FIELD_COMMENT && f->field_direction == direction &&
                    streq(f->name, name))
                        return f;
        return NULL;
}

static bool wrong(const char *name, const char *why, sd_json_variant *v) {
        fprintf(stderr, "Field '%s' %s: ", name, why);
        (void) sd_json_variant_dump(v, SD_JSON_FORMAT_NEWLINE, stderr, NULL);
        return false;
}

static bool value_matches(const sd_varlink_field *f, sd_json_variant *v) {
        switch (f->field_type) {

        case SD_VARLINK_BOOL:
                return sd_json_variant_is_boolean(v) || wrong(f->name, "is no boolean", v);

        case SD_VARLINK_INT:
                return sd_json_variant_is_integer(v) || wrong(f->name, "is no integer", v);

        case SD_VARLINK_FLOAT:
                return sd_json_variant_is_number(v) || wrong(f->name, "is no number", v);

        case SD_VARLINK_STRING:
                return sd_json_variant_is_string(v) || wrong(f->name, "is no string", v);

        case SD_VARLINK_NAMED_TYPE:
                if (f->symbol->symbol_type == SD_VARLINK_ENUM_TYPE) {
                        for (const sd_varlink_field *e = f->symbol->fields; e->name; e++)
                                if (e->field_type == SD_VARLINK_ENUM_VALUE &&
                                    streq_ptr(e->name, sd_json_variant_string(v)))
                                        return true;
                        return wrong(f->name, "is none of the words", v);
                }

                if (!sd_json_variant_is_object(v) || sd_json_variant_elements(v) == 0)
                        return wrong(f->name, "is no object with something in it", v);
                return idl_matches(f->symbol, SD_VARLINK_REGULAR, v);

        default:
                return wrong(f->name, "has a type that nobody uses", v);
        }
}

static bool field_matches(const sd_varlink_field *f, sd_json_variant *v) {
        if (f->field_flags & SD_VARLINK_ARRAY) {
                if (!sd_json_variant_is_array(v))
                        return wrong(f->name, "is no array", v);
                for (size_t i = 0; i < sd_json_variant_elements(v); i++)
                        if (!value_matches(f, sd_json_variant_by_index(v, i)))
                                return false;
                return true;
        }

        if (f->field_flags & SD_VARLINK_MAP) {
                if (!sd_json_variant_is_object(v) || sd_json_variant_elements(v) == 0)
                        return wrong(f->name, "is no map with something in it", v);
                for (size_t i = 1; i < sd_json_variant_elements(v); i += 2)
                        if (!value_matches(f, sd_json_variant_by_index(v, i)))
                                return false;
                return true;
        }

        return value_matches(f, v);
}

bool idl_matches(const sd_varlink_symbol *symbol, sd_varlink_field_direction_t direction,
                 sd_json_variant *object) {
        if (!sd_json_variant_is_object(object))
                return wrong(symbol->name, "is no object", object);

        for (size_t i = 0; i < sd_json_variant_elements(object); i += 2) {
                const char *name = sd_json_variant_string(sd_json_variant_by_index(object, i));
                const sd_varlink_field *f = idl_find_field(symbol, direction, name);

                if (!f)
                        return wrong(name, "is not described", object);
                if (!field_matches(f, sd_json_variant_by_index(object, i + 1)))
                        return false;
        }

        for (const sd_varlink_field *f = symbol->fields; f->name; f++)
                if (f->field_type < _SD_VARLINK_FIELD_COMMENT && f->field_direction == direction &&
                    !(f->field_flags & SD_VARLINK_NULLABLE) && !sd_json_variant_by_key(object, f->name))
                        return wrong(f->name, "is missing", object);

        return true;
}

/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* HPACK (RFC 7541), reduced to the fields that show how an HTTP/2 response ended: `:status`, `grpc-status`,
 * and whether the content is gRPC or an event stream; and to the `:path` of requests, if paths are needed.
 * Names and values of other fields are skipped, Huffman-coded or not.
 *
 * Most fields are sent as references into a table that both sides build up. An entry is identified by the
 * number of entries added after it, so that neither sizes nor evictions have to be known: an entry that is
 * referenced still exists at the sender. Entries that were added before the attach, or are older than the
 * ones stored here, are reported as unknown.
 *
 * Pure: compiled for BPF, for the unit tests and for the fuzzers. */

#include "histogram.h"
#include "parser.h"

/* The default size of the dynamic table is 4096 bytes, and that of an entry is at least 32. */
#define HPACK_ENTRIES 128U

#define HPACK_STATIC 61U        /* entries of the static table */

enum hpack_state {
        HPACK_FIELD,            /* before the first byte of a field */
        HPACK_INDEX,            /* in the rest of an index */
        HPACK_LENGTH,           /* before the length of a string */
        HPACK_LENGTH_REST,
        HPACK_STRING,           /* in the part of a string that is parsed */
        HPACK_SKIP,             /* in the rest of the string */
};

enum hpack_kind {
        HPACK_INDEXED,          /* name and value are in a table */
        HPACK_INSERT,           /* literal, inserted into the dynamic table */
        HPACK_LITERAL,          /* literal, not inserted */
        HPACK_RESIZE,           /* not a field: update of the size of the dynamic table */
};

/* Fields that are parsed. */
enum hpack_name {
        HPACK_OTHER,
        HPACK_STATUS,           /* value: class of the status, 1 … 5 */
        HPACK_CONTENT,          /* value: enum hpack_content */
        HPACK_GRPC,             /* value: status of the call */
        HPACK_PATH,             /* value: index in struct hpack_paths */
        HPACK_UNKNOWN,          /* reference to an entry whose insertion was not seen */
};

enum hpack_content {
        HPACK_CONTENT_NONE,     /* no content-type in the block */
        HPACK_CONTENT_OTHER,
        HPACK_CONTENT_GRPC,
        HPACK_CONTENT_EVENTS,
};

#define HPACK_GRPC_UNKNOWN 2U   /* UNKNOWN, which gRPC also uses for an invalid status */

/* Number of paths of the dynamic table that are stored, the newest ones: a gRPC service has few methods. A
 * request that refers to an older one has no name. */
#define HPACK_PATHS 32U
/* Paths in the static table: "/", "/index.html" */
#define HPACK_PATH_ROOT 0xfeU
#define HPACK_PATH_INDEX 0xffU

struct hpack {
        __u64 begin;            /* first eight bytes of the string, in the order of window_word() */
        __u64 more;             /* the next eight */
        __u32 length;           /* length of the string */
        __u32 left;             /* remaining bytes of it; within a number: its value so far */
        __u32 inserted;         /* number of insertions into the dynamic table */
        __u8 state;             /* enum hpack_state */
        __u8 kind;              /* enum hpack_kind */
        __u8 name;              /* enum hpack_name of the current field */
        __u8 value;             /* the string is the value */
        __u8 huffman;           /* the string is Huffman-coded */
        __u8 shift;             /* of the next bits of a number */
        __u8 next;              /* 17th byte of the string */
        __u8 lost;              /* 1: the position in the block is unknown, and thus the contents of the
                                 * table */

        /* Fields of the current block */
        __u8 status;            /* class of the status; 0: none */
        __u8 grpc;              /* status of the call + 1; 0: none */
        __u8 content;           /* enum hpack_content */
        __u8 unknown;           /* 1: the block has an unknown field */
        __u32 _padding;
        __u16 entries[HPACK_ENTRIES]; /* dynamic table, a ring by number of the insertion: enum hpack_name in
                                       * the lower byte, the value in the upper one */
};

/* Hashes of a path (exclude-key.h). */
struct hpack_path {
        __u64 directories[NAME_DIRECTORIES];
        __u64 name;
        __u32 number;           /* number of its insertion, from 1; 0: none */
        __u8 n_directories;
        __u8 known;             /* 1: complete, and parsed as a whole */
        __u16 _padding;
};

/* State of the paths of requests, in addition to struct hpack. */
struct hpack_paths {
        struct hpack_path path; /* of the current block */
        struct hpack_path entries[HPACK_PATHS];
        __u32 next;             /* index of the entry to be overwritten next */
        __u32 bits;             /* of a Huffman-coded path: bits not decoded yet */
        __u8 n_bits;
        __u8 ended;             /* 1: the rest of the path is not parsed */
        __u16 _padding;
};

static inline __attribute__((always_inline)) void hpack_begin(struct hpack *p) {
        p->status = p->grpc = p->content = 0;
        p->unknown = p->lost;
        p->state = HPACK_FIELD;
}

/* The field at an index of the tables: enum hpack_name in the lower byte, the value in the upper one. */
static inline __attribute__((always_inline)) __u32 hpack_entry(const struct hpack *p, __u32 index) {
        __u32 back = index - HPACK_STATIC - 1;

        if (index <= HPACK_STATIC) {
                /* 200, 204, 206, 304, 400, 404, 500 */
                if (index >= 8 && index <= 14)
                        return HPACK_STATUS | (index <= 10 ? 2 : index == 11 ? 3 : index <= 13 ? 4 : 5) << 8;
                if (index == 4 || index == 5)
                        return HPACK_PATH | (index == 4 ? HPACK_PATH_ROOT : HPACK_PATH_INDEX) << 8;
                return index == 31 ? HPACK_CONTENT : HPACK_OTHER;
        }
        if (back >= p->inserted || back >= HPACK_ENTRIES)
                return HPACK_UNKNOWN;
        return p->entries[(p->inserted - 1 - back) & (HPACK_ENTRIES - 1)];
}

/* ---- paths ---- */

/* Characters with codes of up to 15 bits (RFC 7541, appendix B), by length, in the order of the codes. All
 * others are invalid in a path, except "\\". */
static const __u8 hpack_letters[128] =
        "012aceiost %-./3456789=A_bdfghlmnpru:BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz&*,;XZ!\"()?'+|#>\0$@[]~^}<`{";

/* Decodes the character at the beginning of these bits, most significant one first. Returns the character;
 * ret_length is its number of bits, 0 for codes of more than 15. */
static inline __attribute__((always_inline)) __u32 hpack_letter(__u32 bits, __u32 *ret_length) {
        __u32 length, first, at;

        if (bits < 0x50000000U) {
                length = 5;
                first = 0x0;
                at = 0;
        } else if (bits < 0xb8000000U) {
                length = 6;
                first = 0x14;
                at = 10;
        } else if (bits < 0xf8000000U) {
                length = 7;
                first = 0x5c;
                at = 36;
        } else if (bits < 0xfe000000U) {
                length = 8;
                first = 0xf8;
                at = 68;
        } else if (bits < 0xff400000U) {
                length = 10;
                first = 0x3f8;
                at = 74;
        } else if (bits < 0xffa00000U) {
                length = 11;
                first = 0x7fa;
                at = 79;
        } else if (bits < 0xffc00000U) {
                length = 12;
                first = 0xffa;
                at = 82;
        } else if (bits < 0xfff00000U) {
                length = 13;
                first = 0x1ff8;
                at = 84;
        } else if (bits < 0xfff80000U) {
                length = 14;
                first = 0x3ffc;
                at = 90;
        } else if (bits < 0xfffe0000U) {
                length = 15;
                first = 0x7ffc;
                at = 92;
        } else {
                *ret_length = 0;
                return 0;
        }
        *ret_length = length;
        return hpack_letters[((bits >> (32 - length)) - first + at) & 127];
}

static inline __attribute__((always_inline)) void hpack_path_begin(struct hpack_paths *q) {
        q->path.name = NAME_BEGIN;
        q->path.n_directories = q->path.known = 0;
        q->bits = q->n_bits = q->ended = 0;
}

/* Adds a character to the path, like http_path_byte(). */
static inline __attribute__((always_inline)) void hpack_path_letter(struct hpack_paths *q, __u32 letter) {
        __u64 i = q->path.n_directories;

        if (letter == '?')
                q->ended = q->path.known = 1;
        if (q->ended)
                return;
        q->path.name = name_add(q->path.name, letter);
        if (letter != '/' || i >= NAME_DIRECTORIES)
                return;
        BPF_BOUND(i, NAME_DIRECTORIES);
        q->path.directories[i] = q->path.name;
        q->path.n_directories++;
}

/* Parses the next byte of a path. A byte of a Huffman-coded path completes at most two characters, as codes
 * have at least five bits. */
static inline __attribute__((always_inline)) void hpack_path_byte(struct hpack_paths *q, __u32 byte,
                                                                  int huffman) {
        __u32 letter, length;

        if (q->ended)
                return;
        if (!huffman) {
                hpack_path_letter(q, byte);
                return;
        }
        q->bits = q->bits << 8 | byte;
        q->n_bits += 8;
        for (int i = 0; i < 2; i++) {
                letter = hpack_letter(q->bits << ((32 - q->n_bits) & 31), &length);
                if (length == 0 && q->n_bits >= 15) {
                        q->ended = 1; /* no exclusion has such a character: the path is unknown */
                        return;
                }
                if (length == 0 || length > q->n_bits)
                        return;
                hpack_path_letter(q, letter);
                q->n_bits -= length;
                if (q->ended)
                        return;
        }
}

/* "/" or "/index.html" */
static inline __attribute__((always_inline)) void hpack_path_static(struct hpack_paths *q, __u32 which) {
        hpack_path_begin(q);
        hpack_path_letter(q, '/');
        if (which == HPACK_PATH_INDEX) {
                for (int i = 56; i >= 0; i -= 8)
                        hpack_path_letter(q, WORD_OF("index.ht", 8) >> i & 0xff);
                hpack_path_letter(q, 'm');
                hpack_path_letter(q, 'l');
        }
        q->path.known = 1;
}

/* Sets the current path to that of the insertion with this number, unless its entry has been overwritten. */
static inline __attribute__((always_inline)) void hpack_path_take(struct hpack_paths *q, __u32 which,
                                                                  __u32 number) {
        __u64 i = which;

        if (which >= HPACK_PATH_ROOT)
                hpack_path_static(q, which);
        else {
                BPF_BOUND(i, HPACK_PATHS);
                q->path = q->entries[i];
                if (q->path.number != number)
                        q->path.known = 0;
        }
}

/* Stores the current path for the insertion with this number. Returns its index. */
static inline __attribute__((always_inline)) __u32 hpack_path_add(struct hpack_paths *q, __u32 number) {
        __u64 i = q->next++ & (HPACK_PATHS - 1);

        BPF_BOUND(i, HPACK_PATHS);
        q->path.number = number;
        q->entries[i] = q->path;
        return i;
}

/* ---- fields ---- */

/* A field is complete. q: paths of requests, which only need the path; NULL: response. */
static inline __attribute__((always_inline)) void hpack_field(struct hpack *p, struct hpack_paths *q,
                                                              __u32 name, __u32 value) {
        if (q) {
                p->state = HPACK_FIELD;
                return;
        }

        switch (name) {

        case HPACK_STATUS:
                p->status = value;
                break;

        case HPACK_CONTENT:
                p->content = value;
                break;

        case HPACK_GRPC:
                p->grpc = value + 1;
                break;

        case HPACK_UNKNOWN:
                p->unknown = 1;
                break;
        }
        p->state = HPACK_FIELD;
}

/* Name of a field by its first characters, plain or Huffman-coded (RFC 7541, appendix B). */
static inline __attribute__((always_inline)) __u32 hpack_name(const struct hpack *p, int requests) {
        if (requests)
                return (p->huffman ? p->length == 4 && p->begin >> 32 == 0xb958d33f :
                        p->length == 5 && p->begin >> 24 == WORD_OF(":path", 5)) ? HPACK_PATH : HPACK_OTHER;
        if (p->huffman ? p->length == 8 && p->begin == 0x9acac8b21234da8fULL :
            p->length == 11 && p->begin == WORD_OF("grpc-sta", 8) && p->more >> 40 == WORD_OF("tus", 3))
                return HPACK_GRPC;
        if (p->huffman ? p->length == 5 && p->begin >> 24 == 0xb8848d36a3ULL :
            p->length == 7 && p->begin >> 8 == WORD_OF(":status", 7))
                return HPACK_STATUS;
        if (p->huffman ? p->length == 9 && p->begin == 0x21ea496a4ac9f559ULL && p->more >> 56 == 0x7f :
            p->length == 12 && p->begin == WORD_OF("content-", 8) && p->more >> 32 == WORD_OF("type", 4))
                return HPACK_CONTENT;
        return HPACK_OTHER;
}

/* Removes the first digit of a number from the word and returns it; 10: not a digit. Huffman codes of 0 … 2
 * have five bits, those of 3 … 9 six. */
static inline __attribute__((always_inline)) __u32 hpack_digit(__u64 *word, int huffman) {
        __u32 digit;

        if (!huffman) {
                digit = (__u32) (*word >> 56) - '0';
                *word <<= 8;
                return digit <= 9 ? digit : 10;
        }
        digit = *word >> 59;
        if (digit <= 2) {
                *word <<= 5;
                return digit;
        }
        digit = *word >> 58;
        *word <<= 6;
        return digit >= 0x19 && digit <= 0x1f ? digit - 0x16 : 10;
}

static inline __attribute__((always_inline)) __u32 hpack_status(const struct hpack *p) {
        __u64 word = p->begin;
        __u32 class = hpack_digit(&word, p->huffman);

        return p->length >= (p->huffman ? 2 : 3) && p->length <= 3 && class >= 1 && class <= 5 ? class : 0;
}

static inline __attribute__((always_inline)) __u32 hpack_grpc(const struct hpack *p) {
        __u64 word = p->begin;
        __u32 code, digit;

        if (p->length == 0 || p->length > 2)
                return HPACK_GRPC_UNKNOWN;
        code = hpack_digit(&word, p->huffman);
        if (code > 9)
                return HPACK_GRPC_UNKNOWN;
        if (p->length == 2) {
                digit = hpack_digit(&word, p->huffman);
                if (digit > 9)
                        return HPACK_GRPC_UNKNOWN;
                code = code * 10 + digit;
        }
        return code;
}

/* "application/grpc", possibly followed by "+proto" or parameters (";"), but not by "-web", which has no
 * grpc-status in the head; or "text/event-stream". */
static inline __attribute__((always_inline)) __u32 hpack_content(const struct hpack *p) {
        if (p->huffman) {
                if (p->begin == 0x1d75d0620d263d4cULL && p->more >> 40 == 0x4d6564)
                        /* Codes: "+" begins with eight ones, ";" is 11111011, "-" is 010110 */
                        return p->length == 11 || (p->more >> 32 & 0xff) >= 0xfb ? HPACK_CONTENT_GRPC :
                               HPACK_CONTENT_OTHER;
                return p->begin == 0x497ca582f72d4959ULL &&
                       p->more >> 40 == 0x09b0a3 ? HPACK_CONTENT_EVENTS : HPACK_CONTENT_OTHER;
        }
        if (p->begin == WORD_OF("applicat", 8) && p->more == WORD_OF("ion/grpc", 8))
                return p->length == 16 || p->next == '+' || p->next == ';' ? HPACK_CONTENT_GRPC :
                       HPACK_CONTENT_OTHER;
        return p->begin == WORD_OF("text/eve", 8) && p->more == WORD_OF("nt-strea", 8) ?
               HPACK_CONTENT_EVENTS : HPACK_CONTENT_OTHER;
}

/* A name or a value is complete. */
static inline __attribute__((always_inline)) void hpack_string_end(struct hpack *p, struct hpack_paths *q) {
        __u32 value = 0;

        if (!p->value) {
                p->name = hpack_name(p, q != (struct hpack_paths*) 0);
                p->value = 1;
                p->state = HPACK_LENGTH;
                return;
        }

        if (p->name == HPACK_STATUS)
                value = hpack_status(p);
        else if (p->name == HPACK_CONTENT)
                value = hpack_content(p);
        else if (p->name == HPACK_GRPC)
                value = hpack_grpc(p);
        else if (q && p->name == HPACK_PATH) {
                if (!q->ended)
                        q->path.known = 1;
                if (p->kind == HPACK_INSERT)
                        value = hpack_path_add(q, p->inserted + 1);
        }

        if (p->kind == HPACK_INSERT) {
                p->entries[p->inserted & (HPACK_ENTRIES - 1)] = p->name | value << 8;
                p->inserted++;
        }
        hpack_field(p, q, p->name, value);
}

static inline __attribute__((always_inline)) void hpack_index_end(struct hpack *p, struct hpack_paths *q) {
        __u32 entry;

        if (p->kind == HPACK_RESIZE) {
                p->state = HPACK_FIELD;
                return;
        }
        if (p->kind == HPACK_INDEXED) {
                if (p->left == 0)
                        p->lost = 1;
                entry = hpack_entry(p, p->left);
                if (q && (entry & 0xff) == HPACK_PATH)
                        hpack_path_take(q, entry >> 8, p->inserted + HPACK_STATIC + 1 - p->left);
                hpack_field(p, q, entry & 0xff, entry >> 8);
                return;
        }
        p->value = p->left > 0;
        if (p->value)
                p->name = hpack_entry(p, p->left) & 0xff;
        p->state = HPACK_LENGTH;
}

static inline __attribute__((always_inline)) int hpack_is_of_use(__u32 name, int requests) {
        return requests ? name == HPACK_PATH : name == HPACK_STATUS || name == HPACK_CONTENT ||
               name == HPACK_GRPC;
}

static inline __attribute__((always_inline)) void hpack_length_end(struct hpack *p, struct hpack_paths *q) {
        int requests = q != (struct hpack_paths*) 0;

        p->length = p->left;
        p->begin = p->more = 0;
        if (q && p->value && p->name == HPACK_PATH)
                hpack_path_begin(q);
        if (p->left == 0)
                hpack_string_end(p, q);
        else
                p->state = p->value && !hpack_is_of_use(p->name, requests) ? HPACK_SKIP : HPACK_STRING;
}

/* Parses another byte of a number that exceeds its prefix. Returns 1 if it was the last one. */
static inline __attribute__((always_inline)) int hpack_number(struct hpack *p, __u32 byte) {
        if (p->shift > 21) { /* longer than any frame */
                p->lost = 1;
                return 0;
        }
        p->left += (byte & 0x7f) << (p->shift & 31);
        p->shift += 7;
        return !(byte & 0x80);
}

static inline __attribute__((always_inline)) void hpack_take(struct hpack *p, struct hpack_paths *q,
                                                             __u32 byte) {
        __u32 mask, at;

        switch (p->state) {

        case HPACK_FIELD:
                if (byte & 0x80) {
                        p->kind = HPACK_INDEXED;
                        mask = 0x7f;
                } else if (byte & 0x40) {
                        p->kind = HPACK_INSERT;
                        mask = 0x3f;
                } else if (byte & 0x20) {
                        p->kind = HPACK_RESIZE;
                        mask = 0x1f;
                } else {
                        p->kind = HPACK_LITERAL;
                        mask = 0xf;
                }
                p->left = byte & mask;
                p->shift = 0;
                if (p->left == mask)
                        p->state = HPACK_INDEX;
                else
                        hpack_index_end(p, q);
                break;

        case HPACK_INDEX:
                if (hpack_number(p, byte))
                        hpack_index_end(p, q);
                break;

        case HPACK_LENGTH:
                p->huffman = byte >> 7;
                p->left = byte & 0x7f;
                p->shift = 0;
                if (p->left == 0x7f)
                        p->state = HPACK_LENGTH_REST;
                else
                        hpack_length_end(p, q);
                break;

        case HPACK_LENGTH_REST:
                if (hpack_number(p, byte))
                        hpack_length_end(p, q);
                break;

        case HPACK_STRING:
                at = p->length - p->left;
                if (q && p->value)
                        hpack_path_byte(q, byte, p->huffman);
                else if (at < 8)
                        p->begin |= (__u64) byte << 8 * (7 - (at & 7));
                else if (at < 16)
                        p->more |= (__u64) byte << 8 * (7 - (at & 7));
                else
                        p->next = byte;
                p->left--;
                if (p->left == 0)
                        hpack_string_end(p, q);
                else if (q && p->value ? q->ended : at >= 16)
                        p->state = HPACK_SKIP;
                break;
        }
        if (p->lost)
                p->unknown = 1;
}

/* Parses the next byte of a header block of a response, in any state but HPACK_SKIP. */
PARSER_FUNCTION __u32 hpack_byte(struct hpack *p, __u32 byte) {
        if (!p || p->lost)
                return 0;
        hpack_take(p, (struct hpack_paths*) 0, byte);
        return 0;
}

/* The same for requests. */
PARSER_FUNCTION __u32 hpack_request_byte(struct hpack *p, struct hpack_paths *q, __u32 byte) {
        if (!p || !q || p->lost)
                return 0;
        hpack_take(p, q, byte);
        return 0;
}

/* Skips up to n bytes of a string. */
static inline __attribute__((always_inline)) __u32 hpack_skip_bytes(struct hpack *p, struct hpack_paths *q,
                                                                    __u32 n) {
        if (n > p->left)
                n = p->left;
        p->left -= n;
        if (p->left == 0)
                hpack_string_end(p, q);
        return n;
}

PARSER_FUNCTION __u32 hpack_skip(struct hpack *p, __u32 n) {
        return p ? hpack_skip_bytes(p, (struct hpack_paths*) 0, n) : 0;
}

PARSER_FUNCTION __u32 hpack_request_skip(struct hpack *p, struct hpack_paths *q, __u32 n) {
        return p && q ? hpack_skip_bytes(p, q, n) : 0;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Format of the file of a history: a header, and the records of history-record.c. */

#include "history-internal.h"
#include "history.h"

/* "qSoHist6". Version 1 has no amounts, version 2 no stopped threads, version 3 other bounds of bins,
 * version 4 no calls on files, version 5 nothing of connections */
#define MAGIC_VERSION(version) ((uint64_t) (version) << 56 | UINT64_C(0x747369486f5371))
#define MAGIC MAGIC_VERSION('6')

static uint64_t header_checksum(const HistoryHeader *header, const void *data, size_t size) {
        size_t begin = offsetof(HistoryHeader, catalogue);

        return hash_bytes(hash_bytes(HASH_INIT, (const uint8_t*) header + begin, sizeof(*header) - begin),
                          data, size);
}

int history_serialize(const History *h, uint32_t generation, void **ret, size_t *ret_size) {
        HistoryHeader header = {
                .magic = MAGIC,
                .catalogue = catalogue_hash(),
                .generation = generation,
                .size = { h->size[HISTORY_FINE], h->size[HISTORY_COARSE] },
        };
        size_t size = history_size(h);
        uint8_t *data;

        data = malloc(sizeof(HistoryHeader) + size);
        if (!data)
                return -ENOMEM;
        header.checksum = header_checksum(&header, h->data, size);
        memcpy(data, &header, sizeof(HistoryHeader));
        if (size > 0)
                memcpy(data + sizeof(HistoryHeader), h->data, size);

        *ret = data;
        *ret_size = sizeof(HistoryHeader) + size;
        return 0;
}

int history_deserialize(const void *data, size_t size, uint32_t generation, History **ret) {
        _cleanup_history_ History *h = NULL;
        HistoryHeader header;
        int r;

        if (size < sizeof(HistoryHeader) || size > HISTORY_SIZE_MAX)
                return -EBADMSG;
        memcpy(&header, data, sizeof(HistoryHeader));
        if (header.magic >= MAGIC_VERSION('1') && header.magic < MAGIC && header.magic << 8 == MAGIC << 8)
                return -ESTALE;
        size -= sizeof(HistoryHeader);
        data = (const uint8_t*) data + sizeof(HistoryHeader);
        if (header.magic != MAGIC || header.generation != generation || size > DATA_MAX ||
            header.size[HISTORY_FINE] > size ||
            header.size[HISTORY_COARSE] != size - header.size[HISTORY_FINE] ||
            header.checksum != header_checksum(&header, data, size))
                return -EBADMSG;
        if (header.catalogue != catalogue_hash())
                return -ESTALE;

        r = history_new(&h);
        if (r < 0)
                return r;

        for (HistoryLevel level = 0; level < _HISTORY_LEVEL_MAX; level++) {
                size_t left = header.size[level], length;
                const uint8_t *p = data, *rest;
                unsigned n = 0;
                uint64_t next = 0;
                HistoryStep s;

                if (level == HISTORY_COARSE)
                        p += header.size[HISTORY_FINE];
                for (; left > 0; left -= length, p += length) {
                        length = record_length(p, left, &rest);
                        if (length == 0 || record_read(rest, p + length - rest, level, &s) < 0 ||
                            s.index < next ||
                            ++n > (level == HISTORY_FINE ? HISTORY_FINE_STEPS : HISTORY_COARSE_STEPS))
                                return -EBADMSG;
                        next = s.index + 1;
                }
        }

        r = history_splice(h, HISTORY_FINE, 0, 0, data, size);
        if (r < 0)
                return r;
        h->size[HISTORY_FINE] = header.size[HISTORY_FINE];
        h->size[HISTORY_COARSE] = header.size[HISTORY_COARSE];

        *ret = TAKE_PTR(h);
        return 0;
}

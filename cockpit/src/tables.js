// SPDX-License-Identifier: LGPL-2.1-or-later

// Endpoints, peers, and the metrics of probes, as tables

import * as format from "./format.js";
import { describe, formatMetric } from "./catalogue.js";
import { h } from "./dom.js";

const _ = cockpit.gettext;

// columns: [label, function of a row, whether it is text]
export function table(caption, columns, rows) {
    return h(
        "table",
        {},
        h("caption.hidden-text", {}, caption),
        h(
            "thead",
            {},
            h(
                "tr",
                {},
                columns.map(([label, , text]) => h(text ? "th" : "th.number", { scope: "col" }, label)),
            ),
        ),
        h(
            "tbody",
            {},
            rows.map(row =>
                h(
                    "tr",
                    {},
                    columns.map(([label, value, text], i) =>
                        i === 0
                            ? h("th", { scope: "row", "data-label": label }, value(row))
                            : h(text ? "td" : "td.number", { "data-label": label }, value(row)),
                    ),
                ),
            ),
        ),
    );
}

const errorsOf = row => format.count(Object.values(row.errors ?? {}).reduce((sum, n) => sum + n, 0));

const REQUESTS = [
    [_("Rate"), row => format.rate(row.rate)],
    [_("Errors"), errorsOf],
    [_("p50"), row => format.duration(row.latency?.p50)],
    [_("p99"), row => format.duration(row.latency?.p99)],
    [_("In flight"), row => format.count(row.inFlight)],
];

export function endpoints(list) {
    return table(
        _("Endpoints"),
        [[_("Listens on"), row => (row.rest ? _("all others") : (row.listen ?? "-")), true], ...REQUESTS],
        list,
    );
}

export function peers(list) {
    return table(
        _("Peers"),
        [
            [_("Peer"), row => (row.rest ? _("all others") : (row.peer ?? "-")), true],
            [_("Unit"), row => (row.unit ? h("a", { href: hrefOf(row.unit) }, row.unit) : "-"), true],
            ...REQUESTS,
        ],
        list,
    );
}

export function hrefOf(unit) {
    return `#/${encodeURIComponent(unit)}`;
}

function* leaves(object, path) {
    for (const [key, value] of Object.entries(object ?? {})) {
        if (typeof value === "number") yield [`${path}.${key}`, value];
        else if (value && typeof value === "object" && !Array.isArray(value)) yield* leaves(value, `${path}.${key}`);
    }
}

// All metrics of an object in a reading, with their descriptions
export function metrics(caption, object, path) {
    return table(
        caption,
        [
            [_("Metric"), ([name]) => h("span", { title: describe(name) ?? "" }, name), true],
            [_("Value"), ([name, value]) => formatMetric(name, value)],
        ],
        [...leaves(object, path)],
    );
}

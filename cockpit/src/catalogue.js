// SPDX-License-Identifier: LGPL-2.1-or-later

// The metrics of qosd with their units, read once

import * as format from "./format.js";
import { collect } from "./varlink.js";

let metrics = null;
let loading = null;

export function loadCatalogue() {
    loading ??= collect("ListMetrics", {})
        .then(list => {
            metrics = new Map(list.map(m => [m.name, m]));
        })
        .catch(() => {
            loading = null;
        });
    return loading;
}

export const names = () => [...(metrics?.keys() ?? [])];

export const describe = name => metrics?.get(name)?.description;

// A value as text. The name may have an endpoint or peer in brackets
export function formatMetric(name, value) {
    switch (metrics?.get(name.replace(/\[[^\]]*\]/, ""))?.unit) {
        case "ns":
            return format.duration(value);
        case "bytes":
            return format.bytes(value);
        case "1/s":
            return format.rate(value);
        default:
            return /shares?\b/i.test(name)
                ? format.percent(value)
                : Number.isInteger(value)
                  ? format.count(value)
                  : format.real(value);
    }
}

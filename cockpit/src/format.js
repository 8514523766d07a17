// SPDX-License-Identifier: LGPL-2.1-or-later

// Values as qosctl writes them: the table of docs/HACKING.md. An absent value, undefined, is a dash.

export const NSEC_PER_SEC = 1e9;

const SPANS = [
    ["d", 86400e9],
    ["h", 3600e9],
    ["min", 60e9],
    ["s", 1e9],
];
// Thread states whose label differs from their name: src/model/state-label.c
const LABELS = { runQueue: "CPU run queue", park: "idle futex" };

const known = v => v !== undefined && v !== null && Number.isFinite(v);

function digits(v) {
    return v.toFixed(v < 9.995 ? 2 : v < 99.95 ? 1 : 0);
}

function scaled(v, suffix) {
    const prefixes = ["", "k", "M", "G", "T", "P", "E"];
    let i = 0;
    for (; v >= 999.5 && i < prefixes.length - 1; i++) v /= 1000;
    return digits(v) + prefixes[i] + suffix;
}

export function span(nsec) {
    const i = SPANS.findIndex(([, unit]) => nsec >= unit);
    if (i < 0) return duration(nsec);
    const [name, unit] = SPANS[i];
    const rest = i + 1 < SPANS.length ? Math.floor((nsec % unit) / SPANS[i + 1][1]) : 0;
    return `${Math.floor(nsec / unit)}${name}` + (rest > 0 ? ` ${rest}${SPANS[i + 1][0]}` : "");
}

export function duration(nsec) {
    if (!known(nsec)) return "-";
    if (nsec === 0) return "0";
    if (nsec < 1000) return `${Math.round(nsec)}ns`;
    if (nsec >= 60e9) return span(nsec);
    for (const [name, unit] of [
        ["us", 1e3],
        ["ms", 1e6],
    ]) {
        if (nsec / unit < 999.5) return digits(nsec / unit) + name;
    }
    return digits(nsec / NSEC_PER_SEC) + "s";
}

export function count(n) {
    if (!known(n)) return "-";
    return n >= 1000 ? scaled(n, "") : String(n);
}

export function rate(perSecond) {
    if (!known(perSecond) || perSecond < 0) return "-";
    if (perSecond === 0) return "0/s";
    return perSecond < 0.005 ? "<0.01/s" : scaled(perSecond, "/s");
}

export function bytes(n) {
    const prefixes = ["K", "M", "G", "T", "P", "E"];
    if (!known(n)) return "-";
    if (n < 1024) return `${Math.round(n)}B`;
    let v = n / 1024,
        i = 0;
    for (; v >= 1023.95 && i < prefixes.length - 1; i++) v /= 1024;
    return v.toFixed(1) + prefixes[i];
}

export function percent(share) {
    if (!known(share) || share < 0) return "-";
    if (share === 0) return "0%";
    return share < 0.0005 ? "<0.1%" : `${(share * 100).toFixed(1)}%`;
}

export function real(v) {
    return known(v) ? v.toFixed(2) : "-";
}

// Of a thread state
export function stateLabel(state) {
    return state ? (LABELS[state] ?? state) : "-";
}

export function time(usec) {
    return new Date(usec / 1000).toLocaleString();
}

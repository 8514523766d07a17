// SPDX-License-Identifier: LGPL-2.1-or-later

// The history of a unit, as charts need it

import { NSEC_PER_SEC } from "./format.js";

const DISTRIBUTIONS = ["requests.server.latency", "requests.server.firstByte"];
const PHASES = ["receive", "queue", "service", "answer"];
// Steps that may have changed since they were read: a sample moves until the end of its response
const SETTLED_USEC = 70e6;
// A chart shows no more columns than that
const COLUMNS_MAX = 120;
// Half octaves
const CELL_SCHEMA = 1;
// A quantile needs as many samples beyond it, as everywhere
const SAMPLES_MIN = 5;

export class History {
    constructor(unit, rangeSec) {
        this.unit = unit;
        this.rangeSec = rangeSec;
        // 10 s are kept for an hour
        this.stepNsec = rangeSec > 3600 ? 300 * NSEC_PER_SEC : 10 * NSEC_PER_SEC;
        this.steps = new Map();
    }

    // Reads what is new
    async read(connection) {
        const now = Date.now() * 1000,
            begin = now - this.rangeSec * 1e6;
        const last = [...this.steps.keys()].at(-1) ?? 0;
        const parameters = {
            unit: this.unit,
            since: Math.max(Math.round(begin), last - SETTLED_USEC),
            step: this.stepNsec,
        };
        const all = await connection.call("History", parameters);
        const buckets = await connection.call("History", { ...parameters, metrics: DISTRIBUTIONS });
        const histograms = new Map(buckets.steps.map(step => [step.timestamp, step.histograms]));
        for (const step of all.steps) {
            const [histogram, firstByte] = histograms.get(step.timestamp) ?? [];
            this.steps.set(step.timestamp, { ...step, histogram, firstByte });
        }
        for (const timestamp of this.steps.keys()) {
            if (timestamp < begin - this.stepNsec / 1000) this.steps.delete(timestamp);
        }
        this.steps = new Map([...this.steps].sort(([a], [b]) => a - b));
    }

    get range() {
        const now = Date.now();
        return [now - this.rangeSec * 1000, now];
    }

    // Points of a chart, with a gap where the unit was not observed
    points(values) {
        const points = [];
        const length = this.stepNsec / 1e6;
        for (const step of this.steps.values()) {
            const t = step.timestamp / 1000;
            if (points.length > 0 && t - points.at(-1).t > 1.5 * length) points.push({ t: points.at(-1).t + length });
            points.push({ t, ...values(step) });
        }
        return points;
    }

    // Columns of a heatmap, of half octaves
    columns() {
        const steps = [...this.steps.values()],
            length = this.stepNsec / 1e6;
        const merged = Math.max(1, Math.ceil(steps.length / COLUMNS_MAX));
        const columns = new Map();
        for (const step of steps) {
            const t = Math.floor(step.timestamp / 1000 / (length * merged)) * length * merged;
            const cells = columns.get(t) ?? new Map();
            columns.set(t, cells);
            for (const { index, count } of bucketsOf(step.histogram)) {
                const cell = Math.ceil(index * 2 ** (CELL_SCHEMA - step.histogram.schema));
                cells.set(cell, (cells.get(cell) ?? 0) + count);
            }
        }
        return [...columns].map(([t, cells]) => ({
            t,
            length: length * merged,
            buckets: [...cells]
                .sort(([a], [b]) => a - b)
                .map(([cell, count]) => ({
                    lower: bound(cell - 1, CELL_SCHEMA),
                    upper: bound(cell, CELL_SCHEMA),
                    count,
                })),
        }));
    }

    // Figures of the whole range: sums, and quantiles of the merged distributions
    sum() {
        const sum = { count: 0, covered: 0, errors: {}, max: undefined, latency: [], firstByte: [], phases: {} };
        for (const step of this.steps.values()) {
            const server = step.requests?.server;
            sum.covered += step.covered;
            if (!server) continue;
            sum.count += server.count ?? 0;
            for (const [kind, n] of Object.entries(server.errors ?? {}))
                sum.errors[kind] = (sum.errors[kind] ?? 0) + n;
            for (const phase of PHASES.filter(name => server[name]?.mean !== undefined)) {
                const total = (sum.phases[phase] ??= { count: 0, time: 0 });
                total.count += server[phase].count;
                total.time += server[phase].count * server[phase].mean;
            }
            if (server.latency?.max !== undefined) sum.max = Math.max(sum.max ?? 0, server.latency.max);
            for (const [histogram, merged] of [
                [step.histogram, sum.latency],
                [step.firstByte, sum.firstByte],
            ]) {
                for (const { index, count } of bucketsOf(histogram))
                    merged.push([bound(index, histogram.schema), count]);
            }
        }
        sum.latency.sort(([a], [b]) => a - b);
        sum.firstByte.sort(([a], [b]) => a - b);
        return {
            count: sum.count,
            errors: sum.errors,
            covered: sum.covered,
            rate: sum.covered > 0 ? (sum.count * NSEC_PER_SEC) / sum.covered : undefined,
            firstByte: { p99: quantile(sum.firstByte, 0.99) },
            ...Object.fromEntries(
                Object.entries(sum.phases).map(([phase, { count, time }]) => [phase, { mean: time / count }]),
            ),
            latency: {
                max: sum.max,
                ...Object.fromEntries(
                    [
                        ["p50", 0.5],
                        ["p90", 0.9],
                        ["p99", 0.99],
                        ["p999", 0.999],
                    ].map(([name, q]) => [name, quantile(sum.latency, q)]),
                ),
            },
        };
    }
}

// Upper bound in nanoseconds
function bound(index, schema) {
    return 2 ** (index / 2 ** schema) * NSEC_PER_SEC;
}

function* bucketsOf(histogram) {
    for (const [i, count] of (histogram?.counts ?? []).entries()) {
        if (count > 0) yield { index: histogram.offset + i, count };
    }
}

function quantile(buckets, q) {
    const n = buckets.reduce((sum, [, count]) => sum + count, 0);
    if (n * Math.min(q, 1 - q) < SAMPLES_MIN) return undefined;
    let rest = Math.ceil(n * q);
    for (const [upper, count] of buckets) {
        rest -= count;
        if (rest <= 0) return upper;
    }
    return undefined;
}

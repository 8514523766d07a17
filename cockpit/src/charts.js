// SPDX-License-Identifier: LGPL-2.1-or-later

// Charts as SVG, whose colours follow the style of the page. Each has a text for those who do not see it, and shows the
// values at the pointer. A time is in milliseconds.

import { area, curveStepAfter, line, stack } from "d3-shape";
import { scaleLinear, scaleLog } from "d3-scale";
import { h, s, setText } from "./dom.js";

const HEIGHT = 200;
const LEFT = 56;
const BOTTOM = 22;
const TOP = 8;
const RIGHT = 8;
const TICK_WIDTH = 56;
// Ticks of time, in seconds
const TIME_STEPS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600];

function timeTicks([begin, end], width) {
    const wanted = (end - begin) / 1000 / Math.max(2, width / 90);
    const step = 1000 * (TIME_STEPS.find(t => t >= wanted) ?? 21600);
    const ticks = [];
    for (let t = Math.ceil(begin / step) * step; t <= end; t += step) ticks.push(t);
    return ticks;
}

const clock = t => new Date(t).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

// A frame with axes. draw() gets it when it has a width, and again when that changes.
class Chart {
    constructor(title, draw) {
        this.title = title;
        this.draw = draw;
        this.svg = s("svg", { role: "img", height: HEIGHT });
        this.readout = h("div.readout", { "aria-hidden": "true" });
        this.legend = h("ul.legend");
        this.element = h("figure.chart", {}, h("figcaption", {}, title), this.svg, this.readout, this.legend);
        this.width = 0;
        new ResizeObserver(() => this.resize()).observe(this.element);
        this.svg.addEventListener("pointermove", event => this.point(event));
        this.svg.addEventListener("pointerleave", () => setText(this.readout, ""));
    }

    resize() {
        const width = Math.floor(this.element.clientWidth);
        if (width > 0 && width !== this.width) {
            this.width = width;
            this.render();
        }
    }

    set(data) {
        this.data = data;
        this.render();
    }

    render() {
        if (!this.data || this.width === 0) return;
        const { range } = this.data;
        this.x = scaleLinear()
            .domain(range)
            .range([LEFT, this.width - RIGHT]);
        this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
        this.svg.setAttribute("width", this.width);
        this.svg.replaceChildren();
        const text = this.draw(this, this.data);
        this.svg.setAttribute("aria-label", `${this.title}: ${text}`);
        for (const t of timeTicks(range, this.width)) {
            const x = this.x(t);
            // What would be cut off
            if (x > this.width - TICK_WIDTH / 2) continue;
            this.svg.append(s("text", { x, y: HEIGHT - 6, "text-anchor": "middle", class: "tick" }, clock(t)));
        }
    }

    axis(y, ticks, format) {
        for (const v of ticks) {
            this.svg.append(
                s("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y(v), y2: y(v) }),
                s("text", { class: "tick", x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, format(v)),
            );
        }
    }

    // entries: class and label
    setLegend(entries) {
        const key = entries.map(e => e.join()).join(";");
        if (this.legendKey === key) return;
        this.legendKey = key;
        this.legend.replaceChildren(...entries.map(([name, label]) => h("li", {}, h(`span.swatch.${name}`), label)));
    }

    point(event) {
        const box = this.svg.getBoundingClientRect();
        const t = this.x?.invert(event.clientX - box.left);
        setText(this.readout, t >= this.data?.range[0] && this.describe ? this.describe(t) : "");
    }
}

// Powers of ten, and 2 and 5 times these where there are few
function logTicks(y) {
    const digit = v => Math.round(v / 10 ** Math.floor(Math.log10(v) + 1e-6));
    const ticks = y.ticks(),
        powers = ticks.filter(v => digit(v) === 1);
    return powers.length > 2 ? powers : ticks.filter(v => [1, 2, 5].includes(digit(v)));
}

function nearest(points, t) {
    return points.reduce((best, p) => (!best || Math.abs(p.t - t) < Math.abs(best.t - t) ? p : best), null);
}

// data: { range, points: [{ t, KEY: value }], series: [[KEY, label]] }
export function lineChart(title, format, { logarithmic = false } = {}) {
    const chart = new Chart(title, (c, { points, series }) => {
        const values = points
            .flatMap(p => series.map(([key]) => p[key]))
            .filter(v => v !== undefined && (!logarithmic || v > 0));
        const max = Math.max(...values, logarithmic ? 1000 : 0) || 1;
        const y = logarithmic
            ? scaleLog()
                  .domain([Math.min(...values, max / 10), max])
                  .range([HEIGHT - BOTTOM, TOP])
                  .nice()
            : scaleLinear()
                  .domain([0, max])
                  .range([HEIGHT - BOTTOM, TOP])
                  .nice(4);
        c.axis(y, logarithmic ? logTicks(y) : y.ticks(4), format);
        series.forEach(([key], i) => {
            const path = line()
                .defined(p => p[key] !== undefined && (!logarithmic || p[key] > 0))
                .x(p => c.x(p.t))
                .y(p => y(p[key]));
            c.svg.append(s("path", { class: `line c${i}`, d: path(points) ?? "" }));
        });
        c.setLegend(series.map(([, label], i) => [`c${i}`, label]));
        c.describe = t => {
            const p = nearest(points, t);
            return p ? `${clock(p.t)}: ` + series.map(([key, label]) => `${label} ${format(p[key])}`).join(", ") : "";
        };
        const last = points.at(-1);
        return last ? series.map(([key, label]) => `${label} ${format(last[key])}`).join(", ") : "-";
    });
    return chart;
}

// data: { range, points: [{ t, KEY: value }], series: [[KEY, label]] }; a series has the colour of its key
export function areaChart(title, format) {
    return new Chart(title, (c, { points, series }) => {
        const keys = series.map(([key]) => key);
        const layers = stack()
            .keys(keys)
            .value((p, key) => p[key] ?? 0)(points);
        const max = Math.max(...points.map(p => keys.reduce((sum, key) => sum + (p[key] ?? 0), 0)), 0) || 1;
        const y = scaleLinear()
            .domain([0, max])
            .range([HEIGHT - BOTTOM, TOP])
            .nice(4);
        const path = area()
            .curve(curveStepAfter)
            .x(d => c.x(d.data.t))
            .y0(d => y(d[0]))
            .y1(d => y(d[1]));
        layers.forEach((layer, i) => {
            const name = `area s-${keys[i].toLowerCase()}`;
            c.svg.append(s("path", { class: name, d: path(layer) ?? "" }));
        });
        c.axis(y, y.ticks(4), format);
        c.setLegend(series.map(([key, label]) => [`s-${key.toLowerCase()}`, label]));
        const text = p =>
            series
                .filter(([key]) => (p[key] ?? 0) > 0)
                .map(([key, label]) => `${label} ${format(p[key])}`)
                .join(", ");
        c.describe = t => {
            const p = nearest(points, t);
            return p ? `${clock(p.t)}: ${text(p)}` : "";
        };
        return points.length > 0 ? text(points.at(-1)) : "-";
    });
}

// data: { range, columns: [{ t, length, buckets: [{ lower, upper, count }] }] }
export function heatmap(title, format) {
    return new Chart(title, (c, { columns }) => {
        const buckets = columns.flatMap(column => column.buckets);
        const low = Math.min(...buckets.map(b => b.lower), 1e9),
            high = Math.max(...buckets.map(b => b.upper), 1000);
        const y = scaleLog()
            .domain([Math.min(low, high / 10), high])
            .range([HEIGHT - BOTTOM, TOP]);
        const most = Math.max(...buckets.map(b => b.count), 1);
        for (const column of columns) {
            const x = c.x(column.t),
                width = Math.max(1, c.x(column.t + column.length) - x);
            for (const b of column.buckets) {
                // By the logarithm: a single slow request is visible beside thousands of fast ones
                const strength = 0.15 + (0.85 * Math.log1p(b.count)) / Math.log1p(most);
                c.svg.append(
                    s("rect", {
                        class: "cell",
                        x,
                        width,
                        y: y(b.upper),
                        height: Math.max(1, y(b.lower) - y(b.upper)),
                        "fill-opacity": strength.toFixed(3),
                    }),
                );
            }
        }
        c.axis(y, logTicks(y), format);
        c.describe = t => {
            const column = columns.find(o => t >= o.t && t < o.t + o.length);
            const n = column?.buckets.reduce((sum, b) => sum + b.count, 0);
            if (!n) return "";
            const lowest = format(column.buckets[0].lower);
            return `${clock(column.t)}: ${n} x ${lowest} - ${format(column.buckets.at(-1).upper)}`;
        };
        return buckets.length > 0 ? `${format(low)} - ${format(high)}` : "-";
    });
}

// A bar of parts that add up: [class, label, value]
export function bar(parts, format) {
    const sum = parts.reduce((n, [, , value]) => n + value, 0);
    return h(
        "div.phases",
        {},
        h(
            "div.bar",
            { "aria-hidden": "true" },
            parts.map(([name, , value]) => {
                const piece = h(`span.${name}`);
                piece.style.flexGrow = String(sum > 0 ? value / sum : 0);
                return piece;
            }),
        ),
        h(
            "ul.legend",
            {},
            parts.map(([name, label, value]) => h("li", {}, h(`span.swatch.${name}`), label, " ", format(value))),
        ),
    );
}

// A line without axes: values in steps of the same length, undefined where there is none
export function sparkline(values, label) {
    const width = 120,
        height = 24;
    const known = values.filter(v => v !== undefined);
    const x = scaleLinear()
        .domain([0, Math.max(values.length - 1, 1)])
        .range([1, width - 1]);
    const y = scaleLinear()
        .domain([0, Math.max(...known, 1e-9)])
        .range([height - 2, 2]);
    const path = line()
        .defined(v => v !== undefined)
        .x((_v, i) => x(i))
        .y(v => y(v));
    return s(
        "svg",
        { class: "sparkline", role: "img", "aria-label": label, width, height, viewBox: `0 0 ${width} ${height}` },
        s("path", { class: "line c0", d: path(values) ?? "" }),
    );
}

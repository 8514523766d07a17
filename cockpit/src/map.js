// SPDX-License-Identifier: LGPL-2.1-or-later

// Units that send requests to each other, as a graph: in columns from clients to servers where there is width for that,
// otherwise in lines with arcs at their side.

import * as format from "./format.js";
import { h, s, setText } from "./dom.js";
import { call } from "./varlink.js";
import { hrefOf } from "./tables.js";

const _ = cockpit.gettext;

const WINDOW = 10 * format.NSEC_PER_SEC;
// Attached units of which peers are read: a reading of all 256 is more than a megabyte
const UNITS_MAX = 64;
// More cannot be taken in at a glance
const NODES_MAX = 40;
// Pixels
const BOX = { width: 220, height: 40 };
const GAP = { column: 56, row: 12 };
const MARGIN = 64;
const ARROW = 6;
const LABEL_MAX = 34;

const sumOf = errors => Object.values(errors ?? {}).reduce((sum, n) => sum + n, 0);

// Nodes by name, and edges between them, of attached units and of the units that these send requests to. Peers that are
// no units are nodes for the unit in the center only.
function graphOf(snapshots, center) {
    const nodes = new Map(),
        edges = new Map();
    for (const { unit, requests } of snapshots) {
        const { rate, latency } = requests?.server ?? {};
        nodes.set(unit, { name: unit, attached: true, rate, p99: latency?.p99 });
    }
    for (const { unit, requests, covered } of snapshots) {
        for (const p of requests?.client?.peers ?? []) {
            const name = p.unit ?? (unit === center && !p.rest ? p.peer : undefined);
            if (!name || name === unit || !(p.count > 0 || p.inFlight > 0 || sumOf(p.errors) > 0)) continue;
            if (!nodes.has(name)) nodes.set(name, { name });
            // A unit may have several sockets
            const key = JSON.stringify([unit, name]);
            const edge = edges.get(key) ?? { from: unit, to: name, rate: 0, errors: 0, p99: [] };
            edge.rate += p.rate ?? 0;
            edge.errors += covered > 0 ? (sumOf(p.errors) * format.NSEC_PER_SEC) / covered : 0;
            edge.p99.push(p.latency?.p99);
            edges.set(key, edge);
        }
    }
    for (const edge of edges.values()) edge.p99 = edge.p99.length === 1 ? edge.p99[0] : undefined;
    return { nodes, edges: [...edges.values()] };
}

// Those with an edge; with a center, those that are connected with it, the nearest first
function connected({ nodes, edges }, center) {
    const names = new Set(center ? [center] : edges.flatMap(e => [e.from, e.to]));
    for (const name of center ? names : []) {
        for (const e of edges) {
            if (e.from === name) names.add(e.to);
            if (e.to === name) names.add(e.from);
        }
    }
    const shown = new Set([...names].slice(0, NODES_MAX));
    return {
        nodes: [...shown].map(name => nodes.get(name) ?? { name }),
        edges: edges.filter(e => shown.has(e.from) && shown.has(e.to)),
        omitted: names.size - shown.size,
    };
}

// Sorts nodes from clients to servers, and gives each a layer behind those of its clients. An edge that closes a circle
// does not count.
function arrange({ nodes, edges }) {
    const order = [],
        open = new Set(),
        seen = new Set(),
        circle = new Set();
    const visit = name => {
        seen.add(name);
        open.add(name);
        for (const e of edges.filter(edge => edge.from === name)) {
            if (open.has(e.to)) circle.add(e);
            else if (!seen.has(e.to)) visit(e.to);
        }
        open.delete(name);
        order.unshift(name);
    };
    const names = nodes.map(n => n.name).sort();
    const first = names.filter(name => !edges.some(e => e.to === name));
    for (const name of [...first, ...names]) if (!seen.has(name)) visit(name);

    const layer = new Map(order.map(name => [name, 0]));
    for (const name of order) {
        for (const e of edges) {
            if (e.from === name && !circle.has(e)) layer.set(e.to, Math.max(layer.get(e.to), layer.get(name) + 1));
        }
    }
    return { order, layer };
}

const columnsWidth = n => n * (BOX.width + GAP.column) - GAP.column;

// Where nodes are: { width, height, boxes: Map of { x, y, width } }
function place({ order, layer }, edges, width) {
    const boxes = new Map();
    const layers = [...new Set(layer.values())].sort((a, b) => a - b);
    if (columnsWidth(layers.length) > width) {
        order.forEach((name, i) =>
            boxes.set(name, { x: MARGIN, y: i * (BOX.height + GAP.row), width: width - MARGIN }),
        );
        return { arcs: true, boxes, height: order.length * (BOX.height + GAP.row) };
    }
    const columns = layers.map(l => order.filter(name => layer.get(name) === l));
    const height = Math.max(...columns.map(c => c.length)) * (BOX.height + GAP.row);
    columns.forEach((column, i) => {
        // Near its clients
        const clients = name => edges.filter(e => e.to === name && boxes.has(e.from)).map(e => boxes.get(e.from).y);
        const mean = list => list.reduce((sum, y) => sum + y, 0) / (list.length || 1);
        const sorted = column.map(name => [mean(clients(name)), name]).sort(([a], [b]) => a - b);
        sorted.forEach(([, name], k) =>
            boxes.set(name, {
                x: i * (BOX.width + GAP.column),
                y: ((k + 0.5) * height) / column.length - BOX.height / 2,
                width: BOX.width,
            }),
        );
    });
    return { arcs: false, boxes, height };
}

// An edge as a path, with an arrow at its end
function pathOf(from, to, arcs) {
    const y1 = from.y + BOX.height / 2,
        y2 = to.y + BOX.height / 2;
    const arrow = x => `M${x - ARROW},${y2 - ARROW / 2}L${x},${y2}L${x - ARROW},${y2 + ARROW / 2}`;
    if (arcs) {
        const x = MARGIN - Math.min(MARGIN, 12 + Math.abs(y2 - y1) / 4) * 1.3;
        // Arcs begin above and end below the middle, so that both are told apart
        return `M${from.x},${y1 - 4}C${x},${y1} ${x},${y2} ${to.x},${y2}${arrow(to.x)}`;
    }
    const x1 = from.x + from.width,
        bend = Math.max(GAP.column / 2, (x1 - to.x) / 4);
    return `M${x1},${y1}C${x1 + bend},${y1} ${to.x - bend},${y2} ${to.x},${y2}${arrow(to.x)}`;
}

const shorten = text =>
    text.length > LABEL_MAX ? `${text.slice(0, LABEL_MAX / 2)}…${text.slice(1 - LABEL_MAX / 2)}` : text;

function describe(e) {
    const errors = e.errors > 0 ? `, ${cockpit.format(_("errors $0"), format.rate(e.errors))}` : "";
    return `${e.to}: ${format.rate(e.rate)}, p99 ${format.duration(e.p99)}${errors}`;
}

export class DependencyMap {
    // With the name of a unit: the map around it
    constructor(title, center) {
        this.center = center;
        this.svg = s("svg", { "aria-hidden": "true" });
        this.list = h("ul", { "aria-label": title });
        this.readout = h("p.readout", { "aria-hidden": "true" });
        this.note = h("p.note");
        this.element = h("div", { hidden: true }, h("div.map", {}, this.svg, this.list), this.readout, this.note);
        this.graph = { nodes: [], edges: [], omitted: 0 };
        this.width = 0;
        // Not within the notification: the height changes, too
        new ResizeObserver(() => window.requestAnimationFrame(() => this.resize())).observe(this.list);
    }

    // Reads peers of attached units. Whether there is something to see
    async read(bus) {
        const [list] = await bus.call("ListUnits");
        const names = list.map(([unit]) => unit);
        const units = names.filter(unit => unit !== this.center).slice(0, UNITS_MAX - 1);
        if (names.includes(this.center)) units.unshift(this.center);
        const { snapshots } = units.length > 0 ? await call("GetMany", { units, window: WINDOW }) : { snapshots: [] };
        this.set(connected(graphOf(snapshots, this.center), this.center));
        const parts = [];
        if (units.length < names.length)
            parts.push(cockpit.format(_("Peers of $0 of $1 attached units."), units.length, names.length));
        if (this.graph.omitted > 0) parts.push(cockpit.format(_("$0 more are not drawn."), this.graph.omitted));
        setText(this.note, parts.join(" "));
        return this.graph.edges.length > 0;
    }

    set(graph) {
        const key = ({ nodes, edges }) =>
            JSON.stringify([nodes.map(n => [n.name, n.attached]), edges.map(e => [e.from, e.to])]);
        const same = key(graph) === key(this.graph);
        this.graph = graph;
        this.element.hidden = graph.edges.length === 0;
        // Elements that stay keep the focus
        if (!same) this.build();
        this.showFigures();
    }

    build() {
        const { order, layer } = arrange(this.graph);
        this.order = { order, layer };
        const byName = new Map(this.graph.nodes.map(n => [n.name, n]));
        this.items = new Map(
            order.map(name => {
                const detail = h("span.node-detail"),
                    edges = h("span.hidden-text");
                const content = [h("span.node-label", {}, shorten(name)), detail, edges];
                const box = byName.get(name).attached
                    ? h("a.node", { href: hrefOf(name), title: name }, content)
                    : h("span.node.other", { title: name }, content);
                if (name === this.center) box.classList.add("center");
                for (const type of ["pointerenter", "focus"]) box.addEventListener(type, () => this.point(name));
                for (const type of ["pointerleave", "blur"]) box.addEventListener(type, () => this.point(null));
                return [name, { item: h("li", {}, box), detail, edges }];
            }),
        );
        this.list.replaceChildren(...[...this.items.values()].map(({ item }) => item));
        this.width = 0;
        this.resize();
    }

    showFigures() {
        for (const n of this.graph.nodes) {
            const { detail, edges } = this.items.get(n.name);
            setText(detail, n.attached ? `${format.rate(n.rate)}, p99 ${format.duration(n.p99)}` : _("not attached"));
            const out = this.graph.edges.filter(e => e.from === n.name).map(describe);
            setText(edges, out.length > 0 ? `. ${_("Sends requests to")} ${out.join("; ")}` : "");
        }
        for (const [i, e] of this.graph.edges.entries())
            this.svg.children[i]?.classList.toggle("failing", e.errors > 0);
    }

    resize() {
        const width = Math.floor(this.list.clientWidth);
        if (width === 0 || width === this.width || this.graph.nodes.length === 0) return;
        this.width = width;
        const { arcs, boxes, height } = place(this.order, this.graph.edges, width);
        for (const [name, { x, y, width: w }] of boxes) {
            const { style } = this.items.get(name).item;
            Object.assign(style, { left: `${x}px`, top: `${y}px`, width: `${w}px`, height: `${BOX.height}px` });
        }
        this.list.style.height = `${height}px`;
        this.svg.setAttribute("width", width);
        this.svg.setAttribute("height", height);
        this.svg.replaceChildren(
            ...this.graph.edges.map(e =>
                s("path", { class: "edge", d: pathOf(boxes.get(e.from), boxes.get(e.to), arcs) }),
            ),
        );
        this.showFigures();
    }

    // Shows what a unit sends and gets
    point(name) {
        const mine = this.graph.edges.filter(e => e.from === name || e.to === name);
        setText(this.readout, mine.map(e => `${e.from} → ${describe(e)}`).join("; "));
        for (const [i, e] of this.graph.edges.entries())
            this.svg.children[i]?.classList.toggle("pointed", mine.includes(e));
    }
}

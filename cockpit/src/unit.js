// SPDX-License-Identifier: LGPL-2.1-or-later

// The page of one unit

import * as format from "./format.js";
import * as tables from "./tables.js";
import { areaChart, bar, heatmap, lineChart } from "./charts.js";
import { DependencyMap } from "./map.js";
import { Diagnosis } from "./diagnosis.js";
import { History } from "./history.js";
import { Live } from "./live.js";
import { Settings } from "./settings.js";
import { Thresholds } from "./thresholds.js";
import { Varlink } from "./varlink.js";
import { h, setText, update } from "./dom.js";
import { journalOf } from "./overview.js";
import { loadCatalogue } from "./catalogue.js";

const _ = cockpit.gettext;

const SEC = format.NSEC_PER_SEC;
// Seconds of the figures and of the charts. Windows end at 5 min: figures of a longer time are those of the history
const WINDOWS = [
    [10, 600],
    [60, 600],
    [300, 600],
    [600, 600],
    [3600, 3600],
    [86400, 86400],
];
const WINDOW_MAX_SEC = 300;
const HISTORY_MSEC = 10000;
const SETTINGS_MSEC = 3000;

const PHASES = [
    ["receive", _("receive")],
    ["queue", _("queue")],
    ["service", _("service")],
    ["answer", _("response")],
];
const STATES = [
    "running",
    "runQueue",
    "throttled",
    "lock",
    "disk",
    "memory",
    "socket",
    "pipe",
    "child",
    "poll",
    "park",
    "sleep",
    "stopped",
    "other",
];

const errorCount = errors => Object.values(errors ?? {}).reduce((sum, n) => sum + n, 0);
const stateName = state => _(format.stateLabel(state));

function figure(label, key) {
    const value = h("dd", { "data-figure": key });
    return [h("div", {}, h("dt", {}, label), value), value];
}

export class UnitPage {
    constructor(unit, bus, permission) {
        this.unit = unit;
        this.bus = bus;
        this.permission = permission;
        this.diagnosis = new Diagnosis(unit);
        this.thresholds = new Thresholds(unit);
        this.settings = new Settings(unit);
        this.build();
        this.visibility = () => this.follow();
        cockpit.addEventListener("visibilitychange", this.visibility);
        this.crossed = event => event.detail.unit === unit && !cockpit.hidden && this.thresholds.read();
        bus.addEventListener("threshold", this.crossed);
        loadCatalogue().then(() => this.choose());
    }

    build() {
        this.window = h(
            "select",
            { id: "window", onchange: () => this.choose() },
            WINDOWS.map(([seconds]) => h("option", { value: seconds }, format.span(seconds * SEC))),
        );
        this.problem = h("p.notice", { role: "alert", hidden: true });
        this.figures = {};
        this.about = h("p.note");
        this.charts = {
            rate: lineChart(_("Requests and errors per second"), format.rate),
            latency: lineChart(_("Latency"), format.duration, { logarithmic: true }),
            heat: heatmap(_("Distribution of the latency"), format.duration),
            states: areaChart(_("Threads by state"), format.real),
        };
        this.phases = h("div");
        this.endpoints = h("div.scroll");
        this.peers = h("div.scroll");
        this.map = new DependencyMap(_("Units that send requests to each other, around this one"), this.unit);
        this.probes = h("div");
        // What is not shown without readings: charts are of the past
        this.current = [
            h("section.card", { id: "figures" }, this.buildFigures(), this.about),
            h("section.card", {}, h("h2", {}, _("Phases of a request")), this.phases),
            h("section.card", {}, h("h2", {}, _("Endpoints")), this.endpoints),
            h("section.card", {}, h("h2", {}, _("Dependencies")), this.map.element, this.peers),
        ];
        const [figures, ...details] = this.current;
        this.element = h(
            "main",
            {},
            h("nav", { "aria-label": _("Path") }, h("a", { href: "#/" }, _("Service quality")), " / ", this.unit),
            h(
                "header.head",
                {},
                h("h1", {}, this.unit),
                h(
                    "div.tools",
                    {},
                    h("label", {}, _("Window"), " ", this.window),
                    this.diagnosis.controls,
                    h(
                        "a",
                        {
                            href: "#",
                            onclick: event => {
                                event.preventDefault();
                                cockpit.jump(journalOf(this.unit));
                            },
                        },
                        _("Journal"),
                    ),
                ),
            ),
            this.problem,
            this.diagnosis.element,
            figures,
            h(
                "div.charts",
                {},
                Object.values(this.charts).map(chart => h("section.card", {}, chart.element)),
            ),
            details,
            this.probes,
            this.thresholds.element,
            this.settings.element,
        );
    }

    buildFigures() {
        const list = [
            ["rate", _("Rate")],
            ["errors", _("Errors")],
            ["inFlight", _("In flight")],
            ["p50", _("p50")],
            ["p90", _("p90")],
            ["p99", _("p99")],
            ["p999", _("p99.9")],
            ["max", _("Maximum")],
            ["firstByte", _("First byte p99")],
            ["cost", _("Cost of qosd")],
        ];
        return h(
            "dl.figures",
            {},
            list.map(([key, label]) => {
                const [element, value] = figure(label, key);
                this.figures[key] = value;
                return element;
            }),
        );
    }

    // A window was chosen
    choose() {
        const seconds = Number(this.window.value);
        const [, range] = WINDOWS.find(([w]) => w === seconds);
        this.seconds = seconds;
        this.history = new History(this.unit, range);
        this.live?.close();
        this.live = new Live(
            this.unit,
            Math.min(seconds, WINDOW_MAX_SEC) * SEC,
            (snapshot, recent) => this.show(snapshot, recent),
            error => this.fail(error),
        );
        this.follow();
    }

    // No data is read while the page is hidden
    follow() {
        window.clearInterval(this.historyTimer);
        window.clearInterval(this.settingsTimer);
        if (cockpit.hidden || this.closed) {
            this.live?.stop();
            this.connection?.close();
            this.connection = null;
            return;
        }
        this.live?.start();
        this.readHistory();
        this.readSettings();
        this.historyTimer = window.setInterval(() => this.readHistory(), HISTORY_MSEC);
        this.settingsTimer = window.setInterval(() => this.readSettings(), SETTINGS_MSEC);
    }

    readSettings() {
        this.thresholds.read();
        this.settings.read();
    }

    async readHistory() {
        const history = this.history;
        this.connection ??= new Varlink(() => {
            this.connection = null;
        });
        try {
            await history.read(this.connection);
        } catch {
            return; // The readings say what is wrong
        }
        if (history !== this.history || this.closed) return;
        this.drawHistory();
        this.map.read(this.bus).catch(() => {}); // The readings say what is wrong
    }

    drawHistory() {
        const { history } = this;
        const { range } = history;
        const server = step => step.requests?.server ?? {};
        this.charts.rate.set({
            range,
            series: [
                ["rate", _("requests")],
                ["errors", _("errors")],
            ],
            points: history.points(step => ({
                rate: server(step).rate,
                errors: (errorCount(server(step).errors) * SEC) / step.covered,
            })),
        });
        this.charts.latency.set({
            range,
            series: [
                ["p50", _("p50")],
                ["p90", _("p90")],
                ["p99", _("p99")],
            ],
            points: history.points(step => server(step).latency ?? {}),
        });
        this.charts.heat.set({ range, columns: history.columns() });
        const points = history.points(step => step.contention?.threads ?? {});
        this.charts.states.set({
            range,
            points,
            series: STATES.filter(state => points.some(p => p[state] > 0)).map(state => [state, stateName(state)]),
        });
        if (this.seconds > WINDOW_MAX_SEC) this.showSum(history.sum());
    }

    show(snapshot, recent) {
        this.problem.hidden = true;
        this.current.forEach(section => {
            section.hidden = false;
        });
        this.element.dataset.seq = snapshot.seq;
        const server = snapshot.requests?.server ?? {};
        if (this.seconds <= WINDOW_MAX_SEC) {
            this.setFigures({
                ...server.latency,
                rate: server.rate,
                errors: errorCount(server.errors),
                kinds: server.errors,
                firstByte: server.firstByte?.p99,
                cost: snapshot.cost?.share,
            });
            setText(this.about, this.describe(snapshot));
            this.showPhases(server);
        }
        const oldest = server.oldestInFlight;
        const age = oldest === undefined ? "" : ` (${cockpit.format(_("oldest $0"), format.duration(oldest))})`;
        this.setFigure("inFlight", server.inFlight, format.count(server.inFlight) + age);
        this.showTables(recent);
    }

    showSum(sum) {
        this.setFigures({
            ...sum.latency,
            rate: sum.rate,
            errors: errorCount(sum.errors),
            kinds: sum.errors,
            firstByte: sum.firstByte.p99,
        });
        setText(
            this.about,
            cockpit.format(_("Requests of $0, as far as the unit was observed"), format.span(sum.covered)),
        );
        this.showPhases(sum);
    }

    setFigure(key, value, text) {
        setText(this.figures[key], text);
        this.figures[key].dataset.value = value ?? "";
    }

    setFigures(f) {
        for (const key of ["p50", "p90", "p99", "p999", "max", "firstByte"])
            this.setFigure(key, f[key], format.duration(f[key]));
        this.setFigure("rate", f.rate, format.rate(f.rate));
        this.setFigure("cost", f.cost, format.percent(f.cost));
        const kinds = Object.entries(f.kinds ?? {})
            .filter(([, n]) => n > 0)
            .map(([kind, n]) => `${kind} ${n}`)
            .join(", ");
        this.setFigure("errors", f.errors, format.count(f.errors) + (kinds ? ` (${kinds})` : ""));
    }

    describe(snapshot) {
        const { quality } = snapshot.requests ?? {};
        const parts = [snapshot.activeState];
        if (quality) parts.push(cockpit.format(_("quality: $0"), quality));
        // A window may be shorter by a step
        if (snapshot.covered < 0.8 * snapshot.window)
            parts.push(cockpit.format(_("attached for $0"), format.span(snapshot.covered)));
        if (snapshot.drops > 0) parts.push(cockpit.format(_("$0 events not recorded"), snapshot.drops));
        return parts.join("; ");
    }

    showPhases(server) {
        const known = PHASES.filter(([key]) => server[key]?.mean !== undefined);
        const shares = Object.entries(server.service?.shares ?? {}).filter(([, share]) => share > 0);
        const bars = [];
        if (known.length > 0)
            bars.push(
                bar(
                    known.map(([key, label]) => [`p-${key}`, label, server[key].mean]),
                    format.duration,
                ),
            );
        if (shares.length > 0)
            bars.push(
                h("h3", {}, _("Service time by thread state")),
                bar(
                    shares.map(([state, share]) => [`s-${state.toLowerCase()}`, stateName(state), share]),
                    format.percent,
                ),
            );
        this.phases.replaceChildren(
            ...(bars.length > 0 ? bars : [h("p.empty", {}, _("No requests in the window."))]),
        );
    }

    showTables(snapshot) {
        const { server, client } = snapshot.requests ?? {};
        const list = server?.endpoints ?? [];
        update(this.endpoints, list.length > 0 ? tables.endpoints(list) : h("p.empty", {}, _("None is known.")));
        const { peers } = client ?? {};
        const hidden = !peers && !this.permission.allowed;
        const none = hidden
            ? _("Peers are hidden: root and the owner of the unit may see them, with administrative access.")
            : _("It has sent no requests to others in the last 10 s.");
        update(this.peers, peers?.length > 0 ? tables.peers(peers) : h("p.empty", {}, none));
        const sections = [
            ["network", _("Network")],
            ["storage", _("Storage")],
        ].filter(([key]) => snapshot[key]);
        update(
            this.probes,
            sections.map(([key, label]) =>
                h(
                    "section.card",
                    {},
                    h("details", {}, h("summary", {}, label), tables.metrics(label, snapshot[key], key)),
                ),
            ),
        );
    }

    fail(error) {
        this.problem.hidden = false;
        this.current.forEach(section => {
            section.hidden = true;
        });
        this.probes.replaceChildren();
        setText(
            this.problem,
            error.name === "NotAttached"
                ? _("The unit is not attached.")
                : error.name === "NoSuchUnit"
                  ? error.message
                  : cockpit.format(_("No readings: $0. It is tried again."), error.message),
        );
    }

    close() {
        this.closed = true;
        cockpit.removeEventListener("visibilitychange", this.visibility);
        this.bus.removeEventListener("threshold", this.crossed);
        this.follow();
        this.live?.close();
    }
}

// SPDX-License-Identifier: LGPL-2.1-or-later

// The table of attached units, and above it the violated thresholds

import * as format from "./format.js";
import { formatMetric, loadCatalogue } from "./catalogue.js";
import { h, setText } from "./dom.js";
import { AttachDialog } from "./attach.js";
import { DependencyMap } from "./map.js";
import { Sparklines } from "./sparklines.js";
import { hrefOf } from "./tables.js";

const _ = cockpit.gettext;

// One that is older is of no unit any more, or qosd is not serving
const STALE_MSEC = 5000;
const MAP_MSEC = 10000;

const COLUMNS = [
    { key: "rate", label: _("Rate"), format: u => format.rate(u.rate) },
    { key: "errorRate", label: _("Errors"), format: u => format.rate(u.errorRate) },
    { key: "latencyP50", label: _("p50"), format: u => format.duration(u.latencyP50) },
    { key: "latencyP99", label: _("p99"), format: u => format.duration(u.latencyP99) },
    { key: "inFlight", label: _("In flight"), format: u => format.count(u.inFlight) },
    {
        key: "worstWait",
        label: _("Top wait"),
        format: u => (u.worstWait ? _(format.stateLabel(u.worstWait)) : "-"),
        text: true,
    },
];

const STATES = { ok: _("ok"), violated: _("violated"), unknown: _("unknown") };

export function journalOf(unit) {
    const service = unit.endsWith(".service") ? `&service=${encodeURIComponent(unit)}` : "";
    return `/system/logs#/?prio=debug&tag=qosd${service}`;
}

class Row {
    constructor(unit, heading) {
        this.unit = unit;
        this.seen = 0;
        this.cells = Object.fromEntries(
            COLUMNS.map(c => [c.key, h(c.text ? "td" : "td.number", { "data-label": c.label })]),
        );
        this.spark = h("td", { "data-label": _("Ten minutes"), "data-unit": unit });
        this.state = h("span.label");
        this.note = h("div.note");
        this.element = h(
            "tr",
            { "data-unit": unit },
            h("th", { scope: "row", "data-label": heading }, h("a", { href: hrefOf(unit) }, unit), this.note),
            this.spark,
            COLUMNS.map(c => this.cells[c.key]),
            h("td", { "data-label": _("Thresholds") }, this.state),
        );
    }

    update(u, now) {
        this.seen = now;
        this.element.dataset.seq = u.seq;
        for (const c of COLUMNS) {
            setText(this.cells[c.key], c.format(u));
            this.cells[c.key].dataset.value = u[c.key] ?? "";
        }
        setText(this.state, STATES[u.state] ?? u.state);
        this.state.className = `label ${u.state}`;
        setText(this.note, [u.activeState === "active" ? "" : u.activeState, u.degraded].filter(Boolean).join("; "));
        this.violated = u.state === "violated";
    }
}

export class Overview {
    constructor(bus, permission) {
        this.bus = bus;
        this.permission = permission;
        this.rows = new Map();
        this.filter = "";
        this.violations = [];
        this.reading = false;
        this.received = false; // an overview on this connection
        this.sparklines = new Sparklines();
        this.dialog = new AttachDialog();
        this.build();
        loadCatalogue();

        this.listeners = [
            ["overview", event => this.onOverview(event.detail)],
            ["threshold", () => this.readThresholds()],
            ["detached", event => this.remove(event.detail)],
            ["state", () => this.onState()],
        ];
        this.listeners.forEach(([type, handler]) => bus.addEventListener(type, handler));
        this.timer = window.setInterval(() => this.removeStale(), 1000);
        this.mapTimer = window.setInterval(() => this.readMap(), MAP_MSEC);
        this.onState();
    }

    build() {
        const heading = _("Unit");
        this.search = h("input", {
            type: "search",
            id: "filter",
            placeholder: _("Filter by name"),
            "aria-label": _("Filter by name"),
            oninput: () => {
                this.filter = this.search.value.toLowerCase();
                this.arrange();
            },
        });
        this.alerts = h("section.alerts", { "aria-label": _("Violated thresholds"), "aria-live": "polite" });
        this.body = h("tbody");
        this.table = h(
            "table",
            {},
            h("caption.hidden-text", {}, _("Attached units, over the last seconds")),
            h(
                "thead",
                {},
                h(
                    "tr",
                    {},
                    h("th", { scope: "col" }, heading),
                    h("th", { scope: "col" }, _("Ten minutes")),
                    COLUMNS.map(c => h(c.text ? "th" : "th.number", { scope: "col" }, c.label)),
                    h("th", { scope: "col" }, _("Thresholds")),
                ),
            ),
            this.body,
        );
        this.empty = h("p.empty", { role: "status" });
        this.map = new DependencyMap(_("Units that send requests to each other"));
        this.noMap = h("p.empty", { role: "status" });
        // Read while it is open
        this.mapDetails = h(
            "details.card",
            { id: "map", ontoggle: () => this.readMap() },
            h("summary", {}, _("Dependency map")),
            this.map.element,
            this.noMap,
        );
        this.heading = heading;
        this.element = h(
            "main",
            {},
            h(
                "header.head",
                {},
                h("h1", {}, _("Service quality")),
                h(
                    "div.tools",
                    {},
                    this.search,
                    h(
                        "button.primary",
                        { type: "button", id: "attach", onclick: () => this.dialog.show() },
                        _("Attach a unit"),
                    ),
                ),
            ),
            this.alerts,
            h("div.card", {}, this.table, this.empty),
            this.mapDetails,
            this.dialog.element,
        );
    }

    onState() {
        if (!this.bus.connected) {
            this.received = false;
            this.rows.forEach(row => this.sparklines.remove(row.spark));
            this.rows.clear();
            this.violations = [];
            this.showViolations();
        }
        this.arrange();
    }

    onOverview(units) {
        const now = Date.now();
        let added = !this.received;
        this.received = true;
        for (const u of units) {
            let row = this.rows.get(u.unit);
            if (!row) {
                row = new Row(u.unit, this.heading);
                this.rows.set(u.unit, row);
                this.sparklines.add(row.spark);
                added = true;
            }
            row.update(u, now);
        }
        if (added) this.arrange();
        if (this.violations.length > 0 || [...this.rows.values()].some(row => row.violated)) this.readThresholds();
    }

    // With each change, and with each overview while there are violated ones: at most one call at a time
    async readThresholds() {
        if (this.reading || cockpit.hidden) return;
        this.reading = true;
        try {
            this.violations = (await this.bus.listThresholds()).filter(t => t.state === "violated");
        } catch {
            this.violations = [];
        }
        this.reading = false;
        this.showViolations();
    }

    showViolations() {
        const key = t => JSON.stringify([t.unit, t.name, t.since]);
        const shown = new Map([...this.alerts.children].map(child => [child.dataset.key, child]));
        for (const t of this.violations) {
            let alert = shown.get(key(t));
            shown.delete(key(t));
            if (!alert) {
                alert = h(
                    "div.alert",
                    { "data-key": key(t) },
                    h("strong", {}, t.unit),
                    h("code", {}, t.threshold),
                    h("span.value"),
                    cockpit.format(_("since $0"), format.time(t.since)),
                    h(
                        "a",
                        {
                            href: "#",
                            onclick: event => {
                                event.preventDefault();
                                cockpit.jump(journalOf(t.unit));
                            },
                        },
                        _("Show in the journal"),
                    ),
                );
                this.alerts.append(alert);
            }
            setText(
                alert.querySelector(".value"),
                t.value === undefined ? "" : cockpit.format(_("now $0"), formatMetric(t.metric, t.value)),
            );
        }
        for (const gone of shown.values()) gone.remove();
    }

    async readMap() {
        if (!this.mapDetails.open || cockpit.hidden) return;
        let text;
        try {
            text = (await this.map.read(this.bus))
                ? ""
                : this.permission.allowed
                  ? _("No attached unit has sent requests to another unit in the last 10 s.")
                  : _("Peers are hidden: root and the owner of the unit may see them, with administrative access.");
        } catch (error) {
            text = cockpit.format(_("No readings: $0. It is tried again."), error.message);
        }
        setText(this.noMap, text);
    }

    remove(unit) {
        const row = this.rows.get(unit);
        if (row) this.sparklines.remove(row.spark);
        this.rows.delete(unit);
        this.violations = this.violations.filter(t => t.unit !== unit);
        this.showViolations();
        this.arrange();
    }

    removeStale() {
        const before = Date.now() - STALE_MSEC;
        for (const row of this.rows.values()) {
            if (row.seen < before && !cockpit.hidden) this.remove(row.unit);
        }
    }

    arrange() {
        const shown = [...this.rows.values()]
            .filter(row => row.unit.toLowerCase().includes(this.filter))
            .sort((a, b) => a.unit.localeCompare(b.unit));
        this.body.replaceChildren(...shown.map(row => row.element));
        this.table.hidden = shown.length === 0;
        let text = "";
        if (!this.bus.connected)
            text =
                this.bus.problem === ""
                    ? _("qosd is not running. The page goes on when it is back.")
                    : cockpit.format(_("There is no connection to qosd ($0). It is tried again."), this.bus.problem);
        else if (!this.received) text = _("Waiting for readings.");
        else if (this.rows.size === 0) text = _("No unit is attached.");
        else if (shown.length === 0) text = _("No attached unit has this in its name.");
        setText(this.empty, text);
    }

    close() {
        window.clearInterval(this.timer);
        window.clearInterval(this.mapTimer);
        this.sparklines.close();
        this.listeners.forEach(([type, handler]) => this.bus.removeEventListener(type, handler));
    }
}

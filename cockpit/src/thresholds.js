// SPDX-License-Identifier: LGPL-2.1-or-later

// Thresholds of a unit with their error budgets, and a form for another one. qosd validates what is entered.

import * as format from "./format.js";
import { formatMetric, names } from "./catalogue.js";
import { h, setText } from "./dom.js";
import { call, collect, isDenied } from "./varlink.js";
import { table } from "./tables.js";

const _ = cockpit.gettext;

const BURN_RATES = [
    ["burnRate5min", "5min"],
    ["burnRate1h", "1h"],
    ["burnRate6h", "6h"],
];
const SOURCES = { administrator: _("administrator"), lease: _("a program"), unitFile: _("unit file") };

function budget(t) {
    if (t.total === undefined) return "-";
    const good = t.total > 0 ? format.percent(t.good / t.total) : "-";
    const burning = BURN_RATES.filter(([key]) => t[key] !== undefined).map(
        ([key, label]) => `${label} ${format.real(t[key])}`,
    );
    return (
        cockpit.format(_("$0 of $1 good"), good, format.count(t.total)) +
        (burning.length > 0 ? `; ${burning.join(", ")}` : "")
    );
}

export class Thresholds {
    constructor(unit) {
        this.unit = unit;
        this.list = h("div");
        this.error = h("p.error", { role: "alert" });
        this.fields = {
            name: this.field("name", _("Name"), { size: 10, required: true, placeholder: "slow" }),
            metric: this.field("metric", _("Metric"), {
                size: 32,
                required: true,
                list: "metrics",
                placeholder: "requests.server.latency.p99",
            }),
            comparison: h("select", { "aria-label": _("Comparison") }, h("option", {}, ">"), h("option", {}, "<")),
            limit: this.field("limit", _("Limit"), { size: 8, required: true, placeholder: "20ms" }),
            window: this.field("window", _("Over"), { size: 5, placeholder: "10s" }),
            duration: this.field("duration", _("For"), { size: 5, placeholder: "0s" }),
        };
        this.metrics = h("datalist", { id: "metrics" });
        this.element = h(
            "section.card",
            {},
            h("h2", {}, _("Thresholds")),
            this.list,
            h(
                "form.inline",
                {
                    onsubmit: event => {
                        event.preventDefault();
                        this.set();
                    },
                },
                this.fields.name.parentNode,
                this.fields.metric.parentNode,
                this.fields.comparison,
                this.fields.limit.parentNode,
                this.fields.window.parentNode,
                this.fields.duration.parentNode,
                this.metrics,
                h("button", { type: "submit", id: "set-threshold" }, _("Set")),
            ),
            this.error,
        );
    }

    field(name, label, attributes) {
        const input = h("input", { id: `threshold-${name}`, ...attributes });
        h("label", {}, label, " ", input);
        return input;
    }

    async read() {
        const replies = await collect("ListThresholds", { unit: this.unit }).catch(() => []);
        const list = replies.map(reply => reply.threshold);
        const key = JSON.stringify(list);
        if (this.metrics.children.length === 0)
            this.metrics.append(...names().map(name => h("option", { value: name })));
        // A row that has not changed keeps the focus
        if (key === this.shown) return;
        this.shown = key;
        this.list.replaceChildren(
            list.length === 0
                ? h("p.empty", {}, _("None is set."))
                : table(
                      _("Thresholds"),
                      [
                          [_("Name"), t => t.name, true],
                          [_("Rule"), t => h("code", {}, t.threshold), true],
                          [_("State"), t => h(`span.label.${t.state}`, {}, _(t.state)), true],
                          [_("Value"), t => (t.value === undefined ? "-" : formatMetric(t.metric, t.value))],
                          [_("Error budget"), budget, true],
                          [_("Set by"), t => t.origin ?? SOURCES[t.source] ?? t.source, true],
                          [
                              _("Action"),
                              t =>
                                  t.source === "administrator"
                                      ? h(
                                            "button",
                                            {
                                                type: "button",
                                                "aria-label": cockpit.format(_("Clear $0"), t.name),
                                                onclick: () => this.clear(t.name),
                                            },
                                            _("Clear"),
                                        )
                                      : "-",
                              true,
                          ],
                      ],
                      list,
                  ),
        );
    }

    async set() {
        const f = this.fields;
        const rule =
            `${f.name.value}: ${f.metric.value} ${f.comparison.value} ${f.limit.value}` +
            (f.window.value ? ` over ${f.window.value}` : "") +
            (f.duration.value ? ` for ${f.duration.value}` : "");
        await this.attempt(() => call("SetThreshold", { unit: this.unit, threshold: rule }));
    }

    async clear(name) {
        await this.attempt(() => call("ClearThreshold", { unit: this.unit, name }));
    }

    async attempt(change) {
        setText(this.error, "");
        try {
            await change();
        } catch (error) {
            setText(
                this.error,
                isDenied(error) ? _("Thresholds are changed with administrative access.") : error.message,
            );
        }
        await this.read();
    }
}

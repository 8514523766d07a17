// SPDX-License-Identifier: LGPL-2.1-or-later

// The button "Diagnose": what limits a unit, with evidence

import * as format from "./format.js";
import { h, setText } from "./dom.js";
import { call, isDenied } from "./varlink.js";

const _ = cockpit.gettext;

const CERTAINTY = { possible: _("possible"), likely: _("likely"), certain: _("certain") };

function finding(f) {
    return h(
        "li",
        {},
        h("strong", {}, f.text),
        " ",
        h("span.label", {}, CERTAINTY[f.certainty] ?? f.certainty),
        f.share === undefined ? "" : [" ", format.percent(f.share)],
        h("div.note", {}, _("Because: "), f.rule),
        f.next ? h("div.note", {}, _("Next: "), h("code", {}, f.next)) : "",
    );
}

function verdict(d) {
    return h(
        "div",
        { "data-verdict": d.verdict },
        h("p", {}, h("strong", {}, d.summary)),
        h("p", {}, d.text),
        h("ol.findings", {}, d.findings.map(finding)),
        d.excluded.length > 0
            ? h(
                  "details",
                  {},
                  h("summary", {}, _("Examined and excluded")),
                  h(
                      "ul",
                      {},
                      d.excluded.map(e => h("li", {}, e.text)),
                  ),
              )
            : "",
    );
}

export class Diagnosis {
    constructor(unit) {
        this.unit = unit;
        this.length = h(
            "select",
            {},
            [10, 60, 300].map(seconds => h("option", { value: seconds }, format.span(seconds * format.NSEC_PER_SEC))),
        );
        this.button = h(
            "button.primary",
            { type: "button", id: "diagnose", onclick: () => this.run() },
            _("Diagnose"),
        );
        this.progress = h("progress", { hidden: true, "aria-label": _("Progress of the diagnosis") });
        this.result = h("div", { role: "status" });
        this.controls = h(
            "span.tools",
            {},
            h("label", {}, _("Length of the diagnosis"), " ", this.length),
            this.button,
        );
        this.element = h("section.card", { hidden: true }, h("h2", {}, _("Diagnosis")), this.progress, this.result);
    }

    async run() {
        const seconds = Number(this.length.value),
            begin = Date.now();
        this.button.disabled = true;
        this.element.hidden = this.progress.hidden = false;
        this.progress.max = seconds;
        this.progress.value = 0;
        setText(
            this.result,
            cockpit.format(_("Observing $0 for $1"), this.unit, format.span(seconds * format.NSEC_PER_SEC)),
        );
        const timer = window.setInterval(() => {
            this.progress.value = (Date.now() - begin) / 1000;
        }, 250);
        try {
            this.result.replaceChildren(
                verdict(await call("Diagnose", { unit: this.unit, window: seconds * format.NSEC_PER_SEC })),
            );
        } catch (error) {
            setText(
                this.result,
                isDenied(error)
                    ? _("A diagnosis shows peers, threads and files: it needs administrative access.")
                    : error.message,
            );
        }
        window.clearInterval(timer);
        this.progress.hidden = true;
        this.button.disabled = false;
    }
}

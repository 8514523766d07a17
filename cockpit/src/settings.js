// SPDX-License-Identifier: LGPL-2.1-or-later

// What a unit is observed for: its holds, probes and exclusions, whether that is kept across boots, and its end

import * as format from "./format.js";
import { h, setText } from "./dom.js";
import { call, isDenied } from "./varlink.js";

const _ = cockpit.gettext;

const HOLDS = {
    administrator: _("administrator"),
    unitFile: _("unit file"),
    configuration: _("qosd.conf"),
    lease: _("a program"),
};
const OPTIONAL = ["tls", "block", "memory", "storage", "network"];

function hold(o) {
    const until = o.remaining === undefined ? "" : ` (${cockpit.format(_("another $0"), format.span(o.remaining))})`;
    return h(
        "li",
        {},
        HOLDS[o.type] ?? o.type,
        o.owner ? `: ${o.owner}` : "",
        until,
        " - ",
        o.probes.join(" "),
        o.exclude?.length ? [" - ", cockpit.format(_("without $0"), o.exclude.join(" "))] : "",
    );
}

export class Settings {
    constructor(unit) {
        this.unit = unit;
        this.holds = h("ul.plain");
        this.error = h("p.error", { role: "alert" });
        this.probes = OPTIONAL.map(name => h("input", { type: "checkbox", value: name }));
        this.exclude = h("input", { id: "exclude", size: 32, placeholder: "port:9100 http:/healthz" });
        this.keep = h("button", { type: "button", id: "keep", onclick: () => this.toggleKeep() });
        this.element = h(
            "section.card",
            {},
            h("h2", {}, _("Observation")),
            this.holds,
            h(
                "form.inline",
                {
                    onsubmit: event => {
                        event.preventDefault();
                        this.apply();
                    },
                },
                h(
                    "fieldset",
                    {},
                    h("legend", {}, _("Additional probes")),
                    this.probes.map(box => h("label", {}, box, " ", box.value)),
                ),
                h("label", {}, _("Leave out requests"), " ", this.exclude),
                h("button", { type: "submit", id: "apply" }, _("Apply")),
            ),
            h(
                "div.tools",
                {},
                this.keep,
                h(
                    "button",
                    { type: "button", id: "detach", onclick: () => this.attempt(() => call("Detach", { unit })) },
                    _("Detach"),
                ),
            ),
            this.error,
        );
    }

    // Fields that somebody may be changing are set once
    async read() {
        const reply = await call("List", { unit: this.unit }).catch(() => null);
        const holds = reply?.holds ?? [];
        const key = JSON.stringify(holds);
        if (key === this.shown) return;
        const first = this.shown === undefined;
        this.shown = key;
        this.holds.replaceChildren(...holds.map(hold));
        this.kept = holds.some(o => o.type === "unitFile");
        setText(this.keep, this.kept ? _("Do not keep across boots") : _("Keep across boots"));
        const mine = holds.find(o => o.type === "administrator");
        if (first && mine) {
            this.exclude.value = (mine.exclude ?? []).join(" ");
            this.probes.forEach(box => {
                box.checked = mine.probes.includes(box.value);
            });
        }
    }

    apply() {
        const probes = ["requests", "cpu", ...this.probes.filter(box => box.checked).map(box => box.value)];
        const exclude = this.exclude.value.split(/\s+/).filter(Boolean);
        return this.attempt(() => call("Attach", { unit: this.unit, probes, exclude }));
    }

    // qosctl writes a drop-in of the unit file, and has the service manager read it
    toggleKeep() {
        return this.attempt(() =>
            cockpit.spawn(["qosctl", this.kept ? "disable" : "enable", this.unit], {
                superuser: "require",
                err: "message",
            }),
        );
    }

    async attempt(change) {
        setText(this.error, "");
        try {
            await change();
        } catch (error) {
            setText(this.error, isDenied(error) ? _("This needs administrative access.") : error.message);
        }
        await this.read();
    }
}

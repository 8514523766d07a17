// SPDX-License-Identifier: LGPL-2.1-or-later

// A dialog with units that listen and are not attached, and what attaching one takes

import * as format from "./format.js";
import { h, setText } from "./dom.js";
import { call, isDenied } from "./varlink.js";

const _ = cockpit.gettext;

// qosd has a network namespace of its own: qosctl finds the sockets of the host
async function listening() {
    const output = await cockpit.spawn(["qosctl", "list", "--all", "--json=short"], {
        superuser: "try",
        err: "message",
    });
    // An object in each line
    return output
        .split("\n")
        .filter(Boolean)
        .map(line => JSON.parse(line))
        .filter(u => u.attached === false)
        .map(u => u.unit);
}

export class AttachDialog {
    constructor() {
        this.name = h("input", {
            id: "attach-name",
            list: "listening",
            required: true,
            placeholder: "nginx.service",
        });
        this.options = h("datalist", { id: "listening" });
        this.list = h("ul.plain.listening");
        this.cost = h("p.note");
        this.error = h("p.error", { role: "alert" });
        this.element = h(
            "dialog",
            { "aria-labelledby": "attach-title" },
            h(
                "form",
                {
                    onsubmit: event => {
                        event.preventDefault();
                        this.attach(this.name.value);
                    },
                },
                h("h2", { id: "attach-title" }, _("Attach a unit")),
                h("label", {}, _("Unit"), " ", this.name),
                this.options,
                h("p", {}, _("These listen and are not attached:")),
                this.list,
                this.cost,
                this.error,
                h(
                    "div.tools",
                    {},
                    h("button.primary", { type: "submit", id: "attach-ok" }, _("Attach")),
                    h("button", { type: "button", onclick: () => this.element.close() }, _("Cancel")),
                ),
            ),
        );
    }

    async show() {
        setText(this.error, "");
        this.list.replaceChildren(h("li", {}, _("Looking for sockets")));
        this.element.showModal();
        this.showCost();
        try {
            const units = await listening();
            this.options.replaceChildren(...units.map(unit => h("option", { value: unit })));
            this.list.replaceChildren(
                ...units.map(unit =>
                    h(
                        "li",
                        {},
                        h(
                            "button.link",
                            {
                                type: "button",
                                onclick: () => {
                                    this.name.value = unit;
                                    this.name.focus();
                                },
                            },
                            unit,
                        ),
                    ),
                ),
            );
            if (units.length === 0) this.list.replaceChildren(h("li", {}, _("None.")));
        } catch (error) {
            this.list.replaceChildren(h("li", {}, error.message));
        }
    }

    async showCost() {
        const status = await call("GetStatus", {}).catch(() => null);
        if (!status) return;
        const memory =
            status.mapMemoryPerUnit === undefined
                ? ""
                : cockpit.format(
                      _("A unit takes at least $0 of memory, and $1 for each open connection."),
                      format.bytes(status.mapMemoryPerUnit),
                      format.bytes(status.memoryPerSocket),
                  );
        setText(
            this.cost,
            `${memory} ` + cockpit.format(_("$0 of $1 units are attached."), status.units, status.unitsMax),
        );
    }

    async attach(unit) {
        setText(this.error, "");
        try {
            await call("Attach", { unit });
            this.name.value = "";
            this.element.close();
        } catch (error) {
            setText(this.error, isDenied(error) ? _("Attaching a unit needs administrative access.") : error.message);
        }
    }
}

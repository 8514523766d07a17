// SPDX-License-Identifier: LGPL-2.1-or-later

// Rates of the last ten minutes, of the rows that are in view, from the history of their units: one call at a time

import * as format from "./format.js";
import { Varlink } from "./varlink.js";
import { sparkline } from "./charts.js";

const _ = cockpit.gettext;

const STEP_USEC = 10e6;
const STEPS = 60;
const METRIC = "requests.server.rate";
const TURN_MSEC = 1000;
// A step is new every 10 s
const AGE_MSEC = 10000;

export class Sparklines {
    constructor() {
        this.inView = new Map();
        this.read = new Map();
        this.observer = new IntersectionObserver(entries =>
            entries.forEach(entry => {
                const { unit } = entry.target.dataset;
                if (entry.isIntersecting) this.inView.set(unit, entry.target);
                else this.inView.delete(unit);
            }),
        );
        this.timer = window.setInterval(() => this.turn(), TURN_MSEC);
        this.busy = false;
    }

    // The cell has the unit in data-unit
    add(cell) {
        this.observer.observe(cell);
    }

    remove(cell) {
        this.observer.unobserve(cell);
        this.inView.delete(cell.dataset.unit);
        this.read.delete(cell.dataset.unit);
    }

    async turn() {
        if (this.busy || cockpit.hidden || this.inView.size === 0) return;
        this.busy = true;
        const connection = new Varlink();
        for (const [unit, cell] of [...this.inView]) {
            if (cockpit.hidden || Date.now() - (this.read.get(unit) ?? 0) < AGE_MSEC) continue;
            this.read.set(unit, Date.now());
            try {
                this.draw(
                    cell,
                    await connection.call("History", {
                        unit,
                        metrics: [METRIC],
                        since: Date.now() * 1000 - STEPS * STEP_USEC,
                        step: STEP_USEC * 1000,
                    }),
                );
            } catch {
                cell.replaceChildren();
            }
        }
        connection.close();
        this.busy = false;
    }

    draw(cell, { steps }) {
        const begin = Date.now() * 1000 - STEPS * STEP_USEC;
        const values = new Array(STEPS).fill(undefined);
        for (const step of steps) {
            const i = Math.floor((step.timestamp - begin) / STEP_USEC);
            if (i >= 0 && i < STEPS) values[i] = step.requests?.server?.rate;
        }
        const known = values.filter(v => v !== undefined);
        const label =
            known.length > 0
                ? cockpit.format(
                      _("Rate in ten minutes: from $0 to $1"),
                      format.rate(Math.min(...known)),
                      format.rate(Math.max(...known)),
                  )
                : _("Rate in ten minutes: not known");
        cell.replaceChildren(sparkline(values, label));
    }

    close() {
        window.clearInterval(this.timer);
        this.observer.disconnect();
    }
}

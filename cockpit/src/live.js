// SPDX-License-Identifier: LGPL-2.1-or-later

// Readings of one unit once a second while the page is visible. The connection is made again after it has ended.

import { Varlink } from "./varlink.js";
import { NSEC_PER_SEC } from "./format.js";

const RETRY_MSEC = 2000;
// Of endpoints and peers
const TABLE_WINDOW = 10 * NSEC_PER_SEC;

export class Live {
    // onreading(snapshot, of the window that was chosen; snapshot of 10 s), onproblem(error)
    constructor(unit, window_, onreading, onproblem) {
        Object.assign(this, { unit, window: window_, onreading, onproblem });
        this.connection = null;
        this.timer = null;
        this.closed = false;
        this.busy = false;
    }

    start() {
        if (this.connection || this.closed) return;
        window.clearTimeout(this.timer);
        const connection = new Varlink(error => this.failed(connection, error));
        this.connection = connection;
        connection
            .more("Subscribe", { units: [this.unit], window: TABLE_WINDOW, interval: NSEC_PER_SEC }, reply =>
                this.receive(reply.snapshot),
            )
            .catch(error => this.failed(connection, error));
        this.other = this.window === TABLE_WINDOW ? null : new Varlink();
    }

    // A window of another length is read with each reading, unless the one before has not arrived
    async receive(snapshot) {
        if (!this.other) {
            this.onreading(snapshot, snapshot);
            return;
        }
        if (this.busy) return;
        this.busy = true;
        try {
            this.onreading(await this.other.call("Get", { unit: this.unit, window: this.window }), snapshot);
        } catch (error) {
            this.onproblem(error);
        }
        this.busy = false;
    }

    failed(connection, error) {
        if (this.connection !== connection) return;
        this.stop();
        if (this.closed) return;
        this.onproblem(error);
        this.timer = window.setTimeout(() => this.start(), RETRY_MSEC);
    }

    stop() {
        const connections = [this.connection, this.other];
        this.connection = this.other = null;
        this.busy = false;
        window.clearTimeout(this.timer);
        connections.forEach(connection => connection?.close());
    }

    close() {
        this.closed = true;
        this.stop();
    }
}

// SPDX-License-Identifier: LGPL-2.1-or-later

// org.qosd1 on the system bus: its state, and the overview that it sends once a second. A new connection is made when
// the channel ends, and a new subscription when qosd has been restarted.

const NAME = "org.qosd1";
const PATH = "/org/qosd1";
const MANAGER = "org.qosd1.Manager";
// A connection of its own: that which Cockpit's bridge shares does not survive a restart of the bus, and has one
// subscription for all pages
const ADDRESS = "unix:path=/run/dbus/system_bus_socket";
const RETRY_MSEC = 2000;
// Overviews come every second while there is a subscription
const SILENCE_MSEC = 4000;

// Events: "state" (connected, or not), "overview" (detail: units of one signal), "threshold" (detail: the change),
// "detached" (detail: name), "attached"
export class Bus extends EventTarget {
    constructor() {
        super();
        this.client = null;
        this.connected = false;
        this.wanted = false;
        this.subscribed = false;
        this.problem = "";
        this.heard = 0;
        this.open();
        window.setInterval(() => this.watch(), 1000);
    }

    // The bridge does not say that the bus is gone. If qosd has left it before, nothing more comes on this channel
    watch() {
        if (!this.client || Date.now() - this.heard <= SILENCE_MSEC) return;
        if (this.subscribed) this.client.close("timeout");
        else if (this.wanted && !this.connected) {
            const { client } = this;
            this.open();
            client.close();
        }
    }

    open() {
        this.heard = Date.now();
        const client = cockpit.dbus(NAME, { bus: "none", address: ADDRESS, superuser: "try" });
        this.client = client;
        client.addEventListener("owner", (_event, owner) => {
            if (this.client === client) this.setConnected(Boolean(owner));
        });
        client.addEventListener("close", (_event, options) => {
            if (this.client !== client) return;
            this.problem = options?.problem ?? "";
            this.client = null;
            this.setConnected(false);
            window.setTimeout(() => this.open(), RETRY_MSEC);
        });
        // Only signals without NaN, which JSON does not have: Cockpit would end the channel
        this.listen("Overview", units => {
            this.heard = Date.now();
            this.emit("overview", units.map(plain));
        });
        this.listen("ThresholdChanged", event => this.emit("threshold", plain(event)));
        this.listen("UnitAttached", name => this.emit("attached", name));
        this.listen("UnitDetached", name => this.emit("detached", name));
    }

    listen(member, handler) {
        this.client.subscribe({ path: PATH, interface: MANAGER, member }, (_path, _interface, _member, [argument]) =>
            handler(argument),
        );
    }

    emit(type, detail) {
        this.dispatchEvent(new CustomEvent(type, { detail }));
    }

    setConnected(connected) {
        // Also from one owner to another: the subscription was that of the earlier one
        this.subscribed = false;
        this.connected = connected;
        if (connected) this.problem = "";
        this.emit("state");
        this.update();
    }

    // Whether overviews are wanted: not while the page is hidden
    want(wanted) {
        this.wanted = wanted;
        this.update();
    }

    async update() {
        if (!this.connected || this.wanted === this.subscribed) return;
        this.subscribed = this.wanted;
        this.heard = Date.now();
        try {
            await this.call(this.wanted ? "Subscribe" : "Unsubscribe");
        } catch (error) {
            console.warn(`qosd: ${error.message}`);
        }
    }

    call(method, ...typed) {
        const [type, ...values] = typed;
        if (!this.client) return Promise.reject(new Error(this.problem || "not-found"));
        return this.client.call(PATH, MANAGER, method, values, { type: type ?? "" });
    }

    async listThresholds(unit = "") {
        const [thresholds] = await this.call("ListThresholds", "s", unit);
        return thresholds.map(plain);
    }

    async getProperty(name) {
        const [value] = await this.client.call(PATH, "org.freedesktop.DBus.Properties", "Get", [MANAGER, name], {
            type: "ss",
        });
        return value.v;
    }
}

// The values of a{sv}
function plain(dictionary) {
    return Object.fromEntries(Object.entries(dictionary).map(([key, variant]) => [key, variant.v]));
}

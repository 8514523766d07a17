// SPDX-License-Identifier: LGPL-2.1-or-later

// org.qosd.QoS by varlink: a channel of Cockpit to the socket. Each message is JSON, and ends with a byte of 0.

const SOCKET = "/run/qosd/org.qosd.QoS";
const INTERFACE = "org.qosd.QoS.";
// With and without a right that polkit grants after a prompt
const DENIED = ["PermissionDenied", "InteractiveAuthenticationRequired"];

export class VarlinkError extends Error {
    constructor(name, parameters) {
        super(parameters?.message ?? name);
        this.name = name.replace(INTERFACE, "");
    }
}

// Whether a call, or a process, needs administrative access
export function isDenied(error) {
    return error.problem === "access-denied" || DENIED.some(name => error.name?.endsWith(name));
}

// Calls on one connection are replied to in their order
export class Varlink {
    constructor(onclose = () => {}) {
        this.waiting = [];
        this.rest = new Uint8Array(0);
        this.channel = cockpit.channel({ payload: "stream", unix: SOCKET, binary: true, superuser: "try" });
        this.channel.addEventListener("message", (_event, data) => this.receive(data));
        this.channel.addEventListener("close", (_event, options) => {
            const error = new VarlinkError("Disconnected", { message: options.message ?? options.problem ?? "" });
            this.waiting.splice(0).forEach(call => call.reject(error));
            onclose(error);
        });
    }

    receive(data) {
        const all = new Uint8Array(this.rest.length + data.length);
        all.set(this.rest);
        all.set(data, this.rest.length);
        let begin = 0;
        for (let end = all.indexOf(0); end >= 0; end = all.indexOf(0, begin)) {
            this.dispatch(JSON.parse(new TextDecoder().decode(all.subarray(begin, end))));
            begin = end + 1;
        }
        this.rest = all.slice(begin);
    }

    dispatch(message) {
        const call = this.waiting[0];
        if (!message.continues) this.waiting.shift();
        if (message.error) call.reject(new VarlinkError(message.error, message.parameters));
        else if (call.onreply) {
            call.onreply(message.parameters ?? {});
            if (!message.continues) call.resolve();
        } else call.resolve(message.parameters ?? {});
    }

    send(method, parameters, onreply) {
        return new Promise((resolve, reject) => {
            if (!this.channel.valid) {
                reject(new VarlinkError("Disconnected"));
                return;
            }
            this.waiting.push({ resolve, reject, onreply });
            const message = { method: INTERFACE + method, parameters, ...(onreply && { more: true }) };
            this.channel.send(new TextEncoder().encode(`${JSON.stringify(message)}\0`));
        });
    }

    call(method, parameters = {}) {
        return this.send(method, parameters);
    }

    // onreply is called with each reply; the promise ends with the last one
    more(method, parameters, onreply) {
        return this.send(method, parameters, onreply);
    }

    close() {
        this.channel.close();
    }
}

// A call on a connection of its own
export async function call(method, parameters) {
    const connection = new Varlink();
    try {
        return await connection.call(method, parameters);
    } finally {
        connection.close();
    }
}

export async function collect(method, parameters) {
    const connection = new Varlink();
    const replies = [];
    try {
        await connection.more(method, parameters, reply => replies.push(reply));
        return replies;
    } catch (error) {
        if (error.name === "NoEntries") return [];
        throw error;
    } finally {
        connection.close();
    }
}

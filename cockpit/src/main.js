// SPDX-License-Identifier: LGPL-2.1-or-later

import { Bus } from "./bus.js";
import { Overview } from "./overview.js";
import { followTheme } from "./theme.js";
import { h } from "./dom.js";

const _ = cockpit.gettext;

// What D-Bus does not show to a user without administrative access is absent: this says why
function accessNotice() {
    const permission = cockpit.permission({ admin: true });
    const notice = h("p.notice", { hidden: true },
        _("Limited access: attaching units, and names of peers, files and threads, need administrative access."));
    let before = null;
    permission.addEventListener("changed", () => {
        notice.hidden = permission.allowed !== false;
        // Channels keep the rights with which they were opened
        if (before !== null && permission.allowed !== null && before !== permission.allowed)
            window.location.reload();
        before = permission.allowed ?? before;
    });
    return notice;
}

function main() {
    const app = document.getElementById("app");
    const bus = new Bus();
    const follow = () => bus.want(!cockpit.hidden);

    document.documentElement.lang = cockpit.language || "en";
    cockpit.translate();
    cockpit.addEventListener("visibilitychange", follow);
    follow();
    app.replaceChildren(accessNotice(), new Overview(bus).element);
}

followTheme();
cockpit.transport.wait(main);

// SPDX-License-Identifier: LGPL-2.1-or-later

import { Bus } from "./bus.js";
import { Overview } from "./overview.js";
import { UnitPage } from "./unit.js";
import { followTheme } from "./theme.js";
import { h } from "./dom.js";

const _ = cockpit.gettext;

// What D-Bus and varlink do not show to a user without administrative access is absent: this says why
function accessNotice(permission) {
    const notice = h(
        "p.notice",
        { hidden: true },
        _("Limited access: attaching units, and names of peers, files and threads, need administrative access."),
    );
    let before = null;
    const update = () => {
        notice.hidden = permission.allowed !== false;
        // Channels keep the rights with which they were opened
        if (before !== null && permission.allowed !== null && before !== permission.allowed) window.location.reload();
        before = permission.allowed ?? before;
    };
    permission.addEventListener("changed", update);
    update();
    return notice;
}

function main() {
    const bus = new Bus();
    const permission = cockpit.permission({ admin: true });
    const content = h("div");
    let shown = null;

    const follow = () => bus.want(!cockpit.hidden && shown instanceof Overview);
    const navigate = () => {
        const [unit] = cockpit.location.path;
        shown?.close();
        shown = unit ? new UnitPage(unit, bus, permission) : new Overview(bus, permission);
        content.replaceChildren(shown.element);
        follow();
    };

    document.documentElement.lang = cockpit.language || "en";
    cockpit.translate();
    cockpit.addEventListener("visibilitychange", follow);
    cockpit.addEventListener("locationchanged", navigate);
    document.getElementById("app").replaceChildren(accessNotice(permission), content);
    navigate();
}

followTheme();
cockpit.transport.wait(main);

// SPDX-License-Identifier: LGPL-2.1-or-later

// The style that is chosen in Cockpit's menu: dark, light, or that of the browser

const CLASS = "pf-v6-theme-dark";
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function apply(style) {
    const chosen = style || localStorage.getItem("shell:style") || "auto";
    document.documentElement.classList.toggle(CLASS, chosen === "dark" || (chosen === "auto" && dark.matches));
}

export function followTheme() {
    window.addEventListener("storage", event => {
        if (event.key === "shell:style") apply();
    });
    window.addEventListener("cockpit-style", event => apply(event.detail?.style));
    dark.addEventListener("change", () => apply());
    apply();
}

// SPDX-License-Identifier: LGPL-2.1-or-later

// Elements. Text of the system gets into the page as text nodes only, so that markup in it has no effect.

const SVG = "http://www.w3.org/2000/svg";

function append(element, children) {
    for (const child of children.flat(Infinity)) {
        if (child !== null && child !== undefined && child !== false)
            element.append(child instanceof Node ? child : printable(String(child)));
    }
    return element;
}

function setAttributes(element, attributes) {
    for (const [name, value] of Object.entries(attributes)) {
        if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
        else if (value === true) element.setAttribute(name, "");
        else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
    }
}

// Control characters, and those that change the direction of text, as escapes
export function printable(text) {
    return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, c =>
        c.charCodeAt(0) < 256
            ? `\\x${c.charCodeAt(0).toString(16).padStart(2, "0")}`
            : `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
    );
}

// h("a.link", { href: "#/" }, "text", [more])
export function h(tag, attributes = {}, ...children) {
    const [name, ...classes] = tag.split(".");
    const element = document.createElement(name);
    if (classes.length > 0) element.className = classes.join(" ");
    setAttributes(element, attributes);
    return append(element, children);
}

export function s(tag, attributes = {}, ...children) {
    const element = document.createElementNS(SVG, tag);
    setAttributes(element, attributes);
    return append(element, children);
}

// Changes only what differs, so that a screen reader does not repeat it
export function setText(element, text) {
    const shown = printable(text);
    if (element.textContent !== shown) element.textContent = shown;
}

function patch(old, now) {
    if (old.nodeName !== now.nodeName) {
        old.replaceWith(now);
        return;
    }
    if (now.nodeType === Node.TEXT_NODE) {
        if (old.data !== now.data) old.data = now.data;
        return;
    }
    for (const name of old.getAttributeNames()) {
        // That of <details>, which the user opens
        if (name !== "open" && !now.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of now.attributes) {
        if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    const before = [...old.childNodes],
        after = [...now.childNodes];
    after.forEach((child, i) => (i < before.length ? patch(before[i], child) : old.append(child)));
    before.slice(after.length).forEach(child => child.remove());
}

// Gives an element other children, and keeps those that are of the same kind: the focus stays, and what was opened
// stays open. Listeners are those of the first children.
export function update(element, ...children) {
    patch(element, append(element.cloneNode(false), children));
}

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

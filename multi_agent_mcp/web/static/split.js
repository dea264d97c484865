// Two panes: a list and what is chosen in it. What is chosen stands in the address, so that it can be linked to.

import { t, h } from "./core.js";

const split = document.getElementById("split");
const chosen = document.getElementById("chosen");
const nothing = chosen.firstElementChild;

// `show(id)` resolves to the nodes of the chosen thing, or to null when it is there no more.
export function choosing(show) {
  let current = null;

  const look = async () => {
    const id = current;
    const nodes = id ? await show(id) : null;
    if (id !== current) return; // another one was chosen meanwhile
    split.classList.toggle("has-chosen", Boolean(nodes));
    if (!nodes) { chosen.replaceChildren(nothing); return; }
    const back = h("button", { type: "button", class: "ghost back", onclick: () => { location.hash = ""; } }, `← ${t("close")}`);
    chosen.replaceChildren(back, ...nodes.filter(Boolean));
  };
  const follow = () => {
    current = named();
    mark();
    look();
  };
  const mark = () => {
    for (const link of document.querySelectorAll(".rows a")) link.setAttribute("aria-current", String(link.dataset.id === current));
  };
  addEventListener("hashchange", follow);
  queueMicrotask(follow);
  return { look, mark, current: () => current };
}

// `#id`, or `#…&id=…` beside other settings of the page.
function named() {
  const hash = location.hash.slice(1);
  return hash.includes("=") ? new URLSearchParams(hash).get("id") : hash || null;
}

export function row(id, link, unread, ...content) {
  return h("li", { class: unread ? "unread" : "" }, h("a", { href: link, "data-id": id }, ...content));
}

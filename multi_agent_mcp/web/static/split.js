// Two panes: a list and the chosen item. The address holds its id, so that it can be linked to.

import { h, t } from "./core.js";
import { marked, settle } from "./lists.js";
import { watch } from "./live.js";

const split = document.getElementById("split");
const chosen = document.getElementById("chosen");
const nothing = chosen.firstElementChild;

const wide = matchMedia("(min-width: 761px)");

// `show(id, isChosen)` resolves to the nodes of the chosen item; it is fetched again when one of the topics changed.
// Should that fail, the nodes shown for it stay. Where there is room beside the list and nothing is chosen, the first
// item is shown; that counts as looked at by nobody.
export function choosing(topics, show) {
  let current = null;
  let first = null; // what is shown although nobody chose it
  let shown = null;

  const present = (id, nodes) => {
    shown = id;
    split.classList.toggle("has-chosen", Boolean(id));
    if (!id) { chosen.replaceChildren(nothing); return; }
    const focused = chosen.contains(document.activeElement) ? document.activeElement : null;
    const back = h("button", { type: "button", class: "ghost back", "data-mark": "back", onclick: () => { location.hash = ""; } }, `← ${t("close")}`);
    settle(chosen, [back, ...nodes.filter(Boolean)]);
    if (focused && !focused.isConnected) marked(chosen, focused)?.focus();
  };
  const look = async () => {
    const id = current;
    try {
      const nodes = id ? await show(id, id === named()) : [];
      if (id === current) present(id, nodes); // else another one was chosen meanwhile
    } catch (error) {
      if (id === current && id !== shown) present(null);
      throw error;
    }
  };
  const mark = () => {
    const links = [...document.querySelectorAll(".rows a")];
    if (!links.some((link) => link.dataset.id === first)) first = links[0]?.dataset.id ?? null;
    const before = current;
    current = named() ?? (wide.matches ? first : null);
    for (const link of links) link.setAttribute("aria-current", String(link.dataset.id === current));
    return current !== before;
  };
  const again = watch(topics, look);
  const follow = () => {
    mark();
    again();
  };
  wide.addEventListener("change", follow);
  addEventListener("hashchange", follow);
  queueMicrotask(follow);
  return { look: again, mark: () => mark() && again() };
}

// `#id`, or `#…&id=…` beside other settings of the page.
function named() {
  const hash = location.hash.slice(1);
  return hash.includes("=") ? new URLSearchParams(hash).get("id") : hash || null;
}

export function row(id, link, unread, ...content) {
  return h("li", { class: unread ? "unread" : "" }, h("a", { href: link, "data-id": id }, ...content));
}

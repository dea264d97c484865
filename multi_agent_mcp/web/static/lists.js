// Lists that change in place: a node is kept while its item is unchanged.

import { api, query } from "./core.js";

export const MOST = 200; // what one answer holds (request.py)

// The first `number` items of a paged list, as one answer.
export async function counted(path, name, number, filters = {}) {
  const found = [];
  let answer;
  do {
    const limit = Math.min(number - found.length, MOST);
    answer = await api(`${path}${query({ ...filters, offset: found.length, limit })}`);
    found.push(...answer[name]);
  } while (answer[name].length && found.length < Math.min(number, answer.total));
  return { ...answer, [name]: found };
}

const shownItems = new WeakMap();
export function keyed(parent, items, keyOf, render) {
  const known = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const focusedKey = focused?.closest("[data-key]")?.dataset.key;
  const nodes = items.map((item) => {
    const key = keyOf(item);
    const says = JSON.stringify(item);
    const old = known.get(key);
    if (old && shownItems.get(old) === says) return old;
    const node = render(item);
    node.dataset.key = key;
    shownItems.set(node, says);
    return node;
  });
  settle(parent, nodes);
  if (focused && !focused.isConnected && focusedKey) {
    const again = document.querySelector(`[data-key="${CSS.escape(focusedKey)}"]`);
    (focused.dataset.mark ? marked(again, focused) : again)?.focus();
  }
}

// Makes these the only children. A node that stays is not moved, so selection, scroll position and focus survive.
export function settle(parent, nodes) {
  const staying = new Set(nodes);
  for (const node of [...parent.children]) if (!staying.has(node)) node.remove();
  nodes.forEach((node, index) => {
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] ?? null);
  });
}

// The replacement of an element that had the focus: the one with the same mark.
export function marked(parent, { dataset }) {
  return dataset.mark ? parent?.querySelector(`[data-mark="${CSS.escape(dataset.mark)}"]`) : null;
}

// The frame of every page: its title, the badges, the connection light.

import { keyOf, whenAttentionChanges } from "./attention.js";
import { api, attempt } from "./core.js";
import { watch } from "./live.js";
import { notify } from "./notifying.js";

const title = document.title;

whenAttentionChanges((items) => {
  document.title = items.length ? `(${items.length}) ${title}` : title;
  badge("board", items.length);
  notify(items, keyOf);
});
watch(["messages"], async () => badge("messages", (await api("/session")).unread));

function badge(page, number) {
  const element = document.getElementById(`badge-${page}`);
  element.textContent = number > 99 ? "99+" : number;
  element.hidden = !number;
}

// The Owner has seen a message of their own.
export const markRead = (id) => attempt(async () => badge("messages", (await api(`/messages/${id}/read`, {})).unread));

document.getElementById("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
});

document.addEventListener("keydown", (event) => {
  const writing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || writing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  document.getElementById("sought").select();
});

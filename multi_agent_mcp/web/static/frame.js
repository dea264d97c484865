// The frame of every page: its title, the badges, the connection light.

import { isDecision, keyOf, whenAttentionChanges } from "./attention.js";
import { api, attempt, facts, placeHomes } from "./core.js";
import { useKeys } from "./keys.js";
import { lookAgain, watch } from "./live.js";
import { notify } from "./notifying.js";

const title = document.title;

whenAttentionChanges((items) => {
  const open = items.filter(isDecision).length;
  document.title = open ? `(${open}) ${title}` : title;
  badge("board", open);
  notify(items, keyOf);
});
watch(["messages"], async () => badge("messages", (await api("/session")).unread));
if (facts.homes) {
  watch(["agents", "machines"], async () => placeHomes((await api("/session")).homes));
  let troubles = ""; // a relay that was killed writes no file that would tell of it
  whenAttentionChanges((items) => {
    const now = items.filter(({ kind }) => kind === "machine").map(({ id, text }) => `${id} ${text}`).join();
    if (now !== troubles) lookAgain(["machines"]);
    troubles = now;
  });
}

function badge(page, number) {
  const element = document.getElementById(`badge-${page}`);
  element.textContent = number > 99 ? "99+" : number;
  element.hidden = !number;
}

// The Owner has seen a message of their own.
export const markRead = (id) => facts.acts && attempt(async () => badge("messages", (await api(`/messages/${id}/read`, {})).unread));

document.getElementById("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
});

useKeys();

// The frame of every page: its title, the badges, the connection light.

import { api } from "./core.js";
import { watch } from "./live.js";

const title = document.title;

async function frame() {
  const session = await api("/session");
  document.title = session.unread ? `(${session.unread}) ${title}` : title;
  badge("messages", session.unread);
  badge("board", session.requests);
}

export function badge(page, number) {
  const element = document.getElementById(`badge-${page}`);
  element.textContent = number > 99 ? "99+" : number;
  element.hidden = !number;
}

document.getElementById("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
});

watch(["messages", "tasks"], frame);

// The keys of every page; `?` shows them.

import { pick } from "./asked.js";
import { h, t } from "./core.js";
import { dialog } from "./dialogs.js";
import { openPalette } from "./palette.js";

const EVERY_PAGE = { b: "board", a: "agents", f: "files", m: "messages", c: "conversations", l: "timeline", e: "executions", s: "stats", h: "health" };
export const PAGES = Object.fromEntries(Object.entries(EVERY_PAGE).filter(([, page]) => document.querySelector(`.rail [href="/${page === "board" ? "" : page}"]`)));
const IN_SHEETS = /^[1-9u]$/; // answering, and taking it back
const SOON = 1500; // milliseconds between `g` and the page's letter

export function useKeys() {
  let going = 0; // when `g` was pressed
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault(); // browsers have a search of their own there
      openPalette();
      return;
    }
    const writing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (writing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]") && !IN_SHEETS.test(event.key)) return;
    const page = Date.now() - going < SOON && PAGES[event.key];
    going = event.key === "g" ? Date.now() : 0;
    const act = page ? () => { location.href = page === "board" ? "/" : `/${page}`; } : acts[event.key] ?? (/^[1-9]$/.test(event.key) && document.querySelector(".asked") ? () => pick(event.key) : null);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }, { capture: true }); // before the board's own keys: `g m` on a card is not its menu
}

const acts = {
  "/": () => document.getElementById("sought").select(),
  u: () => [...document.querySelectorAll(".toast [data-mark=undo]")].at(-1)?.click(),
  "?": () => dialog(t("keys.title"), location.href, list()).classList.add("small"),
  j: () => beside(1),
  k: () => beside(-1),
};

// The next or the previous entry of the page's list.
function beside(step) {
  const rows = [...document.querySelectorAll(".split .rows a")];
  const next = rows[rows.findIndex((row) => row.getAttribute("aria-current") === "true") + step];
  next?.click();
  next?.focus();
}

function list() {
  const general = [["Ctrl K", t("palette.title")], ["/", t("page.search")], ["u", t("undo")], ["?", t("keys.title")], ["j", t("keys.next")], ["k", t("keys.previous")], ["1–9", t("keys.choice")], ["Esc", t("close")]];
  const pages = Object.entries(PAGES).map(([key, page]) => [`g ${key}`, t(`page.${page}`)]);
  const row = ([keys, words]) => h("div", null, h("dt", null, keys.split(" ").map((key) => h("kbd", null, key))), h("dd", null, words));
  return [h("dl", { class: "keys" }, [...general, ...pages].map(row)), h("p", { class: "hint" }, t("board.keys"))];
}

// Notifications of the browser for what waits, while the page is open in the background; asked for by a button only.

import { facts, h, icon, t, toast, visible } from "./core.js";

const KEY = "notify";
let told = null; // the keys of what has been seen; null: nothing was looked at yet

const isPossible = "Notification" in window;
const isOn = () => isPossible && Notification.permission === "granted" && localStorage.getItem(KEY) === "on";

export function notifyButton() {
  if (!isPossible) return null;
  const button = h("button", { type: "button", class: "ghost square notify" }, icon("bell"));
  const say = () => {
    button.setAttribute("aria-pressed", String(isOn()));
    for (const name of ["title", "aria-label"]) button.setAttribute(name, t("attention.notify"));
  };
  button.addEventListener("click", async () => {
    if (isOn()) localStorage.removeItem(KEY);
    else if ((await Notification.requestPermission()) === "granted") localStorage.setItem(KEY, "on");
    else toast(t("attention.notify_refused"), "bad");
    say();
  });
  say();
  return button;
}

// Tells of what is new among these, each once; `keyOf` names the same thing by the same words.
export function notify(items, keyOf) {
  const keys = new Map(items.map((item) => [keyOf(item), item]));
  const fresh = told ? [...keys].filter(([key]) => !told.has(key)) : [];
  told = new Set(keys.keys());
  if (document.hidden && isOn()) for (const [tag, item] of fresh) show(tag, item);
}

function show(tag, item) {
  const subject = [t(`attention.kind.${item.kind}`), item.agent_id].filter(Boolean).join(" · ");
  try {
    const shown = new Notification(`${facts.session}: ${subject}`, { body: visible(item.text).slice(0, 200), tag, icon: "/static/icon.svg" });
    shown.addEventListener("click", () => { window.focus(); location.href = "/"; shown.close(); });
  } catch {
    localStorage.removeItem(KEY); // some browsers allow it to service workers only
  }
}

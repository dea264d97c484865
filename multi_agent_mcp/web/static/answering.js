// Answers that can be taken back: each is sent after some seconds, or as soon as the page is left. What is asked may
// stand in several places of a page; each is an element with the name of what is asked as `data-asked`.

import { attempt, t, toast, visible } from "./core.js";

const READ = 1200; // milliseconds a new question stands there before it takes a click that may have been for another
const UNDO = 5; // seconds
const pending = new Map(); // name → {words, send}

const placesOf = (name) => document.querySelectorAll(`[data-asked="${CSS.escape(name)}"]`);

// Marks the answer that is about to be sent; null: there is none, and every way to answer is open.
function mark(element, words) {
  element.classList.toggle("is-answered", words !== null);
  element.classList.remove("is-new");
  element.removeAttribute("aria-disabled");
  for (const control of element.querySelectorAll("button, input, textarea")) {
    control.disabled = words !== null;
    if (control.dataset.choice !== undefined) control.setAttribute("aria-pressed", String(control.dataset.choice === words));
  }
}

// Makes an element a place where `name` is asked; its ways to answer open when there was time to read.
export function answerable(name, element) {
  element.dataset.asked = name;
  if (pending.has(name)) mark(element, pending.get(name).words);
  else {
    element.classList.add("is-new");
    element.setAttribute("aria-disabled", "true");
    setTimeout(() => pending.has(name) || mark(element, null), READ);
  }
  return element;
}

// Sends an answer, {name, agent, words, label}, by `act(isLeaving)`, unless it is taken back; `then` is called when it was sent.
export function sendSoon({ name, agent, words, label = words }, act, then) {
  if (pending.has(name)) return;
  const index = open().findIndex((element) => element.dataset.asked === name);
  const take = () => { clearTimeout(timer); return pending.delete(name); };
  const show = (now) => { for (const element of placesOf(name)) mark(element, now); };
  const undo = () => { if (take()) show(null); };
  const send = (isLeaving) => {
    if (take()) attempt(() => act({ keepalive: isLeaving })).finally(async () => { show(null); await then(); goOn(index); });
  };
  const timer = setTimeout(send, UNDO * 1000, false);
  pending.set(name, { words, send });
  show(words);
  toast(t("questions.sending", { agent, label: visible(label) }), "good", { text: t("undo"), act: undo }, UNDO);
}

// The questions that can be reached: of an open sheet alone, if there is one.
const open = () => [...([...document.querySelectorAll("dialog[open]")].at(-1) ?? document).querySelectorAll("[data-asked]")].filter((element) => element.checkVisibility());

// Where an answered question has gone with the focus, the one that stands in its place gets it.
function goOn(index) {
  if (document.activeElement !== document.body) return;
  const left = open().filter((element) => !pending.has(element.dataset.asked));
  const next = left[Math.max(index, 0)] ?? left.at(-1);
  (next?.tabIndex >= 0 ? next : next?.querySelector("pre"))?.focus();
}

const sendAll = () => { for (const { send } of [...pending.values()]) send(true); };
addEventListener("pagehide", sendAll);
addEventListener("visibilitychange", () => document.visibilityState === "hidden" && sendAll()); // a phone may say no more

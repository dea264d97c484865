// What waits for the human: fetched once for the page, shown by whoever asks for it. A row can be put off for a while, in
// this browser; then it is neither counted nor told of.

import { api } from "./core.js";
import { watch } from "./live.js";

const POLL = 3000; // milliseconds; no file tells of what changes in a pane
const POLL_HIDDEN = 12000;
const SNOOZED = "snoozed"; // key → until when, in milliseconds
const shows = [];
let all = null;
let asked = 0;
let states = [];
let state = ""; // of what was seen last

const DECISIONS = new Set(["dialog", "login", "question", "request", "review", "budget"]);

// Whether somebody waits for a decision of this person; the rest is good to know.
export const isDecision = ({ kind, approved }) => DECISIONS.has(kind) && !approved;

// Names the same thing in every answer.
export const keyOf = (item) => [item.kind, item.agent_id, item.id, item.dialog?.id, item.kind === "doctor" && item.text].filter(Boolean).join(" ");

// Calls `show` with everything that waits, what was put off, and how the team is, now and after every change.
export function whenAttentionChanges(show) {
  shows.push(show);
  if (all) show(...sorted());
}

export const lookAtAttention = watch(["agents", "conversations", "machines", "messages", "notifications", "questions", "tasks"], async () => {
  asked = Date.now();
  const found = await api(`/attention?seen=${state}`);
  if (found.state === state) return;
  [all, state, states] = [found.items, found.state, found.states];
  tell();
});

function tell() {
  for (const show of shows) show(...sorted());
}

setInterval(() => {
  const due = Date.now() - asked >= (document.hidden ? POLL_HIDDEN : POLL);
  if (due && document.getElementById("live").dataset.state === "on") lookAtAttention();
}, 1000);

// ---- putting off

const snoozed = () => JSON.parse(localStorage.getItem(SNOOZED) ?? "{}");

function sorted() {
  const until = snoozed();
  const isPutOff = (item) => until[keyOf(item)] > Date.now();
  return [all.filter((item) => !isPutOff(item)), all.filter(isPutOff), states];
}

// Puts items off until a time in milliseconds; 0 brings them back. What is over is forgotten.
export function snooze(items, until) {
  const kept = Object.entries(snoozed()).filter(([, time]) => time > Date.now());
  localStorage.setItem(SNOOZED, JSON.stringify({ ...Object.fromEntries(kept), ...Object.fromEntries(items.map((item) => [keyOf(item), until])) }));
  tell();
}

addEventListener("storage", ({ key }) => key === SNOOZED && all && tell()); // another window of this browser

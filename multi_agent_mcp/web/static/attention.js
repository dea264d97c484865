// What waits for the human: fetched once for the page, shown by whoever asks for it.

import { asked as askedOf } from "./asked.js";
import { age, api, chip, copying, h, t, visible, who } from "./core.js";
import { keyed } from "./lists.js";
import { watch } from "./live.js";
import { notifyButton } from "./notifying.js";
import { question } from "./question.js";

const POLL = 3000; // milliseconds; no file tells of what changes in a pane
const POLL_HIDDEN = 12000;
const SHOWN = 8;
const shows = [];
let known = null;
let asked = 0;

// Calls `show` with everything that waits, now and after every change.
export function whenAttentionChanges(show) {
  shows.push(show);
  if (known) show(known);
}

const again = watch(["agents", "conversations", "machines", "messages", "notifications", "questions", "tasks"], async () => {
  asked = Date.now();
  known = (await api("/attention")).items;
  for (const show of shows) show(known);
});

setInterval(() => {
  const due = Date.now() - asked >= (document.hidden ? POLL_HIDDEN : POLL);
  if (due && document.getElementById("live").dataset.state === "on") again();
}, 1000);

// Names the same thing in every answer.
export const keyOf = (item) => [item.kind, item.agent_id, item.id, item.dialog?.id, item.kind === "doctor" && item.text].filter(Boolean).join(" ");

// ---- the list

// `decide(task, approve)` decides a request.
export function showAttention(section, decide) {
  let all = false;
  const heading = h("h2", { id: "waiting" });
  const list = h("ul");
  const more = h("button", { type: "button", class: "ghost more", hidden: true, onclick: () => { all = true; draw(known); } }, t("more"));
  const draw = (items) => {
    section.classList.toggle("calm", !items.length);
    heading.textContent = items.length ? t("attention.count", { n: items.length }) : t("attention.nothing");
    keyed(list, items.slice(0, all ? items.length : SHOWN), keyOf, (item) => row(item, decide));
    more.hidden = all || items.length <= SHOWN;
    section.setAttribute("aria-busy", "false");
  };
  section.replaceChildren(h("header", null, heading, notifyButton()), list, more);
  whenAttentionChanges(draw);
}

// What waits in a pane: its own page does not show it, a command leads there.
const IN_PANES = new Set(["dialog", "login", "down", "ended", "tmux", "machine", "stuck"]);
const BY_COMMAND = new Set([...IN_PANES, "paused", "wait"]);

function row(item, decide) {
  return h("li", { class: IN_PANES.has(item.kind) ? "bad" : "" },
    h("span", { class: "what" }, chip(`attention-${item.kind}`, t(`attention.kind.${item.kind}`)), item.agent_id && who(item.agent_id)),
    h("bdi", { class: "says", title: visible(item.text) }, item.dialog ? t(`up.dialog:${item.dialog.topic}`) : visible(item.text)),
    item.since ? age(item.since) : h("span"),
    h("span", { class: "acts" }, acts(item, decide), open(item)),
    item.question && !item.machine && askedOf(item.question, again),
    item.dialog && question(item.agent_id, item.dialog, again));
}

function acts(item, decide) {
  const task = { task_id: item.id };
  if (["request", "review"].includes(item.kind) && !item.machine) {
    return [
      h("button", { type: "button", class: "good", "data-mark": "approve", onclick: () => decide(task, true) }, t("board.approve")),
      h("button", { type: "button", class: "ghost", "data-mark": "reject", onclick: () => decide(task, false) }, t("board.reject")),
    ];
  }
  return (item.machine || BY_COMMAND.has(item.kind)) && !item.dialog && [
    item.machine && h("small", { class: "hint" }, t("attention.there", { machine: visible(item.machine) })),
    copying(item.command),
  ];
}

const places = {
  question: ({ question, agent_id }) => (question?.task_id ? `/#${question.task_id}` : `/agents/${agent_id}`),
  request: ({ id }) => `/#${id}`,
  review: ({ id }) => `/#${id}`,
  blocked: ({ id }) => `/#${id}`,
  mail: ({ id }) => `/messages#${new URLSearchParams({ id })}`,
  conversation: ({ id }) => `/messages#${new URLSearchParams({ id })}`,
  undelivered: ({ id }) => `/messages#${new URLSearchParams({ box: "all", id })}`,
  doctor: () => "/health",
  machine: ({ id }) => `/machines#machine-${id}`,
};

function open(item) {
  const place = places[item.kind] ?? (item.agent_id && (() => `/agents#pane=${item.agent_id}`));
  return place && h("a", { class: "button", href: place(item), "data-mark": "open" }, t("attention.open"));
}

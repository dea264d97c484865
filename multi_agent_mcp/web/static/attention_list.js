// The list of what waits for the human: rows of one kind are folded when they are many, questions from the
// fourth on, and of what hosts ask only the first is unfolded.

import { asked } from "./asked.js";
import { lookAtAttention, keyOf, snooze, whenAttentionChanges } from "./attention.js";
import { age, agentLink, agentPlace, api, attempt, chip, copying, face, facts, h, icon, isZoneForeign, soon, t, toast, visible, withLocalTimes, zoneOfDays } from "./core.js";
import { menu } from "./dialogs.js";
import { keyed } from "./lists.js";
import { notifyButton } from "./notifying.js";
import { question } from "./question.js";
import { decide, endLease, release, resume } from "./task_acts.js";

const SHOWN = 8;
const MANY = 4; // rows of a kind, from which on they are folded
const FACES = 6;
const HOUR = 3600000;
const unfolded = new Set(); // kinds

export function showAttention(section) {
  let whole = false;
  let only = null; // the part of the line of states whose items are shown alone
  const line = h("p", { class: "states" });
  const heading = h("h2", { id: "waiting" });
  const list = h("ul");
  const later = h("details", { class: "later" }, h("summary"), h("ul"));
  const more = h("button", { type: "button", class: "ghost more", hidden: true, onclick: () => { whole = true; draw(...last); } }, t("more"));
  let last = [[], [], []];
  const choose = (state) => { only = only === state.name ? null : state.name; draw(...last); };
  const draw = (all, putOff, states) => {
    last = [all, putOff, states];
    const chosen = states.find(({ name, kinds }) => name === only && kinds.length);
    const items = chosen ? all.filter(({ kind }) => chosen.kinds.includes(kind)) : all;
    keyed(line, states.map((state) => ({ ...state, isChosen: state === chosen })), ({ name }) => name, (state) => part(state, () => choose(state)));
    line.hidden = !states.length;
    section.classList.toggle("calm", !items.length);
    heading.textContent = items.length ? t("attention.count", { n: items.length }) : t("attention.nothing");
    const entries = gathered(items);
    const shown = entries.slice(0, whole ? entries.length : SHOWN);
    keyed(list, shown.map(({ items: many, ...one }) => one), (entry) => entry.fold ?? keyOf(entry), (entry) => (entry.fold ? fold(entry.fold, () => draw(...last)) : row(entry)));
    for (const { fold: kind, items: many } of shown) if (kind) fillFold(list.querySelector(`[data-key="${kind}"]`), kind, many);
    more.hidden = shown.length === entries.length;
    later.hidden = !putOff.length;
    later.firstChild.textContent = t("attention.later", { n: putOff.length });
    keyed(later.lastChild, putOff, keyOf, (item) => row(item, [h("button", { type: "button", class: "ghost", onclick: () => snooze([item], 0) }, t("attention.wake"))]));
    section.setAttribute("aria-busy", "false");
  };
  section.replaceChildren(line, h("header", null, heading, notifyButton()), list, more, later);
  whenAttentionChanges(draw);
}

const PAGES = { working: "/agents?state=working", merge: "/files?show=merge", spent: "/stats" };

// A part of the line of states: it filters what waits, or leads to the page that shows what it counts and nothing else.
function part(state, choose) {
  const isByDay = state.name === "spent";
  const words = withLocalTimes(state.words, soon) + (isByDay && isZoneForeign() ? ` (${visible(facts.days.zone)})` : "");
  if (PAGES[state.name]) return h("a", { class: "state", href: PAGES[state.name], "data-mark": state.name, title: isByDay ? zoneOfDays() : null }, words);
  return h("button", { type: "button", class: `state ${state.urgent ? "is-urgent" : ""}`, "data-mark": state.name, "aria-pressed": String(state.isChosen), onclick: choose }, words);
}

const DECIDED = new Set(["dialog", "request", "review", "question"]); // each of them is answered by itself

const isQuestion = ({ question: open, machine }) => open && !machine;
const QUESTIONS = 3; // questions that are shown at once: those with the earliest deadlines

// The rows, and in place of many of one kind one entry `{fold, items}`.
function gathered(items) {
  const kinds = Map.groupBy(items, ({ kind }) => kind);
  const first = items.find(({ dialog }) => dialog);
  return [...kinds].flatMap(([kind, many]) => {
    if (many.length >= MANY && !DECIDED.has(kind)) return [{ fold: kind, items: many }];
    const rows = many.map((item) => (item === first ? { ...item, isFirst: true } : item));
    return kind === "question" && rows.length > QUESTIONS ? [...rows.slice(0, QUESTIONS), { fold: kind, items: rows.slice(QUESTIONS) }] : rows;
  });
}

// ---- many of one kind

function fold(kind, draw) {
  const details = h("details", { open: unfolded.has(kind) }, h("summary", null), h("ul"));
  details.addEventListener("toggle", () => {
    if (details.open) unfolded.add(kind);
    else unfolded.delete(kind);
    draw();
  });
  return h("li", { class: `fold ${IN_PANES.has(kind) ? "bad" : ""}` }, details, h("span", { class: "acts" }));
}

function fillFold(element, kind, items) {
  const [details, acts] = element.children;
  const agents = [...new Set(items.map((item) => item.agent_id).filter(Boolean))];
  const oldest = items.map(({ since }) => since).filter(Boolean).sort()[0];
  details.firstChild.replaceChildren(icon("unfold"), chip(`attention-${kind}`, t(`attention.kind.${kind}`)), h("b", null, items.length),
    h("span", { class: "faces" }, agents.slice(0, FACES).map(face)),
    agents.length > 0 && h("span", { class: "names" }, h("bdi", null, agents.slice(0, FACES).join(", ")), agents.length > FACES && " …"), h("span", { class: "grow" }),
    oldest ? h("small", { class: "hint" }, t("attention.oldest"), " ", age(oldest)) : "");
  if (details.open) keyed(details.lastChild, items, keyOf, (item) => row(item));
  if (!acts.firstChild) acts.append(...(kind === "mail" ? [readAll()] : []), later(() => items));
}

// ---- one

// What waits in a pane: its own page does not show it, a command leads there.
const IN_PANES = new Set(["dialog", "login", "down", "ended", "tmux", "machine", "stuck"]);
const BY_COMMAND = new Set([...IN_PANES, "paused", "wait", "circle"]);

function row(item, buttons) {
  const does = h("span", { class: "acts" }, buttons ?? [acts(item), open(item), later(() => [item])]);
  const isAsked = isQuestion(item) && !buttons;
  return h("li", { class: IN_PANES.has(item.kind) ? "bad" : "" },
    h("span", { class: "what" }, chip(`attention-${item.kind}`, t(`attention.kind.${item.kind}`)), item.agent_id && agentLink(item.agent_id)),
    isAsked ? asked(item.question, lookAtAttention, does) : h("bdi", { class: "says", title: withLocalTimes(item.text) }, item.dialog ? t(`up.dialog:${item.dialog.topic}`) : item.isFirst && !buttons ? "" : withLocalTimes(item.text)), // its words follow whole
    !isAsked && [item.since ? age(item.since) : h("span"), does],
    item.dialog && !buttons && (item.isFirst ? ask(item) : folded(item)));
}

const ask = (item) => question(item.agent_id, item.dialog, lookAtAttention);

// What a host asks that is not the first: it is unfolded to be read and answered.
function folded(item) {
  const details = h("details", { class: "folded" }, h("summary", null, t("attention.answer")));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length < 2) details.append(ask(item));
  });
  return details;
}

function acts(item) {
  const task = { task_id: item.id };
  if (item.approved) return [h("small", { class: "hint" }, t("review.rechecking")), copying(item.command)];
  if (["request", "review"].includes(item.kind) && !item.machine) {
    return [
      h("button", { type: "button", class: "good", "data-mark": "approve", onclick: () => decide(task, true) }, t("board.approve")),
      h("button", { type: "button", class: "ghost", "data-mark": "reject", onclick: () => decide(task, false) }, t("board.reject")),
    ];
  }
  if (item.kind === "paused") return h("button", { type: "button", "data-mark": "resume", onclick: () => resume(item.agent_id) }, t("agents.resume"));
  if (item.kind === "lease") return h("button", { type: "button", class: "ghost", "data-mark": `end-${item.id}`, onclick: () => endLease(item.id) }, t("leases.end.held"));
  if (item.kind === "wait" && !item.machine) return h("button", { type: "button", "data-mark": "release", onclick: () => release(facts.me) }, t("agents.release"));
  return (item.machine || BY_COMMAND.has(item.kind)) && !item.dialog && [
    item.machine && h("small", { class: "hint" }, t("attention.there", { machine: visible(item.machine) })),
    copying(item.command),
  ];
}

const places = {
  question: ({ question: one, agent_id }) => (one?.task_id ? `/#${one.task_id}` : agentPlace(agent_id)),
  request: ({ id }) => `/#${id}`,
  review: ({ id }) => `/#${id}`,
  blocked: ({ id }) => `/#${id}`,
  mail: ({ id }) => (id ? `/messages#${new URLSearchParams({ id })}` : "/messages"),
  conversation: ({ id }) => `/messages#${new URLSearchParams({ id })}`,
  undelivered: ({ id }) => `/messages#${new URLSearchParams({ box: "all", id })}`,
  doctor: () => "/health",
  lease: () => "/health",
  circle: () => "/health",
  machine: ({ id }) => `/machines#machine-${id}`,
};

function open(item) {
  const place = places[item.kind] ?? (item.agent_id && (() => `${agentPlace(item.agent_id)}#part-screen`));
  return place && h("a", { class: "button", href: place(item), "data-mark": "open" }, t("attention.open"));
}

// Puts off what `items()` returns.
function later(items) {
  const tomorrow = () => new Date().setHours(24 + 8, 0, 0, 0);
  const times = [[t("attention.hour"), () => Date.now() + HOUR], [t("attention.tomorrow"), tomorrow], [t("attention.week"), () => Date.now() + 7 * 24 * HOUR]];
  const choose = (event) => menu(event.currentTarget, times.map(([text, until]) => ({ text, act: () => snooze(items(), until()) })), t("attention.snooze"));
  return h("button", { type: "button", class: "ghost square snooze", "data-mark": "snooze", "aria-label": t("attention.snooze"), title: t("attention.snooze"), onclick: choose }, icon("clock"));
}

const readAll = () => h("button", { type: "button", "data-mark": "read-all", onclick: () => markAllRead() }, t("messages.read_all"));

// Marks as much of the human's mail read as there is now.
export const markAllRead = () => attempt(async () => {
  const { unread: count } = await api("/session");
  const { marked } = await api("/messages/read", { count });
  toast(t("messages.marked", { n: marked }));
});

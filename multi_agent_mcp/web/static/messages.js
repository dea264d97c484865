// Everybody's mail, newest first; the Owner's own is read and answered here.

import { age, agentLink, api, at, chip, face, facts, h, query, said, t, took, visible, why, word } from "./core.js";
import { markAllRead } from "./attention_list.js";
import { markRead } from "./frame.js";
import { keyed, MOST } from "./lists.js";
import { watch } from "./live.js";
import { choosing, row } from "./split.js";
import { agentField } from "./team.js";
import { answerBox, compose } from "./writing.js";

const PAGE = 50;
const THREAD = 20;
const list = document.getElementById("messages");
const more = document.getElementById("more");
const whose = agentField({ name: "whose", label: t("messages.of"), chosen: (agent) => { if (agent) location.hash = address({ whose: agent, id: null }); } });
const all = document.getElementById("read-all");
let wanted = PAGE;
let thread = { between: null, wanted: THREAD };
let opened = { id: null };

// ---- the address holds what the list shows: #box=…&whose=…&id=…

const settings = () => {
  const given = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  return { box: given.get("box") ?? "inbox", whose: given.get("whose") ?? facts.me, id: given.get("id") };
};
const address = (changes) => `#${new URLSearchParams(Object.entries({ ...settings(), ...changes }).filter(([, value]) => value))}`;

// The newest `number` of the messages that fit, a page at a time; and whether earlier ones follow.
async function newest(filters, number) {
  const found = [];
  let page;
  do {
    const limit = Math.min(number - found.length, MOST);
    page = await api(`/messages${query({ ...filters, before: found.at(-1)?.id, limit })}`);
    found.push(...page.messages);
  } while (page.more && found.length < number);
  return { messages: found, earlier: page.more };
}

async function look() {
  const { box, whose: agent } = settings();
  const { messages, earlier } = await newest({ box, agent: box === "all" ? null : agent }, wanted);
  keyed(list, messages, (message) => message.id, messageRow);
  list.setAttribute("aria-busy", "false");
  if (!messages.length) list.replaceChildren(h("li", { class: "empty" }, t("empty")));
  more.hidden = !earlier;
  for (const button of document.querySelectorAll("#boxes button")) button.setAttribute("aria-pressed", String(button.dataset.box === box));
  whose.hidden = box === "all";
  if (document.activeElement !== whose) whose.value = agent;
  all.hidden = !(facts.acts && box === "inbox" && agent === facts.me && messages.some((message) => !message.read_at));
  chosen.mark();
}

function messageRow(message) {
  const other = settings().box === "sent" ? message.receiver_id : message.sender_id;
  return row(message.id, address({ id: message.id }), !message.read_at,
    face(other),
    h("span", { class: "first" }, h("bdi", null, `${message.sender_id} → ${message.receiver_id}`), ["urgent", "high"].includes(message.priority) && chip(`priority-${message.priority}`, t(`priority.${message.priority}`))),
    age(message.created_at),
    h("span", { class: "second" }, h("bdi", null, visible(message.subject || message.preview) || t("messages.no_subject"))));
}

// ---- one message, its delivery, and the thread of its two agents

async function show(id, isChosen) {
  const { message, copies, conversation, task } = await api(`/messages/${id}`);
  const talk = await betweenThem(message);
  if (isChosen && message.receiver_id === facts.me && !message.read_at) markRead(message.id);
  if (opened.id !== id) opened = { id, words: h("div", { class: "words" }, said(message)) }; // it never changes
  const over = conversation?.status === "ended";
  return [
    h("h2", null, h("bdi", null, visible(message.subject) || t("messages.no_subject"))),
    h("p", { class: "between" }, agentLink(message.sender_id), " → ", agentLink(message.receiver_id), " ", chip("kind", word("type", message.message_type)),
      ["urgent", "high"].includes(message.priority) && chip(`priority-${message.priority}`, t(`priority.${message.priority}`)),
      message.signature !== "signed" && chip(`signature-${message.signature}`, t(`messages.signature.${message.signature}`)), h("span", { class: "hint" }, at(message.created_at))),
    references(message, task, conversation),
    opened.words,
    over && h("p", { class: "hint" }, t("messages.conversation_over")),
    message.receiver_id === facts.me && answerBox(id, t("messages.reply"), !over, (values) => api(`/messages/${id}/reply`, values)),
    h("h3", null, t("messages.steps")),
    ...copies.filter((copy) => copy.id === message.id || copies.length === 1).map((copy) => way(copy)),
    ...talk,
  ];
}

// The thread of two agents, newest first; the number of messages shown is kept when another of them is opened.
async function betweenThem({ id, sender_id: one, receiver_id: other }) {
  const between = [one, other].sort().join();
  if (thread.between !== between) thread = { between, wanted: THREAD };
  const { messages, earlier } = await newest({ between }, thread.wanted);
  if (messages.length < 2) return [];
  const whole = !earlier && thread.wanted > THREAD;
  return [
    h("h3", null, t("messages.thread", { one, other })),
    h("ol", { class: "thread" }, messages.map((message) => h("li", { class: message.id === id ? "this" : "" },
      h("a", { href: address({ id: message.id }), "data-mark": message.id }, face(message.sender_id), h("bdi", { class: "grow" }, visible(message.subject || message.preview) || t("messages.no_subject")), chip(`state-${message.state}`, t(`state.${message.state}`)), age(message.created_at))))),
    earlier && h("button", { type: "button", class: "ghost more", "data-mark": "earlier", onclick: () => { thread.wanted += 100; chosen.look(); } }, t("messages.earlier")),
    whole && h("p", { class: "hint", tabindex: "-1", "data-mark": "earlier" }, t("messages.beginning")),
  ];
}

// What it belongs to, by name; by its id only if it is gone.
function references(message, task, conversation) {
  const links = [
    message.task_id && h("span", null, t("conversations.task"), " ", h("a", { href: `/#${message.task_id}` }, h("bdi", null, visible(task?.title ?? message.task_id)))),
    message.conversation_id && h("span", null, t("page.conversations"), " ", h("a", { href: `/conversations#${message.conversation_id}` }, h("bdi", null, visible(conversation?.purpose ?? "") || t("conversations.no_purpose")))),
    message.broadcast_id && chip("kind", t("messages.broadcast")),
  ].filter(Boolean);
  return links.length ? h("p", { class: "hint marks" }, links) : null;
}

// stored → rung → submitted → read (between machines: queued → on_hub → arrived, too), each with its time after the first.
function way(copy) {
  const begin = Date.parse(copy.steps[0].at);
  return h("ol", { class: "way" }, copy.steps.map((step) => h("li", { class: `state-${step.state}` },
    h("b", null, t(`state.${step.state}`)),
    h("small", { title: at(step.at) }, step === copy.steps[0] ? at(step.at) : `+${took((Date.parse(step.at) - begin) / 1000)}`),
    step.machine && h("small", { class: "hint" }, `← ${visible(step.machine)}`),
    step.reason && h("small", { class: "hint", title: visible(step.reason) }, why(step.reason)))));
}

// ---- actions of the user

document.getElementById("boxes").addEventListener("click", (event) => {
  const { box } = event.target.dataset;
  if (box) location.hash = address({ box, id: null });
});
all.addEventListener("click", () => markAllRead());
document.getElementById("whose").append(whose);
document.getElementById("write").addEventListener("click", () => compose());
more.addEventListener("click", () => { wanted += 100; again(); });

const chosen = choosing(["messages"], show);
const again = watch(["messages"], look);
addEventListener("hashchange", again);

// Conversations, live, with the delegation and the task they belong to; the Owner takes part in their own.

import { age, agentLink, api, at, attempt, chip, face, facts, h, prose, query, said, statusChip, t, visible, who } from "./core.js";
import { ask } from "./dialogs.js";
import { chosen, filters } from "./filters.js";
import { markRead } from "./frame.js";
import { counted, keyed, MOST } from "./lists.js";
import { watch } from "./live.js";
import { choosing, row } from "./split.js";
import { answerBox, converse } from "./writing.js";

const PAGE = 50;
const list = document.getElementById("conversations");
const more = document.getElementById("more");
const waiting = document.getElementById("waiting");
let wanted = PAGE;
let followed = { id: null };

const purposeOf = (item) => visible(item.purpose ?? "") || t("conversations.no_purpose");

async function look() {
  const answer = await counted("/conversations", "conversations", wanted, chosen(["agent"]));
  keyed(list, answer.conversations, (item) => item.conversation_id, (item) => row(item.conversation_id, `#${item.conversation_id}`, item.status !== "ended",
    face(item.initiator_id),
    h("span", { class: "first" }, h("bdi", null, `${item.initiator_id} ↔ ${item.target_agent_id}`), chip(`conversation-${item.status}`, t(`conversations.${item.status}`))),
    age(item.started_at),
    h("span", { class: "second" }, h("bdi", null, purposeOf(item)))));
  list.setAttribute("aria-busy", "false");
  if (!answer.conversations.length) list.replaceChildren(h("li", { class: "empty" }, t("empty")));
  more.hidden = answer.conversations.length >= answer.total;
  waiting.hidden = !answer.delegations.length;
  waiting.replaceChildren(h("h2", null, t("conversations.waiting", { n: answer.delegations.length })), h("ul", null, answer.delegations.map((item) => h("li", null,
    who(item.agent_id), " → ", who(item.target_agent_id), h("bdi", { class: "grow" }, purposeOf(item)), age(item.created_at)))));
  choice.mark();
}

// Messages already shown keep their nodes, so that a selection in them survives.
async function show(id, isChosen) {
  const { conversation, messages, unread, context, task } = await api(`/conversations/${id}${query({ limit: MOST })}`);
  if (followed.id !== id) followed = { id, talk: h("ol", { class: "talk" }), words: new Map(), seen: new Set() };
  for (const message of messages) {
    message.content ??= followed.words.get(message.id) ?? null; // newer ones have filled the answer since
    followed.words.set(message.id, message.content);
  }
  keyed(followed.talk, messages, (message) => message.id, (message) => h("li", { class: message.sender_id === conversation.initiator_id ? "one" : "other" },
    h("div", { class: "by" }, who(message.sender_id), age(message.created_at)),
    h("div", { class: "bubble" }, said(message) ?? preview(id, message))));
  if (isChosen) see(messages.filter((message) => message.content && unread.includes(message.id)));
  const open = conversation.status !== "ended" && [conversation.initiator_id, conversation.target_agent_id].includes(facts.me);
  return [
    h("div", { class: "acts" },
      h("h2", { class: "grow" }, h("bdi", null, purposeOf(conversation))),
      open && h("button", { type: "button", "data-mark": "end", onclick: () => end(id) }, t("conversations.end"))),
    h("p", { class: "between" }, agentLink(conversation.initiator_id), " ↔ ", agentLink(conversation.target_agent_id), " ", chip(`conversation-${conversation.status}`, t(`conversations.${conversation.status}`)),
      h("span", { class: "hint" }, at(conversation.started_at), conversation.ended_by && ` · ${t("conversations.ended_by", { agent: conversation.ended_by })}`)),
    task && h("p", { class: "between" }, h("span", { class: "hint" }, t("conversations.task")), statusChip(task.status), h("a", { href: `/#${task.task_id}` }, h("bdi", null, visible(task.title)))),
    context && context.length > 0 && h("section", null, h("h3", null, t("conversations.context")), prose(context)),
    followed.talk,
    answerBox(id, t("conversations.say"), open, (values) => api(`/conversations/${id}/messages`, values)),
  ];
}

// What is shown to the Owner has been read, each message once.
function see(messages) {
  for (const { id } of messages) {
    if (!followed.seen.has(id)) markRead(id);
    followed.seen.add(id);
  }
}

const end = (id) => ask(t("conversations.end"), [
  { name: "final_message", label: t("conversations.final_message"), kind: "long", rows: 3 },
], t("conversations.end"), ({ final_message }) => api(`/conversations/${id}/end`, { final_message: final_message.trim() ? final_message : null }));

// The beginning of a message whose content the answer had no room for; the rest is fetched on demand.
function preview(conversation, message) {
  const whole = async () => {
    const answer = await api(`/conversations/${conversation}/messages/${encodeURIComponent(message.id)}`);
    place.replaceChildren(prose(answer.message.content));
    place.focus();
  };
  const place = h("div", { tabindex: "-1" },
    h("p", null, visible(message.preview), "…"),
    h("button", { type: "button", class: "ghost", onclick: () => attempt(whole) }, t("conversations.whole")));
  return place;
}

more.addEventListener("click", () => { wanted += 100; again(); });
document.getElementById("start").addEventListener("click", () => converse());
filters(document.getElementById("filters"), { agent: ["agent", t("conversations.everybody")] }, () => again());
const choice = choosing(["conversations", "messages", "tasks"], show);
const again = watch(["conversations"], look);

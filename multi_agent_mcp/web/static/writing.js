// Writing as the Owner: messages, answers, conversations.

import { api, attempt, facts, h, t, toast, visible } from "./core.js";
import { ask } from "./dialogs.js";

// Opens the form; resolves when the message was sent or the form was closed.
export const compose = (receiver = "") => attempt(async () => {
  const everybody = t("messages.everybody");
  const send = once((values) => api("/messages", { ...values, receiver_id: values.receiver_id === everybody ? null : values.receiver_id }));
  await ask(t("messages.write"), [
    { name: "receiver_id", label: t("messages.to"), kind: "agent", value: receiver, required: true, others: [everybody], empty: t("messages.to_hint", { everybody }) },
    { name: "subject", label: t("messages.subject"), most: 500 },
    { name: "content", label: t("messages.content"), kind: "long", rows: 8, required: true },
    { name: "priority", label: t("messages.priority"), kind: "choice", options: facts.messagePriorities.map((name) => [name, t(`priority.${name}`)]), value: "normal" },
  ], t("messages.send"), async (values) => told(await send(values)));
});

// The same for a conversation, which is shown when it has begun.
export const converse = () => attempt(async () => {
  const { columns } = await api("/tasks");
  const tasks = columns.filter(({ status }) => !["done", "cancelled"].includes(status)).flatMap((column) => column.tasks);
  await ask(t("conversations.start"), [
    { name: "target_agent_id", label: t("messages.to"), kind: "agent", required: true },
    { name: "purpose", label: t("conversations.purpose"), most: 500 },
    { name: "task_id", label: t("conversations.task"), kind: "choice", options: [["", t("conversations.no_task")], ...tasks.map((task) => [task.task_id, visible(task.title).slice(0, 80)])] },
    { name: "content", label: t("messages.content"), kind: "long", rows: 6, required: true },
  ], t("messages.send"), async (values) => {
    const begun = await api("/conversations", { ...values, purpose: values.purpose || null, task_id: values.task_id || null });
    told(begun);
    location.hash = begun.conversation.conversation_id;
  });
});

const boxes = new Map();

// The box under what one reads, of which there is one for each id: `post(values)` sends its words, which stay until they
// are sent, even if something else is read meanwhile. Without unsent words there is none where nothing can be said.
export function answerBox(id, label, open, post) {
  const known = boxes.get(id);
  if (!open && !known?.elements.content.value) return null;
  return known ?? boxes.set(id, newBox(label, once(post))).get(id);
}

// Ctrl+Enter sends, too.
function newBox(label, send) {
  const words = h("textarea", { name: "content", rows: 3, required: true, "aria-label": label });
  const box = h("form", { class: "form answer" }, words, h("footer", null, h("button", { type: "submit", class: "primary" }, label)));
  words.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter" && !event.isComposing) box.requestSubmit();
  });
  box.addEventListener("submit", (event) => {
    event.preventDefault();
    const content = words.value;
    attempt(async () => {
      told(await send({ content }));
      if (words.value === content) words.value = "";
    });
  });
  return box;
}

function told({ delivery }) {
  const reached = Object.entries(delivery).map(([agent, { state }]) => `${agent}: ${t(`state.${state}`)}`).join(", ");
  toast(t("messages.sent_to", { delivery: reached }));
}

// With the same key a retry after a lost answer sends nothing twice; other words, or the same again, are another message.
function once(post) {
  let tried = null;
  let idempotency_key = null;
  return async (values) => {
    const words = JSON.stringify(values);
    if (words !== tried) idempotency_key = crypto.randomUUID();
    tried = words;
    const answer = await post({ ...values, idempotency_key });
    tried = null;
    return answer;
  };
}

// Writing a message as the Owner.

import { api, attempt, facts, t, toast } from "./core.js";
import { ask } from "./dialogs.js";

// Opens the form; `given` may hold receiver_id, subject and message_type. Resolves when it was sent or cancelled.
export const compose = (given = {}) => attempt(async () => {
  const { agents } = await api("/agents");
  const others = agents.filter((agent) => agent.id !== facts.me).map((agent) => [agent.id, agent.id]);
  const send = sender(given.message_type);
  await ask(t("messages.write"), [
    { name: "receiver_id", label: t("messages.to"), kind: "choice", options: [...others, ["", t("messages.everybody")]], value: given.receiver_id ?? others[0]?.[0] ?? "" },
    { name: "subject", label: t("messages.subject"), value: given.subject, most: 500 },
    { name: "content", label: t("messages.content"), kind: "long", rows: 8, required: true },
    { name: "priority", label: t("messages.priority"), kind: "choice", options: facts.messagePriorities.map((name) => [name, t(`priority.${name}`)]), value: "normal" },
  ], t("messages.send"), async (values) => {
    const { delivery } = await send(values);
    const told = Object.entries(delivery).map(([agent, { state }]) => `${agent}: ${t(`state.${state}`)}`).join(", ");
    toast(t("messages.sent_to", { delivery: told }));
  });
});

// With the same key a retry after a lost answer sends nothing twice; a changed text is another message.
function sender(message_type) {
  let tried = null;
  let idempotency_key = null;
  return (values) => {
    const words = JSON.stringify(values);
    if (words !== tried) idempotency_key = crypto.randomUUID();
    tried = words;
    return api("/messages", { ...values, receiver_id: values.receiver_id || null, message_type, idempotency_key });
  };
}

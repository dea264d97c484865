// Writing a message as the Owner.

import { api, ask, attempt, facts, t, toast } from "./core.js";

// Opens the form; `given` may hold receiver_id and subject. Resolves once it was sent or dropped.
export async function compose(given = {}) {
  const { agents } = await api("/agents");
  const others = agents.filter((agent) => agent.id !== facts.me).map((agent) => [agent.id, agent.id]);
  const values = await ask(t("messages.write"), [
    { name: "receiver_id", label: t("messages.to"), kind: "choice", options: [...others, ["", t("messages.everybody")]], value: given.receiver_id ?? others[0]?.[0] ?? "" },
    { name: "subject", label: t("messages.subject"), value: given.subject, most: 500 },
    { name: "content", label: t("messages.content"), kind: "long", rows: 8, required: true },
    { name: "priority", label: t("messages.priority"), kind: "choice", options: facts.messagePriorities.map((name) => [name, t(`priority.${name}`)]), value: "normal" },
  ], t("messages.send"));
  if (!values) return;
  // The key lets a second try, after an answer that got lost, send nothing twice.
  const key = crypto.randomUUID();
  const message = { ...values, receiver_id: values.receiver_id || null, message_type: given.message_type, idempotency_key: key };
  await attempt(async () => {
    const { delivery } = await api("/messages", message);
    const told = Object.entries(delivery).map(([agent, { state }]) => `${agent}: ${t(`state.${state}`)}`).join(", ");
    toast(t("messages.sent_to", { delivery: told }));
  });
}

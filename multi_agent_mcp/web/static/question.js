// A host's question as it stands in its pane, answered from here.

import { answerable, sendSoon } from "./answering.js";
import { api, chip, facts, h, t, toast, visible, why } from "./core.js";

// With a button for each choice; `then` is called after an answer, whatever came of it.
export function question(agentId, dialog, then = () => {}) {
  const name = `${agentId} ${dialog.id}`;
  const choices = dialog.choices.map(({ choice, label, lasting }) => h("button", {
    type: "button", "data-mark": `choice-${choice}`, "data-choice": choice, disabled: true,
    onclick: () => sendSoon({ name, agent: agentId, words: choice, label }, (how) => answer(agentId, dialog, choice, label, how), then),
  }, h("kbd", null, choice), h("bdi", null, visible(label)), lasting && chip("lasting", t("attention.lasting"))));
  const element = h("div", { class: "question" },
    h("pre", { dir: "ltr", tabindex: "0" }, visible(dialog.text)),
    h("div", { class: "choices" }, choices),
    !facts.answers && h("p", { class: "hint" }, t("pane.silent")));
  return facts.answers ? answerable(name, element) : element;
}

async function answer(agentId, dialog, choice, label, how) {
  const came = await api(`/agents/${agentId}/answer`, { dialog_id: dialog.id, choice }, how);
  const good = came.state === "answered";
  toast(t(good ? "attention.answered" : "attention.pressed", { agent: agentId, label: visible(label), reason: good ? "" : why(came.reason) }), good ? "good" : "bad");
}

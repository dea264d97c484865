// A host's question as it stands in its pane, answered from here.

import { api, attempt, chip, facts, h, t, toast, visible, why } from "./core.js";

const READ = 1200; // milliseconds a new question stands there before it takes a click that may have been for another

// With a button for each choice; `then` is called after an answer, whatever came of it.
export function question(agentId, dialog, then = () => {}) {
  const choices = dialog.choices.map((choice) => h("button", {
    type: "button", "data-mark": `choice-${choice.choice}`, disabled: true, onclick: () => answer(agentId, dialog, choice, then),
  }, h("kbd", null, choice.choice), h("bdi", null, visible(choice.label)), choice.lasting && chip("lasting", t("attention.lasting"))));
  if (facts.answers) setTimeout(() => { for (const button of choices) button.disabled = false; }, READ);
  return h("div", { class: "question" },
    h("pre", { dir: "ltr", tabindex: "0" }, visible(dialog.text)),
    h("div", { class: "choices" }, choices),
    !facts.answers && h("p", { class: "hint" }, t("pane.silent")));
}

async function answer(agentId, dialog, choice, then) {
  await attempt(async () => {
    const came = await api(`/agents/${agentId}/answer`, { dialog_id: dialog.id, choice: choice.choice });
    const good = came.state === "answered";
    toast(t(good ? "attention.answered" : "attention.pressed", { agent: agentId, label: visible(choice.label), reason: good ? "" : why(came.reason) }), good ? "good" : "bad");
  });
  then();
}

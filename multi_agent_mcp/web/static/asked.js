// A question that somebody was asked: a button for each choice, or a box; and a note beside the answer.

import { age, api, at, attempt, chip, h, t, toast, visible } from "./core.js";

const READ = 1200; // milliseconds a new question stands there before it takes a click that may have been for another

// `then` is called after an answer, whatever came of it.
export function asked(question, then = () => {}) {
  const note = h("input", { type: "text", maxlength: 1000, placeholder: t("questions.note"), "aria-label": t("questions.note") });
  const send = (words) => answer(question, words, note.value.trim(), then);
  const ways = question.choices.length ? choices(question, send) : [box(send)];
  return h("div", { class: "question asked", tabindex: "0", "data-question": question.question_id },
    h("p", { class: "words" }, h("bdi", null, visible(question.question))),
    question.deadline && h("p", { class: "hint" }, t("questions.until"), " ", at(question.deadline)),
    h("div", { class: "choices" }, ways), note);
}

function choices(question, send) {
  const buttons = question.choices.map((choice, index) => h("button", {
    type: "button", "data-mark": `choice-${index + 1}`, disabled: true, onclick: () => send(choice),
  }, h("kbd", null, String(index + 1)), h("bdi", null, visible(choice)), choice === question.default && chip("lasting", t("questions.default"))));
  setTimeout(() => { for (const button of buttons) button.disabled = false; }, READ);
  return buttons;
}

function box(send) {
  const words = h("textarea", { rows: 2, required: true, maxlength: 4000, "aria-label": t("questions.answer") });
  const form = h("form", { class: "form answer" }, words, h("footer", null, h("button", { type: "submit", class: "primary" }, t("questions.answer"))));
  form.addEventListener("submit", (event) => { event.preventDefault(); if (words.value.trim()) send(words.value); });
  return form;
}

async function answer(question, words, note, then) {
  await attempt(async () => {
    await api(`/questions/${question.question_id}/answer`, note ? { answer: words, note } : { answer: words });
    toast(t("attention.answered", { agent: question.asker_id, label: visible(words) }));
  });
  then();
}

// A digit picks that choice of the question where the focus is, or of the only one on the page; of several, the first
// gets the focus.
export function pick(digit) {
  const all = [...document.querySelectorAll(".asked")];
  const one = document.activeElement?.closest?.(".asked") ?? (all.length === 1 ? all[0] : null);
  if (one) one.querySelector(`[data-mark="choice-${digit}"]`)?.click();
  else all[0]?.focus();
}

// A question and what became of it, for a list.
export function settledOrOpen(question) {
  return [
    h("div", { class: "bubble" }, h("p", null, h("bdi", null, visible(question.question)))),
    question.answer !== null && h("div", { class: "bubble" }, h("p", null, h("b", null, h("bdi", null, visible(question.answer)))), question.note && h("p", { class: "hint" }, h("bdi", null, visible(question.note)))),
    h("p", { class: "hint" }, chip("kind", t(`questions.status.${question.status}`)), question.answered_at && age(question.answered_at)),
  ];
}

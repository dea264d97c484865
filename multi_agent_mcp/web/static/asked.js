// A question that somebody was asked: a button for each choice, or a box; and a note beside the answer.

import { answerable, sendSoon } from "./answering.js";
import { age, api, chip, facts, h, t, toast, took, visible } from "./core.js";

// `then` is called after an answer, whatever came of it; `further` stands behind the answers.
export function asked(question, then = () => {}, further = null) {
  const note = h("input", { type: "text", maxlength: 1000, placeholder: t("questions.note_short"), "aria-label": t("questions.note") });
  const agent = question.asker_id;
  const send = (words) => sendSoon({ name: question.question_id, agent, words }, async (how) => {
    await api(`/questions/${question.question_id}/answer`, note.value.trim() ? { answer: words, note: note.value.trim() } : { answer: words }, how);
    toast(t("attention.answered", { agent, label: visible(words) }));
  }, then);
  const ways = question.choices.length ? choices(question, send) : [box(send)];
  return answerable(question.question_id, h("div", { class: "question asked", tabindex: "0" },
    h("p", { class: "words" }, h("bdi", null, visible(question.question)), question.deadline && [" ", due(question)]),
    h("div", { class: "choices" }, ways), note, further));
}

// What happens at the deadline, and when.
function due(question) {
  const element = h("time", { class: "due", datetime: question.deadline, "data-default": question.default ?? "" });
  sayDue(element);
  return element;
}

// A length of time without fractions.
function whole(seconds) {
  const unit = [86400, 3600, 60].find((size) => seconds >= size) ?? 1;
  return took(Math.round(seconds / unit) * unit);
}

function sayDue(element) {
  const left = (Date.parse(element.dateTime) - Date.now()) / 1000;
  const words = { time: whole(Math.max(Math.abs(left), 1)), answer: visible(element.dataset.default) };
  element.textContent = left < 0 ? t("questions.overdue", words) : t(words.answer ? "questions.due_default" : "questions.due", words);
  element.classList.toggle("is-urgent", left < 3600);
}
setInterval(() => { for (const element of document.querySelectorAll("time.due")) sayDue(element); }, 5000);

const choices = (question, send) => question.choices.map((choice, index) => h("button", {
  type: "button", "data-mark": `choice-${index + 1}`, "data-choice": choice, disabled: true, title: choice === question.default ? t("questions.default") : undefined, onclick: () => send(choice),
}, h("kbd", null, String(index + 1)), h("bdi", null, visible(choice))));

function box(send) {
  const words = h("textarea", { rows: 2, required: true, maxlength: 4000, "aria-label": t("questions.answer") });
  const form = h("form", { class: "form answer" }, words, h("footer", null, h("button", { type: "submit", class: "primary" }, t("questions.answer"))));
  form.addEventListener("submit", (event) => { event.preventDefault(); if (words.value.trim()) send(words.value); });
  return form;
}

// A digit picks that choice of the question that has the focus, if it is to be seen; without one, the first question to
// be seen gets the focus.
export function pick(digit) {
  const one = document.activeElement?.closest?.(".asked");
  if (!one) [...document.querySelectorAll(".asked")].find(isSeen)?.focus({ preventScroll: true });
  else if (isSeen(one)) one.querySelector(`[data-mark="choice-${digit}"]`)?.click();
  else one.scrollIntoView({ block: "center" });
}

function isSeen(element) {
  const { left, top, right, bottom } = (element.querySelector(".choices") ?? element).getBoundingClientRect();
  const there = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
  return top >= 0 && bottom <= innerHeight && element.contains(there);
}

// A question for a list: to be answered there by the one who was asked, else what became of it.
export function settledOrOpen(question) {
  if (question.status === "open" && question.to_id === facts.me && facts.acts) return asked(question);
  return [
    h("div", { class: "bubble" }, h("p", null, h("bdi", null, visible(question.question)))),
    question.answer !== null && h("div", { class: "bubble" }, h("p", null, h("b", null, h("bdi", null, visible(question.answer)))), question.note && h("p", { class: "hint" }, h("bdi", null, visible(question.note)))),
    h("p", { class: "hint" }, chip("kind", t(`questions.status.${question.status}`)), question.answered_at && age(question.answered_at)),
  ];
}

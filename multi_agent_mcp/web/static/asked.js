// A question that somebody was asked: a button for each choice, or a box; and a note beside the answer. An answer can be
// taken back for some seconds; then it is sent, or as soon as the page is left.

import { age, api, attempt, chip, facts, h, t, toast, took, visible } from "./core.js";

const READ = 1200; // milliseconds a new question stands there before it takes a click that may have been for another
const UNDO = 5; // seconds
const pending = new Map(); // id → {words, send}: answers that can be taken back still

// `then` is called after an answer, whatever came of it.
export function asked(question, then = () => {}) {
  const note = h("input", { type: "text", maxlength: 1000, placeholder: t("questions.note"), "aria-label": t("questions.note") });
  const send = (words) => prepare(question, words, note.value.trim(), then);
  const ways = question.choices.length ? choices(question, send) : [box(send)];
  const element = h("div", { class: "question asked", tabindex: "0", "data-question": question.question_id },
    h("p", { class: "words" }, h("bdi", null, visible(question.question)), question.deadline && [" ", due(question)]),
    h("div", { class: "choices" }, ways), note);
  const waits = pending.get(question.question_id);
  if (waits) setBusy(element, waits.words);
  else setTimeout(() => pending.has(question.question_id) || setBusy(element, null), READ);
  return element;
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
  type: "button", "data-mark": `choice-${index + 1}`, "data-choice": choice, disabled: true, onclick: () => send(choice),
}, h("kbd", null, String(index + 1)), h("bdi", null, visible(choice)), choice === question.default && chip("lasting", t("questions.default"))));

function box(send) {
  const words = h("textarea", { rows: 2, required: true, maxlength: 4000, "aria-label": t("questions.answer") });
  const form = h("form", { class: "form answer" }, words, h("footer", null, h("button", { type: "submit", class: "primary" }, t("questions.answer"))));
  form.addEventListener("submit", (event) => { event.preventDefault(); if (words.value.trim()) send(words.value); });
  return form;
}

// ---- answering

// Marks the answer that is about to be sent; null: there is none, and every way to answer is open.
function setBusy(element, words) {
  element.classList.toggle("is-answered", words !== null);
  for (const control of element.querySelectorAll("button, input, textarea")) {
    control.disabled = words !== null;
    if (control.dataset.choice !== undefined) control.setAttribute("aria-pressed", String(control.dataset.choice === words));
  }
}

const boxesOf = (id) => document.querySelectorAll(`.asked[data-question="${CSS.escape(id)}"]`);

function prepare(question, words, note, then) {
  const id = question.question_id;
  if (pending.has(id)) return;
  const take = () => { clearTimeout(timer); return pending.delete(id); };
  const undo = () => { if (take()) for (const element of boxesOf(id)) setBusy(element, null); };
  const send = (isLeaving) => {
    if (!take()) return;
    answer(question, words, note, isLeaving).finally(() => { for (const element of boxesOf(id)) setBusy(element, null); then(); });
  };
  const timer = setTimeout(send, UNDO * 1000, false);
  pending.set(id, { words, send });
  for (const element of boxesOf(id)) setBusy(element, words);
  toast(t("questions.sending", { agent: question.asker_id, label: visible(words) }), "good", { text: t("undo"), act: undo }, UNDO);
}

addEventListener("pagehide", () => { for (const { send } of [...pending.values()]) send(true); });

const answer = (question, words, note, isLeaving) => attempt(async () => {
  await api(`/questions/${question.question_id}/answer`, note ? { answer: words, note } : { answer: words }, { keepalive: isLeaving });
  toast(t("attention.answered", { agent: question.asker_id, label: visible(words) }));
});

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

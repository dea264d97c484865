// One task in a sheet: its details, kept up to date while the sheet is open.

import { settledOrOpen } from "./asked.js";
import { progress } from "./columns.js";
import { age, agentLink, api, at, attempt, chip, h, handoff, prose, said, statusChip, t, visible, who, word } from "./core.js";
import { dialog, menu } from "./dialogs.js";
import { watch } from "./live.js";
import { drawn } from "./pane.js";
import { changesOf, remarksOn } from "./review.js";
import { decide, moves, otherActs } from "./task_acts.js";

let shown = null;
let refresh = null;

// Calls `onclose` when the sheet was closed.
export async function openTask(taskId, onclose) {
  await attempt(async () => {
    const { task } = await api(`/tasks/${taskId}`);
    shown?.box.close();
    const content = h("div", { class: "task" }, whole(task));
    const box = dialog(task.title, null, content);
    shown = { taskId, box, content, says: JSON.stringify(task) };
    box.addEventListener("close", () => { shown = shown?.box === box ? null : shown; onclose(); });
    refresh ??= watch(["tasks", "executions", "conversations", "messages", "questions"], again);
  });
}

export const closeTask = () => shown?.box.close();

async function again() {
  if (!shown) return;
  const { taskId, content, box } = shown;
  const { task } = await api(`/tasks/${taskId}`);
  const says = JSON.stringify(task);
  if (shown?.taskId !== taskId || shown.says === says || document.querySelector(".menu") || content.querySelector("textarea:focus")) return; // a click must not lose its button
  shown.says = says;
  content.replaceChildren(...whole(task));
  box.querySelector("h2").textContent = visible(task.title);
}

function whole(task) {
  return [
    acts(task),
    ...(task.status === "review" ? result(task) : []),
    task.blocked_reason && h("p", { class: "reason" }, h("b", null, `${t("board.blocked_reason")}: `), h("bdi", null, visible(task.blocked_reason))),
    details(task),
    (task.progress > 0 || task.status === "in_progress") && progress(task.progress),
    task.description.length > 0 && section("board.description", prose(task.description)),
    ...(task.status === "review" ? [] : result(task)),
    task.checklist_items.length > 0 && section("board.checklist", checklist(task.checklist_items)),
    task.messages.length + (task.questions?.length ?? 0) > 0 && section("board.thread", thread(task)),
    task.subtask_cards.length > 0 && section("board.subtasks", links(task.subtask_cards)),
    task.dependency_cards.length > 0 && section("board.dependencies", links(task.dependency_cards)),
    task.conversations.length > 0 && section("board.conversations", h("ul", { class: "links" }, task.conversations.map((item) => h("li", null,
      h("a", { href: `/conversations#${item.conversation_id}` }, h("bdi", null, visible(item.purpose ?? item.conversation_id))), " ", who(item.initiator_id), " → ", who(item.target_agent_id))))),
    task.handoffs.length > 0 && section("board.handoffs", task.handoffs.map(handoff)),
    task.executions.length > 0 && section("board.executions", h("ul", { class: "links" }, task.executions.map((item) => h("li", null,
      h("a", { href: `/executions#${item.execution_id}` }, h("bdi", null, item.agent_id)), " ", chip(`execution-${item.status}`, t(`executions.${item.status}`)), " ", age(item.started_at))))),
    task.usage?.length > 0 && section("stats.tokens", h("ul", { class: "links" }, task.usage.map((row) => h("li", null,
      who(row.agent_id), row.model && [" ", h("bdi", null, visible(row.model))], " ",
      h("small", { class: "hint" }, ["input", "output", "cache_read", "cache_write"].map((name) => `${t(`stats.${name}`)} ${row[name].toLocaleString()}`).join(" · ")))))),
    section("board.history", history(task.history)),
  ].filter(Boolean);
}

// What its agent did: its words, its checks, the commit, the changes. It stands first while that is to be reviewed.
function result(task) {
  const { delivery } = task;
  const hasBegun = task.started_at && !["backlog", "todo"].includes(task.status);
  return [
    ...words(task),
    task.receipts?.length > 0 && section("board.receipts", receipts(task.receipts)),
    delivery?.commit && section("board.delivery", h("p", null, h("code", null, delivery.commit.slice(0, 10)), " ", t(delivery.merged ? "board.merged" : "board.not_merged", { branch: delivery.branch ?? "-" }), delivery.uncommitted > 0 && [" ", chip("pending", t("board.uncommitted", { count: delivery.uncommitted }))])),
    (delivery?.protected || delivery?.checks_changed) && h("p", { class: "marks" }, delivery.checks_changed && chip("pending", t("board.checks_changed")), delivery.protected && [" ", chip("pending", t("board.changes_protected", { files: delivery.protected.map(visible).join(", ") }))]),
    task.commits?.length > 0 && section("board.commits", h("ul", { class: "links" }, task.commits.map((one) => h("li", null, h("code", null, one.commit.slice(0, 10)), " ", h("bdi", null, visible(one.subject)), " ", age(one.at))))),
    hasBegun && task.assignee_id && section("review.changes", changesOf(task, countRemarks)),
  ];
}

const rejecting = (task) => { const n = remarksOn(task.task_id).length; return n ? t("review.reject_with", { n }) : t("board.reject"); };

function countRemarks() {
  const button = shown?.content.querySelector("[data-mark=reject]");
  if (button) button.textContent = rejecting({ task_id: shown.taskId });
}

// What its agent says that it did and what comes next: of what is in review, or of what is done.
function words(task) {
  const said = [["board.summary", task.completion_summary ?? task.delivery?.summary], ["board.next_steps", task.next_steps ?? task.delivery?.next_steps]];
  return said.map(([key, text]) => text && section(key, h("p", null, h("bdi", null, visible(text)))));
}

function acts(task) {
  const others = otherActs(task).map((one) => h("button", { type: "button", class: one.kind ?? "ghost", onclick: one.act }, one.text));
  const isReviewed = task.status === "review" && !task.rechecks && !task.targets.done;
  const decisions = task.approval_status !== "pending" && !isReviewed ? [] : [
    h("button", { type: "button", class: "good", "data-mark": "approve", onclick: () => decide(task, true) }, t("board.approve")),
    h("button", { type: "button", class: "bad", "data-mark": "reject", onclick: () => decide(task, false) }, rejecting(task)),
  ];
  const movable = Object.values(task.targets).some((why) => !why);
  const moving = h("button", { type: "button", class: decisions.length ? "ghost" : "primary", onclick: (event) => menu(event.currentTarget, moves(task), t("board.move")) }, t("board.move"));
  return h("div", { class: "acts" }, statusChip(task.status), task.rechecks && chip("pending", t("review.rechecking")), h("span", { class: "grow" }), decisions, movable && moving, others);
}

function details(task) {
  const rows = [
    ["board.assignee", task.assignee_id ? agentLink(task.assignee_id) : t("board.unassigned")],
    ["board.priority", chip(`priority-${task.priority}`, t(`priority.${task.priority}`))],
    ["board.created_by", agentLink(task.created_by)],
    ["board.created", at(task.created_at)],
    task.started_at && ["board.started", at(task.started_at)],
    task.completed_at && ["board.finished", at(task.completed_at)],
    task.done_when?.length > 0 && ["board.done_when", h("bdi", null, visible(task.done_when.join(", ")))],
    task.proof && ["board.proof", chip(`proof-${task.proof}`, t(`board.proof.${task.proof}`))],
    task.parent_task_id && ["board.parent", h("a", { href: `#${task.parent_task_id}` }, h("bdi", null, visible(task.parent_title ?? task.parent_task_id)))],
    [null, h("code", null, task.task_id)],
  ].filter(Boolean);
  return h("dl", { class: "details" }, rows.map(([key, value]) => h("div", null, h("dt", null, key ? t(key) : "ID"), h("dd", null, value))));
}

const section = (key, ...content) => h("section", null, h("h3", null, t(key)), ...content);

// What was asked for and what was reported, side by side; how much of it is done stands above.
function checklist(items) {
  const done = items.filter((item) => item.completed).length;
  const isAsked = items.some((item) => item.asked);
  return [
    h("p", { class: "tally" }, h("span", { class: "progress", vars: { "--value": `${(done / items.length) * 100}%` } }), `${done} / ${items.length}`),
    h("ul", { class: "checklist" }, items.map((item) => h("li", { class: item.completed ? "completed" : "" },
      h("input", { type: "checkbox", disabled: true, checked: item.completed, "aria-label": visible(item.text) }), h("bdi", null, visible(item.text)),
      !item.reported && chip("pending", t("board.not_reported")), isAsked && !item.asked && chip("kind", t("board.not_asked"))))),
  ];
}

// What the checks printed, the newest first; those that failed are open.
const receipts = (all) => h("ul", { class: "receipts" }, [...all].reverse().map((item) => h("li", null,
  h("details", { open: !item.passed && item === all.at(-1) },
    h("summary", null, h("b", null, item.check), " ", chip(item.passed ? "status-done" : "status-blocked", item.passed ? t("board.passed") : (item.failure ?? `exit ${item.exit_code}`)), " ",
      h("small", { class: "hint" }, `${item.seconds.toFixed(1)} s · ${item.head.slice(0, 12)}${item.dirty ? "+" : ""} · `), age(item.finished_at)),
    h("p", null, h("code", null, visible(item.command))),
    item.rows ? item.rows.some((row) => row.length) && h("pre", { class: "screen", tabindex: "0", dir: "ltr" }, drawn(item.rows)) : item.last_lines && h("pre", null, visible(item.last_lines))))));

// The request, the reports and the result, as they were said.
function thread(task) {
  const talk = [...task.messages.map((one) => [one.created_at, message(task, one)]), ...(task.questions ?? []).map((one) => [one.created_at, asked(task, one)])];
  return h("ol", { class: "talk" }, talk.sort(([one], [other]) => one.localeCompare(other)).map(([, node]) => node));
}

const asked = (task, question) => h("li", { class: question.asker_id === task.assignee_id ? "one" : "other" },
  h("div", { class: "by" }, who(question.asker_id), " → ", who(question.to_id), chip("kind", t("questions.kind")), age(question.created_at)),
  settledOrOpen(question));

const message = (task, message) => h("li", { class: message.sender_id === task.assignee_id ? "one" : "other" },
  h("div", { class: "by" }, who(message.sender_id), chip("kind", word("type", message.message_type)),
    h("a", { href: `/messages#${new URLSearchParams({ box: "all", id: message.id })}`, "aria-label": t("attention.open") }, age(message.created_at))),
  h("div", { class: "bubble" }, said(message) ?? h("p", null, h("bdi", null, visible(message.preview)), "…")));

const links = (cards) => h("ul", { class: "links" }, cards.map((card) => h("li", null, statusChip(card.status), " ",
  h("a", { href: `#${card.task_id}` }, h("bdi", null, visible(card.title))), " ", card.assignee_id && who(card.assignee_id))));

function history(entries) {
  return h("ol", { class: "history", reversed: true }, [...entries].reverse().map((entry) => h("li", null,
    h("span", { class: "line" }, who(entry.by ?? "-"), " ", h("span", null, changes(entry)), " ", age(entry.at)),
    entry.reason && h("p", { class: "hint" }, h("bdi", null, visible(entry.reason))))));
}

const LABELS = {
  assignee_id: "board.assignee", completion_result: "board.result", completion_summary: "board.summary", next_steps: "board.next_steps", summary: "board.summary", description: "board.description", priority: "board.priority", progress: "board.progress", title: "board.title",
};

function changes(entry) {
  const told = new Set(["at", "by", "reason", "message_id", "conversation_id", "intent_id", "proof"]);
  const words = { status: (value) => (value ? t(`status.${value}`) : "–"), delivered: (value) => t(value ? "board.delivered" : "board.given_back") };
  const isChange = ([key, value]) => !told.has(key) && !(Array.isArray(value) && value.every((one) => one === null));
  return Object.entries(entry).filter(isChange).map(([key, value]) => {
    const say = words[key] ?? ((one) => one ?? "–");
    if (key === "status" && Array.isArray(value)) return visible(value.filter((one, index) => index || one).map(say).join(" → "));
    if (key === "delivered") return say(entry.delivered);
    const label = key in LABELS ? t(LABELS[key]) : key;
    return visible(`${label} ${Array.isArray(value) ? value.map(say).join(" → ") : say(value)}`);
  }).join(", ");
}

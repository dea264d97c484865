// The board: columns by status, live; tasks are moved by dragging, by keyboard and by menu.

import { showAttention } from "./attention.js";
import { age, announce, api, attempt, chip, facts, h, icon, isAway, query, t, toast, told, visible, who } from "./core.js";
import { ask, menu } from "./dialogs.js";
import { keyed, MOST } from "./lists.js";
import { watch } from "./live.js";
import { carry, dragged, lift } from "./moving.js";
import { openTask } from "./task.js";

const PAGE = 30;
const columns = document.getElementById("columns");
const filter = document.getElementById("filter");
const wanted = Object.fromEntries(facts.statuses.map((status) => [status, PAGE]));
let agents = [];

const tasks = new Map();
const titleOf = (task) => visible(task.title);

// ---- showing the board

async function look() {
  const assignee = filter.value;
  const answer = await api(`/tasks${query({ limit: PAGE, assignee })}`);
  for (const column of answer.columns) {
    const wish = Math.min(wanted[column.status], column.total);
    while (column.tasks.length < wish) {
      const limit = Math.min(wish - column.tasks.length, MOST);
      const more = await api(`/tasks${query({ status: column.status, assignee, offset: column.tasks.length, limit })}`);
      if (!more.columns[0].tasks.length) break;
      column.tasks.push(...more.columns[0].tasks);
    }
  }
  tasks.clear();
  for (const column of answer.columns) for (const task of column.tasks) tasks.set(task.task_id, task);
  keyed(columns, answer.columns.map(({ status }) => ({ status })), (column) => column.status, emptyColumn);
  for (const column of answer.columns) fill(column);
  columns.setAttribute("aria-busy", "false");
  rove();
}

function emptyColumn({ status }) {
  const column = h(
    "section", { class: `column status-${status}`, "data-status": status, "aria-label": t(`status.${status}`) },
    h("header", null, h("h2", null, t(`status.${status}`)), h("span", { class: "count" })),
    h("p", { class: "refusal", hidden: true }),
    h("ul", { class: "cards" }),
    h("button", { class: "ghost more", type: "button", hidden: true, onclick: () => { wanted[status] += 100; again(); } }, t("more")),
  );
  dragged(column, { taskOf: (id) => tasks.get(id), move, announce });
  return column;
}

function fill({ status, total, tasks: cards }) {
  const column = columns.querySelector(`[data-status="${status}"]`);
  column.querySelector(".count").textContent = total;
  keyed(column.querySelector(".cards"), cards, (task) => task.task_id, card);
  column.querySelector(".more").hidden = cards.length >= total;
}

function card(task) {
  const title = titleOf(task);
  const element = h(
    "li", { class: `card priority-${task.priority}`, tabindex: "-1", draggable: "true", "aria-label": `${title}, ${t(`status.${task.status}`)}`, "data-task": task.task_id },
    h("div", { class: "title" },
      h("a", { href: `#${task.task_id}`, tabindex: "-1", "aria-label": t("board.open_card", { title }) }, h("bdi", null, title)),
      h("button", { class: "ghost square dots", type: "button", tabindex: "-1", "data-mark": "dots", "aria-label": t("board.move_card", { title }), onclick: (event) => showMenu(task, event.currentTarget) }, icon("dots"))),
    task.blocked_reason && h("p", { class: "reason" }, h("bdi", null, visible(task.blocked_reason))),
    marks(task),
    (task.progress > 0 && task.status !== "done") && progress(task.progress),
    h("div", { class: "foot" }, task.assignee_id ? who(task.assignee_id) : h("span", { class: "who nobody" }, t("board.unassigned")), age(task.status_changed_at)),
  );
  carry(element, task);
  return element;
}

function marks(task) {
  const all = [
    ["urgent", "high"].includes(task.priority) && chip(`priority-${task.priority}`, t(`priority.${task.priority}`)),
    task.approval_status === "pending" && chip("pending", t("board.pending_approval")),
    task.approval_status === "rejected" && chip("rejected", t("board.rejected")),
    task.is_examined && chip("pending", t("board.examined")),
    ["proven", "overruled"].includes(task.proof) && chip(`proof-${task.proof}`, t(`board.proof.${task.proof}`)),
    task.checklist.total > 0 && h("span", { class: "tally", title: t("board.checklist") }, icon("check"), `${task.checklist.completed}/${task.checklist.total}`),
    task.subtasks.total > 0 && h("span", { class: "tally", title: t("board.subtasks") }, icon("tree"), `${task.subtasks.done}/${task.subtasks.total}`),
  ].filter(Boolean);
  return all.length ? h("div", { class: "marks" }, all) : null;
}

function progress(value) {
  return h("div", { class: "progress", role: "progressbar", "aria-valuenow": value, "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": t("board.progress"), vars: { "--value": `${value}%` } });
}

// ---- changing tasks

async function decide(task, approve) {
  const act = (given) => api(`/tasks/${task.task_id}/decision`, { approve, reason: given.reason || null });
  if (approve) await attempt(() => act({}));
  else await ask(t("board.why_rejected"), [reasonField()], t("board.reject"), act);
}

async function move(task, status) {
  const stops = (status === "blocked" || status === "cancelled");
  const note = stops && task.assignee_id && task.assignee_id !== facts.me ? t(isAway(task.assignee_id) ? "board.will_interrupt_away" : "board.will_interrupt", { agent: task.assignee_id }) : null;
  const returns = task.status === "review" && status === "in_progress";
  const act = async (given) => {
    const answer = await api(`/tasks/${task.task_id}/status`, { status, reason: given.reason || null });
    const words = { title: titleOf(task), from: t(`status.${answer.previous_status}`), to: t(`status.${answer.task.status}`), agent: answer.interrupted };
    const later = isAway(answer.interrupted) ? "board.moved_interrupt_away" : "board.moved_interrupt";
    toast(t(answer.interrupted ? later : "board.moved", words));
    await again();
    columns.querySelector(`[data-task="${task.task_id}"]`)?.focus();
  };
  if (returns) await ask(t("board.why_rejected"), [reasonField()], t("board.reject"), act);
  else if (stops) await ask(t(`board.why_${status}`), [reasonField()], t(`status.${status}`), act, note);
  else await attempt(() => act({}));
}

async function pause(task) {
  const act = async (given) => {
    told(await api(`/agents/${task.assignee_id}/interrupt`, { action: "pause", task_id: task.task_id, reason: given.reason || null }), "board.paused", task.assignee_id);
  };
  await ask(t("board.why_paused", { agent: task.assignee_id }), [reasonField()], t("board.pause"), act);
}

async function resume(agent) {
  await attempt(async () => {
    told(await api(`/agents/${agent}/resume`, {}), "agents.resumed", agent);
  });
}

async function assign(task) {
  const options = [["", t("board.unassigned")], ...agents.map((agent) => [agent.id, agent.id])];
  const field = { name: "assignee_id", label: t("board.assignee"), kind: "choice", options, value: task.assignee_id ?? "" };
  await ask(titleOf(task), [field], t("board.assignee"), async (given) => {
    await api(`/tasks/${task.task_id}/assignee`, { assignee_id: given.assignee_id || null });
    toast(t("board.assigned", { title: titleOf(task), agent: given.assignee_id || t("nobody") }));
  });
}

const reasonField = () => ({ name: "reason", label: t("board.reason"), kind: "long", rows: 3, hint: t("board.reason_hint") });

function moves(task) {
  return Object.entries(task.targets).map(([status, why]) => ({
    text: t(`status.${status}`), why, kind: `status-${status}`, act: () => move(task, status),
  }));
}

function otherActs(task) {
  const stoppable = task.status === "in_progress" && task.assignee_id && task.assignee_id !== facts.me;
  const paused = agents.some((agent) => agent.id === task.assignee_id && agent.paused);
  return [
    ...(stoppable ? [{ text: t("board.pause"), act: () => pause(task) }] : []),
    ...(paused ? [{ text: t("board.resume"), act: () => resume(task.assignee_id) }] : []),
    ...(["done", "cancelled"].includes(task.status) ? [] : [{ text: `${t("board.assignee")}…`, act: () => assign(task) }]),
  ];
}

function showMenu(task, button) {
  menu(button, [...moves(task), ...otherActs(task)], t("board.move"));
}

async function create() {
  const options = [["", t("board.unassigned")], ...agents.map((agent) => [agent.id, agent.id])];
  const fields = [
    { name: "title", label: t("board.title"), required: true, most: 500 },
    { name: "description", label: t("board.description"), kind: "long", rows: 6 },
    { name: "assignee_id", label: t("board.assignee"), kind: "choice", options, value: "" },
    { name: "done_when", label: t("board.done_when"), hint: t("board.done_when_hint") },
    { name: "priority", label: t("board.priority"), kind: "choice", options: facts.priorities.map((name) => [name, t(`priority.${name}`)]), value: "medium" },
  ];
  await ask(t("board.new"), fields, t("board.create"), async (given) => {
    await api("/tasks", { ...given, assignee_id: given.assignee_id || null });
    toast(t("board.created_task", { title: visible(given.title) }));
  });
}

// ---- keyboard: one card is in the tab order, the arrows go from card to card

function rove() {
  const cards = [...columns.querySelectorAll(".card")];
  if (cards.length && !cards.some((one) => one.tabIndex === 0)) cards[0].tabIndex = 0;
}

columns.addEventListener("focusin", (event) => {
  const focused = event.target.closest(".card");
  if (!focused) return;
  for (const one of columns.querySelectorAll(".card[tabindex='0']")) one.tabIndex = -1;
  focused.tabIndex = 0;
});

columns.addEventListener("keydown", (event) => {
  const focused = event.target;
  if (!focused.classList.contains("card") || event.defaultPrevented) return;
  const task = tasks.get(focused.dataset.task);
  const act = {
    Enter: () => open(task.task_id),
    " ": () => lift(focused, task, { columns, move, announce }),
    m: () => showMenu(task, focused.querySelector(".dots")),
    ArrowDown: () => focused.nextElementSibling?.focus(),
    ArrowUp: () => focused.previousElementSibling?.focus(),
    ArrowRight: () => beside(focused, 1),
    ArrowLeft: () => beside(focused, -1),
  }[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
});

function beside(focused, step) {
  const all = [...columns.children];
  const row = [...focused.parentElement.children].indexOf(focused);
  let next = all.indexOf(focused.closest(".column")) + step;
  while (all[next] && !all[next].querySelector(".card")) next += step;
  const cards = all[next]?.querySelectorAll(".card");
  cards?.[Math.min(row, cards.length - 1)]?.focus();
}

// ---- one task, named in the address so that it can be linked to

function open(taskId) {
  location.hash = taskId;
}

function followAddress() {
  const named = location.hash.slice(1);
  if (named.startsWith("tsk_")) openTask(named, { moves, otherActs, decide, progress, onclose: () => closed(named) });
}

function closed(taskId) {
  if (location.hash === `#${taskId}`) history.replaceState(null, "", location.pathname);
  columns.querySelector(`[data-task="${taskId}"]`)?.focus();
}

addEventListener("hashchange", followAddress);
document.getElementById("new").addEventListener("click", create);
filter.addEventListener("change", () => again());

watch(["agents", "notifications"], async () => {
  const known = (await api("/agents")).agents;
  agents = known;
  const chosen = filter.value;
  filter.replaceChildren(h("option", { value: "" }, t("board.filter")), ...known.map(({ id }) => h("option", { value: id }, id)));
  filter.value = chosen;
});
const again = watch(["tasks"], look);
showAttention(document.getElementById("attention"), decide);
followAddress();

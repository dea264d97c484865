// Tasks in columns by status, in one element of the board: shown, paged, gone through with the keys.

import { age, announce, api, chip, h, icon, query, t, visible, who } from "./core.js";
import { menu } from "./dialogs.js";
import { keyed, MOST } from "./lists.js";
import { carry, dragged, lift } from "./moving.js";
import { move, moves, otherActs } from "./task_acts.js";

const PAGE = 30;
const shown = new Map(); // place → its tasks, by id

export const progress = (value) => h("div", { class: "progress", role: "progressbar", "aria-valuenow": value, "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": t("board.progress"), vars: { "--value": `${value}%` } });

// Returns a function that fetches and shows the tasks that `wanted()` selects; it resolves to how many there are.
export function columnsIn(place, wanted) {
  const lengths = {};
  const look = async () => {
    const selected = wanted();
    const { columns } = await api(`/tasks${query({ ...selected, limit: PAGE })}`);
    for (const column of columns) await lengthen(column, selected, lengths[column.status] ?? PAGE);
    shown.set(place, new Map(columns.flatMap((column) => column.tasks).map((task) => [task.task_id, task])));
    const longer = (status) => { lengths[status] = (lengths[status] ?? PAGE) + 100; look(); };
    keyed(place, columns.map(({ status }) => ({ status })), (column) => column.status, ({ status }) => emptyColumn(status, place, longer));
    for (const column of columns) fill(place, column);
    place.setAttribute("aria-busy", "false");
    rove(place);
    return columns.reduce((sum, { total }) => sum + total, 0);
  };
  listen(place);
  return look;
}

// As many of the column's tasks as were asked for, a page at a time.
async function lengthen(column, selected, wish) {
  while (column.tasks.length < Math.min(wish, column.total)) {
    const limit = Math.min(wish - column.tasks.length, MOST);
    const more = await api(`/tasks${query({ ...selected, status: column.status, offset: column.tasks.length, limit })}`);
    if (!more.columns[0].tasks.length) break;
    column.tasks.push(...more.columns[0].tasks);
  }
}

function emptyColumn(status, place, longer) {
  const column = h(
    "section", { class: `column status-${status}`, "data-status": status, "aria-label": t(`status.${status}`) },
    h("header", null, h("h2", null, t(`status.${status}`)), h("span", { class: "count" })),
    h("p", { class: "refusal", hidden: true }),
    h("ul", { class: "cards" }),
    h("button", { class: "ghost more", type: "button", hidden: true, onclick: () => longer(status) }, t("more")),
  );
  dragged(column, { taskOf: (id) => shown.get(place).get(id), move, announce });
  return column;
}

function fill(place, { status, total, more, tasks }) {
  const column = place.querySelector(`[data-status="${status}"]`);
  column.querySelector(".count").textContent = more ? `${total}+` : total;
  keyed(column.querySelector(".cards"), tasks, (task) => task.task_id, card);
  column.querySelector(".more").hidden = tasks.length >= total;
}

function card(task) {
  const title = visible(task.title);
  const element = h(
    "li", { class: `card priority-${task.priority}`, tabindex: "-1", draggable: "true", "aria-label": `${title}, ${t(`status.${task.status}`)}`, "data-task": task.task_id },
    h("div", { class: "title" },
      h("a", { href: `#${task.task_id}`, tabindex: "-1", "aria-label": t("board.open_card", { title }) }, h("bdi", null, title)),
      h("button", { class: "ghost square dots", type: "button", tabindex: "-1", "data-mark": "dots", "aria-label": t("board.move_card", { title }), onclick: (event) => showMenu(task, event.currentTarget) }, icon("dots"))),
    task.blocked_reason && h("p", { class: "reason", title: visible(task.blocked_reason) }, h("bdi", null, visible(task.blocked_reason))),
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
    task.uncommitted > 0 && chip("pending", t("board.uncommitted", { count: task.uncommitted })),
    task.checklist.total > 0 && h("span", { class: "tally", title: t("board.checklist") }, icon("check"), `${task.checklist.completed}/${task.checklist.total}`),
    task.shared_files?.length > 0 && h("span", { class: "chip pending", title: t("board.shared_files", { files: task.shared_files.join(", ") }) }, t("board.shared_files_count", { count: task.shared_files.length })),
    task.subtasks.total > 0 && h("span", { class: "tally", title: t("board.subtasks") }, icon("tree"), `${task.subtasks.done}/${task.subtasks.total}`),
  ].filter(Boolean);
  return all.length ? h("div", { class: "marks" }, all) : null;
}

function showMenu(task, button) {
  menu(button, [...moves(task), ...otherActs(task)], t("board.move"));
}

// ---- keyboard: one card is in the tab order, the arrows go from card to card

function rove(place) {
  const cards = [...place.querySelectorAll(".card")];
  if (cards.length && !cards.some((one) => one.tabIndex === 0)) cards[0].tabIndex = 0;
}

function listen(place) {
  place.addEventListener("focusin", (event) => {
    const focused = event.target.closest(".card");
    if (!focused) return;
    for (const one of place.querySelectorAll(".card[tabindex='0']")) one.tabIndex = -1;
    focused.tabIndex = 0;
  });
  place.addEventListener("keydown", (event) => {
    const focused = event.target;
    if (!focused.classList.contains("card") || event.defaultPrevented) return;
    const task = shown.get(place).get(focused.dataset.task);
    const act = {
      Enter: () => { location.hash = task.task_id; },
      " ": () => lift(focused, task, { columns: place, move, announce }),
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
}

function beside(focused, step) {
  const all = [...focused.closest(".columns").children];
  const row = [...focused.parentElement.children].indexOf(focused);
  let next = all.indexOf(focused.closest(".column")) + step;
  while (all[next] && !all[next].querySelector(".card")) next += step;
  const cards = all[next]?.querySelectorAll(".card");
  cards?.[Math.min(row, cards.length - 1)]?.focus();
}

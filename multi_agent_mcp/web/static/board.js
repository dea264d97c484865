// The board: columns by status, live; in lanes, if it is grouped. What waits for the human stands above it.

import { showAttention } from "./attention_list.js";
import { api, chip, copying, facts, h, icon, query, t, who } from "./core.js";
import { columnsIn } from "./columns.js";
import { chosen, filters } from "./filters.js";
import { settle } from "./lists.js";
import { watch } from "./live.js";
import { closeTask, openTask } from "./task.js";
import { create } from "./task_acts.js";

const columns = document.getElementById("columns");
const lanes = document.getElementById("lanes");
const nothing = document.getElementById("nothing");
const FILTERS = ["words", "assignee", "superior", "priority"];
const priorities = [...facts.priorities].reverse().map((name) => [name, t(`priority.${name}`)]);
const wanted = () => chosen(FILTERS);
const lookAtAll = columnsIn(columns, wanted);

async function look() {
  const { group } = chosen(["group"]);
  columns.hidden = Boolean(group);
  lanes.hidden = !group;
  if (group) columns.replaceChildren(); // a task stands on the page once
  else closeLanes();
  const total = group ? await lookAtLanes(group) : await lookAtAll();
  columns.setAttribute("aria-busy", "false");
  const isFiltered = Object.keys(wanted()).length > 0;
  nothing.hidden = total > 0;
  if (!total) nothing.replaceChildren(...(isFiltered ? [h("p", null, t("filter.nothing"))] : firstSteps()));
}

// What to do where there is no task yet.
function firstSteps() {
  return [
    h("h2", null, t("board.first")),
    h("p", { class: "hint" }, t("board.first_hint")),
    h("p", { class: "acts" }, h("button", { type: "button", class: "primary", onclick: create }, t("board.first_do")), copying('multi-agent-mcp task add "…" --assignee worker-a')),
  ];
}

// ---- lanes: a group of tasks each, counted; its columns are there while it is unfolded

const known = new Map();

async function lookAtLanes(by) {
  const { groups } = await api(`/tasks/groups${query({ ...wanted(), by })}`);
  const shown = groups.map(({ key, counts }) => {
    const name = `${by} ${key}`;
    if (!known.has(name)) known.set(name, lane(by, key));
    return { ...known.get(name), counts };
  });
  for (const { tally, counts } of shown) tally.replaceChildren(...facts.statuses.filter((status) => counts[status]).map((status) => h("span", null, chip(`status-${status}`, t(`status.${status}`)), ` ${counts[status]}`)));
  settle(lanes, shown.map(({ element }) => element));
  await Promise.all(shown.filter(({ element }) => element.open).map((one) => one.look()));
  return groups.length;
}

function closeLanes() {
  lanes.replaceChildren();
  known.clear();
}

function lane(by, key) {
  const place = h("div", { class: "columns" });
  const look = columnsIn(place, () => ({ ...wanted(), [by]: key ?? "_unassigned" }));
  const tally = h("span", { class: "marks" });
  const name = by === "priority" ? chip(`priority-${key}`, t(`priority.${key}`)) : who(key);
  const element = h("details", { class: "lane", "data-group": key ?? "" }, h("summary", null, icon("unfold"), name, tally), place);
  element.addEventListener("toggle", () => element.open && look());
  return { element, tally, look };
}

// ---- one task, named in the address so that it can be linked to

let deep = 0; // how many entries of the history lie between the board and the open task

function followAddress(event) {
  const named = location.hash.slice(1);
  if (!named.startsWith("tsk_")) {
    deep = 0;
    closeTask();
    return;
  }
  if (event && history.state?.deep === undefined) history.replaceState({ deep: deep + 1 }, "");
  deep = history.state?.deep ?? 0;
  openTask(named, () => closed(named));
}

function closed(taskId) {
  document.querySelector(`[data-task="${taskId}"]`)?.focus();
  if (location.hash !== `#${taskId}`) return; // Back has closed it, or another one was opened
  if (deep) history.go(-deep);
  else history.replaceState(null, "", location.pathname + location.search);
}

addEventListener("hashchange", followAddress);
document.getElementById("new").addEventListener("click", create);
filters(document.getElementById("filters"), {
  words: ["words"],
  assignee: ["agent", t("board.assignee")],
  superior: ["superior", t("filter.superior")],
  priority: ["choice", t("board.priority"), priorities],
  group: ["choice", t("filter.group"), [["assignee", t("filter.by", { what: t("board.assignee") })], ["superior", t("filter.by", { what: t("filter.superior") })], ["priority", t("filter.by", { what: t("board.priority") })]]],
}, () => again());
const again = watch(["tasks", "files"], look);
showAttention(document.getElementById("attention"));
followAddress();

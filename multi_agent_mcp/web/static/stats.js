// The figures of the last days: small charts day by day, every agent, the tasks that took longest.

import { api, facts, h, hue, query, statusChip, t, took, visible, who } from "./core.js";
import { watch } from "./live.js";

const DAYS = 7;
const TASKS = 20;
const NAMED = 8; // agents with a colour of their own in a chart; those who contributed less are one part
const NONE = "–";
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const figures = document.getElementById("figures");
let all = false; // every task, not only those that took longest

// The address holds how many days: #days=30.
const days = () => Number(new URLSearchParams(location.hash.slice(1)).get("days")) || DAYS;

async function look() {
  const found = await api(`/stats${query({ days: days(), zone })}`);
  for (const button of document.querySelectorAll("#periods button")) button.setAttribute("aria-pressed", String(Number(button.dataset.days) === days()));
  document.getElementById("period").textContent = [...new Set([found.days[0], found.days.at(-1)].map(({ day }) => named(day)))].join(" – ");
  figures.replaceChildren(...everything(found));
  figures.setAttribute("aria-busy", "false");
}

function everything(found) {
  return [
    h("div", { class: "charts" },
      chart("stats.busy_by_day", found.days, (day) => day.busy, took),
      chart("stats.done_by_day", found.days, (day) => day.done, whole),
      chart("stats.messages_by_day", found.days, (day) => ({ "": day.messages }), whole),
      found.usage.days.some((day) => sum(day.tokens)) && chart("stats.tokens_by_day", found.usage.days, (day) => day.tokens, tokens)),
    h("section", null, h("h2", null, t("stats.agents")), agents(found.agents)),
    found.usage.rows.length > 0 && h("section", null, h("h2", null, t("stats.tokens")), usage(found.usage, new Map(found.tasks.map((task) => [task.task_id, task.title])))),
    found.tasks.some(isWorked) && h("section", null, h("h2", null, t("stats.tasks")), tasks(found.tasks)),
    found.left_out > 0 && h("p", { class: "hint" }, t("stats.left_out", { count: found.left_out })),
  ].filter(Boolean);
}

// ---- day by day: a column for each, made of what each agent contributed

const sum = (values) => Object.values(values).reduce((total, value) => total + value, 0);
const named = (day, form = { day: "numeric", month: "short", year: "numeric" }) => new Intl.DateTimeFormat(facts.language, form).format(new Date(`${day}T00:00`));

function chart(title, days, valuesOfAll, words) {
  const valuesOf = folded(days, valuesOfAll);
  const highest = Math.max(...days.map((day) => sum(valuesOf(day))));
  const every = Math.ceil(days.length / 8); // so that the days' names have room
  const total = days.reduce((found, day) => found + sum(valuesOf(day)), 0);
  const shown = new Set(days.flatMap((day) => Object.keys(valuesOf(day))).filter(Boolean));
  return h("figure", { class: "chart" },
    h("figcaption", null, h("h2", null, t(title)), h("b", null, words(total))),
    highest > 0 && h("small", { class: "scale" }, words(highest)),
    h("ol", { class: "plot", vars: { "--days": days.length } }, days.map((day, index) =>
      column(valuesOf(day), highest, words, named(day.day), (days.length - 1 - index) % every === 0 && shortly(day.day, days.length)))),
    h("ul", { class: "legend" }, [...shown].map((agent) => h("li", { class: isAgent(agent) ? "" : "others", vars: { "--hue": hue(agent) } }, h("bdi", null, agent)))));
}

const isAgent = (name) => !name.includes(" "); // no id has a space

// The values of a day with those of the agents that contributed least in all as one.
function folded(days, valuesOf) {
  const totals = {};
  for (const day of days) for (const [agent, value] of Object.entries(valuesOf(day))) totals[agent] = (totals[agent] ?? 0) + value;
  const agents = Object.keys(totals).sort((one, other) => totals[other] - totals[one]);
  if (agents.length <= NAMED + 1) return valuesOf;
  const least = new Set(agents.slice(NAMED));
  return (day) => {
    const [own, others] = [true, false].map((isOwn) => Object.fromEntries(Object.entries(valuesOf(day)).filter(([agent]) => least.has(agent) !== isOwn)));
    return { ...own, [t("stats.others", { n: least.size })]: sum(others) };
  };
}

const shortly = (day, count) => named(day, count > 7 ? { day: "numeric", month: "numeric" } : { weekday: "short" });

function column(values, highest, words, day, label) {
  const parts = Object.entries(values).filter(([, value]) => value);
  const said = parts.map(([agent, value]) => (agent ? `${agent}: ${words(value)}` : words(value)));
  return h("li", { title: [day, ...said].join("\n"), "aria-label": [day, ...said].join(", ") },
    h("div", { class: "stack" }, parts.map(([agent, value]) => h("div", {
      class: agent && (isAgent(agent) ? "of-agent" : "others"), vars: { "--part": `${(value / highest) * 100}%`, "--hue": hue(agent) },
    }))),
    h("small", null, label || "\u00a0"));
}

// ---- tables

const length = (seconds) => (seconds === null ? NONE : took(seconds));
const tokens = (number) => (number === "unknown" ? t("stats.unknown") : new Intl.NumberFormat(facts.language, { notation: "compact" }).format(number));
const whole = (number) => new Intl.NumberFormat(facts.language).format(number);
const count = (number) => (number ? whole(number) : NONE);

function table(kind, head, rows) {
  const titles = head.map((key) => t(key));
  return h("div", { class: "scroll" }, h("table", { class: `plain numbers ${kind}` },
    h("thead", null, h("tr", null, titles.map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", null, rows.map((cells) => h("tr", null, cells.map((cell, index) => h("td", { "data-title": titles[index], class: cell === NONE ? "none" : "" }, cell)))))));
}

function agents(found) {
  const longest = Math.max(1, ...found.map((agent) => agent.busy + agent.waiting));
  const head = ["stats.agent", "stats.presence", "stats.calls", "stats.mail", "stats.done", "stats.blocked", "stats.median_read", "stats.median_answer", "stats.median_lead"];
  return table("agents", head, found.map((agent) => [
    who(agent.agent_id),
    meter(longest, [["busy", agent.busy], ["waiting", agent.waiting]]),
    count(agent.tool_calls),
    agent.sent || agent.received ? `${whole(agent.sent)} / ${whole(agent.received)}` : NONE,
    count(agent.done),
    length(agent.blocked || null),
    length(agent.until_read),
    length(agent.until_answer),
    length(agent.lead),
  ]));
}

const effort = (task) => task.lead ?? task.working;
const isWorked = (task) => effort(task) > 0 || task.blocked > 0;

function tasks(found) {
  const worked = found.filter(isWorked);
  const sorted = worked.sort((one, other) => effort(other) - effort(one));
  const longest = Math.max(1, ...found.map((task) => task.lead ?? 0));
  const rows = sorted.slice(0, all ? worked.length : TASKS).map((task) => [
    h("a", { href: `/#${task.task_id}` }, h("bdi", null, visible(task.title))),
    task.lead === null ? NONE : meter(longest, [["lead", task.lead]]),
    statusChip(task.status),
    task.assignee_id ? who(task.assignee_id) : NONE,
    length(task.working || null),
    length(task.blocked || null),
    length(task.review || null),
  ]);
  const head = ["stats.task", "stats.lead", "filter.state", "board.assignee", "stats.busy", "stats.blocked", "status.review"];
  return [
    table("tasks", head, rows),
    rows.length < worked.length && h("button", { type: "button", class: "ghost more", onclick: () => { all = true; again(); } }, t("more")),
  ];
}

// What models took: a row for each agent, task and model; where the host's files do not say it, it is said once.
function usage({ rows, currency }, titles) {
  const head = ["stats.agent", "stats.task", "stats.model", "stats.input", "stats.output", "stats.cache_read", "stats.cache_write", currency && "stats.cost"].filter((title) => title !== null);
  return table("usage", head, rows.map((row) => [
    who(row.agent_id),
    row.task_id ? h("a", { href: `/#${row.task_id}` }, h("bdi", null, visible(titles.get(row.task_id)) || row.task_id)) : NONE,
    row.model ? h("bdi", null, visible(row.model)) : NONE,
    ...(row.input === "unknown" ? [tokens(row.input), NONE, NONE, NONE] : [row.input, row.output + (row.reasoning ?? 0), row.cache_read, row.cache_write].map(tokens)),
    ...(currency ? [row.cost === undefined ? NONE : `${row.cost.toFixed(2)} ${visible(currency)}`] : []),
  ]));
}

// A bar of these lengths, of which the longest row fills the cell, with the words for them below.
function meter(longest, parts) {
  const shown = parts.filter(([, value]) => value);
  if (!shown.length) return NONE;
  return [
    h("div", { class: "meter", "aria-hidden": "true" }, shown.map(([name, value]) => h("div", { class: name, vars: { "--part": `${(value / longest) * 100}%` } }))),
    h("small", null, shown.map(([name, value]) => (name === "lead" ? took(value) : `${t(`stats.${name}`)} ${took(value)}`)).join(" · ")),
  ];
}

document.getElementById("periods").addEventListener("click", (event) => {
  if (event.target.dataset.days) location.hash = `days=${event.target.dataset.days}`;
});
const again = watch(["tasks"], look);
addEventListener("hashchange", again);

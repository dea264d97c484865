// The figures of the last days: small charts day by day, every agent, the tasks that took longest.

import { api, facts, h, hue, query, statusChip, t, took, visible, who, zoneOfDays } from "./core.js";
import { watch } from "./live.js";
import { whenTeamChanges } from "./team.js";

const DAYS = 7;
const ROWS = 20; // of a table, until all are asked for
const NAMED = 8; // agents with a colour of their own in a chart; those who contributed less are one part
const MOST = 12; // agents, of whom the rest is less than half; where it takes more, the parts are teams
const TEAMS = 3; // that there are at least, for their sums to say more
const NONE = "–";
const figures = document.getElementById("figures");
const unfolded = new Set(); // tables of which every row is shown
let by = "agent_id"; // what the usage is summed up by; "": nothing
const orders = new Map(); // table → [column by which it is sorted, whether the other way round]

// The address holds how many days: #days=30.
const days = () => Number(new URLSearchParams(location.hash.slice(1)).get("days")) || DAYS;

async function look() {
  const found = await api(`/stats${query({ days: days() })}`);
  for (const button of document.querySelectorAll("#periods button")) button.setAttribute("aria-pressed", String(Number(button.dataset.days) === days()));
  document.getElementById("period").textContent = [...new Set([found.days[0], found.days.at(-1)].map(({ day }) => named(day)))].join(" – ");
  document.getElementById("zone").textContent = zoneOfDays();
  figures.replaceChildren(...everything(found));
  figures.setAttribute("aria-busy", "false");
}

function everything(found) {
  const titles = new Map(found.tasks.map((task) => [task.task_id, task.title]));
  return [
    cost(found.usage),
    h("div", { class: "charts" },
      chart("stats.busy_by_day", found.days, (day) => day.busy, took),
      chart("stats.done_by_day", found.days, (day) => day.done, whole),
      chart("stats.messages_by_day", found.days, (day) => ({ "": day.messages }), whole),
      found.usage.days.some((day) => sum(day.tokens)) && chart("stats.tokens_by_day", found.usage.days, (day) => day.tokens, tokens)),
    h("section", null, h("h2", null, t("stats.agents")), ...agents(found.agents)),
    found.usage.rows.length > 0 && h("section", null, h("h2", null, t("stats.tokens")), ...usage(found.usage, titles)),
    found.usage.budgets.length > 0 && h("section", null, h("h2", null, t("stats.budgets")), budgets(found.usage.budgets, titles)),
    found.tasks.some(isWorked) && h("section", null, h("h2", null, t("stats.tasks")), ...tasks(found.tasks)),
    found.left_out > 0 && h("p", { class: "hint" }, t("stats.left_out", { count: found.left_out })),
  ].filter(Boolean);
}

// ---- day by day: a column for each, made of what each agent contributed

const sum = (values) => Object.values(values).reduce((total, value) => total + value, 0);
const named = (day, form = { day: "numeric", month: "short", year: "numeric" }) => new Intl.DateTimeFormat(facts.language, form).format(new Date(`${day}T00:00`));

let superiors = new Map(); // agent → the one above it

// The agent directly below the top that an agent is, or is below.
function headOf(agent) {
  let [head, above] = [agent, superiors.get(agent)];
  for (let steps = 0; above && superiors.get(above) && steps < superiors.size; steps += 1) [head, above] = [above, superiors.get(above)];
  return head;
}

function chart(title, days, valuesOfEach, words) {
  const isOfTeams = needed(days, valuesOfEach) > MOST && new Set(mostFirst(days, valuesOfEach).map(headOf)).size >= TEAMS;
  const valuesOf = folded(days, isOfTeams ? (day) => byTeam(valuesOfEach(day)) : valuesOfEach);
  const highest = Math.max(...days.map((day) => sum(valuesOf(day))));
  const every = Math.ceil(days.length / 8); // so that the days' names have room
  const total = days.reduce((found, day) => found + sum(valuesOf(day)), 0);
  const shown = mostFirst(days, valuesOf).filter(Boolean);
  return h("figure", { class: "chart" },
    h("figcaption", null, h("h2", null, t(title)), h("b", null, words(total))),
    highest > 0 && h("small", { class: "scale" }, words(highest)),
    h("ol", { class: "plot", vars: { "--days": days.length } }, days.map((day, index) =>
      column(valuesOf(day), highest, words, named(day.day), (days.length - 1 - index) % every === 0 && shortly(day.day, days.length)))),
    h("ul", { class: "legend" }, [...shown].map((agent) => h("li", { class: isAgent(agent) ? "" : "others", vars: { "--hue": hue(agent) } }, h("bdi", null, isOfTeams && isAgent(agent) ? t("stats.team", { agent }) : agent)))));
}

function byTeam(values) {
  const found = {};
  for (const [agent, value] of Object.entries(values)) found[headOf(agent)] = (found[headOf(agent)] ?? 0) + value;
  return found;
}

const isAgent = (name) => !name.includes(" "); // no id has a space

function totalsOf(days, valuesOf) {
  const totals = {};
  for (const day of days) for (const [agent, value] of Object.entries(valuesOf(day))) totals[agent] = (totals[agent] ?? 0) + value;
  return totals;
}

// Who contributed, those who did most first; what is one part for many last.
function mostFirst(days, valuesOf) {
  const totals = totalsOf(days, valuesOf);
  return Object.keys(totals).sort((one, other) => isAgent(other) - isAgent(one) || totals[other] - totals[one]);
}

// How many of those who contributed most did at least half of all, and `NAMED` at least.
function needed(days, valuesOf) {
  const totals = totalsOf(days, valuesOf);
  const agents = mostFirst(days, valuesOf);
  const half = sum(totals) / 2;
  let count = 0;
  for (let named = 0; count < agents.length && (named < half || count < NAMED); count += 1) named += totals[agents[count]];
  return count;
}

// The values of a day with those of the agents that contributed least in all as one, which is less than half of all.
function folded(days, valuesOf) {
  const least = new Set(mostFirst(days, valuesOf).slice(needed(days, valuesOf)));
  if (least.size < 2) return valuesOf;
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
    h("div", { class: "stack" }, parts.length > 0 && h("div", { vars: { "--part": `${(sum(values) / highest) * 100}%` } }, parts.map(([agent, value]) => h("div", {
      class: agent && (isAgent(agent) ? "of-agent" : "others"), vars: { "--share": (value / sum(values)) * 100, "--hue": hue(agent) },
    })))),
    h("small", null, label || "\u00a0"));
}

// ---- tables

const length = (seconds) => (seconds === null ? NONE : took(seconds));
const tokens = (number) => (number === "unknown" ? t("stats.unknown") : new Intl.NumberFormat(facts.language, { notation: "compact" }).format(number));
const whole = (number) => new Intl.NumberFormat(facts.language).format(number);
const count = (number) => (number ? whole(number) : NONE);

// A row is what makes its cells, and the values by which it is sorted; columns without any are not.
function table(kind, head, rows, fixed = 0) {
  const [column, isTurned] = orders.get(kind) ?? [];
  const titles = head.map((key) => t(key));
  const value = (row) => row.values?.[column] ?? -1;
  const compared = (one, other) => (typeof value(one) === "string" ? String(value(one)).localeCompare(value(other)) : value(other) - value(one));
  const order = column === undefined ? rows : [...rows.slice(0, fixed), ...rows.slice(fixed).sort((one, other) => (isTurned ? -1 : 1) * compared(one, other))];
  const sort = (index) => { orders.set(kind, [index, index === column && !isTurned]); again(); };
  const titled = (title, index) => (rows[0]?.values?.[index] === undefined ? title
    : h("button", { type: "button", class: "ghost", onclick: () => sort(index) }, title, index === column && (isTurned ? " ↑" : " ↓")));
  const shown = unfolded.has(kind) ? order : order.slice(0, ROWS + fixed);
  const more = () => { unfolded.add(kind); again(); };
  return [h("div", { class: "scroll" }, h("table", { class: `plain numbers ${kind}` },
    h("thead", null, h("tr", null, titles.map((title, index) => h("th", { scope: "col", "aria-sort": index === column ? (isTurned ? "ascending" : "descending") : undefined }, titled(title, index))))),
    h("tbody", null, shown.map(({ cells, kind: of }) => h("tr", { class: of }, cells().map((cell, index) => h("td", { "data-title": titles[index], class: cell === NONE ? "none" : "" }, cell))))))),
  shown.length < order.length && h("button", { type: "button", class: "ghost more", onclick: more }, t("more"))];
}

function agents(found) {
  const hasQuestions = facts.features.includes("questions");
  const longest = Math.max(1, ...found.map((agent) => agent.busy + agent.waiting));
  const head = ["stats.agent", "stats.presence", "stats.calls", "stats.mail", "stats.done", "stats.blocked", "stats.median_read", ...(hasQuestions ? ["stats.median_answer"] : []), "stats.median_lead"];
  const busiest = found.toSorted((one, other) => other.busy + other.waiting - one.busy - one.waiting);
  return table("agents", head, busiest.map((agent) => ({ values: [agent.agent_id, agent.busy + agent.waiting, agent.tool_calls, agent.sent + agent.received, agent.done, agent.blocked, agent.until_read ?? -1, ...(hasQuestions ? [agent.until_answer ?? -1] : []), agent.lead ?? -1], cells: () => [
    who(agent.agent_id),
    meter(longest, [["busy", agent.busy], ["waiting", agent.waiting]]),
    count(agent.tool_calls),
    agent.sent || agent.received ? `${whole(agent.sent)} / ${whole(agent.received)}` : NONE,
    count(agent.done),
    length(agent.blocked || null),
    length(agent.until_read),
    ...(hasQuestions ? [length(agent.until_answer)] : []),
    length(agent.lead),
  ] })));
}

const effort = (task) => task.lead ?? task.working;
const isWorked = (task) => effort(task) > 0 || task.blocked > 0;

function tasks(found) {
  const worked = found.filter(isWorked), hasReviews = facts.features.includes("proof");
  const sorted = worked.sort((one, other) => effort(other) - effort(one));
  const longest = Math.max(1, ...found.map((task) => task.lead ?? 0));
  const rows = sorted.map((task) => ({ cells: () => [
    h("a", { href: `/#${task.task_id}` }, h("bdi", null, visible(task.title))),
    task.lead === null ? NONE : meter(longest, [["lead", task.lead]]),
    statusChip(task.status),
    task.assignee_id ? who(task.assignee_id) : NONE,
    length(task.working || null),
    length(task.blocked || null),
    ...(hasReviews ? [length(task.review || null)] : []),
  ] }));
  const head = ["stats.task", "stats.lead", "filter.state", "board.assignee", "stats.busy", "stats.blocked", ...(hasReviews ? ["status.review"] : [])];
  return table("tasks", head, rows);
}

// ---- what models took

const money = (value, currency) => (value === null ? NONE : `${new Intl.NumberFormat(facts.language, { minimumFractionDigits: 2, maximumFractionDigits: 2 }).format(value)} ${visible(currency)}`);

// What these days cost, and today, as far as that is known.
function cost({ rows, days: each, currency }) {
  const known = rows.filter((row) => row.cost !== undefined);
  if (!known.length) return null;
  const unknown = rows.length - known.length;
  const figure = (words, value) => h("div", null, h("dt", null, words), h("dd", null, value));
  return h("dl", { class: "totals" },
    figure(t("stats.cost_of", { n: each.length }), money(known.reduce((total, row) => total + row.cost, 0), currency ?? "USD")),
    figure(t("stats.cost_today"), money(each.at(-1).cost, currency ?? "USD")),
    unknown > 0 && h("p", { class: "hint" }, t("stats.cost_unknown", { n: unknown })));
}

const PARTS = ["input", "output", "cache_read", "cache_write"];

// The rows of each agent, task or model as one. What is not known of a part is not in the sum, which says so.
function summed(rows, name) {
  const groups = Map.groupBy(rows, (row) => row[name] ?? "");
  return [...groups].map(([key, of]) => {
    const known = of.filter((row) => row.input !== "unknown");
    const priced = of.filter((row) => row.cost !== undefined);
    const total = (values, of_) => values.reduce((found, row) => found + (row[of_] ?? 0), 0);
    return {
      ...Object.fromEntries(["agent_id", "task_id", "model"].map((other) => [other, other === name ? key || null : null])),
      ...Object.fromEntries(PARTS.map((part) => [part, known.length ? total(known, part) : "unknown"])),
      reasoning: total(known, "reasoning"), cost: priced.length ? total(priced, "cost") : undefined,
      isLess: known.length < of.length || (priced.length > 0 && priced.length < of.length),
    };
  });
}

// A row for each of what is chosen; where the host's files do not say it, it is said once. The total stands first.
function usage({ rows, currency }, titles) {
  const ways = { agent_id: "stats.agent", task_id: "stats.task", model: "stats.model", "": "stats.each" };
  const choose = h("div", { class: "tabs", role: "group", "aria-label": t("stats.tokens") }, Object.entries(ways).map(([name, words]) =>
    h("button", { type: "button", "aria-pressed": String(name === by), onclick: () => { by = name; again(); } }, t(words))));
  const hasCost = rows.some((row) => row.cost !== undefined);
  const size = (row) => row.cost ?? (row.input === "unknown" ? -1 : (row.input + row.output) / 1e9);
  const shown = (by ? summed(rows, by) : [...rows]).sort((one, other) => size(other) - size(one));
  const named = Object.keys(ways).filter((name) => name && (!by || name === by));
  const head = [...named.map((name) => ways[name]), "stats.input", "stats.output", "stats.cache_read", "stats.cache_write", ...(hasCost ? ["stats.cost"] : [])];
  const [total] = summed(rows, "nothing");
  return [choose, ...table(`usage by-${by || "each"}`, head, [usageRow(total, named, hasCost, currency, titles, true), ...shown.map((row) => usageRow(row, named, hasCost, currency, titles))], 1)];
}

function usageRow(row, named, hasCost, currency, titles, isTotal = false) {
  const names = {
    agent_id: () => (row.agent_id ? who(row.agent_id) : NONE),
    task_id: () => (row.task_id ? h("a", { href: `/#${row.task_id}` }, h("bdi", null, visible(titles.get(row.task_id)) || row.task_id)) : NONE),
    model: () => (row.model ? h("bdi", null, visible(row.model)) : NONE),
  };
  const counts = row.input === "unknown" ? null : [row.input, row.output + (row.reasoning ?? 0), row.cache_read, row.cache_write];
  const least = row.isLess ? t("stats.at_least") : "";
  return {
    kind: isTotal ? "total" : undefined,
    values: [...named.map((name) => row[name] ?? ""), ...(counts ?? [-1, -1, -1, -1]), row.cost ?? -1],
    cells: () => [
      ...named.map((name, index) => (isTotal ? (index ? "" : h("b", null, t("stats.total"))) : names[name]())),
      ...(counts ? counts.map(tokens) : [tokens("unknown"), NONE, NONE, NONE]),
      ...(hasCost ? [row.cost === undefined ? NONE : `${least}${money(row.cost, currency ?? "USD")}`] : []),
    ],
  };
}

// How much of each budget is used, the fullest first.
function budgets(found, titles) {
  const part = (one) => one.used / Math.max(one.limit, 1);
  return h("ul", { class: "budgets" }, found.toSorted((one, other) => part(other) - part(one)).map((one) => h("li", { class: part(one) >= 1 ? "is-full" : part(one) >= 0.8 ? "is-high" : "" },
    who(one.agent_id), h("span", { class: "hint" }, one.task_id ? h("a", { href: `/#${one.task_id}` }, h("bdi", null, visible(titles.get(one.task_id)) || one.task_id)) : t("stats.today")),
    h("div", { class: "meter", "aria-hidden": "true" }, h("div", { vars: { "--part": `${Math.min(part(one), 1) * 100}%` } })),
    h("small", null, t("stats.of", { used: tokens(one.used), limit: tokens(one.limit) })))));
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
whenTeamChanges((team) => { superiors = new Map(team.map(({ id, parent_id }) => [id, parent_id])); again(); });
addEventListener("hashchange", again);

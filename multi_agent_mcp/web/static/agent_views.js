// The three ways in which the agents are shown: as a tree of rows, as a dense table that can be sorted, as their screens.

import { acts, held, life, stateOf, troubles } from "./agent_state.js";
import { age, agentLink, agentPlace, chip, face, facts, h, home, icon, statusChip, t, visible, withLocalTimes, zoneOfDays } from "./core.js";
import { openPane, tileOf } from "./pane.js";

export const VIEWS = ["tree", "table", "screens"];
export const STATES = ["stuck", "paused", "waiting", "working", "idle", "gone"];
const MANY = 12; // agents, from which on the table is shown unless another view was chosen

export const viewOf = (chosen, count) => (VIEWS.includes(chosen) ? chosen : count > MANY ? "table" : "tree");

const whole = new Intl.NumberFormat(facts.language, { notation: "compact" });

// Columns: name → [its title, the value by which it is sorted, whether the largest comes first].
const COLUMNS = {
  agent: [t("stats.agent"), null, false],
  state: [t("filter.state"), (agent) => STATES.indexOf(stateOf(agent)), false],
  silent: [t("agents.silent"), (agent) => agent.last_activity_at ?? "", false],
  task: [t("stats.task"), (agent) => visible(agent.task?.title ?? "\uffff"), false],
  tokens: [t("agents.tokens"), (agent) => agent.tokens ?? -1, true],
  unread: [t("agents.unread_column"), (agent) => agent.unread, true],
};

// The agents in the order of a column: `tokens`, or `-tokens` for the other way round; in that of the tree without one.
export function sorted(agents, by = "") {
  const column = COLUMNS[by.replace("-", "")];
  if (!column) return agents;
  const [, value, isFalling] = column;
  const turn = isFalling === by.startsWith("-") ? 1 : -1;
  const compared = (one, other) => (one < other ? -1 : one > other ? 1 : 0);
  return agents.toSorted((one, other) => turn * compared((value ?? (({ id }) => id))(one), (value ?? (({ id }) => id))(other)));
}

// An empty container of a view; `sort(name)` is called when somebody wants another order.
export function container(view, by, sort) {
  if (view !== "table") return h("ul", { class: view === "tree" ? "team" : "tiles" });
  const head = Object.entries(COLUMNS).map(([name, [title]]) => {
    const isChosen = by.replace("-", "") === name;
    const isUp = COLUMNS[name][2] === by.startsWith("-");
    return h("th", { scope: "col", title: name === "tokens" ? zoneOfDays() : null, "aria-sort": isChosen ? (isUp ? "ascending" : "descending") : undefined },
      h("button", { type: "button", class: "ghost", onclick: () => sort(isChosen && !by.startsWith("-") ? `-${name}` : name) }, title, isChosen && (isUp ? " ↑" : " ↓")));
  });
  return h("div", { class: "scroll" }, h("table", { class: "plain dense" }, h("thead", null, h("tr", null, head, h("td"))), h("tbody")));
}

export const listOf = (element) => element.querySelector("tbody") ?? element;

// Why it stands, in a line.
const reasonOf = ({ stuck, limited, pause_reason: paused }) => withLocalTimes(stuck?.what ?? limited?.what ?? paused ?? "");

const line = (agent) => h("tr", { class: `agent ${agent.alive ? "is-alive" : ""}`, title: reasonOf(agent) || undefined },
  h("td", null, agentLink(agent.id)),
  h("td", null, chip(`is-${stateOf(agent)}`, t(`agents.state.${stateOf(agent)}`)), agent.limited && chip("attention-limited", t("agents.limited"))),
  h("td", null, age(agent.last_activity_at)),
  h("td", { class: "cut" }, agent.task && [statusChip(agent.task.status), " ", h("a", { href: `/#${agent.task.task_id}`, title: visible(agent.task.title) }, h("bdi", null, visible(agent.task.title)))]),
  h("td", { class: "number" }, agent.tokens === undefined ? "–" : whole.format(agent.tokens)),
  h("td", { class: "number" }, agent.unread ? h("a", { href: `/messages#box=inbox&whose=${agent.id}` }, agent.unread) : "–"),
  h("td", { class: "acts" }, agent.pane_id && h("button", { type: "button", class: "ghost square", "data-mark": "pane", "aria-label": t("pane.title", { agent: agent.id }), title: t("pane.see"), onclick: () => openPane(agent.id) }, icon("executions"))));

const row = (agent) => h(
  "li", { class: `agent ${agent.alive ? "is-alive" : ""}`, vars: { "--depth": agent.depth } },
  h("div", { class: "name" }, face(agent.id),
    h("div", { class: "grow" },
      h("a", { href: agentPlace(agent.id), "data-mark": "agent" }, h("bdi", null, agent.id)), home(agent.id), " ", h("span", { class: "hint" }, t(`role.${agent.role}`)),
      agent.name && agent.name !== agent.id && h("div", { class: "hint" }, h("bdi", null, visible(agent.name))))),
  h("div", { class: "life" }, life(agent)),
  h("div", { class: "work" }, agent.task ? held(agent.task) : h("span", { class: "hint" }, t("agents.idle")), troubles(agent)),
  h("div", { class: "acts" }, acts(agent)),
);

const tile = (agent) => h("li", { class: "tile" },
  h("header", null, agentLink(agent.id), chip(`is-${stateOf(agent)}`, t(`agents.state.${stateOf(agent)}`))),
  tileOf(agent.id));

// What of an agent a view shows (a screen follows by itself, and is not made again when something else changes), and how.
export const SHOWN = {
  tree: [(agent) => ({ ...agent, tokens: undefined }), row],
  table: [(agent) => agent, line],
  screens: [(agent) => ({ id: agent.id, state: stateOf(agent), stuck: agent.stuck && {}, paused: agent.paused, wait: agent.wait && {}, task: agent.task && {}, alive: agent.alive }), tile],
};

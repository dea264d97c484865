// The agents as a tree, or in groups, with their sessions, tasks and waits.

import { acts, held, life, troubles } from "./agent_state.js";
import { agentPlace, api, chip, face, facts, h, home, t, visible, who } from "./core.js";
import { chosen, filters } from "./filters.js";
import { keyed } from "./lists.js";
import { watch } from "./live.js";
import { openPane } from "./pane.js";

const teams = document.getElementById("agents");
const count = document.getElementById("count");
const priorities = [...facts.priorities].reverse().map((name) => [name, t(`priority.${name}`)]);
const STATES = ["stuck", "paused", "waiting", "working", "idle", "gone"];
let all = [];

watch(["agents", "machines", "tasks", "messages", "notifications"], async () => {
  all = (await api("/agents")).agents;
  draw();
});

// `/agents#pane=worker-a` opens an agent's screen.
const [, wanted] = /^#pane=([A-Za-z0-9_-]+)$/.exec(location.hash) ?? [];
if (wanted) openPane(wanted);

filters(document.getElementById("filters"), {
  words: ["words"],
  state: ["choice", t("filter.state"), STATES.map((state) => [state, t(`agents.state.${state}`)])],
  superior: ["superior", t("filter.superior")],
  priority: ["choice", t("filter.task_priority"), priorities],
  group: ["choice", t("filter.group"), [["state", t("filter.by", { what: t("filter.state") })], ["superior", t("filter.by", { what: t("filter.superior") })], ["priority", t("filter.by", { what: t("board.priority") })]]],
}, draw);

// What an agent does, in one word: the first that fits.
function stateOf(agent) {
  if (agent.stuck) return "stuck";
  if (agent.paused) return "paused";
  if (agent.wait) return "waiting";
  if (agent.task) return "working";
  return agent.alive ? "idle" : "gone";
}

function fits(agent, { words = "", state, superior, priority }) {
  const said = [agent.id, agent.name, agent.host, agent.task?.title, agent.stuck?.what].filter(Boolean).join(" ").normalize("NFKC").toLowerCase();
  return words.normalize("NFKC").toLowerCase().split(/\s+/).every((word) => said.includes(word))
    && [undefined, stateOf(agent)].includes(state) && [undefined, agent.parent_id].includes(superior) && [undefined, agent.task?.priority].includes(priority);
}

const GROUPS = {
  state: [stateOf, (key) => t(`agents.state.${key}`), (key) => STATES.indexOf(key)],
  superior: [(agent) => agent.parent_id ?? "", (key) => (key ? who(key) : t("agents.top")), (key) => all.findIndex(({ id }) => id === key)],
  priority: [(agent) => agent.task?.priority ?? "", (key) => (key ? chip(`priority-${key}`, t(`priority.${key}`)) : t("agents.idle")), (key) => (key ? -facts.priorities.indexOf(key) : 1)],
};

// One list for each group, or the whole tree in one. Where something is left out, nobody is drawn below anybody.
function draw() {
  const now = chosen(["words", "state", "superior", "priority", "group"]);
  const found = all.filter((agent) => fits(agent, now));
  const isTree = !now.group && found.length === all.length;
  const [keyOf, wordsOf, rankOf] = GROUPS[now.group] ?? [() => "", null, () => 0];
  const groups = [...Map.groupBy(found, keyOf)].sort(([one], [other]) => rankOf(one) - rankOf(other));
  keyed(teams, groups.map(([key]) => ({ key, group: now.group })), ({ key, group }) => `${group} ${key}`, ({ key }) => h("section", { class: "group" },
    wordsOf && h("h2", null, wordsOf(key), " ", h("span", { class: "count" })), h("ul", { class: "team" })));
  groups.forEach(([, agents], index) => {
    const section = teams.children[index];
    if (wordsOf) section.querySelector(".count").textContent = agents.length;
    keyed(section.querySelector("ul"), agents.map((agent) => (isTree ? agent : { ...agent, depth: 0 })), (agent) => agent.id, row);
  });
  count.textContent = found.length === all.length ? t("agents.count", { n: all.length }) : t("agents.count_of", { n: found.length, all: all.length });
  teams.setAttribute("aria-busy", "false");
}

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

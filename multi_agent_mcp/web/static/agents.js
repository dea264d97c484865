// The agents as a tree, a table or their screens, all of them or in groups.

import { stateOf } from "./agent_state.js";
import { SHOWN, STATES, VIEWS, container, listOf, sorted, viewOf } from "./agent_views.js";
import { api, chip, facts, h, t, who } from "./core.js";
import { chosen, filters } from "./filters.js";
import { keyed } from "./lists.js";
import { watch } from "./live.js";
import { openPane } from "./pane.js";

const teams = document.getElementById("agents");
const count = document.getElementById("count");
const nothing = document.getElementById("nothing");
const priorities = [...facts.priorities].reverse().map((name) => [name, t(`priority.${name}`)]);
let all = [];

watch(["agents", "machines", "tasks", "messages", "notifications"], async () => {
  const { agents, tokens } = await api("/agents");
  all = agents.map((agent) => ({ ...agent, tokens: tokens[agent.id] }));
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
  view: ["choice", t("agents.view"), VIEWS.map((view) => [view, t(`agents.view.${view}`)])],
}, draw);

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

const sortBy = (name) => {
  const address = new URLSearchParams(location.search);
  address.set("sort", name);
  history.replaceState(history.state, "", `${location.pathname}?${address}${location.hash}`);
  draw();
};

// One list for each group, or all in one. Where something is left out of the tree, nobody is drawn below anybody.
function draw() {
  const now = chosen(["words", "state", "superior", "priority", "group", "view", "sort"]);
  const view = viewOf(now.view, all.length);
  const found = sorted(all.filter((agent) => fits(agent, now) && (view !== "screens" || agent.pane_id)), now.sort);
  const isTree = !now.group && found.length === all.length && !now.sort;
  const [keyOf, wordsOf, rankOf] = GROUPS[now.group] ?? [() => "", null, () => 0];
  const [of, render] = SHOWN[view];
  const groups = [...Map.groupBy(found, keyOf)].sort(([one], [other]) => rankOf(one) - rankOf(other));
  keyed(teams, groups.map(([key]) => ({ key, group: now.group, view, sort: view === "table" && now.sort })), ({ key, ...how }) => `${Object.values(how)} ${key}`, ({ key }) => h("section", { class: "group" },
    wordsOf && h("h2", null, wordsOf(key), " ", h("span", { class: "count" })), container(view, now.sort ?? "", sortBy)));
  groups.forEach(([, agents], index) => {
    const section = teams.children[index];
    if (wordsOf) section.querySelector(".count").textContent = agents.length;
    keyed(listOf(section.lastElementChild), agents.map((agent) => of(isTree ? agent : { ...agent, depth: 0 })), (agent) => agent.id, render);
  });
  count.textContent = found.length === all.length ? t("agents.count", { n: all.length }) : t("agents.count_of", { n: found.length, all: all.length });
  nothing.hidden = found.length > 0;
  nothing.textContent = t(view === "screens" && !all.some(({ pane_id }) => pane_id) ? "agents.no_screens" : "filter.nothing");
  teams.setAttribute("aria-busy", "false");
}

// The agents as a tree, with their sessions, tasks and waits.

import { acts, held, life, troubles } from "./agent_state.js";
import { agentPlace, api, face, h, home, t, visible } from "./core.js";
import { keyed } from "./lists.js";
import { watch } from "./live.js";
import { openPane } from "./pane.js";

const team = document.getElementById("agents");

watch(["agents", "machines", "tasks", "messages", "notifications"], async () => {
  const { agents } = await api("/agents");
  keyed(team, agents, (agent) => agent.id, row);
  team.setAttribute("aria-busy", "false");
});

// `/agents#pane=worker-a` opens an agent's screen.
const [, wanted] = /^#pane=([A-Za-z0-9_-]+)$/.exec(location.hash) ?? [];
if (wanted) openPane(wanted);

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

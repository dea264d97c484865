// One agent: who it is, what it does and what keeps it from it; below, the parts of its page.

import { PARTS } from "./agent_parts.js";
import { acts, life, troubles } from "./agent_state.js";
import { agentLink, api, chip, face, facts, h, home, t, visible } from "./core.js";
import { settle } from "./lists.js";
import { watch } from "./live.js";

const profile = document.getElementById("agent");
let says = "";

if (facts.removed) {
  profile.replaceChildren(h("header", null, face(facts.agent), h("div", { class: "grow" }, h("h1", null, h("bdi", null, facts.agent)), h("p", { class: "marks" }, chip("gone", t("agent.removed"))))));
  profile.setAttribute("aria-busy", "false");
} else watch(["agents", "machines", "tasks", "messages", "notifications"], async () => {
  const answer = await api(`/agents/${facts.agent}`);
  if (says !== JSON.stringify(answer)) profile.replaceChildren(...head(answer.agent, answer.subordinates));
  says = JSON.stringify(answer);
  profile.setAttribute("aria-busy", "false");
});

function head(agent, subordinates) {
  const stands = troubles(agent);
  return [
    h("header", { class: agent.alive ? "is-alive" : "" }, face(agent.id),
      h("div", { class: "grow" },
        h("h1", null, h("bdi", null, agent.id), home(agent.id)),
        h("p", { class: "marks" }, chip("kind", t(`role.${agent.role}`)),
          agent.name && agent.name !== agent.id && h("bdi", null, visible(agent.name)),
          agent.parent_id && h("span", { class: "hint" }, t("agent.superior"), " ", agentLink(agent.parent_id))),
        h("div", { class: "life" }, life(agent))),
      h("div", { class: "acts" }, acts(agent))),
    stands.length > 0 && h("div", { class: "troubles" }, stands),
    subordinates.length > 0 && h("details", { class: "below" }, h("summary", null, t("agent.subordinates", { n: subordinates.length })),
      h("p", { class: "marks" }, subordinates.map(agentLink))),
  ].filter(Boolean);
}

// ---- the parts: each asks for its own data, and is there while it has something to show

const sections = PARTS.map((part) => {
  const body = h("div", { class: "body" });
  const section = h("section", { class: `part ${part.wide ? "wide" : ""}`, hidden: true, "data-part": part.name, "aria-labelledby": `part-${part.name}` },
    h("header", null, h("h2", { id: `part-${part.name}` }, t(`agent.part.${part.name}`)), part.all && h("a", { href: part.all(facts.agent) }, t("agent.all"))), body);
  watch(part.topics, async () => {
    const nodes = (await part.show(facts.agent)).filter(Boolean);
    const isNew = section.hidden && nodes.length > 0;
    section.hidden = !nodes.length;
    settle(body, nodes);
    if (isNew && location.hash === `#part-${part.name}`) section.scrollIntoView({ block: "start" }); // when it came, the address had been followed already
  });
  return section;
});
document.getElementById("parts").append(...sections);

// The machines of the team: who is there, who is away since when, what waits where.

import { age, api, chip, copying, face, h, icon, t, visible } from "./core.js";
import { keyed } from "./lists.js";
import { watch } from "./live.js";

const exchange = document.getElementById("exchange");
const list = document.getElementById("machines");
const edits = document.getElementById("edits");
const HELPS = { no_relay: "multi-agent-mcp relay --start", relay_hangs: "multi-agent-mcp relay --stop; multi-agent-mcp relay --start", replaced: "multi-agent-mcp share --reseed", shut_out: "multi-agent-mcp machines" };
let shown = false;

watch(["agents", "machines"], async () => {
  const team = await api("/machines");
  exchange.replaceChildren(connection(team));
  keyed(list, team.machines, (machine) => machine.name, row);
  edits.hidden = !team.edits.length;
  keyed(edits.querySelector("ul"), team.edits, (edit) => edit.path, (edit) => h("li", null, h("code", null, visible(edit.path)), " ", age(edit.at)));
  list.setAttribute("aria-busy", "false");
  if (!shown) list.querySelector(".is-meant")?.scrollIntoView({ block: "center" });
  shown = true;
});

// How this machine stands with the hub.
function connection(team) {
  const words = t(`machines.${team.exchange}`, { pid: team.relay_pid });
  const facts = [team.serves && t("machines.serves"), team.version && t("machines.version", { version: visible(team.version) })].filter(Boolean);
  return h("p", { class: `exchange is-${team.exchange}` },
    h("b", null, words), team.since && [" · ", age(team.since)], " ",
    h("span", { class: "hint" }, facts.map((fact) => ` · ${fact}`)), " ",
    HELPS[team.exchange] && copying(HELPS[team.exchange]));
}

function row(machine) {
  const id = `machine-${machine.name}`; // `/machines#machine-laptop`: :target does not hold for what comes later
  return h("li", { class: `machine is-${machine.state} ${location.hash === `#${id}` ? "is-meant" : ""}`, id },
    h("header", null, icon("machines"), h("h2", null, h("bdi", null, visible(machine.name))), chip(`machine-${machine.state}`, t(`machines.state.${machine.state}`)),
      ["up", "away"].includes(machine.state) && machine.since && h("small", { class: "hint" }, t(`machines.since.${machine.state}`), " ", age(machine.since))),
    machine.troubles.map((trouble) => h("p", { class: "hint" }, t(`machines.${trouble}`))),
    h("dl", null, ["queued", "behind", "conflicts"].map((name) => count(name, machine[name])),
      Math.abs(machine.clock_offset) >= 1 ? fact("clock", t("ago.seconds", { n: machine.clock_offset })) : null),
    h("ul", { class: "at-home", "aria-label": t("page.agents") }, machine.agents.map((agent) => h("li", { class: "who" }, face(agent), h("bdi", null, agent)))));
}

const count = (name, number) => fact(name, number ?? t("machines.unknown"), number > 0);

function fact(name, words, stands = false) {
  return h("div", { class: stands ? "stands" : "", title: t(`machines.${name}_hint`) }, h("dt", null, t(`machines.${name}`)), h("dd", null, words));
}

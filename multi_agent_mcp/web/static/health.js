// The findings of doctor and their repairs; those that say the same of different agents or files are one row.

import { age, agentLink, api, chip, facts, h, icon, query, t, visible, withLocalTimes, word } from "./core.js";
import { watch } from "./live.js";
import { endLease } from "./task_acts.js";

const ENTITY_ID = /\b(?:[a-z]{3,4}_([0-9a-f]{8})[0-9a-f]{4}|([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f-]{22})\b/g;
const MANY = 4; // findings that say the same, from which on they are one row
const NAMED = 3;
const unfolded = new Set(); // what the rows say whose subjects are all shown
const findings = document.getElementById("findings");

const WAIT = 5; // seconds that the console waits for an examination which takes longer
const state = document.getElementById("state");
let asked = false;
const again = watch(["agents"], async () => {
  let how = { again: asked ? 1 : null };
  asked = false;
  for (;;) {
    const answer = await api(`/health${query(how)}`);
    state.replaceChildren(...(answer.examining ? [t("health.examining", answer.examining)] : [t("health.examined"), " ", age(answer.examined_at)]));
    if (answer.examined_at) show(answer);
    if (!answer.examining) return;
    how = { wait: WAIT };
  }
});

function show(answer) {
  findings.setAttribute("aria-busy", "false");
  if (!answer.findings.length) {
    findings.replaceChildren(h("p", { class: "empty" }, t("health.clean")));
    return;
  }
  const head = ["weight", "check", "subject", "finding", "repair"].map((key) => h("th", { scope: "col" }, t(`health.${key}`)));
  const groups = Map.groupBy(answer.findings, likeness);
  const rows = [...groups].flatMap(([key, group]) => (group.length < MANY ? group.map((item) => row([item])) : [row(group), all(key, group)]));
  findings.replaceChildren(h("div", { class: "scroll" }, h("table", { class: "plain findings" }, h("thead", null, h("tr", null, head)), h("tbody", null, rows))));
}

// Equal for findings that say the same apart from their subject, names in quotes, ids and numbers.
function likeness({ level, check, subject, finding, repair }) {
  const alike = (text) => text.replaceAll(subject, "#").replace(/'[^']*'/g, "#").replace(ENTITY_ID, "#").replace(/\d+/g, "#");
  return [level, check, alike(finding), alike(repair)].join("\n");
}

// No line ends within an option of a command, which somebody may type.
const said = (text) => h("bdi", null, withLocalTimes(text).replace(ENTITY_ID, "$1$2").split(/(--[a-z][a-z-]*)/).map((part, at) => (at % 2 ? h("span", { class: "option" }, part) : part)));

function row(group) {
  const [first] = group;
  const subjects = [...new Set(group.map(({ subject }) => subject))];
  return h("tr", { class: group.length > 1 ? "many" : "" },
    h("td", null, chip(`level-${first.level}`, t(`health.level.${first.level}`)), group.length > 1 && h("b", null, ` ×${group.length}`)),
    h("td", null, word("checked", first.check)),
    h("td", null, said(subjects.slice(0, NAMED).join(", ")), subjects.length > NAMED && " …"),
    h("td", null, said(first.finding)),
    h("td", null, said(first.repair)));
}

// Its subject, and what is said of it unless that is the same of all.
function each(group) {
  const isSame = group.every(({ finding }) => finding === group[0].finding);
  return h("ul", { tabindex: "0", class: isSame ? "short" : "" }, group.map(({ subject, finding }) => h("li", null, h("b", null, said(subject)), !isSame && [" ", said(finding)])));
}

// The row below that of many findings: each of them, once it is opened.
function all(key, group) {
  const details = h("details", { class: "fold", open: unfolded.has(key) }, h("summary", null, icon("unfold"), t("health.all", { n: group.length })));
  const fill = () => {
    if (details.open) unfolded.add(key);
    else unfolded.delete(key);
    if (details.open && details.children.length < 2) details.append(each(group));
  };
  details.addEventListener("toggle", fill);
  if (details.open) fill();
  return h("tr", { class: "all" }, h("td", { colspan: "5" }, details));
}

// Commands that have a lease, or wait for one.
if (facts.features.includes("leases")) {
  const place = document.getElementById("leases");
  const head = ["lease", "state", "for", "agent", "command", ""].map((key) => h("th", { scope: "col" }, key && t(`leases.${key}`)));
  const one = (lease) => h("tr", null, [h("bdi", null, visible(lease.name)), chip(lease.held_at ? "alive" : "pending", t(`leases.${lease.state}`)), age(lease.held_at ?? lease.since),
    lease.agent_id ? agentLink(lease.agent_id) : "–", h("bdi", { class: "path" }, visible(lease.command)),
    facts.acts && h("button", { type: "button", class: "ghost", "data-mark": `end-${lease.pid}`, onclick: () => endLease(lease.pid) }, t(`leases.end.${lease.state}`))].map((cell) => h("td", null, cell)));
  watch(["leases"], async () => {
    const { leases } = await api("/leases");
    place.replaceChildren(...(leases.length ? [h("h2", null, t("leases.title")), h("div", { class: "scroll" }, h("table", { class: "plain" }, h("thead", null, h("tr", null, head)), h("tbody", null, leases.map(one))))] : []));
  });
}

document.getElementById("again").addEventListener("click", () => { asked = true; again(); });

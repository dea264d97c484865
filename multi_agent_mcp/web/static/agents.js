// The agents as a tree, with their sessions, tasks and waits; stopping them and letting them go on.

import { age, api, attempt, chip, face, facts, h, home, icon, isAway, statusChip, t, toast, told, visible, why } from "./core.js";
import { ask } from "./dialogs.js";
import { keyed } from "./lists.js";
import { watch } from "./live.js";
import { openPane } from "./pane.js";
import { compose } from "./writing.js";

const team = document.getElementById("agents");

watch(["agents", "machines", "tasks", "messages", "notifications"], async () => {
  const { agents } = await api("/agents");
  keyed(team, agents, (agent) => agent.id, row);
  team.setAttribute("aria-busy", "false");
});

// `/agents#pane=worker-a` opens an agent's screen.
const [, wanted] = /^#pane=([A-Za-z0-9_-]+)$/.exec(location.hash) ?? [];
if (wanted) openPane(wanted);

function row(agent) {
  return h(
    "li", { class: `agent ${agent.alive ? "is-alive" : ""}`, vars: { "--depth": agent.depth } },
    h("div", { class: "name" }, face(agent.id),
      h("div", { class: "grow" },
        h("b", null, h("bdi", null, agent.id)), home(agent.id), " ", h("span", { class: "hint" }, t(`role.${agent.role}`)),
        agent.name && agent.name !== agent.id && h("div", { class: "hint" }, h("bdi", null, visible(agent.name))))),
    h("div", { class: "life" }, life(agent)),
    h("div", { class: "work" }, work(agent)),
    h("div", { class: "acts" }, acts(agent)),
  );
}

function life(agent) {
  const marks = agent.sessions.length
    ? agent.sessions.map((session) => chip("alive", t(`agents.session.${session.purpose}`)))
    : [chip("gone", t("agents.gone"))];
  if (agent.away) marks.unshift(chip("status-blocked", t("agents.away")));
  const where = agent.elsewhere ? t("agents.elsewhere", { machine: visible(agent.elsewhere) }) : agent.pane_id ? `${t("agents.pane")} ${agent.pane_id}${agent.host ? ` · ${agent.host}` : ""}` : t("agents.no_pane");
  return [
    h("div", { class: "marks" }, marks),
    h("small", { class: "hint" }, where, " · ", agent.last_activity_at ? [`${t("agents.last")} `, age(agent.last_activity_at)] : t("agents.never")),
  ];
}

function work(agent) {
  return [
    agent.task
      ? h("div", null, statusChip(agent.task.status), " ", h("a", { href: `/#${agent.task.task_id}` }, h("bdi", null, visible(agent.task.title))), " ", h("small", { class: "hint" }, `${agent.task.progress}%`))
      : h("span", { class: "hint" }, t("agents.idle")),
    agent.stuck && h("div", { class: "waits" }, chip("status-blocked", t("agents.stuck")), " ", agent.stuck.what),
    agent.limited && h("div", { class: "waits" }, chip("attention-limited", t("agents.limited")), " ", h("bdi", null, visible(agent.limited.what))),
    agent.interrupts > 0 && chip("status-blocked", t("agents.interrupts", { n: agent.interrupts })),
    agent.paused && h("div", { class: "waits" }, t("agents.paused"), agent.pause_reason && [": ", h("bdi", null, visible(agent.pause_reason))], " ",
      h("button", { type: "button", "data-mark": "resume", onclick: () => resume(agent) }, t("agents.resume"))),
    waiting(agent.notifications),
    agent.wait && h("div", { class: "waits" }, t("agents.waits", { agent: agent.wait.admin_id }), " ", age(agent.wait.since), " ",
      h("button", { type: "button", "data-mark": "release", onclick: () => release(agent) }, t("agents.release"))),
  ];
}

// What the agent has not read yet, and how far each notification got.
function waiting(notifications) {
  if (!notifications.length) return null;
  return h("ul", { class: "notices" }, notifications.map((notice) => h("li", null,
    chip(`state-${notice.state}`, t(`state.${notice.state}`)), " ",
    h("bdi", null, visible(notice.action ?? notice.type)),
    notice.sender_id && [" ", h("small", { class: "hint" }, "← ", h("bdi", null, visible(notice.sender_id)))],
    notice.reason && h("small", { class: "hint", title: visible(notice.reason) }, " ", why(notice.reason)))));
}

function acts(agent) {
  const mail = h("a", { class: "tally", href: `/messages#box=inbox&whose=${agent.id}`, title: t("agents.mail") }, icon("messages"), `${agent.unread} ${t("agents.unread")}`);
  if (agent.id === facts.me) return [mail];
  return [
    mail,
    agent.pane_id && h("button", { type: "button", class: "ghost", "data-mark": "pane", onclick: () => openPane(agent.id) }, t("pane.see")),
    h("button", { type: "button", class: "ghost", "data-mark": "write", onclick: () => compose(agent.id) }, t("agents.write")),
    agent.role !== "owner" && h("button", { type: "button", class: "ghost stop", "data-mark": "stop", onclick: () => stop(agent) }, icon("stop"), t("agents.stop")),
  ];
}

async function stop(agent) {
  const actions = (agent.task ? ["blocked", "cancel", "pause"] : ["pause"]).map((name) => [name, t(`agents.action.${name}`)]);
  const fields = [
    { name: "action", label: agent.task ? visible(agent.task.title) : t("agents.idle"), kind: "choice", options: actions, value: actions[0][0] },
    { name: "reason", label: t("board.reason"), kind: "long", rows: 3, hint: t("board.reason_hint") },
  ];
  const act = async (given) => {
    told(await api(`/agents/${agent.id}/interrupt`, { action: given.action, reason: given.reason || null }), isAway(agent.id) ? "agents.stopped_away" : "agents.stopped", agent.id);
  };
  await ask(t("agents.stop_title", { agent: agent.id }), fields, t("agents.stop"), act, t(isAway(agent.id) ? "board.will_interrupt_away" : "board.will_interrupt", { agent: agent.id }));
}

async function resume(agent) {
  await attempt(async () => {
    told(await api(`/agents/${agent.id}/resume`, {}), "agents.resumed", agent.id);
  });
}

async function release(agent) {
  await attempt(async () => {
    await api(`/agents/${agent.id}/release`, {});
    toast(t("agents.released", { agent: agent.id }));
  });
}

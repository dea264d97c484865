// What an agent does, in the list of all and on its own page: its life, its work, what can be done about it.

import { age, api, chip, facts, h, icon, isAway, statusChip, t, told, visible, why, withLocalTimes, word } from "./core.js";
import { ask } from "./dialogs.js";
import { openPane } from "./pane.js";
import { release, resume } from "./task_acts.js";
import { compose } from "./writing.js";

// What an agent does, in one word: the first that fits.
export function stateOf(agent) {
  if (agent.stuck) return "stuck";
  if (agent.paused) return "paused";
  if (agent.wait) return "waiting";
  if (agent.task) return "working";
  return agent.alive ? "idle" : "gone";
}

export function life(agent) {
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

export const held = (task) => h("div", null, statusChip(task.status), " ", h("a", { href: `/#${task.task_id}` }, h("bdi", null, visible(task.title))), " ", h("small", { class: "hint" }, `${task.progress}%`));

// What keeps it from working, and what it has not been told yet.
export function troubles(agent) {
  return [
    agent.limited && h("div", { class: "waits" }, chip("attention-limited", t("agents.limited")), " ", h("bdi", null, withLocalTimes(agent.limited.what))),
    agent.stuck && h("div", { class: "waits" }, chip("status-blocked", t("agents.stuck")), " ", agent.stuck.what),
    agent.interrupts > 0 && chip("status-blocked", t("agents.interrupts", { n: agent.interrupts })),
    agent.paused && h("div", { class: "waits" }, t("agents.paused"), agent.pause_reason && [": ", h("bdi", null, visible(agent.pause_reason))], " ",
      h("button", { type: "button", "data-mark": "resume", onclick: () => resume(agent.id) }, t("agents.resume"))),
    waiting(agent.notifications),
    agent.wait && h("div", { class: "waits" }, t("agents.waits", { agent: agent.wait.admin_id }), " ", age(agent.wait.since), " ",
      h("button", { type: "button", "data-mark": "release", onclick: () => release(agent.id) }, t("agents.release"))),
  ].filter(Boolean);
}

// What the agent has not read yet, and how far it got: the notifications that got equally far are one row.
function waiting(notifications) {
  if (!notifications.length) return null;
  const rows = Map.groupBy(notifications, ({ state, reason }) => `${state} ${reason}`);
  return h("ul", { class: "notices" }, [...rows.values()].map((notices) => h("li", null,
    chip(`state-${notices[0].state}`, t(`state.${notices[0].state}`)),
    notices.map((notice) => [" ", h("span", { class: "notice" }, h("bdi", null, word("action", notice.action ?? notice.type)),
      notice.sender_id && h("small", { class: "hint" }, " ← ", h("bdi", null, visible(notice.sender_id))))]),
    notices[0].reason && h("small", { class: "hint why", title: visible(notices[0].reason) }, why(notices[0].reason)))));
}

export function acts(agent) {
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


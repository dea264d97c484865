// The parts of an agent's page, in their order. A new part is one more entry: `show(agent)` fetches and returns its nodes
// (none: the part is not shown) when one of the topics has changed; `agent.part.NAME` is its heading; `all(agent)` is
// where everything of the kind is listed; a `wide` part takes the width of the page.

import { settledOrOpen } from "./asked.js";
import { age, api, chip, face, facts, h, handoff, prose, query, statusChip, t, visible, who, withLocalTimes } from "./core.js";
import { screenOf } from "./pane.js";

const SHOWN = 8;
const LINES = 14;
const NAMED = 6; // of many agents

export const PARTS = [
  { name: "tasks", topics: ["tasks"], show: tasks, all: (agent) => `/${query({ assignee: agent })}` },
  { name: "mail", topics: ["messages"], show: mail, all: (agent) => `/messages#box=inbox&whose=${agent}` },
  { name: "questions", topics: ["questions"], show: questions },
  { name: "conversations", topics: ["conversations"], show: conversations, all: (agent) => `/conversations${query({ agent })}` },
  { name: "handoffs", topics: ["executions", "tasks"], show: handoffs },
  { name: "log", topics: ["executions"], show: log, all: (agent) => `/executions${query({ agent })}` },
  { name: "files", topics: ["files", "tasks"], show: files },
  { name: "screen", topics: ["agents"], show: screen, wide: true },
];

// What it holds, in full; then what waits for it; then how many are over.
async function tasks(agent) {
  const { columns } = await api(`/tasks${query({ assignee: agent, limit: SHOWN })}`);
  const of = (status) => columns.find((column) => column.status === status);
  const inHand = await Promise.all(of("in_progress").tasks.map((task) => api(`/tasks/${task.task_id}`)));
  const rest = columns.filter(({ status }) => !["in_progress", "done", "cancelled"].includes(status));
  const over = ["done", "cancelled"].map(of).filter(({ total }) => total > 0);
  return [
    ...inHand.map(({ task }) => whole(task)),
    rest.some(({ tasks }) => tasks.length) && h("ul", { class: "links" }, rest.flatMap(({ tasks: waiting }) => waiting.map((task) => h("li", null, statusChip(task.status), " ", named(task), " ", age(task.status_changed_at),
      task.blocked_reason && h("p", { class: "reason" }, h("bdi", null, visible(task.blocked_reason))))))),
    over.length > 0 && h("p", { class: "hint marks" }, over.map(({ status, total }) => [statusChip(status), ` ${total}`])),
  ];
}

const named = (task) => h("a", { href: `/#${task.task_id}` }, h("bdi", null, visible(task.title)));

function whole(task) {
  return h("article", { class: "in-hand" },
    h("p", { class: "marks" }, statusChip(task.status), h("b", null, named(task)), h("small", { class: "hint" }, `${task.progress}%`), age(task.status_changed_at)),
    h("div", { class: "progress", vars: { "--value": `${task.progress}%` } }),
    task.description.length > 0 && h("details", null, h("summary", null, t("board.description")), prose(task.description)),
    task.checklist_items.length > 0 && h("ul", { class: "checklist" }, task.checklist_items.map((item) => h("li", { class: item.completed ? "completed" : "" },
      h("input", { type: "checkbox", disabled: true, checked: item.completed, "aria-label": visible(item.text) }), h("bdi", null, visible(item.text))))));
}

// The newest of what it got and sent.
async function mail(agent) {
  const boxes = await Promise.all(["inbox", "sent"].map((box) => api(`/messages${query({ box, agent, limit: SHOWN })}`)));
  const newest = boxes.flatMap(({ messages }) => messages).sort((one, other) => other.created_at.localeCompare(one.created_at)).slice(0, SHOWN);
  return newest.length ? [h("ol", { class: "thread" }, newest.map((message) => letter(message, agent)))] : [];
}

const letter = (message, agent) => h("li", null, h("a", { href: `/messages#${new URLSearchParams({ box: "all", id: message.id })}` },
  h("span", { class: "hint" }, message.receiver_id === agent ? "←" : "→"), face(message.receiver_id === agent ? message.sender_id : message.receiver_id),
  h("bdi", { class: "grow" }, visible(message.subject || message.preview) || t("messages.no_subject")),
  chip(`state-${message.state}`, t(`state.${message.state}`)), age(message.created_at)));

// What it asked and was asked, open ones first.
async function questions(agent) {
  if (!facts.features.includes("questions")) return [];
  const both = await Promise.all(["from", "to"].map((side) => api(`/questions${query({ [side]: agent, limit: SHOWN })}`)));
  const found = both.flatMap(({ questions: some }) => some).sort((one, other) => (one.status !== "open") - (other.status !== "open")).slice(0, SHOWN);
  return found.length ? [h("ol", { class: "talk" }, found.map((one) => h("li", { class: one.asker_id === agent ? "one" : "other" },
    h("div", { class: "by" }, who(one.asker_id), " → ", who(one.to_id), age(one.created_at)), settledOrOpen(one))))] : [];
}

async function conversations(agent) {
  const { conversations: found } = await api(`/conversations${query({ agent, limit: SHOWN })}`);
  return found.length ? [h("ul", { class: "thread" }, found.map((item) => h("li", null, h("a", { href: `/conversations#${item.conversation_id}` },
    face(item.initiator_id === agent ? item.target_agent_id : item.initiator_id),
    h("bdi", { class: "grow" }, visible(item.purpose ?? "") || t("conversations.no_purpose")),
    chip(`conversation-${item.status}`, t(`conversations.${item.status}`)), age(item.started_at)))))] : [];
}

// What it left for whoever goes on, itself above all.
async function handoffs(agent) {
  if (facts.removed) return [];
  const { handoffs: kept } = await api(`/agents/${agent}`);
  return kept.map(handoff);
}

// The end of the log of what it does, or did last.
async function log(agent) {
  const { executions } = await api(`/executions${query({ agent, limit: 1 })}`);
  if (!executions.length) return [];
  const [newest] = executions;
  const { lines } = await api(`/executions/${newest.execution_id}/log`);
  return [
    h("p", { class: "marks" }, chip(`execution-${newest.status}`, t(`executions.${newest.status}`)),
      h("a", { href: `/executions#${newest.execution_id}` }, h("bdi", null, visible(newest.task_title) || newest.task_id)), age(newest.started_at)),
    lines.length > 0 && h("pre", { class: "log", tabindex: "0" }, lines.slice(-LINES).map((line) => `${withLocalTimes(line)}\n`)),
  ];
}

const someOf = (agents) => [agents.slice(0, NAMED).join(", "), agents.length > NAMED && t("files.more", { n: agents.length - NAMED })].filter(Boolean).join(" ");

// What it edits, with the others who edit the same; what it has reserved; its worktree.
async function files(agent) {
  if (facts.removed) return [];
  const { edits = [], reservations = [], workspace = null } = await api(`/agents/${agent}/files`);
  return [
    edits.length > 0 && h("ul", { class: "links" }, edits.slice(0, SHOWN).map((edit) => h("li", null, h("bdi", null, visible(edit.path)), " ",
      edit.others.length > 0 && chip("pending", t("agent.files.others", { agents: someOf(edit.others) })), " ", age(edit.at)))),
    reservations.length > 0 && h("p", null, t("agent.files.reserved"), " ", reservations.map((one) => h("bdi", null, visible(one.patterns.join(", ")), " "))),
    workspace && h("p", null, t("agent.files.workspace", { branch: workspace.branch, ahead: workspace.ahead, dirty: workspace.dirty.length }), " ", h("code", null, visible(workspace.path))),
  ].filter(Boolean);
}

const screens = new Map(); // one for each agent, which follows its pane by itself

async function screen(agent) {
  if (facts.removed) return [];
  const { agent: known } = await api(`/agents/${agent}`);
  if (!known.pane_id && !known.elsewhere) return [];
  if (!screens.has(agent)) screens.set(agent, screenOf(agent));
  return [screens.get(agent)];
}

// What a person does with tasks: create, move, hand over, decide, stop; a move can be taken back.

import { api, attempt, facts, isAway, t, toast, told, visible } from "./core.js";
import { ask } from "./dialogs.js";
import { lookAgain } from "./live.js";
import { forgetRemarks, remarksOn } from "./review.js";

const UNDO = 12; // seconds
const titleOf = (task) => visible(task.title);
const reasonField = () => ({ name: "reason", label: t("board.reason"), kind: "long", rows: 3, hint: t("board.reason_hint") });

// Decides on a request or a review, and says what became of it. A rejection takes the remarks on lines along.
export async function decide(task, approve) {
  const remarks = remarksOn(task.task_id);
  const act = async (given) => {
    const { task: now } = await api(`/tasks/${task.task_id}/decision`, { approve, reason: given.reason || null, remarks: approve ? [] : remarks, state: task.head ?? null });
    if (!approve) forgetRemarks(task.task_id);
    tellOfDecision(now, approve);
    await lookAgain(["tasks"]);
  };
  const note = remarks.length ? t("review.go_along", { n: remarks.length }) : null;
  if (approve) await attempt(() => act({}));
  else await ask(t("board.why_rejected"), [reasonField()], t("board.reject"), act, note);
}

function tellOfDecision(task, approve) {
  const words = { title: titleOf(task), agent: task.assignee_id ?? t("nobody") };
  if (!approve) toast(t(task.status === "in_progress" ? "review.given_back" : "review.rejected", words));
  else if (task.status === "review") toast(t(task.rechecks ? "review.rechecks" : "review.waits_for_others", words));
  else toast(t(task.status === "done" ? "review.done" : "review.approved", words));
}

// Merges what a task delivered, and says what became of it.
export async function merge(task) {
  await attempt(async () => {
    const came = await api(`/tasks/${task.task_id}/merge`, {});
    const words = { title: titleOf(task), agent: came.agent_id, commit: came.commit?.slice(0, 10), files: visible(came.conflicts.join(", ")) };
    toast(t(came.merged ? (came.was_there ? "review.was_merged" : "review.merged") : "review.conflicts", words), came.merged ? "good" : "bad");
    await lookAgain(["tasks", "files"]);
  });
}

export async function move(task, status) {
  const stops = (status === "blocked" || status === "cancelled");
  const note = stops && task.assignee_id && task.assignee_id !== facts.me ? t(isAway(task.assignee_id) ? "board.will_interrupt_away" : "board.will_interrupt", { agent: task.assignee_id }) : null;
  const returns = task.status === "review" && status === "in_progress";
  const act = async (given) => {
    const answer = await api(`/tasks/${task.task_id}/status`, { status, reason: given.reason || null });
    tellOfMove(task, answer);
    await lookAgain(["tasks"]);
    document.querySelector(`[data-task="${task.task_id}"]`)?.focus();
  };
  if (returns) await ask(t("board.why_rejected"), [reasonField()], t("board.reject"), act);
  else if (stops) await ask(t(`board.why_${status}`), [reasonField()], t(`status.${status}`), act, note);
  else await attempt(() => act({}));
}

// Says what was done and offers to take it back, where the task may go back.
function tellOfMove(task, answer) {
  const { status } = answer.task; // a task that is to be checked may be in review instead of done
  const was = answer.previous_status;
  const words = { title: titleOf(task), from: t(`status.${was}`), to: t(`status.${status}`), agent: answer.interrupted };
  const later = isAway(answer.interrupted) ? "board.moved_interrupt_away" : "board.moved_interrupt";
  const goesBack = was !== status && was in answer.task.targets && !answer.task.targets[was];
  const undo = goesBack && { text: t("undo"), act: () => attempt(async () => {
    await api(`/tasks/${task.task_id}/status`, { status: was });
    toast(t("board.moved", { ...words, from: words.to, to: words.from }));
    await lookAgain(["tasks"]);
    document.querySelector(`[data-task="${task.task_id}"]`)?.focus();
  }) };
  toast(t(answer.interrupted ? later : "board.moved", words), "good", undo, UNDO);
}

async function pause(task) {
  const act = async (given) => {
    told(await api(`/agents/${task.assignee_id}/interrupt`, { action: "pause", task_id: task.task_id, reason: given.reason || null }), "board.paused", task.assignee_id);
  };
  await ask(t("board.why_paused", { agent: task.assignee_id }), [reasonField()], t("board.pause"), act);
}

export async function resume(agent) {
  await attempt(async () => {
    told(await api(`/agents/${agent}/resume`, {}), "agents.resumed", agent);
  });
}

export async function release(agent) {
  await attempt(async () => {
    await api(`/agents/${agent}/release`, {});
    toast(t("agents.released", { agent }));
  });
}

// Ends a command that has a lease, or waits for one, by its process.
export async function endLease(pid) {
  await attempt(async () => {
    const { ended } = await api(`/leases/${pid}/end`, {});
    toast(t("leases.ended", { name: visible(ended.name) }));
    await lookAgain(["leases", "agents"]);
  });
}

const assigneeField = (value = "") => ({ name: "assignee_id", label: t("board.assignee"), kind: "agent", value, empty: t("board.unassigned") });

async function assign(task) {
  await ask(titleOf(task), [assigneeField(task.assignee_id ?? "")], t("board.assignee"), async (given) => {
    await api(`/tasks/${task.task_id}/assignee`, { assignee_id: given.assignee_id || null });
    toast(t("board.assigned", { title: titleOf(task), agent: given.assignee_id || t("nobody") }));
  });
}

export function moves(task) {
  return Object.entries(task.targets).map(([status, why]) => ({
    text: t(`status.${status}`), why, kind: `status-${status}`, act: () => move(task, status),
  }));
}

const isMergeable = ({ status, delivery }) => status === "done" && delivery?.commit && !delivery.merged && delivery.ahead !== 0 && facts.features.includes("worktrees");

export function otherActs(task) {
  const stoppable = task.status === "in_progress" && task.assignee_id && task.assignee_id !== facts.me;
  return [
    ...(isMergeable(task) ? [{ text: t("review.merge"), kind: "good", act: () => merge(task) }] : []),
    ...(stoppable ? [{ text: t("board.pause"), act: () => pause(task) }] : []),
    ...(task.paused ? [{ text: t("board.resume"), act: () => resume(task.assignee_id) }] : []),
    ...(["done", "cancelled"].includes(task.status) ? [] : [{ text: `${t("board.assignee")}…`, act: () => assign(task) }]),
  ];
}

export async function create() {
  const fields = [
    { name: "title", label: t("board.title"), required: true, most: 500 },
    { name: "description", label: t("board.description"), kind: "long", rows: 6 },
    assigneeField(),
    ...(facts.features.includes("proof") ? [{ name: "done_when", label: t("board.done_when"), hint: t("board.done_when_hint") }] : []),
    { name: "priority", label: t("board.priority"), kind: "choice", options: facts.priorities.map((name) => [name, t(`priority.${name}`)]), value: "medium" },
  ];
  await ask(t("board.new"), fields, t("board.create"), async (given) => {
    await api("/tasks", { ...given, assignee_id: given.assignee_id || null });
    toast(t("board.created_task", { title: visible(given.title) }));
  });
}

// Executions and their logs, followed while they run.

import { age, agentLink, api, at, chip, face, h, query, t, took, visible, withLocalTimes } from "./core.js";
import { chosen, filters } from "./filters.js";
import { counted, keyed } from "./lists.js";
import { watch } from "./live.js";
import { choosing, row } from "./split.js";

const PAGE = 50;
const list = document.getElementById("executions");
const more = document.getElementById("more");
let wanted = PAGE;
let followed = { id: null };

async function look() {
  const answer = await counted("/executions", "executions", wanted, chosen(["agent"]));
  keyed(list, answer.executions, (item) => item.execution_id, (item) => row(item.execution_id, `#${item.execution_id}`, item.status === "running",
    face(item.agent_id),
    h("span", { class: "first" }, h("bdi", null, item.agent_id), chip(`execution-${item.status}`, t(`executions.${item.status}`))),
    age(item.started_at),
    h("span", { class: "second" }, h("bdi", null, visible(item.task_title ?? item.task_id)), lasted(item))));
  list.setAttribute("aria-busy", "false");
  if (!answer.executions.length) list.replaceChildren(h("li", { class: "empty" }, t("empty")));
  more.hidden = answer.executions.length >= answer.total;
  choice.mark();
}

// Lines are only appended, so that a selection in the log survives.
async function show(id) {
  const known = followed.id === id ? followed : { id, next: null, log: h("pre", { class: "log", tabindex: "0" }), head: h("div") };
  const answer = await api(`/executions/${id}/log${query({ offset: known.next ?? beginning() })}`);
  followed = known;
  const { execution, lines, total } = answer;
  const { log } = known;
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  for (const line of lines) log.append(h("span", { class: tone(line) }, `${withLocalTimes(line)}\n`));
  known.next = answer.next_offset;
  known.head.replaceChildren(
    h("h2", null, h("a", { href: `/#${execution.task_id}` }, h("bdi", null, visible(execution.task_title ?? execution.task_id)))),
    h("p", { class: "between" }, agentLink(execution.agent_id), " ", chip(`execution-${execution.status}`, t(`executions.${execution.status}`)), " ",
      h("span", { class: "hint" }, at(execution.started_at), lasted(execution))),
    execution.error_message ? h("p", { class: "reason" }, visible(execution.error_message)) : "");
  if (atEnd) requestAnimationFrame(() => { log.scrollTop = log.scrollHeight; });
  if (known.next < total) choice.look();
  return [known.head, log];
}

// Of a line that was searched for, some lines before it; without one the last lines.
function beginning() {
  const line = Number(new URLSearchParams(location.hash.slice(1)).get("line"));
  return line ? Math.max(line - 20, 0) : null;
}

const lasted = (execution) => (execution.duration_seconds === null ? "" : ` · ${took(execution.duration_seconds)}`);
const tone = (line) => (/interrupt/.test(line) ? "stop" : /error|failed/i.test(line) ? "bad" : "");

filters(document.getElementById("filters"), { agent: ["agent", t("executions.everybody")] }, () => again());
more.addEventListener("click", () => { wanted += 100; again(); });
const choice = choosing(["executions"], show);
const again = watch(["executions"], look);

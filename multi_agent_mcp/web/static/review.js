// What a task changes: its files, folded, protected ones first; and what a reviewer remarks on their lines, until it is
// sent with the rejection. All of it was written by an agent: it is only ever set as text.

import { api, attempt, chip, copying, h, icon, query, t, toast, visible, word } from "./core.js";

const known = new Map(); // task → {state, element}: an open file and a remark that is being written stay as they are
const drafts = new Map(); // task → Map of `path:line` → text

// The remarks on a task's lines, as `file:line: text`.
export const remarksOn = (taskId) => [...(drafts.get(taskId) ?? new Map())].filter(([, text]) => text.trim()).map(([place, text]) => `${place}: ${text.trim().replaceAll(/\s*\n\s*/g, " ")}`);

export const forgetRemarks = (taskId) => { drafts.delete(taskId); known.delete(taskId); };

// The element with a task's changes; `told` is called when the number of remarks changes.
export function changesOf(task, told) {
  const state = JSON.stringify([task.head, task.status, task.delivery?.at, task.delivery?.commit]);
  const before = known.get(task.task_id);
  if (before?.state === state) return Object.assign(before, { told }).element;
  const one = { state, told, element: h("div", { class: "changes", "aria-busy": "true" }) };
  known.set(task.task_id, one);
  fill(task, one);
  return one.element;
}

async function fill(task, one) {
  try {
    const { diff, why } = await api(`/tasks/${task.task_id}/diff`);
    if (!diff && task.status !== "review") one.element.classList.add("unknown");
    if (!diff) throw new Error(why);
    one.element.replaceChildren(...summary(diff), ...diff.files.map((file) => fileOf(task, file, one)),
      diff.total > diff.files.length ? h("p", { class: "hint" }, t("review.more", { n: diff.total - diff.files.length }), " ", copying(`multi-agent-mcp task diff ${task.task_id}`)) : "");
  } catch (error) {
    one.element.replaceChildren(h("p", { class: "hint" }, visible(error.message)));
  }
  one.element.setAttribute("aria-busy", "false");
}

function summary(diff) {
  const sum = (name) => diff.files.reduce((total, file) => total + (file[name] ?? 0), 0);
  return [h("p", { class: "marks" }, h("b", null, t("review.files", { n: diff.total })), counts({ added: sum("added"), removed: sum("removed") }),
    h("code", null, `${diff.base.slice(0, 10)}…${diff.commit?.slice(0, 10) ?? ""}`), !diff.at && chip("pending", t("review.unreported")),
    !diff.at && diff.uncommitted > 0 && chip("pending", t("board.uncommitted", { count: diff.uncommitted }))),
  diff.earlier > 0 ? h("p", { class: "hint" }, t("review.earlier", { n: diff.earlier })) : ""];
}

const counts = ({ added, removed }) => h("span", { class: "counts" }, h("ins", null, `+${added}`), " ", h("del", null, `−${removed}`));

function fileOf(task, file, one) {
  const isText = file.added !== null;
  const lines = h("div", { class: "lines", dir: "ltr" });
  const path = file.old_path ? `${file.old_path} → ${file.path}` : file.path;
  const details = h("details", { class: `file kind-${file.status}` },
    h("summary", null, icon("unfold"), h("b", { class: "letter", title: t(`review.kind.${file.status}`) }, file.status), h("bdi", { class: "path" }, visible(path)),
      file.protected && chip("pending", t("review.protected")), modes(file), file.cut && chip("pending", t("review.file_cut")), file.submodule && chip("kind", t("review.submodule")), !isText && !file.submodule && chip("kind", t("review.binary")),
      h("span", { class: "grow" }), isText && counts(file)), lines);
  details.addEventListener("toggle", () => {
    if (details.open && !lines.firstChild) attempt(async () => show(task, file, one, lines, await api(`/tasks/${task.task_id}/diff${query({ file: file.path })}`)));
  });
  return details;
}

// What kind of file it was and is, if that has changed, or if a new one is no plain file.
function modes({ old_mode: was, mode: now }) {
  const [before, after] = [was, now].map((mode) => mode && word("review.mode", mode));
  if (before && after) return before !== after && chip("pending", `${before} → ${after}`);
  return after && !["100644", "160000"].includes(now) && chip("pending", after);
}

const SAID = /^(?:diff --git |index |--- |\+\+\+ )/; // what the summary above has said already
const UNDO = 12; // seconds
const PIECE = 500; // lines that are shown at once: each is several nodes
const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/;

function show(task, file, one, element, { text, cut }) {
  const lines = text.replace(/\n$/, "").split("\n");
  const rows = rowsOf(task, file, one, lines);
  const more = h("button", { type: "button", class: "ghost more", "data-mark": "more" });
  let left = lines.length;
  const next = () => {
    const piece = [];
    while (piece.length < PIECE && left-- > 0) piece.push(rows.next().value);
    const focused = more === document.activeElement;
    more.before(...piece);
    if (left > 0) more.textContent = t("review.more_lines", { n: Math.min(left, PIECE), left: left.toLocaleString() });
    else more.remove();
    if (left <= 0 && focused) piece.map((row) => row && row.querySelector("button")).find(Boolean)?.focus();
  };
  more.addEventListener("click", next);
  element.replaceChildren(more);
  next();
  if (file.cut) element.append(h("p", { class: "hint cut" }, t("review.cut_kept")));
  else if (cut) element.append(h("p", { class: "hint cut" }, t("review.cut"), " ", copying(`multi-agent-mcp task diff ${task.task_id}`)));
}

// The row of each line, one after the other as they are wanted.
function* rowsOf(task, file, one, lines) {
  let number = null; // of the line in the file as it is now; null before the first hunk
  for (const line of lines) {
    const hunk = HUNK.exec(line);
    if (line.startsWith("diff --git ")) number = null;
    const at = hunk ? Number(hunk[2]) : number;
    const kind = { "+": "added", "-": "removed", "\\": "about" }[line[0]] ?? "same";
    if (number === null && SAID.test(line)) yield "";
    else if (hunk || number === null || kind === "about") yield h("div", { class: `row ${hunk ? "hunk" : "about"}` }, h("span"), h("code", null, shown(line)));
    else yield rowOf(task, file, one, kind, at, line);
    number = at !== null && !hunk && (kind === "added" || kind === "same") ? at + 1 : at;
  }
}

const shown = (line) => visible(line.replace(/\r$/, "␍"));

function rowOf(task, file, one, kind, at, line) {
  const place = `${file.path}:${at}`;
  const button = h("button", { type: "button", class: "ghost number", "aria-label": t("review.remark_on", { place: visible(place) }), title: t("review.remark_on", { place: visible(place) }) }, kind === "removed" ? "−" : String(at));
  const row = h("div", { class: `row ${kind}` }, button, h("code", null, shown(line)));
  button.addEventListener("click", () => {
    if (row.nextElementSibling?.matches(".remark")) row.nextElementSibling.querySelector("textarea").focus();
    else remark(task, one, place, row);
  });
  if (drafts.get(task.task_id)?.has(place) && kind !== "removed") queueMicrotask(() => remark(task, one, place, row));
  return row;
}

function remark(task, one, place, row) {
  const all = drafts.get(task.task_id) ?? drafts.set(task.task_id, new Map()).get(task.task_id);
  const words = h("textarea", { rows: 2, maxlength: 2000, "aria-label": t("review.remark_on", { place: visible(place) }), placeholder: t("review.remark") });
  words.value = all.get(place) ?? "";
  const note = () => { all.set(place, words.value); one.told(); };
  words.addEventListener("input", note);
  const drop = () => {
    const text = words.value;
    all.delete(place);
    box.remove();
    one.told();
    row.querySelector("button").focus();
    if (text.trim()) toast(t("review.dropped", { place: visible(place) }), "good", { text: t("undo"), act: () => { all.set(place, text); one.told(); if (row.isConnected) remark(task, one, place, row); } }, UNDO);
  };
  const box = h("div", { class: "remark" }, h("button", { type: "button", class: "ghost square", "aria-label": t("review.drop"), title: t("review.drop"), onclick: drop }, icon("close")), words); // before the box, so that Tab from it does not lead there
  row.after(box);
  words.focus();
  note();
}

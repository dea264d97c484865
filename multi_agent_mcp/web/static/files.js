// The team's files: who edits what, what is reserved, the worktrees with what is to be merged.

import { age, agentLink, api, at, attempt, chip, facts, h, query, statusChip, t, toast, visible } from "./core.js";
import { chosen, filters } from "./filters.js";
import { keyed } from "./lists.js";
import { lookAgain, watch } from "./live.js";
import { merge } from "./task_acts.js";

const SHOWN = 100;
const ROWS = 20; // of a table, until all are asked for
const EDITORS = 12; // of a file that are named
const PAUSE = 5000; // milliseconds between two looks at the worktrees, each of which asks git about every one
const place = document.getElementById("files");
const words = () => chosen(["words"]).words ?? "";
const isMergesOnly = () => chosen(["show"]).show === "merge";

// A table that is there while it has rows; returns what fills it.
function table(kind, title, head, keyOf, row) {
  const note = h("p", { class: "hint", hidden: true });
  const body = h("tbody");
  let isWhole = false;
  let draw = () => {};
  const more = h("button", { type: "button", class: "ghost more", onclick: () => { isWhole = true; draw(); } }, t("more"));
  const titles = head.map(([text]) => text);
  const section = h("section", { hidden: true }, h("h2", null, title), note, h("div", { class: "scroll" }, h("table", { class: `plain files ${kind}` },
    h("thead", null, h("tr", null, head.map(([text, hint]) => h("th", { scope: "col", title: hint }, text)))), body)), more);
  place.append(section);
  return (items, said = "") => {
    section.hidden = !items.length;
    note.hidden = !said;
    note.textContent = said;
    draw = () => {
      more.hidden = isWhole || items.length <= ROWS;
      keyed(body, more.hidden ? items : items.slice(0, ROWS), keyOf, (item) => h("tr", null, row(item).map((cell, index) => h("td", { "data-title": titles[index] }, cell))));
    };
    draw();
    empty.hidden = [...place.querySelectorAll("section")].some((one) => !one.hidden);
    empty.textContent = t(words() || isMergesOnly() ? "files.not_found" : "files.nothing");
    place.setAttribute("aria-busy", "false");
  };
}

const path = (name) => h("bdi", { class: "path" }, visible(name));
const task = (id, title) => h("a", { href: `/#${id}` }, h("bdi", null, visible(title)));

const empty = h("p", { class: "empty", hidden: true });
place.append(empty);

const looks = [];

if (facts.features.includes("reservations")) {
  const edited = table("edited", t("files.edited"), [[t("files.path")], [t("files.by")], [t("files.at")]], (file) => `${file.path} ${file.at}`, (file) => [
    h("div", { class: "marks" }, path(file.path), file.shared_by.length > 0 && chip("pending", t("files.several"))),
    h("div", { class: "marks" }, file.edited_by.slice(0, EDITORS).map((one) => h("span", { class: file.shared_by.includes(one.agent_id) ? "at-work" : "" }, agentLink(one.agent_id))),
      file.edited_by.length > EDITORS && h("small", { class: "hint", title: file.edited_by.slice(EDITORS).map((one) => one.agent_id).join(", ") }, t("files.more", { n: file.edited_by.length - EDITORS }))),
    age(file.at)]);
  const reserved = table("reserved", t("files.reservations"), [[t("files.patterns")], [t("files.holder")], [t("files.until")], [t("files.reason")], [""]], (one) => one.reservation_id, (one) => [
    one.patterns.map((pattern) => h("div", null, path(pattern))), agentLink(one.agent_id),
    one.expires_at ? h("time", { datetime: one.expires_at }, at(one.expires_at)) : t("files.lasting"),
    h("bdi", null, visible(one.reason)),
    facts.acts && h("button", { type: "button", class: "ghost", "data-mark": "release", onclick: () => release(one) }, t("files.release"))]);
  looks.push(watch(["files", "tasks"], async () => {
    const found = isMergesOnly() ? { files: [], total: 0, reservations: [] } : await api(`/files${query({ words: words(), limit: SHOWN })}`);
    edited(found.files, found.total > found.files.length ? t("files.edited_of", { n: found.files.length, total: found.total }) : "");
    reserved(found.reservations);
  }));
}

const release = (one) => attempt(async () => {
  await api(`/reservations/${one.reservation_id}/release`, {});
  toast(t("files.released", { patterns: one.patterns.join(", ") }));
  await lookAgain(["files"]);
});

if (facts.features.includes("worktrees")) {
  let all = [];
  let looked = 0;
  let later = null;
  const worktrees = table("worktrees", t("files.worktrees"), [[t("files.agent")], [t("files.branch")], [t("files.ahead"), t("files.ahead_hint")], [t("files.behind"), t("files.behind_hint")], [t("files.dirty")], [t("files.delivered")]], (one) => one.agent_id, (one) => [
    agentLink(one.agent_id), h("bdi", { class: "path", title: visible(one.path) }, visible(one.branch)),
    ...(one.problem ? [h("span", { class: "reason" }, visible(one.problem)), "", ""] : [number(one.ahead), number(one.behind), number(one.dirty.length, one.dirty.join("\n"))]),
    [h("ul", { class: "links" }, one.delivered.map(delivered)), one.merged > 0 && h("small", { class: "hint" }, t("files.merged", { n: one.merged }))]]);
  const draw = () => worktrees(all.filter(fits));
  const delivered = (one) => h("li", { class: "marks" }, statusChip(one.status), task(one.task_id, one.title),
    one.is_ready && facts.acts && h("button", { type: "button", class: "good", "data-mark": `merge-${one.task_id}`, onclick: async () => { looked = 0; await merge(one); } }, t("review.merge")));
  const look = watch(["files", "tasks"], async () => {
    clearTimeout(later);
    const rest = looked + PAUSE - Date.now();
    if (rest > 0) { later = setTimeout(look, rest); return; }
    looked = Date.now();
    all = (await api("/worktrees")).worktrees;
    draw();
  });
  looks.push(draw);
  addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") look(); }); // git tells nobody
}

const number = (value, names = "") => h("span", { class: value ? "" : "none", title: visible(names) || undefined }, value || "–");

function fits(one) {
  if (isMergesOnly() && !one.delivered.some(({ is_ready }) => is_ready)) return false;
  const said = [one.agent_id, one.branch, one.path, ...one.dirty, ...one.delivered.map(({ title }) => title)].join(" ").toLowerCase();
  return words().toLowerCase().split(/\s+/).every((word) => said.includes(word));
}

const shows = facts.features.includes("worktrees") ? { show: ["choice", t("files.show"), [["merge", t("files.show.merge")]]] } : {};
filters(document.getElementById("filters"), { words: ["words", t("files.words")], ...shows }, () => { for (const look of looks) look(); });

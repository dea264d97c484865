// The command palette (Ctrl+K): every page, agent, task and action by a few letters of its name.

import { markAllRead } from "./attention_list.js";
import { agentPlace, api, face, facts, h, icon, query, statusChip, t, visible } from "./core.js";
import { afterLeaving, dialog } from "./dialogs.js";
import { PAGES } from "./keys.js";
import { create } from "./task_acts.js";
import { whenTeamChanges } from "./team.js";
import { go as ranked } from "./vendor/fuzzysort-4.0.2.js";
import { compose } from "./writing.js";

const PAUSE = 150; // milliseconds of typing before tasks are asked for
const MOST = 10;
const ENOUGH = 0.15;
const TASKS = 6;
const FILES = 4;
let team = [];
whenTeamChanges((now) => { team = now; });

const go = (place) => () => { location.href = place; };
const pages = () => [...Object.values(PAGES), ...(document.querySelector('.rail [href="/machines"]') ? ["machines"] : []), "search"]
  .map((page) => ({ text: t(`page.${page}`), also: page, sign: icon(page), hint: t("palette.page"), act: go(page === "board" ? "/" : `/${page}`) }));
const actions = () => [
  { text: t("board.new"), also: "new task", sign: icon("check"), act: create, closes: true },
  { text: t("messages.write"), also: "write message", sign: icon("messages"), act: () => compose(), closes: true },
  { text: t("messages.read_all"), also: "mark all read", sign: icon("messages"), act: markAllRead, closes: true },
  { text: t("theme"), also: "theme light dark", sign: icon("theme"), act: () => document.getElementById("theme").click(), closes: true },
];

// What has these letters in this order, the best first (fuzzysort's score: 1 is the same word).
const fitting = (items, sought) => ranked(sought.normalize("NFKC"), items, { keys: ["text", "also"], threshold: ENOUGH, limit: MOST }).map(({ obj }) => obj);

// The files that are edited or reserved now, by words of their paths.
async function files(sought) {
  if (!facts.features.includes("reservations")) return [];
  const found = await api(`/files${query({ words: sought, limit: FILES })}`);
  const paths = [...found.files.map(({ path, edited_by }) => [path, edited_by.map(({ agent_id }) => agent_id).join(", ")]),
    ...found.reservations.slice(0, FILES).map(({ patterns, agent_id }) => [patterns.join(", "), agent_id])];
  return paths.map(([path, hint]) => ({ text: visible(path), sign: icon("files"), hint, act: go(`/files${query({ words: sought })}`) }));
}

export function openPalette() {
  if (document.querySelector("dialog[open]")) return;
  let turn = 0;
  let pause = null;
  const list = h("ul", { id: "commands", role: "listbox", "aria-label": t("palette.title") });
  const field = h("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "commands", "aria-label": t("palette.title"), placeholder: t("palette.title"), autocomplete: "off", spellcheck: "false", maxlength: 200 });
  const box = dialog(t("palette.title"), location.href, field, list);
  box.classList.add("palette");

  const take = (item) => {
    if (!item.closes) { item.act(); return; }
    box.addEventListener("close", () => afterLeaving(item.act), { once: true });
    box.close();
  };
  const aim = (option) => {
    for (const one of list.children) one.setAttribute("aria-selected", String(one === option));
    field.setAttribute("aria-activedescendant", option?.id ?? "");
    option?.scrollIntoView({ block: "nearest" });
  };
  const show = (items) => {
    list.replaceChildren(...items.map((item, index) => h("li", { role: "option", id: `command-${index}`, "aria-selected": "false", onclick: () => take(item) },
      item.sign, h("span", { class: "grow" }, h("bdi", null, item.text)), item.hint && h("small", { class: "hint" }, item.hint))));
    [...list.children].forEach((option, index) => { option.command = items[index]; });
    aim(list.firstElementChild);
  };
  const here = (sought) => {
    const agents = team.map(({ id, name, role }) => ({ text: id, also: name ?? "", sign: face(id), hint: t(`role.${role}`), act: go(agentPlace(id)) }));
    const search = { text: t("palette.search", { sought }), sign: icon("search"), act: go(`/search${query({ q: sought })}`) };
    if (!sought) return [...pages(), ...actions()];
    return [...fitting([...agents, ...pages(), ...actions()], sought), search];
  };
  const look = async () => {
    const sought = field.value.trim();
    const mine = ++turn;
    const found = here(sought);
    show(found);
    clearTimeout(pause);
    if (sought.length < 2) return;
    pause = setTimeout(async () => {
      const [{ columns }, paths] = await Promise.all([api(`/tasks${query({ words: sought, limit: TASKS })}`), files(sought)]);
      const tasks = columns.flatMap((column) => column.tasks).slice(0, TASKS).map((task) => ({ text: visible(task.title), sign: statusChip(task.status), hint: task.assignee_id, act: go(`/#${task.task_id}`), closes: facts.page === "board" }));
      if (mine === turn && box.isConnected) show([...found.slice(0, -1), ...tasks, ...paths, found.at(-1)]);
    }, PAUSE);
  };
  field.addEventListener("input", look);
  field.addEventListener("keydown", (event) => {
    const all = [...list.children];
    const now = all.findIndex((one) => one.getAttribute("aria-selected") === "true");
    const act = {
      ArrowDown: () => aim(all[(now + 1) % all.length]),
      ArrowUp: () => aim(all[(now - 1 + all.length) % all.length]),
      Enter: () => all[now] && take(all[now].command),
    }[event.key];
    if (!act || event.isComposing) return;
    event.preventDefault();
    act();
  });
  look();
  field.focus();
}

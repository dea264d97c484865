// The names of the team, and a field in which one of them is chosen by typing a part of it.

import { api, h, t, visible } from "./core.js";
import { watch } from "./live.js";

const names = h("datalist", { id: "team" });
const shows = [];
let team = [];

document.body.append(names);
watch(["agents"], async () => {
  team = (await api("/team")).agents;
  names.replaceChildren(...team.map(({ id, name }) => h("option", { value: id }, name && name !== id ? visible(name) : null)));
  for (const show of shows) show(team);
});

// Calls `show` with every agent's id, name, role and superior, now and after every change.
export function whenTeamChanges(show) {
  shows.push(show);
  if (team.length) show(team);
}

// `others` are words that may stand there in place of an agent; `empty` says what no words mean.
let lists = 0;

// The team's names and these words in a list of their own; returns its id.
function listWith(others) {
  const list = h("datalist", { id: `team-${(lists += 1)}` }, [...names.children, ...others.map((value) => h("option", { value }))].map((option) => option.cloneNode(true)));
  names.after(list);
  return list.id;
}

export function agentField({ name, value = "", label, empty = "", required = false, others = [], chosen = () => {} }) {
  const field = h("input", { type: "text", class: "of-agent", name, value, list: "team", required, placeholder: empty, "aria-label": label, autocomplete: "off", spellcheck: "false", maxlength: 64 });
  const check = () => {
    const given = field.value.trim();
    const known = !given || others.includes(given) || !team.length || team.some(({ id }) => id === given);
    field.setCustomValidity(known ? "" : t("agents.no_such", { agent: given }));
    return known;
  };
  if (others.length) field.setAttribute("list", listWith(others));
  field.addEventListener("focus", () => field.select());
  field.addEventListener("input", () => { if (check()) chosen(field.value.trim()); });
  return field;
}

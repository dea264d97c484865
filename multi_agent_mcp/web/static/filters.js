// What a list shows: words, an agent, a superior, a priority; and by what it is grouped. The address holds it, so that it
// can be linked to and survives a look at something else.

import { h, icon, t, visible } from "./core.js";
import { agentField, whenTeamChanges } from "./team.js";

const PAUSE = 250; // milliseconds of typing before the list follows

// The chosen values, without those that are empty.
export const chosen = (names) => Object.fromEntries([...new URLSearchParams(location.search)].filter(([name, value]) => value && names.includes(name)));

// `fields` maps each name to ["words", label?], ["agent", label, empty], ["superior"] or ["choice", label, [[value, words], …]].
export function filters(place, fields, changed) {
  const names = Object.keys(fields);
  const clear = h("button", { type: "button", class: "ghost", onclick: () => { for (const name of names) controls[name].value = ""; set(Object.fromEntries(names.map((name) => [name, ""]))); } }, icon("close"), t("filter.clear"));
  const unfold = h("button", { type: "button", class: "unfold", "aria-expanded": "false" }, icon("filter"), t("filter.title"));
  const set = (values) => {
    const now = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(values)) {
      if (value) now.set(name, value);
      else now.delete(name);
    }
    history.replaceState(history.state, "", `${location.pathname}${now.size ? `?${now}` : ""}${location.hash}`);
    tell();
    changed();
  };
  const tell = () => {
    const set = chosen(names);
    clear.hidden = !Object.keys(set).length;
    for (const name of names) controls[name].classList.toggle("is-set", name in set);
  };
  const controls = Object.fromEntries(names.map((name) => [name, control(name, fields[name], chosen(names)[name] ?? "", (value) => set({ [name]: value }))]));
  unfold.addEventListener("click", () => unfold.setAttribute("aria-expanded", String(place.classList.toggle("is-unfolded"))));
  place.replaceChildren(...(names.length > 1 ? [unfold] : []), ...Object.values(controls), clear);
  tell();
}

function control(name, [kind, label, given], value, set) {
  if (kind === "words") return words(name, value, set, label ?? t("filter.words"));
  if (kind === "agent") return agentField({ name, value, label, empty: label, chosen: set });
  const select = h("select", { name, "aria-label": label, onchange: () => set(select.value) });
  const fill = (options) => {
    select.replaceChildren(h("option", { value: "" }, label), ...options.map(([key, text]) => h("option", { value: key }, text)));
    select.value = value;
  };
  if (kind === "choice") fill(given);
  else {
    whenTeamChanges((team) => {
      const superiors = new Set(team.map(({ parent_id }) => parent_id));
      value = select.value || value;
      fill(team.filter(({ id }) => superiors.has(id)).map(({ id }) => [id, visible(id)]));
    });
  }
  return select;
}

function words(name, value, set, label) {
  let pause = null;
  const field = h("input", { type: "text", name, value, placeholder: label, "aria-label": label, autocomplete: "off", maxlength: 200 });
  field.addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(() => set(field.value.trim()), PAUSE); });
  return field;
}

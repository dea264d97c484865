// Sheets, forms and menus.

import { h, icon, t, visible } from "./core.js";
import { agentField } from "./team.js";

// A sheet. Back closes it, unless it is called by `address` already: `null` says that the page sees to that itself.
export function dialog(title, address, ...content) {
  const box = h(
    "dialog", { "aria-label": visible(title), class: "sheet" },
    h("header", null, h("h2", null, visible(title)),
      h("button", { class: "ghost square", type: "button", "aria-label": t("close"), onclick: () => box.close() }, icon("close"))),
    h("div", { class: "body" }, ...content),
  );
  box.addEventListener("close", () => { box.remove(); raiseToasts(); });
  // A click outside closes it, except a form: its input would be lost.
  box.addEventListener("click", (event) => event.target === box && !box.querySelector("form") && box.close());
  document.body.append(box);
  box.showModal();
  raiseToasts();
  if (address !== null) enter(box, address);
  return box;
}

// What lies below a sheet can be neither seen nor clicked: what is said stands in the uppermost.
const raiseToasts = () => ([...document.querySelectorAll("dialog[open]")].at(-1) ?? document.body).append(...toasts);
const toasts = document.querySelectorAll("#toasts");

// ---- every sheet has an entry of its own in the window's history

const open = []; // the newest last
let leaving = Promise.resolve(); // until the entry of a sheet that was closed is left

// Acts when the address is that of the page again.
export const afterLeaving = (act) => leaving.then(act);

async function enter(box, address) {
  await leaving;
  if (!box.isConnected) return;
  open.push(box);
  history.pushState({ ...history.state, sheets: open.length }, "", address);
  box.addEventListener("close", () => {
    if (!open.includes(box)) return; // Back has closed it
    open.splice(open.indexOf(box), 1);
    if (!(history.state?.sheets > open.length)) return;
    leaving = new Promise((left) => addEventListener("popstate", left, { once: true }));
    history.back();
  });
}

if (history.state?.sheets) history.replaceState(null, ""); // of the page before it was loaded anew
addEventListener("popstate", () => {
  const entry = history.state?.sheets ?? 0;
  for (const box of open.splice(entry)) box.close();
  if (entry > open.length) history.back(); // its sheet is gone, as after Forward
});

// A small form. fields: [{name, label, kind: "text"|"long"|"choice"|"agent", value, options, hint, required}]. `act(values)` does
// the work; when it fails, the form shows the reason and keeps the input. Resolves to whether it was done.
export function ask(title, fields, submit, act, note) {
  return new Promise((resolve) => {
    let done = false, sending = false; // a second Enter, on a slow machine, asks for nothing more
    const trouble = h("p", { class: "reason", role: "alert", hidden: true });
    const form = h(
      "form", { method: "dialog", class: "form" },
      note && h("p", { class: "note" }, note),
      fields.map((field) => h("label", null, h("span", null, field.label), input(field),
        field.hint && h("small", { class: "hint" }, field.hint))),
      trouble,
      h("footer", null,
        h("button", { class: "ghost", type: "button", onclick: () => box.close() }, t("cancel")),
        h("button", { class: "primary", type: "submit" }, submit)),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (sending) return;
      sending = true;
      try {
        await act(Object.fromEntries(new FormData(form)));
        done = true;
        box.close();
      } catch (error) {
        trouble.textContent = visible(t("failed", { reason: error.message }));
        trouble.hidden = false;
      } finally {
        sending = false;
      }
    });
    const box = dialog(title, location.href, form);
    box.classList.add("small");
    box.addEventListener("close", () => resolve(done));
    form.querySelector("input, textarea, select")?.focus();
  });
}

function input(field) {
  const shared = { name: field.name, required: field.required };
  if (field.kind === "long") return h("textarea", { ...shared, rows: field.rows ?? 4 }, field.value ?? "");
  if (field.kind === "agent") return agentField(field);
  if (field.kind === "choice") {
    const options = field.options.map(([value, text]) => h("option", { value, selected: value === field.value }, text));
    return h("select", shared, options);
  }
  return h("input", { ...shared, type: "text", value: field.value ?? "", maxlength: field.most, autocomplete: "off" });
}

// A menu below a button: [{text, why, act}]; an entry that cannot be chosen shows why.
export function menu(button, items, label) {
  document.querySelector(".menu")?.hidePopover();
  const list = h("div", { class: "menu", role: "menu", popover: "auto", "aria-label": label },
    items.map((item) => h("button", {
      type: "button", role: "menuitem", "aria-disabled": item.why ? "true" : undefined, class: item.kind,
      onclick: () => { if (!item.why) { list.hidePopover(); item.act(); } },
    }, h("span", null, item.text), item.why && h("small", null, visible(item.why)))));
  (button.closest("dialog") ?? document.querySelector("main")).append(list); // what stands outside is found by nobody who goes by landmarks
  const place = button.getBoundingClientRect();
  list.addEventListener("toggle", (event) => {
    if (event.newState === "closed") { list.remove(); if (button.isConnected) button.focus(); }
  });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = [...list.children];
    all[(all.indexOf(document.activeElement) + step + all.length) % all.length].focus();
  });
  list.showPopover();
  const left = Math.min(place.left, innerWidth - list.offsetWidth - 8);
  const top = place.bottom + list.offsetHeight > innerHeight ? place.top - list.offsetHeight - 4 : place.bottom + 4;
  list.style.left = `${Math.max(left, 8)}px`;
  list.style.top = `${Math.max(top, 8)}px`;
  (list.querySelector("[role=menuitem]:not([aria-disabled])") ?? list.firstChild).focus();
}

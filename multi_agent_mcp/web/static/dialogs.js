// Sheets, forms and menus.

import { h, icon, t, visible } from "./core.js";

export function dialog(title, ...content) {
  const box = h(
    "dialog", { "aria-label": visible(title), class: "sheet" },
    h("header", null, h("h2", null, visible(title)),
      h("button", { class: "ghost square", type: "button", "aria-label": t("close"), onclick: () => box.close() }, icon("close"))),
    h("div", { class: "body" }, ...content),
  );
  box.addEventListener("close", () => box.remove());
  // A click outside closes it, except a form: its input would be lost.
  box.addEventListener("click", (event) => event.target === box && !box.querySelector("form") && box.close());
  document.body.append(box);
  box.showModal();
  return box;
}

// A small form. fields: [{name, label, kind: "text"|"long"|"choice", value, options, hint, required}]. `act(values)` does
// the work; when it fails, the form shows the reason and keeps the input. Resolves to whether it was done.
export function ask(title, fields, submit, act, note) {
  return new Promise((resolve) => {
    let done = false;
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
      try {
        await act(Object.fromEntries(new FormData(form)));
        done = true;
        box.close();
      } catch (error) {
        trouble.textContent = visible(t("failed", { reason: error.message }));
        trouble.hidden = false;
      }
    });
    const box = dialog(title, form);
    box.classList.add("small");
    box.addEventListener("close", () => resolve(done));
    form.querySelector("input, textarea, select")?.focus();
  });
}

function input(field) {
  const shared = { name: field.name, required: field.required };
  if (field.kind === "long") return h("textarea", { ...shared, rows: field.rows ?? 4 }, field.value ?? "");
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
  document.body.append(list);
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

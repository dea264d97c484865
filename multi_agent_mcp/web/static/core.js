// What every page shares: words, elements made without markup, the API, live changes, dialogs.

export const facts = JSON.parse(document.getElementById("facts").textContent);

export function t(key, values = {}) {
  const text = facts.texts[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? values[name] : whole));
}

// Characters a person cannot see but a line obeys, as in domain/plain.py: C0, C1, bidirectional controls, zero-width
// ones, tags, halves of a pair.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\u{e0000}-\u{e007f}]/gu;
export const visible = (text) => String(text ?? "").replace(UNSEEN, "\ufffd");

// h("p", {class: "x", onclick: f}, "text", node, …). Text never becomes markup.
export function h(name, properties, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "vars") for (const [name, of] of Object.entries(value)) element.style.setProperty(name, of);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
export function icon(name) {
  const element = document.createElementNS(SVG, "svg");
  element.setAttribute("class", "icon");
  element.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `/static/icons.svg#${name}`);
  element.append(use);
  return element;
}

// The server renders and sanitizes agents' Markdown (markdown.py); nothing else may come in here.
export function prose(shown) {
  const element = h("div", { class: "prose" });
  element.innerHTML = shown.html;
  for (const link of element.querySelectorAll("a")) link.target = "_blank";
  if (!shown.truncated) return element;
  return h("div", null, element, h("p", { class: "hint" }, t("truncated", { shown: 20000, length: shown.length })));
}

export async function api(path, body) {
  const change = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-CSRF-Token": facts.csrf },
    body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await (await fetch(`/api${path}`, change)).json();
  } catch {
    throw new Error(t("unknown_error"));
  }
  if (!answer.success) throw new Error(answer.message);
  return answer;
}

export const query = (values) => {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

// Runs an act of the person; says why not when it fails. Returns whether it worked.
export async function attempt(act) {
  try {
    await act();
    return true;
  } catch (error) {
    toast(t("failed", { reason: error.message }), "bad");
    return false;
  }
}

export function toast(text, kind = "good") {
  const toasts = document.getElementById("toasts");
  const element = h("p", { class: `toast ${kind}` }, visible(text));
  for (const same of [...toasts.children].filter((one) => one.isEqualNode(element))) same.remove(); // said once is enough
  toasts.append(element);
  setTimeout(() => element.remove(), kind === "bad" ? 9000 : 5000);
}

export function announce(text) {
  document.getElementById("announcer").textContent = visible(text);
}

// ---- time

export function seconds(of) {
  return (Date.now() - Date.parse(of)) / 1000;
}

export function ago(of) {
  const past = Math.max(seconds(of), 0);
  if (past < 2) return t("ago.now");
  if (past < 60) return t("ago.seconds", { n: Math.floor(past) });
  if (past < 3600) return t("ago.minutes", { n: Math.floor(past / 60) });
  if (past < 86400) return t("ago.hours", { n: Math.floor(past / 3600) });
  return t("ago.days", { n: Math.floor(past / 86400) });
}

const clock = new Intl.DateTimeFormat(facts.language, { dateStyle: "medium", timeStyle: "medium" });
export const at = (of) => (of ? clock.format(new Date(of)) : "–");

// A <time> whose age is kept up to date.
export function age(of) {
  return of ? h("time", { datetime: of, title: at(of), class: "age" }, ago(of)) : h("span", null, "–");
}
setInterval(() => {
  for (const element of document.querySelectorAll("time.age")) element.textContent = ago(element.dateTime);
}, 5000);

export function took(value) {
  if (value === null || value === undefined) return "–";
  return value < 60 ? t("ago.seconds", { n: value.toFixed(1) }) : t("ago.minutes", { n: (value / 60).toFixed(1) });
}

// ---- agents' faces

// Neighbours in the alphabet are far apart on the colour wheel (the golden angle).
export function hue(id) {
  let sum = 7;
  for (const character of id) sum = (sum * 31 + character.codePointAt(0)) % 100003;
  return Math.round(sum * 137.508) % 360;
}

export function face(id) {
  const letters = id.split(/[-_]/).map((part) => part[0] ?? "").join("").slice(0, 2).toUpperCase();
  return h("span", { class: "face", "aria-hidden": "true", vars: { "--hue": hue(id) } }, letters);
}

export function who(id) {
  if (!id) return h("span", { class: "who nobody" }, t("nobody"));
  return h("span", { class: "who" }, face(id), h("bdi", null, id));
}

export const chip = (kind, text) => h("span", { class: `chip ${kind}` }, text);
export const statusChip = (status) => chip(`status-${status}`, t(`status.${status}`));

// ---- lists that change in place: a node is kept as long as its item says the same

const shownItems = new WeakMap();
export function keyed(parent, items, keyOf, render) {
  const known = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const focusedKey = focused?.closest("[data-key]")?.dataset.key;
  const nodes = items.map((item) => {
    const key = keyOf(item);
    const says = JSON.stringify(item);
    const old = known.get(key);
    if (old && shownItems.get(old) === says) return old;
    const node = render(item);
    node.dataset.key = key;
    shownItems.set(node, says);
    return node;
  });
  settle(parent, nodes);
  if (focused && !focused.isConnected && focusedKey) {
    const again = document.querySelector(`[data-key="${CSS.escape(focusedKey)}"]`);
    (focused.dataset.mark ? marked(again, focused) : again)?.focus();
  }
}

// These nodes and no others. One that stays is not moved: what is selected, scrolled and focused in it stays so.
export function settle(parent, nodes) {
  const staying = new Set(nodes);
  for (const node of [...parent.children]) if (!staying.has(node)) node.remove();
  nodes.forEach((node, index) => {
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] ?? null);
  });
}

// What has taken the place of an element that had the focus: the one with the same mark.
export function marked(parent, { dataset }) {
  return dataset.mark ? parent?.querySelector(`[data-mark="${CSS.escape(dataset.mark)}"]`) : null;
}

// ---- dialogs

export function dialog(title, ...content) {
  const box = h(
    "dialog", { "aria-label": visible(title), class: "sheet" },
    h("header", null, h("h2", null, visible(title)),
      h("button", { class: "ghost square", type: "button", "aria-label": t("close"), onclick: () => box.close() }, icon("close"))),
    h("div", { class: "body" }, ...content),
  );
  box.addEventListener("close", () => box.remove());
  // A click beside it closes it, but never a form: what was typed would be gone.
  box.addEventListener("click", (event) => event.target === box && !box.querySelector("form") && box.close());
  document.body.append(box);
  box.showModal();
  return box;
}

// A small form. fields: [{name, label, kind: "text"|"long"|"choice", value, options, hint, required}]. `act(values)` is
// what it is for: should it fail, the form says why and keeps what was typed. Resolves to whether it was done.
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

// A menu below a button: [{text, why, act}]; what cannot be chosen says why.
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

// ---- live: a page is told which topics changed, and looks at them anew

const listeners = new Map();
const failed = new Set(); // looks to be repeated as soon as the console answers again
const title = document.title;

// Calls `look` now and whenever one of the topics changed; never twice at once, never one too few.
export function watch(topics, look) {
  let running = false;
  let again = false;
  const run = async () => {
    if (running) { again = true; return; }
    running = true;
    do {
      again = false;
      if (await attempt(look)) failed.delete(run);
      else failed.add(run);
    } while (again);
    running = false;
  };
  for (const topic of topics) listeners.set(topic, [...(listeners.get(topic) ?? []), run]);
  run();
  return run;
}

function connect() {
  const sign = document.getElementById("live");
  const source = new EventSource(`/api/events${query({ since: facts.event })}`);
  const say = (state) => { sign.textContent = t(`live.${state}`); sign.dataset.state = state; };
  source.addEventListener("open", () => {
    say("on");
    for (const look of failed) look();
  });
  source.addEventListener("error", () => say(source.readyState === EventSource.CLOSED ? "closed" : "off"));
  source.addEventListener("changed", (event) => {
    const looks = new Set(JSON.parse(event.data).flatMap((topic) => listeners.get(topic) ?? []));
    for (const look of looks) look();
  });
  addEventListener("pagehide", () => source.close());
}

async function frame() {
  const session = await api("/session");
  document.title = session.unread ? `(${session.unread}) ${title}` : title;
  badge("messages", session.unread);
  badge("board", session.requests);
}

export function badge(page, number) {
  const element = document.getElementById(`badge-${page}`);
  element.textContent = number > 99 ? "99+" : number;
  element.hidden = !number;
}

document.getElementById("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
});

watch(["messages", "tasks"], frame);
connect();

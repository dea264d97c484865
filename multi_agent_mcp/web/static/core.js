// Shared by all pages: texts, elements made without markup, the API, times, avatars.

export const facts = JSON.parse(document.getElementById("facts").textContent);

export function t(key, values = {}) {
  const text = (facts.texts[key] ?? key).replace(/\{(\w+):([^{}|]*)\|([^{}]*)\}/g, (_, name, one, many) => (String(values[name]) === "1" ? one : many)); // {n:file|files}
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? values[name] : whole));
}

// Invisible and control characters, the same set as in domain/text.py.
const HIDDEN = new RegExp(`[${facts.hidden.map(([first, last]) => `\\u{${first.toString(16)}}-\\u{${last.toString(16)}}`).join("")}]`, "gu");
export const visible = (text) => String(text ?? "").replace(HIDDEN, "\ufffd");

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

// What somebody left for whoever goes on.
export const handoff = (item) => h("details", { class: "handoff" },
  h("summary", { class: "marks" }, icon("unfold"), who(item.agent_id), item.kind === "derived" && h("small", { class: "hint" }, t("board.handoff_derived")), age(item.created_at)),
  h("pre", { class: "log", tabindex: "0" }, visible(item.content)));

// The server renders and sanitizes agents' Markdown (serializers.py); no other HTML may be inserted.
export function prose(shown) {
  const element = h("div", { class: "prose" });
  element.innerHTML = shown.html;
  for (const link of element.querySelectorAll("a")) link.target = "_blank";
  if (!shown.truncated && !shown.as_written) return element;
  return h("div", null, element,
    shown.as_written && h("p", { class: "hint" }, t("as_written")),
    shown.truncated && h("p", { class: "hint" }, t("truncated", { shown: 20000, length: shown.length })));
}

// The words of a message, its subject if it has no others; null if they were not sent along.
export const said = ({ subject, content }) => content && (content.length ? prose(content) : h("p", { class: "only-subject" }, h("bdi", null, visible(subject) || t("messages.no_words"))));

export async function api(path, body, how = {}) {
  const change = body === undefined ? {} : {
    ...how,
    method: "POST",
    headers: { "Content-Type": "application/json", "X-CSRF-Token": facts.csrf },
    body: JSON.stringify(body),
  };
  let response;
  let answer;
  try {
    response = await fetch(`/api${path}`, change);
    answer = await response.json();
  } catch {
    throw new Error(t("unknown_error"));
  }
  if (!answer.success) throw Object.assign(new Error(answer.message), { final: response.status < 500 });
  return answer;
}

export const query = (values) => {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

// Why a doorbell got no further, in words; a reason without a text (a screen named by the user's own host profile) is
// shown as it is.
export function why(code) {
  const broken = /^failed_(.+)$/s.exec(code);
  if (broken) return t("reason.failed", { error: visible(broken[1]) });
  return `reason.${code}` in facts.texts ? t(`reason.${code}`) : visible(code);
}

// The word for a code that the server sent; the code itself if there is none, as in a file written by hand.
export const word = (kind, code) => facts.texts[`${kind}.${code}`] ?? visible(code);

// Runs an action of the user; shows the reason when it fails. Returns whether nothing would be gained by another try.
export async function attempt(act) {
  try {
    await act();
    return true;
  } catch (error) {
    toast(t("failed", { reason: error.message }), "bad");
    return error.final ?? false;
  }
}

// Says something for some seconds; with `further`, {text, act}, a button for what can be done about it.
export function toast(text, kind = "good", further = null, seconds = kind === "bad" ? 9 : 5) {
  const toasts = document.getElementById("toasts");
  const element = h("p", { class: `toast ${kind}` }, visible(text), further && h("button", { type: "button", "data-mark": "undo", onclick: () => { element.remove(); further.act(); } }, further.text));
  if (!further) for (const same of [...toasts.children].filter((one) => one.isEqualNode(element))) same.remove(); // said once is enough
  toasts.append(element);
  setTimeout(() => element.remove(), seconds * 1000);
}

// What was said to an agent: done, or why it waits here for the machine of that agent.
export function told({ queued }, key, agent) {
  if (queued) toast(t("agents.queued", { agent, reason: why(queued) }), "bad");
  else toast(t(key, { agent }));
}

// A button that copies a command to be run in a terminal.
export function copying(command) {
  const copy = () => attempt(async () => {
    await navigator.clipboard.writeText(command);
    toast(t("attention.copied", { command }));
  });
  return h("button", { type: "button", class: "ghost", title: command, "data-mark": "copy", onclick: copy }, icon("copy"), t("attention.copy"));
}

export function announce(text) {
  document.getElementById("announcer").textContent = visible(text);
}

// ---- time

function seconds(of) {
  return (Date.now() - Date.parse(of)) / 1000;
}

function ago(of) {
  const past = Math.max(seconds(of), 0);
  if (past < 2) return t("ago.now");
  if (past < 60) return t("ago.seconds", { n: Math.floor(past) });
  if (past < 3600) return t("ago.minutes", { n: Math.floor(past / 60) });
  if (past < 86400) return t("ago.hours", { n: Math.floor(past / 3600) });
  return t("ago.days", { n: Math.floor(past / 86400) });
}

// Days are counted by the clock of the team's machine, wherever the reader is; it is named where the reader has another.
export const isZoneForeign = () => facts.days.ahead !== -new Date().getTimezoneOffset();
export const zoneOfDays = () => t("stats.zone", { zone: visible(facts.days.zone) });

const clock = new Intl.DateTimeFormat(facts.language, { dateStyle: "medium", timeStyle: "medium" });
export const at = (of) => (of ? clock.format(new Date(of)) : "–");

// A text of the files with its times by the local clock.
const TIME = /\b\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:\.\d+)?Z| \d\d:\d\d UTC\b)/g;
export const withLocalTimes = (text, said = at) => visible(text).replace(TIME, (time) => said(time.replace(" UTC", "Z").replace(" ", "T")));

// A time as short as it is clear: without its day if that is today.
export const soon = (of) => new Intl.DateTimeFormat(facts.language, { ...(new Date(of).toDateString() === new Date().toDateString() ? {} : { month: "short", day: "numeric" }), hour: "2-digit", minute: "2-digit", hourCycle: "h23" }).format(new Date(of));

// A <time> whose age is kept up to date.
export function age(of) {
  return of ? h("time", { datetime: of, title: at(of), class: "age" }, ago(of)) : h("span", null, "–");
}
setInterval(() => {
  for (const element of document.querySelectorAll("time.age")) element.textContent = ago(element.dateTime);
}, 5000);

// A length of time in seconds, in one unit.
export function took(value) {
  if (value > 0 && value < 1) return t("ago.milliseconds", { n: Math.round(value * 1000) });
  const n = (number) => ({ n: Number(number.toFixed(1)) });
  if (value < 60) return t("ago.seconds", n(value));
  if (value < 3600) return t("ago.minutes", n(value / 60));
  return value < 86400 ? t("ago.hours", n(value / 3600)) : t("ago.days", n(value / 86400));
}

// ---- agents' avatars

// Neighbours in the alphabet are far apart on the colour wheel (the golden angle).
export function hue(id) {
  let sum = 7;
  for (const character of id) sum = (sum * 31 + character.codePointAt(0)) % 100003;
  return Math.round(sum * 137.508) % 360;
}

// The number that tells it from its like (worker-001: 01), else the initials of its name.
export function face(id) {
  const letters = /\d{1,2}$/.exec(id)?.[0] ?? id.split(/[-_]/).map((part) => part[0] ?? "").join("").slice(0, 2).toUpperCase();
  return h("span", { class: "face", "aria-hidden": "true", vars: { "--hue": hue(id) } }, letters);
}

export const agentPlace = (id) => `/agents/${encodeURIComponent(id)}`;

// An agent, by name, with the way to its page.
export const agentLink = (id) => (id ? h("a", { class: "who", href: agentPlace(id) }, face(id), h("bdi", null, id), home(id)) : who(id));

export function who(id) {
  if (!id) return h("span", { class: "who nobody" }, t("nobody"));
  return h("span", { class: "who" }, face(id), h("bdi", null, id), home(id));
}

// Where an agent is at home, while the team has several machines.
export function home(id) {
  return facts.homes?.[id] && labelled(h("small", { class: "home", "data-home": id }));
}

// Whether nothing reaches an agent now, because its machine is away.
export const isAway = (id) => facts.homes?.[id]?.state === "away";

function labelled(element) {
  const { machine, state } = facts.homes[element.dataset.home] ?? {};
  element.textContent = machine ? `@${visible(machine)}` : "";
  element.title = machine ? t(`machines.is.${state}`, { machine: visible(machine) }) : "";
  element.classList.toggle("is-away", state === "away");
  return element;
}

export function placeHomes(homes) {
  facts.homes = homes;
  for (const element of document.querySelectorAll("[data-home]")) labelled(element);
}

export const chip = (kind, text) => h("span", { class: `chip ${kind}` }, text);
export const statusChip = (status) => chip(`status-${status}`, t(`status.${status}`));

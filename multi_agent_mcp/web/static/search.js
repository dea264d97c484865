// What was found of the words in the address: each result opens where it stands.

import { age, api, chip, face, facts, h, icon, query, t, visible } from "./core.js";

const PAGE = 50;
const FILES = 5;
const AGAIN = 300; // milliseconds until the page asks again while the index is made; the console waits for it, too
const words = new URLSearchParams(location.search).get("q") ?? "";
const list = document.getElementById("results");
const more = document.getElementById("more");
const state = document.getElementById("state");
let wanted = PAGE;

const places = {
  message: ({ id }) => `/messages#${new URLSearchParams({ box: "all", id })}`,
  task: ({ id }) => `/#${id}`,
  conversation: ({ id }) => `/conversations#${id}`,
  question: ({ task_id, sender_id }) => (task_id ? `/#${task_id}` : `/agents/${sender_id}`),
  handoff: ({ task_id, sender_id }) => (task_id ? `/#${task_id}` : `/agents/${sender_id}`),
  log: ({ id, line }) => `/executions#${new URLSearchParams({ id, line })}`,
};

async function look() {
  list.setAttribute("aria-busy", "true");
  try {
    let paths = null;
    for await (const { results, more: has, words: looked, reading } of answers()) {
      paths ??= await files(looked);
      list.replaceChildren(...paths, ...results.map((found) => result(found, looked)));
      say(reading ? t(reading.total ? "search.reading_of" : "search.reading", reading) : list.firstChild ? "" : t("search.nothing"));
      more.hidden = !has || reading || wanted > PAGE;
    }
  } catch (error) {
    say(error.message);
  } finally {
    list.setAttribute("aria-busy", "false");
  }
}

// What was found: while the index is made of what was read so far, and again until that is everything.
async function* answers() {
  for (;;) {
    const answer = await api(`/search${query({ q: words, limit: wanted })}`);
    yield answer;
    if (!answer.reading) return;
    await new Promise((resolve) => setTimeout(resolve, AGAIN));
  }
}

// The files whose path has the words, that are edited or reserved now.
async function files(looked) {
  if (!looked.length || !facts.features.includes("reservations")) return [];
  const found = await api(`/files${query({ words: looked.join(" "), limit: FILES })}`);
  const rows = [...found.files.map(({ path, at, edited_by }) => [path, edited_by.map(({ agent_id }) => agent_id), at]),
    ...found.reservations.slice(0, FILES).map(({ patterns, agent_id, created_at }) => [patterns.join(", "), [agent_id], created_at])];
  return rows.map(([path, agents, at]) => h("li", null, h("a", { href: `/files${query({ words: looked.join(" ") })}` }, icon("files"),
    h("span", { class: "first" }, chip("kind", t("page.files")), h("bdi", null, marked(visible(path), looked))), age(at),
    h("span", { class: "second" }, h("bdi", null, agents.join(", "))))));
}

function say(text) {
  state.textContent = visible(text);
  state.hidden = !text;
}

const result = (found, looked) => h("li", null, h("a", { href: places[found.kind](found) },
  face(found.sender_id ?? "?"),
  h("span", { class: "first" }, chip("kind", t(`found.${found.kind}`)), h("bdi", null, visible(found.title) || (found.kind === "message" ? t("messages.no_subject") : found.id))),
  age(found.at),
  h("span", { class: "second" }, h("bdi", null, [found.sender_id, found.receiver_id].filter(Boolean).join(" → ")), " · ", h("bdi", null, marked(visible(found.excerpt), looked)))));

// The text with the words marked in it, as far as they stand there in the same letters but for case.
function marked(text, looked) {
  const sought = looked.filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!sought.length) return text;
  return text.split(new RegExp(`(${sought.join("|")})`, "iu")).map((part, index) => (index % 2 ? h("mark", null, part) : part));
}

document.getElementById("sought").value = words;
more.addEventListener("click", () => { wanted = 200; look(); });
if (words.trim()) look();

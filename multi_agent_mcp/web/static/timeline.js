// The timeline; the server draws the requested period, so it stays sharp at any zoom.

import { api, face, h, query, t, visible } from "./core.js";
import { watch } from "./live.js";

const ZOOM = 1.6;
const SHORTEST = 200; // milliseconds
const picture = document.getElementById("picture");
const tip = document.getElementById("tip");
let period = { from: null, to: null }; // null: from the beginning, until now
let shown = null; // the period of the picture on the page, in milliseconds, and where in it time runs, in its pixels
let turned = false; // the window has another size than the picture was asked for
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

const iso = (milliseconds) => (milliseconds === null ? null : new Date(milliseconds).toISOString());

async function look() {
  const width = picture.clientWidth - 2;
  if (width < 1) return; // nothing is laid out now; the window that gets a size again is resized
  turned = false;
  const asked = { from: iso(period.from), to: iso(period.to), zone, theme: document.documentElement.dataset.theme, lanes: chosen("lanes"), unfolded: chosen("unfolded") };
  const answer = await api(`/timeline${query({ ...asked, width })}`);
  shown = { from: Date.parse(answer.from), to: Date.parse(answer.to), plot: answer.plot };
  showLanes(answer);
  if (!answer.empty) picture.innerHTML = answer.svg; // drawn by us, every text in it escaped (templates/timeline.svg)
  else picture.replaceChildren(h("p", { class: "empty" }, t("empty"))); // nothing has happened: there is no time to show
  picture.setAttribute("aria-busy", String(turned));
  document.getElementById("save").href = `/timeline.svg${query({ ...asked, width: 1600 })}`;
}

// ---- the lanes: whose are drawn; the address names them, if they were chosen

const lanes = document.getElementById("lanes");
const words = document.getElementById("lanes-words");
const chosen = (what) => new URLSearchParams(location.search).get(what);
let listed = null;

function showLanes({ lanes: shown, all_lanes: all }) {
  document.getElementById("choose-lanes").textContent = t("timeline.lanes_of", { n: shown.length, all: all.length });
  document.getElementById("lanes-reset").disabled = chosen("lanes") === null && chosen("unfolded") === null;
  const drawn = new Set(shown);
  if (JSON.stringify(all) !== listed) {
    listed = JSON.stringify(all);
    lanes.replaceChildren(...all.map((id) => h("li", null, h("label", null, h("input", { type: "checkbox", value: id }), face(id), h("bdi", null, id || t("timeline.others"))))));
    narrow();
  }
  for (const box of lanes.querySelectorAll("input")) box.checked = drawn.has(box.value);
}

function narrow() {
  const sought = words.value.trim().toLowerCase();
  for (const lane of lanes.children) lane.hidden = !lane.textContent.toLowerCase().includes(sought);
}

function choose(values) {
  const now = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value === null) now.delete(name);
    else now.set(name, value);
  }
  history.replaceState(null, "", `${location.pathname}${now.size ? `?${now}` : ""}`);
  again();
}

words.addEventListener("input", narrow);
lanes.addEventListener("change", () => choose({ lanes: [...lanes.querySelectorAll("input:checked")].map(({ value }) => value).join(",") }));
document.getElementById("lanes-reset").addEventListener("click", () => choose({ lanes: null, unfolded: null }));

// Shows each agent of a team on a lane of its own, or all on one.
function fold(head) {
  const now = new Set(chosen("unfolded")?.split(",").filter(Boolean));
  if (!now.delete(head)) now.add(head);
  choose({ unfolded: now.size ? [...now].join(",") : null });
}
document.getElementById("lanes-menu").addEventListener("toggle", (event) => {
  if (event.newState !== "open") return;
  const place = document.getElementById("choose-lanes").getBoundingClientRect();
  event.target.style.left = `${Math.max(8, Math.min(place.left, innerWidth - event.target.offsetWidth - 8))}px`;
  event.target.style.top = `${place.bottom + 4}px`;
  words.focus();
});

// ---- moving through time

function set(from, to) {
  period = { from, to };
  for (const button of document.querySelectorAll("#periods button")) button.setAttribute("aria-pressed", "false");
  again();
}

function zoom(factor, centre = 0.5) {
  const span = Math.max((shown.to - shown.from) * factor, SHORTEST);
  const middle = shown.from + (shown.to - shown.from) * centre;
  set(Math.round(middle - span * centre), Math.round(middle + span * (1 - centre)));
}

function shift(part) {
  const step = Math.round((shown.to - shown.from) * part);
  set(shown.from + step, shown.to + step);
}

const at = (id, act) => document.getElementById(id).addEventListener("click", act);
at("zoom-in", () => zoom(1 / ZOOM));
at("zoom-out", () => zoom(ZOOM));
at("earlier", () => shift(-0.4));
at("later", () => shift(0.4));

document.getElementById("periods").addEventListener("click", (event) => {
  const { minutes } = event.target.dataset;
  if (minutes === undefined) return;
  set(minutes ? Date.now() - minutes * 60000 : null, null);
  event.target.setAttribute("aria-pressed", "true");
});

// The pointer's position in the plot, from 0 to 1, and how wide the plot is on the screen.
function part(event) {
  const svg = picture.querySelector("svg");
  const box = svg.getBoundingClientRect();
  const scale = box.width / svg.viewBox.baseVal.width;
  const width = (shown.plot.right - shown.plot.left) * scale;
  return { at: Math.min(Math.max((event.clientX - box.left - shown.plot.left * scale) / width, 0), 1), width };
}

picture.addEventListener("wheel", (event) => {
  if (!shown || !(event.ctrlKey || event.altKey || event.metaKey || Math.abs(event.deltaY) > Math.abs(event.deltaX))) return;
  event.preventDefault();
  zoom(event.deltaY > 0 ? 1.25 : 0.8, part(event).at);
}, { passive: false });
picture.addEventListener("dblclick", () => set(null, null));
picture.addEventListener("keydown", (event) => {
  const act = { "+": () => zoom(1 / ZOOM), "-": () => zoom(ZOOM), ArrowLeft: () => shift(-0.2), ArrowRight: () => shift(0.2), Home: () => set(null, null) }[event.key];
  if (!act || event.target !== picture) return;
  event.preventDefault();
  act();
});

let dragged = false; // the click that follows is none
picture.addEventListener("pointerdown", (event) => {
  dragged = false;
  if (!shown || event.button !== 0) return;
  const start = { x: event.clientX, ...shown, width: part(event).width };
  const move = (now) => { picture.firstElementChild.style.transform = `translateX(${now.clientX - start.x}px)`; };
  const end = (now) => {
    removeEventListener("pointermove", move);
    picture.firstElementChild.style.transform = "";
    const by = Math.round(((start.x - now.clientX) / start.width) * (start.to - start.from));
    dragged = Math.abs(now.clientX - start.x) > 4;
    if (dragged) set(start.from + by, start.to + by);
  };
  addEventListener("pointermove", move);
  addEventListener("pointerup", end, { once: true });
});

// ---- hovering, and opening what is drawn

const PLACES = { task: (id) => `/#${id}`, message: (id) => `/messages#box=all&id=${id}`, conversation: (id) => `/conversations#${id}`, execution: (id) => `/executions#${id}` };

picture.addEventListener("pointermove", (event) => {
  const marked = event.target.closest?.("[data-kind]");
  const text = marked?.querySelector("title")?.textContent;
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = visible(text);
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8)}px`;
});
picture.addEventListener("pointerleave", () => { tip.hidden = true; });
picture.addEventListener("click", (event) => {
  if (dragged) return;
  const { kind, id } = event.target.closest?.("[data-kind]")?.dataset ?? {};
  if (kind === "team") fold(id);
  if (kind === "count") set(...id.split("-").map(Number));
  if (kind in PLACES && id) location.href = PLACES[kind](id);
});

document.querySelector("#periods button").setAttribute("aria-pressed", "true");
const again = watch(["messages", "tasks", "notifications", "conversations", "agents"], look);
addEventListener("resize", () => {
  turned = true;
  picture.setAttribute("aria-busy", "true");
  again();
});
document.getElementById("theme").addEventListener("click", () => again());

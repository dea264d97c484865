// The live connection: the server says which topics changed, and the page fetches them again.

import { attempt, facts, query, t } from "./core.js";

const listeners = new Map();
const failed = new Set(); // looks to be repeated as soon as the console answers again
const held = new Set(); // looks put off until what is pressed or dragged is let go: nothing may move under the pointer
let pressed = false;
let dragging = false;

// Calls `look` now and after every change of one of the topics; never twice at once, and no change is missed. Returns a
// function that looks again and resolves when what it asked for is shown.
export function watch(topics, look) {
  let running = null;
  let again = false;
  const repeat = async () => {
    do {
      again = false;
      if (await attempt(look)) failed.delete(run);
      else failed.add(run);
    } while (again);
    running = null;
  };
  const run = async () => {
    if (pressed || dragging) { held.add(run); return; }
    again = true;
    running ??= repeat();
    await running;
  };
  for (const topic of topics) listeners.set(topic, [...(listeners.get(topic) ?? []), run]);
  run();
  return run;
}

// Something has changed about these topics; resolves when everybody has looked.
export const lookAgain = (topics) => Promise.all([...new Set(topics.flatMap((topic) => listeners.get(topic) ?? []))].map((look) => look()));

function letGo() {
  if (pressed || dragging) return;
  const due = [...held];
  held.clear();
  for (const look of due) look();
}

const release = () => { pressed = false; setTimeout(letGo); }; // the click comes after the pointer is up
addEventListener("pointerdown", ({ isPrimary, button }) => { pressed = isPrimary && button === 0; }, true);
for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, release, true);
addEventListener("pointermove", ({ buttons }) => { if (pressed && !buttons) release(); }, true); // let go elsewhere

addEventListener("dragstart", ({ target }) => {
  dragging = true;
  target.addEventListener("dragend", () => { // on the node itself: one that has left the page tells nobody else
    dragging = false;
    release();
  }, { once: true });
});

function connect() {
  const sign = document.getElementById("live");
  const source = new EventSource(`/api/events${query({ since: facts.event })}`);
  const say = (state) => { sign.textContent = t(`live.${state}`); sign.dataset.state = state; };
  source.addEventListener("open", () => {
    say("on");
    for (const look of failed) look();
  });
  source.addEventListener("error", () => say(source.readyState === EventSource.CLOSED ? "closed" : "off"));
  source.addEventListener("changed", (event) => lookAgain(JSON.parse(event.data)));
  addEventListener("pagehide", () => source.close());
}

connect();

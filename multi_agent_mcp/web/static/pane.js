// An agent's pane: its screen as text, its scrollback, what its host asks, and a line for an idle composer. Everything in
// it was chosen by somebody else: it is only ever set as text.

import { api, attempt, facts, h, t, toast, visible, why } from "./core.js";
import { dialog } from "./dialogs.js";
import { question } from "./question.js";

const TILES_EVERY = 2000; // milliseconds
const EVERY = 500; // milliseconds; the server looks no more often either

export function openPane(agent) {
  const address = `#pane=${agent}`;
  const isCalled = location.hash === address;
  const box = dialog(t("pane.title", { agent }), isCalled ? null : address, screenOf(agent));
  box.classList.add("wide");
  if (isCalled) box.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
  return box;
}

// The pane in an element, which follows it while it is on the page.
export function screenOf(agent) {
  const screen = h("div", { class: "screen", role: "region", tabindex: "0", dir: "ltr", "aria-label": t("pane.screen", { agent }) });
  const parts = { question: h("div"), attach: h("div"), screen, line: h("div") };
  const back = h("button", { type: "button", class: "ghost", onclick: () => scrollback(agent) }, t("pane.scrollback"));
  const whole = h("div", { class: "pane-of" }, parts.question, h("figure", null, h("figcaption", { class: "hint" }, t("pane.screen", { agent }), back), screen), parts.line, parts.attach);
  requestAnimationFrame(() => follow(agent, whole, parts)); // by then it is on the page
  return whole;
}

// The pane's screen, small; it is looked at while it is to be seen.
export function tileOf(agent) {
  const screen = h("div", { class: "screen", role: "region", tabindex: "0", dir: "ltr", "aria-label": t("pane.screen", { agent }) });
  let seen = "";
  let timer = null;
  const look = async () => {
    if (!screen.isConnected) { watching.disconnect(); return; }
    clearTimeout(timer);
    if (document.visibilityState === "visible") {
      try {
        const shown = await api(`/agents/${agent}/pane?seen=${seen}`);
        if (shown.state !== seen) show(screen, shown);
        seen = shown.state;
      } catch (error) {
        seen = "";
        screen.replaceChildren(h("p", { class: "reason" }, visible(error.message)));
      }
    }
    if (inView) timer = setTimeout(look, TILES_EVERY);
  };
  let inView = false;
  const watching = new IntersectionObserver(([entry]) => { inView = entry.isIntersecting; if (inView) look(); });
  watching.observe(screen);
  return screen;
}

// Looks again and again, while the element is on a page that is looked at.
async function follow(agent, whole, parts) {
  let seen = "", asked = "", made = false;
  while (whole.isConnected) {
    if (document.visibilityState === "visible") {
      try {
        const shown = await api(`/agents/${agent}/pane?seen=${seen}`);
        if (shown.state !== seen) {
          show(parts.screen, shown);
          const id = shown.dialog?.id ?? "";
          if (id !== asked || !made) parts.question.replaceChildren(...asks(agent, shown.dialog)); // a button stays under the mouse
          if (!made) {
            parts.attach.replaceChildren(...attach(shown.attach));
            parts.line.replaceChildren(...(shown.elsewhere ? [] : line(agent)));
          }
          [asked, made, seen] = [id, true, shown.state];
        }
      } catch (error) {
        seen = "";
        parts.screen.replaceChildren(h("p", { class: "reason" }, visible(error.message)));
      }
    }
    await new Promise((go) => setTimeout(go, EVERY));
  }
}

function show(element, shown) {
  if (shown.elsewhere) {
    element.replaceChildren(h("p", { class: "reason" }, t("pane.elsewhere", { machine: visible(shown.elsewhere) })));
    return;
  }
  if (!shown.screen) {
    element.replaceChildren(h("p", { class: "reason" }, t("pane.nothing", { reason: why(shown.reason) })));
    return;
  }
  const palette = getComputedStyle(element);
  element.replaceChildren(...shown.screen.rows.map((row) => h("div", { class: "row" }, row.map((part) => piece(part, palette)))));
  if (shown.screen.cursor) {
    const [column, row] = shown.screen.cursor;
    element.append(h("i", { class: "cursor", "aria-hidden": "true", vars: { "--column": column, "--row": row } }));
  }
}

const MARKED = /[^\p{Mn}\p{Me}\p{Cf}][\p{Mn}\p{Me}\p{Cf}]*|[\p{Mn}\p{Me}\p{Cf}]+/gsu;
const LOOKS = ["bold", "faint", "italic", "underline", "strike"];

// Rows of a terminal as nodes, for an element that looks like one (`screen`).
export function drawn(rows) {
  const like = document.body.appendChild(h("div", { class: "screen", hidden: true }));
  const nodes = rows.flatMap((row, index) => [index ? "\n" : "", ...row.map((part) => piece(part, getComputedStyle(like)))]);
  like.remove();
  return nodes;
}

function piece(part, palette) {
  const text = visible(part.text);
  const [front, back] = part.inverse ? [part.bg ?? "ground", part.fg ?? "ink"] : [part.fg, part.bg];
  const bg = back && resolved(back, "back", palette);
  const fg = (front || bg) && readable(resolved(front ?? "ink", "ansi", palette), bg ?? resolved("ground", "ansi", palette));
  const looks = LOOKS.filter((name) => part[name]);
  if (!fg && !bg && !looks.length && !part.wide) return text;
  const vars = { ...(fg && { color: fg }), ...(bg && { "background-color": bg }) };
  // a letter of two cells, with the marks on it, is as wide as two others, whatever font it comes from
  const letters = part.wide ? text.match(MARKED).map((letter) => h("span", { class: "cells" }, letter)) : text;
  return h("span", { class: looks.join(" ") || undefined, vars }, letters);
}

// ---- colours: grounds are darker than letters of the same name, and what could not be read on its ground is set apart

const LEAST = 4.5; // WCAG AA
const resolved = (of, kind, palette) => (of.startsWith("#") ? of : palette.getPropertyValue(/^\d+$/.test(of) ? `--${kind}-${of}` : `--${of}`).trim());

function luminance(colour) {
  const [r, g, b] = colour.match(/[0-9a-f]{2}/gi).map((part) => Number.parseInt(part, 16) / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function readable(front, back) {
  const [one, other] = [luminance(front), luminance(back)];
  if ((Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05) >= LEAST) return front;
  return other > 0.18 ? "#000000" : "#ffffff";
}

function asks(agent, asked) {
  return asked ? [h("h3", null, t(`pane.asks.${asked.topic}`)), question(agent, asked)] : [];
}

function attach(command) {
  if (!command) return [];
  const copy = async () => { await navigator.clipboard.writeText(command); toast(t("pane.copied")); };
  return [h("p", { class: "attach" }, h("span", { class: "hint" }, t("pane.attach")), " ", h("code", null, command), " ",
    h("button", { type: "button", class: "ghost", onclick: () => attempt(copy) }, t("pane.copy")))];
}

function line(agent) {
  if (!facts.answers) return [];
  const field = h("input", { type: "text", name: "line", maxlength: 100, autocomplete: "off", "aria-label": t("pane.line", { agent }), placeholder: t("pane.line", { agent }), required: true });
  const type = async () => {
    const came = await api(`/agents/${agent}/line`, { text: field.value });
    if (came.state === "stored") throw new Error(why(came.reason));
    field.value = "";
    toast(t(`pane.line.${came.state}`, { agent, reason: came.reason ? why(came.reason) : "" }), came.state === "submitted" ? "good" : "bad");
  };
  return [h("form", { class: "line", onsubmit: (event) => { event.preventDefault(); attempt(type); } },
    field, h("button", { type: "submit" }, t("pane.type")), h("small", { class: "hint" }, t("pane.line_hint")))];
}

async function scrollback(agent) {
  await attempt(async () => {
    const shown = await api(`/agents/${agent}/scrollback`);
    const screen = h("div", { class: "screen", role: "region", tabindex: "0", dir: "ltr", "aria-label": t("pane.scrollback") });
    show(screen, shown);
    dialog(t("pane.scrollback_of", { agent }), location.href, screen).classList.add("wide");
    screen.scrollTop = screen.scrollHeight;
  });
}

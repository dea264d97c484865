// What is asked of an open page: can everything be read, reached and named? Each function answers with what is wrong.

// Colours to numbers through a canvas: the browser resolves light-dark(), hsl() and names itself.
const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
const brush = canvas.getContext("2d", { willReadFrequently: true });

// One colour painted over another; both as CSS writes them or as [r, g, b]. A page has few pairs, and many texts.
const painted = new Map();
function over(colour, ground) {
  const pair = `${colour}/${ground}`;
  if (!painted.has(pair)) painted.set(pair, paint(colour, ground));
  return painted.get(pair);
}

function paint(colour, ground) {
  for (const layer of [`rgb(${ground})`, colour]) {
    brush.fillStyle = layer;
    brush.fillRect(0, 0, 1, 1);
  }
  return [...brush.getImageData(0, 0, 1, 1).data].slice(0, 3);
}

// WCAG 2.2, relative luminance and contrast ratio.
function luminance(rgb) {
  const [r, g, b] = rgb.map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
const ratio = (one, other) => (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);

function groundOf(element) {
  const layers = [];
  for (let at = element; at; at = at.parentElement) layers.push(getComputedStyle(at).backgroundColor);
  return layers.reverse().reduce((ground, layer) => over(layer, ground), [255, 255, 255]);
}

function isShown(element) {
  const style = getComputedStyle(element);
  const box = element.getBoundingClientRect();
  return style.visibility === "visible" && style.display !== "none" && box.width > 1 && box.height > 1 && element.checkVisibility();
}

// Every text that contrasts less than AA asks (4.5, or 3 for large text), except of what is disabled.
function paleTexts() {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || element.closest("svg, script, option, [disabled], .unseen") || !isShown(element)) continue;
    const style = getComputedStyle(element);
    const ground = groundOf(element);
    let text = over(style.color, ground);
    for (let at = element; at; at = at.parentElement) text = mixed(text, ground, Number(getComputedStyle(at).opacity));
    const size = Number.parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const reached = ratio(luminance(text), luminance(ground));
    if (reached < (large ? 3 : 4.5)) found.push(`${reached.toFixed(2)} ${element.className || element.tagName}: ${node.textContent.trim().slice(0, 40)}`);
  }
  return [...new Set(found)];
}
const mixed = (text, ground, opacity) => text.map((part, index) => part * opacity + ground[index] * (1 - opacity));

const INTERACTIVE = "a[href], button, input, select, textarea, summary, [tabindex], [role=button], [role=menuitem]";

// Every control that says nothing to somebody who does not see it.
function nameless() {
  return [...document.querySelectorAll(INTERACTIVE)].filter(isShown).filter((element) => {
    const label = element.getAttribute("aria-label") ?? element.getAttribute("title") ?? "";
    const labels = [...(element.labels ?? [])].map((one) => one.textContent).join("");
    return !(label + labels + element.textContent).trim();
  }).map((element) => element.outerHTML.slice(0, 120));
}

// Every control the keyboard does not come to: neither by Tab, nor inside a card, which has keys for all it can.
function unreachable() {
  return [...document.querySelectorAll("a[href], button, input, select, textarea")].filter(isShown)
    .filter((element) => element.tabIndex < 0 && !element.disabled && !element.closest(".card"))
    .map((element) => element.outerHTML.slice(0, 120));
}

// How many pixels the page is wider than the window.
function sideways() {
  return Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) - innerWidth;
}

// Visible elements that stick out of the window without something around them that scrolls or clips.
function cutOff() {
  const clips = (element) => { for (let at = element.parentElement; at && at !== document.body; at = at.parentElement) if (getComputedStyle(at).overflowX !== "visible") return true; return false; };
  return [...document.body.querySelectorAll("*")].filter((element) => isShown(element) && !element.closest("svg"))
    .filter((element) => element.getBoundingClientRect().right > innerWidth + 1 && !clips(element))
    .map((element) => element.outerHTML.slice(0, 120));
}

// On a phone every control can be hit by a finger: 24 by 24 pixels (WCAG 2.2, Target Size), except links in a sentence.
function tooSmall() {
  if (innerWidth > 760) return [];
  const inText = (element) => element.matches("a") && getComputedStyle(element).display === "inline";
  return [...document.querySelectorAll("a[href], button, input, select, textarea, summary")].filter(isShown).filter((element) => !inText(element) && !element.disabled)
    .filter((element) => { const { width, height } = (element.closest("label") ?? element).getBoundingClientRect(); return width < 23.5 || height < 23.5; })
    .map((element) => element.outerHTML.slice(0, 120));
}

function everythingAsked() {
  return { tooSmall: tooSmall(), pale: paleTexts(), nameless: nameless(), unreachable: unreachable(), sideways: Math.max(sideways(), 0), cutOff: cutOff() };
}

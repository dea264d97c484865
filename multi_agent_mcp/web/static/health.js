// The findings of doctor and their repairs.

import { api, at, chip, h, t, visible } from "./core.js";
import { watch } from "./live.js";

const TIME = /\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g;
const findings = document.getElementById("findings");

let asked = false;
const again = watch(["agents"], async () => {
  const answer = await api(asked ? "/health?again=1" : "/health");
  asked = false;
  findings.setAttribute("aria-busy", "false");
  if (!answer.findings.length) {
    findings.replaceChildren(h("p", { class: "empty" }, t("health.clean")));
    return;
  }
  const head = ["weight", "check", "subject", "finding", "repair"].map((key) => h("th", { scope: "col" }, t(`health.${key}`)));
  const rows = answer.findings.map((item) => h("tr", null,
    h("td", null, chip(`level-${item.level}`, t(`health.level.${item.level}`))),
    h("td", null, item.check),
    ...[item.subject, item.finding, item.repair].map((text) => h("td", null, h("bdi", null, visible(text).replace(TIME, at))))));
  findings.replaceChildren(h("div", { class: "scroll" }, h("table", { class: "plain findings" }, h("thead", null, h("tr", null, head)), h("tbody", null, rows))));
});

document.getElementById("again").addEventListener("click", () => { asked = true; again(); });

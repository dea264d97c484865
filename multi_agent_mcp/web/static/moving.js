// Moving a card to another column, with a pointer and with keys: allowed columns are highlighted, others show the reason.

import { t } from "./core.js";

let carried = null;
let refusedAt = null;

// A card that can be dragged.
export function carry(card, task) {
  card.addEventListener("dragstart", (event) => {
    carried = task;
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setData("text/plain", task.task_id);
    requestAnimationFrame(() => light(task, card.closest(".columns")));
  });
  card.addEventListener("dragend", () => {
    if (refusedAt) refusedAt.tell();
    carried = refusedAt = null;
    dim(card.closest(".columns") ?? document.getElementById("columns"));
  });
}

// A column that cards are dropped on.
export function dragged(column, { move, announce }) {
  const status = column.dataset.status;
  const allowed = () => carried && status in carried.targets && !carried.targets[status];
  column.addEventListener("dragover", (event) => {
    if (!allowed()) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "move";
  });
  column.addEventListener("dragenter", () => {
    if (!carried) return;
    for (const other of column.parentElement.children) other.classList.toggle("aimed", other === column);
    const why = carried.targets[status];
    refusedAt = why ? { tell: () => announce(t("board.aim_refused", { status: t(`status.${status}`), reason: why })) } : null;
  });
  column.addEventListener("drop", (event) => {
    event.preventDefault();
    const task = carried;
    refusedAt = null;
    if (task && allowed()) move(task, status);
  });
}

// The lifted card, by keys: left and right aim at a column, Enter or Space drops, Escape puts back.
export function lift(card, task, { columns, move, announce }) {
  const all = [...columns.children];
  let aim = all.indexOf(card.closest(".column"));
  card.classList.add("lifted");
  light(task, columns);
  announce(t("board.lifted"));

  const end = () => {
    card.removeEventListener("keydown", steer);
    card.removeEventListener("blur", end);
    card.classList.remove("lifted");
    dim(columns);
  };
  const drop = () => {
    const { status } = all[aim].dataset;
    const why = task.targets[status];
    if (why) { announce(t("board.aim_refused", { status: t(`status.${status}`), reason: why })); return; }
    end();
    if (status === task.status) announce(t("board.put_back"));
    else move(task, status);
  };
  const steer = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) aim = Math.min(Math.max(aim + step, 0), all.length - 1);
    else if (event.key === "Escape") { end(); announce(t("board.put_back")); }
    else if (event.key === "Enter" || event.key === " ") drop();
    else return;
    event.preventDefault();
    event.stopPropagation();
    if (!step) return;
    all.forEach((column, index) => column.classList.toggle("aimed", index === aim));
    all[aim].scrollIntoView({ block: "nearest", inline: "nearest" });
    const { status } = all[aim].dataset;
    const why = task.targets[status];
    announce(t(why ? "board.aim_refused" : "board.aim", { status: t(`status.${status}`), reason: why }));
  };
  card.addEventListener("keydown", steer);
  card.addEventListener("blur", end);
}

function light(task, columns) {
  columns.classList.add("moving");
  for (const column of columns.children) {
    const { status } = column.dataset;
    const why = task.targets[status];
    column.classList.toggle("may", status in task.targets && !why);
    const refusal = column.querySelector(".refusal");
    refusal.textContent = why ?? "";
    refusal.hidden = !why;
  }
}

function dim(columns) {
  columns.classList.remove("moving");
  for (const column of columns.children) {
    column.classList.remove("may", "aimed");
    column.querySelector(".refusal").hidden = true;
  }
}

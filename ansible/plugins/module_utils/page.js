
"use strict";
// Sorts and filters; the table is complete without it.
const tools = document.querySelector(".tools");
const body = document.querySelector("tbody");
const rows = [...body.rows];
const heads = [...document.querySelectorAll("thead th")];
const [search, fault, sort] = ["input", "[name=fault]", "[name=sort]"].map((each) => tools.querySelector(each));
let column = -1;
let sense = 1;

function value(row) {
  const cell = row.cells[column];
  if (heads[column].dataset.sort === "text") return cell.textContent;
  return cell.dataset.value === undefined ? null : Math.abs(Number(cell.dataset.value));
}

function compare(one, other) {
  if (column < 0) return one.dataset.place - other.dataset.place;
  const [a, b] = [value(one), value(other)];
  if (a === null || b === null) return (a === null) - (b === null);
  return sense * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
}

function order(next, turned) {
  sense = turned && next === column ? -sense : next >= 0 && heads[next].dataset.sort === "number" ? -1 : 1;
  column = next;
  sort.value = next < 0 ? "" : String(next);
  heads.forEach((head, place) => {
    if (place === column) head.setAttribute("aria-sort", sense > 0 ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  });
  body.append(...rows.sort(compare));
}

function show() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = (fault.value && row.dataset.fault !== fault.value) || !words.every((word) => text.includes(word));
    shown += !row.hidden;
  }
  tools.querySelector("output").textContent = shown === rows.length ? "" : `${shown} of ${rows.length} shown`;
}

heads.forEach((head, place) => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = head.textContent;
  button.addEventListener("click", () => order(place, true));
  head.replaceChildren(button);
});
tools.addEventListener("submit", (event) => event.preventDefault());
search.addEventListener("input", show);
fault.addEventListener("change", show);
sort.addEventListener("change", () => order(sort.value === "" ? -1 : Number(sort.value), false));
tools.hidden = false;

// @ts-check
// Keyboard shortcuts: `/` search, `g` and a letter open a page, `j` and `k` move in a table, Enter open, `?` help.
import { tell } from "./actions.js";

const root = document.body.dataset.root ?? "";
/** @type {Record<string, string>} */
const PLACES = { o: "/", q: "/queues", r: "/runs", f: "/flows", w: "/workers", s: "/schedules", c: "/coordination", a: "/alerts", u: "/audit" };
let going = 0;

/** @param {number} by */
function step(by) {
  const links = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("main table.list tbody tr a[href]:first-of-type")]);
  const rows = links.filter((link, index) => links.findIndex((each) => each.closest("tr") === link.closest("tr")) === index);
  if (rows.length === 0) return;
  const now = rows.findIndex((link) => link.closest("tr") === document.activeElement?.closest("tr"));
  rows[Math.min(Math.max(now + by, 0), rows.length - 1)].focus();
}

document.addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (target.matches("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  const soon = Date.now() - going < 1200;
  if (soon && event.key in PLACES) {
    going = 0;
    location.assign(root + PLACES[event.key]);
  } else if (event.key === "g") going = Date.now();
  else if (event.key === "/") {
    event.preventDefault();
    /** @type {HTMLElement | null} */ (document.querySelector("[data-key-focus='/']"))?.focus();
  } else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "?")
    tell("/ search · j, k move · Enter open · g then o overview, q queues, r runs, f flows, w workers, s schedules, c coordination, a alerts, u audit");
});

// @ts-check
// Run page: a job selected anywhere is shown everywhere, events can be filtered, and JSON is validated while it is
// typed.
import { go } from "./live.js";
import "./graph.js";

// A link to a job of this run changes only the selection.
document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const link = /** @type {Element} */ (event.target).closest("a[data-choose], svg a[data-key]");
  const href = link?.getAttribute("href");
  if (!href?.startsWith("?") || href.includes("draw=")) return;
  event.preventDefault();
  go(location.pathname + href);
});

// Events

const find = /** @type {HTMLInputElement | null} */ (document.querySelector("[data-event-find]"));
const kind = /** @type {HTMLSelectElement | null} */ (document.querySelector("[data-event-kind]"));
const none = /** @type {HTMLElement | null} */ (document.querySelector("[data-event-none]"));

function sift() {
  const words = (find?.value ?? "").trim().toLowerCase();
  let shown = 0;
  for (const row of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("table.events tbody tr"))) {
    const fits = (!kind?.value || row.dataset.kind === kind.value) && (row.textContent ?? "").toLowerCase().includes(words);
    row.hidden = !fits;
    shown += Number(fits);
  }
  if (none) none.hidden = shown > 0;
}
find?.addEventListener("input", sift);
kind?.addEventListener("change", sift);
document.addEventListener("rota:swapped", (event) => {
  if (/** @type {Element} */ (event.target).closest("[data-events]")) sift();
});

// JSON

/** Return the error in the field, or "". @param {HTMLTextAreaElement} field */
function fault(field) {
  const text = field.value.trim();
  if (text === "") return "";
  try {
    const value = JSON.parse(text);
    const object = typeof value === "object" && value !== null && !Array.isArray(value);
    return field.dataset.json === "object" && !object ? "the input must be a JSON object: the arguments by name" : "";
  } catch (error) {
    return `this is not valid JSON: ${error instanceof Error ? error.message : error}`;
  }
}

document.addEventListener("input", (event) => {
  const field = event.target;
  if (!(field instanceof HTMLTextAreaElement) || !field.dataset.json) return;
  const words = fault(field);
  field.setCustomValidity(words);
  field.setAttribute("aria-invalid", String(words !== ""));
  const place = field.parentElement?.querySelector("[data-fault]");
  if (place) place.textContent = words;
});

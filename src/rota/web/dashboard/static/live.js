// @ts-check
// Live updates: changed parts of the page arrive as events and replace the old ones. A hidden page has no stream. The
// state of the viewer's work (fields, selection, expanded details) is kept.
import { morph } from "./morph.js";
import { refreshTimes } from "./times.js";

const root = document.body.dataset.root ?? "";
const state = document.querySelector("[data-live-state]");
const problem = /** @type {HTMLElement | null} */ (document.querySelector("[data-live-problem]"));

/** @type {EventSource | null} */
let source = null;

/** @param {"on" | "off" | "lost"} to @param {string} word */
function show(to, word) {
  if (!(state instanceof HTMLElement)) return;
  state.dataset.liveState = to;
  const said = state.querySelector(".word");
  if (said && said.textContent !== word) said.textContent = word;
}

/** @param {string} words */
function complain(words) {
  if (!problem) return;
  problem.hidden = words === "";
  problem.textContent = words;
}

/** @param {Element} place @param {string} html */
function swap(place, html) {
  morph(place, html);
  refreshTimes(place);
  place.dispatchEvent(new CustomEvent("rota:swapped", { bubbles: true }));
}

/** Open the stream of the page at the current address. */
export function look() {
  source?.close();
  const page = location.pathname.slice(root.length) + location.search;
  source = new EventSource(`${root}/live?${new URLSearchParams({ page })}`);
  source.addEventListener("part", (event) => {
    const { name, html } = JSON.parse(event.data);
    const place = document.querySelector(`[data-live="${name}"]`);
    if (place) swap(place, html);
  });
  source.addEventListener("refreshed", () => {
    complain("");
    show("on", "live");
  });
  source.addEventListener("refused", (event) => complain(JSON.parse(event.data).message));
  source.addEventListener("error", () => {
    show("lost", "not live");
    // The server ends a stream regularly and the browser reconnects within a second; it does not after a refusal.
    if (source?.readyState === EventSource.CLOSED) setTimeout(() => !document.hidden && look(), 3000);
  });
}

/** Go to another address of the same page: only its live parts change.
 * @param {string} url */
export async function go(url) {
  history.pushState(null, "", url);
  await follow();
}

async function follow() {
  const response = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
  if (!response.ok || response.redirected) return location.reload();
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const place of document.querySelectorAll("[data-live]")) {
    const name = place.getAttribute("data-live");
    const made = page.querySelector(`[data-live="${name}"]`);
    if (made) swap(place, made.innerHTML);
  }
  look();
}

function rest() {
  source?.close();
  source = null;
  show("off", "paused");
}

if (state && document.querySelector("main [data-live]")) {
  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : look()));
  // Close before the page is unloaded, so that the stream does not count as lost.
  addEventListener("pagehide", rest);
  addEventListener("pageshow", (event) => event.persisted && look());
  addEventListener("popstate", follow);
  addEventListener("rota:done", look);
  if (!document.hidden) look();
}

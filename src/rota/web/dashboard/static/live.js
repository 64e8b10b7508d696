// @ts-check
// Keeps a page current: parts that have changed on the server come as events and are put in their place. Nothing
// is asked for while nobody looks. What somebody is doing (a field, a selection, what is unfolded) stays as it is.
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

/** Follow the page that the address names. */
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
    // A stream ends now and then on purpose, and is back within a second; a refused one does not come back.
    if (source?.readyState === EventSource.CLOSED) setTimeout(() => !document.hidden && look(), 3000);
  });
}

/** Go to another address of the same page: only its live parts are changed.
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
  // Before the page goes, so that no stream is counted as lost.
  addEventListener("pagehide", rest);
  addEventListener("pageshow", (event) => event.persisted && look());
  addEventListener("popstate", follow);
  addEventListener("rota:done", look);
  if (!document.hidden) look();
}

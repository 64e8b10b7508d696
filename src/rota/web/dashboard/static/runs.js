// @ts-check
// Bulk actions on the selected runs, or on all that match. For all that match, the runs are counted and the number is
// confirmed first. The action is applied in batches and can be stopped. Runs that start after the count are not
// affected: the count returns the last id it covers.
import { ask, confirmed, tell } from "./actions.js";

/** @typedef {{count: number, exact: boolean, upto: string}} Counted */
/** @typedef {{done: number, skipped: number, next: string | null}} Acted */

const WORDS = /** @type {const} */ ({
  cancel: { act: "cancel", done: "cancelled", skipped: "had already ended" },
  retry: { act: "retry", done: "queued for a retry", skipped: "had already been retried" },
});

const card = /** @type {HTMLElement | null} */ (document.querySelector("[data-runs]"));
const api = card?.dataset.api ?? "";
/** @type {Record<string, string>} */
const meant = JSON.parse(card?.dataset.meant ?? "{}");

const all = /** @type {HTMLInputElement | null} */ (card?.querySelector("[data-pick-all]") ?? null);
const everything = /** @type {HTMLButtonElement | null} */ (card?.querySelector("[data-everything]") ?? null);
const said = card?.querySelector("[data-picked]");

/** @returns {HTMLInputElement[]} */
function boxes() {
  return [...(card?.querySelectorAll("input[data-pick]") ?? [])].map((each) => /** @type {HTMLInputElement} */ (each));
}

/** @returns {string[]} */
function picked() {
  return boxes().filter((each) => each.checked).map((each) => each.dataset.pick ?? "");
}

function isEverything() {
  return everything?.getAttribute("aria-pressed") === "true";
}

/** Update the selection text and enable the actions. */
function refresh() {
  const [count, there] = [picked().length, boxes().length];
  if (all) {
    all.checked = there > 0 && count === there;
    all.indeterminate = count > 0 && count < there;
  }
  const words = isEverything() ? "all matching runs, on all pages" : count === 0 ? "none selected" : `${count} selected`;
  if (said && said.textContent !== words) said.textContent = words;
  for (const button of card?.querySelectorAll("button[data-many]") ?? [])
    /** @type {HTMLButtonElement} */ (button).disabled = count === 0 && !isEverything();
}

/** @param {number} count @param {boolean} exact */
function many(count, exact = true) {
  return `${exact ? "" : "at least "}${count.toLocaleString("en")} ${count === 1 ? "run" : "runs"}`;
}

/** Return the filter as text.
 * @returns {string} */
function matching() {
  const told = Object.entries(meant).map(([name, value]) => `${name} ${value}`);
  return told.length ? ` with ${told.join(", ")}` : "";
}

let busy = false;

/** Begin an action unless one is in progress: two confirmations must not overlap.
 * @param {"cancel" | "retry"} act */
async function begin(act) {
  if (busy) return;
  busy = true;
  try {
    await decide(act);
  } finally {
    busy = false;
  }
}

/** @param {"cancel" | "retry"} act */
async function decide(act) {
  const { act: verb } = WORDS[act];
  const danger = act === "cancel";
  if (!isEverything()) {
    const ids = picked();
    if (await confirmed(`${capital(verb)} ${many(ids.length)}?`, { yes: verb, danger }))
      await go(act, { ids }, ids.length, true);
    return;
  }
  /** @type {Counted} */
  const found = await ask("GET", `${api}/count?${new URLSearchParams({ ...meant, action: act })}`);
  if (found.count === 0 && found.exact) {
    tell(`no runs to ${verb}${matching()}`);
    return;
  }
  // This includes runs that were cancelled on purpose, so the question must mention it.
  const which = act === "retry" && !("state" in meant) ? " that failed, expired or were cancelled" : "";
  const question = `${capital(verb)} ${many(found.count, found.exact)}${which}${matching()}? Runs that start later are not affected.`;
  if (await confirmed(question, { yes: verb, danger }))
    await go(act, { ...meant, upto: found.upto }, found.count, found.exact);
}

/** Apply the action in batches until none is left or the user stops it.
 * @param {"cancel" | "retry"} act @param {Record<string, unknown>} body @param {number} count @param {boolean} exact */
async function go(act, body, count, exact) {
  const { done: word, skipped: late } = WORDS[act];
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("many"));
  const bar = /** @type {HTMLProgressElement} */ (dialog.querySelector("[data-many-bar]"));
  const words = /** @type {HTMLElement} */ (dialog.querySelector("[data-many-said]"));
  /** @type {HTMLElement} */ (dialog.querySelector("[data-many-words]")).textContent =
    `${capital(act)} ${many(count, exact)}`;
  let [done, skipped, stopped] = [0, 0, false];
  const stop = () => (stopped = true);
  dialog.addEventListener("close", stop, { once: true });
  /** @type {HTMLElement} */ (dialog.querySelector("[data-many-stop]")).onclick = () => dialog.close();
  const result = () =>
    `${done.toLocaleString("en")} ${word}${skipped ? `, ${skipped.toLocaleString("en")} ${late}` : ""}`;
  const show = () => {
    words.textContent = result();
    if (exact) {
      bar.max = Math.max(count, 1);
      bar.value = Math.min(done + skipped, count);
    } else bar.removeAttribute("value");
  };
  show();
  dialog.showModal();
  try {
    /** @type {string | null} */
    let cursor = null;
    do {
      /** @type {Acted} */
      const portion = await ask("POST", `${api}/${act}`, JSON.stringify(cursor ? { ...body, cursor } : body));
      done += portion.done;
      skipped += portion.skipped;
      cursor = portion.next;
      show();
    } while (cursor && !stopped);
    tell(stopped && cursor ? `stopped: ${result()}` : result());
  } catch (error) {
    tell(`${result()}, then failed: ${error instanceof Error ? error.message : error}`, "bad");
  } finally {
    dialog.removeEventListener("close", stop);
    dialog.close();
    for (const box of boxes()) box.checked = false;
    everything?.setAttribute("aria-pressed", "false");
    refresh();
    dispatchEvent(new CustomEvent("rota:done"));
  }
}

/** @param {string} word */
function capital(word) {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

card?.addEventListener("change", (event) => {
  const box = /** @type {HTMLInputElement} */ (event.target);
  if (box === all) for (const each of boxes()) each.checked = box.checked;
  if (box === all || box.dataset.pick) everything?.setAttribute("aria-pressed", "false");
  refresh();
});

card?.addEventListener("click", (event) => {
  const target = /** @type {Element} */ (event.target);
  const button = /** @type {HTMLElement | null} */ (target.closest("button[data-many]"));
  const act = button?.dataset.many;
  if (act === "cancel" || act === "retry")
    begin(act).catch((error) => tell(error instanceof Error ? error.message : String(error), "bad"));
  if (target.closest("[data-everything]")) {
    everything?.setAttribute("aria-pressed", String(!isEverything()));
    refresh();
  }
});

// Live updates change the rows, and a browser may restore checkboxes.
document.addEventListener("rota:swapped", refresh);
addEventListener("pageshow", refresh);
refresh();

// @ts-check
// Colours of a graph: the state of each job is applied to its box, without drawing the graph again. Only classes,
// texts and small bars change.

const SVG = "http://www.w3.org/2000/svg";

let seen = "";

/** Update every box with its current state, and return the key of the selected one.
 * @param {SVGSVGElement} board */
export function colour(board) {
  const told = /** @type {HTMLElement | null} */ (document.querySelector("[data-cards]"));
  if (!told) return "";
  const chosen = told.dataset.chosenBox ?? "";
  if (seen === told.dataset.cards + chosen) return chosen;
  seen = told.dataset.cards + chosen;
  /** @type {Map<string, Element>} */
  const boxes = new Map([...board.querySelectorAll(".job")].map((job) => [job.getAttribute("data-key") ?? "", job]));
  for (const [key, state, remark, hint, shares] of JSON.parse(told.dataset.cards ?? "[]")) {
    const job = boxes.get(key);
    if (!job) continue;
    job.setAttribute("class", `job ${state || "plain"}`);
    job.toggleAttribute("aria-current", key === chosen);
    if (key === chosen) job.setAttribute("aria-current", "true");
    job.querySelector(".sign")?.setAttribute("href", `#i-state-${state || "plain"}`);
    const line = job.querySelector(".remark");
    const most = Number(line?.getAttribute("data-most"));
    say(line, remark.length > most ? `${remark.slice(0, most - 1)}…` : remark);
    say(job.querySelector("title"), [job.querySelector(".name")?.textContent, remark, hint].filter(Boolean).join("\n"));
    bars(job, shares);
  }
  for (const edge of board.querySelectorAll(".edges path[data-from]")) {
    const near = chosen !== "" && (edge.getAttribute("data-from") === chosen || edge.getAttribute("data-to") === chosen);
    edge.classList.toggle("near", near);
  }
  return chosen;
}

/** @param {Element | null} place @param {string} words */
function say(place, words) {
  if (place && place.textContent !== words) place.textContent = words;
}

/** @param {Element} job @param {[string, number][]} shares */
function bars(job, shares) {
  const place = job.querySelector(".shares");
  if (!place) return;
  const end = Number(job.querySelector(".box")?.getAttribute("width")) - 12;
  let at = 12;
  const made = shares.filter(([, share]) => share > 0).map(([state, share]) => {
    const bar = document.createElementNS(SVG, "rect");
    const long = Math.max(0, Math.min(Math.max((end - 12) * share, 3), end - at)); // always wide enough to be visible
    const said = { class: `share ${state || "plain"}`, x: at, y: 46, width: long, height: 3 };
    for (const [name, value] of Object.entries(said)) bar.setAttribute(name, String(value));
    at += long;
    return bar;
  });
  place.replaceChildren(...made);
}

// @ts-check
// Relative times, by the database's clock at the time the page was loaded.

const offset = document.body.dataset.now ? Date.parse(document.body.dataset.now) - Date.now() : 0;

/** @param {number} seconds */
function span(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const sizes = /** @type {const} */ ([[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]);
  for (const [size, unit, part, small] of sizes) {
    if (seconds < size) continue;
    const whole = Math.floor(seconds / size);
    const rest = Math.floor((seconds % size) / part);
    return whole >= 10 || rest === 0 ? `${whole} ${unit}` : `${whole} ${unit} ${rest} ${small}`;
  }
  return "";
}

/** @param {Date} when */
function local(when) {
  const now = new Date(Date.now() + offset);
  const time = when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  if (when.toDateString() === now.toDateString()) return time;
  return `${when.getFullYear()}-${`${when.getMonth() + 1}`.padStart(2, "0")}-${`${when.getDate()}`.padStart(2, "0")} ${time}`;
}

/** @param {ParentNode} place */
export function refreshTimes(place = document) {
  const now = Date.now() + offset;
  for (const element of /** @type {NodeListOf<HTMLTimeElement>} */ (place.querySelectorAll("time[datetime]"))) {
    const then = Date.parse(element.dateTime);
    const away = (now - then) / 1000;
    let words = element.textContent;
    if ("ago" in element.dataset) words = away < 1 ? "now" : `${span(away)} ago`;
    else if ("until" in element.dataset) words = away < 0 ? `in ${span(-away)}` : away < 2 ? "now" : `${span(away)} ago`;
    else if ("at" in element.dataset) words = local(new Date(then));
    if (element.textContent !== words) element.textContent = words;
  }
}

refreshTimes();
setInterval(() => !document.hidden && refreshTimes(), 1000);

// @ts-check
// Graph of a run: pan and zoom with mouse, touch and keys. The server draws it once.
import { colour } from "./colours.js";

const SMALLEST = 0.05;
const LARGEST = 2.5;
const READABLE = 0.62;

const view = /** @type {HTMLElement | null} */ (document.querySelector("[data-view]"));
const board = /** @type {SVGSVGElement | null} */ (view?.querySelector("svg.board"));
const world = /** @type {SVGGElement | null} */ (board?.querySelector(".world"));

if (view && board && world) start(view, board, world);

/** @param {HTMLElement} view @param {SVGSVGElement} board @param {SVGGElement} world */
function start(view, board, world) {
  const size = board.viewBox.baseVal;
  const whole = { width: size.width, height: size.height };
  let x = 0;
  let y = 0;
  let scale = 1;
  let due = 0;
  board.removeAttribute("viewBox"); // from here on, one unit is one pixel
  view.classList.add("drawn");

  function draw() {
    due ||= requestAnimationFrame(() => {
      due = 0;
      world.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${scale.toFixed(4)})`);
    });
  }

  function fit() {
    const wide = view.clientWidth;
    const high = Math.min(innerHeight * 0.64, 560);
    const all = Math.min(wide / whole.width, high / whole.height, 1);
    // A graph that would be too small to read begins at its left edge, and can be panned.
    scale = Math.max(all, Math.min(READABLE, high / whole.height), SMALLEST);
    view.style.minHeight = `${Math.min(Math.max(whole.height * scale, 200), high)}px`;
    x = Math.max((wide - whole.width * scale) / 2, 0);
    y = Math.max((view.clientHeight - whole.height * scale) / 2, 0);
    draw();
  }

  /** @param {number} by @param {number} [at] @param {number} [down] */
  function zoom(by, at = view.clientWidth / 2, down = view.clientHeight / 2) {
    const to = Math.min(Math.max(scale * by, SMALLEST), LARGEST);
    x = at - ((at - x) * to) / scale;
    y = down - ((down - y) * to) / scale;
    scale = to;
    draw();
  }

  /** @param {number} right @param {number} down */
  function move(right, down) {
    const { clientWidth: wide, clientHeight: high } = view;
    // A part of it always stays visible.
    x = Math.min(Math.max(x + right, 80 - whole.width * scale), wide - 80);
    y = Math.min(Math.max(y + down, 60 - whole.height * scale), high - 60);
    draw();
  }

  // Mouse and touch

  /** @type {Map<number, {x: number, y: number}>} */
  const fingers = new Map();
  let moved = 0;

  view.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    if (fingers.size === 0) moved = 0;
    fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  });
  view.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const now = { x: event.clientX, y: event.clientY };
    const [right, down] = [now.x - before.x, now.y - before.y];
    moved += Math.abs(right) + Math.abs(down);
    if (moved < 5) return;
    view.classList.add("moving");
    view.setPointerCapture(event.pointerId);
    const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
    fingers.set(event.pointerId, now);
    if (!other) return move(right, down);
    const room = view.getBoundingClientRect();
    const by = Math.hypot(now.x - other.x, now.y - other.y) / (Math.hypot(before.x - other.x, before.y - other.y) || 1);
    zoom(by, (now.x + other.x) / 2 - room.left, (now.y + other.y) / 2 - room.top);
    move(right / 2, down / 2);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    view.addEventListener(end, (event) => {
      fingers.delete(/** @type {PointerEvent} */ (event).pointerId);
      if (fingers.size === 0) view.classList.remove("moving");
    });
  }
  // The click at the end of a pan does not select anything.
  view.addEventListener("click", (event) => {
    if (moved >= 5) {
      event.preventDefault();
      event.stopPropagation();
    }
    moved = 0;
  }, true);
  view.addEventListener("dragstart", (event) => event.preventDefault());
  view.addEventListener("wheel", (event) => {
    event.preventDefault();
    const room = view.getBoundingClientRect();
    if (event.shiftKey) move(-event.deltaY - event.deltaX, 0);
    else zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)), event.clientX - room.left, event.clientY - room.top);
  }, { passive: false });

  // Keys and buttons

  /** @type {Record<string, () => void>} */
  const keys = {
    ArrowLeft: () => move(60, 0),
    ArrowRight: () => move(-60, 0),
    ArrowUp: () => move(0, 60),
    ArrowDown: () => move(0, -60),
    "+": () => zoom(1.25),
    "=": () => zoom(1.25),
    "-": () => zoom(0.8),
    0: fit,
  };
  view.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  document.querySelector("[data-graph]")?.addEventListener("click", (event) => {
    const button = /** @type {Element} */ (event.target).closest("[data-zoom]");
    if (!(button instanceof HTMLElement)) return;
    ({ in: () => zoom(1.25), out: () => zoom(0.8), fit })[button.dataset.zoom ?? "fit"]?.();
  });
  /** @param {Element | null | undefined} job */
  function sight(job) {
    if (!job) return;
    const [room, box] = [view.getBoundingClientRect(), job.getBoundingClientRect()];
    const right = Math.max(room.left + 24 - box.left, 0) || Math.min(room.right - 24 - box.right, 0);
    const down = Math.max(room.top + 24 - box.top, 0) || Math.min(room.bottom - 24 - box.bottom, 0);
    if (right || down) move(right, down);
  }
  // Scroll to a job that gets the focus or is selected elsewhere.
  view.addEventListener("focusin", (event) => { // not on the SVG, which would become focusable itself
    const job = /** @type {Element} */ (event.target).closest(".job");
    view.scrollTo(0, 0); // undo the scrolling of the browser
    if (job?.matches(":focus-visible")) sight(job);
  });

  new ResizeObserver(() => draw()).observe(view);
  fit();
  sight(board.querySelector("[aria-current]"));
  let last = "";
  document.addEventListener("rota:swapped", () => {
    const chosen = colour(board);
    if (chosen !== last) requestAnimationFrame(() => sight(board.querySelector("[aria-current]")));
    last = chosen;
  });
}

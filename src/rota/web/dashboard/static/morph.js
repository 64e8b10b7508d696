// @ts-check
// Updates the content of an element to match HTML, and changes only the differences: remaining elements keep their
// focus, selection and scroll position, typed text and expanded details.

// Attributes that the viewer's actions set: expanded, selected, sent.
const OWN = new Set(["open", "aria-pressed", "data-chosen", "disabled"]);

/** @param {Element} place @param {string} html */
export function morph(place, html) {
  const made = document.createElement("template");
  made.innerHTML = html;
  children(place, made.content);
}

/** @param {Node} node */
function keyOf(node) {
  if (!(node instanceof Element)) return null;
  return node.id || node.getAttribute("data-key");
}

/** @param {Node} old @param {Node} wanted */
function same(old, wanted) {
  return (
    old.nodeType === wanted.nodeType && old.nodeName === wanted.nodeName && keyOf(old) === keyOf(wanted)
  );
}

/** @param {Node} place @param {Node} wanted */
function children(place, wanted) {
  // Remove missing elements first: the rest is then in place and need not be moved, which would lose the focus.
  const wantedKeys = new Set([...wanted.childNodes].map(keyOf));
  /** @type {Map<string, Node>} */
  const known = new Map();
  for (const child of [...place.childNodes]) {
    const key = keyOf(child);
    if (key && (!wantedKeys.has(key) || known.has(key))) place.removeChild(child);
    else if (key) known.set(key, child);
  }
  let next = place.firstChild;
  for (const child of [...wanted.childNodes]) {
    const key = keyOf(child);
    const kept = key ? known.get(key) : undefined;
    if (key) known.delete(key);
    if (kept && same(kept, child)) {
      if (kept === next) next = next.nextSibling;
      else place.insertBefore(kept, next);
      update(kept, child);
    } else if (next && !keyOf(next) && same(next, child)) {
      const old = next;
      next = next.nextSibling;
      update(old, child);
    } else {
      place.insertBefore(child, next);
    }
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove ? gone.remove() : place.removeChild(gone);
  }
}

/** @param {Node} old @param {Node} wanted */
function update(old, wanted) {
  if (!(old instanceof Element && wanted instanceof Element)) {
    if (old.nodeValue !== wanted.nodeValue) old.nodeValue = wanted.nodeValue;
    return;
  }
  if (old.isEqualNode(wanted) || old.hasAttribute("data-keep")) return;
  for (const { name } of [...old.attributes]) {
    if (!wanted.hasAttribute(name) && !OWN.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old instanceof HTMLTextAreaElement || old instanceof HTMLSelectElement) return;
  children(old, wanted);
}

// @ts-check
// Actions of buttons and forms: confirm, send a JSON request to the API, and show the result. The named fields of a
// form are the body. `data-type` is the type of a field (number, boolean, json, list); empty fields are omitted.
// Numbers in JSON are sent exactly as written, whatever their length.

const toasts = document.querySelector("[data-toasts]");
const dialog = /** @type {HTMLDialogElement | null} */ (document.querySelector("[data-dialog]"));

/** @param {string} words @param {"good" | "bad"} kind */
export function tell(words, kind = "good") {
  const toast = document.createElement("p");
  toast.className = `toast ${kind}`;
  toast.textContent = words;
  if (kind === "bad") toast.setAttribute("role", "alert");
  // Content outside of an open modal dialog is dimmed and not read by screen readers.
  (document.querySelector("dialog[open]") ?? toasts)?.append(toast);
  setTimeout(() => toast.remove(), kind === "bad" ? 12000 : 5000);
}

/** @param {string} words @param {{yes?: string, danger?: boolean}} how @returns {Promise<boolean>} */
export function confirmed(words, how = {}) {
  if (!dialog) return Promise.resolve(window.confirm(words));
  if (dialog.open) return Promise.resolve(false);
  const said = /** @type {HTMLElement} */ (dialog.querySelector("[data-words]"));
  const yes = /** @type {HTMLButtonElement} */ (dialog.querySelector("[data-yes]"));
  said.textContent = words;
  yes.textContent = how.yes ?? "yes";
  yes.classList.toggle("danger", how.danger ?? false);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }),
  );
}

/** Send a request to the API and return its response; throw an Error with its message if it fails.
 * @param {string} method @param {string} url @param {string} body */
export async function ask(method, url, body = "{}") {
  const response = await fetch(url, {
    method,
    body: method === "GET" ? undefined : body,
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    credentials: "same-origin",
  }).catch(() => {
    throw new Error("the server does not answer; try again");
  });
  const text = await response.text();
  /** @type {any} */
  let answer = null;
  try {
    answer = text === "" ? null : JSON.parse(text);
  } catch {
    // reported below
  }
  if (response.ok) return answer;
  throw new Error(answer?.error?.message ?? `the server answered with status ${response.status}`);
}

/** @param {HTMLFormElement} form */
export function bodyOf(form) {
  /** @type {string[]} */
  const parts = [];
  for (const field of form.elements) {
    if (!(field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement || field instanceof HTMLSelectElement)) continue;
    if (!field.name || field.disabled) continue;
    const json = written(field);
    if (json !== null) parts.push(`${JSON.stringify(field.name)}:${json}`);
  }
  return `{${parts.join(",")}}`;
}

/** Return a field as JSON, or null to omit it.
 * @param {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} field */
function written(field) {
  const value = field.value.trim();
  const label = field.labels?.[0]?.textContent?.trim() || field.name;
  if (field instanceof HTMLInputElement && field.type === "checkbox") return String(field.checked);
  if (value === "") return null;
  switch (field.dataset.type) {
    case "number":
      if (!Number.isFinite(Number(value))) throw new Error(`${label} must be a number, not ${value}`);
      return String(Number(value));
    case "boolean":
      return String(value === "true");
    case "list":
      return JSON.stringify(value.split(",").map((each) => each.trim()).filter(Boolean));
    case "json":
      try {
        JSON.parse(value);
      } catch (error) {
        throw new Error(`${label} is not valid JSON: ${error instanceof Error ? error.message : error}`);
      }
      return value;
    case "time":
      return JSON.stringify(new Date(value).toISOString());
    default:
      return JSON.stringify(field.value);
  }
}

/** @param {HTMLElement} element @param {() => string} body */
async function act(element, body) {
  const { act: method = "POST", url = "", confirm: words, done, leads } = element.dataset;
  const button = element instanceof HTMLFormElement ? element.querySelector("button:not([type=button])") : element;
  try {
    const sent = body();
    const danger = element.classList.contains("danger");
    if (words && !(await confirmed(words, { yes: button?.textContent?.trim(), danger }))) return;
    if (button instanceof HTMLButtonElement) button.disabled = true;
    const answer = await ask(method, url, sent);
    element.closest("dialog")?.close();
    element.dispatchEvent(new CustomEvent("rota:acted", { bubbles: true, detail: answer }));
    if (leads) {
      const filled = leads.replace("{run}", answer?.run ?? "").replace("{name}", encodeURIComponent(answer?.name ?? ""));
      const to = new URL(filled, location.href);
      location.assign(to.origin === location.origin ? to : `${document.body.dataset.root}/`);
      return;
    }
    tell(done ?? "done");
    dispatchEvent(new CustomEvent("rota:done"));
  } catch (error) {
    tell(error instanceof Error ? error.message : String(error), "bad");
  } finally {
    if (button instanceof HTMLButtonElement) button.disabled = false;
  }
}

document.addEventListener("click", (event) => {
  const target = /** @type {Element} */ (event.target);
  const opener = target.closest("[data-opens]");
  if (opener instanceof HTMLElement) {
    /** @type {HTMLDialogElement | null} */ (document.getElementById(opener.dataset.opens ?? ""))?.showModal();
    return;
  }
  const closer = target.closest("[data-closes]");
  if (closer) closer.closest("dialog")?.close();
  const copier = target.closest("[data-copy]");
  if (copier instanceof HTMLElement) {
    // A page loaded over plain HTTP from another machine has no clipboard.
    const copying = navigator.clipboard?.writeText(copier.dataset.copy ?? "") ?? Promise.reject();
    copying.then(() => tell("copied"), () => tell("this browser does not allow copying", "bad"));
    return;
  }
  const element = target.closest("button[data-act]");
  if (element instanceof HTMLElement) act(element, () => element.dataset.body ?? "{}");
});

document.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (!form.dataset.act) return;
  event.preventDefault();
  act(form, () => bodyOf(form));
});

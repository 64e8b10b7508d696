// @ts-check
// Light or dark mode: the system's preference until the user changes it. Loaded before the page is drawn to avoid a
// flash, therefore not a module.
(() => {
  const kept = localStorage.getItem("rota-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;

  document.addEventListener("click", (event) => {
    const target = /** @type {Element} */ (event.target);
    if (!target.closest("[data-theme-toggle]")) return;
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("rota-theme", root.dataset.theme);
  });
})();

// @ts-check
// Light or dark: as the system says, until somebody says otherwise. Loaded before the page is drawn, so nothing
// flashes; that is why it is no module.
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

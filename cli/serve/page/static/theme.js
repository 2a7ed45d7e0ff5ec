/* Before anything is drawn: light or dark as it was chosen; nothing chosen: as the system has it. A classic script. */
(function () {
  let chosen = null;
  try {
    chosen = localStorage.getItem("hybrid-theme");
  } catch {
    // storage is refused: as the system has it
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();

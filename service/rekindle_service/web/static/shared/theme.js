/** Light, dark, or the system's theme. Loaded render-blocking in the head, so that no page flashes in the wrong colours. */

const KEY = "rekindle-theme";
const CHOICES = ["system", "light", "dark"];

/** The user's choice; a browser without storage follows the system. */
function chosen() {
  try {
    const value = localStorage.getItem(KEY);
    return value !== null && CHOICES.includes(value) ? value : "system";
  } catch {
    return "system";
  }
}

/** @param {string} choice */
function apply(choice) {
  if (choice === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  document.dispatchEvent(new Event("themechange"));
}

/** Without storage, as in a private window, the choice lasts as long as the page. @param {string} choice */
function save(choice) {
  try {
    localStorage.setItem(KEY, choice);
  } catch {}
}

/** Let `button` switch between system, light and dark. @param {HTMLElement} button */
function wire(button) {
  let choice = chosen();
  const label = () => (button.textContent = `Theme: ${choice}`);
  button.addEventListener("click", () => {
    choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
    save(choice);
    apply(choice);
    label();
  });
  label();
}

/** Call `listener` whenever the colours change, by choice or with the system. @param {() => void} listener */
export function onThemeChange(listener) {
  document.addEventListener("themechange", listener);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", listener);
}

apply(chosen());
document.addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("theme");
  if (button) wire(button);
});

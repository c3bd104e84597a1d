/** The page of the REST API. Swagger UI is a classic script, which has run before this module. */
import { onThemeChange } from "../shared/theme.js";

/** @type {(options: Record<string, unknown>) => unknown} */
const show = /** @type {any} */ (globalThis).SwaggerUIBundle;

show({
  url: "/openapi.json",
  domNode: document.getElementById("api"),
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: -1,
  displayRequestDuration: true,
  filter: true,
  tryItOutEnabled: true,
  validatorUrl: null, // else the document would be sent to another site
});

/** Swagger UI has its dark colours under a class. */
function applyTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.classList.toggle("dark-mode", isDark);
}

onThemeChange(applyTheme);
applyTheme();

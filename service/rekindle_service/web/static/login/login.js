/**
 * Signing in: by the token in the URL fragment that `rekindle serve` prints, or by the form.
 *
 * Imports nothing: without a session the server sends only the files of this page.
 */

const form = /** @type {HTMLFormElement} */ (document.getElementById("login-form"));
const field = /** @type {HTMLInputElement} */ (document.getElementById("token"));
const message = /** @type {HTMLElement} */ (document.getElementById("login-error"));

/**
 * Where to go afterwards: never to another site, whatever the URL says. The origin precedes the path, since a path that
 * begins with two slashes would be read as another site; the fragment is the requested one.
 */
function destination() {
  const next = new URLSearchParams(location.search).get("next") ?? "/";
  const url = new URL(URL.canParse(next, location.origin) ? next : "/", location.origin);
  const path = url.origin === location.origin ? url.pathname + url.search : "/";
  return location.origin + path + location.hash;
}

/** @param {string} token @returns {Promise<string>} empty after success */
async function signInError(token) {
  try {
    const response = await fetch("/login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token }),
    });
    if (response.ok) return "";
    if (response.status === 401) return "This token is wrong, revoked or expired.";
    const problem = await response.json().catch(() => ({}));
    return problem.detail ?? `The server answered with status ${response.status}.`;
  } catch {
    return "Server unreachable. Is `rekindle serve` running?";
  }
}

/** @param {string} token */
async function signIn(token) {
  message.textContent = await signInError(token);
  if (!message.textContent) location.replace(destination());
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  void signIn(field.value.trim());
});

const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) {
  history.replaceState(null, "", location.pathname + location.search);
  void signIn(token);
}

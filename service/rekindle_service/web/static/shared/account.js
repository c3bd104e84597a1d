/**
 * What every page of a signed-in person has in its header: who that is, signing out, and the keys.
 *
 * @import { Routes } from "./api-types.d.ts"
 */
import { call, messageOf, signIn, warn } from "./api.js";
import { byId, setText } from "./dom.js";
import "./keys.js";

const RETRY_MS = 3000;

/** The person of this browser, as soon as the server has answered. */
export const me = ask();
/** @type {Awaited<typeof me> | null} */
let known = null;

/** @returns {Promise<Routes["GET /me"]["answer"]>} */
async function ask() {
  for (;;) {
    try {
      return await call("GET /me");
    } catch (error) {
      warn("your name")(error);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

/** Whether the person may change what `owner` has; as long as it is not known who they are, the server decides. @param {string | null} owner */
export const mayChange = (owner) => !known || known.scope === "admin" || (known.scope === "submit" && known.person === owner);

/** End the session on the server, too: a copy of the cookie is worth nothing afterwards. */
async function signOut() {
  const response = await fetch("/logout", { method: "POST", cache: "no-store" });
  if (!response.ok && response.status !== 401) throw new Error(`the server answered with status ${response.status}`);
  signIn();
}

/** @param {Awaited<typeof me>} person */
function show({ person, scope, via }) {
  document.documentElement.dataset.scope = scope; // what needs more is not offered, see base.css
  const label = byId("person");
  setText(label, scope === "submit" ? person : `${person} (${scope})`);
  label.title = `Signed in as ${person}, scope ${scope}`;
  label.hidden = false;
  byId("sign-out").hidden = via !== "browser";
}

/** @param {unknown} error */
function showFailure(error) {
  byId("person").classList.add("error");
  setText(byId("person"), messageOf(error));
}

byId("sign-out").addEventListener("click", () => signOut().catch(showFailure));
void me.then((person) => {
  known = person;
  show(person);
});

/**
 * A notice on the desktop when a job ends, while this page is open and after the person has asked for it.
 *
 * @import { JobPublic as Job } from "../shared/api-types.d.ts"
 */
import { remember, remembered } from "../shared/browser-storage.js";
import { byId, setText } from "../shared/dom.js";

const KEY = "rekindle-notices";

export class DesktopNotices {
  #button = byId("notices", HTMLButtonElement);
  #isOn = "Notification" in globalThis && remembered(KEY) === true && Notification.permission === "granted";

  constructor() {
    this.#button.hidden = !("Notification" in globalThis);
    this.#button.addEventListener("click", () => void this.#toggle());
    this.#show("");
  }

  /** @param {Job} job that has just ended */
  ended({ id, name, number, state, reason }) {
    if (this.#isOn) new Notification(`#${number} ${name} ${state}`, { body: reason, tag: id });
  }

  async #toggle() {
    const permission = this.#isOn ? "" : await Notification.requestPermission();
    this.#isOn = permission === "granted";
    remember(KEY, this.#isOn);
    this.#show(permission === "denied" ? "The browser blocks notifications of this page" : "");
  }

  /** @param {string} problem */
  #show(problem) {
    this.#button.setAttribute("aria-pressed", String(this.#isOn));
    setText(this.#button, problem || (this.#isOn ? "Notifications on" : "Notify me"));
    this.#button.title = "Show a desktop notification when a job ends, while this page is open";
  }
}

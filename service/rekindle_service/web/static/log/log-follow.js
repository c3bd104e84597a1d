/** The button that follows the output, where there may be any; a log that gets none has an end to go to. */
import { byId, setText } from "../shared/dom.js";

export class FollowButton {
  #node = byId("log-follow");
  #isLive = true;
  #isFollowing = true;
  #hasNew = false;

  /** @param {() => void} onClick */
  constructor(onClick) {
    this.#node.addEventListener("click", onClick);
  }

  /** @param {boolean} isLive the log that is shown may grow */
  setLive(isLive) {
    this.#isLive = isLive;
    this.#draw();
  }

  /** @param {boolean} isFollowing @param {boolean} [hasNew] there is output that is not shown */
  show(isFollowing, hasNew = false) {
    this.#isFollowing = isFollowing;
    this.#hasNew = hasNew;
    this.#draw();
  }

  #draw() {
    const isShown = this.#isLive || !this.#isFollowing;
    this.#node.hidden = !isShown;
    if (this.#isLive) this.#node.setAttribute("aria-pressed", String(this.#isFollowing));
    else this.#node.removeAttribute("aria-pressed");
    setText(this.#node, !this.#isLive ? "Go to the end" : this.#isFollowing ? "Following" : this.#hasNew ? "New output below ↓" : "Follow");
  }
}

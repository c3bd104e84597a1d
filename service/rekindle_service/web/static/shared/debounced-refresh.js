/**
 * Refreshes of a whole page: one at a time, and none while the page is hidden. Requests that come meanwhile lead to one
 * refresh afterwards. So a slow server gets no second request before it has answered, and no old answer overwrites a
 * newer one.
 */
export class DebouncedRefresh {
  #refresh;
  #delay;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #running = false;
  #requested = false;
  #urgent = false;
  #started = false;

  /**
   * @param {() => Promise<unknown>} refresh fetches and shows
   * @param {number} delay milliseconds in which many events lead to one refresh
   */
  constructor(refresh, delay) {
    this.#refresh = refresh;
    this.#delay = delay;
    document.addEventListener("visibilitychange", () => this.#requested && this.now());
  }

  /** Something has changed. */
  soon() {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.#run();
    }, this.#delay);
  }

  /** The user waits for it. */
  now() {
    this.#urgent = true;
    void this.#run();
  }

  /** The first one also runs in a hidden tab, which is recognised by its title. */
  async #run() {
    this.#requested = true;
    if (this.#running || (document.hidden && this.#started)) return;
    this.#running = this.#started = true;
    this.#requested = this.#urgent = false;
    try {
      await this.#refresh();
    } catch (error) {
      console.warn("the page could not be refreshed", error);
    } finally {
      this.#running = false;
    }
    if (this.#requested) this.#urgent ? void this.#run() : this.soon();
  }
}

/**
 * Refreshes of a whole page: one at a time, and none while nobody looks. What is asked for meanwhile is done once,
 * afterwards. So a slow server is not asked again before it has answered, and no old answer comes after a newer one.
 */
export class Refreshing {
  #refresh;
  #settle;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #running = false;
  #wanted = false;
  #urgent = false;
  #begun = false;

  /**
   * @param {() => Promise<void>} refresh fetches and draws; tells of its failures by itself
   * @param {number} settle milliseconds in which many events lead to one refresh
   */
  constructor(refresh, settle) {
    this.#refresh = refresh;
    this.#settle = settle;
    document.addEventListener("visibilitychange", () => this.#wanted && this.now());
  }

  /** Something has changed. */
  soon() {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.#run();
    }, this.#settle);
  }

  /** The reader waits for it. */
  now() {
    this.#urgent = true;
    void this.#run();
  }

  /** The first one is done behind other tabs as well: a tab is found by its title. */
  async #run() {
    this.#wanted = true;
    if (this.#running || (document.hidden && this.#begun)) return;
    this.#running = this.#begun = true;
    this.#wanted = this.#urgent = false;
    try {
      await this.#refresh();
    } finally {
      this.#running = false;
    }
    if (this.#wanted) this.#urgent ? void this.#run() : this.soon();
  }
}

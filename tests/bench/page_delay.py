"""How soon what happens is on the page: a line of a log, a finished step, a change of state, in Chromium.

    python tests/bench/page_delay.py --times 100

The job is played: this program writes what keeper and ranks would, at moments of its own choosing, and the page says
when it has drawn it. Both read the same clock.
"""

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))

from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from rekindle.contract.outcome import Outcome, OutcomeClass

_DRAWN = """([selector, text]) => new Promise(resolve => {
  const shown = () => [...document.querySelectorAll(selector)].some(node => node.textContent.includes(text));
  const look = () => {
    if (!shown()) return;
    observer.disconnect();
    requestAnimationFrame(() => resolve((performance.timeOrigin + performance.now()) / 1000));
  };
  const observer = new MutationObserver(look);
  observer.observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
  look();
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="of each kind")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f} before, {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="page-") as directory, sync_playwright() as playwright:
        server = ServeProcess(Path(directory))
        server.start()
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            measure(browser.new_page(), server, PlayedJob(Path(directory), "delays"), options.times)
        finally:
            browser.close()
            server.stop()


def measure(page: Page, server: ServeProcess, job: PlayedJob, times: int) -> None:
    job.begin_attempt()
    page.goto(f"{server.url}/login#token={server.token}")
    page.wait_for_url(f"{server.url}/")
    page.goto(f"{server.url}/jobs/{job.id}")
    page.wait_for_selector("#ranks tr")
    job.write(b"ready\n")
    page.locator("#log-lines", has_text="ready").wait_for()
    print("| event | median, s | p95, s | slowest, s |\n|---|---|---|---|")
    report("a line of a log", [delay(page, "#log-lines", *a_line(job, n)) for n in range(times)])
    report("a step of a rank", [delay(page, "#ranks tr", *a_step(job, n)) for n in range(times)])
    report("a point of a metric", [delay(page, ".chart .latest", *a_point(job, n)) for n in range(times)])
    report("a change of state", [delay(page, "#job-state", *a_state(job, n)) for n in range(times)])
    job.close()


def a_line(job: PlayedJob, number: int) -> tuple[str, Callable[[], None]]:
    text = f"line {number:06d}."
    return text, lambda: job.write(f"{text}\n".encode())


def a_step(job: PlayedJob, number: int) -> tuple[str, Callable[[], None]]:
    return f"{number + 100} / ", lambda: job.report(1, step=number + 100)


def a_point(job: PlayedJob, number: int) -> tuple[str, Callable[[], None]]:
    return f"at step {number + 100}", lambda: job.metric(number + 100, loss=1.0)


def a_state(job: PlayedJob, number: int) -> tuple[str, Callable[[], None]]:
    if number % 2:
        return "running", job.begin_attempt

    def fail() -> None:
        job.end_attempt(Outcome(OutcomeClass.SIGNAL, "rank 1 was killed by SIGKILL", rank=1), last_step=number)
        job.retry_in(3600)

    return "recovering", fail


def delay(page: Page, selector: str, text: str, event: Callable[[], None]) -> float:
    """Seconds from ``event`` until ``text`` is drawn; the event comes at a moment that the page cannot know."""
    happened = []

    def happen() -> None:
        happened.append(time.time())
        event()

    timer = threading.Timer(random.uniform(0.3, 1.0), happen)
    timer.start()
    drawn = page.evaluate(_DRAWN, [selector, text])
    timer.join()
    return float(drawn) - happened[0]


def report(kind: str, delays: list[float]) -> None:
    delays = sorted(delays)
    p95 = delays[int(0.95 * len(delays))]
    print(f"| {kind} | {statistics.median(delays):.2f} | {p95:.2f} | {delays[-1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()

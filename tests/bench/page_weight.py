"""What the pages weigh: bytes, requests, first paint and first chart in Chromium, here and on a slow line.

    python tests/bench/page_weight.py --before ../before --times 5

``--before`` is another checkout with its own ``.venv``; both are measured alternately in one run. The job is played:
this program writes what keeper and ranks would. On the slow line all connections of the browser, also those of its
shared worker, pass through a relay with 80 ms to the server and back and 10 Mbit/s.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

_ROUND_TRIP = 0.08  # seconds
_BANDWIDTH = 10e6 / 8  # bytes a second
_WATCHED = 20.0  # seconds
_CHART = ".plot .scatterlayer .trace, .plot[aria-description]"
_NOTICE_CHART = """() => {
  const look = () => {
    if (document.querySelector(%s)) globalThis.firstChart ??= performance.now();
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}""" % json.dumps(_CHART)  # noqa: UP031  # braces of JavaScript
_ROWS = ("job page, KB", "job page, requests", "first paint, s", "first chart, s")


class Line:
    """A relay between browser and server that counts, and that may be slow."""

    def __init__(self, port: int, *, is_slow: bool) -> None:
        self._target, self._is_slow = port, is_slow
        self.received = self.requests = 0
        self._free_at = 0.0
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        starting = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._relay, "127.0.0.1", 0), self._loop)
        self._server = starting.result()
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_slow:
            await asyncio.sleep(_ROUND_TRIP)  # the connection is made
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(self._pass_on(reader, up_writer, up=True), self._pass_on(up_reader, writer, up=False))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sender = asyncio.create_task(self._send(queue, writer))
        while data := await reader.read(16_384):
            queue.put_nowait((self._arrival(len(data), up=up), data))
            self.requests += data.count(b" HTTP/1.1\r\n") if up else 0
            self.received += 0 if up else len(data)
        queue.put_nowait((0.0, b""))
        await sender

    def _arrival(self, size: int, *, up: bool) -> float:
        now = self._loop.time()
        if not self._is_slow:
            return now
        if up:
            return now + _ROUND_TRIP / 2
        self._free_at = max(now, self._free_at) + size / _BANDWIDTH
        return self._free_at + _ROUND_TRIP / 2

    async def _send(self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            if not data:
                writer.close()
                return
            writer.write(data)


def visit(page: Page, line: Line, path: str) -> dict[str, float]:
    """Go to a page with charts: seconds from the navigation, and what has passed the line until they are drawn."""
    page.goto("about:blank")
    before = line.received, line.requests
    page.goto(f"{line.url}{path}")
    page.wait_for_selector(_CHART, state="attached")
    page.wait_for_timeout(1000)  # what the page loads without being asked
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    chart = page.evaluate("globalThis.firstChart")
    figures = (line.received - before[0]) / 1000, line.requests - before[1], paint / 1000, chart / 1000
    return dict(zip(_ROWS, figures, strict=True))


def measure_visits(browser: Browser, server: Any, job: Any) -> dict[str, dict[str, float]]:
    """The job's page, cold and warm, on both lines."""
    found = {}
    for name, is_slow in (("here", False), ("80 ms, 10 Mbit/s", True)):
        line = Line(int(server.url.rpartition(":")[2]), is_slow=is_slow)
        context = browser.new_context()
        page = context.new_page()
        context.request.post(f"{server.url}/login", data={"token": server.token})  # a cookie is of all ports
        page.add_init_script(f"({_NOTICE_CHART})()")
        found[f"{name}, cold"] = visit(page, line, f"/jobs/{job.id}")
        found[f"{name}, warm"] = visit(page, line, f"/jobs/{job.id}")
        context.close()
    return found


def measure_watching(browser: Browser, server: Any, job: Any) -> float:
    """The share of a core that the page's main thread takes while two ranks report and the log of one is shown."""
    page = browser.new_context().new_page()
    page.context.request.post(f"{server.url}/login", data={"token": server.token})
    page.goto(f"{server.url}/jobs/{job.id}")
    page.wait_for_selector(_CHART, state="attached")
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})  # processor time

    def busy() -> float:
        metrics = devtools.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    before, started = busy(), time.monotonic()
    step = 1000
    while time.monotonic() - started < _WATCHED:
        step += 1
        job.metric(step, loss=1 / step, accuracy=step / 1000)
        for rank in range(2):
            job.report(rank, step=step)
            job.write(f"step {step} done, loss {1 / step:.5f}\n".encode(), rank=rank)
        page.wait_for_timeout(100)
    share = (busy() - before) / (time.monotonic() - started)
    page.context.close()
    return share


@contextmanager
def served(tree: Path) -> Iterator[tuple[Browser, Any, Any]]:
    """A browser, and a server of this checkout with a job of two ranks and 1,000 steps."""
    sys.path.insert(0, str(tree / "tests"))
    from e2e.played_job import PlayedJob
    from e2e.serve_process import ServeProcess

    arguments = ["--no-sandbox", "--disable-gpu"]
    with tempfile.TemporaryDirectory(prefix="page-") as directory, ServeProcess(Path(directory)) as server:
        job = PlayedJob(Path(directory), "weighed")
        job.begin_attempt()
        for step in range(1, 1001):
            job.metric(step, loss=1 / step, accuracy=step / 1000)
        job.report(0, step=1000)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
            yield browser, server, job
            browser.close()
        job.close()


def measure_once(tree: Path, *, is_watched: bool) -> dict[str, Any]:
    """One measurement of a checkout, by its own interpreter."""
    command = [str(tree / ".venv/bin/python"), __file__, "--tree", str(tree), *(["--watch"] if is_watched else [])]
    return dict(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))


def report(found: dict[str, list[dict[str, Any]]]) -> None:
    print("| the page of a job with 1,000 steps |", " | ".join(found), "|\n|---|" + "---|" * len(found))
    first = next(iter(found.values()))[0]["visits"]
    for visited in first:
        for row in _ROWS:
            medians = [statistics.median(run["visits"][visited][row] for run in runs) for runs in found.values()]
            texts = [f"{median:.2f}" if row.endswith(" s") else f"{median:,.0f}" for median in medians]
            print(f"| {row.removeprefix('job page, ')}; {visited} |", " | ".join(texts), "|")
    shares = [f"{100 * runs[0]['watching']:.1f} %" for runs in found.values()]
    print("| main thread while two ranks are watched, of a core |", " | ".join(shares), "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5, help="visits of each kind, of which the median is shown")
    parser.add_argument("--before", type=Path, help="another checkout, with its own .venv")
    parser.add_argument("--tree", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--watch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tree:
        with served(options.tree) as parts:
            figures = {"visits": measure_visits(*parts), "watching": measure_watching(*parts) if options.watch else 0.0}
        print(json.dumps(figures))
        return
    print(f"load {os.getloadavg()[0]:.2f} before, {os.cpu_count()} cores", flush=True)
    trees = {"before": options.before.resolve()} if options.before else {}
    trees["now"] = Path(__file__).resolve().parents[2]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in trees}
    for number in range(options.times):
        for name, tree in trees.items():
            found[name].append(measure_once(tree, is_watched=number == 0))
    report(found)


if __name__ == "__main__":
    main()

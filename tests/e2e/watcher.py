"""Notices what a page must never do."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Error, Page, Request


class Watcher:
    """Everything that a well-behaved page never does."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self._expected: list[str] = []

    def watch(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", self._page_error)
        page.on("dialog", self._dialog)

    def request(self, request: Request) -> None:
        """Nothing that a page loads or sends leaves the machine."""
        url = urlsplit(request.url)
        if url.scheme not in ("data", "blob") and url.hostname != "127.0.0.1":
            self.complaints.append(f"a request to {request.url}")

    def expect(self, text: str) -> None:
        """From now on the browser may note errors that contain ``text``: the test causes them."""
        self._expected.append(text)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not any(text in message.text for text in self._expected):
            self.complaints.append(f"{message.text} ({message.location.get('url')})")

    def _page_error(self, error: Error) -> None:
        self.complaints.append(f"uncaught: {error}")

    def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()


@contextmanager
def watched_browser(chromium: Browser, url: str, watcher: Watcher) -> Iterator[BrowserContext]:
    """A browser whose addresses are relative to ``url`` and whose pages are watched; in the end none has misbehaved."""
    context = chromium.new_context(base_url=url, viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(20_000)
    context.on("page", watcher.watch)
    context.on("request", watcher.request)
    yield context
    context.close()
    assert watcher.complaints == []


def found_by_axe(page: Page) -> list[str]:
    """What axe-core finds to be inaccessible."""
    violations = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {node['html'][:200]} {node['failureSummary']}" for each in violations for node in each["nodes"]
    ]

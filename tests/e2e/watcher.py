"""Notices what a page must never do."""

from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Dialog, Error, Page, Request


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

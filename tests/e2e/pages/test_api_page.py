"""The page of the API: it shows all routes, and a request can be tried out with the session of the browser."""

from playwright.sync_api import Page, expect

from e2e.serve_process import ServeProcess
from e2e.watcher import Watcher

_RENDERED = 120_000  # ms; Swagger UI takes seconds of a core for the whole document


def test_a_route_is_found_read_and_tried_out_with_the_session(
    page: Page, server: ServeProcess, watcher: Watcher
) -> None:
    """``watcher`` fails the test where the page violates its policy or asks another site."""
    page.goto(server.url)
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Go to").fill("rest api")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{server.url}/docs/api")
    page.locator("#operations-tag-access").click(timeout=_RENDERED)
    route = page.locator(".opblock", has=page.locator("[data-path='/api/v1/me']"))
    route.locator(".opblock-summary-control").click(timeout=_RENDERED)
    route.get_by_role("button", name="Execute").click(timeout=_RENDERED)
    expect(route.locator(".live-responses-table")).to_contain_text('"person": "root"', timeout=_RENDERED)

"""Signing in to the page."""

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from e2e.serve_process import ServeProcess
from e2e.watcher import Watcher
from rekindle_service.client import Client, Server


@pytest.fixture
def stranger(visitor: BrowserContext) -> Page:
    """A page of a browser that has not signed in."""
    return visitor.new_page()


def test_the_token_in_the_fragment_signs_in_and_leaves_no_trace(stranger: Page, server: ServeProcess) -> None:
    stranger.goto(f"/login#token={server.token}")
    stranger.wait_for_url("/")
    expect(stranger.locator("#connection")).to_have_text("Live")
    assert stranger.evaluate("history.length") == 2  # the blank page of a new tab, and this one
    [cookie] = stranger.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert server.token not in str(cookie)
    assert stranger.evaluate("document.cookie") == ""


def test_the_form_refuses_a_wrong_token_and_takes_the_right_one(
    stranger: Page, server: ServeProcess, watcher: Watcher
) -> None:
    watcher.expect("401")
    stranger.goto("/login")
    stranger.get_by_label("Access token").fill("not the token")
    stranger.get_by_role("button", name="Sign in").click()
    expect(stranger.get_by_role("alert")).to_have_text("This token is wrong, revoked or expired.")
    stranger.get_by_label("Access token").fill(server.token)
    stranger.keyboard.press("Enter")
    stranger.wait_for_url("/")


def test_signing_in_never_leads_to_another_site(stranger: Page, server: ServeProcess, watcher: Watcher) -> None:
    watcher.expect("404")
    hosts = ("//evil.example/x", "https://evil.example/", "/\\evil.example", "/.//evil.example")
    for foreign in (*hosts, "http://[", "javascript:alert(1)"):
        page = stranger.context.new_page()
        page.goto(f"/login?next={foreign}#token={server.token}")
        page.wait_for_url(lambda url: "/login" not in url)
        assert page.url.startswith(f"{server.url}/")
        page.close()


def test_the_page_says_who_is_signed_in_whose_jobs_there_are_and_signs_out(
    stranger: Page, server: ServeProcess, client: Client
) -> None:
    new = client.create_token("anna.b", "submit")
    client.submit({"recipe": "rl", "device": "cpu", "name": "of-root", "hold": True})
    with Client(lambda: Server(server.url, new["token"])) as anna:
        anna.submit({"recipe": "rl", "device": "cpu", "name": "of-anna", "hold": True})
    stranger.goto(f"/login#token={new['token']}")
    expect(stranger.locator("#person")).to_have_text("anna.b")
    expect(stranger.locator("#jobs").get_by_role("row", name="of-anna").locator(".owner")).to_have_text("anna.b")
    expect(stranger.locator("#jobs").get_by_role("row", name="of-root")).to_be_visible()
    cookies = stranger.context.cookies()
    stranger.get_by_role("button", name="Sign out").click()
    stranger.wait_for_url(lambda url: "/login" in url)
    assert stranger.context.cookies() == []
    stranger.context.add_cookies(cookies)
    stranger.goto("/")
    stranger.wait_for_url(lambda url: "/login" in url)


@pytest.mark.parametrize("scope", ["submit", "read"])
def test_nobody_is_offered_what_would_be_refused(
    stranger: Page, server: ServeProcess, client: Client, scope: str
) -> None:
    me = f"carl-{scope}"
    token = client.create_token(me, "submit")["token"]
    others = client.submit({"recipe": "rl", "device": "cpu", "name": f"others-{scope}", "hold": True})
    with Client(lambda: Server(server.url, token)) as carl:
        own = carl.submit({"recipe": "rl", "device": "cpu", "name": f"own-{scope}", "hold": True})
    if scope == "read":
        token = client.create_token(me, "read")["token"]
    stranger.goto(f"/login#token={token}")
    urgent, waiting = stranger.locator("#needs-you .job-name"), stranger.locator("#next")
    expect(waiting.get_by_role("row", name=others["name"])).to_be_visible()
    expect(urgent).to_have_text([own["name"]] if scope == "submit" else [])
    for job in (others, own):
        allowed = scope == "submit" and job is own
        stranger.goto("/?q=" + job["name"])
        stranger.get_by_label(f"Select job {job['number']}").check()
        expect(stranger.locator("#bulk-release")).to_be_enabled(enabled=allowed)
        expect(stranger.locator("#bulk-tag")).to_be_enabled(enabled=allowed)
        stranger.goto(f"/jobs/{job['id']}")
        expect(stranger.locator("#job-name")).to_have_text(job["name"])
        expect(stranger.locator("#release")).to_be_visible(visible=allowed)
        expect(stranger.locator("#clone")).to_be_visible(visible=scope == "submit")


def test_a_page_goes_to_the_sign_in_page_when_its_token_is_revoked(
    stranger: Page, server: ServeProcess, client: Client, watcher: Watcher
) -> None:
    watcher.expect("401")
    new = client.create_token("carl", "read")
    stranger.goto(f"/login#token={new['token']}")
    expect(stranger.locator("#person")).to_have_text("carl (read)")
    expect(stranger.locator("#connection")).to_have_text("Live")
    client.revoke_token(new["id"])
    stranger.wait_for_url(lambda url: "/login" in url)

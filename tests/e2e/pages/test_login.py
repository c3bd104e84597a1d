"""Signing in to the page."""

from collections.abc import Callable

from playwright.sync_api import BrowserContext, expect

from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from e2e.watcher import Watcher
from rekindle_service.client import Client, Server


def test_the_token_in_the_fragment_signs_in_and_leaves_no_trace(visitor: BrowserContext, server: ServeProcess) -> None:
    page = visitor.new_page()
    page.goto(f"{server.url}/login#token={server.token}")
    page.wait_for_url(f"{server.url}/")
    expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    assert page.evaluate("history.length") == 2  # the blank page of a new tab, and this one
    [cookie] = visitor.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert server.token not in str(cookie)
    assert page.evaluate("document.cookie") == ""


def test_the_form_refuses_a_wrong_token_and_takes_the_right_one(
    visitor: BrowserContext, server: ServeProcess, watcher: Watcher
) -> None:
    watcher.expect("401")
    page = visitor.new_page()
    page.goto(f"{server.url}/login")
    page.get_by_label("Access token").fill("not the token")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("This token is wrong, revoked or expired.")
    page.get_by_label("Access token").fill(server.token)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{server.url}/")


def test_a_page_asked_for_without_a_session_is_shown_after_signing_in(
    visitor: BrowserContext, server: ServeProcess, play: Callable[..., PlayedJob]
) -> None:
    job = play("digits")
    page = visitor.new_page()
    whole = f"{server.url}/jobs/{job.id}?from=mail#log/0/stdout/1/0"
    page.goto(whole)
    page.get_by_label("Access token").fill(server.token)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(whole)
    expect(page.get_by_role("heading", name="digits")).to_be_visible()


def test_signing_in_never_leads_to_another_site(
    visitor: BrowserContext, server: ServeProcess, watcher: Watcher
) -> None:
    watcher.expect("404")
    for foreign in (
        "//evil.example/x",
        "https://evil.example/",
        "/\\evil.example",
        "/.//evil.example",
        "http://[",
        "javascript:alert(1)",
    ):
        page = visitor.new_page()
        page.goto(f"{server.url}/login?next={foreign}#token={server.token}")
        page.wait_for_url(lambda url: "/login" not in url)
        assert page.url.startswith(f"{server.url}/")
        page.close()


def test_the_page_says_who_is_signed_in_whose_jobs_there_are_and_signs_out(
    visitor: BrowserContext, server: ServeProcess, client: Client
) -> None:
    new = client.create_token("anna.b", "submit")
    jobs = [client.submit({"recipe": "rl", "device": "cpu", "name": "of-root"})]
    with Client(lambda: Server(server.url, new["token"])) as anna:
        jobs.append(anna.submit({"recipe": "rl", "device": "cpu", "name": "of-anna"}))
    page = visitor.new_page()
    page.goto(f"{server.url}/login#token={new['token']}")
    expect(page.locator("#person")).to_have_text("anna.b")
    expect(page.locator("#jobs").get_by_role("row", name="of-anna").locator(".owner")).to_have_text("anna.b")
    expect(page.locator("#jobs").get_by_role("row", name="of-root")).to_be_visible()
    line = page.get_by_label("Filter", exact=True)
    line.fill("owner:anna.b")
    line.press("Enter")
    expect(page.locator("#jobs").get_by_role("row", name="of-root")).to_be_hidden()
    cookies = visitor.cookies()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(lambda url: "/login" in url)
    assert visitor.cookies() == []
    visitor.add_cookies(cookies)
    page.goto(server.url)
    page.wait_for_url(lambda url: "/login" in url)
    for job in jobs:
        client.cancel(job["id"])


def test_a_page_goes_to_the_sign_in_page_when_its_token_is_revoked(
    visitor: BrowserContext, server: ServeProcess, client: Client, watcher: Watcher
) -> None:
    watcher.expect("401")
    new = client.create_token("carl", "read")
    page = visitor.new_page()
    page.goto(f"{server.url}/login#token={new['token']}")
    expect(page.locator("#person")).to_have_text("carl (read)")
    expect(page.locator("#connection")).to_have_text("Live")
    client.revoke_token(new["id"])
    page.wait_for_url(lambda url: "/login" in url)

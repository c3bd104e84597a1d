"""URLs that a person opens in a browser."""

import re
from pathlib import Path

import pytest

from api_server import ApiServer
from rekindle_service.api.middleware import SECURITY_HEADERS

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_the_number_of_a_job_leads_to_its_page(server: ApiServer, code: Path) -> None:
    job = server.submit(code)
    answer = server.api.get(f"/jobs/{job['number']}?diff=x", headers=BROWSER, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"].partition("8700")[2]) == (307, f"/jobs/{job['id']}?diff=x")
    assert server.api.get(f"/jobs/{job['id']}", headers=BROWSER).status_code == 200


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/nosuchpage", "<p>There is no page /nosuchpage.</p>"),
        ("/<script>alert(1)</script>", "&lt;script&gt;"),
        ("/jobs/" + "9" * 30, "No job is called"),
        ("/jobs/4711", "No job is called &#39;4711&#39;, nor has it as id or number; there is no job yet."),
    ],
)
def test_a_person_gets_a_page_with_the_problem(server: ApiServer, path: str, sentence: str) -> None:
    answer = server.api.get(path, headers=BROWSER)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "<h1>Page not found</h1>" in answer.text
    assert sentence in answer.text
    assert "<script>alert" not in answer.text
    assert "Content-Security-Policy" in answer.headers


def test_programs_get_problems(server: ApiServer) -> None:
    for path, headers in (("/nosuchpage", {}), ("/api/v1/nosuchroute", BROWSER), ("/static/nosuchfile.js", BROWSER)):
        answer = server.api.get(path, headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_the_page_of_the_api_has_the_policy_of_all_pages_and_its_files_are_kept(server: ApiServer) -> None:
    page = server.api.get("/docs/api")
    assert page.headers["Content-Security-Policy"] == SECURITY_HEADERS["Content-Security-Policy"]
    urls = re.findall(r'"(/docs/api/[^"]+)"', page.text)
    assert len(urls) == 2
    for url in urls:
        answer = server.api.get(url, headers={"Accept-Encoding": "gzip"})
        assert (answer.status_code, answer.headers["Content-Encoding"]) == (200, "gzip")
        assert answer.content == server.api.get(url, headers={"Accept-Encoding": "identity"}).content
        assert "immutable" in answer.headers["Cache-Control"]
        assert server.api.get(f"{url}.map").status_code == 404

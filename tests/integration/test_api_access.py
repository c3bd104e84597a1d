import json
import re
import time

import pytest
from fastapi.routing import iter_route_contexts

from api_server import TOKEN, ApiServer
from rekindle_service.access.access_control import FailureLimit
from rekindle_service.access.sessions import Sessions
from rekindle_service.access.tokens import Tokens
from rekindle_service.api.auth import OPEN_ROUTES
from rekindle_service.api.problems import SECURITY_HEADERS
from rekindle_service.store.tables import AuditEntry

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


@pytest.fixture
def server(shared_server: ApiServer) -> ApiServer:
    """Nobody is signed in, and no wrong token was sent."""
    shared_server.stranger.cookies.clear()
    shared_server.state.access.failures = FailureLimit()
    return shared_server


def all_paths(server: ApiServer) -> list[str]:
    paths = {context.path for context in iter_route_contexts(server.app.routes)}
    names = {"job_id": "abcdefghij", "rank": "0", "path:path": "shared/api.js"}
    for name, value in names.items():
        paths = {path.replace("{" + name + "}", value) for path in paths}
    files = {"/static/shared/api.js", "/static/shared/base.css"}
    return sorted(paths | files | {"/nowhere", "/api/v1"})


def test_every_route_and_method_off_the_list_needs_a_token(server: ApiServer) -> None:
    paths = all_paths(server)
    assert "/api/v1/jobs/abcdefghij/ranks/0/log" in paths
    assert "/openapi.json" in paths
    for path in paths:
        for method in METHODS:
            answer = server.stranger.request(method, path)
            if (method, path) in OPEN_ROUTES:
                assert answer.status_code == (422 if path == "/login" and method == "POST" else 200), (method, path)
            else:
                assert answer.status_code == 401, (method, path, answer.status_code)
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_the_login_page_loads_only_open_files(server: ApiServer) -> None:
    page = server.stranger.get("/login").text
    for path in re.findall(r'(?:href|src)="(/static/[^"]+)"', page):
        answer = server.stranger.get(path)
        assert answer.status_code == 200, path
        assert "import " not in answer.text or path.endswith(".svg"), path


def test_a_wrong_token_is_rejected_whatever_its_bytes(server: ApiServer) -> None:
    for header in (
        b"Bearer wrong",
        b"Bearer",
        b"",
        f"Basic {TOKEN}".encode(),
        TOKEN.encode(),
        "Bearer \N{LATIN SMALL LETTER SHARP S}\N{SNOWMAN}".encode(),
        b"Bearer \xff\xfe\x00",
        f"Bearer {TOKEN}x".encode(),
        f"Bearer {TOKEN[:-1]}".encode(),
        b"Bearer " + b"x" * 20_000,
    ):
        answer = server.stranger.get("/api/v1/jobs", headers=[(b"authorization", header)])
        assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json"), header


def test_the_scheme_of_the_bearer_may_have_any_case(server: ApiServer) -> None:
    assert server.stranger.get("/api/v1/jobs", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200


def test_the_token_is_not_kept_in_memory(server: ApiServer) -> None:
    tokens = server.state.access.tokens
    assert TOKEN not in repr(vars(tokens))
    assert tokens.home_digest in repr(vars(tokens))


# --- browser


def log_in(server: ApiServer) -> str:
    answer = server.stranger.post("/login", json={"token": TOKEN}, headers=SAME_ORIGIN)
    assert answer.status_code == 204
    return answer.headers["set-cookie"]


def test_the_cookie_of_a_login_is_for_this_site_only_and_hides_the_token(
    server: ApiServer,
) -> None:
    cookie = log_in(server)
    assert cookie.startswith(f"{server.state.access.sessions.cookie}=")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert server.stranger.get("/api/v1/jobs").status_code == 200
    assert server.stranger.get("/").status_code == 200
    assert server.stranger.get("/jobs").headers["location"] == "/"


def test_sessions_of_two_servers_of_a_machine_live_side_by_side(server: ApiServer) -> None:
    log_in(server)
    other = Sessions(server.state.store, Tokens(server.state.store, "token of another server"))
    assert other.cookie != server.state.access.sessions.cookie
    server.stranger.cookies.set(other.cookie, "x", domain="127.0.0.1")
    assert server.stranger.get("/api/v1/jobs").status_code == 200


def test_an_odd_cookie_of_another_server_does_not_log_out(server: ApiServer) -> None:
    own = log_in(server).partition(";")[0]
    server.stranger.cookies.clear()
    quoted = ('prefs={"a":1}', 'open="quote', "x=\\777")
    for odd in (*quoted, "name=two words", "na me=x", "grüße=x", "lonely", "=", "a=b=c", "[]=1"):
        for header in (f"{odd}; {own}", f"{own}; {odd}"):
            answer = server.stranger.get("/api/v1/jobs", headers=[(b"cookie", header.encode())])
            assert answer.status_code == 200, header


def test_a_wrong_token_does_not_log_in(server: ApiServer) -> None:
    for token in ("wrong", "é\u0000", ""):
        answer = server.stranger.post("/login", json={"token": token}, headers=SAME_ORIGIN)
        assert (answer.status_code, "set-cookie" in answer.headers) == (401, False), token


def test_a_page_request_without_session_leads_to_the_login_page_and_back(server: ApiServer) -> None:
    answer = server.stranger.get("/jobs/abcdefghij", headers={"Accept": "text/html,*/*"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fjobs%2Fabcdefghij"
    asked = server.stranger.get("/compare?jobs=a,b%26c&x=%C3%A9", headers={"Accept": "text/html"})
    assert asked.headers["location"] == "/login?next=%2Fcompare%3Fjobs%3Da%2Cb%2526c%26x%3D%25C3%25A9"
    assert server.stranger.get("/jobs/abcdefghij").status_code == 401
    assert server.stranger.get("/api/v1/jobs", headers={"Accept": "text/html"}).status_code == 401


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_a_change_by_cookie_must_come_from_a_page_of_this_server(server: ApiServer, method: str) -> None:
    log_in(server)
    path = "/api/v1/jobs/abcdefghij" + ("/cancel" if method == "POST" else "")
    for status, headers in (
        (404, {"Sec-Fetch-Site": "same-origin"}),
        (404, {"Sec-Fetch-Site": "none"}),
        (404, {"Origin": "http://127.0.0.1:8700"}),
        (403, {}),
        (403, {"Sec-Fetch-Site": "cross-site"}),
        (403, {"Sec-Fetch-Site": "same-site"}),
        (403, {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:8700"}),
        (403, {"Origin": "http://evil.example"}),
        (403, {"Origin": "http://127.0.0.1:9999"}),
        (403, {"Origin": "null"}),
        (403, {"Origin": "http://[::1"}),
    ):
        body = {"priority": 1} if method == "PATCH" else None
        assert server.stranger.request(method, path, json=body, headers=headers).status_code == status, headers


def test_no_form_and_no_login_of_another_site_is_accepted(server: ApiServer) -> None:
    log_in(server)
    for origin in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        for form in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"):
            headers = {"Content-Type": form, **origin}
            assert server.stranger.post("/api/v1/jobs", content=b"{}", headers=headers).status_code == 403, headers
        assert server.stranger.post("/login", json={"token": TOKEN}, headers=origin).status_code == 403, origin


def test_a_forged_cookie_is_rejected(server: ApiServer) -> None:
    name = server.state.access.sessions.cookie.encode()
    for value in (b"", b"x", "é".encode(), b"\xff", b"0" * 64, b'"', b"a=b; =; ;;"):
        answer = server.stranger.get("/api/v1/jobs", headers=[(b"cookie", name + b"=" + value)])
        assert answer.status_code == 401, value


# --- names and headers


def test_the_server_answers_to_its_own_names_only(server: ApiServer) -> None:
    for host in ("127.0.0.1", "localhost", "LOCALHOST:1", "127.0.0.1:8700", "[::1]", "[::1]:99"):
        assert server.api.get("/api/v1/jobs", headers={"Host": host}).status_code == 200, host
    foreign = ("evil.example", "127.0.0.1.evil.example", "evil.example:8700", "localhost.evil.example")
    paths = ("/", "/api/v1/jobs", "/api/v1/events", "/healthz", "/login", "/metrics", "/static/login/login.js", "/no")
    for host in (*foreign, "", "::1", "127.0.0.1:x", "127.0.0.1, x", "localhost@evil"):
        for path in paths:
            answer = server.api.get(path, headers={"Host": host, "User-Agent": "curl/8"})
            assert (answer.status_code, answer.json()["type"]) == (400, "/problems/wrong-host"), (host, path)


def test_every_answer_carries_the_security_headers_and_forbids_foreign_scripts(server: ApiServer) -> None:
    log_in(server)
    for path in ("/api/v1/jobs", "/nowhere", "/", "/login", "/static/shared/api.js", "/healthz", "/openapi.json"):
        answer = server.stranger.get(path, headers={"Origin": "http://evil.example"})
        for name in SECURITY_HEADERS:
            assert name in answer.headers, (path, name)
        assert "access-control-allow-origin" not in answer.headers
    preflight = server.api.options(
        "/api/v1/jobs", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert "access-control-allow-origin" not in preflight.headers
    policy = SECURITY_HEADERS["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "script-src" not in policy
    assert "frame-ancestors 'none'" in policy


def test_static_files_are_revalidated_and_not_sent_twice(server: ApiServer) -> None:
    first = server.api.get("/static/shared/api.js")
    assert first.status_code == 200
    assert "no-store" not in first.headers["Cache-Control"]
    again = server.api.get("/static/shared/api.js", headers={"If-None-Match": first.headers["ETag"]})
    assert again.status_code == 304


def test_no_file_outside_the_web_directory_is_served(server: ApiServer) -> None:
    for path in ("../server.py", "%2e%2e/server.py", "..%2fserver.py", "%00", "x" * 300):
        assert server.api.get(f"/static/{path}").status_code == 404, path


def test_the_openapi_document_declares_the_bearer(server: ApiServer) -> None:
    document = server.api.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert path in ("/healthz", "/readyz") or operation["security"] == [{"HTTPBearer": []}]
    assert "#/$defs" not in json.dumps(document)


def test_the_audit_log_is_in_the_order_of_time_whenever_its_entries_were_written(server: ApiServer) -> None:
    access, now = server.state.access, time.time()

    def entry(age: float) -> AuditEntry:
        return AuditEntry(at=now - age, person="ann", via="token", action=f"{age:g} s ago", status=403)

    access.audit.flush()  # the other tests have filled its buffer
    access.audit.record_refusal(entry(3.0))
    for age in (4.0, 2.0, 2.0, 1.0):
        access.audit.record(entry(age))
    pages: list[list[str]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = server.api.get(f"/api/v1/audit?person=ann&limit=2{cursor and f'&cursor={cursor}'}").json()
        cursor = page["next"]
        pages.append([each["action"] for each in page["items"]])
    assert pages == [["1 s ago", "2 s ago"], ["2 s ago", "3 s ago"], ["4 s ago"]]

"""Who may ask. Running submitted code is the purpose here, so every route is shut but the few on a list."""

import hashlib
import hmac
import urllib.parse

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from rekindle_service.api.problems import problem_response

OPEN_ROUTES = frozenset(
    {
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/login"),
        ("POST", "/login"),
        ("GET", "/static/login/login.js"),
        ("GET", "/static/shared/base.css"),
        ("GET", "/static/shared/logo.svg"),
    }
)
"""All that is answered without a token: health, and what the login page consists of."""

_READING = frozenset({"GET", "HEAD", "OPTIONS"})


class Credentials:
    """Knows the token only by its hash, so a dump of this process does not give it away."""

    def __init__(self, token: str) -> None:
        self._digest = hashlib.sha256(token.encode()).digest()
        self.session = self._derived(b"rekindle browser session")
        """The cookie's value: follows from the token, so it outlives a restart, and tells nothing about it."""
        self.cookie = f"rekindle_session_{self._derived(b'rekindle cookie name')[:8]}"
        """The cookie's name: cookies know no port, and another server of this machine has a session of its own."""

    def is_token(self, candidate: bytes) -> bool:
        return hmac.compare_digest(hashlib.sha256(candidate).digest(), self._digest)

    def is_session(self, candidate: bytes) -> bool:
        return hmac.compare_digest(candidate, self.session.encode())

    def _derived(self, purpose: bytes) -> str:
        return hmac.new(self._digest, purpose, hashlib.sha256).hexdigest()


class Access:
    """Lets through what is open, what bears the token, and browser requests of our own pages with a session."""

    def __init__(self, app: ASGIApp, credentials: Credentials) -> None:
        self._app = app
        self._credentials = credentials

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp | None = None
        if scope["type"] == "websocket":
            answer = WebSocketClose()  # there are none here
        elif scope["type"] == "http":
            answer = self._refusal(scope, Headers(scope=scope))
        await (answer or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a request that may not pass, None for one that may."""
        method, path = scope["method"], scope["path"]
        if (method, path) in OPEN_ROUTES:
            return None
        if "authorization" in headers:
            return None if self._credentials.is_token(_bearer(headers["authorization"])) else _unauthorized()
        if not self._credentials.is_session(_cookie(headers, self._credentials.cookie)):
            return _login_page(scope) if _is_page_request(method, path, headers) else _unauthorized()
        if method not in _READING and not is_same_origin(headers):
            return _foreign_origin()
        return None


def _bearer(header: str) -> bytes:
    scheme, _, token = header.partition(" ")
    return token.strip().encode("latin-1") if scheme.lower() == "bearer" else b""


def _cookie(headers: Headers, name: str) -> bytes:
    """Other servers of this host set cookies, too, and a browser sends them all, however odd they are."""
    return cookie_parser("; ".join(headers.getlist("cookie"))).get(name, "").encode()


def is_same_origin(headers: Headers) -> bool:
    """Whether the browser says that a page of ours (or the user alone) asks. Without a word from it: no."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    host = headers.get("host", "").lower()
    return headers.get("origin", "").lower() in (f"http://{host}", f"https://{host}")


def _is_page_request(method: str, path: str, headers: Headers) -> bool:
    return method == "GET" and not path.startswith(("/api/", "/static/")) and "text/html" in headers.get("accept", "")


def _login_page(scope: Scope) -> Response:
    """Leads back to the whole address afterwards; its fragment the browser keeps by itself."""
    query = scope["query_string"].decode("latin-1")
    wanted = scope["path"] + (f"?{query}" if query else "")
    return RedirectResponse("/login?" + urllib.parse.urlencode({"next": wanted}), 303)


def _unauthorized() -> Response:
    detail = (
        "this needs the header 'Authorization: Bearer TOKEN'; `rekindle token` prints the token of this machine's "
        "server, and a browser logs in at /login"
    )
    return problem_response(401, "unauthorized", detail, headers={"WWW-Authenticate": 'Bearer realm="rekindle"'})


def _foreign_origin() -> Response:
    detail = (
        "a change that is asked for with the session cookie must come from a page of this server (Sec-Fetch-Site "
        "same-origin, or Origin equal to Host); programs send the token as a bearer instead"
    )
    return problem_response(403, "foreign-origin", detail)

"""Authentication. Submitted code runs on this machine, so every route but a short list needs the token."""

import hashlib
import hmac
import urllib.parse

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from rekindle_service.api.problem_details import ProblemError

_OPEN_FILES = ("/static/login/login.js", "/static/shared/base.css", "/static/shared/logo.svg")
OPEN_ROUTES = frozenset(
    {("POST", "/login"), *(("GET", path) for path in ("/healthz", "/readyz", "/login", *_OPEN_FILES))}
)
"""Routes that need no token: health checks and the login page."""

_UNAUTHORIZED = ProblemError(
    401,
    "unauthorized",
    "the header 'Authorization: Bearer TOKEN' is missing or wrong; `rekindle token` prints the token of this "
    "machine's server, and a browser logs in at /login",
    headers={"WWW-Authenticate": 'Bearer realm="rekindle"'},
)
_FOREIGN_ORIGIN = ProblemError(
    403,
    "foreign-origin",
    "a request that changes something and uses the session cookie must come from a page of this server "
    "(Sec-Fetch-Site same-origin, or Origin equal to Host); programs send the token as a bearer token instead",
)
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Credentials:
    """Holds only a hash of the token, so that a memory dump of this process does not reveal it."""

    def __init__(self, token: str) -> None:
        self._digest = hashlib.sha256(token.encode()).digest()
        self.session = self._derive(b"rekindle browser session")
        """Value of the session cookie: derived from the token, so it survives a restart and does not reveal it."""
        self.cookie = f"rekindle_session_{self._derive(b'rekindle cookie name')[:8]}"
        """Name of the session cookie: cookies ignore the port, and two servers of one machine need two sessions."""

    def is_token(self, candidate: bytes) -> bool:
        return hmac.compare_digest(hashlib.sha256(candidate).digest(), self._digest)

    def is_session(self, candidate: bytes) -> bool:
        return hmac.compare_digest(candidate, self.session.encode())

    def _derive(self, purpose: bytes) -> str:
        return hmac.new(self._digest, purpose, hashlib.sha256).hexdigest()


class AuthMiddleware:
    """Passes on open routes, requests with the bearer token, and same-origin browser requests with a session."""

    def __init__(self, app: ASGIApp, credentials: Credentials) -> None:
        self._app = app
        self._credentials = credentials

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rejection: ASGIApp | None = None
        if scope["type"] == "websocket":
            rejection = WebSocketClose()  # no route speaks WebSocket
        elif scope["type"] == "http":
            rejection = self._reject(scope, Headers(scope=scope))
        await (rejection or self._app)(scope, receive, send)

    def _reject(self, scope: Scope, headers: Headers) -> Response | None:
        """The response to a request that is not authorized, None for one that is."""
        method, path = scope["method"], scope["path"]
        if (method, path) in OPEN_ROUTES:
            return None
        if "authorization" in headers:
            return None if self._credentials.is_token(_bearer(headers["authorization"])) else _UNAUTHORIZED.response()
        if not self._credentials.is_session(_cookie(headers, self._credentials.cookie)):
            return _redirect_to_login(scope) if _is_page_request(method, path, headers) else _UNAUTHORIZED.response()
        if method not in _SAFE_METHODS and not is_same_origin(headers):
            return _FOREIGN_ORIGIN.response()
        return None


def _bearer(header: str) -> bytes:
    scheme, _, token = header.partition(" ")
    return token.strip().encode("latin-1") if scheme.lower() == "bearer" else b""


def _cookie(headers: Headers, name: str) -> bytes:
    """Tolerates malformed cookies: a browser also sends those of other servers on this host."""
    return cookie_parser("; ".join(headers.getlist("cookie"))).get(name, "").encode()


def is_same_origin(headers: Headers) -> bool:
    """Whether the browser reports that the request comes from a page of this server or from the user directly."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    host = headers.get("host", "").lower()
    return headers.get("origin", "").lower() in (f"http://{host}", f"https://{host}")


def _is_page_request(method: str, path: str, headers: Headers) -> bool:
    return method == "GET" and not path.startswith(("/api/", "/static/")) and "text/html" in headers.get("accept", "")


def _redirect_to_login(scope: Scope) -> Response:
    """The login page then returns to the requested URL; the browser itself keeps the fragment."""
    query = scope["query_string"].decode("latin-1")
    requested = scope["path"] + (f"?{query}" if query else "")
    return RedirectResponse("/login?" + urllib.parse.urlencode({"next": requested}), 303)

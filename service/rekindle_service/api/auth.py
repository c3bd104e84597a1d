"""Who sends a request, and what they may do. Submitted code runs on this machine: almost every route needs a person."""

import time
import urllib.parse
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from rekindle_service.access.access_control import AccessControl
from rekindle_service.access.permissions import SAFE_METHODS, Identity, Permissions, Via, changes_something
from rekindle_service.access.permissions import Scope as TokenScope
from rekindle_service.api.problems import ApiError
from rekindle_service.store.tables import AuditEntry

_OPEN_FILES = ("/static/login/login.js", "/static/shared/base.css", "/static/shared/logo.svg")
OPEN_ROUTES = frozenset(
    {("POST", "/login"), *(("GET", path) for path in ("/healthz", "/readyz", "/login", *_OPEN_FILES))}
)
"""Routes that need no token: health checks and the login page."""

_UNAUTHORIZED = ApiError(
    401,
    "unauthorized",
    "the header 'Authorization: Bearer TOKEN' is missing, or its token is wrong, revoked or expired; `rekindle token` "
    "prints the token of this machine's server, and a browser logs in at /login",
    headers={"WWW-Authenticate": 'Bearer realm="rekindle"'},
)
_FOREIGN_ORIGIN = ApiError(
    403,
    "foreign-origin",
    "a request that changes something and uses the session cookie must come from a page of this server "
    "(Sec-Fetch-Site same-origin, or Origin equal to Host); programs send the token as a bearer token instead",
)
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
_REFUSED = frozenset({401, 403, 429})


class AuthMiddleware:
    """Finds out who sends a request, and refuses it where nobody does, or where the scope of a token is too small.

    A bearer token counts first, then the account of a user who has connected to the UNIX socket, then the session of
    a browser. The identity is in the scope's state for the routes, which decide about single jobs
    (``require_access``). Every request that may change something, and every refused one, goes to the audit log.
    """

    def __init__(self, app: ASGIApp, access: AccessControl) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # no route speaks WebSocket
            await WebSocketClose()(scope, receive, send)
        elif scope["type"] == "http":
            scope.setdefault("state", {})
            app = self._rejection(scope, Headers(scope=scope)) or self._app
            await _Audited(self._access, scope, send).run(app, receive)
        else:
            await self._app(scope, receive, send)

    def _rejection(self, scope: Scope, headers: Headers) -> Response | None:
        """The response to a request that is refused, None for one that is not."""
        method, path = scope["method"], scope["path"]
        if (method, path) in OPEN_ROUTES:
            return None
        identity = self._identify(scope, headers)
        if identity is None:
            if "authorization" in headers:
                return refuse_wrong_token(self._access, address_of(scope), _UNAUTHORIZED).response()
            return _redirect_to_login(scope) if _is_page_request(method, path, headers) else _UNAUTHORIZED.response()
        scope["state"]["identity"] = identity
        if identity.via is Via.BROWSER and method not in SAFE_METHODS and not is_same_origin(headers):
            return _FOREIGN_ORIGIN.response()
        if changes_something(method, path) and not identity.scope.includes(TokenScope.SUBMIT):
            return insufficient_scope(identity, TokenScope.SUBMIT).response()
        if wait := self._access.requests.wait(identity.person):
            detail = f"{identity.person} sends more requests than the setting request_rate allows: wait a moment"
            return _too_many(detail, wait).response()
        return None

    def _identify(self, scope: Scope, headers: Headers) -> Identity | None:
        if "authorization" in headers:
            return self._access.tokens.identify(_bearer(headers["authorization"]))
        uid = scope["state"].get("peer_uid")
        if uid is not None and not any(name in headers for name in _FORWARDED):  # a proxy speaks for anybody
            return self._access.identify_user(uid)
        return self._access.sessions.identify(_cookie(headers, self._access.sessions.cookie))


class _Audited:
    """One request whose outcome may have to be in the audit log before the client learns it."""

    def __init__(self, access: AccessControl, scope: Scope, send: Send) -> None:
        self._access, self._scope, self._send = access, scope, send
        self._changes = scope["method"] not in SAFE_METHODS
        self._started = False

    async def run(self, app: ASGIApp, receive: Receive) -> None:
        try:
            await app(self._scope, receive, self._send_recorded)
        except Exception:
            if not self._started:
                await self._record(500, "")
            raise

    async def _send_recorded(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            await self._record(message["status"], Headers(raw=message["headers"]).get("location", ""))
        await self._send(message)

    async def _record(self, status: int, location: str) -> None:
        identity = self._scope["state"].get("identity")
        if status in _REFUSED and (identity is not None or "authorization" in Headers(scope=self._scope)):
            self._access.audit.record_refusal(self._entry(identity, status, ""))
        elif self._changes and status in _REFUSED:  # a login with a wrong token, or a change by nobody
            self._access.audit.record_refusal(self._entry(None, status, ""))
        elif self._changes and status != 404:
            await run_in_threadpool(self._access.audit.record, self._entry(identity, status, location))

    def _entry(self, identity: Identity | None, status: int, location: str) -> AuditEntry:
        state = self._scope["state"]
        return AuditEntry(
            at=time.time(),
            person=None if identity is None else identity.person,
            token_id=None if identity is None else identity.token_id,
            via="none" if identity is None else identity.via,
            address=address_of(self._scope),
            action=f"{self._scope['method']} {_template(self._scope)}"[:200],
            target=(location or self._scope["path"])[:200],
            status=status,
            detail=str(state.get("audit_detail", ""))[:500],
        )


def insufficient_scope(identity: Identity, needed: TokenScope) -> ApiError:
    detail = (
        f"this needs the scope {needed}, and {identity.person} has the scope {identity.scope} here: "
        f"ask an administrator of this server for `rekindle token create {identity.person} --scope {needed}`"
    )
    return ApiError(403, "insufficient-scope", detail)


def refuse_wrong_token(access: AccessControl, address: str, refusal: ApiError) -> ApiError:
    """Count a wrong token: ``refusal``, or after many of them the problem (429) that says so."""
    if wait := access.failures.wait(address):
        return _too_many("too many wrong tokens were sent; the right one is accepted at any time", wait)
    return refusal


def _too_many(detail: str, wait: float) -> ApiError:
    return ApiError(429, "too-many-requests", detail, headers={"Retry-After": str(int(wait) + 1)})


def address_of(scope: Scope) -> str:
    """Where a request comes from: an IP address, or the account of a user of this machine."""
    if (uid := scope["state"].get("peer_uid")) is not None:
        return f"uid {uid}"
    return scope["client"][0] if scope.get("client") else ""


def _template(scope: Scope) -> str:
    """The path of the route with the names of its parameters, or the requested path where no route was found."""
    route: Any = scope.get("route")
    if route is None:
        return str(scope["path"])
    prefix = "/api/v1" if scope["path"].startswith("/api/v1/") and not route.path.startswith("/api/v1/") else ""
    return prefix + str(route.path)


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


def identity_of(request: Request) -> Identity:
    identity: Identity = request.scope["state"]["identity"]
    return identity


IdentityDep = Annotated[Identity, Depends(identity_of)]


def admin(identity: IdentityDep) -> Identity:
    """Raises ApiError (403) for anybody but an administrator."""
    if not identity.scope.includes(TokenScope.ADMIN):
        raise insufficient_scope(identity, TokenScope.ADMIN)
    return identity


AdminDep = Annotated[Identity, Depends(admin)]


def require_access(permissions: Permissions, request: Request, owner: str | None, name: str, unknown: ApiError) -> None:
    """Check that the request may read or change the thing called ``name``, by its method.

    Raises ``unknown`` for what must not be read, as if there were no such thing, and ApiError (403) for what must
    not be changed.
    """
    identity = identity_of(request)
    if not permissions.may_read(identity, owner):
        raise unknown
    if changes_something(request.method, request.url.path) and not permissions.may_change(identity, owner):
        detail = f"{name} belongs to {owner or 'nobody'}, and {identity.person} may change only their own jobs"
        raise ApiError(403, "not-owner", f"{detail}: ask {f'{owner} or ' if owner else ''}an administrator")

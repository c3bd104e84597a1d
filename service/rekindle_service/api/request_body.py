"""Limits on request bodies: on size, structure and duration of each, and on the memory of all together."""

import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.to_thread
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rekindle_service.api.auth import OPEN_ROUTES
from rekindle_service.api.problems import ApiError, invalid_field

MAX_BODY_BYTES = 10 << 20
MAX_OPEN_BODY_BYTES = 16 << 10
"""For routes that need no token: a login."""

_MAX_BUFFERED_BYTES = 64 << 20  # of all bodies of requests with a token
_CHECKED_AT_ONCE = 64 << 10  # bytes; a longer JSON text is checked by a thread
_CHECKERS = 2

_BODY_SECONDS = 30.0
_OPEN_BODY_SECONDS = 10.0
_MIN_BYTES_PER_SECOND = 16 << 10
"""A body may take ``_BODY_SECONDS``, and one second more for each of these chunks that has arrived."""
MAX_VALUES = 100_000
MAX_KEYS = 10_000
MAX_DEPTH = 32

_TOKEN = re.compile(rb'[^"\[\]{},:]++|"(?:[^"\\]++|\\.)*+"?|[\[\]{},:]', re.DOTALL)
_STARTERS = frozenset(b"[{,")
"""Each begins a value, or would in an empty list or object: the count is never too small."""


@dataclass(slots=True)
class _Deadline:
    """When the next part of a body must have arrived."""

    seconds: float
    received: int = 0
    _started_at: float = field(default_factory=time.monotonic)

    async def receive(self, receive: Receive) -> Message:
        """The next message. Raises ApiError (408)."""
        extra = self.received / _MIN_BYTES_PER_SECOND
        with anyio.move_on_after(max(self._started_at + self.seconds + extra - time.monotonic(), 0)):
            message = await receive()
            self.received += len(message.get("body", b""))
            return message
        detail = (
            f"{self.received} bytes of the body have arrived in {time.monotonic() - self._started_at:.0f} s, which is "
            f"too slow: it may take {self.seconds:.0f} s at first"
        )
        raise ApiError(408, "too-slow", detail, headers={"Connection": "close"})


class RequestBodyMiddleware:
    """Receives every body before the application runs; it must have passed the authentication.

    A body has a size limit, a deadline that a slow network can keep and a client that drips bytes cannot, and a limit
    on the structure of JSON. Routes that need no token have narrower limits. ``streamed`` lists paths whose routes
    write the body to disk under a limit of their own.
    """

    def __init__(self, app: ASGIApp, streamed: Collection[str] = ()) -> None:
        self._app = app
        self._streamed = streamed
        self._buffered = 0
        self._checkers = anyio.CapacityLimiter(_CHECKERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_open = (scope["method"], scope["path"]) in OPEN_ROUTES
        if scope["path"] in self._streamed:
            await self._app(scope, partial(_Deadline(_BODY_SECONDS).receive, receive), send)
            return
        with self._reservation() as reserve:
            app = self._app
            try:
                body = await (_receive_open(receive) if is_open else self._receive(scope, receive, reserve))
            except ApiError as problem:
                app = problem.response()
            except ClientDisconnect:
                return
            else:
                receive = _replaying(body, receive)
            await app(scope, receive, send)

    @contextmanager
    def _reservation(self) -> Iterator[Callable[[int], None]]:
        """Call its value with the size of what is about to be kept in memory until the end of the block."""
        reserved = 0

        def reserve(size: int) -> None:
            nonlocal reserved
            if self._buffered + size > _MAX_BUFFERED_BYTES:
                detail = f"the server is receiving {_MAX_BUFFERED_BYTES >> 20} MiB of other requests; try again"
                raise ApiError(503, "busy", detail, headers={"Retry-After": "5"})
            self._buffered += size
            reserved += size

        try:
            yield reserve
        finally:
            self._buffered -= reserved

    async def _receive(self, scope: Scope, receive: Receive, reserve: Callable[[int], None]) -> bytes:
        """The whole body. Raises ApiError (408, 413, 422, 503) and ClientDisconnect."""
        headers = dict(scope["headers"])
        if content_length(headers.get(b"content-length", b"").decode("latin-1")) > MAX_BODY_BYTES:
            raise _too_large(MAX_BODY_BYTES)
        body = await _receive_whole(receive, _Deadline(_BODY_SECONDS), MAX_BODY_BYTES, reserve)
        if b"json" in headers.get(b"content-type", b"").lower():
            check = partial(violated_limit, body)
            is_small = len(body) <= _CHECKED_AT_ONCE
            rule = check() if is_small else await anyio.to_thread.run_sync(check, limiter=self._checkers)
            if rule is not None:
                raise invalid_field("body", rule, None, f"the JSON of the body {rule}", hint="send several requests")
        return body


async def _receive_open(receive: Receive) -> bytes:
    return await _receive_whole(receive, _Deadline(_OPEN_BODY_SECONDS), MAX_OPEN_BODY_BYTES, lambda size: None)


async def _receive_whole(receive: Receive, deadline: _Deadline, limit: int, reserve: Callable[[int], None]) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await deadline.receive(receive)
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        if len(body) + len(chunk) > limit:
            raise _too_large(limit)
        reserve(len(chunk))
        body += chunk
    return bytes(body)


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Gives ``body`` first, as one message, and then what ``receive`` gives: that the client has disconnected."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def _too_large(limit: int) -> ApiError:
    size = f"{limit >> 20} MiB" if limit == MAX_BODY_BYTES else f"{limit >> 10} KiB, the limit of this route"
    return ApiError(413, "too-large", f"the body exceeds {size}: send several requests")


def content_length(header: str | None) -> int:
    """The length that a request announces; 0 where it announces none that is a number."""
    return int(header) if header and header.isascii() and header.isdecimal() and len(header) < 20 else 0


def violated_limit(text: bytes) -> str | None:
    """The limit that ``text`` exceeds, as a rule; None where it keeps all of them. Invalid JSON is not detected.

    Takes time for as many values as are allowed, not for as many as there are.
    """
    values = keys = depth = 0
    for token in _TOKEN.finditer(text):
        sign = text[token.start()]
        values += sign in _STARTERS
        if sign == ord(":"):
            keys += 1
        elif sign in b"[{":
            depth += 1
        elif sign in b"]}":
            depth -= 1
        if values > MAX_VALUES or keys > MAX_KEYS or depth > MAX_DEPTH:
            return f"must have at most {MAX_VALUES} values, {MAX_KEYS} keys and {MAX_DEPTH} levels of nesting"
    return None

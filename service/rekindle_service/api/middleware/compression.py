"""Compression of pages and of JSON, for browsers on a slow line."""

import gzip

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_COMPRESSED = ("application/json", "text/html")
_MIN_BYTES = 1000
"""A smaller response fits one packet anyway."""
_MAX_INLINE_BYTES = 64_000
"""More takes milliseconds, in which the event loop would serve nobody else."""
_LEVEL = 5


def accepts_gzip(headers: Headers) -> bool:
    """Whether the client that sent these headers reads gzip."""
    for coding in headers.get("accept-encoding", "").lower().split(","):
        name, _, quality = coding.partition(";")
        if name.strip() == "gzip":
            return quality.strip().removeprefix("q=").strip() not in ("0", "0.0", "0.00", "0.000")
    return False


class CompressionMiddleware:
    """Compresses responses that are whole in one message: pages and JSON.

    Streams, downloads and logs pass as they are: a client counts their bytes. No response has both a secret and
    something that another site can choose, from whose compressed size the secret could be guessed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not accepts_gzip(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, _Compressor(send))


class _Compressor:
    """Holds the start of a response back until its first bytes are there."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_compressible(message):
            self._start = message
            return
        start, self._start = self._start, None
        if start is not None:
            if message["type"] == "http.response.body" and _is_worth_it(message):
                message = await _compress(start, message)
            await self._send(start)
        await self._send(message)


def _is_compressible(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    kind = headers.get("content-type", "").partition(";")[0]
    return kind in _COMPRESSED and start["status"] != 206 and "content-encoding" not in headers


def _is_worth_it(message: Message) -> bool:
    return not message.get("more_body", False) and len(message.get("body", b"")) >= _MIN_BYTES


async def _compress(start: Message, message: Message) -> Message:
    body = message["body"]
    inline = len(body) <= _MAX_INLINE_BYTES
    compressed = gzip.compress(body, _LEVEL) if inline else await run_in_threadpool(gzip.compress, body, _LEVEL)
    headers = MutableHeaders(raw=start["headers"])
    headers["Content-Encoding"] = "gzip"
    headers["Content-Length"] = str(len(compressed))
    headers.add_vary_header("Accept-Encoding")
    start["headers"] = headers.raw
    return {**message, "body": compressed}

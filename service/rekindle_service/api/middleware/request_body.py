"""Limit on the size of request bodies, so that none can fill the server's memory."""

from collections.abc import Collection

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rekindle_service.api.problem_details import TOO_LARGE, ProblemError


class MaxBodySizeMiddleware:
    """Responds 413 to a body of more than ``limit`` bytes: at once by its Content-Length, else while receiving it.

    ``exempt`` lists paths whose routes stream the body to disk under a limit of their own.
    """

    def __init__(self, app: ASGIApp, limit: int, exempt: Collection[str] = ()) -> None:
        self._app = app
        self._limit = limit
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._exempt:
            await self._app(scope, receive, send)
        elif content_length(dict(scope["headers"]).get(b"content-length", b"").decode("latin-1")) > self._limit:
            await ProblemError(413, *TOO_LARGE).response()(scope, receive, send)
        else:
            await self._app(scope, self._limited(receive), send)

    def _limited(self, receive: Receive) -> Receive:
        size = 0

        async def receive_chunk() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._limit:
                raise HTTPException(413)
            return message

        return receive_chunk


def content_length(header: str | None) -> int:
    """The length that a request announces; 0 where it announces none that is a number."""
    return int(header) if header and header.isascii() and header.isdecimal() and len(header) < 20 else 0

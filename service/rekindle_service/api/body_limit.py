"""No request body may fill the server's memory."""

from collections.abc import Collection

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rekindle_service.api.problems import TOO_LARGE, problem_response


class BodyLimit:
    """Answers 413 to a body of more than ``limit`` bytes: at once where its length is told, else while it comes in.

    ``exempt`` are paths whose routes write the body to disk and have a limit of their own.
    """

    def __init__(self, app: ASGIApp, limit: int, exempt: Collection[str] = ()) -> None:
        self._app = app
        self._limit = limit
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._exempt:
            await self._app(scope, receive, send)
        elif _told_length(scope) > self._limit:
            await problem_response(413, *TOO_LARGE)(scope, receive, send)
        else:
            await self._app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        size = 0

        async def receive_some() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._limit:
                raise HTTPException(413)
            return message

        return receive_some


def _told_length(scope: Scope) -> int:
    value = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(value) if value.isdigit() and len(value) < 20 else 0

"""Files as responses, which jobs and the deletion of jobs may change or remove while they are sent."""

from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping
from itertools import chain
from typing import Any

import anyio
import structlog
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rekindle_service.api.middleware.connection import connection_of
from rekindle_service.api.problem_details import ProblemError

_log = structlog.get_logger(__name__)


class Download(StreamingResponse):
    """Chunks that are read while they are sent.

    The first chunk is read at once: what fails then is reported by ProblemError (409). What fails later, and a file
    that has become shorter than ``length``, closes the connection: the client sees that the download is incomplete.
    """

    def __init__(
        self,
        chunks: Iterator[bytes],
        media_type: str,
        *,
        headers: Mapping[str, str] | None = None,
        length: int | None = None,
        status_code: int = 200,
    ) -> None:
        try:
            first = next(chunks, b"")
        except OSError as error:
            detail = f"the files changed or were removed while they were read ({error}): request them again"
            raise ProblemError(409, "files-changed", detail) from error
        sized = {} if length is None else {"Content-Length": str(length)}
        super().__init__(chain((first,), chunks), status_code, {**(headers or {}), **sized}, media_type)
        self._length = length

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.body_iterator = self._to_the_end(self.body_iterator, scope)
        await super().__call__(scope, receive, send)

    async def _to_the_end(self, chunks: AsyncIterable[Any], scope: Scope) -> AsyncIterator[bytes]:
        sent, reason = 0, "a file has become shorter"
        try:
            async for chunk in chunks:
                sent += len(chunk)
                yield chunk
            if self._length is None or sent == self._length:
                return
        except OSError as error:
            reason = str(error)
        _log.warning("A download is incomplete", path=scope["path"], reason=reason, bytes=sent)
        if (connection := connection_of(scope)) is not None:
            connection.abort()
            await anyio.sleep_forever()  # until the server reports that the connection is closed

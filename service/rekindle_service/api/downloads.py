"""Files as responses, which jobs and the deletion of jobs may change or remove while they are sent."""

from collections.abc import Iterator, Mapping
from itertools import chain

import structlog
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rekindle_service.api.problems import ApiError

_log = structlog.get_logger(__name__)

ZIP = "application/zip"


class Download(StreamingResponse):
    """Chunks that are read while they are sent.

    The first chunk is read at once: what fails then is reported by ApiError (409). What fails later, and a file
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
            raise ApiError(409, "files-changed", detail) from error
        sized = {} if length is None else {"Content-Length": str(length)}
        super().__init__(chain((first,), chunks), status_code, {**(headers or {}), **sized}, media_type)
        self._length = length

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._path = scope["path"]
        await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        """Omit the last message of an incomplete download: the server then closes the connection."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sent, reason = 0, "a file has become shorter"
        try:
            async for chunk in self.body_iterator:
                sent += len(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except OSError as error:
            reason = str(error)
        else:
            if self._length is None or sent == self._length:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
        _log.warning("A download is incomplete", path=self._path, reason=reason, bytes=sent)


def attachment(name: str) -> dict[str, str]:
    """Headers that make a browser save the response as a file."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}

"""Listeners who leave while an event is on its way to them."""

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send


class Departures:
    """Lets a stream end in peace that nobody reads any more.

    FastAPI closes the pipe of an event stream before it stops what writes into it. Where an event waits there when the
    listener leaves, the writer's complaint would be told as a failed request, with a page of traceback.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except* anyio.BrokenResourceError:
            pass

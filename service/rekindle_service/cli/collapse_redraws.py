"""Progress bars draw one line many times; a reader wants only the latest drawing."""

import time
from collections.abc import Callable, Iterable, Iterator

from rekindle_service.client import AttemptHeader, LogLine

_INTERVAL = 5.0  # seconds between two drawings of one bar, when following
_CURSOR_UP = b"\x1b[A"

LogItem = LogLine | AttemptHeader


def collapse_redraws(
    items: Iterable[LogItem], *, follow: bool, clock: Callable[[], float] = time.monotonic
) -> Iterator[LogItem]:
    """The same items without lines that are drawn over, as on a terminal; ``follow``: one drawing every few seconds.

    The last drawing is kept until the same rank and stream writes anything else.
    """
    pending: dict[tuple[int, str], LogLine] = {}
    shown_at: dict[tuple[int, str], float] = {}
    for item in items:
        if isinstance(item, AttemptHeader):
            yield from pending.values()
            pending.clear()
            yield item
            continue
        source = (item.rank, item.stream)
        pending.pop(source, None)
        if not _is_redrawn(item.raw):
            yield item
        elif not item.text.strip():
            continue  # a bar that is about to be drawn, or was erased
        elif follow and clock() - shown_at.get(source, float("-inf")) >= _INTERVAL:
            shown_at[source] = clock()
            yield item
        else:
            pending[source] = item
    yield from pending.values()


def _is_redrawn(raw: bytes) -> bool:
    """Whether the cursor returns to the start of the line, or to the line above, as for nested bars."""
    return raw.endswith(b"\r") or raw.rstrip(b"\r\n").endswith(_CURSOR_UP)

"""Lines that are drawn over again and again, as progress bars are, and what a reader wants to see of them."""

import time
from collections.abc import Callable, Iterable, Iterator

from rekindle_service.client import Headline, LogLine

_PAUSE = 5.0  # seconds between two drawings of one bar, for who follows

_UP = b"\x1b[A"

Piece = LogLine | Headline


def latest_drawings(
    pieces: Iterable[Piece], *, follow: bool, clock: Callable[[], float] = time.monotonic
) -> Iterator[Piece]:
    """The same pieces, and of what was drawn over only the last drawing, as on a terminal.

    Who follows is shown one now and again. A drawing lasts until the same rank and stream writes anything else.
    """
    drawings: dict[tuple[int, str], LogLine] = {}
    shown_at: dict[tuple[int, str], float] = {}
    for piece in pieces:
        if isinstance(piece, Headline):
            yield from drawings.values()
            drawings.clear()
            yield piece
            continue
        source = (piece.rank, piece.stream)
        drawings.pop(source, None)
        if not _will_be_drawn_over(piece.raw):
            yield piece
        elif not piece.text.strip():
            continue  # a bar is about to be drawn, or was wiped away
        elif follow and clock() - shown_at.get(source, float("-inf")) >= _PAUSE:
            shown_at[source] = clock()
            yield piece
        else:
            drawings[source] = piece
    yield from drawings.values()


def _will_be_drawn_over(raw: bytes) -> bool:
    """The cursor goes back to the beginning of the line, or up to the line before, as for a bar within another one."""
    return raw.endswith(b"\r") or raw.rstrip(b"\r\n").endswith(_UP)

"""Lists in pieces, as every list of the interface is told: for those that are read whole in any case."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Query

T = TypeVar("T")

_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Piece:
    """What is wanted of a list: the items behind ``cursor``, all of them unless there is a limit."""

    limit: int | None = None
    cursor: int | None = None

    def of(self, items: Sequence[T], place: Callable[[T], int] | None = None) -> tuple[list[T], str | None]:
        """The items of this piece, and the cursor of the piece after it.

        ``place`` rises along the list, and an item keeps its own whatever comes and goes before it; by default it is
        the index.
        """
        places = range(len(items)) if place is None else [place(item) for item in items]
        rest = [(at, item) for at, item in zip(places, items, strict=True) if self.cursor is None or at > self.cursor]
        told = rest[: self.limit]
        return [item for _, item in told], str(told[-1][0]) if len(told) < len(rest) else None


def _piece(
    limit: Annotated[
        int | None, Query(ge=1, le=_LARGEST, description="Most items of the answer; left out: all")
    ] = None,
    cursor: Annotated[int | None, Query(ge=-_LARGEST, le=_LARGEST, description="`next` of the piece before")] = None,
) -> Piece:
    return Piece(limit, cursor)


WantedPiece = Annotated[Piece, Depends(_piece)]

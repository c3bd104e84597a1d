"""Pages of results, as every list route returns them."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Query

from rekindle_service.schemas.fields import Page
from rekindle_service.store.tables import Row

T = TypeVar("T")

MAX = (1 << 63) - 1
CURSOR = "`next` of the previous page"


@dataclass(frozen=True, slots=True)
class PageParams:
    """Query parameters of a list that is read whole in any case: without a limit the page holds everything."""

    limit: Annotated[int | None, Query(ge=1, le=MAX, description="Maximum number of items; default: all")] = None
    cursor: Annotated[int | None, Query(ge=-MAX, le=MAX, description=CURSOR)] = None


PageParamsDep = Annotated[PageParams, Depends()]


def paginate(items: Sequence[T], params: PageParams, position: Callable[[T], int] | None = None) -> Page[T]:
    """The items after the cursor.

    ``position`` ascends along the list, and that of an item stays the same whatever is added or removed before it; by
    default it is the index.
    """
    if params.cursor is None:
        first = 0
    else:
        first = max(0, params.cursor + 1) if position is None else bisect_right(items, params.cursor, key=position)
    end = len(items) if params.limit is None else min(len(items), first + params.limit)
    if not first < end < len(items):
        return Page(items=list(items[first:end]))
    last = end - 1 if position is None else position(items[end - 1])
    return Page(items=list(items[first:end]), next=str(last))


@dataclass(frozen=True, slots=True)
class RowPageParams:
    """Query parameters of a list of rows, latest first, that the database reads page by page."""

    limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of items")] = 50
    cursor: Annotated[int | None, Query(ge=1, le=MAX, description=CURSOR)] = None

    def page(self, rows: Sequence[Row]) -> "Page[Row]":
        """Precondition: ``rows`` was queried with one row more than ``limit``, which shows whether a page follows."""
        shown = list(rows[: self.limit])
        return Page(items=shown, next=str(shown[-1].number) if len(rows) > self.limit else None)


RowPageParamsDep = Annotated[RowPageParams, Depends()]

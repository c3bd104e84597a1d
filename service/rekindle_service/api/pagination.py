"""Pages of results, as every list route returns them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Query

from rekindle_service.schemas.fields import Page
from rekindle_service.store.tables import Experiment, Job

T = TypeVar("T")
Row = TypeVar("Row", Job, Experiment)

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
    if position is None:
        return _by_index(items, params)
    positions = [position(item) for item in items]
    after = params.cursor
    rest = [(at, item) for at, item in zip(positions, items, strict=True) if after is None or at > after]
    page = rest[: params.limit]
    return Page(items=[item for _, item in page], next=str(page[-1][0]) if len(page) < len(rest) else None)


def _by_index(items: Sequence[T], params: PageParams) -> Page[T]:
    first = 0 if params.cursor is None else max(0, params.cursor + 1)
    end = len(items) if params.limit is None else min(len(items), first + params.limit)
    return Page(items=list(items[first:end]), next=str(end - 1) if first < end < len(items) else None)


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

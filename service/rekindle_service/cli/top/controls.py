"""What the keys of `rekindle top` have chosen: order, filter, and the selected row."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle, islice
from typing import Any

from rekindle_service.client import Job

KEYS = "↑↓ select  Enter open  l log  s sort  / filter  Esc back  q quit"

_MAX_FILTER = 60  # characters


class Request(StrEnum):
    """What a key asks for beyond another drawing."""

    QUIT = "quit"
    OPEN = "open"
    BACK = "back"
    LOG = "log"


def _queue_order(job: Job) -> tuple[int, int, int]:
    """Jobs with slots first, then the queue in its order, then jobs that are held or wait for another job."""
    position = job["queue_position"]
    group = 0 if job["state"] != "queued" else 1 if position is not None else 2
    return group, position or 0, -job["number"]


ORDERS: Mapping[str, Callable[[Job], Any]] = {
    "queue": _queue_order,
    "name": lambda job: (job["name"].casefold(), -job["number"]),
    "done": lambda job: -(job["progress"] or 0.0),
    "left": lambda job: float("inf") if job["eta_seconds"] is None else job["eta_seconds"],
    "restarts": lambda job: -job["restarts"],
}


@dataclass(slots=True)
class Controls:
    """``selected`` is the id of a row, which keeps its selection while rows move."""

    order: str = "queue"
    filter: str = ""
    is_typing: bool = False
    selected: str | None = None

    def press(self, key: str, rows: Sequence[str]) -> Request | None:
        """Act on a key; ``rows`` are the ids of the shown rows, from above."""
        if self.is_typing:
            self._type(key)
            return None
        match key:
            case "q":
                return Request.QUIT
            case "enter":
                return Request.OPEN
            case "l":
                return Request.LOG
            case "up" | "k" | "down" | "j":
                self._move(-1 if key in ("up", "k") else 1, rows)
            case "s":
                self.order = next(islice(cycle(ORDERS), list(ORDERS).index(self.order) + 1, None))
            case "/":
                self.is_typing = True
            case "escape" | "backspace" if self.filter:
                self.filter = ""
            case "escape" | "backspace":
                return Request.BACK
        return None

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.is_typing = False
            self.filter = "" if key == "escape" else self.filter
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1:
            self.filter = (self.filter + key)[:_MAX_FILTER]

    def _move(self, step: int, rows: Sequence[str]) -> None:
        if rows:
            self.selected = rows[min(max(self.position(rows) + step, 0), len(rows) - 1)]

    def position(self, rows: Sequence[str]) -> int:
        """Where the selected row is; the first where it is gone, or none was selected."""
        return rows.index(self.selected) if self.selected in rows else 0

    def arrange(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs that have every word of the filter in number, name, state or owner, in the chosen order."""
        words = self.filter.casefold().split()
        shown = (job for job in jobs if all(word in _searched(job) for word in words))
        return sorted(shown, key=ORDERS[self.order])


def _searched(job: Job) -> str:
    return f"#{job['number']} {job['name']} {job['state']} {job['owner'] or ''}".casefold()

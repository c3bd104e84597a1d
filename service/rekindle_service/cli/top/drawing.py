"""A view of `rekindle top` in the lines of a terminal, cut at its edges, with the selected row in view."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from rekindle_service.cli.tables import Table
from rekindle_service.cli.top.controls import KEYS, Controls
from rekindle_service.cli.top.views import Row, View, one_line

_CUT = {"NAME": 8, "STATUS": 12, "PHASE": 8, "LAST LINE": 12}  # cells
_DROP = (
    *("RANKS", "RESTARTS", "SPEED", "LEFT", "STRAGGLER", "PHASE", "HEARTBEAT", "LAST LINE"),
    *("STATUS", "DONE", "STEP", "STATE", "NAME"),
)
_UNLIMITED_WIDTH = 100_000  # columns


def frame(view: View, controls: Controls, warning: str, width: int, height: int) -> RenderableType:
    """``view`` in at most ``height`` lines of ``width`` columns, with a count of the rows that did not fit."""
    lines = [_title(controls), *([one_line(warning, "bold yellow")] if warning else []), *view.head(width), Text("")]
    rows = view.rows(controls)
    space = height - len(lines) - 1
    if not rows or space < 1:
        return Group(*lines[:height])
    position = controls.position([row.id for row in rows])
    if len(rows) <= space:
        return Group(*lines, _table(view, rows, position))
    room = space - 1
    first = min(max(position - room // 2, 0), len(rows) - room)
    shown = _table(view, rows[first : first + room], position - first)
    return Group(*lines, shown, one_line(f"… and {len(rows) - room} more", "dim"))


def _title(controls: Controls) -> Text:
    """The time and the keys, or the filter while it is typed."""
    if controls.is_typing:
        return one_line(f"filter: {controls.filter}▏", "bold")
    chosen = "" if controls.order == "queue" else f"by {controls.order}  "
    chosen += f"filter: {controls.filter}  " if controls.filter else ""
    return one_line(f"{datetime.now():%H:%M:%S}  {chosen}{KEYS}", "dim")


def full_view(view: View) -> RenderableType:
    """``view`` with all its rows, for a file or a pipe."""
    return Group(*view.head(_UNLIMITED_WIDTH), _table(view, view.rows(Controls()), None))


def _table(view: View, rows: Sequence[Row], selected: int | None) -> Table:
    return Table(view.columns, [row.cells for row in rows], cut=_CUT, drop=_DROP, selected=selected)

"""What fits the terminal: tables whose columns are cut or dropped, text that is broken between words, and bars."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from rekindle_service.client import Device
from rekindle_service.sanitize import sanitize_line

_GAP = 2  # cells between two columns
_BELOW = 6  # cells before a sentence below a row
_NOTHING: Mapping[str, int] = {}


def harmless(text: object, style: str = "") -> Text:
    """One line of text that others wrote, without what would act on a terminal; lines of a ``Text`` stay."""
    return text if isinstance(text, Text) else Text(sanitize_line(text), style)


class Table:
    """Rows of harmless cells under ``columns``; where no terminal limits the width, nothing is cut.

    ``cut``: the columns that are cut, and the fewest cells that each is cut to. ``drop``: the columns that are dropped
    where that is not enough, in this order; after them those on the right, which a line below names. ``wrap``: a
    column of ``cut`` that continues on the next line instead. ``below``: a sentence below each row. ``selected``: the
    index of a row that stands out.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str | Text]],
        *,
        cut: Mapping[str, int] = _NOTHING,
        drop: Sequence[str] = (),
        wrap: str = "",
        below: Sequence[str] = (),
        selected: int | None = None,
    ) -> None:
        self._columns, self._cut, self._drop, self._wrap = tuple(map(sanitize_line, columns)), cut, drop, wrap
        self._below, self._selected = below, selected
        self._rows = [list(map(harmless, row)) for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.lines(console, options.max_width)

    def lines(self, console: Console, width: int) -> Iterator[Text]:
        """The heading, a line for each row, and the columns on the right that found no room."""
        natural = {
            heading: max([len(heading), *(row[index].cell_len for row in self._rows)])
            for index, heading in enumerate(self._columns)
        }
        shown, missing = self._chosen(natural, width)
        widths = fit({heading: natural[heading] for heading in shown}, self._cut, width)
        yield _line([Text(heading, "bold") for heading in shown], list(widths.values()), width)
        for index, row in enumerate(self._rows):
            cells = {heading: cell for heading, cell in zip(self._columns, row, strict=True) if heading in widths}
            for line in self._row(console, cells, widths, width):
                if index == self._selected:
                    line.stylize("reverse")
                yield line
            for sentence in self._below[index : index + 1]:
                yield from paragraph(console, harmless(sentence, "dim"), _BELOW)
        if missing:
            yield Text(f"not shown, for lack of width: {', '.join(missing)}", "dim", no_wrap=True, overflow="ellipsis")

    def _chosen(self, natural: Mapping[str, int], width: int) -> tuple[list[str], list[str]]:
        """The columns that fit when those that may be cut are, and those without ``drop`` that do not."""
        shown, missing = list(self._columns), list[str]()
        order = [heading for heading in self._drop if heading in shown]
        order += [heading for heading in reversed(shown[1:]) if heading not in order]
        while order and sum(_least(natural, self._cut, shown)) + _GAP * (len(shown) - 1) > width:
            dropped = order.pop(0)
            shown.remove(dropped)
            if dropped not in self._drop:
                missing.insert(0, dropped)
        return shown, missing

    def _row(
        self, console: Console, cells: Mapping[str, Text], widths: Mapping[str, int], width: int
    ) -> Iterator[Text]:
        rest: list[Text] = []
        if self._wrap in cells and cells[self._wrap].cell_len > widths[self._wrap]:
            first, *rest = cells[self._wrap].wrap(console, widths[self._wrap])
            cells = {**cells, self._wrap: first}
        yield _line(list(cells.values()), list(widths.values()), width)
        for line in rest:
            yield _line([line if heading == self._wrap else Text() for heading in cells], list(widths.values()), width)


def _least(natural: Mapping[str, int], cut: Mapping[str, int], shown: Collection[str]) -> list[int]:
    return [min(natural[heading], cut.get(heading, natural[heading])) for heading in shown]


def fit(natural: Mapping[str, int], cut: Mapping[str, int], width: int) -> dict[str, int]:
    """The width of each column, in cells: what is left goes to the columns of ``cut`` alike, as far as they need it."""
    widths = dict(zip(natural, _least(natural, cut, natural), strict=True))
    left = width - sum(widths.values()) - _GAP * (len(widths) - 1)
    needy = sorted((heading for heading in natural if heading in cut), key=lambda each: natural[each] - widths[each])
    for index, heading in enumerate(needy):
        added = max(min(natural[heading] - widths[heading], left // (len(needy) - index)), 0)
        widths[heading] += added
        left -= added
    return widths


def _line(cells: Sequence[Text], widths: Sequence[int], width: int) -> Text:
    """One line of at most ``width`` cells."""
    line = Text(no_wrap=True, overflow="ellipsis")
    for index, (cell, room) in enumerate(zip(cells, widths, strict=True)):
        padded = cell.copy()
        padded.truncate(room, overflow="ellipsis", pad=True)
        line.append_text(padded).append(" " * _GAP if index < len(cells) - 1 else "")
    line.rstrip()
    line.truncate(width, overflow="ellipsis")
    return line


def cut_line(console: Console, line: Text) -> Text:
    """``line``, cut with … at the edge of the terminal."""
    line.truncate(console.width, overflow="ellipsis")
    return line


def paragraph(
    console: Console,
    text: str | Text,
    indent: int = 0,
    *,
    label: Text | None = None,
    hanging: int = 0,
    fold: bool = True,
) -> Iterator[Text]:
    """Harmless lines that fit the terminal, broken between words, after ``indent`` cells and ``label``.

    All but the first are indented by ``hanging`` cells more, and by the width of the label. ``fold``: break a word
    that is longer than a line, so that nothing exceeds it; otherwise it stays whole.
    """
    before = Text(" " * indent) if label is None else Text(" " * indent).append_text(label)
    after = Text(" " * (before.cell_len + hanging))
    whole = harmless(text)
    whole.overflow = "fold" if fold else "ignore"
    lines = whole.wrap(console, max(console.width - after.cell_len, 1), no_wrap=False)
    for index, line in enumerate(lines):
        line.rstrip()
        yield (after if index else before).copy().append_text(line)


_FULL, _EMPTY = "█", "░"
# --- bars

_WIDTH = 10  # cells
_SLOTS_WIDTH = 24  # cells
_MAX_KIND = 8  # cells


def bar(share: float, width: int = _WIDTH) -> Text:
    """``███░░░░░░░`` for a share of 0 to 1."""
    full = round(min(max(share, 0.0), 1.0) * width)
    return Text.assemble((_FULL * full, "green"), (_EMPTY * (width - full), "dim"))


def progress_bar(share: float | None) -> Text:
    """``███░░░░░░░  30%``, or nothing where it is not known."""
    return Text() if share is None else bar(share).append(f" {share:4.0%}")


def slot_bars(devices: Iterable[Device]) -> Iterator[Text]:
    """A line for each kind of device: ``cuda  ██████░░  3 of 4 slots in use, 1 not usable``."""
    kinds: dict[str, list[Device]] = {}
    for each in devices:
        kinds.setdefault(each["device"], []).append(each)
    for kind, slots in kinds.items():
        used = sum(1 - each["free_share"] for each in slots if each["held"])
        unusable = sum(bool(each["unusable"]) and not each["held"] for each in slots)
        rest = f", {unusable} not usable" if unusable else ""
        line = Text(f"{sanitize_line(kind)[:_MAX_KIND]:<{_MAX_KIND}}", no_wrap=True, overflow="ellipsis")
        line.append_text(bar(used / len(slots), _SLOTS_WIDTH))
        yield line.append(f" {used:g} of {len(slots)} slots in use{rest}")

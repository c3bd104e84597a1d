"""Shares as bars of a fixed width."""

from collections.abc import Iterable, Iterator

from rich.text import Text

from rekindle_service.client import Device
from rekindle_service.sanitize import sanitize_line

_FULL, _EMPTY = "█", "░"
_WIDTH = 10  # cells
_SLOTS_WIDTH = 24  # cells
_MAX_KIND = 8  # cells


def bar(share: float, width: int = _WIDTH, style: str = "green") -> Text:
    """``███░░░░░░░`` for a share of 0 to 1."""
    full = round(min(max(share, 0.0), 1.0) * width)
    return Text.assemble((_FULL * full, style), (_EMPTY * (width - full), "dim"))


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

"""Estimates of step and epoch from what common trainers print: progress bars, "Epoch [3/90]", "iter 100: loss 2.3".

A guess from text: a form of line must come twice with a growing number before anything is shown, and a bar that loads
data, evaluates or saves is no training. Where several forms grow, the one that grew most often counts. What the script
itself reports is never replaced by an estimate.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.run_dir.script_files import name_pattern
from rekindle.contract.safe_open import open_regular, regular_size

INTERVAL = 2.0  # seconds
MAX_BYTES = 64 << 10  # of a log that one call reads: of a script that prints more, the latest lines count
_MAX_LINE = 1_000  # characters; what is longer is no line of progress
_MAX_FORMS = 50
_MAX_NUMBER = 1 << 53

_NO_TRAINING = re.compile(
    r"\b(down|up)?load|token|\bmap\b|filter|generat|process|prepar|extract|\bsav|writ|\beval|valid|\btest|predict"
    r"|sanity|calibrat|fetch|compil|warm.?up|cach|index|\bread|convert|namespace|patience|stop|best",
    re.IGNORECASE,
)
"""What makes a number no step of the training when it comes before it in the line."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BAR = re.compile(r"(?P<percent>\d{1,3})%\|[^|]*\|\s*(?P<step>\d+)/(?P<steps>\d+)\s*\[")  # tqdm, Lightning, Trainer
_IN_EPOCH = re.compile(r"\]\s*\[\s*(?P<step>\d+)\s*/\s*(?P<steps>\d+)\s*\]")  # after "Epoch: [3]"
_STEP = re.compile(
    r"(?<![A-Za-z])(?:(?:global|train|training|optimizer)[_ -]?)?(?:step|iteration|iter)['\"]?\s*[:=#]?\s*[\[(]?\s*"
    r"(?P<step>\d+)(?![\d.]*[\w%])",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"(?<![A-Za-z])epoch['\"]?\s*[:=#]?\s*[\[(]?\s*(?P<epoch>\d+)(?!\d*[A-Za-z%])", re.IGNORECASE)
_EPOCH_BAR = re.compile(r"epochs?\W*$", re.IGNORECASE)


@dataclass(slots=True)
class _Form:
    """Lines that differ only in their numbers."""

    step: int | None = None
    epoch: int | None = None
    growths: int = 0


class PrintedProgress:
    """Of the logs of one attempt's first rank. ``step`` and ``epoch`` are None as long as nothing is known."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._offsets = dict.fromkeys(logs, 0)
        self._forms: dict[str, _Form] = {}
        self._next_read = 0.0  # seconds of CLOCK_MONOTONIC

    @property
    def step(self) -> int | None:
        return self._best("step")

    @property
    def epoch(self) -> int | None:
        return self._best("epoch")

    def read_if_due(self) -> None:
        if time.monotonic() >= self._next_read:
            self._next_read = time.monotonic() + INTERVAL
            self.read()

    def read(self) -> None:
        """Read what is new in the logs, at most ``MAX_BYTES`` of each."""
        for log, offset in self._offsets.items():
            size = regular_size(log)
            if size <= offset:
                continue
            try:
                with open_regular(log) as file:
                    file.seek(max(offset, size - MAX_BYTES))
                    text = file.read(MAX_BYTES)
            except OSError:
                continue
            whole = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
            self._offsets[log] = size - len(text) + whole if whole else offset
            self.feed(text[:whole].decode(errors="replace"))

    def feed(self, text: str) -> None:
        """Whole lines; a carriage return ends one, too."""
        for line in re.split(r"[\r\n]+", _ANSI.sub("", text)):
            if line and len(line) <= _MAX_LINE and (found := _parse(line)) is not None:
                self._add(*found)

    def _add(self, form_name: str, step: int | None, epoch: int | None) -> None:
        if form_name not in self._forms and len(self._forms) >= _MAX_FORMS:
            return
        form = self._forms.setdefault(form_name, _Form())
        before, now = (form.epoch or 0, form.step or 0), (epoch or 0, step or 0)
        if (form.step, form.epoch) != (None, None) and now > before:
            form.growths += 1
        form.step, form.epoch = step, epoch

    def _best(self, name: str) -> int | None:
        grown = [form for form in self._forms.values() if form.growths and getattr(form, name) is not None]
        best = max(grown, key=lambda form: form.growths, default=None)
        return None if best is None else getattr(best, name)


def _parse(line: str) -> tuple[str, int | None, int | None] | None:
    """The form of the line, its step and its epoch; None for a line without either."""
    bar, step, epoch = _BAR.search(line), _STEP.search(line), _EPOCH.search(line)
    matches = [match for match in (bar, step, epoch) if match is not None]
    if not matches:
        return None
    first = min(match.start() for match in matches)
    prefix = line[:first]
    if _NO_TRAINING.search(prefix):
        return None
    if bar is not None and _EPOCH_BAR.search(line[: bar.start()].rstrip("0123456789 :")) and epoch is None:
        return f"bar of epochs {name_pattern(prefix[:80])}", None, _number(bar["step"])
    in_epoch = _IN_EPOCH.search(line)
    part = bar if bar is not None else in_epoch if epoch is not None else None
    number, printed = (
        None if step is None else _number(step["step"]),
        None if epoch is None else _number(epoch["epoch"]),
    )
    if part is not None:
        number = _number(part["step"])
        if number is not None and printed is not None and (steps := _number(part["steps"])) is not None:
            number += printed * steps
    if number is None and printed is None:
        return None
    kinds = "".join(kind for kind, match in (("b", bar), ("s", step), ("e", epoch)) if match is not None)
    return f"{kinds} {name_pattern(prefix[:80])}", number, printed


def _number(text: str) -> int | None:
    return number if len(text) < 17 and (number := int(text)) < _MAX_NUMBER else None

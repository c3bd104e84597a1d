"""What an attempt's script does although it reports nothing: checkpoints written, loaded and torn, progress printed.

Step and epoch are estimates from what common trainers print: progress bars, "Epoch [3/90]", "iter 100: loss 2.3". A
form of line must come twice with a growing number before anything is shown, and a bar that loads data, evaluates or
saves is no training. Where several forms grow, the one that grew most often counts. What the script itself reports is
never replaced by an estimate.

Many scripts count from 0, and so end at 179 of 180 steps: ``complete`` counts the last one, once the script is done.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.script_files import name_pattern, shown_path
from rekindle.contract.safe_open import open_regular, regular_size
from rekindle.keeper.attempt_result import AttemptResult, Ending
from rekindle.keeper.observers.checkpoints import CheckpointTracker, move_torn

_REPORTING_RANK = 0
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
_TOTAL = re.compile(r"\s*(?:/|of)\s*(?P<total>\d+)", re.IGNORECASE)  # after a number


class ScriptObserver:
    """Observes the script of one attempt. Make it before the ranks start and after those before are gone."""

    def __init__(self, run_dir: RunDir, attempt: int, watch: Sequence[str], record: Callable[..., Any]) -> None:
        """``record`` writes to the journal of the attempt."""
        self._record = record
        for checkpoint, target in move_torn(run_dir, watch):
            paths = {"path": shown_path(checkpoint.path, run_dir.code), "moved_to": shown_path(target, run_dir.code)}
            record(RecordType.CHECKPOINT_TORN, **paths, written_by=checkpoint.attempt)
        self._tracker = CheckpointTracker(run_dir, attempt, watch)
        rank_dir = run_dir.attempt(attempt).rank(_REPORTING_RANK)
        self._printed = PrintedProgress([rank_dir.log("stdout"), rank_dir.log("stderr")])
        self._loaded: str | None = None

    @property
    def has_saved(self) -> bool:
        """True where the script has completed a checkpoint in this attempt, as far as was observed."""
        return self._tracker.saved is True

    def observe_if_due(self) -> None:
        self._printed.read_if_due()
        self._tracker.set_estimates(self._printed.step, self._printed.epoch)
        self._tracker.scan_if_due()
        self._record_loaded()

    def finish(self, result: AttemptResult) -> None:
        """Add to ``result`` what the script has saved and loaded by itself, once the ranks are gone."""
        self._printed.read(ended=True)
        if result.ending is Ending.DONE:
            self._printed.complete()
        self._tracker.set_estimates(self._printed.step, self._printed.epoch)
        self._tracker.finish()
        self._record_loaded()
        result.own_checkpoint_saved, result.own_checkpoint_loaded = self._tracker.saved, self._tracker.loaded

    def _record_loaded(self) -> None:
        path = self._tracker.resumed_from_path
        if path is not None and path != self._loaded:
            self._loaded = path
            self._record(RecordType.CHECKPOINT_LOADED, path=path)


def add_checkpoints_of_lost(result: AttemptResult, run_dir: RunDir, watch: Sequence[str]) -> None:
    """Do what ``ScriptObserver.finish`` does for an attempt that ended together with its keeper."""
    tracker = CheckpointTracker(run_dir, result.attempt, watch, lost=True)
    tracker.finish()
    result.own_checkpoint_saved, result.own_checkpoint_loaded = tracker.saved, tracker.loaded


@dataclass(slots=True)
class _Form:
    """Lines that differ only in their numbers."""

    step: int | None = None
    epoch: int | None = None
    growths: int = 0
    from_zero: set[str] = field(default_factory=set)  # of "step" and "epoch", those that began with 0
    uncounted: set[str] = field(default_factory=set)  # those whose last number is one below what was done in the end


@dataclass(frozen=True, slots=True)
class _Line:
    """The numbers in a line."""

    form: str
    step: int | None
    epoch: int | None
    totals: dict[str, bool]  # of the numbers that have a total in the line: whether they are one below it


class PrintedProgress:
    """Progress by the logs of one attempt's first rank. ``step`` and ``epoch`` are None while nothing is known."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._offsets = dict.fromkeys(logs, 0)
        self._forms: dict[str, _Form] = {}
        self._next_read = 0.0  # seconds of CLOCK_MONOTONIC
        self._completed = False

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

    def complete(self) -> None:
        """Count the last step and epoch: the script is done."""
        self._completed = True

    def read(self, *, ended: bool = False) -> None:
        """Read what is new in the logs, up to ``MAX_BYTES`` of each; with ``ended`` a last line that has no end."""
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
            whole = len(text) if ended else max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
            self._offsets[log] = size - len(text) + whole if whole else offset
            self.feed(text[:whole].decode(errors="replace"))

    def feed(self, text: str) -> None:
        """Add whole lines; a carriage return ends one, too."""
        for line in re.split(r"[\r\n]+", _ANSI.sub("", text)):
            if line and len(line) <= _MAX_LINE and (found := _parse(line)) is not None:
                self._add(found)

    def _add(self, line: _Line) -> None:
        if line.form not in self._forms and len(self._forms) >= _MAX_FORMS:
            return
        form = self._forms.setdefault(line.form, _Form())
        before, now = (form.epoch or 0, form.step or 0), (line.epoch or 0, line.step or 0)
        begun = (form.step, form.epoch) != (None, None)
        if begun and now > before:
            form.growths += 1
        for name in ("step", "epoch"):
            last, value = getattr(form, name), getattr(line, name)
            if not begun and value == 0:
                form.from_zero.add(name)
            counts_each = name in form.from_zero and (last is None or value == last + 1)
            if value != last:
                form.uncounted.discard(name)
                form.uncounted |= {name} if line.totals.get(name, counts_each) else set()
        form.step, form.epoch = line.step, line.epoch

    def _best(self, name: str) -> int | None:
        grown = [form for form in self._forms.values() if form.growths and getattr(form, name) is not None]
        best = max(grown, key=lambda form: form.growths, default=None)
        if best is None:
            return None
        return int(getattr(best, name)) + (self._completed and name in best.uncounted)


def _parse(line: str) -> _Line | None:
    """Read a line; None for one without a step and an epoch."""
    bar, step, epoch = _BAR.search(line), _STEP.search(line), _EPOCH.search(line)
    matches = [match for match in (bar, step, epoch) if match is not None]
    if not matches:
        return None
    prefix = " ".join(line[: min(match.start() for match in matches)].split())  # bars are padded on their left
    if _NO_TRAINING.search(prefix):
        return None
    if bar is not None and _EPOCH_BAR.search(line[: bar.start()].rstrip("0123456789 :")) and epoch is None:
        return _Line(f"bar of epochs {name_pattern(prefix[:80])}", None, _number(bar["step"]), {"epoch": False})
    in_epoch = _IN_EPOCH.search(line)
    part = bar if bar is not None else in_epoch if epoch is not None else None
    number = None if step is None else _number(step["step"])
    printed = None if epoch is None else _number(epoch["epoch"])
    named = {"step": (number, step), "epoch": (printed, epoch)}
    totals = {name: _is_last(line, value, match) for name, (value, match) in named.items()}
    if part is not None:
        number, steps = _number(part["step"]), _number(part["steps"])
        totals["step"] = number is not None and number + 1 == steps
        if number is not None and printed is not None and steps is not None:
            number += printed * steps
    if number is None and printed is None:
        return None
    kinds = "".join(kind for kind, match in (("b", bar), ("s", step), ("e", epoch)) if match is not None)
    known = {name: is_last for name, is_last in totals.items() if is_last is not None}
    return _Line(f"{kinds} {name_pattern(prefix[:80])}", number, printed, known)


def _is_last(line: str, number: int | None, match: re.Match[str] | None) -> bool | None:
    """Whether ``number``, which ``match`` has found, is one below the total after it; None where there is no total."""
    found = None if match is None else _TOTAL.match(line, match.end())
    return None if found is None or number is None else number + 1 == _number(found["total"])


def _number(text: str) -> int | None:
    return number if len(text) < 17 and (number := int(text)) < _MAX_NUMBER else None

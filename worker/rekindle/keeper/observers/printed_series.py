"""Make curves and progress of the lines that one rank has printed. Pure.

A metric counts once lines of the same form have shown it three times; the first two are kept until then. So a job has
a stable, bounded set of names. What lines of another form call by the same name is another series, or none.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from rekindle.keeper.observers.planned_length import UNKNOWN_LENGTH, PlannedLength
from rekindle.keeper.observers.printed_lines import PrintedLine

TIMES = 3  # that a form of line must show a metric
MAX_NAMES = 50
_MAX_PATTERNS = 400  # of a form and a metric; forgotten are those seen longest ago
_MAX_FORMS = 50
_MAX_OTHERS = 50  # lines with a step after which another form than the first sets the position
_MAX_WINDOW = 100  # measurements of progress
_WINDOW = 600.0  # seconds of progress by which the time left is estimated


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a line begins: a byte of a log."""

    rank: int
    stream: str
    offset: int


@dataclass(slots=True)
class PrintedPoint:
    """Metrics of one line; ``step`` is None until it is known to which step they belong."""

    step: int | None
    epoch: int | None
    place: LogPlace
    values: dict[str, float | None] = field(default_factory=dict)
    taken: bool = False


@dataclass(slots=True)
class _Pattern:
    """A metric in lines of one form."""

    name: str | None = None  # of the series, once it counts
    rejected: bool = False
    first: list[tuple[PrintedPoint, float | None]] = field(default_factory=list)


@dataclass(slots=True)
class _Counter:
    """A number that lines of one form count, which may start again in each epoch."""

    base: int = 0  # steps of earlier epochs
    last: int = -1
    epoch: int | None = None
    laps: int = 0


@dataclass(slots=True)
class _Log:
    """How far the lines of a log show that the training is."""

    step: int | None = None  # latest position on the axis of the curves
    form: str | None = None  # of the lines that set ``step``
    others: int = 0  # lines of other forms that have a step, since then
    placed: int | None = None  # latest step of the other log that its points were given
    epoch: int | None = None  # by a line that shows nothing else, such as "Epoch 3/10"
    counters: dict[str, _Counter] = field(default_factory=dict)  # by form
    unplaced: list[PrintedPoint] = field(default_factory=list)


@dataclass(slots=True)
class _Form:
    """Lines that count the same thing and differ only in their numbers."""

    line: PrintedLine | None = None
    growths: int = 0
    restarts: bool = False
    starts_at: int | None = None  # first epoch that was seen
    from_zero: set[str] = field(default_factory=set)  # of "step" and "epoch", those that began with 0
    uncounted: set[str] = field(default_factory=set)  # those whose last number is one below what was done in the end


class PrintedSeries:
    """Curves and progress by the lines of one rank. ``step`` and ``epoch`` are None while nothing is known."""

    def __init__(self, planned: PlannedLength = UNKNOWN_LENGTH) -> None:
        """``planned`` counts for lines that do not say how long the training is."""
        self._planned = planned
        self._patterns: OrderedDict[tuple[str, str], _Pattern] = OrderedDict()  # by form and metric
        self._heads: dict[str, str] = {}  # by series: the form of its lines
        self._logs: dict[str, _Log] = {}  # by stream
        self._forms: dict[str, _Form] = {}
        self._points: list[PrintedPoint] = []
        self._count = 0
        self._completed = False
        self._parts_of_epochs = False  # epochs are printed with a fraction, as in "1.25"
        self._window: deque[tuple[float, float]] = deque(maxlen=_MAX_WINDOW)  # seconds, progress

    @property
    def step(self) -> int | None:
        return self._best("step")

    @property
    def epoch(self) -> int | None:
        return self._best("epoch")

    def complete(self) -> None:
        """Count the last step and epoch: the script is done."""
        self._completed = True

    def add(self, line: PrintedLine, place: LogPlace) -> None:
        """Add a line; those of a log come in their order."""
        log = self._logs.setdefault(place.stream, _Log())
        if line.form:
            self._add_progress(line)
        step = _axis_step(log, line)
        if not line.values:
            return
        point = PrintedPoint(step, line.epoch, place)
        if step is None:
            log.unplaced.append(point)
        head = line.head if line.size is None else f"{line.head} /{line.size}"  # data of another size are others
        for name, value in line.values.items():
            self._add_value(point, head, name, value)
        if point.values and not any(point is each for each in self._points[-TIMES:]):
            self._points.append(point)

    def take(self) -> list[PrintedPoint]:
        """Take the points since the last call, each with its step."""
        for stream, log in self._logs.items():
            if log.unplaced:
                others = [each.step for name, each in self._logs.items() if name != stream and each.step is not None]
                self._place(log, max(others, default=None))
        points, self._points = self._points, []
        for point in points:
            point.taken = True
        return points

    def progress(self) -> float | None:
        """The part of the training that is done, 0 to 1; None where the lines do not say how long it is."""
        if self._completed and self._window:
            return 1.0
        shares = [(form.growths, share) for form in self._forms.values() if (share := self._share(form)) is not None]
        return max(shares, default=(0, None))[1]

    def seconds_left(self, now: float) -> float | None:
        """Seconds until the training ends by the latest ten minutes; ``now`` in seconds of any clock."""
        done = self.progress()
        if done is None:
            return None
        window = self._window
        if window and done < window[-1][1]:
            window.clear()
        if not window or now - window[-1][0] >= _WINDOW / _MAX_WINDOW or len(window) == 1:
            window.append((now, done))
        while now - window[0][0] > _WINDOW and len(window) > 2:
            window.popleft()
        (then, before) = window[0]
        return (1 - done) * (now - then) / (done - before) if done > before and now > then else None

    def _add_value(self, point: PrintedPoint, head: str, metric: str, value: float | None) -> None:
        pattern = self._patterns.setdefault((head, metric), _Pattern())
        self._patterns.move_to_end((head, metric))
        if len(self._patterns) > _MAX_PATTERNS:
            self._forget_one()
        if pattern.name is None and not pattern.rejected:
            if len(pattern.first) + 1 < TIMES:
                pattern.first.append((point, value))
                return
            self._accept(pattern, head, metric)
        if pattern.name is not None:
            point.values[pattern.name] = value

    def _forget_one(self) -> None:
        for key, pattern in self._patterns.items():
            if pattern.name is None:
                del self._patterns[key]
                return

    def _accept(self, pattern: _Pattern, head: str, metric: str) -> None:
        """Give the pattern the name of its series, and add its first points; or reject it."""
        name = metric
        if name in self._heads:
            others = set(head.split()) - set(self._heads[name].split())
            name = f"{word}_{metric}" if len(others) == 1 and (word := others.pop()).isalpha() else ""
        first, pattern.first = pattern.first, []
        if not name or name in self._heads or len(self._heads) >= MAX_NAMES:
            pattern.rejected = True
            return
        pattern.name, self._heads[name] = name, head
        for point, value in first:
            if point.taken:
                self._points.append(PrintedPoint(point.step, point.epoch, point.place, {name: value}))
            else:
                point.values[name] = value
                if not any(point is each for each in self._points):
                    self._points.append(point)

    def _place(self, log: _Log, latest: int | None) -> None:
        """Give points without a step those of the other log up to ``latest``, evenly; else their epoch or number."""
        points, log.unplaced = log.unplaced, []
        begin = latest if log.placed is None or latest is None else min(log.placed, latest)
        for number, point in enumerate(points, start=1):
            self._count += 1
            if latest is not None and begin is not None:
                point.step = begin + (latest - begin) * number // len(points)
            else:
                by_epoch = point.epoch is not None and not self._parts_of_epochs
                point.step = point.epoch if by_epoch else self._count
        log.placed = latest

    def _add_progress(self, line: PrintedLine) -> None:
        if line.form not in self._forms and len(self._forms) >= _MAX_FORMS:
            return
        self._parts_of_epochs = self._parts_of_epochs or not line.whole_epoch
        form = self._forms.setdefault(line.form, _Form())
        last = form.line
        before = (-1, -1) if last is None else (last.epoch or 0, last.step or 0)
        now = (line.epoch or 0, line.step or 0)
        if last is not None and now > before:
            form.growths += 1
        form.restarts = form.restarts or now < before
        form.starts_at = line.epoch if form.starts_at is None else form.starts_at
        for name in ("step", "epoch"):
            previous, value = None if last is None else getattr(last, name), getattr(line, name)
            if last is None and value == 0:
                form.from_zero.add(name)
            counts_each = name in form.from_zero and value is not None and (previous is None or value == previous + 1)
            if value != previous:
                form.uncounted.discard(name)
                form.uncounted |= {name} if line.totals.get(name, counts_each) else set()
        form.line = line

    def _best(self, name: str) -> int | None:
        known = [(form, form.line) for form in self._forms.values() if form.growths and form.line is not None]
        grown = [(form, line) for form, line in known if getattr(line, name) is not None]
        best = max(grown, key=lambda pair: pair[0].growths, default=None)
        if best is None:
            return None
        return int(getattr(best[1], name)) + (self._completed and name in best[0].uncounted)

    def _share(self, form: _Form) -> float | None:
        line = form.line
        if line is None or not form.growths or form.restarts:
            return None
        epochs = line.epochs or self._planned.epochs
        if line.epoch is not None and epochs and line.epoch <= epochs:
            first = 0 if form.starts_at == 0 else 1
            done = line.epoch - first + (line.part if line.part is not None else 1.0 if not line.is_bar else first)
            return min(max(done / epochs, 0.0), 1.0)
        whole = self._parts_of_epochs or not line.is_bar  # a bar may be that of one epoch
        if not whole or line.step is None:
            return None
        if line.steps:
            return min(line.step / line.steps, 1.0)
        steps = None if line.epoch is not None or line.is_bar else self._planned.steps
        return line.step / steps if steps and line.step <= steps else None


def _axis_step(log: _Log, line: PrintedLine) -> int | None:
    """The position of a line on the axis of the curves; None where another log may know it."""
    if line.epoch is not None and not line.values and line.step is None and line.position is None:
        log.epoch = line.epoch
    number = line.position if line.size is not None or line.step is None else line.step
    if number is None:
        return log.step
    form = line.form if line.form in log.counters or len(log.counters) < _MAX_FORMS else ""
    step = _counted(log.counters.setdefault(form, _Counter()), line, number, log.epoch)
    log.others = 0 if form == log.form else log.others + 1
    if log.form in (None, form) or log.others > _MAX_OTHERS:
        log.form, log.step = form, step
    return step


def _counted(counter: _Counter, line: PrintedLine, number: int, epoch: int | None) -> int:
    """Steps of all epochs, where ``number`` may be one within an epoch: the line's, or the last one that was begun."""
    epoch = line.epoch if line.epoch is not None else epoch
    starts_again = number < counter.last
    if line.size is not None and epoch is not None:
        step = epoch * line.size + number
    elif line.size is not None:
        counter.laps += starts_again
        step = counter.laps * line.size + number
    else:
        if number <= counter.last and line.epoch is not None and line.epoch > (counter.epoch or 0):
            counter.base += counter.last  # also where each epoch shows the same number
        step = counter.base + number
    counter.last, counter.epoch = number, line.epoch
    return step

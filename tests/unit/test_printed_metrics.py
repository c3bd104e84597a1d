"""Curves and progress from printed lines, measured on the output of public training scripts."""

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rekindle.keeper.observers.planned_length import UNKNOWN_LENGTH, PlannedLength, planned_length
from rekindle.keeper.observers.printed_lines import LineReader
from rekindle.keeper.observers.printed_series import MAX_NAMES, LogPlace, PrintedSeries

CORPUS = Path(__file__).parent / "printed_output"


@dataclass
class Case:
    """Output of a script, and the series that a person would name."""

    name: str
    lines: list[str] = field(default_factory=list)
    series: dict[str, list[float]] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)
    progress: dict[str, str] = field(default_factory=dict)


def read_cases(path: Path) -> Iterator[Case]:
    _, *parts = path.read_text().split("\n## ")
    for part in parts:
        name, *lines = part.split("\n")
        case = Case(name)
        for line in lines:
            if line.startswith("= "):
                metric, _, values = line[2:].rpartition(":")
                case.series[metric] = [float(value) for value in values.split()]
            elif line.startswith("~ "):
                case.optional.add(line[2:])
            elif line.startswith("@ "):
                case.progress = dict(pair.split("=", 1) for pair in line[2:].split())
            else:
                case.lines += line.replace("\\e", "\x1b").replace("\\b", "\b").split("\\r")
        yield case


def read_series(
    lines: list[str], planned: PlannedLength = UNKNOWN_LENGTH
) -> tuple[PrintedSeries, dict[str, list[float]]]:
    reader, series = LineReader(), PrintedSeries(planned)
    found = defaultdict(list)
    for number, line in enumerate(lines):
        if (read := reader.read(line)) is not None:
            series.add(read, LogPlace(0, "stdout", number))
        for point in series.take():
            for name, value in point.values.items():
                found[name].append(math.nan if value is None else value)
    return series, found


def same(found: list[float], expected: list[float]) -> bool:
    return len(found) == len(expected) and all(
        math.isclose(one, other) or (math.isnan(one) and math.isnan(other))
        for one, other in zip(found, expected, strict=True)
    )


def measure(path: Path) -> tuple[int, int, int, list[str]]:
    """Numbers of right, found and expected series, and what is wrong."""
    right = shown = expected = 0
    wrong = []
    for case in read_cases(path):
        _, found = read_series(case.lines)
        good = {name for name, values in case.series.items() if same(found.get(name, []), values)}
        counted = set(found) - case.optional
        right, shown, expected = right + len(good), shown + len(counted), expected + len(case.series)
        wrong += [f"{case.name}: {name} = {found[name]}" for name in sorted(counted - good)]
        wrong += [f"{case.name}: no {name}" for name in sorted(set(case.series) - set(found))]
    return right, shown, expected, wrong


@pytest.mark.parametrize("half", ["seen", "held_out"])
def test_series_of_public_scripts_are_found_and_nothing_else(half: str) -> None:
    right, shown, expected, wrong = measure(CORPUS / f"{half}.txt")
    assert right >= 0.99 * shown, wrong
    assert right >= 0.90 * expected, wrong


@pytest.mark.parametrize("case", [case for half in ("seen", "held_out") for case in read_cases(CORPUS / f"{half}.txt")])
def test_step_and_epoch_of_public_scripts_are_found(case: Case) -> None:
    series, _ = read_series(case.lines)
    for name, text in case.progress.items():
        assert getattr(series, name) == int(text.partition("/")[0])
    if not case.series and not case.progress:
        assert (series.step, series.epoch, series.progress()) == (None, None, None)


DONE = [
    ("Epoch {0}/4 loss 0.1", range(1, 4), 0.75),
    ("Epoch: [{0}/4] loss 0.1", range(3), 0.75),
    ("Epoch {0} loss 0.1", range(1, 4), None),
    ("step {0}/180: loss 1", range(91), 0.5),
    ("Epoch 2/4:  45%|#| {0}/100 [00:10<00:12,  4.10it/s, loss=0.1]", range(51), 0.375),
    (" 45%|#| {0}/100 [00:10<00:12,  4.10it/s, loss=0.1]", range(51), None),  # perhaps of one epoch of many
    ("Epochs:  45%|#| {0}/100 [00:10<00:12,  4.10it/s, loss=0.1]", range(51), 0.5),
    ("Epoch [1/5], Step [{0}/600], Loss: 2.1", range(300, 302), 301 / 3000),
]  # fmt: skip


@pytest.mark.parametrize(("line", "numbers", "done"), DONE)
def test_the_share_that_is_done_is_known_only_where_the_lines_say_so(line: str, numbers: range, done: float) -> None:
    series, _ = read_series([line.format(number) for number in numbers])
    assert series.progress() == (None if done is None else pytest.approx(done))


SOURCE = """
parser.add_argument("total_epochs", type=int, help="(how many)")
parser.add_argument('save_every', type=int)
parser.add_argument("-b", "--batch_size", default=32, type=int)
"""
PLANNED = [
    (["--epochs", "15"], "", (15, None)),
    (["-j", "4", "--max_iters=80"], "", (None, 80)),
    (["trainer.max_epochs=20", "lr=0.1"], "", (20, None)),
    (["--epochs", "3", "--epochs", "5"], "", (5, None)),
    (["20", "1"], SOURCE, (20, None)),
    (["--batch_size", "8", "20", "1"], SOURCE, (None, None)),  # 8 may be the value of the option, or not
    ([], "p.add_argument('--epochs', default=90, type=int, metavar='N')", (90, None)),
    (["--epochs", "5"], "p.add_argument('--epochs', default=90, type=int)", (5, None)),
    ([], "p.add_argument('--max-steps', type=int, default=-1); p.add_argument('--epochs', default=3)", (3, None)),
    (["--epochs", "3", "--max_steps", "60"], "", (None, None)),  # whichever comes first
    (["--num-steps", "128", "--update-epochs", "4", "--warmup-steps", "9", "--steps-per-epoch", "3"], "", (None, None)),
    (["--epochs", "many"], "", (None, None)),
    (["--epochs", "9" * 5000, "--epochs=\N{SUPERSCRIPT TWO}"], "", (None, None)),
    (["--epochs"], "x.add_argument(" * 10_000, (None, None)),
]  # fmt: skip


@pytest.mark.parametrize(("args", "source", "length"), PLANNED)
def test_the_arguments_say_how_long_the_training_is(
    args: list[str], source: str, length: tuple[int | None, int | None], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(source)
    assert planned_length(args, tmp_path / "train.py") == PlannedLength(*length)
    assert planned_length([], tmp_path / "missing.py") == UNKNOWN_LENGTH


BY_PLAN = [
    ("Epoch {0} loss 0.1", range(1, 4), PlannedLength(epochs=4), 0.75),
    ("Epoch: [{0}][5/10] Loss 0.1", range(3), PlannedLength(epochs=4), 0.625),
    ("Epoch {0}/6 loss 0.1", range(1, 4), PlannedLength(epochs=4), 0.5),  # the line knows better
    ("Epoch {0} loss 0.1", range(1, 7), PlannedLength(epochs=4), None),  # the arguments mean something else
    ("iter {0}: loss 1", range(31), PlannedLength(steps=60), 0.5),
    ("iter {0}: loss 1", range(61), PlannedLength(steps=30), None),
    ("Epoch 2 step {0}: loss 1", range(31), PlannedLength(steps=60), None),  # perhaps of each epoch
    (" 45%|#| {0}/100 [00:10<00:12,  4.10it/s, loss=0.1]", range(51), PlannedLength(steps=60), None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "numbers", "planned", "done"), BY_PLAN)
def test_lines_without_a_total_get_that_of_the_arguments(
    line: str, numbers: range, planned: PlannedLength, done: float | None
) -> None:
    series, _ = read_series([line.format(number) for number in numbers], planned)
    assert series.progress() == (None if done is None else pytest.approx(done))


AXES = [
    (["iter 10: loss 1", "iter 20: loss 1", "iter 30: loss 1"], [10, 20, 30]),
    (["Epoch 4 loss 1", "Epoch 5 loss 1", "Epoch 6 loss 1"], [4, 5, 6]),
    (["loss: 3", "loss: 2", "loss: 1"], [1, 2, 3]),
    ([f"epoch {epoch} | batch 50 | loss 1" for epoch in (1, 2, 3)], [50, 100, 150]),
    ([f"Epoch: [{epoch}][ {step}/50] Loss 1" for epoch in (0, 1) for step in (10, 40)], [10, 40, 60, 90]),
    ([f"[{epoch},  {step}] loss: 1.5" for epoch in (1, 2) for step in (10, 40)], [10, 40, 50, 80]),
    ([f" 45%|#| {step}/50 [00:10<00:12, 4.1it/s, loss=1]" for _ in "12" for step in (10, 40)], [10, 40, 60, 90]),
    ([line for step in (10, 20, 30) for line in (f"step {step}/90", "val loss: 0.1")], [10, 20, 30]),
    (["Epoch 1/3", "9/50 [==>...] - loss: 2", "Epoch 2/3", "9/50 [==>...] - loss: 2", "20/50 [==>...] - loss: 2"],
     [59, 109, 120]),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "steps"), AXES)
def test_points_are_at_the_step_that_the_lines_show(lines: list[str], steps: list[int]) -> None:
    reader, series = LineReader(), PrintedSeries()
    for number, line in enumerate(lines):
        if (read := reader.read(line)) is not None:
            series.add(read, LogPlace(0, "stdout", number))
    assert [point.step for point in series.take()] == steps


def test_metrics_get_their_steps_from_the_bar_in_the_other_stream() -> None:
    reader, series = LineReader(), PrintedSeries()
    found = []
    for step in (100, 200):
        bar = reader.read(f" 17%|#| {step}/600 [00:10<00:50, 10.01it/s]")
        assert bar is not None
        series.add(bar, LogPlace(0, "stderr", step))
        for number in (1, 2):
            line = reader.read(f"{{'loss': 2.{number}, 'epoch': 0.{step + number}}}")
            assert line is not None
            series.add(line, LogPlace(0, "stdout", step + number))
        found += [point.step for point in series.take()]
    assert found == [100, 100, 150, 200]


def test_a_pattern_counts_once_it_has_come_three_times() -> None:
    assert read_series(["loss: 3", "loss: 2"])[1] == {}
    assert read_series(["loss: 3", "loss: 2", "loss: 1"])[1] == {"loss": [3, 2, 1]}


def test_ten_thousand_names_are_bounded_and_hide_no_metric() -> None:
    lines = [line for number in range(10_000) for line in (f"step {number} key{number}_loss=0.5", f"loss: {number}")]
    _, found = read_series(lines)
    assert set(found) == {"loss"}
    lines = [f"step {number} loss_{number % 300}=0.5" for number in range(5000)]
    assert len(read_series(lines)[1]) == MAX_NAMES


HOSTILE = [
    "\x1b[31m" * 400 + "loss: 1",
    "{" * 1000,
    '{"a":' * 400 + "1" + "}" * 400,
    "loss: " + "9" * 1900,
    "loss 0.1 " * 200,
    "1/2" * 600,
    "(" * 1500 + "1",
    " ".join(map(str, range(400))),
    "a:" * 900 + "1",
    "| " * 900,
    "\0\ud800loss: 1".encode(errors="surrogatepass").decode(errors="replace"),
]  # fmt: skip


@pytest.mark.parametrize("line", HOSTILE)
def test_no_line_is_too_strange_or_takes_long(line: str) -> None:
    for _ in range(3):
        begun = time.process_time()
        LineReader().read(line)
        assert time.process_time() - begun < 0.5

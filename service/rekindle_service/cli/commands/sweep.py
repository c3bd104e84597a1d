"""`rekindle sweep`: a script with several values for some of its options, as one experiment."""

import math
import re
import shlex
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer

from rekindle.contract.job_options import OptionGroup
from rekindle_service.cli import source_code
from rekindle_service.cli.commands.experiment import finish
from rekindle_service.cli.commands.submit import (
    CODE_HELP,
    COMMAND_HELP,
    MODULE_HELP,
    RECIPE_HELP,
    REF_HELP,
    Words,
    common_name,
    request_fields,
    target_of,
)
from rekindle_service.cli.context import connect, settings_of
from rekindle_service.cli.help_and_errors import words_before
from rekindle_service.cli.job_interpreter import send_with_interpreter
from rekindle_service.cli.job_request import job_fields, require_order, with_job_options
from rekindle_service.cli.terminal import OutputOption, working
from rekindle_service.client.api_connection import drop_unset
from rekindle_service.experiments.trials import MAX_JOBS, Value

_OWN = ("--goal", "--prune", "--trials", "--parallel")  # a script hardly ever has them
_NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"(log:)?({_NUMBER}):({_NUMBER})")
_KEY = re.compile(r"[\w.+~/@-]+=")
_COMMA = re.compile(r"(?<!\\),")
_DIGITS = 4  # significant ones of a number that is drawn
_TITLE = 500  # characters, at most

_in_sweep = partial(typer.Option, rich_help_panel="Sweep")
_in_code = partial(typer.Option, rich_help_panel=OptionGroup.CODE)


@with_job_options
def sweep(
    context: typer.Context,
    command: Annotated[
        Words, typer.Argument(metavar="[SCRIPT] [--OPTION VALUES]... [-- ARGS]...", help=COMMAND_HELP)
    ] = None,
    trials: Annotated[
        int | None, _in_sweep(min=1, max=MAX_JOBS, help="Number of combinations to draw. (default: all)")
    ] = None,
    seed: Annotated[int, _in_sweep(help="With --trials or --prune: another one draws another order. (default: 0)")] = 0,
    goal: Annotated[
        str | None,
        _in_sweep(
            metavar="METRIC|-METRIC",
            help="Choose the winner by it; - in front: lower is better. (default: the first known one)",
        ),
    ] = None,
    prune: Annotated[
        bool, _in_sweep("--prune", help="Drain trials that lag at 1/9 and 1/3 of the training; needs --goal.")
    ] = False,
    parallel: Annotated[int | None, _in_sweep(help="Trials that run at once. (default: no limit)", min=1)] = None,
    follow: Annotated[bool, _in_sweep("--follow", help="Wait for all trials, then print table and winner.")] = False,
    output: OutputOption = "table",
    module: Annotated[str | None, _in_code("-m", "--module", help=MODULE_HELP)] = None,
    recipe: Annotated[str | None, _in_code(metavar="NAME", help=RECIPE_HELP)] = None,
    code: Annotated[Path | None, _in_code(help=CODE_HELP)] = None,
    git: Annotated[str | None, _in_code(metavar="URL", help="Git repository to take the code from.")] = None,
    ref: Annotated[str | None, _in_code(help=REF_HELP)] = None,
    **options: Any,
) -> None:
    r"""Run a script with several values of its options and compare them.

    rekindle sweep train.py --lr 0.1,0.01 --width 64,128 -- --epochs 9

    Options of rekindle come before SCRIPT; after it, every option or key=value with commas is varied. Arguments after
    -- are passed to each trial as they are. With --trials, 1e-4:1e-1 is a range (of whole numbers: 32:256), and
    log:1e-4:1e-1 a logarithmic one. Write \, and \: for a comma or colon within a value. With --module or --recipe, put
    -- before the varied options, too.
    """
    kind, target, args = target_of(context, command, module, recipe, options)
    varied, fixed = _divided(args, words_before(context, args))
    if prune and goal is None:
        raise typer.BadParameter("--prune compares trials by a metric: pass --goal METRIC, too")
    own, space = read_space(varied, fixed)
    matrix = combinations(space, trials, seed, shuffled=prune)
    drawn = [] if trials is None else ["--trials", str(trials), "--seed", str(seed)]
    shown = [target] if kind == "script" else [f"--{kind}", target, "--"]
    source = source_code.locate(kind, target, code, git=git, ref=ref)
    with connect(context) as client:
        job = {**job_fields(options), "args": [*own, *fixed]}
        fields = request_fields(context, client, kind, source, job)
        body = {
            "name": common_name(fields),
            "title": shlex.join(["rekindle", "sweep", *drawn, *shown, *args])[:_TITLE],
            "base": {name: value for name, value in fields.items() if name != "name"},
            "matrix": matrix,
            **drop_unset(goal=goal, prune=prune or None, parallel=parallel),
        }
        with working("Submitting the trials"):
            found = send_with_interpreter(settings_of(context), client.submit_experiment, body, "base")
        raise typer.Exit(finish(client, found, output, follow=follow))


def _divided(args: list[str], before: list[str]) -> tuple[list[str], list[str]]:
    """The words before and after the ``--``; ``before``: those before ``args``. Raises BadParameter."""
    end = args.index("--") if "--" in args else len(args)
    if end:
        require_order(before, args, "sweep", _OWN)
    return args[:end], args[end + 1 :]


# --- the values of each option


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Numbers between two ends, of which trials draw some. ``log``: each magnitude is equally likely."""

    low: float
    high: float
    log: bool
    whole: bool

    def draw(self, random: Random) -> Value:
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        value = random.uniform(low, high + (self.whole and not self.log))  # each whole number has as wide a share
        value = min(max(math.exp(value) if self.log else value, self.low), self.high)
        if self.whole:
            return round(value) if self.log else math.floor(value)
        return min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)


Space = Mapping[str, list[Value] | ValueRange]


def read_space(words: Sequence[str], fixed: Sequence[str] = ()) -> tuple[list[str], Space]:
    """The words with one value or none, and the values of each option that has several. Raises BadParameter.

    ``fixed``: words for each trial, which must not have an option that is varied.
    """
    left, own, keys, space = deque(words), list[str](), Counter[str](), dict[str, list[Value] | ValueRange]()
    while left:
        word = left.popleft()
        key, equals, text = word.partition("=")
        has_value = bool(equals) if _is_option(word) else bool(_KEY.match(word))
        if _is_option(word) and not equals and left and not _is_option(left[0]) and not _KEY.match(left[0]):
            has_value, text = True, left.popleft()
        keys[key] += 1
        values = _values(key, text) if has_value else None
        if isinstance(values, ValueRange) or (values is not None and len(values) > 1):
            space[f"{key}=" if equals else key] = values  # as it was written: some scripts read only one of the two
        else:
            own += [word] if equals or not has_value else [word, text]
    keys.update(word.partition("=")[0] for word in fixed)
    if not space:
        other = next((f"; {word} belongs to no option" for word in own if _COMMA.search(word)), "")
        raise typer.BadParameter(
            f"no option has several values: write some after the script, as in --lr 0.1,0.01{other}"
        )
    if twice := [key for key in space if keys[key.removesuffix("=")] > 1]:
        raise typer.BadParameter(f"{twice[0]} is given twice: write all its values once, with commas between them")
    return [_plain(each) for each in own], space


def _is_option(word: str) -> bool:
    return word.startswith("-") and not re.match(_NUMBER, word)


def _values(key: str, text: str) -> list[Value] | ValueRange:
    if match := _RANGE.fullmatch(text):
        log, low, high = match.groups()
        found = ValueRange(float(low), float(high), bool(log), not re.search(r"[.eE]", low + high))
        if not found.low < found.high < math.inf or (found.log and found.low <= 0):
            rule = "two numbers above 0, the lower one first" if log else "the lower number first"
            raise typer.BadParameter(f"{key} {text}: a range has {rule}; write \\: for a colon within a value")
        return found
    parts = _COMMA.split(text)
    if len(parts) > 1 and "" in parts:
        raise typer.BadParameter(f"{key} {text}: has an empty value; write \\, for a comma within a value")
    if repeated := [part for part, times in Counter(parts).items() if times > 1]:
        raise typer.BadParameter(f"{key} {text}: has {repeated[0]} twice")
    return [_number(_plain(part)) for part in parts]


def _plain(text: str) -> str:
    return re.sub(r"\\([,:])", r"\1", text)


def _number(text: str) -> Value:
    """A number where the script gets the same number; 3.10 and 007 stay texts."""
    if not re.fullmatch(_NUMBER, text):
        return text
    number = int(text) if re.fullmatch(r"-?\d+", text) else float(text)
    return number if math.isfinite(number) and (str(number) == text or "e" in text.lower()) else text


# --- the combinations


def combinations(
    space: Space, trials: int | None, seed: int, *, shuffled: bool = False
) -> list[dict[str, list[Value]]]:
    """Matrices: one with all combinations, or ``trials`` with one each, the same for a seed. Raises BadParameter.

    ``shuffled``: all in random order, too, since trials that improve one after the other never lag.
    """
    lists = {key: values for key, values in space.items() if not isinstance(values, ValueRange)}
    ranged = next((key for key in space if key not in lists), None)
    count = math.prod(map(len, lists.values()))
    if trials is None:
        if ranged is not None:
            raise typer.BadParameter(
                f"{ranged} has a range, of which trials are drawn: pass --trials 20 before the script"
            )
        if count > MAX_JOBS:
            raise typer.BadParameter(f"{count} trials exceed the maximum of {MAX_JOBS}: draw some with --trials 20")
    amount = count if trials is None else trials if ranged else min(trials, count)
    if ranged is None and amount == count and not shuffled:
        return [lists]
    random = Random(seed)  # noqa: S311  # nosec B311
    chosen = random.sample(range(count), amount) if ranged is None else [random.randrange(count) for _ in range(amount)]
    return [_combination(space, index, random) for index in chosen]


def _combination(space: Space, index: int, random: Random) -> dict[str, list[Value]]:
    """The combination of the lists that ``index`` counts, with numbers drawn from the ranges."""
    found: dict[str, list[Value]] = {}
    for key, values in space.items():
        if isinstance(values, ValueRange):
            found[key] = [values.draw(random)]
        else:
            index, position = divmod(index, len(values))
            found[key] = [values[position]]
    return found

"""How long a training is to be, by the arguments of its script. Pure.

Many scripts print which epoch or step they are at, and not of how many. The number is in their arguments, or among the
defaults that the script gives to ``argparse``. Where both epochs and steps are limited, nobody knows which one ends the
training, and none counts.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rekindle.contract.safe_open import open_regular

_MAX_SOURCE = 256 << 10  # bytes
_EPOCHS = re.compile(r"(?:num|n|max|total)?(?:train|training)?epochs?")
_STEPS = re.compile(
    r"(?:(?:max|total)(?:train|training)?|(?:num)?(?:train|training))?(?:steps|iters|iterations)|numiters"
)
_CALL = re.compile(r"\.add_argument\(\s*((?:[^()]|\([^()]*\))*)\)")
_FLAG = re.compile(r"['\"](-{0,2}[A-Za-z][\w-]*)['\"]\s*(?:,|$)")
_DEFAULT = re.compile(r"\bdefault\s*=\s*([\d_]+)\s*(?:,|$)")


@dataclass(frozen=True, slots=True)
class PlannedLength:
    """Number of epochs or of steps of the whole training; None where it is not known."""

    epochs: int | None = None
    steps: int | None = None


UNKNOWN_LENGTH = PlannedLength()


def planned_length(args: Sequence[str], script: Path | None = None) -> PlannedLength:
    """Read the length from ``args``, else from the defaults in ``script``, which may be missing or anything."""
    given = {**_defaults(args, _source(script)), **dict(_given(args))}
    limits = {kind: int(text) for kind, text in given.items() if text.isdecimal() and len(text) <= 9 and int(text) > 0}
    return UNKNOWN_LENGTH if len(limits) > 1 else PlannedLength(**limits)


def _given(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What options say: ``--epochs 9``, ``--max_steps=60``, ``trainer.max_epochs=20``."""
    for name, following in pairwise([*args, ""]):
        key, equals, value = name.partition("=")
        if (equals or name.startswith("--")) and (kind := _kind(key)) is not None:
            yield kind, value if equals else following


def _defaults(args: Sequence[str], source: str) -> dict[str, str]:
    """What ``argparse`` gives to an option that is not among ``args``, and positional arguments before any option."""
    found, positions = {}, iter(args)
    for call in _CALL.finditer(source):
        names = _FLAG.findall(call[1])
        positional = names[:1] and not names[0].startswith("-")
        value = next(positions, "-") if positional else None
        if value is not None and value.startswith("-"):
            positions, value = iter(()), None
        if value is None and (default := _DEFAULT.search(call[1])) is not None:
            value = default[1].replace("_", "")
        if value is not None and (kind := next(filter(None, map(_kind, names)), None)) is not None:
            found[kind] = value
    return found


def _kind(name: str) -> str | None:
    """Which length an option sets: that of ``trainer.max_epochs`` is ``epochs``."""
    word = re.sub(r"[-_]", "", name.rpartition(".")[2].lower())
    return "epochs" if _EPOCHS.fullmatch(word) else "steps" if _STEPS.fullmatch(word) else None


def _source(script: Path | None) -> str:
    with suppress(OSError):
        if script is not None:
            with open_regular(script) as file:
                return file.read(_MAX_SOURCE).decode(errors="replace")
    return ""

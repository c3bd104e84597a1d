"""What a wrong value or a misspelt name is answered with: the rule, or the names that come closest."""

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches

_CLOSE = 0.6  # of 1: the same
_AS_CLOSE = 0.15  # so much less than the closest is still worth a guess


_SUBJECT = re.compile(r"^(?:Value error,|Input|String|List|Dictionary|Tuple) (should )?")


def rule_of(message: str) -> str:
    """``must be a valid integer`` for pydantic's ``Input should be a valid integer``."""
    return _SUBJECT.sub(lambda match: "must " if match[1] else "", message)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """The names that come closest to a misspelt one, else the whole list."""
    near = closest(name, known)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"known here: {', '.join(known)}" if known else ""


def closest(name: str, known: Iterable[str]) -> list[str]:
    """The names that are most like a misspelt one, the closest first; none where no name is alike."""
    near = get_close_matches(name, known := list(known), max(len(known), 1), _CLOSE)
    likeness = {each: SequenceMatcher(None, each, name).ratio() for each in near}
    return [each for each in near if likeness[each] >= likeness[near[0]] - _AS_CLOSE]

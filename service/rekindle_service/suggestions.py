"""Suggestions for a misspelt name: did you mean …?"""

from collections.abc import Sequence
from difflib import SequenceMatcher

_CLOSE = 0.6  # of 1: the same
_AS_CLOSE = 0.15  # so much less than the closest is still worth a guess


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """The names that come closest to a misspelt one, else the whole list."""
    closeness = {each: SequenceMatcher(None, name, each).ratio() for each in known}
    best = max(closeness.values(), default=0.0)
    if best >= _CLOSE:
        near = sorted((each for each in known if closeness[each] >= best - _AS_CLOSE), key=lambda one: -closeness[one])
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"known here: {', '.join(known)}" if known else ""

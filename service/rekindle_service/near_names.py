"""What a person may have meant by a name that there is not."""

import difflib
from collections.abc import Sequence


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """The one or two names that come close to a misspelt one, else the whole list."""
    close = difflib.get_close_matches(name, known, n=2)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"known here: {', '.join(known)}" if known else ""

"""Limits on the structure of a JSON text, checked before it is parsed.

A parser builds every value, and the validation that follows describes every wrong one: a few megabytes of tiny values
would keep the server busy for seconds, and no other request is served meanwhile.
"""

import re

MAX_VALUES = 100_000
MAX_KEYS = 10_000
MAX_DEPTH = 32

_TOKEN = re.compile(rb'[^"\[\]{},:]++|"(?:[^"\\]++|\\.)*+"?|[\[\]{},:]', re.DOTALL)
_STARTERS = frozenset(b"[{,")
"""Each begins a value, or would in an empty list or object: the count is never too small."""


def violated_limit(text: bytes) -> str | None:
    """The limit that ``text`` exceeds, as a rule; None where it keeps all of them. Invalid JSON is not detected.

    Takes time for as many values as are allowed, not for as many as there are.
    """
    values = keys = depth = 0
    for token in _TOKEN.finditer(text):
        sign = text[token.start()]
        values += sign in _STARTERS
        if sign == ord(":"):
            keys += 1
        elif sign in b"[{":
            depth += 1
        elif sign in b"]}":
            depth -= 1
        if values > MAX_VALUES or keys > MAX_KEYS or depth > MAX_DEPTH:
            return f"must have at most {MAX_VALUES} values, {MAX_KEYS} keys and {MAX_DEPTH} levels of nesting"
    return None

"""Answers for agents: of bounded size, without control characters, and with text of jobs and people marked as such."""

import json
import re
from collections.abc import Mapping
from typing import Any

from rekindle_service.sanitize import sanitize_line, strip_control

Answer = dict[str, Any]

UNTRUSTED = "untrusted_"
"""Beginning of the keys whose text may have been written by a job or a person."""
MAX_BYTES, MAX_ITEMS = 16_000, 100
WORD = re.compile(r"[\w.:/+@#%-]{0,64}", re.ASCII)
"""Text that is too short and plain to be read as an instruction: a name, a path, a time."""
_LIMITS = (
    (MAX_ITEMS, 2000),
    (50, 600),
    (20, 300),
    (10, 150),
    (5, 80),
    (2, 40),
)  # items of a list, characters of a text


class Sentence(str):
    """Text of rekindle alone, which needs no mark."""

    __slots__ = ()


def picked(source: Mapping[str, Any], names: str) -> Answer:
    """The fields of ``source`` with these names, separated by spaces, that have a value."""
    return {name: source[name] for name in names.split() if source.get(name) not in (None, "", [], {})}


def marked(value: Any) -> Any:
    """``value`` without control characters; a key with text that is no word begins with ``untrusted_``."""
    match value:
        case Mapping():
            return {_key(str(key), each): marked(each) for key, each in value.items() if each is not None}
        case list() | tuple():
            return [marked(each) for each in value]
        case str() if not isinstance(value, Sentence):
            return strip_control(value)
    return value


def _key(key: str, value: Any) -> str:
    texts = [key, *(value if isinstance(value, list | tuple) else [value])]
    is_own = all(not isinstance(each, str) or isinstance(each, Sentence) or WORD.fullmatch(each) for each in texts)
    return key if is_own else UNTRUSTED + sanitize_line(key.removeprefix(UNTRUSTED))[:100]


def bounded(answer: Answer, limit: int = MAX_BYTES) -> Answer:
    """``answer`` marked, with lists and texts cut until its JSON has at most ``limit`` bytes."""
    whole = marked(answer)
    for items, characters in _LIMITS:
        cut: Answer = _cut(whole, items, characters)
        if size(cut) <= limit:
            return cut
    return {"error": f"The answer has more than {limit} bytes; request less."}


def _cut(value: Any, items: int, characters: int) -> Any:
    match value:
        case dict():
            lists = {key: len(each) - items for key, each in value.items() if isinstance(each, list)}
            more = {f"{key}_omitted": count for key, count in lists.items() if count > 0}
            return {key: _cut(each, items, characters) for key, each in value.items()} | more
        case list():
            return [_cut(each, items, characters) for each in value[:items]]
        case str() if len(value) > characters:
            return f"{value[:characters]}…"
    return value


def to_json(answer: Answer) -> str:
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def size(answer: Answer) -> int:
    """Bytes of its JSON."""
    return len(to_json(answer).encode(errors="replace"))

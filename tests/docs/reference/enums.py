"""The members of an enumeration with their meanings: the comment in the line of each."""

import inspect
import re
from enum import Enum

_MEMBER = re.compile(r"^    (\w+) = .*?  # (.+)$", re.MULTILINE)


def meanings(kind: type[Enum]) -> dict[str, str]:
    """By the names of the members. Raises ValueError where one has no comment."""
    found = dict(_MEMBER.findall(inspect.getsource(kind)))
    if missing := kind.__members__.keys() - found.keys():
        raise ValueError(f"{kind.__name__} has members without a comment that says what they mean: {sorted(missing)}")
    return {name: found[name] for name in kind.__members__}

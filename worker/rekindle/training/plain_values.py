"""What a state may hold beside tensors: values that ``torch.load(weights_only=True)`` takes."""

import copy
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

_TAKEN = (type(None), bool, int, float, complex, str, bytes, bytearray)
_SEARCHED = (dict, OrderedDict, Counter, list, tuple, set, torch.Size)


def rebuilt(like: dict[Any, Any], items: dict[Any, Any]) -> dict[Any, Any]:
    """A dict of the class of ``like``, such as the OrderedDict of a module's state, that holds ``items``.

    Items are assigned, since ``update`` of a Counter (the milestones of MultiStepLR) adds to what is there.
    """
    made = copy.copy(like)
    made.clear()
    for key, item in items.items():
        made[key] = item
    return made


def plain(value: Any) -> Any:
    """A number of numpy as Python's, where that loses nothing, not even how later sums round; all else as it is.

    A schedule or a metric that computes with numpy puts them into a state without anybody's wish.
    """
    if type(value).__module__ != "numpy":
        return value
    import numpy as np

    exact = isinstance(value, np.float64 | np.integer | np.bool_ | np.str_) and not isinstance(value, np.timedelta64)
    return value.item() if exact else value


def first_foreign(value: Any, place: str = "") -> str | None:
    """Where ``value`` holds what could not be loaded again, and of which class; None where that is not found."""
    if isinstance(value, Tensor) or type(value) in _TAKEN or type(value).__module__ == "torch":
        return None
    if type(value) in torch.serialization.get_safe_globals():
        return None
    if type(value) not in _SEARCHED:
        return f"{place} is a {type(value).__module__}.{type(value).__qualname__}"
    inner: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else enumerate(value)
    places = ((f"{place}/{key}" if place else str(key), item) for key, item in inner)
    return next((found for where, item in places if (found := first_foreign(item, where)) is not None), None)

"""What a state may hold besides tensors: values that ``torch.load(weights_only=True)`` accepts."""

import copy
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

_SCALARS = (type(None), bool, int, float, complex, str, bytes, bytearray)
_CONTAINERS = (dict, OrderedDict, Counter, list, tuple, set, torch.Size)


def copy_mapping(like: dict[Any, Any], items: dict[Any, Any]) -> dict[Any, Any]:
    """A dict of the class of ``like``, such as the OrderedDict of a module's state, that holds ``items``.

    Items are assigned, since ``update`` of a Counter (the milestones of MultiStepLR) adds to what is there.
    """
    made = copy.copy(like)
    made.clear()
    for key, item in items.items():
        made[key] = item
    return made


def to_scalar(value: Any) -> Any:
    """A number of numpy as Python's, where that is exact, even in how later sums round; anything else unchanged.

    A schedule or a metric that computes with numpy puts such numbers into its state unnoticed.
    """
    if type(value).__module__ != "numpy":
        return value
    import numpy as np

    exact = isinstance(value, np.float64 | np.integer | np.bool_ | np.str_) and not isinstance(value, np.timedelta64)
    return value.item() if exact else value


def find_unsafe(value: Any, path: str = "") -> str | None:
    """Where ``value`` holds what could not be loaded again, and of which class; None where nothing is found."""
    if isinstance(value, Tensor) or type(value) in _SCALARS or type(value).__module__ == "torch":
        return None
    if type(value) in torch.serialization.get_safe_globals():
        return None
    if type(value) not in _CONTAINERS:
        return f"{path} is a {type(value).__module__}.{type(value).__qualname__}"
    items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else enumerate(value)
    inner = (find_unsafe(item, f"{path}/{key}" if path else str(key)) for key, item in items)
    return next((found for found in inner if found is not None), None)

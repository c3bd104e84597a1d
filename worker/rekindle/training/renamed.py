"""Public names of version 0.1.0: code copies in run directories use them when an upgraded server resumes jobs.

Each use warns and names the new name. This is the only place that knows the old ones.
"""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from rekindle.contract.job import SnapshotPolicy

P = ParamSpec("P")

RUN_OPTIONS = {"cadence": "snapshot_policy", "best": "monitor", "method": "strategy"}
SNAPSHOTS_OPTIONS = {"keep": "keep_last", "memory": "shm"}
RUN_METHODS = {"parts": "microbatches", "share": "eval_batches"}
SNAPSHOTS_METHODS = {"begin": "async_save", "finish": "wait", "newest": "latest"}


def cadence(*rules: Any, **options: Any) -> SnapshotPolicy:
    """``rekindle.Cadence`` of version 0.1.0."""
    _warn("rekindle.Cadence", "rekindle.SnapshotPolicy")
    positional = dict(
        zip(("every_steps", "every_seconds", "every_epochs", "keep", "auto", "best"), rules, strict=False)
    )
    return SnapshotPolicy.from_json({**positional, **options})


def accepts_old_options(renamed: dict[str, str]) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """For a constructor: an option by its old name is passed on by its new one."""

    def decorate(init: Callable[P, None]) -> Callable[P, None]:
        @wraps(init)
        def accepting(*args: P.args, **kwargs: P.kwargs) -> None:
            for old in renamed.keys() & kwargs.keys():
                _warn(f"{old}=", f"{renamed[old]}=")
                kwargs[renamed[old]] = kwargs.pop(old)
            init(*args, **kwargs)

        return accepting

    return decorate


def old_method(owner: object, name: str, renamed: dict[str, str]) -> Any:
    """For ``__getattr__``: the method that ``name`` meant. Raises AttributeError for any other name."""
    if name not in renamed:
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    _warn(f"{type(owner).__name__}.{name}", f"{type(owner).__name__}.{renamed[name]}")
    return getattr(owner, renamed[name])


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is now called {new}", FutureWarning, stacklevel=4)

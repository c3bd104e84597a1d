"""Changes modules in a rank as soon as they are loaded, without importing them before the script.

How: an audit hook sees each import. It changes nothing for the script, where a hook in ``sys.meta_path`` would.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

Hook = tuple[str, str, Callable[[Any], None]]
"""A module, a name in it, and what changes the module as soon as it has the name."""

_pending: list[Hook] = []
_imported_at_once = {"safetensors.torch"}
"""A script may call it in its very next line, with no import before; the import of torch causes thousands."""


def call_when_loaded(hooks: Sequence[Hook]) -> None:
    """Call each hook at once, or as soon as the last line of what it changes has run."""
    _pending.extend(hooks)
    _call_loaded()
    _watch_imports()


def replacement(module: str, name: str, by: Callable[[Any], Any], owner: str = "") -> Hook:
    """The hook that replaces a function of a module, or of its class ``owner``, by what ``by`` makes of it."""

    def replace(loaded: Any) -> None:
        place = getattr(loaded, owner) if owner else loaded
        setattr(place, name, by(getattr(place, name)))

    return module, owner or name, replace


@cache  # once in a process and its forks
def _watch_imports() -> None:
    sys.addaudithook(_on_event)


def _on_event(event: str, args: tuple[Any, ...]) -> None:
    """The audit hook."""
    if event == "import" and _pending:
        if args[0] in _imported_at_once:
            _imported_at_once.discard(args[0])
            with suppress(ImportError):  # which the script's own import then raises
                importlib.import_module(args[0])
        _call_loaded()


def _call_loaded() -> None:
    for hook in [each for each in _pending if hasattr(sys.modules.get(each[0]), each[1])]:
        try:
            _pending.remove(hook)
        except ValueError:
            continue  # another thread, which imports as well, was first
        name, _attribute, change = hook
        change(sys.modules[name])

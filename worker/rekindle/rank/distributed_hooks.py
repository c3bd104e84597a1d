"""Changes torch.distributed in a rank, and in the interpreters that it spawns, without importing it before the script.

A rank that torchrun forks from a warm agent has torch loaded; elsewhere the script imports it, after it has set what
torch reads at import.
"""

import sys
from collections.abc import Callable
from multiprocessing import spawn
from typing import Any

from rekindle.rank import gloo_peers, loopback_stores

_HOOKS: tuple[tuple[str, str, Callable[[Any], None]], ...] = (
    ("torch.distributed.distributed_c10d", gloo_peers.FUNCTION, gloo_peers.verify_groups),
    ("torch.distributed.rendezvous", loopback_stores.CLASS, loopback_stores.listen_on_loopback),
)
_INSTALL = f"""
try:
    from {__name__} import install
except ImportError:  # another interpreter, by multiprocessing.set_executable
    pass
else:
    install()
"""


def install() -> None:
    """Call it once in a process, before its script runs."""
    _call_when_loaded()
    _install_in_spawned()


def _call_when_loaded() -> None:
    """Each hook at once, or as soon as the last line of what it changes has run."""
    pending = list(_HOOKS)

    def call_loaded(event: str, _: tuple[object, ...]) -> None:
        if event == "import" and pending:
            for hook in [each for each in pending if hasattr(sys.modules.get(each[0]), each[1])]:
                pending.remove(hook)
                name, _attribute, change = hook
                change(sys.modules[name])

    call_loaded("import", ())
    if pending:
        sys.addaudithook(call_loaded)


class _Installed:
    """Unpickled in a spawned interpreter before anything of the script: that calls ``install`` there."""

    def __reduce__(self) -> tuple[object, ...]:
        return exec, (_INSTALL,)


def _install_in_spawned() -> None:
    prepare = spawn.get_preparation_data

    def prepare_with_hooks(name: str) -> dict[str, Any]:
        return {**prepare(name), "rekindle": _Installed()}

    spawn.get_preparation_data = prepare_with_hooks

"""What a replay does in its first step besides computing it: it calls functions of a file, or opens a debugger."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import nn

from rekindle.contract.environment import RankEnv
from rekindle.contract.run_dir.paths import RunDir
from rekindle.training.process_group import wait_for_days
from rekindle.training.rank_debugger import open_debugger
from rekindle.training.training_state import Stateful

_NAMES = ("before_step", "after_step")


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """What ``before_step(step)`` and ``after_step(step)`` of a hook get."""

    number: int  # from 1
    rank: int
    model: nn.Module  # as the script gave it to ``Run``
    batch: Any  # of this rank, on its device
    optimizer: torch.optim.Optimizer | None  # the first
    optimizers: list[torch.optim.Optimizer]
    run: Any  # the `rekindle.Run`


class ReplayHook:
    """Acts on one rank in the first step of a replay, if it is to; in any other job it does nothing."""

    def __init__(self, run: Any, env: RankEnv, parts: dict[str, Stateful]) -> None:
        """Load the file, for a ``rekindle.Run``. Raises what its code raises."""
        spec = env.spec
        self._run, self._env, self._replay = run, env, None if spec is None else spec.replay
        self._optimizers = [part for part in parts.values() if isinstance(part, torch.optim.Optimizer)]
        self._functions: dict[str, Callable[[ReplayedStep], object]] = {}
        self._step: ReplayedStep | None = None  # while it is computed
        if self._replay is None or env.run_dir is None:
            return
        if self._replay.pdb:
            wait_for_days()
        if self._replay.rank not in (None, env.rank):
            self._replay = None
        elif self._replay.hook:
            self._functions = _load(env.run_dir)

    def before(self, batch: Any) -> None:
        """Act before the step, if it is the one. The generator that calls it must yield to the script next."""
        replay, run, run_dir, rank_dir = self._replay, self._run, self._env.run_dir, self._env.rank_dir
        if replay is None or replay.step != run.step + 1 or run_dir is None or rank_dir is None:
            return
        first = self._optimizers[0] if self._optimizers else None
        self._step = ReplayedStep(
            replay.step, self._env.rank, run.module, batch, first, self._optimizers, run
        )  # fmt: skip
        if "before_step" in self._functions:
            self._functions["before_step"](self._step)
        if replay.pdb:
            names = {"run": run, "model": run.module, "batch": batch, "optimizer": first}
            open_debugger(rank_dir.pdb_socket, run_dir.code, run.phase, names)

    def after(self) -> None:
        """Act after the step, once the script asks for the next batch."""
        step, self._step = self._step, None
        if step is not None and "after_step" in self._functions:
            self._functions["after_step"](step)


def _load(run_dir: RunDir) -> dict[str, Callable[[ReplayedStep], object]]:
    path, module = run_dir.replay_hook, ModuleType("replay_hook")
    module.__file__ = str(path)
    exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102  # a person sent it for that
    found = {name: value for name in _NAMES if callable(value := getattr(module, name, None))}
    if not found:
        raise AttributeError(f"{path.name} defines neither {' nor '.join(_NAMES)}")
    return found

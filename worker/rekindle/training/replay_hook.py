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
    optimizers: list[torch.optim.Optimizer]
    run: Any  # the `rekindle.Run`

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """The first optimizer; None where ``Run`` knows none."""
        return self.optimizers[0] if self.optimizers else None


class ReplayHook:
    """Acts on one rank in the first step of a replay, if it is to; in any other job it does nothing."""

    def __init__(self, run: Any, env: RankEnv, parts: dict[str, Stateful]) -> None:
        """Load the file, for a ``rekindle.Run``. Raises what its code raises."""
        replay = env.replay
        self._run, self._env, self._parts = run, env, parts
        self._replay = replay if replay is not None and replay.rank in (None, env.rank) else None
        self._functions: dict[str, Callable[[ReplayedStep], object]] = {}
        self._step: ReplayedStep | None = None  # while it is computed
        if replay is not None and replay.pdb:
            wait_for_days()
        if self._replay is not None and self._replay.hook and env.run_dir is not None:
            self._functions = _load(env.run_dir)

    def before(self, batch: Any) -> None:
        """Act before the step, if it is the one. The generator that calls it must yield to the script next."""
        if self._replay is None or self._replay.step != self._run.step + 1:
            return
        optimizers = [part for part in self._parts.values() if isinstance(part, torch.optim.Optimizer)]
        step = ReplayedStep(self._replay.step, self._env.rank, self._run.module, batch, optimizers, self._run)
        self._step = step
        self._call("before_step", step)
        if self._replay.pdb and self._env.rank_dir is not None and self._env.run_dir is not None:
            names = {"run": step.run, "model": step.model, "batch": batch, "optimizer": step.optimizer}
            open_debugger(self._env.rank_dir.pdb_socket, self._env.run_dir.code, self._run.phase, names)

    def after(self) -> None:
        """Act after the step, once the script asks for the next batch."""
        if self._step is not None:
            step, self._step = self._step, None
            self._call("after_step", step)

    def _call(self, name: str, step: ReplayedStep) -> None:
        if (function := self._functions.get(name)) is not None:
            function(step)


def _load(run_dir: RunDir) -> dict[str, Callable[[ReplayedStep], object]]:
    path, module = run_dir.replay_hook, ModuleType("replay_hook")
    module.__file__ = str(path)
    exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102  # a person sent it for that
    found = {name: value for name in _NAMES if callable(value := getattr(module, name, None))}
    if not found:
        raise AttributeError(f"{path.name} defines neither {' nor '.join(_NAMES)}")
    return found

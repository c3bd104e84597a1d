"""What the callbacks of all frameworks share: steps and metrics are reported, and all ranks stop at the same step."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any, NoReturn

from rekindle.contract.environment import RankEnv
from rekindle.contract.run_dir.rank_records import MetricPoint
from rekindle.contract.run_dir.script_files import own_checkpoints
from rekindle.training.drain import Drained, DrainSignal
from rekindle.training.process_group import World, joined_world
from rekindle.training.reporter import report, reporter
from rekindle.training.step_boundary import FlagAllReduce, StepFlags


def latest_own_checkpoint(resumes: Callable[[Path], bool]) -> str | None:
    """Path of this job's latest complete checkpoint for which ``resumes`` is true; None outside rekindle."""
    run_dir = RankEnv.read(os.environ).run_dir
    found = [] if run_dir is None else [each.path for each in own_checkpoints(run_dir)]
    return next((path for path in found if resumes(Path(path))), None)


class FrameworkSteps:
    """The steps of a training whose loop is a framework's. All ranks call each method; outside rekindle it is inert."""

    _world: World | None = None
    _requested = False

    def join(self, step: int) -> bool:
        """Call it when the framework has joined the process group and is at ``step``. False outside rekindle."""
        env = RankEnv.read(os.environ)
        if env.run_dir is not None:
            self._world = joined_world(env)
            self._flags = FlagAllReduce(self._world)
            self._drain = DrainSignal(env.run_dir, reads_intent=env.rank == 0)
            self._drain.start(chain=False)  # a handler of the framework would stop the ranks at different steps
            self._directory = env.run_dir.snapshots / "drained"
            reporter().update_status(completed=False)
            if step:
                reporter().resumed(step)
        return self._world is not None

    def begin(self) -> None:
        """Ask the other ranks, while the step is computed, whether one of them is to stop."""
        if self._world is not None:
            report(phase="train")
            self._flags.wait()  # of a step whose gradients are only accumulated
            self._flags.start(StepFlags(drain=self._drain.requested()))

    def end(self, step: int, *, pauses: bool, **progress: int) -> bool:
        """Report a finished step; True where all ranks are to save. ``pauses``: something slow follows."""
        if self._world is None:
            return False
        report(step=step, phase="epoch end" if pauses else "train", **progress)
        self._requested = self._flags.wait().drain or self._requested
        return self._requested

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """Report the numbers among ``values`` as metrics of ``step``."""
        metrics = {name: float(value) for name, value in values.items() if isinstance(value, Real) and name != "epoch"}
        reporter().log_metrics(MetricPoint(step, None, time.time(), {**metrics}))

    def drain_path(self, step: int, suffix: str = "") -> Path:
        """Where to save when drained, where the framework has no place of its own."""
        return self._directory / f"step-{step}{suffix}"

    def leave(self, step: int) -> NoReturn:
        """End this rank when all have saved: torchrun stops the others as soon as one has ended."""
        if self._world is not None:
            self._world.barrier()
            self._drain.stop(drained=True)
            saved = list(self._directory.glob("step-*")) if self._world.rank == 0 else []
            for earlier in sorted(saved, key=lambda path: path.stat().st_mtime_ns)[:-1]:
                shutil.rmtree(earlier) if earlier.is_dir() else earlier.unlink()
        raise Drained(step)

    def finish(self) -> None:
        """Report that the training has reached its end."""
        if self._world is not None:
            self._flags.wait()
            self._drain.stop()
            reporter().update_status(completed=True, phase="epoch end")

"""Times of steps as ranks leave them, for tests without processes."""

from collections.abc import Mapping

from rekindle.contract.files import write_json
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.step_records import StepPhase, StepSample, StepSamples

BASE = {StepPhase.FORWARD: 0.03, StepPhase.BACKWARD: 0.05, StepPhase.OPTIMIZER: 0.01}
STEPS = range(8, 88, 8)


def lockstep(
    *ranks: Mapping[StepPhase, float],
    transfer: float = 0.005,
    elements: tuple[int, ...] = (),
    saving: float = 0.0,
    workers: int | None = 0,
) -> dict[int, StepSamples]:
    """Ranks with these seconds of each step beyond the usual: who is early waits. ``saving``: in total, on rank 0."""
    busy = [BASE | {phase: BASE.get(phase, 0.0) + more for phase, more in rank.items()} for rank in ranks]
    whole = max(sum(each.values()) for each in busy) + transfer
    found = {}
    for rank, own in enumerate(busy):
        seconds = {**own, StepPhase.COMMUNICATION: whole - sum(own.values())}
        size = elements[rank] if elements else 1000
        samples = [StepSample(step, whole * step, 0.0, {**seconds}, size) for step in STEPS]
        saved = saving if rank == 0 else 0.0
        found[rank] = StepSamples(100, 100 * whole, saved, 10 if saved else 0, 8, workers, samples)
    return found


def write_steps(run_dir: RunDir, ranks: Mapping[int, StepSamples], attempt: int = 1) -> None:
    for rank, samples in ranks.items():
        path = run_dir.attempt(attempt).rank(rank).steps
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, samples.to_json())

"""What limits the speed of a training is named, whether a script trains by hand or by ``rekindle.Run``."""

import json
import os

import pytest

from e2e.waiting import until
from rekindle.contract.job import JobSpec
from rekindle.contract.run_dir.attempt_history import AttemptSummary
from rekindle.contract.run_dir.step_records import StepPhase
from rekindle.contract.states import JobIntent
from rekindle_service.jobs.step_times import StepLimit, StepTimes, read_step_times

SAMPLES = 16  # of each rank
SLOW_LINK = (
    "unshare", "--net", "sh", "-c",
    'ip link set lo up && tc qdisc add dev lo root tbf rate 80mbit burst 256kb latency 2s && exec "$0" "$@"',
)  # fmt: skip
CAUSES = {
    "loader": StepLimit.DATA,
    "rank": StepLimit.SLOW_RANK,
    "disk": StepLimit.SAVING,
    "link": StepLimit.COMMUNICATION,
    "lengths": StepLimit.UNEVEN_BATCHES,
}


def measure(run) -> StepTimes:
    """What is measured after some seconds of training, which is then stopped."""

    def times() -> StepTimes:
        spec = JobSpec.from_json(json.loads(run.run_dir.spec.read_bytes()))
        return read_step_times(spec, run.run_dir, AttemptSummary(1, world_size=2))

    def is_measured() -> bool:
        ranks = times().ranks
        return len(ranks) == 2 and all(rank.samples >= SAMPLES for rank in ranks)

    until(is_measured, f"{SAMPLES} steps of each rank", 90.0)
    found = times()
    run.want(JobIntent.CANCEL)
    assert run.finish() == "cancelled"
    return found


@pytest.mark.timeout(180)
@pytest.mark.parametrize("way", ["plain", "run"])
@pytest.mark.parametrize("cause", CAUSES)
def test_the_planted_cause_is_named(prepare, cause, way):
    if cause == "link" and os.geteuid() != 0:
        pytest.skip("a slow link needs root")
    run = prepare("step_causes.py", cause, way, hang_timeout=60.0)
    run.start(cold=cause == "link", prefix=SLOW_LINK if cause == "link" else ())
    found = measure(run)
    print(f"{cause}, {way}: {found.summary}")
    assert found.limit is CAUSES[cause], (found, run.all_logs())
    if cause in ("rank", "lengths"):
        assert found.rank == 1
        assert f"rank {found.rank}" in found.summary
    if cause == "rank":
        assert f"in {StepPhase.FORWARD} with batches of equal size" in found.summary

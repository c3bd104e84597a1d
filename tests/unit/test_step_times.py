"""What limits the speed of a training, judged from what its ranks have measured."""

import pytest

from rekindle.contract.run_dir.step_records import StepPhase, StepSample, StepSamples
from rekindle_service.jobs.step_times import StepLimit, StepTimes, judge, split
from step_files import STEPS, lockstep


def limit_of(ranks: dict[int, StepSamples]) -> tuple[StepLimit | None, str]:
    times: StepTimes = judge(1, ranks)
    return times.limit, times.summary


@pytest.mark.parametrize(
    ("ranks", "limit", "words"),
    [
        (lockstep({}, {}), StepLimit.COMPUTE, ["Compute-bound: 95% of a step"]),
        (lockstep({}), StepLimit.COMPUTE, ["95%"]),
        (
            lockstep({}, {}, {StepPhase.DATA: 0.16}),
            StepLimit.DATA,
            ["63% of a step waits for the data loader, most on rank 2; try num_workers=4"],
        ),
        (lockstep({StepPhase.DATA: 0.1}, {StepPhase.DATA: 0.1}), StepLimit.DATA, ["loader; try"]),
        (lockstep({StepPhase.DATA: 0.1}, workers=2), StepLimit.DATA, ["num_workers=4 instead of 2"]),
        (lockstep({StepPhase.DATA: 0.1}, workers=8), StepLimit.DATA, ["8 workers already"]),
        (lockstep({}, {}, transfer=0.06), StepLimit.COMMUNICATION, ["Communication-bound: 40%"]),
        (
            lockstep({}, {}, {}, {StepPhase.FORWARD: 0.02}),
            StepLimit.SLOW_RANK,
            ["rank 3 takes 1.7 times as long as the others in forward with batches of equal size", "17% of a step"],
        ),
        (
            lockstep({}, {StepPhase.FORWARD: 0.03, StepPhase.BACKWARD: 0.05}, elements=(1000, 2000)),
            StepLimit.UNEVEN_BATCHES,
            ["those of rank 1 are 2.0 times as large"],
        ),
        (
            lockstep({}, {StepPhase.FORWARD: 0.2}, elements=(1000, 1200)),
            StepLimit.SLOW_RANK,
            ["in forward even for its batches"],
        ),
        (lockstep({}, {StepPhase.FORWARD: 0.2}, elements=(0, 0)), StepLimit.SLOW_RANK, ["in forward, and"]),
        (lockstep({}, {}, saving=1.0), StepLimit.SAVING, ["Saving every 0.95 s costs 10% of the time on rank 0"]),
        (lockstep({StepPhase.COPY: 0.05}), StepLimit.COPY, ["pin_memory=True"]),
        (lockstep({}, {StepPhase.OTHER: 0.1}), StepLimit.OTHER, ["on rank 1 is other code"]),
    ],
)
def test_the_largest_cost_is_named_with_advice(ranks, limit, words):
    found, summary = limit_of(ranks)
    assert found is limit, summary
    assert all(word in summary for word in words), summary


def test_ranks_that_take_turns_with_a_long_batch_are_neither_slow_nor_limited_by_transfers():
    """Batches of random lengths: each step one rank has twice as much to do, and the other waits."""
    more, ranks = {StepPhase.FORWARD: 0.03, StepPhase.BACKWARD: 0.05}, {}
    long, short = lockstep(more, {}, elements=(2000, 1000)), lockstep({}, more, elements=(1000, 2000))
    for rank in (0, 1):
        samples = [(long if index % 2 else short)[rank].samples[index] for index in range(len(STEPS))]
        ranks[rank] = StepSamples(100, 20.0, 0.0, 0, 8, 0, samples)
    found, summary = limit_of(ranks)
    assert found is StepLimit.UNEVEN_BATCHES, summary
    assert "group samples of similar length" in summary


def test_ranks_that_have_sampled_other_steps_are_compared_by_their_means():
    ranks = lockstep({}, {StepPhase.FORWARD: 0.1})
    later = [StepSample(each.step + 1, each.ended, 0.0, each.seconds, each.elements) for each in ranks[1].samples]
    ranks[1] = StepSamples(100, 10.0, 0.0, 0, 8, 0, later)
    assert limit_of(ranks)[0] is StepLimit.SLOW_RANK


def test_what_no_sample_has_met_is_other_and_saving_has_the_share_of_all_steps():
    """Steps of 0.1 s are sampled; of 100 steps, evaluations have taken 5 s, saving 2 s."""
    whole = (10.0 + 5.0 + 2.0) / 100
    samples = [StepSample(step, whole * step, 0.02 * step, {StepPhase.FORWARD: 0.1}) for step in STEPS]
    found = split(0, StepSamples(100, 17.0, 2.0, 4, 8, None, samples))
    assert found.seconds[StepPhase.SAVING] == pytest.approx(0.02)
    assert found.seconds[StepPhase.OTHER] == pytest.approx(0.05)
    assert found.total == pytest.approx(whole)
    assert found.batch_elements is None

"""When a lack of progress means a hang: a slow first step, an evaluation and a save do not; a stopped world does."""

import pytest

from rekindle.keeper.hangs.stall import (
    COMPUTING_SECONDS,
    MIN_TIMEOUT,
    SILENT_TIMEOUT,
    STOPPED_TIMEOUT,
    Pace,
    StallDetector,
)
from rekindle.keeper.rank_processes.probe import RankSample


def sample(
    rank=0, *, step=None, phase="train", output=0, cpu=0.0, collectives=None, total=0, in_collective=False, state="S",
    **more,
):  # fmt: skip
    return RankSample(rank, step, phase, output, cpu, collectives, state, total, in_collective, **more)


def first_alarm(detector, worlds):
    """Seconds at which a hang is first reported, for one sample a second."""
    for second, world in enumerate(worlds):
        if detector.stalled(float(second), world) is not None:
            return second
    return None


SECONDS = 4000


def alarm_after(world, detector=None):
    """``world``: the samples of the ranks at a second."""
    return first_alarm(detector or StallDetector(), map(world, range(SECONDS)))


PROGRESS = {
    "steps": lambda second: [sample(step=second)],
    "steps of another rank": lambda second: [sample(0, step=second), sample(1, step=5)],
    "a slow first step": lambda second: [sample(step=max(0, second - 25))],
    "steps replayed after a rollback": lambda second: [sample(step=second if second < 100 else second - 60)],
    "output": lambda second: [sample(phase=None, output=second // 100)],
    "computation": lambda second: [sample(phase=None, cpu=float(second))],
    "collectives": lambda second: [sample(phase=None, collectives=second // 50)],
    "collectives of another group": lambda second: [
        sample(phase=None, collectives=500, total=500 + second, in_collective=True)
    ],
    "stopped for moments": lambda second: [sample(step=second, state="T" if second % 5 else "S")],
    "stopped by a debugger": lambda second: [sample(step=second, state="t")],
    "a rank in the debugger of a replay": lambda _: [sample(0, step=5, phase="debugger"), sample(1, step=5)],
}


@pytest.mark.parametrize("world", PROGRESS.values(), ids=PROGRESS)
def test_a_world_with_any_progress_never_hangs(world):
    assert alarm_after(world) is None


HANGS = {
    "steps that end": (lambda second: [sample(step=min(second, 20))], 20 + MIN_TIMEOUT),
    "computing in no phase: ten times": (
        lambda second: [sample(step=min(second, 20), cpu=float(second))],
        20 + MIN_TIMEOUT * 10,
    ),
    "computing in an evaluation: a hundred times": (
        lambda second: [sample(step=min(second, 20), phase=phase_at(second, "evaluate"), cpu=float(second))],
        21 + MIN_TIMEOUT * 100,
    ),
    "no longer computing": (
        lambda second: [sample(step=min(second, 20), cpu=float(min(second, 60)))],
        60 + COMPUTING_SECONDS,
    ),
    "an endless loop": (
        lambda second: [sample(step=min(second, 20), cpu=float(second), in_dead_loop=second > 28)],
        20 + MIN_TIMEOUT,
    ),
    "a silent script": (lambda second: [sample(phase=None, output=min(second, 9))], 9 + SILENT_TIMEOUT),
    "output before the first sample": (lambda _: [sample(phase=None, output=9)], SILENT_TIMEOUT),
    "steps before the first sample": (
        lambda _: [sample(step=16, reported_steps=16, steps_per_second=40.0)],
        MIN_TIMEOUT,
    ),
    "a spinning wait in a collective": (lambda second: [waiting(0, second, 7)], 7 + SILENT_TIMEOUT),
    "one rank sleeps while the other waits": (
        lambda second: [sample(0, phase=None, collectives=min(second, 7)), waiting(1, second, 8)],
        8 + SILENT_TIMEOUT,
    ),
}


def phase_at(second, later):
    return "train" if second <= 20 else later


@pytest.mark.parametrize(("world", "alarm"), HANGS.values(), ids=HANGS)
def test_a_world_without_progress_hangs_after_its_timeout(world, alarm):
    assert alarm_after(world) == alarm + 1


def test_the_time_without_progress_is_known_before_it_is_a_hang():
    detector = StallDetector()
    assert detector.without_progress(0.0) is None
    assert first_alarm(detector, [[sample(output=min(second, 20))] for second in range(100)]) is None
    assert detector.without_progress(99.0) == 79.0


def noticed_after(world, detector=None):
    detector = detector or StallDetector()
    for second in range(SECONDS):
        detector.stalled(float(second), world(second))
        if detector.is_noticeable(float(second)):
            return second
    return None


@pytest.mark.parametrize(
    ("world", "noticed"),
    [
        (lambda second: [sample(step=min(second, 20), in_collective=True), sample(1, step=min(second, 20))], 27),
        (lambda second: [sample(step=min(second, 20)), sample(1, step=min(second, 20))], 29),  # a third of 25 s
        (lambda second: [sample(step=min(second // 8, 20), in_collective=True)] * 2, 160 + 16),
        (lambda second: [sample(phase=None, collectives=min(second, 9), in_collective=second > 9)], 16),
        (lambda second: [sample(phase=None, output=min(second, 9))], 109),  # silent: a third of 300 s
        (lambda second: [sample(step=second, state="T" if second == 20 else "S")], 20),
        (lambda second: [sample(step=second)], None),
        (lambda second: [sample(step=20, phase="eval", in_collective=True), sample(1, step=20)], 2000),
    ],
)
def test_a_lack_of_progress_is_noticed_long_before_it_is_a_hang(world, noticed):
    assert noticed_after(world) == noticed


def test_a_longer_minimum_holds_until_there_is_progress_and_what_is_shown_early_not_at_all():
    detector, step = StallDetector(min_timeout=300.0), 0
    assert alarm_after(lambda second: [sample(step=min(second, 20))], detector) == 20 + MIN_TIMEOUT + 1, "progress"
    detector = StallDetector()
    for second in range(100):
        step = min(second, 20)
        assert detector.stalled(float(second), [sample(step=step)]) is None
        detector.min_timeout = 300.0 if second > 30 else 0.0
        assert detector.is_noticeable(float(second)) == (second - 20 > MIN_TIMEOUT / 3)
    assert detector.times(99.0) == (79.0, 221.0)
    assert StallDetector(limit=5.0, min_timeout=300.0).timeout(0.0) == 50.0, "the user's limit"


def test_a_slow_job_gets_a_longer_timeout_than_the_minimum():
    alarm = alarm_after(lambda second: [sample(step=min(second // 10, 20))])
    assert alarm is not None
    assert alarm > 200 + 150


LIMITED = {
    "steps": (lambda second: [sample(step=min(second, 20))], 24),
    "steps, computing": (lambda second: [sample(step=min(second, 20), cpu=float(second))], 24),
    "evaluation": (lambda second: [sample(step=min(second, 20), phase=phase_at(second, "evaluate"))], 21 + 30 + 1),
    "snapshot": (lambda second: [sample(step=min(second, 20), phase=phase_at(second, "snapshot"))], 21 + 30 + 1),
    "restore": (lambda second: [sample(step=min(second, 20), phase=phase_at(second, "restore"))], 21 + 30 + 1),
    "nothing begun": (lambda _: [sample(phase=None)], 31),
    "start of a silent script": (lambda _: [sample(phase=None, output=9)], 31),
    "restore before the first step": (lambda _: [sample(phase="restore", collectives=3)], 31),
    "a slow first step": (lambda second: [sample(step=max(0, second - 25))], None),
}


@pytest.mark.parametrize(("world", "alarm"), LIMITED.values(), ids=LIMITED)
def test_the_users_limit_replaces_the_learned_timeout_and_is_tenfold_at_the_start_and_in_slow_phases(world, alarm):
    assert alarm_after(world, StallDetector(limit=3.0)) == alarm


def test_ranks_that_compute_outside_a_collective_are_given_ten_times_the_timeout():
    alarm = alarm_after(lambda second: [computing(rank, second) for rank in (0, 1)])
    assert alarm == pytest.approx(7 + SILENT_TIMEOUT * 10, abs=3)
    alarm = alarm_after(lambda second: [computing(0, second), waiting(1, second, 8)])
    assert alarm == pytest.approx(8 + SILENT_TIMEOUT * 10, abs=3)


def computing(rank, second):
    return sample(rank, phase=None, cpu=float(second), collectives=min(second, 7))


def waiting(rank, second, collectives):
    """A rank that waits in the last of its collectives."""
    last = min(second, collectives)
    return sample(rank, phase=None, cpu=float(second), collectives=last, in_collective=second >= collectives)


def test_time_in_which_nothing_could_be_observed_counts_for_nothing():
    detector = StallDetector()
    assert first_alarm(detector, [[sample(step=second)] for second in range(20)]) is None
    timeout = detector.timeout(19.0)
    detector.discount(600.0)
    assert detector.stalled(620.0, [sample(step=19)]) is None
    assert detector.stalled(621.0, [sample(step=20)]) is None
    assert detector.timeout(621.0) == timeout
    assert detector.stalled(621.0 + timeout, [sample(step=20)]) is None
    assert detector.stalled(622.0 + timeout, [sample(step=20)]) is not None


def test_more_time_discounted_than_has_passed_is_no_negative_time():
    """After a cut as long again is discounted at once: the ranks' own connections recover only later."""
    detector = StallDetector()
    assert first_alarm(detector, [[sample(step=second)] for second in range(20)]) is None
    detector.discount(18.0)
    assert detector.without_progress(20.0) == 0.0
    assert detector.times(20.0) == (0.0, detector.timeout(20.0))


def test_a_pause_between_two_steps_counts_however_many_are_done_right_after_it():
    fast = [[sample(step=10 * second)] for second in range(20)]
    paused = [[sample(step=190)]] * 25
    faster = [[sample(step=190 + 50 * second)] for second in range(1, 20)]
    again = [[sample(step=1140)]] * 60
    assert first_alarm(StallDetector(), fast + paused + faster + again) is None


def test_a_rank_that_is_stopped_by_a_signal_is_found_at_once_whatever_the_timeout():
    alarm = alarm_after(
        lambda second: [sample(phase=None, state="S" if second < 50 else "T")], StallDetector(limit=3600.0)
    )
    assert alarm == 50 + STOPPED_TIMEOUT


def test_what_an_attempt_has_learned_serves_the_next_one_from_its_first_step_on():
    first = StallDetector()
    assert first_alarm(first, [[sample(step=second)] for second in range(40)]) is None
    resumed = [[sample(step=39)] for _ in range(800)]
    assert first_alarm(StallDetector(before=first.pace), resumed) == MIN_TIMEOUT + 1
    assert first_alarm(StallDetector(), resumed) == SILENT_TIMEOUT * 2 + 1


def test_an_attempt_that_has_learned_nothing_passes_on_what_it_was_given():
    known = Pace(40, 1.0, 2.0)
    detector = StallDetector(before=known)
    first_alarm(detector, [[sample(step=second)] for second in range(3)])
    assert detector.pace == known


def two_on_gpus(*, step=None, **of_all):
    """Two ranks whose main threads spin at full speed, as in ``cudaStreamSynchronize``, from second 20 on."""

    def world(second):
        done = None if step is None else min(second, 20)
        return [
            sample(rank, step=done, phase=None, output=min(second, 20), cpu=float(second), device="cuda", **of_all)
            for rank in (0, 1)
        ]

    return world


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        (two_on_gpus(is_blind=True), SILENT_TIMEOUT),
        (two_on_gpus(is_blind=True, collectives=5, total=5), SILENT_TIMEOUT),
        (two_on_gpus(collectives=5, total=5, in_collective=True), SILENT_TIMEOUT),
        (two_on_gpus(step=20, is_blind=True), MIN_TIMEOUT),
        (two_on_gpus(step=20, is_blind=True, collectives=5, total=5), MIN_TIMEOUT),
        (two_on_gpus(step=20, collectives=5, total=5, in_collective=True), MIN_TIMEOUT),
    ],
    ids=[
        "no recorder answers", "only gloo's, idle", "the right recorder",
        "steps and no recorder", "steps and gloo's recorder", "steps and the right recorder",
    ],
)  # fmt: skip
def test_a_rank_that_waits_at_full_speed_for_its_gpu_is_not_computing(world, expected):
    assert alarm_after(world) == pytest.approx(20 + expected, abs=1)


ALIVE_ON_GPU = {
    "no group has been made": two_on_gpus(),
    "one evaluates while the other waits": lambda second: [
        sample(0, step=min(second, 20), phase=None, cpu=float(second), collectives=6, device="cuda"),
        sample(
            1, step=min(second, 20), phase=None, cpu=float(second), collectives=7, in_collective=True, device="cuda"
        ),
    ],
    "one evaluates while the other waits in gloo": lambda second: [
        sample(0, phase=None, cpu=float(second), collectives=6, device="cuda", is_blind=True),
        sample(1, phase=None, collectives=7, in_collective=True, device="cuda", is_blind=True),
    ],
}


@pytest.mark.parametrize("world", ALIVE_ON_GPU.values(), ids=ALIVE_ON_GPU)
def test_a_long_evaluation_on_a_gpu_is_left_alone(world):
    after = alarm_after(world)
    assert after is None or after >= 20 + MIN_TIMEOUT * 10

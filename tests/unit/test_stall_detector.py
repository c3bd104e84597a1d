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
from rekindle.keeper.ranks.probe import RankSample


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


def test_steps_that_advance_never_hang():
    worlds = [[sample(step=second)] for second in range(1000)]
    assert first_alarm(StallDetector(), worlds) is None


def test_a_world_that_stops_stepping_is_hung_after_the_minimum():
    worlds = [[sample(step=min(second, 20))] for second in range(200)]
    assert first_alarm(StallDetector(), worlds) == 20 + MIN_TIMEOUT + 1


def test_the_time_without_progress_is_known_before_it_is_a_hang():
    detector = StallDetector()
    assert detector.without_progress(0.0) is None
    assert first_alarm(detector, [[sample(output=min(second, 20))] for second in range(100)]) is None
    assert detector.without_progress(99.0) == 79.0


def test_a_world_that_keeps_computing_without_a_step_may_evaluate_in_no_phase():
    worlds = [[sample(step=min(second, 20), cpu=float(second))] for second in range(1000)]
    assert first_alarm(StallDetector(), worlds) == 20 + MIN_TIMEOUT * 10 + 1
    assert first_alarm(StallDetector(limit=3.0), worlds) == 24


def test_an_evaluation_that_computes_is_given_ten_times_as_long_as_one_that_in_collective():
    worlds = [
        [sample(step=min(second, 20), phase="train" if second <= 20 else "evaluate", cpu=float(second))]
        for second in range(4000)
    ]
    assert first_alarm(StallDetector(), worlds) == 21 + MIN_TIMEOUT * 100 + 1


def test_a_world_that_has_stopped_to_compute_is_hung_as_if_it_never_had():
    worlds = [[sample(step=min(second, 20), cpu=float(min(second, 60)))] for second in range(200)]
    assert first_alarm(StallDetector(), worlds) == 60 + COMPUTING_SECONDS + 1


def test_a_slow_job_gets_a_longer_timeout_than_the_minimum():
    worlds = [[sample(step=min(second // 10, 20))] for second in range(2000)]
    alarm = first_alarm(StallDetector(), worlds)
    assert alarm is not None
    assert alarm > 200 + 150


def test_one_stalled_rank_hangs_the_world_only_when_none_advances():
    worlds = [[sample(0, step=second), sample(1, step=5)] for second in range(300)]
    assert first_alarm(StallDetector(), worlds) is None


def test_the_users_limit_replaces_the_learned_timeout():
    worlds = [[sample(step=min(second, 20))] for second in range(100)]
    assert first_alarm(StallDetector(limit=3.0), worlds) == 24


@pytest.mark.parametrize("phase", ["evaluate", "snapshot", "restore"])
def test_a_known_slow_phase_is_given_ten_times_the_timeout(phase):
    worlds = [[sample(step=min(second, 20), phase="train" if second <= 20 else phase)] for second in range(200)]
    alarm = first_alarm(StallDetector(limit=3.0), worlds)
    assert alarm == 21 + 30 + 1


def test_a_slow_first_step_is_not_a_hang():
    worlds = [[sample(step=0)] for _ in range(25)] + [[sample(step=n)] for n in range(100)]
    assert first_alarm(StallDetector(limit=3.0), worlds) is None


def test_a_silent_script_that_writes_output_lives():
    worlds = [[sample(phase=None, output=second // 100)] for second in range(2000)]
    assert first_alarm(StallDetector(), worlds) is None


def test_a_silent_script_that_computes_lives():
    worlds = [[sample(phase=None, cpu=float(second))] for second in range(2000)]
    assert first_alarm(StallDetector(), worlds) is None


def test_a_spinning_wait_in_a_collective_is_no_life():
    worlds = [
        [sample(phase=None, cpu=float(second), collectives=min(second, 7), in_collective=second >= 7)]
        for second in range(2000)
    ]
    assert first_alarm(StallDetector(), worlds) == 7 + SILENT_TIMEOUT + 1


def test_ranks_that_evaluate_without_a_collective_or_output_are_given_ten_times_the_timeout():
    worlds = [
        [sample(rank, phase=None, cpu=float(second), collectives=min(second, 7)) for rank in (0, 1)]
        for second in range(4000)
    ]
    assert first_alarm(StallDetector(), worlds) == pytest.approx(7 + SILENT_TIMEOUT * 10, abs=3)


def test_a_rank_that_computes_while_the_others_wait_is_given_ten_times_the_timeout():
    worlds = [
        [
            sample(0, phase=None, cpu=float(second), collectives=min(second, 7)),
            sample(1, phase=None, cpu=float(second), collectives=min(second, 8), in_collective=second >= 8),
        ]
        for second in range(4000)
    ]
    assert first_alarm(StallDetector(), worlds) == pytest.approx(8 + SILENT_TIMEOUT * 10, abs=3)


def test_a_rank_that_sleeps_while_the_others_wait_is_not():
    worlds = [
        [
            sample(0, phase=None, collectives=min(second, 7)),
            sample(1, phase=None, cpu=second, collectives=min(second, 8), in_collective=second >= 8),
        ]
        for second in range(1000)
    ]
    assert first_alarm(StallDetector(), worlds) == 8 + SILENT_TIMEOUT + 1


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


def test_a_silent_script_that_does_nothing_is_hung():
    worlds = [[sample(phase=None, output=min(second, 9))] for second in range(2000)]
    assert first_alarm(StallDetector(), worlds) == 9 + SILENT_TIMEOUT + 1


def test_what_was_written_before_the_first_sample_counts():
    worlds = [[sample(phase=None, output=9)] for _ in range(2000)]
    assert first_alarm(StallDetector(), worlds) == SILENT_TIMEOUT + 1
    assert first_alarm(StallDetector(limit=3.0), worlds) == 31, "its start may take longer than the limit"


def test_a_script_that_has_not_begun_anything_yet_is_given_ten_times_the_timeout():
    worlds = [[sample(phase=None)] for _ in range(200)]
    assert first_alarm(StallDetector(limit=3.0), worlds) == 31


def test_collectives_that_advance_are_life():
    worlds = [[sample(phase=None, collectives=second // 50)] for second in range(2000)]
    assert first_alarm(StallDetector(), worlds) is None


def test_collectives_that_advance_in_a_group_that_has_enqueued_fewer_are_life():
    worlds = [[sample(phase=None, collectives=500, total=500 + second, in_collective=True)] for second in range(2000)]
    assert first_alarm(StallDetector(), worlds) is None


def test_steps_that_are_replayed_after_a_rollback_are_progress():
    worlds = [[sample(step=second)] for second in range(100)] + [[sample(step=second)] for second in range(40, 100)]
    assert first_alarm(StallDetector(), worlds) is None


def test_a_pause_between_two_steps_counts_however_many_are_done_right_after_it():
    fast = [[sample(step=10 * second)] for second in range(20)]
    paused = [[sample(step=190)]] * 25
    faster = [[sample(step=190 + 50 * second)] for second in range(1, 20)]
    again = [[sample(step=1140)]] * 60
    assert first_alarm(StallDetector(), fast + paused + faster + again) is None


def test_restoring_takes_as_long_as_a_slow_phase_may_also_before_the_first_step():
    worlds = [[sample(phase="restore", collectives=3)] for _ in range(200)]
    assert first_alarm(StallDetector(limit=3.0), worlds) == 31


def test_a_rank_that_is_stopped_by_a_signal_is_found_at_once_whatever_the_timeout():
    worlds = [[sample(phase=None, state="S" if second < 50 else "T")] for second in range(200)]
    assert first_alarm(StallDetector(limit=3600.0), worlds) == 50 + STOPPED_TIMEOUT


def test_one_that_is_stopped_for_a_moment_or_by_a_debugger_is_left_alone():
    worlds = [[sample(step=second, state="T" if second % 5 else "S")] for second in range(200)]
    assert first_alarm(StallDetector(), worlds) is None
    assert first_alarm(StallDetector(), [[sample(step=second, state="t")] for second in range(200)]) is None


def test_an_endless_loop_is_no_life():
    worlds = [
        [sample(step=min(second, 20), cpu=float(second), in_dead_loop=second > 28)] for second in range(200)
    ]  # fmt: skip
    assert first_alarm(StallDetector(), worlds) == 20 + MIN_TIMEOUT + 1


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


def test_steps_that_were_finished_before_the_first_sample_count():
    fast = [[sample(step=16, reported_steps=16, steps_per_second=40.0)] for _ in range(800)]
    assert first_alarm(StallDetector(), fast) == MIN_TIMEOUT + 1

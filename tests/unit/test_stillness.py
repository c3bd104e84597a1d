"""When silence means a hang: a slow first step, an evaluation and a save do not; a stopped world does."""

import pytest

from rekindle.keeper.stillness import BUSY, FLOOR, SILENT, Stillness
from rekindle.keeper.vital_signs import Vitals


def look(rank=0, *, step=None, phase="train", output=0, cpu=0.0, collectives=None, in_all=0, waits=False):
    return Vitals(rank, step, phase, output, cpu, collectives, "S", in_all, waits)


def first_alarm(stillness, worlds):
    """Seconds at which the doctor first says hung, for one look a second."""
    for second, world in enumerate(worlds):
        if stillness.hung(float(second), world) is not None:
            return second
    return None


def test_steps_that_advance_never_hang():
    worlds = [[look(step=second)] for second in range(1000)]
    assert first_alarm(Stillness(), worlds) is None


def test_a_world_that_stops_stepping_is_hung_after_the_floor():
    worlds = [[look(step=min(second, 20))] for second in range(200)]
    assert first_alarm(Stillness(), worlds) == 20 + FLOOR + 1


def test_a_world_that_computes_on_without_a_step_may_evaluate_and_nobody_was_told():
    worlds = [[look(step=min(second, 20), cpu=float(second))] for second in range(1000)]
    assert first_alarm(Stillness(), worlds) == 20 + FLOOR * 10 + 1
    assert first_alarm(Stillness(limit=3.0), worlds) == 24


def test_an_evaluation_that_computes_is_given_ten_times_as_long_as_one_that_waits():
    worlds = [
        [look(step=min(second, 20), phase="train" if second <= 20 else "evaluate", cpu=float(second))]
        for second in range(4000)
    ]
    assert first_alarm(Stillness(), worlds) == 21 + FLOOR * 100 + 1


def test_a_world_that_has_stopped_to_compute_is_hung_as_if_it_never_had():
    worlds = [[look(step=min(second, 20), cpu=float(min(second, 60)))] for second in range(200)]
    assert first_alarm(Stillness(), worlds) == 60 + BUSY + 1


def test_a_slow_job_gets_a_longer_bound_than_the_floor():
    worlds = [[look(step=min(second // 10, 20))] for second in range(2000)]
    alarm = first_alarm(Stillness(), worlds)
    assert alarm is not None
    assert alarm > 200 + 150


def test_one_rank_standing_still_hangs_the_world_only_when_none_advances():
    worlds = [[look(0, step=second), look(1, step=5)] for second in range(300)]
    assert first_alarm(Stillness(), worlds) is None


def test_the_users_limit_replaces_the_learned_bound():
    worlds = [[look(step=min(second, 20))] for second in range(100)]
    assert first_alarm(Stillness(limit=3.0), worlds) == 24


@pytest.mark.parametrize("phase", ["evaluate", "snapshot", "restore"])
def test_a_known_slow_phase_is_given_ten_times_the_bound(phase):
    worlds = [[look(step=min(second, 20), phase="train" if second <= 20 else phase)] for second in range(200)]
    alarm = first_alarm(Stillness(limit=3.0), worlds)
    assert alarm == 21 + 30 + 1


def test_a_slow_first_step_is_not_a_hang():
    worlds = [[look(step=0)] for _ in range(25)] + [[look(step=n)] for n in range(100)]
    assert first_alarm(Stillness(limit=3.0), worlds) is None


def test_a_silent_script_that_writes_output_lives():
    worlds = [[look(phase=None, output=second // 100)] for second in range(2000)]
    assert first_alarm(Stillness(), worlds) is None


def test_a_silent_script_that_computes_lives():
    worlds = [[look(phase=None, cpu=float(second))] for second in range(2000)]
    assert first_alarm(Stillness(), worlds) is None


def test_a_spinning_wait_in_a_collective_is_no_life():
    worlds = [
        [look(phase=None, cpu=float(second), collectives=min(second, 7), waits=second >= 7)] for second in range(2000)
    ]
    assert first_alarm(Stillness(), worlds) == 7 + SILENT + 1


def test_ranks_that_evaluate_without_a_collective_or_a_word_are_given_ten_times_the_bound():
    worlds = [
        [look(rank, phase=None, cpu=float(second), collectives=min(second, 7)) for rank in (0, 1)]
        for second in range(4000)
    ]
    assert first_alarm(Stillness(), worlds) == pytest.approx(7 + SILENT * 10, abs=3)


def test_a_rank_that_computes_while_the_others_wait_is_given_ten_times_the_bound():
    worlds = [
        [
            look(0, phase=None, cpu=float(second), collectives=min(second, 7)),
            look(1, phase=None, cpu=float(second), collectives=min(second, 8), waits=second >= 8),
        ]
        for second in range(4000)
    ]
    assert first_alarm(Stillness(), worlds) == pytest.approx(8 + SILENT * 10, abs=3)


def test_a_rank_that_sleeps_while_the_others_wait_is_not():
    worlds = [
        [
            look(0, phase=None, collectives=min(second, 7)),
            look(1, phase=None, cpu=second, collectives=min(second, 8), waits=second >= 8),
        ]
        for second in range(1000)
    ]
    assert first_alarm(Stillness(), worlds) == 8 + SILENT + 1


def test_time_in_which_nothing_could_be_seen_is_no_standstill_and_teaches_nothing():
    stillness = Stillness()
    assert first_alarm(stillness, [[look(step=second)] for second in range(20)]) is None
    bound = stillness.bound(19.0)
    stillness.excuse(600.0)
    assert stillness.hung(620.0, [look(step=19)]) is None
    assert stillness.hung(621.0, [look(step=20)]) is None
    assert stillness.bound(621.0) == bound
    assert stillness.hung(621.0 + bound, [look(step=20)]) is None
    assert stillness.hung(622.0 + bound, [look(step=20)]) is not None


def test_a_silent_script_that_does_nothing_is_hung():
    worlds = [[look(phase=None, output=min(second, 9))] for second in range(2000)]
    assert first_alarm(Stillness(), worlds) == 9 + SILENT + 1


def test_a_script_that_has_not_begun_anything_yet_is_given_ten_times_the_bound():
    worlds = [[look(phase=None)] for _ in range(200)]
    assert first_alarm(Stillness(limit=3.0), worlds) == 31


def test_collectives_that_advance_are_life():
    worlds = [[look(phase=None, collectives=second // 50)] for second in range(2000)]
    assert first_alarm(Stillness(), worlds) is None


def test_collectives_that_advance_in_a_group_that_has_begun_fewer_are_life():
    worlds = [[look(phase=None, collectives=500, in_all=500 + second, waits=True)] for second in range(2000)]
    assert first_alarm(Stillness(), worlds) is None


def test_steps_that_are_done_again_after_a_rollback_are_progress():
    worlds = [[look(step=second)] for second in range(100)] + [[look(step=second)] for second in range(40, 100)]
    assert first_alarm(Stillness(), worlds) is None


def test_a_pause_between_two_steps_counts_however_many_are_done_right_after_it():
    fast = [[look(step=10 * second)] for second in range(20)]
    paused = [[look(step=190)]] * 25
    faster = [[look(step=190 + 50 * second)] for second in range(1, 20)]
    again = [[look(step=1140)]] * 60
    assert first_alarm(Stillness(), fast + paused + faster + again) is None


def test_restoring_takes_as_long_as_a_slow_phase_may_also_before_the_first_step():
    worlds = [[look(phase="restore", collectives=3)] for _ in range(200)]
    assert first_alarm(Stillness(limit=3.0), worlds) == 31

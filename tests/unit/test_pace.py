"""Who keeps the others waiting: found by shares of looks, and only where the ranks run in lockstep."""

from itertools import chain, repeat

from rekindle.keeper.pace import WINDOW, Mark, Pace, Sighting, stragglers_behind


def sightings(count, behind, *, per_look=(4, 4), start=0):
    """``behind``: for each look the set of ranks that the others wait for; ``per_look``: collectives of each rank."""
    for look, late in zip(range(start, start + count), behind, strict=False):
        yield Sighting({rank: look * made for rank, made in enumerate(per_look)}, frozenset(late))


def marks(pace, seen):
    return list(chain.from_iterable(pace.see(each) for each in seen))


def test_a_rank_that_the_others_wait_for_most_of_the_time_is_marked_once():
    assert marks(Pace(), sightings(3 * WINDOW, repeat({1}))) == [Mark(1, 1.0)]


def test_equal_ranks_that_are_behind_in_turns_are_not_marked():
    assert marks(Pace(), sightings(3 * WINDOW, [{0}, {1}, set()] * WINDOW)) == []


def test_a_mark_is_taken_back_when_the_rank_has_kept_up_for_a_while():
    pace = Pace()
    marks(pace, sightings(WINDOW, repeat({1})))
    assert marks(pace, sightings(WINDOW, repeat(set()), start=WINDOW)) == [Mark(1, None)]


def test_nothing_is_said_before_a_whole_window_was_seen():
    assert marks(Pace(), sightings(WINDOW - 1, repeat({1}))) == []


def test_a_world_that_stands_still_has_no_straggler():
    assert marks(Pace(), sightings(3 * WINDOW, repeat({1}), per_look=(0, 0))) == []


def test_ranks_that_never_make_as_many_collectives_are_not_compared():
    assert marks(Pace(), sightings(3 * WINDOW, repeat({1}), per_look=(5, 4))) == []


def test_a_rank_that_has_ended_begins_the_window_anew():
    pace = Pace()
    marks(pace, sightings(WINDOW - 1, repeat({1}), per_look=(4, 4, 4)))
    assert marks(pace, sightings(WINDOW - 1, repeat({1}), start=WINDOW)) == []


def test_the_rank_that_is_asked_first_is_not_behind_when_it_has_moved_on_meanwhile():
    assert stragglers_behind({0: 10, 1: 11}, {0: 11}) == frozenset()


def test_a_rank_that_still_has_not_begun_what_another_had_is_behind():
    assert stragglers_behind({0: 10, 1: 11, 2: 11}, {0: 10}) == {0}

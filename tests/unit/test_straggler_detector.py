"""Which rank delays the others: found by shares of samples, and only where the ranks run in lockstep."""

from itertools import chain, repeat

import pytest

from rekindle.keeper.hangs.straggler import (
    WINDOW,
    CollectiveSample,
    StragglerDetector,
    StragglerEvent,
    WaitShares,
    lagging_ranks,
)


def samples(count, lagging, *, per_sample=(4, 4), start=0):
    """``lagging``: by sample, the ranks that the others wait for; ``per_sample``: collectives of each rank."""
    for sample, late in zip(range(start, start + count), lagging, strict=False):
        yield CollectiveSample({rank: sample * made for rank, made in enumerate(per_sample)}, frozenset(late))


def events(detector, samples_added):
    return list(chain.from_iterable(detector.add(each) for each in samples_added))


@pytest.mark.parametrize(
    ("count", "lagging", "per_sample", "expected"),
    [
        (3 * WINDOW, repeat({1}), (4, 4), [StragglerEvent(1, 1.0)]),
        (3 * WINDOW, [{0}, {1}, set()] * WINDOW, (4, 4), []),
        (WINDOW - 1, repeat({1}), (4, 4), []),
        (3 * WINDOW, repeat({1}), (0, 0), []),
        (3 * WINDOW, repeat({1}), (5, 4), []),
    ],
    ids=["mostly one rank", "ranks in turns", "less than a window", "no progress", "unequal numbers of collectives"],
)
def test_a_rank_that_the_others_wait_for_most_of_the_time_is_marked_once(count, lagging, per_sample, expected):
    assert events(StragglerDetector(), samples(count, lagging, per_sample=per_sample)) == expected


def test_a_mark_is_cleared_when_the_rank_has_kept_up_for_a_while():
    detector = StragglerDetector()
    events(detector, samples(WINDOW, repeat({1})))
    assert events(detector, samples(WINDOW, repeat(set()), start=WINDOW)) == [StragglerEvent(1, None)]


def test_a_rank_that_has_ended_restarts_the_window():
    detector = StragglerDetector()
    events(detector, samples(WINDOW - 1, repeat({1}), per_sample=(4, 4, 4)))
    assert events(detector, samples(WINDOW - 1, repeat({1}), start=WINDOW)) == []


def test_a_rank_is_behind_that_has_not_enqueued_what_another_had_when_queried_again():
    assert lagging_ranks({0: 10, 1: 11}, {0: 11}) == frozenset()
    assert lagging_ranks({0: 10, 1: 11, 2: 11}, {0: 10}) == {0}


def test_the_share_of_waiting_counts_samples_in_which_another_rank_was_behind():
    shares = WaitShares()
    for lagging in ({1}, {1}, set(), {0}):
        shares.add(CollectiveSample({0: 5, 1: 5, 2: 5}, frozenset(lagging)))
    assert shares.take() == {0: 0.5, 1: 0.25, 2: 0.75}
    assert shares.take() == {}, "taken"

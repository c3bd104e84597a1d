"""When the keeper itself was kept from sampling: what it did not observe is no hang."""

import time
from pathlib import Path

import pytest

from rekindle.contract.files import write_json
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.paths import AttemptDir
from rekindle.contract.run_dir.rank_records import RankState, RankStatus
from rekindle.keeper.attempt_result import RankResult
from rekindle.keeper.hangs import detector
from rekindle.keeper.hangs.detector import HangDetector

_LIMIT = 10.0  # seconds


class Watched:
    """This process as the one rank of an attempt, with a clock that the test sets."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, limit: float | None = _LIMIT) -> None:
        self._dir, own = AttemptDir(directory), ProcessIdentity.own()
        self._rank = RankResult(0, own.pid, own.start_time)
        self._dir.rank(0).root.mkdir(parents=True)
        self._now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self._now)
        self._detector = HangDetector(self._dir, directory, limit, directory / "pace.json", long_timeout=60.0)

    def report(self, step: int, phase: str | None = None) -> None:
        status = RankStatus(0, 0, 1, "host", self._rank.pid, self._rank.start_time, "cpu", RankState.RUNNING)
        status.step, status.phase = step, phase
        write_json(self._dir.rank(0).status, status.to_json(), durable=False)

    def detected_within(self, seconds: int) -> bool:
        """Whether one of ``seconds`` samples, a second apart, reports a hang."""
        return any(self.sample_after(1.0) for _ in range(seconds))

    def sample_after(self, seconds: float) -> bool:
        self._now += seconds
        return self._detector.poll([self._rank], self._pass) is not None

    @property
    def phase(self) -> str | None:
        return self._detector.take_activity().ranks[0].phase

    def _pass(self, seconds: float) -> None:
        self._now += seconds


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    watched = Watched(tmp_path, monkeypatch)
    for step in range(10):
        watched.report(step)
        watched.sample_after(1.0)
    return watched


def test_a_tree_that_was_frozen_with_its_keeper_is_no_hang(watched: Watched) -> None:
    assert not watched.sample_after(600.0)
    assert not watched.detected_within(5)
    watched.report(10)
    assert not watched.detected_within(5)


def test_a_tree_that_stalls_after_it_was_frozen_is_one(watched: Watched) -> None:
    watched.sample_after(600.0)
    assert watched.detected_within(int(_LIMIT) + 2)


def test_time_in_which_a_full_disk_hid_the_progress_is_not_counted_afterwards(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(detector, "has_free_space", lambda _: False)
        assert not watched.detected_within(6 * int(_LIMIT))
    assert not watched.detected_within(2), "its ranks have had no time to report yet"
    assert watched.detected_within(int(_LIMIT) + 2)


def test_the_activity_of_a_rank_is_what_it_did_most_of_the_time_and_not_last(watched: Watched) -> None:
    assert watched.phase is None
    for step, phase in enumerate(["train", "train", "train", "train", "epoch end"], start=10):
        watched.report(step, phase)
        watched.sample_after(1.0)
    assert watched.phase == "train"
    assert watched.phase == "epoch end", "without a sample since then, the latest one counts"


def test_what_may_end_by_itself_has_more_time_without_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path, monkeypatch, limit=None)
    for step in range(10):
        watched.report(step)
        watched.sample_after(1.0)
    assert not watched.detected_within(50)
    assert watched.detected_within(20)


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_rank_that_ends_while_its_stacks_are_awaited_is_observed_once(tmp_path: Path, exit_code: int) -> None:
    attempt, own = AttemptDir(tmp_path), ProcessIdentity.own()
    ranks = [RankResult(number, own.pid, own.start_time) for number in range(2)]
    for rank in ranks:
        attempt.rank(rank.rank).root.mkdir(parents=True)
    ranks[0].ended_at, ranks[0].exit_code = time.monotonic(), 1

    def end(_seconds: float) -> None:
        attempt.rank(1).stacks.write_text("a last dump")
        ranks[1].ended_at, ranks[1].exit_code = time.monotonic(), exit_code

    seen = HangDetector(attempt, tmp_path, None, tmp_path / "pace.json").observe_failure(ranks, end)
    assert seen.running == []
    assert [each.sample.rank for each in seen.failed] == ([0, 1] if exit_code else [0])
    assert [each.rank for each in seen.finished] == ([] if exit_code else [1])

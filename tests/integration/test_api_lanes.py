"""What the ranks of a job did over time, from samples as a keeper leaves them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from rekindle.contract.run_dir.attempt_samples import GpuUsage, RankUsage, UsageSample
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.states import JobState

_BEGAN = 1_700_000_000.0  # seconds since the epoch


class Recorded:
    """A job of two ranks with the records of its keeper."""

    def __init__(self, server: ApiServer, code: Path) -> None:
        self.server = server
        self.job = server.submit(code, ranks=2)
        self.run_dir = server.run_dir(self.job)
        self.journal = Journal(self.run_dir.journal)
        self.at(0, RecordType.KEEPER_STARTED, run=1, keeper={"pid": 1, "start_time": 1, "boot_id": "x"})
        server.move(self.job, JobState.STARTING, JobState.RUNNING, attempt=1)

    def at(self, seconds: float, record: RecordType, **fields: Any) -> None:
        self.journal.write(record, at=_BEGAN + seconds, **fields)

    def attempt(self, number: int, begin: float, end: float, *, exit_code: int = 0) -> None:
        self.at(begin, RecordType.ATTEMPT_STARTED, attempt=number, run=1, world_size=2, devices=["cpu:0", "cpu:1"])
        self.at(begin + 1, RecordType.RANKS_RUNNING, attempt=number, ranks=[])
        self.at(end, RecordType.RANK_EXITED, attempt=number, rank=1, exit_code=exit_code)
        self.at(end, RecordType.RANK_EXITED, attempt=number, rank=0, signal="SIGTERM", killed=True)
        self.at(end, RecordType.ATTEMPT_ENDED, attempt=number, outcome=None)

    def sample(self, number: int, *samples: dict[str, Any] | str) -> None:
        path = self.run_dir.attempt(number).usage
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (each if isinstance(each, str) else json.dumps(each) for each in samples)
        path.write_text("".join(f"{line}\n" for line in lines))

    def lanes(self, **query: Any) -> dict[str, Any]:
        self.server.read_journal(self.job)
        query = {"from": _BEGAN, "to": _BEGAN + 100, **query}
        answer = self.server.api.get(f"/api/v1/jobs/{self.job['id']}/lanes", params=query)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


def sample(seconds: float, *ranks: RankUsage, devices: tuple[GpuUsage, ...] = ()) -> dict[str, Any]:
    return UsageSample(_BEGAN + seconds, list(ranks), list(devices), 30.0).to_json()


def used(rank: int, cpu: float | None, phase: str = "train", step: int = 1, waiting: float | None = 0.5) -> RankUsage:
    return RankUsage(rank, cpu, 1000, 0, 0, phase, step, waiting)


@pytest.fixture
def recorded(shared_server: ApiServer, shared_code: Path) -> Recorded:
    return Recorded(shared_server, shared_code)


def test_every_rank_of_every_attempt_has_a_lane(recorded: Recorded) -> None:
    recorded.attempt(1, 0, 40, exit_code=3)
    recorded.attempt(2, 50, 90)
    recorded.sample(1, sample(5, used(0, None), used(1, 80.0)), sample(15, used(0, 60.0, "snapshot", 9, 1.0)))
    recorded.sample(2, sample(55, used(0, 10.0), used(1, 20.0, step=4)))
    lanes = recorded.lanes(points=10)
    first, second = lanes["attempts"]
    assert (first["started_at"], first["ranks_running_at"], first["ended_at"]) == (_BEGAN, _BEGAN + 1, _BEGAN + 40)
    assert first["at"] == [_BEGAN + 5, _BEGAN + 15]
    zero, one = first["ranks"]
    assert (zero["exit"], one["exit"]) == (None, "exit 3"), "rank 0 was stopped by the keeper"
    assert (zero["ended_at"], one["ended_at"]) == (_BEGAN + 40, _BEGAN + 40)
    assert [lanes["phases"][index] for index in zero["phase"]] == ["train", "snapshot"]
    assert (zero["step"], zero["waiting"], zero["use"]) == ([1, 9], [0.5, 1.0], [None, 60.0])
    assert (one["step"], one["use"]) == ([1, None], [80.0, None]), "it is not in the second sample"
    assert first["totals"]["cpu_percent"] == [80.0, 60.0]
    assert first["totals"]["rss_bytes"] == [2000, 1000]
    assert second["ranks"][1]["step"] == [4]
    assert lanes["complete"] is True


def test_a_range_has_the_attempts_and_samples_within_it(recorded: Recorded) -> None:
    recorded.attempt(1, 0, 40)
    recorded.attempt(2, 50, 90)
    recorded.sample(2, *(sample(at, used(0, 1.0)) for at in (51, 60, 70, 89)))
    lanes = recorded.lanes(**{"from": _BEGAN + 55, "to": _BEGAN + 75})
    assert [(each["attempt"], each["at"]) for each in lanes["attempts"]] == [(2, [_BEGAN + 60, _BEGAN + 70])]


def test_gpus_count_instead_of_the_processor_and_samples_of_one_point_are_averaged(recorded: Recorded) -> None:
    gpus = [GpuUsage(percent, 1 << 30, 2 << 30, index=1) for percent in (40, 60)]
    recorded.attempt(1, 0, 40)
    samples = [
        sample(at, used(1, 5.0, step=at, waiting=at / 4), devices=(gpu,)) for at, gpu in zip((1, 2), gpus, strict=True)
    ]
    recorded.sample(1, *samples)
    (attempt,) = recorded.lanes(points=1, measure=["cpu", "memory", "gpu", "gpu_memory"])["attempts"]
    assert attempt["at"] == [_BEGAN + 2]
    zero, one = attempt["ranks"]
    assert (one["step"], one["waiting"], one["use"]) == ([2], [0.375], [50.0])
    assert one["measures"] == {"cpu": [5.0], "memory": [1000], "gpu": [50.0], "gpu_memory": [1 << 30]}
    assert zero["measures"] == {name: [None] for name in one["measures"]}, "it is in no sample, and has no GPU"
    assert attempt["totals"]["gpu_memory_bytes"] == [1 << 30]


def test_a_point_has_the_phase_that_took_most_of_its_time_and_not_that_of_its_last_sample(recorded: Recorded) -> None:
    recorded.attempt(1, 0, 40)
    phases = ["train", "train", "epoch end", "evaluate", "evaluate", "epoch end"]
    recorded.sample(1, *(sample(1 + at, used(0, 1.0, phase)) for at, phase in enumerate(phases)))
    for begin, end, shown in ((0.5, 3.5, "train"), (3.5, 6.5, "evaluate")):
        lanes = recorded.lanes(**{"from": _BEGAN + begin, "to": _BEGAN + end, "points": 1})
        (point,) = lanes["attempts"][0]["ranks"][0]["phase"]
        assert lanes["phases"][point] == shown


def test_samples_of_earlier_versions_and_forged_ones_do_no_harm(recorded: Recorded) -> None:
    old = sample(5, used(0, 1.0))
    for name in ("phase", "step", "waiting"):
        del old["ranks"][0][name]
    recorded.attempt(1, 0, 40)
    phases = (sample(6 + at / 100, used(0, 1.0, f"{'x' * 900}{at}" if at % 2 else str(at))) for at in range(300))
    back = sample(2, used(0, 1.0, waiting=1e9))
    recorded.sample(1, old, "{", '{"at": "<b>"}', *phases, back)
    lanes = recorded.lanes(points=2000)
    (attempt,) = lanes["attempts"]
    assert attempt["ranks"][0]["phase"][0] == lanes["phases"].index("running")
    assert set(attempt["ranks"][1]["phase"]) == {None}, "it did not run"
    assert len(lanes["phases"]) <= 41
    assert max(map(len, lanes["phases"])) <= 60
    assert attempt["at"] == sorted(attempt["at"]), "though the clock went back"
    assert max(each or 0 for each in attempt["ranks"][0]["waiting"]) <= 1.0
    usage = recorded.run_dir.attempt(1).usage
    usage.unlink()
    os.mkfifo(usage)
    assert recorded.lanes()["attempts"][0]["at"] == []


def test_many_ranks_have_fewer_points(recorded: Recorded) -> None:
    recorded.attempt(1, 0, 40)
    recorded.sample(1, *(sample(at / 10, *(used(rank, 1.0) for rank in range(2))) for at in range(400)))
    for rank in range(1000):
        recorded.run_dir.attempt(1).rank(rank).root.mkdir(parents=True, exist_ok=True)
    (attempt,) = recorded.lanes(points=2000)["attempts"]
    assert len(attempt["ranks"]) == 1000
    assert 1 < len(attempt["at"]) <= 100


def test_a_long_wait_between_attempts_takes_no_points_from_them(recorded: Recorded) -> None:
    recorded.attempt(1, 0, 10)
    recorded.attempt(2, 80_000, 80_010)
    recorded.sample(2, *(sample(80_000 + at, used(0, 1.0)) for at in range(10)))
    first, second = recorded.lanes(to=_BEGAN + 80_010, points=20)["attempts"]
    assert len(second["at"]) == 10
    assert first["ranks"][0]["measures"] == {}, "none was requested"


def test_a_range_without_time_is_rejected(recorded: Recorded) -> None:
    url = f"/api/v1/jobs/{recorded.job['id']}/lanes"
    answer = recorded.server.api.get(url, params={"from": 20, "to": 10})
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["field"]) == (422, "to")
    assert error["rule"] == "must be later than `from`, which is 20.000"
    assert recorded.server.api.get(url, params={"points": 0}).status_code == 422
    assert recorded.server.api.get(url, params={"measure": "heat"}).status_code == 422
    assert recorded.server.api.get(url).json()["attempts"] == [], "by default from submission to now"


def test_a_job_that_ended_before_it_was_submitted_has_lanes(recorded: Recorded) -> None:
    recorded.server.move(recorded.job, JobState.CANCELLED, created_at=_BEGAN, ended_at=_BEGAN - 3600)
    answer = recorded.server.api.get(f"/api/v1/jobs/{recorded.job['id']}/lanes")
    assert answer.status_code == 200, answer.text
    assert answer.json()["attempts"] == [], "the clock was set back meanwhile"

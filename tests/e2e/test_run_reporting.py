"""What a training under rekindle leaves in its run directory, with the keeper's and the server's part played here."""

import json
import os
import socket

import pytest

from plain_torchrun import EXACT, cold_torchrun, snapshot_steps, torchrun
from rekindle.contract.environment import attempt_environment
from rekindle.contract.files import read_lines, write_json
from rekindle.contract.job import RunIntent
from rekindle.contract.run_dir.control_messages import ControlMessage, MessageType, parse_message
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import RankState, RankStatus
from rekindle.contract.states import JobIntent

SNAPSHOT_POLICY = '{"every_steps": 5, "every_seconds": null, "every_epochs": null, "keep": 9}'


class PlayedJob:
    """A run directory, and what happens around its ranks."""

    def __init__(self, root):
        self.run_dir = RunDir(root)
        os.mkfifo(self.run_dir.control)
        self._fifo = os.open(self.run_dir.control, os.O_RDWR | os.O_NONBLOCK)

    def want(self, wish):
        write_json(self.run_dir.intent, RunIntent(wish, 1, ["cpu:0", "cpu:1"]).to_json())

    def attempt(self, number, **environment):
        for rank in range(2):
            directory = self.run_dir.attempt(number).rank(rank)
            directory.root.mkdir(parents=True)
            status = RankStatus(rank, rank, 2, socket.gethostname(), 1, 1, "cpu", RankState.RUNNING)
            write_json(directory.status, status.to_json())
        generation = f"{number}-test"
        write_json(self.run_dir.fence, {"generation": generation})
        own = attempt_environment(
            run_dir=self.run_dir, attempt=number, generation=generation, snapshot_policy=SNAPSHOT_POLICY
        )
        launch = cold_torchrun if number == 1 else torchrun  # the exit code of a forked rank is lost
        return launch(2, [EXACT], self.run_dir.root, **own, **environment)

    def statuses(self, number):
        directory = self.run_dir.attempt(number)
        return [json.loads(directory.rank(rank).status.read_bytes()) for rank in range(2)]

    def metric_lines(self, number):
        return [line for _, line in read_lines(self.run_dir.attempt(number).rank(0).metrics)]

    def messages(self):
        try:
            return [parse_message(line) for line in os.read(self._fifo, 1 << 16).splitlines()]
        except BlockingIOError:
            return []

    def close(self):
        os.close(self._fifo)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Drained by the server's intent in its first attempt, finished in its second."""
    played = PlayedJob(tmp_path_factory.mktemp("job"))
    played.want(JobIntent.DRAIN)
    first = played.attempt(1)
    played.first_messages = played.messages()
    played.first_snapshots = snapshot_steps(played.run_dir.root)
    assert first.code == 1, first.output
    assert "exitcode  : 75" in first.output
    played.want(JobIntent.RUN)
    second = played.attempt(2)
    assert second.code == 0, second.output
    yield played
    played.close()


def test_a_drain_by_the_servers_intent_saves_the_first_step_boundary(job):
    assert job.first_snapshots == [1]
    assert [(own["step"], own["snapshot_step"]) for own in job.statuses(1)] == [(1, 1), (1, 1)]


def test_the_next_attempt_reports_the_step_from_which_it_resumed(job):
    assert [own["resumed_from_step"] for own in job.statuses(1)] == [None, None]
    assert [own["resumed_from_step"] for own in job.statuses(2)] == [1, 1]
    assert job.first_messages == []
    assert job.messages() == [ControlMessage(MessageType.RESUMED, attempt=2, step=1)]


def test_the_status_ends_at_the_last_step_and_expects_no_more(job):
    for own in job.statuses(2):
        assert (own["step"], own["steps"], own["epoch"], own["epochs"]) == (21, 21, 3, 3)
        assert (own["snapshot_step"], own["phase"], own["notice"]) == (21, "epoch end", None)
        assert own["steps_per_second"] > 0


def test_every_step_is_in_the_metrics_once_as_the_mean_over_the_ranks(job):
    points = job.metric_lines(1) + job.metric_lines(2)
    assert [point["step"] for point in points] == list(range(1, 22))
    assert [point["epoch"] for point in points] == [0] * 7 + [1] * 7 + [2] * 7
    by_rank = [
        dict(json.loads(line) for line in (job.run_dir.root / f"losses-{rank}.jsonl").read_text().splitlines())
        for rank in range(2)
    ]
    for point in points[:5]:
        assert point["values"]["loss"] == pytest.approx((by_rank[0][point["step"]] + by_rank[1][point["step"]]) / 2)


def test_the_submitters_policy_goes_before_the_scripts(job):
    assert snapshot_steps(job.run_dir.root) == [1, 5, 10, 15, 20, 21]
